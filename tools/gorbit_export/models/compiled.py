"""What a model was compiled with: its loss, metrics and optimizer, where build() names none."""

from __future__ import annotations

import dataclasses
from typing import Any

from gorbit_export.models import Model, Refusal, names


@dataclasses.dataclass(frozen=True)
class _Compiled:
    """The arguments of compile()."""

    loss: Any
    loss_weights: Any
    metrics: Any
    weighted_metrics: Any
    optimizer: Any


def take(user: Model) -> tuple[Model, list[str]]:
    """Fills in what `build()` leaves to compile().

    Returns:
        The description with the loss, the metrics and the optimizer, and notes of what was taken.

    Raises:
        Refusal: if it does not say which feature is the label of the compiled loss.
    """
    given = _given(user.model)
    if given is None:
        return user, []
    changes: dict[str, Any] = {}
    said, notes = [], []
    if user.loss is None and given.loss is not None:
        changes["loss"] = _only(given.loss)
        changes["labels"] = _labels(user) if user.labels is None else user.labels
        said.append(f"loss {_text(changes['loss'])} of {_text(changes['labels'])}")
        if user.loss_weights is None and given.loss_weights is not None:
            changes["loss_weights"] = _only(given.loss_weights)
            said.append(f"loss_weights {_text(changes['loss_weights'])}")
    if not user.metrics and (given.metrics or given.weighted_metrics):
        count = len(getattr(user.model, "outputs", None) or [None])
        plain, weighted = _lists(given.metrics, count), _lists(given.weighted_metrics, count)
        changes["metrics"] = _joined(plain, weighted)
        said.append(f"metrics {_text(changes['metrics'])}")
        weights = [f.name for f in user.features if f.role == "weight"]
        if given.metrics and weights:
            notes.append(
                f"all metrics are weighted by {weights[0]}; Keras weighs those of "
                "compile(weighted_metrics=) alone"
            )
    if user.optimizer is None and given.optimizer is not None and not user.phases:
        changes["optimizer"] = given.optimizer
        said.append(f"optimizer {_text(given.optimizer)}")
    if said:
        notes.insert(0, f"taken from compile(): {', '.join(said)}")
    return dataclasses.replace(user, **changes), notes


def _given(model: Any) -> _Compiled | None:
    """Returns what a model was compiled with, None of one that was not."""
    if names.is_legacy(model):
        if not getattr(model, "_is_compiled", False):
            return None
        loss, metrics = model.compiled_loss, model.compiled_metrics
        found = (
            *(getattr(loss, name, None) for name in ("_user_losses", "_user_loss_weights")),
            *(getattr(metrics, n, None) for n in ("_user_metrics", "_user_weighted_metrics")),
        )
    else:
        if not getattr(model, "compiled", False):
            return None
        loss, metrics = model._compile_loss, model._compile_metrics
        found = (
            *(getattr(loss, name, None) for name in ("_user_loss", "_user_loss_weights")),
            *(getattr(metrics, n, None) for n in ("_user_metrics", "_user_weighted_metrics")),
        )
    # With mixed_float16, compile() itself wraps the optimizer; gorbit scales the loss, too.
    return _Compiled(*found, getattr(model.optimizer, "inner_optimizer", model.optimizer))


def _only(value: Any) -> Any:
    """Returns the value of a list of one."""
    return value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value


def _labels(user: Model) -> Any:
    """Tells the labels: the one there is, or those with the names of the outputs."""
    labels = [f.name for f in user.features if f.label or f.role == "label"]
    outputs = list(getattr(user.model, "output_names", None) or [])
    if len(labels) == 1 and len(outputs) <= 1:
        return labels[0]
    if len(outputs) > 1 and set(outputs) <= set(labels):
        return {name: name for name in outputs}
    raise Refusal(
        "the model is compiled with a loss, and build() does not say of which feature; expected "
        "labels='NAME', or a dict of them by the names of the outputs"
    )


def _lists(metrics: Any, outputs: int) -> Any:
    """Returns the metrics of one output as a list, or of several as lists by name or in order."""
    if not metrics:
        return metrics
    if isinstance(metrics, dict):
        return {name: _list(value) for name, value in metrics.items()}
    if outputs > 1 and len(metrics) == outputs:
        return [_list(value) for value in metrics]
    return list(_only(metrics)) if isinstance(_only(metrics), (list, tuple)) else list(metrics)


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _joined(plain: Any, weighted: Any) -> Any:
    if not plain or not weighted:
        return plain or weighted
    if isinstance(plain, dict) != isinstance(weighted, dict):
        raise Refusal(
            "metrics= and weighted_metrics= of compile() are a list and a dict; expected both alike"
        )
    if isinstance(plain, dict):
        return {k: [*plain.get(k, []), *weighted.get(k, [])] for k in {**plain, **weighted}}
    if all(isinstance(m, list) for m in [*plain, *weighted]):
        return [[*a, *b] for a, b in zip(plain, weighted)]
    return [*plain, *weighted]


def _text(value: Any) -> str:
    """Names losses, metrics and what else compile() takes."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_text(v)}" for name, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_text, value)) + "]"
    if isinstance(value, (str, int, float, type(None))):
        return str(value)
    return getattr(value, "__name__", type(value).__name__)
