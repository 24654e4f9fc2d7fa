"""Losses as sums over examples, or over tokens.

With l the loss of an example b (or its token t), w the example's weight and m the mask that
Keras carries along with outputs, 1 where there is none:

    loss_sum   = sum of w_b m_bt l_bt + R W       weight_sum = W = sum of w_b m_bt

R being what the model adds by itself: regularizers and add_loss. Of several losses with one
mask, l_bt is the sum over them of factor * l. Of others, l_b is the sum over them of
factor * (sum over t of m l) / (sum over t of m), and W the sum of w_b.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable

import keras
import numpy as np
import tensorflow as tf
from keras.src.trainers import compile_utils

from gorbit_export.models import Refusal

Tensor = tf.Tensor


@dataclasses.dataclass(frozen=True)
class Term:
    """One loss of the model.

    Attributes:
        loss: what computes it.
        y: the model's output.
        label: what the output is compared with.
        factor: its part of the whole.
        name: the output's, for messages.
        fit: whose fit trains such a model, "keras" or "tf_keras"; "" if there is none.
    """

    loss: Any
    y: Any
    label: Any
    factor: float
    name: str
    fit: str = ""


def is_function(loss: Any) -> bool:
    """Whether a loss is a function of all labels and outputs, and no Loss."""
    return callable(loss) and not hasattr(loss, "call")


def paired(y: Any, names: list[str], **others: Any) -> list[dict[str, Any]]:
    """Lists a model's outputs together with what belongs to each.

    Args:
        y: the outputs, a tensor, list or dict.
        names: the outputs' names where they are a list.
        **others: a value for one output; a list or dict like the outputs for several.
    """
    if isinstance(y, dict):
        keys, values = list(y), list(y.values())
    elif isinstance(y, (list, tuple)):
        keys = names if len(names) == len(y) else [f"output_{i}" for i in range(len(y))]
        values = list(y)
    else:
        keys, values = names[:1] or ["outputs"], [y]
    columns = {}
    for what, other in others.items():
        if isinstance(other, dict):
            if unknown := set(other) - set(keys):
                raise Refusal(
                    f"{what} are given for {', '.join(sorted(unknown))}; the outputs are "
                    f"{', '.join(keys)}"
                )
            columns[what] = [other.get(key) for key in keys]
        elif isinstance(other, (list, tuple)) and len(keys) > 1:
            if len(other) != len(keys):
                raise Refusal(
                    f"{len(other)} {what} are given for {len(keys)} outputs; expected one each"
                )
            columns[what] = list(other)
        else:
            columns[what] = [other] * len(keys)
    return [
        {"name": key, "y": values[i], **{what: column[i] for what, column in columns.items()}}
        for i, key in enumerate(keys)
    ]


def kind(term: Term) -> tuple[str, bool]:
    """Tells which of Keras' functions a loss is, and whether it takes logits.

    Returns:
        The name of the function and True or False; "" and False for any other loss.
    """
    loss = term.loss
    if isinstance(loss, str):
        loss = compile_utils.get_loss(loss, term.label, term.y)
    function = getattr(loss, "fn", loss)
    if not getattr(function, "__module__", "").startswith(("keras.", "tf_keras.")):
        return "", False
    config = loss.get_config() if hasattr(loss, "get_config") else {}
    return getattr(function, "__name__", ""), bool(config.get("from_logits", False))


def ignored_class(loss: Any) -> int:
    """Returns the label that a loss of Keras passes over; 0 if there is none."""
    config = loss.get_config() if hasattr(loss, "get_config") else {}
    return int(config.get("ignore_class") or 0)


def of_examples(term: Term) -> tuple[Tensor, Tensor | None]:
    """Computes a loss before it is reduced.

    A function that gives the mean of a batch, see `check`, is called with each example by itself.

    Returns:
        The losses, float32 [B] or [B, ...], and their mask, or None.
    """
    mask = keras.src.backend.get_keras_mask(term.y) if tf.is_tensor(term.y) else None
    call, label, y = _prepared(term)
    values = call(label, y)
    out = keras.src.backend.get_keras_mask(values)
    if mask is not None and out is not None:
        mask = tf.logical_and(mask, out)
    if values.shape.rank == 0:
        values = by_example(call, label, y)
    return tf.cast(values, tf.float32), out if mask is None else mask


def check(term: Term) -> Tensor:
    """Checks what a loss gives for an example batch, and returns it.

    Raises:
        Refusal: if it is a list, or one number that is not the mean of the examples' numbers.
    """
    if isinstance(term.loss, (list, tuple)):
        raise Refusal(
            f"{len(term.loss)} losses are given for {term.name}; expected one, for instance a "
            "function of labels and outputs that adds them up"
        )
    call, label, y = _prepared(term)
    values = call(label, y)
    if values.shape.rank == 0 and not is_mean(call, label, y):
        loss, hint = term.loss, ""
        if "axis" in getattr(loss, "_fn_kwargs", {}) and tf.is_tensor(y):  # Dice, Tversky
            hint = f", as with axis={tuple(range(1, y.shape.rank))}"
        raise Refusal(
            f"loss {_name(loss)} gives one number for a whole batch, which is not the mean of its "
            "examples', so that the parts of a batch do not add up to it; expected one per "
            f"example, [examples] or [examples, ...]{hint}"
        )
    return values


def by_example(function: Callable[[Any, Any], Tensor], label: Any, y: Any) -> Tensor:
    """Calls a function with each example as a batch of its own, and returns the numbers."""

    def one(example: list[Tensor]) -> Tensor:
        alone = [x[None] for x in example]
        return function(*tf.nest.pack_sequence_as([label, y], alone))

    flat = [tf.convert_to_tensor(x) for x in tf.nest.flatten([label, y])]
    if tf.executing_eagerly():  # where vectorized_map would make a function at each call
        return tf.stack([one(list(example)) for example in zip(*map(tf.unstack, flat))])
    return tf.vectorized_map(one, flat)


def is_mean(function: Callable[[Any, Any], Tensor], label: Any, y: Any) -> bool:
    """Whether the one number that a function gives is the mean of each example's number."""
    whole, parts = function(label, y), by_example(function, label, y)
    if parts.shape.rank != 1:
        return False
    parts = np.asarray(tf.cast(parts, tf.float64))
    scale = max(float(np.abs(parts).mean()), 1e-30)
    return bool(abs(parts.mean() - float(whole)) <= 1e-4 * scale)


