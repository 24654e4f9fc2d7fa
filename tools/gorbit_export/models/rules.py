"""The rules that a model must keep to, see docs/guide/keras.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import tensorflow as tf

from gorbit_export.models import Model, Refusal, losses, names, overrides, phases

_TABLES = ("StringLookup", "IntegerLookup", "TextVectorization", "IndexLookup")
_DTYPES = ("float32", "int32", "int64", "bool")
_RANDOM = re.compile(
    r"Random(Uniform|UniformInt|StandardNormal|Shuffle|Gamma|Poisson|PoissonV2|Crop)"
    r"|TruncatedNormal|ParameterizedTruncatedNormal|Multinomial|NonDeterministicInts"
    r"|Stateful(Uniform|StandardNormal|TruncatedNormal|RandomBinomial).*|Rng(ReadAnd)?Skip.*"
    r"|SampleDistortedBoundingBox.*"
)
_ASSIGNS = re.compile(r"Assign(Add|Sub)?VariableOp|ResourceScatter.*|ResourceApply.*")
_PYTHON = re.compile(r"(Eager)?PyFunc(Stateless)?")


def layers(model: Any) -> list[Any]:
    """Lists all layers of a model, itself included; none of a tf.Module."""
    flatten = getattr(model, "_flatten_layers", None)
    return list(flatten()) if flatten else []


def check(user: Model) -> None:
    """Checks what can be seen without running the model.

    Raises:
        Refusal: at the first rule that is broken.
    """
    for message in broken(user):
        raise Refusal(message)


def broken(user: Model) -> Iterator[str]:
    """Yields a sentence for each rule that can be seen broken without running the model."""
    if keras.backend.backend() != "tensorflow":
        yield f"Keras runs on {keras.backend.backend()}; expected KERAS_BACKEND=tensorflow"
    model = user.model
    if not names.is_legacy(model) and not isinstance(model, (keras.layers.Layer, tf.Module)):
        yield (
            f"the model is a {type(model).__name__}; expected a keras.Model, a tf_keras.Model "
            "or a tf.Module"
        )
        return
    if isinstance(model, keras.layers.Layer) or names.is_legacy(model):
        yield from overrides.of_model(model, bool(user.phases))
    yield from phases.broken(user)
    for layer in layers(model):
        yield from _broken_by(layer)
    for loss in tf.nest.flatten(user.loss):
        if hasattr(loss, "call"):
            yield from overrides.of_loss(loss)
    if user.loss is not None and user.labels is None and not losses.is_function(user.loss):
        yield "there is a loss but no labels; expected labels='NAME' of a feature"


def _broken_by(layer: Any) -> Iterator[str]:
    kind = type(layer).__name__
    if any(cls.__name__ in _TABLES for cls in type(layer).__mro__):
        yield (
            f"layer {layer.name} is a {kind}, which keeps a table; expected its numbers as a "
            f"feature, as gorbit convert makes them by a schema: {_table_advice(layer, kind)}"
        )
    if getattr(layer, "synchronized", False):
        yield (
            f"layer {layer.name} is synchronized between replicas, which an export cannot be; "
            "expected synchronized=False"
        )
    policy = getattr(layer, "dtype_policy", None)
    if getattr(policy, "quantization_mode", None):
        yield f"layer {layer.name} is quantized ({policy.name}); expected one that is trained"
    elif getattr(policy, "variable_dtype", None) in ("bfloat16", "float16", "float64"):
        yield (
            f"layer {layer.name} keeps its variables in {policy.variable_dtype}; expected the "
            "policy float32, mixed_bfloat16 or mixed_float16"
        )


def _table_advice(layer: Any, kind: str) -> str:
    """Says what in a schema makes the numbers of a layer that keeps a table."""
    if kind == "TextVectorization":
        return "kind text, with --vocab"
    known = [str(word) for word in getattr(layer, "get_vocabulary", list)()][:3]
    return f"kind category, with categories: [{', '.join([*known, '...'])}]"


def unbuilt(model: Any) -> list[Any]:
    """Lists the layers that have not made their variables yet."""
    return [layer for layer in layers(model) if not getattr(layer, "built", True)]


def check_built(before: list[Any]) -> None:
    """Checks that tracing made no variables.

    Args:
        before: the layers that had not been built before.

    Raises:
        Refusal: if one has been built since.
    """
    for layer in before:
        if layer.built:
            raise Refusal(
                f"layer {layer.name} makes its variables in training only; expected build() to "
                "call the layer, or its build(), once"
            )


def sentence(err: Exception) -> str:
    """Returns what an exception says, without the frames that Keras and TensorFlow add."""
    lines = str(err).replace(" defined at (most recent call last)", "").splitlines()
    text = "\n".join(line for line in lines if not line.lstrip().startswith(('File "', "[[")))
    if bold := re.search(r"\x1b\[1m(.*?)\x1b\[0m", text, re.DOTALL):
        text = bold.group(1)
    text = " ".join(re.sub(r"\{\{function_node.*?\}\}", "", text).split())
    return f"{type(err).__name__}: {text[:300]}" + ("..." if len(text) > 300 else "")


def check_variables(named: names.Names) -> None:
    """Checks the variables' dtypes and shapes.

    Raises:
        Refusal: if the contract has no place for one.
    """
    for path, leaf in named.variables.items():
        dtype = leaf.value.dtype.name
        if leaf.trained and dtype != "float32":
            raise Refusal(f"variable {path} is {dtype}; expected float32")
        if dtype not in _DTYPES:
            raise Refusal(f"variable {path} is {dtype}; expected one of {', '.join(_DTYPES)}")
        if not leaf.value.shape.is_fully_defined():
            raise Refusal(f"variable {path} has the shape {leaf.value.shape}; expected a fixed one")
    if not any(leaf.trained for leaf in named.variables.values()):
        raise Refusal("no variable of the model is trained")


def check_function(
    name: str, concrete: Any, known: Iterable[tf.Variable], model: Any = None
) -> None:
    """Checks what a pass does, when it has been traced.

    Args:
        name: the pass, for messages.
        concrete: its concrete function.
        known: the variables that it may read.
        model: the model, whose layers may have metrics.

    Raises:
        Refusal: if it draws, assigns, or takes anything else.
    """
    wanted = "keras.random with a keras.random.SeedGenerator of the layer"
    if not layers(model):
        wanted = "tf.random.stateless_... with the `seed` that __call__ takes"
    nodes = _checked_nodes(name, concrete, wanted)
    metrics = _metrics_in(model)
    _check_captures(name, concrete, known, metrics)
    by_input = {inner.name: outer for outer, inner in concrete.graph.captures}
    for node in nodes:
        if _ASSIGNS.fullmatch(node.op):
            handle = getattr(by_input.get(f"{node.input[0]}:0"), "_id", None)
            _refuse_metric(name, metrics.get(handle))
            raise Refusal(
                f"{name} assigns a variable with {node.op} ({node.name}); expected assign() of "
                "a variable of the model that is not trained"
            )


def check_update(path: str, concrete: Any, optimizer: str) -> None:
    """Checks what an update does, when it has been traced.

    Raises:
        Refusal: if it draws, or takes more than a variable, its slots and scalars.
    """
    _checked_nodes(
        f"the update of {path}", concrete, f"an update_step() of {optimizer} that draws nothing"
    )
    names_ = {v.handle._id: v.name for v in concrete.graph.variables}
    for captured in concrete.captured_inputs:
        what = names_.get(getattr(captured, "_id", None), f"a tensor of {captured.dtype.name}")
        raise Refusal(
            f"the update of {path} takes {what} from outside; expected an update_step() "
            f"of {optimizer} that takes the variable that it updates and the optimizer's for it"
        )


def _checked_nodes(name: str, concrete: Any, random: str) -> list[Any]:
    """Returns a function's nodes. None may draw random numbers, or call Python."""
    graph = concrete.graph.as_graph_def()
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    for node in nodes:
        if _RANDOM.fullmatch(node.op):
            raise Refusal(
                f"{name} draws random numbers with {node.op} ({node.name}), which no seed "
                f"decides; expected {random}"
            )
        if _PYTHON.fullmatch(node.op):
            raise Refusal(f"{name} calls Python ({node.name}); expected TensorFlow's operations")
    return nodes


