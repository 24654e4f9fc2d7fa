"""The Task interface: what the exporter needs to know about a model."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, Callable

import tensorflow as tf

from gorbit_export import layers, ops

Tensor = tf.Tensor

PRECISIONS = {"float32": tf.float32, "bf16": tf.bfloat16, "fp16": tf.float16}
"""The dtypes that a model's products and activations may be computed in, by name."""


DTYPES = (tf.uint8, tf.int32, tf.int64, tf.float32, tf.bool)
"""The dtypes of features."""
ROLES = ("input", "label", "weight", "id")
WEIGHTS = "example_weights"
"""The feature that weighs examples, where no other has the role."""


@dataclasses.dataclass(frozen=True)
class Feature:
    """A named tensor of a batch.

    Attributes:
        name: name of the function input.
        dtype: element type, one of DTYPES.
        axes: one name per axis. Axes with the same name have the same length: "rows",
            "length" (of a row), "examples".
        label: whether the feature is part of the answer; prediction does not take it.
            It is the short form of the role "label", and true of every role but "input".
        role: what the feature is for, one of ROLES. Prediction takes inputs only. By default
            "weight" for `example_weights`, "label" with `label`, else "input".
        shape: length of each axis, None where it is open. By default all are.
        make: what gorbit computes instead of reading it from the record, see
            docs/reference/contract.md. "" are the record's values.
        minimum: least valid number, of integers; 0 where `below` is set.
        below: first number that is too large.
        pad: what fills an open axis.
        aside: no function takes it: gorbit alone needs it, for metrics. Its role is "id".
    """

    name: str
    dtype: tf.DType
    axes: tuple[str, ...]
    label: bool = False
    role: str = ""
    shape: tuple[int | None, ...] | None = None
    make: str = ""
    minimum: int | None = None
    below: int | None = None
    pad: float = 0
    aside: bool = False

    def __post_init__(self) -> None:
        """Fills in what follows from the rest.

        Raises:
            ValueError: if a field has no meaning.
        """
        if self.dtype not in DTYPES:
            known = ", ".join(dtype.name for dtype in DTYPES)
            raise ValueError(f"feature {self.name} is {self.dtype.name}; expected one of {known}")
        role = self.role or ("weight" if self.name == WEIGHTS else "label" * self.label or "input")
        if role not in ROLES:
            known = ", ".join(ROLES)
            raise ValueError(f"feature {self.name} has the role {role!r}; expected one of {known}")
        shape = (None,) * len(self.axes) if self.shape is None else tuple(self.shape)
        if len(shape) != len(self.axes):
            raise ValueError(
                f"feature {self.name} has {len(self.axes)} axes and a shape of {len(shape)}; "
                "expected as many"
            )
        for name, value in (("role", role), ("label", role != "input"), ("shape", shape)):
            object.__setattr__(self, name, value)

    def spec(self) -> tf.TensorSpec:
        """Returns the spec of the function argument for the feature."""
        return tf.TensorSpec(list(self.shape), self.dtype, self.name)


@dataclasses.dataclass(frozen=True)
class Metric:
    """A number that `results` gives.

    Attributes:
        name: its name in logs and metrics.jsonl.
        better: "higher" or "lower"; "" for a number that has no direction.
    """

    name: str
    better: str = ""


@dataclasses.dataclass(frozen=True)
class Output:
    """What an output of `predict` means.

    Attributes:
        name: the output.
        axes: one name per axis, the first "examples" (or "rows", of tokens).
        kind: "probabilities", "logits", "value", "values", "tokens" or "spans".
        of: the label feature whose categories name the classes; "" if there is none.
    """

    name: str
    axes: tuple[str, ...]
    kind: str
    of: str = ""


@dataclasses.dataclass(frozen=True)
class Phase:
    """A part of a training step, with a loss and variables of its own.

    Attributes:
        name: its name, letters, digits and `_`.
        paths: the trained variables that it updates.
        every: it is part of one in so many steps,
        offset: of step n, counted from 0, if n modulo `every` is this.
    """

    name: str
    paths: frozenset[str]
    every: int = 1
    offset: int = 0


@dataclasses.dataclass(frozen=True)
class Hyperparameter:
    """A float32 scalar input of a function that users can tune without a new export.

    Attributes:
        name: name of the function input.
        default: used if the user does not set it.
        help: one line for the user.
        minimum: smallest valid value.
        below: exclusive upper limit; None for no limit.
    """

    name: str
    default: float
    help: str
    minimum: float = 0.0
    below: float | None = None

    def spec(self) -> tf.TensorSpec:
        """Returns the spec of the function argument for the scalar."""
        return tf.TensorSpec([], tf.float32, self.name)


