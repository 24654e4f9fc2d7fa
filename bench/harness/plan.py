"""Sizes, lengths, jobs, and the order in which jobs run."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

VOCAB = 30522
LENGTH = 128
BATCH = 32
EXAMPLES = 3668
DROPOUT = 0.1
LEARNING_RATE = 2e-5
WEIGHT_DECAY = 0.01
CLIP_NORM = 1.0
WARMUP_RATIO = 0.1
POSITIONS = 512
MASKED = 0.15
"""The share of tokens that a masked language model is to predict."""

LENGTHS = ("mrpc", "full")
"""mrpc: pairs with the lengths of MRPC's; full: every position is a token."""

WARM_STEPS = 2
"""Steps of a run before those that are timed."""

GPU_WARM_STEPS = 20
"""The same on a GPU, where libraries try kernels for every new shape."""


@dataclasses.dataclass(frozen=True)
class Size:
    """The shape of a BERT encoder."""

    layers: int
    hidden: int
    heads: int
    inner: int

    @property
    def train_flop_per_token(self) -> int:
        """Returns the operations of the dense layers' products, forward and backward, for a token.

        Attention's own products, which depend on the lengths, are not counted:
        they add 2 % at 53 tokens and 5 % at 128 for minilm.
        """
        return 6 * self.layers * (4 * self.hidden**2 + 2 * self.hidden * self.inner)

    @property
    def masked_flop_per_token(self) -> float:
        """Returns train_flop_per_token and a token's share of the head of a masked language model.

        The head is a dense layer and the product with the word embeddings, for masked tokens alone.
        """
        head = 6 * self.hidden * (self.hidden + VOCAB)
        return self.train_flop_per_token + MASKED * head


SIZES = {
    "tiny": Size(2, 128, 2, 512),
    "minilm": Size(6, 384, 12, 1536),
    "base": Size(12, 768, 12, 3072),
}

STEPS = {"tiny": 100, "minilm": 20, "base": 6}
"""Timed steps of a run."""

QUICK_STEPS = {"tiny": 20, "minilm": 6, "base": 2}

GPU_STEPS = {"tiny": 1000, "minilm": 500, "base": 200}

GPU_QUICK_STEPS = {"tiny": 200, "minilm": 100, "base": 40}


@dataclasses.dataclass(frozen=True)
class Job:
    """One run of one variant of a peer.

    Attributes:
        variant: the name of the peer's settings.
        size: of the model, a key of SIZES.
        lengths: one of LENGTHS.
        steps: the number of timed steps, after the first ones.
        data: folder that peers.data has made.
        scratch: an empty folder for this run alone.
        options: other values that the peer needs, by name.
        ports: two free ports of this machine, for this run alone.
        gpu: whether it runs on the GPU.
    """

    variant: str
    size: str = "tiny"
    lengths: str = "mrpc"
    steps: int = 1
    data: str = ""
    scratch: str = ""
    options: dict[str, str] = dataclasses.field(default_factory=dict)
    ports: list[int] = dataclasses.field(default_factory=list)
    gpu: bool = False

    @property
    def warm_steps(self) -> int:
        """Steps before those that are timed."""
        return GPU_WARM_STEPS if self.gpu else WARM_STEPS

    @property
    def total_steps(self) -> int:
        """All steps of the run."""
        return self.warm_steps + self.steps

    def counts(self, done: int) -> bool:
        """Whether the time at which this many steps are done is used for a number."""
        return done in (1, self.warm_steps, self.total_steps)

    @property
    def warmup_steps(self) -> int:
        """Steps during which the learning rate rises."""
        return max(1, int(self.total_steps * WARMUP_RATIO))

    @property
    def batch(self) -> int:
        """Examples of a batch of a training."""
        return int(self.options.get("batch", BATCH))

    @property
    def shape(self) -> Size:
        """The shape of the model."""
        return SIZES[self.size]

    def to_json(self) -> str:
        """Returns the job as one line of JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        """Returns the job that `to_json` wrote."""
        return cls(**json.loads(text))


def interleave(variants: Sequence[T], rounds: int) -> Iterator[tuple[int, T]]:
    """Yields A B C, A B C, ... with the number of the round, counted from 1.

    So changes of the machine over time affect all variants alike.
    """
    for number in range(1, rounds + 1):
        for variant in variants:
            yield number, variant
