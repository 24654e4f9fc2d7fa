"""What is measured: sizes, lengths, jobs, and the order in which they run."""

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

LENGTHS = ("mrpc", "full")
"""mrpc: pairs as long as those of MRPC; full: every position is a token."""

WARM_STEPS = 2
"""Steps of a run that come before its rate is taken."""

GPU_WARM_STEPS = 20
"""The same on a GPU, whose libraries try kernels for every new shape."""


@dataclasses.dataclass(frozen=True)
class Size:
    """The shape of a BERT encoder."""

    layers: int
    hidden: int
    heads: int
    inner: int

    @property
    def train_flop_per_token(self) -> int:
        """Operations of the dense layers' products, forward and backward, for one token.

        Attention's own products, which depend on the lengths, are not counted:
        they add 2 % at 53 tokens and 5 % at 128 for minilm.
        """
        return 6 * self.layers * (4 * self.hidden**2 + 2 * self.hidden * self.inner)


SIZES = {
    "tiny": Size(2, 128, 2, 512),
    "minilm": Size(6, 384, 12, 1536),
    "base": Size(12, 768, 12, 3072),
}

STEPS = {"tiny": 100, "minilm": 20, "base": 6}
"""Steps that a run is timed for."""

QUICK_STEPS = {"tiny": 20, "minilm": 6, "base": 2}

GPU_STEPS = {"tiny": 1000, "minilm": 500, "base": 200}

GPU_QUICK_STEPS = {"tiny": 200, "minilm": 100, "base": 40}


@dataclasses.dataclass(frozen=True)
class Job:
    """One run of one variant of a peer.

    Attributes:
        variant: the peer's name for the settings.
        size: of the model, a key of SIZES.
        lengths: one of LENGTHS.
        steps: steps to time, behind the first ones.
        data: folder that harness.data made.
        scratch: empty folder that is the run's own.
        options: whatever else the peer needs, by name.
        ports: two of this machine that are the run's own.
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
        """Whether a number is taken from the time at which so many steps are done."""
        return done in (1, self.warm_steps, self.total_steps)

    @property
    def warmup_steps(self) -> int:
        """Steps in which the learning rate rises."""
        return max(1, int(self.total_steps * WARMUP_RATIO))

    @property
    def shape(self) -> Size:
        """The size's numbers."""
        return SIZES[self.size]

    def to_json(self) -> str:
        """The job on one line."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        """The job that `to_json` wrote."""
        return cls(**json.loads(text))


def interleave(variants: Sequence[T], rounds: int) -> Iterator[tuple[int, T]]:
    """Yields A B C, A B C, ... with the number of the round, counted from 1.

    What changes on the machine in the meantime then meets all variants alike.
    """
    for number in range(1, rounds + 1):
        for variant in variants:
            yield number, variant