def _name(loss: Any) -> str:
    if isinstance(loss, str):
        return loss
    return getattr(loss, "name", None) or getattr(loss, "__name__", type(loss).__name__)


def _prepared(term: Term) -> tuple[Callable[[Any, Any], Tensor], Any, Any]:
    """Returns what is called, and what with, for a loss as fit makes it."""
    loss, label, y = term.loss, term.label, term.y
    function = not isinstance(loss, str) and is_function(loss)
    if isinstance(loss, str) or (function and term.fit == "keras" and tf.is_tensor(y)):
        loss = compile_utils.get_loss(loss, label, y)
    elif function and term.fit == "tf_keras" and tf.is_tensor(y):
        from tf_keras.src.losses import LossFunctionWrapper

        loss = LossFunctionWrapper(loss)
    if isinstance(loss, keras.losses.Loss):  # as Loss.__call__ does
        return loss.call, *(_cast(value, loss.dtype, True) for value in (label, y))
    if callable(getattr(loss, "call", None)):  # tf-keras
        return loss.call, like_fit(label, y), _cast(y, tf.float32, False)
    _refuse_pairs(loss, label, y)
    return loss, label, y


def like_fit(label: Any, y: Any) -> Any:
    """Returns labels of shape [B] as [B, 1] where outputs have two axes, as tf-keras' fit does."""
    if tf.is_tensor(label) and tf.is_tensor(y) and label.shape.rank == 1 and y.shape.rank == 2:
        return label[:, None]
    return label


def _refuse_pairs(loss: Any, label: Any, y: Any) -> None:
    """Refuses a function that compares labels [B] with outputs [B, 1] each with each."""
    if not tf.is_tensor(label) or not tf.is_tensor(y):
        return
    shapes = sorted((label.shape.as_list(), y.shape.as_list()), key=len)
    count = shapes[0][0] if shapes[0] else None
    if not count or count < 2 or shapes != [[count], [count, 1]]:
        return
    if loss(label, y).shape == [count, count]:
        raise Refusal(
            f"loss {getattr(loss, '__name__', loss)} compares labels of the shape "
            f"{label.shape.as_list()} with outputs of the shape {y.shape.as_list()} each with "
            "each; expected equal shapes: reshape one of them"
        )


