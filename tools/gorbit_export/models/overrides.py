"""What Keras' fit calls and an export does not: classes of the user's may not override it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_KERAS = ("keras.", "tf_keras.")
_HUB = ("keras_hub.", "keras_nlp.")
"""Libraries whose fit() only prepares the data."""
_LOSS = "expected the loss and metrics in build()"
_STEP = "expected the same in update_step()"
_MODEL = {
    "train_step": "expected the loss and metrics in build(), or phases= for losses with variables "
    "and optimizers of their own",
    "test_step": _LOSS,
    "compute_loss": _LOSS,
    "_compute_loss": _LOSS,
    "compute_metrics": _LOSS,
    "get_metrics_result": _LOSS,
    "_aggregate_additional_loss": "expected the whole loss in add_loss()",
    "predict_step": "expected outputs= in build()",
    "fit": _LOSS,
    "make_train_function": _LOSS,
    "make_test_function": _LOSS,
    "make_predict_function": "expected outputs= in build()",
}
_STEPS = ("train_step", "make_train_function", "fit")
"""What phases take the place of."""
_OPTIMIZER = {
    "apply": _STEP,
    "apply_gradients": _STEP,
    "_backend_apply_gradients": _STEP,
    "_backend_update_step": _STEP,
    "_distributed_tf_update_step": _STEP,
    "_filter_empty_gradients": _STEP,
    "_overwrite_variables_directly_with_gradients": _STEP,
    "_overwrite_variable_with_gradient": _STEP,
    "_apply_weight_decay": _STEP,
    "_clip_gradients": _STEP,
    "_update_model_variables_moving_average": _STEP,
    "_overwrite_model_variables_with_average_value": _STEP,
    "finalize_variable_values": _STEP,
    "scale_loss": "expected the factor in the loss",
    "learning_rate": "expected a number, and the schedule in the run",
    "_get_current_learning_rate": "expected a number, and the schedule in the run",
    "iterations": "expected the step as Keras counts it",
}


def of_model(model: Any, phased: bool = False) -> Iterator[str]:
    """Yields a sentence for each method of a keras.Model that is the user's own.

    Args:
        model: the model.
        phased: whether phases take the place of its train_step().
    """
    yield from _own(model, {m: advice for m, advice in _MODEL.items() if m not in _STEPS * phased})


def of_loss(loss: Any) -> Iterator[str]:
    """Yields a sentence if a Loss has a call of its own around that of each example."""
    yield from _own(loss, {"__call__": "expected it in call(), for each example"})


def of_optimizer(optimizer: Any) -> Iterator[str]:
    """Yields a sentence for each method next to update_step() that is the user's own."""
    yield from _own(optimizer, _OPTIMIZER)


def _own(thing: Any, methods: dict[str, str]) -> Iterator[str]:
    for method, advice in methods.items():
        if is_own(thing, method):
            what = "an" if method.lstrip("_")[0] in "aeiou" else "a"
            name = type(thing).__name__
            yield f"{name} has {what} {method} of its own, which gorbit does not call; {advice}"


def is_own(thing: Any, attribute: str) -> bool:
    """Whether a method or property is the user's, and neither Keras' nor missing."""
    if attribute in vars(thing) and not isinstance(getattr(type(thing), attribute, None), property):
        return True
    owner = next((cls for cls in type(thing).__mro__ if attribute in vars(cls)), None)
    known = _KERAS + (_HUB if attribute == "fit" else ())
    return owner is not None and not owner.__module__.startswith(known)
