"""Phases of a training step: losses of the user's own, each with variables and an optimizer."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from typing import Any, Callable

import keras
import tensorflow as tf

from gorbit_export import task
from gorbit_export.models import Model, Phase, Refusal, names

Tensor = tf.Tensor
Body = Callable[..., Any]

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def broken(user: Model) -> Iterator[str]:
    """Yields a sentence for each rule of phases that can be seen broken without running them."""
    if user.evaluate is not None and not user.phases:
        yield "there is an evaluate= and no phases=; expected loss=, labels= and metrics="
    if not user.phases:
        return
    if user.evaluate is not None and (user.loss is not None or user.metrics):
        yield "there are an evaluate= and a loss= or metrics=; expected one of the two"
    if names.is_legacy(user.model):
        yield "there are phases, and the model is of tf-keras; expected Keras 3 or a tf.Module"
    if user.optimizer is not None:
        yield "there are an optimizer= and phases=; expected an optimizer of each phase alone"
    if user.loss is None and user.evaluate is None:
        yield (
            "phases say how to train and not how to evaluate; expected evaluate=, a function like "
            "the loss of a phase, or loss= and labels= for the outputs of the model"
        )
    seen: dict[int, str] = {}
    for phase in user.phases:
        yield from _broken_by(phase)
        if isinstance(phase.optimizer, str):
            continue
        if (other := seen.setdefault(id(phase.optimizer), phase.name)) != phase.name:
            yield f"phases {other} and {phase.name} have one optimizer; expected one of each"
    found = [phase.name for phase in user.phases]
    if twice := {name for name in found if found.count(name) > 1}:
        yield f"two phases are called {sorted(twice)[0]}; expected a name of each"
    if all(phase.every != 1 for phase in user.phases):
        yield "no phase has every=1; expected one at least that each step has"


def _broken_by(phase: Phase) -> Iterator[str]:
    if not _NAME.fullmatch(phase.name):
        yield f"a phase is called {phase.name!r}; expected letters, digits and _"
    if not callable(phase.loss):
        yield f"the loss of phase {phase.name} is {phase.loss!r}; expected a function"
    if not (_whole(phase.every) and phase.every >= 1):
        yield f"phase {phase.name} has every={phase.every!r}; expected a number of steps, 1 or more"
    elif not (_whole(phase.offset) and 0 <= phase.offset < phase.every):
        yield (
            f"phase {phase.name} has every={phase.every} and offset={phase.offset!r}; expected an "
            "offset of 0 or more that is less than every"
        )
    if not isinstance(phase.optimizer, (str, keras.optimizers.Optimizer)):
        yield (
            f"the optimizer of phase {phase.name} is {phase.optimizer!r}; expected one of "
            "keras.optimizers or its name"
        )


def _whole(value: object) -> bool:
    """Returns whether a value is a whole number, which True and False are in Python."""
    return isinstance(value, int) and not isinstance(value, bool)


def resolve(given: Sequence[Phase], named: names.Names) -> tuple[task.Phase, ...]:
    """Finds the variables of phases by their paths.

    Raises:
        Refusal: if a trained variable is in no phase or in two, or one is not trained.
    """
    paths = {
        id(v): path for path, leaf in named.variables.items() for v in (leaf.holder, leaf.value)
    }
    if not given:
        return ()
    owners: dict[str, str] = {}
    for phase in given:
        for variable in phase.variables:
            path = paths.get(id(variable))
            if path is None:
                what = getattr(variable, "path", getattr(variable, "name", repr(variable)))
                raise Refusal(
                    f"phase {phase.name} has the variable {what}, which is not one of the model; "
                    "expected variables of its layers"
                )
            if not named.variables[path].trained:
                raise Refusal(
                    f"phase {phase.name} has {path}, which is not trained; expected trainable ones"
                )
            if (other := owners.setdefault(path, phase.name)) != phase.name:
                raise Refusal(
                    f"{path} is in the phases {other} and {phase.name}; expected it in one of them"
                )
    for path, leaf in named.variables.items():
        if leaf.trained and path not in owners:
            raise Refusal(
                f"{path} is trained and in no phase; expected it in the variables of one, or "
                "trainable=False of its layer"
            )
    found = []
    for phase in given:
        own = frozenset(path for path, owner in owners.items() if owner == phase.name)
        if not own:
            raise Refusal(f"phase {phase.name} has no variables; expected one at least")
        found.append(task.Phase(phase.name, own, phase.every, phase.offset))
    return tuple(found)


def body(loss: Body) -> Body:
    """Returns a function of features, `training` and a seed that calls a phase's loss."""
    takes = inspect.signature(loss).parameters

    def call(features: dict[str, Tensor], training: bool, seed: Tensor | None = None) -> Any:
        given = {"seed": seed} if "seed" in takes else {}
        return loss(features, training=training, **given)

    return call


def values(what: str, given: Any) -> dict[str, Tensor]:
    """Returns the numbers of examples that a loss function gives, float32 [examples], by name.

    Raises:
        Refusal: if it gives anything else.
    """
    losses, metrics = given if isinstance(given, tuple) and len(given) == 2 else (given, {})
    if not isinstance(metrics, dict):
        raise Refusal(
            f"{what} gives a {type(metrics).__name__} next to its losses; expected a dict of "
            "metrics by name"
        )
    if wrong := [n for n in metrics if n in ("loss", "weight") or not _NAME.fullmatch(str(n))]:
        raise Refusal(
            f"{what} gives a metric called {wrong[0]!r}; expected letters, digits and _, and "
            "neither loss nor weight"
        )
    found = {}
    for name, value in {"loss": losses, **metrics}.items():
        value = tf.convert_to_tensor(value)
        if value.shape.rank != 1:
            raise Refusal(
                f"{what} gives {'a loss' if name == 'loss' else name} of the shape "
                f"{value.shape.as_list()}; expected a number per example, [examples]"
            )
        found[name] = tf.cast(value, tf.float32)
    return found


def sums(what: str, given: Any, weights: Tensor) -> dict[str, Tensor]:
    """Returns the sums of what a loss function gives, weighted, and that of the weights."""
    weights = tf.cast(weights, tf.float32)
    found = {"weight_sum": tf.reduce_sum(weights)}
    for name, value in values(what, given).items():
        found[f"{name}_sum"] = tf.reduce_sum(tf.math.multiply_no_nan(value, weights))
    return found