@dataclasses.dataclass(frozen=True)
class Cache:
    """What generation keeps of each token.

    Attributes:
        name: its name, letters, digits, `_` and `/`.
        shape: of a token's entry.
        dtype: of the entries.
    """

    name: str
    shape: tuple[int, ...]
    dtype: tf.DType = tf.float32

    @property
    def argument(self) -> str:
        """The argument of the function `generate`: a handle of a variable of all entries."""
        return "cache_" + self.name.replace("/", "_")


def _tokens(*names: str) -> list[tf.TensorSpec]:
    return [tf.TensorSpec([None, None], tf.int32, name) for name in names]


def _handles(caches: tuple[Cache, ...]) -> list[tf.TensorSpec]:
    return [tf.TensorSpec([], tf.resource, c.argument) for c in caches]


def _described(caches: tuple[Cache, ...]) -> list[dict[str, Any]]:
    return [{"name": c.name, "dtype": c.dtype.name, "shape": list(c.shape)} for c in caches]


@dataclasses.dataclass(frozen=True)
class Source:
    """What a decoder sees of a text that was encoded before, see docs/reference/contract.md.

    Attributes:
        max_length: the most tokens of a source.
        caches: what is kept of each of its tokens.
        write: the function, of `input_ids`, `position_ids`, `slots` and a list of the caches'
            handles; gives int32 [B], the number of tokens.
        shared: whether `next_logits` takes a source for several sequences in a row.
    """

    max_length: int
    caches: tuple[Cache, ...]
    write: Callable[..., Tensor]
    shared: bool = False

    def specs(self) -> list[tf.TensorSpec]:
        """The arguments of the function `encode`."""
        return [*_tokens("input_ids", "position_ids", "slots"), *_handles(self.caches)]

    def encode(self, **inputs: Tensor) -> dict[str, Tensor]:
        """The function `encode`."""
        caches = [inputs.pop(c.argument) for c in self.caches]
        return {"encoded": self.write(**inputs, caches=caches)}


@dataclasses.dataclass(frozen=True)
class Generation:
    """How a model makes tokens one after the other, see docs/reference/contract.md.

    Attributes:
        max_length: the most tokens of a sequence.
        vocab_size: number of logits.
        caches: what is kept of each token.
        next_logits: the function, of `input_ids`, `position_ids`, `slots`, `context`, `last` and
            a list of the caches' handles; gives float32 [B, V]. With a source, it takes `source`
            and a list of its caches' handles, `source_caches`, too.
        source: what is encoded before; None for a decoder alone.
        tokens: the numbers of special tokens, under their names in gorbit.json.
    """

    max_length: int
    vocab_size: int
    caches: tuple[Cache, ...]
    next_logits: Callable[..., Tensor]
    source: Source | None = None
    tokens: dict[str, Any] = dataclasses.field(default_factory=dict)

    def described(self) -> dict[str, Any]:
        """The field `generation` of gorbit.json."""
        values = {
            "max_length": self.max_length,
            "vocab_size": self.vocab_size,
            "caches": _described(self.caches),
        }
        if self.source:
            limit, caches = self.source.max_length, _described(self.source.caches)
            values["source"] = {"max_length": limit, "caches": caches}
            if self.source.shared:
                values["source"]["shared"] = True
        return {**values, **self.tokens}

    def specs(self) -> list[tf.TensorSpec]:
        """The arguments of the function `generate`."""
        tokens = _tokens("input_ids", "position_ids", "slots", "context")
        last = tf.TensorSpec([None], tf.int32, "last")
        source = [*_tokens("source"), *_handles(self.source.caches)] if self.source else []
        return [*tokens, last, *_handles(self.caches), *source]

    def generate(self, **inputs: Tensor) -> dict[str, Tensor]:
        """The function `generate`."""
        caches = [inputs.pop(c.argument) for c in self.caches]
        if self.source:
            inputs["source_caches"] = [inputs.pop(c.argument) for c in self.source.caches]
        return {"logits": self.next_logits(**inputs, caches=caches)}