def _metrics_in(model: Any) -> dict[int, str]:
    """Names the metrics that layers or modules keep, by the handles of their variables."""
    found = {}
    if isinstance(model, tf.Module) and not layers(model):
        for module in (model, *model.submodules):
            for path, metric in names.held(module):
                if hasattr(metric, "update_state"):
                    for v in metric.variables:
                        plain = v if isinstance(v, tf.Variable) else v.value
                        found[plain.handle._id] = f"{path} of {type(module).__name__}"
    for layer in layers(model):
        for metric in getattr(layer, "_metrics", ()):
            for v in getattr(metric, "variables", ()):
                plain = v if isinstance(v, tf.Variable) else v.value
                found[plain.handle._id] = f"{metric.name} of layer {layer.name}"
    return found


def _refuse_metric(name: str, metric: str | None) -> None:
    if metric is not None:
        raise Refusal(
            f"{name} updates the metric {metric}; expected it among metrics= of build(), of "
            "one of the model's outputs"
        )


def _check_captures(
    name: str, concrete: Any, known: Iterable[tf.Variable], metrics: dict[int, str]
) -> None:
    handles = {v.handle._id for v in known}
    by_handle = {v.handle._id: v for v in concrete.graph.variables}
    for captured in concrete.captured_inputs:
        if getattr(captured, "_id", None) in handles:
            continue
        variable = by_handle.get(getattr(captured, "_id", None))
        _refuse_metric(name, metrics.get(getattr(captured, "_id", None)))
        if variable is not None and "seed_generator_state" in variable.name:
            raise Refusal(
                f"{name} draws from Keras' global generator; expected a "
                "keras.random.SeedGenerator that is an attribute of the layer, and random "
                "numbers in training only"
            )
        if variable is not None:
            raise Refusal(
                f"{name} reads variable {variable.name}, which is not part of the model; "
                "expected an attribute of a layer"
            )
        if captured.dtype == tf.resource:
            raise Refusal(
                f"{name} takes a table or another resource from outside; expected variables of "
                "the model only"
            )
        raise Refusal(
            f"{name} takes a tensor of the shape {captured.shape} from outside; expected it as "
            "a variable of the model, or as a constant"
        )