def _cast(value: Any, dtype: Any, integers: bool) -> Any:
    """Casts a structure of tensors, its integers too if so said."""

    def one(x: Any) -> Any:
        return tf.cast(x, dtype) if x is not None and (integers or x.dtype.is_floating) else x

    return tf.nest.map_structure(one, value)


def spread(weights: Tensor, mask: Tensor | None, like: Tensor) -> Tensor:
    """Multiplies weights of examples with a mask, and repeats them in the shape of `like`."""
    if weights.shape.rank > like.shape.rank:
        raise Refusal(
            f"weights have {weights.shape.rank} axes and the loss {like.shape.rank}; expected a "
            "weight per example, or per value of the loss"
        )
    out = _expand(weights, like)
    if mask is not None:
        out *= _expand(tf.cast(mask, tf.float32), like)
    return out * tf.ones_like(like)


def _expand(x: Tensor, like: Tensor) -> Tensor:
    """Adds axes at the end, or takes away those of length 1, up to the rank of `like`."""
    rank = like.shape.rank
    while x.shape.rank > rank and x.shape[-1] == 1:
        x = tf.squeeze(x, -1)
    for _ in range(rank - x.shape.rank):
        x = x[..., None]
    return x


def weighed(term: Term, weights: Tensor, tokens: bool) -> tuple[Any, Any, Tensor]:
    """Returns the labels, outputs and weights of a term for a metric, the mask in the weights.

    With `tokens`, and a loss per token, the tokens are the examples. Keras' own metrics take
    means over the tokens of an example, which do not add up over batches of other lengths.
    """
    values, mask = of_examples(term)
    rank = values.shape.rank
    if rank < 2 or not tf.is_tensor(term.y) or not tf.is_tensor(term.label):
        return term.label, term.y, weights
    if min(term.y.shape.rank, term.label.shape.rank) < rank:
        return term.label, term.y, weights
    if not tokens:
        return term.label, term.y, spread(weights, mask, values)
    label, y = (_rows(x, rank) for x in (term.label, term.y))
    return label, y, tf.reshape(spread(weights, mask, values), [-1])


def _rows(x: Tensor, rank: int) -> Tensor:
    """Makes the first axes one; a single value each is an axis of its own, as metrics take it."""
    tail = [*x.shape[rank:]] or [1]
    rows = tf.reshape(x, [-1, *(tf.unstack(tf.shape(x)[rank:]) or [1])])
    rows.set_shape([None, *tail])
    return rows


def per_example(found: list[tuple[Tensor, Tensor | None]]) -> list[int]:
    """Lists the masked ones of several losses, which `sums` takes a mean of per example.

    Args:
        found: what `of_examples` gives of each loss.
    """
    return [i for i, (_, m) in enumerate(found) if m is not None and not _as_one(found)]


def _as_one(found: list[tuple[Tensor, Tensor | None]]) -> bool:
    """Whether one loss, or several of the same tokens, are added up over tokens."""
    if len(found) == 1:
        return True
    tokens = {id(mask) for _, mask in found}
    ranks = all(m is not None and m.shape.rank == values.shape.rank for values, m in found)
    return len(tokens) == 1 and ranks


def sums(terms: list[Term], added: list[Tensor], weights: Tensor) -> dict[str, Tensor]:
    """Returns loss_sum and weight_sum, see the module."""
    total, found = tf.constant(0.0), [of_examples(term) for term in terms]
    if _as_one(found):
        values, mask = found[0]
        spreads = spread(weights, mask, values)
        weight = tf.reduce_sum(spreads)
        for term, (values, _) in zip(terms, found):
            part = tf.reduce_sum(tf.math.multiply_no_nan(values, spreads))
            total += part if term.factor == 1 else term.factor * part
    else:
        examples = weights
        if examples.shape.rank != 1:
            raise Refusal("there are several losses and weights per token; expected per example")
        weight = tf.reduce_sum(examples)
        for term, (values, mask) in zip(terms, found):
            ones = spread(tf.ones_like(examples), mask, values)
            axes = list(range(1, values.shape.rank))
            mean = tf.math.divide_no_nan(
                tf.reduce_sum(tf.math.multiply_no_nan(values, ones), axes),
                tf.reduce_sum(ones, axes),
            )
            total += term.factor * tf.reduce_sum(tf.math.multiply_no_nan(mean, examples))
    for value in added:
        total += tf.reduce_sum(tf.cast(value, tf.float32)) * weight
    return {"loss_sum": total, "weight_sum": weight}