class Task(abc.ABC):
    """A model with a loss, as the export contract sees it.

    A new architecture or head is one subclass. The attribute names of the module `model`
    and its submodules determine the names of the variables.
    """

    name: str
    """Name of the task in gorbit.json, for instance "classification"."""
    model: tf.Module
    """Holds every variable. Those that are not trainable are states: passes read them, and
    checkpoints hold them. A state is updated if `train_sums` gives its new value."""
    features: list[Feature]
    """The features of a batch."""
    hyperparameters: list[Hyperparameter]
    """Scalars of the training pass."""
    precision: str = "float32"
    """What `train_sums`, `evaluate_sums` and `predict` compute in, one of PRECISIONS. Their
    outputs and the variables are float32. With fp16 the loss is scaled before its gradient is
    computed."""
    additive: bool = True
    """Whether sums over parts of a batch add up to those of the whole in training. Batch
    normalization, for instance, makes them differ."""
    across: bool = False
    """Whether the loss of an example depends on the others of its batch, which it is compared
    with. Batches then stay whole, in training and evaluation."""
    best: tuple[str, str] | None = None
    """The metric that says which checkpoint is best, and "higher" or "lower"."""
    metrics: tuple[Metric, ...] = ()
    """What `results` gives, in its order."""
    results_of: tuple[str, ...] = ()
    """Names of the evaluation's sums that `results` takes, in its order."""
    outputs: tuple[Output, ...] = ()
    """What the outputs of `predict` mean. Those that are not here are values per example."""
    phases: tuple[Phase, ...] = ()
    """The parts of a training step, in order, which `phase_sums` computes; none if a step has
    one loss, that of `train_sums`."""
    masking: dict[str, Any] | None = None
    """How tokens are masked (masked language models), see docs/reference/contract.md."""

    @property
    def input(self) -> str:
        """How examples become a batch: "packed" into rows of tokens, or "dense"."""
        return "packed" if any("rows" in f.axes for f in self.features) else "dense"

    @abc.abstractmethod
    def description(self) -> dict[str, Any]:
        """The model's part of gorbit.json: architecture, configuration, FLOPs."""

    @abc.abstractmethod
    def train_sums(
        self, features: dict[str, Tensor], hyperparameters: dict[str, Tensor], random: ops.Random
    ) -> dict[str, Tensor]:
        """The training pass. Returns "loss_sum" (differentiable), "weight_sum" and metric sums.

        The new value of a state goes under "state/PATH", for instance
        "state/model/norm/moving_mean": float32 of the state's shape.
        """

    def phase_sums(
        self,
        phase: Phase,
        features: dict[str, Tensor],
        hyperparameters: dict[str, Tensor],
        random: ops.Random,
    ) -> dict[str, Tensor]:
        """The training pass of a phase. Returns what `train_sums` does."""
        raise NotImplementedError

    @abc.abstractmethod
    def evaluate_sums(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """The evaluation pass. Returns "loss_sum", "weight_sum" and metric sums, never means."""

    @abc.abstractmethod
    def predict(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns named outputs of the features that are not labels. The first axis is examples."""

    @abc.abstractmethod
    def serving(self) -> tuple[list[tf.TensorSpec], Callable[..., dict[str, Tensor]]]:
        """Returns the inputs of the serving signature, and the function that computes outputs."""

    packs: bool = False
    """Whether the served model has a signature "packed" as well: predict, for rows of examples."""

    def results(self, sums: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns a float32 scalar per metric from the totals of the sums in `results_of`."""
        raise NotImplementedError

    def generation(self) -> Generation | None:
        """How the model makes tokens one after the other; None, the default, if it does not."""
        return None

    def trains(self, path: str, variable: tf.Variable) -> bool:
        """Whether a variable is trained. Others are states."""
        return variable.trainable

    def inspect(self, module: Any) -> None:  # noqa: B027
        """Looks at the functions of an export before it is written.

        Args:
            module: the export.Export.

        Raises:
            ValueError: if the export would not be what its contract says.
        """

    def learning_rate(self, path: str) -> float:
        """Factor of the learning rate for a variable."""
        return 1.0

    def decays(self, path: str) -> bool | float:
        """Whether weight decay applies to a variable, or its factor for the variable.

        By default it applies to all but biases and norms.
        """
        parts = path.split("/")
        return parts[-1] != "bias" and not any("norm" in part for part in parts)

    def constraint(self, path: str) -> Callable[[Tensor], Tensor] | None:
        """What makes the variable of what each update leaves; None, the default, is nothing."""
        return None

    def foreign(self, path: str) -> list[str | dict[str, Any]]:
        """Names of a variable or state in other releases, as in the contract.

        Variables of gorbit_export.layers know theirs. This adds to them.
        """
        return []

    def initializer(self, path: str) -> layers.Initializer | None:
        """How the initial value of a variable was drawn; None, the default, if it was not.

        Variables of gorbit_export.layers know theirs.
        """
        return None

    def rows(self, path: str) -> str | None:
        """Names the int32 feature that selects the rows of a variable that a batch uses.

        The batch's gradient is 0 in all other rows. None, the default, promises nothing.
        """
        return None


def confusion(labels: Tensor, guesses: Tensor, weights: Tensor, classes: int) -> Tensor:
    """The sum "confusion" of an evaluation: weights by label (row) and prediction (column).

    Args:
        labels: the classes of examples, integers [B].
        guesses: those that are predicted, integers [B].
        weights: of the examples, float32 [B].
        classes: how many there are, C.

    Returns:
        float32 [C, C].
    """
    rows = tf.one_hot(labels, classes) * weights[:, None]
    return tf.matmul(rows, tf.one_hot(guesses, classes), transpose_a=True)
