"""A model of the user's own: what its file says about it, and how it becomes an export.

docs/guide/keras.md is the guide. This module imports no TensorFlow, so that a file that
describes a model decides what is imported first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Callable


class Refusal(ValueError):
    """The model breaks a rule; the message is one sentence that says which.

    Attributes:
        trace: the traceback of an error in the user's file, from that file on; "" if there is none.
    """

    trace: str = ""


@dataclasses.dataclass(frozen=True)
class Feature:
    """A tensor of a batch, as the model takes it.

    Attributes:
        name: the argument's name, and by default that of the record's feature.
        dtype: "uint8", "int32", "int64", "float32" or "bool".
        shape: length of each axis. The first is None, the examples. One name of axes may be
            open next to it: such features are padded to the longest example of the batch.
        label: whether it is part of the answer; prediction does not take it.
        role: "input", "label", "weight" or "id", where `label` does not say it.
        minimum: least valid number, of integers; 0 where `below` is set.
        below: first number that is too large, such as the number of classes or of words.
        pad: what fills the open axis.
        make: "mask" or "length": made from the other features of the open axis, not read.
        axes: names of the axes. By default the first is "examples" and an open one "length".
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...]
    label: bool = False
    role: str = ""
    minimum: int | None = None
    below: int | None = None
    pad: float = 0
    make: str = ""
    axes: tuple[str, ...] | None = None


@dataclasses.dataclass
class Phase:
    """A part of a training step, with a loss, variables and an optimizer of its own.

    A step makes its phases one after the other: what one has updated is what the next one reads.

    Attributes:
        name: its name in logs, letters, digits and `_`: "generator" has "generator/loss".
        loss: a function (batch, training) of the features by name, that gives a loss per
            example, [examples], or a pair of these and a dict of metrics, [examples] each.
        variables: the trained variables that it updates. Every trained variable is in one phase.
        optimizer: a keras.optimizers.Optimizer of its own, or its name.
        every: it is part of one in so many steps. One phase at least is part of all.
        offset: it is part of step n, counted from 0, if n modulo `every` is this.
    """

    name: str
    loss: Callable[..., Any]
    variables: Sequence[Any]
    optimizer: Any
    every: int = 1
    offset: int = 0


@dataclasses.dataclass
class Model:
    """What `build()` returns: a model, and how it is trained.

    Attributes:
        model: a keras.Model, a tf_keras.Model, or a tf.Module with a `__call__`.
        features: what a batch holds. Weights of examples are added if no feature has the
            role.
        loss: a keras.losses.Loss, its name, or a function (labels, outputs) that gives a
            number per example or per token. For several outputs, a list or dict of them like
            the outputs. None is that of compile(), or none if the model adds all losses.
        labels: the feature that the loss takes; for several losses a list or dict of them.
        metrics: keras.metrics, or their names; a list or dict of lists for several outputs.
        optimizer: a keras.optimizers.Optimizer, its name, or one of gorbit_export.optimizers.
            None is gorbit's AdamW. Pairs of a regular expression and an optimizer are several,
            each for the variables whose names the expression is found in. Later pairs win.
        groups: pairs of a regular expression and factors for the variables whose names it is
            found in: {"weight_decay": 0.0, "learning_rate": 0.1}. Later pairs win.
        outputs: a function of the model's outputs that gives the named tensors of
            predictions. By default they are the model's outputs, and probabilities if the
            loss is a cross entropy of classes.
        loss_weights: a factor per loss, of several.
        best: the metric that decides which checkpoint is the best, or a pair of it and
            "higher" or "lower". By default the first metric whose direction is known.
        kinds: what outputs are where their names do not say it: "probabilities", "logits",
            "value", "values", "tokens" or "spans".
        example: a function of a number of examples that gives a batch of them, arrays by
            feature name, to try the model on. By default numbers are drawn.
        foreign: the names of variables' tensors in files of others, for `gorbit train --init`:
            {"model/dense/kernel": "fc.weight"}. Instead of a name there may be a dict as in
            the contract, {"name": "fc.weight", "transpose": True}, or a list of several.
        task: the kind of metrics and answers, where gorbit has one for it ("" has none).
        across_examples: whether the loss of an example depends on the others of its batch, as
            that of contrastive learning does. Batches then stay whole, on one device.
        phases: the parts of a training step, in order, where it has several losses, as that of a
            GAN. They take the place of the optimizer and, in training, of the loss.
        evaluate: a function like the loss of a phase, which is evaluated instead of `loss` and
            `metrics`.
    """

    model: Any
    features: Sequence[Feature]
    loss: Any = None
    labels: Any = None
    metrics: Any = ()
    optimizer: Any = None
    groups: Sequence[tuple[str, Mapping[str, float]]] = ()
    outputs: Callable[[Any], Mapping[str, Any]] | None = None
    loss_weights: Any = None
    best: str | tuple[str, str] | None = None
    kinds: Mapping[str, str] = dataclasses.field(default_factory=dict)
    example: Callable[[int], Mapping[str, Any]] | None = None
    foreign: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    task: str = ""
    across_examples: bool = False
    phases: Sequence[Phase] = ()
    evaluate: Callable[..., Any] | None = None


def restore(model: Any, source: Any) -> Any:
    """Gives a model the values that a training saved.

    Args:
        model: a keras.Model, tf_keras.Model or tf.Module like the exported one, or what
            `build()` returned.
        source: a run's folder (its newest checkpoint is taken), a checkpoint, or an export.

    Returns:
        The model.

    Raises:
        Refusal: if a variable is missing or has another shape.
        OSError: if there is no checkpoint.
    """
    from gorbit_export.models import weights

    return weights.restore(model, source)
