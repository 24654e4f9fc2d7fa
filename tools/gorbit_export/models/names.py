"""Names of a model's variables: equal whenever the same code builds the model again.

Keras' own names do not serve. Paths in its object graph change with the order of layers and
lack what is held in lists; `Variable.path` counts all layers that the process ever made. So
the model is walked: the layers of a functional model or a Sequential take their own names,
automatic ones ("dense_7") counted again within their parent; the layers of a subclass the
names of the attributes that hold them ("blocks/0/norm").
"""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf
from keras.src.models.functional import Functional
from keras.src.utils.naming import to_snake_case

from gorbit_export.models import Refusal

ROOT = "model"
_RESERVED = {name for name in dir(tf.Module) if not name.startswith("_")} | {"set"}
"""Attributes of tf.Module, which cannot hold a variable."""
_OWN_BOOKS = re.compile(
    r"_(self_.*|layers|operations|nodes|tracker|parent_.*|flat_layers|inbound_nodes"
    r"|outbound_nodes|functional|trainable_(variables|weights)|non_trainable_(variables|weights)"
    r"|seed_generators|metrics|losses.*|(train|test|predict)_counter|steps_per_execution"
    r"|undeduplicated_weights|operations_by_depth|obj_.*)"
)
"""Attributes in which Keras lists what others hold."""


@dataclasses.dataclass(frozen=True)
class Leaf:
    """A variable of the model.

    Attributes:
        holder: the keras.Variable or tf.Variable.
        trained: whether the optimizer updates it. False for those of frozen layers.
    """

    holder: Any
    trained: bool

    @property
    def value(self) -> tf.Variable:
        """The variable that TensorFlow knows."""
        return self.holder.value if isinstance(self.holder, keras.Variable) else self.holder


@dataclasses.dataclass
class Names:
    """The variables of a model and what draws its random numbers, by path, in walk order."""

    variables: dict[str, Leaf]
    generators: dict[str, Any]


def is_legacy(model: Any) -> bool:
    """Whether the object is of tf-keras."""
    return any(cls.__module__.startswith("tf_keras.") for cls in type(model).__mro__)


def of(model: Any) -> Names:
    """Names the variables of a keras.Model, a tf_keras.Model or a tf.Module.

    Raises:
        Refusal: if the model is none of them, or a variable cannot be named.
    """
    found = Names({}, {})
    seen: set[int] = {id(model)}
    if isinstance(model, keras.layers.Layer):
        _walk(_Keras(model), model, ROOT, found, seen)
        _check_complete(model, found)
    elif is_legacy(model):
        _walk(_Legacy(model), model, ROOT, found, seen)
    elif isinstance(model, tf.Module):
        _walk_module(model, ROOT, found, seen)
    else:
        raise Refusal(
            f"the model is a {type(model).__name__}; expected a keras.Model, a tf_keras.Model "
            "or a tf.Module"
        )
    return found


class _Keras:
    """How Keras 3 keeps variables, layers and generators."""

    layer = keras.layers.Layer

    def __init__(self, model: Any) -> None:
        # What fit asks for; a model may have the property of its own.
        self._trained = {id(v) for v in model.trainable_weights}

    def variables(self, layer: Any) -> Iterator[tuple[str, Any, bool]]:
        for v in [*layer._trainable_variables, *layer._non_trainable_variables]:
            yield v.name, v, id(v) in self._trained

    def is_structured(self, layer: Any) -> bool:
        return isinstance(layer, (keras.Sequential, Functional))

    def children(self, layer: Any) -> list[Any]:
        return [*layer.layers, *layer._layers] if self.is_structured(layer) else layer._layers

    def generators(self, layer: Any) -> list[Any]:
        return list(layer._seed_generators)


class _Legacy:
    """How tf-keras keeps them."""

    def __init__(self, model: Any) -> None:
        import tf_keras

        self._keras = tf_keras
        self.layer = tf_keras.layers.Layer
        self._trained = {id(v) for v in (model.trainable_variables if model.built else ())}

    def variables(self, layer: Any) -> Iterator[tuple[str, Any, bool]]:
        for v in [*layer._trainable_weights, *layer._non_trainable_weights]:
            yield v.name.split("/")[-1].split(":")[0], v, id(v) in self._trained

    def is_structured(self, layer: Any) -> bool:
        from tf_keras.src.engine.functional import Functional as LegacyFunctional

        return isinstance(layer, (self._keras.Sequential, LegacyFunctional))

    def children(self, layer: Any) -> list[Any]:
        direct = list(layer._flatten_layers(recursive=False, include_self=False))
        return [*layer.layers, *direct] if self.is_structured(layer) else direct

    def generators(self, layer: Any) -> list[Any]:
        generator = getattr(layer, "_random_generator", None)
        return [] if generator is None else [generator]


def _walk(kind: Any, layer: Any, prefix: str, found: Names, seen: set[int]) -> None:
    used: dict[str, int] = {}
    attributes = _attributes(layer)
    for name, variable, trained in kind.variables(layer):
        if id(variable) in seen:
            continue
        seen.add(id(variable))
        automatic = re.fullmatch(r"[Vv]ariable(_\d+)?", name)
        name = attributes.get(id(variable), "variable") if automatic else _clean(name)
        # tf-keras wraps variables for mixed precision; reads and assignments reach the inner one.
        wraps = type(variable).__name__.startswith("AutoCast")
        inner = variable._variable if wraps else variable
        seen.add(id(inner))
        _add(found, f"{prefix}/{_count(name, used)}", Leaf(inner, trained))
    for child in kind.children(layer):
        if id(child) in seen:
            continue
        seen.add(id(child))
        attribute = None if kind.is_structured(layer) else attributes.get(id(child))
        name = _count(attribute or _own_name(child), used)
        _walk(kind, child, f"{prefix}/{name}", found, seen)
    _walk_plain(kind, layer, prefix, found, seen, used)
    for generator in kind.generators(layer):
        if id(generator) not in seen:
            seen.add(id(generator))
            found.generators[f"{prefix}/{_count('seed', used)}"] = generator


def _walk_plain(
    kind: Any, layer: Any, prefix: str, found: Names, seen: set[int], used: dict[str, int]
) -> None:
    """Takes tf.Variables and tf.Modules that a layer holds and Keras does not know."""
    for path, value in held(layer):
        if id(value) in seen or isinstance(value, (kind.layer, keras.layers.Layer)):
            continue
        if isinstance(value, tf.Variable):
            seen.add(id(value))
            if isinstance(layer, keras.layers.Layer) and value.trainable:
                raise Refusal(
                    f"{type(layer).__name__}.{path} is a tf.Variable, which Keras does not "
                    "train; expected add_weight(), or trainable=False"
                )
            _add(found, f"{prefix}/{_count(path, used)}", Leaf(value, value.trainable))
        elif isinstance(value, tf.Module) and not _is_training(value):
            seen.add(id(value))
            _walk_module(value, f"{prefix}/{_count(path, used)}", found, seen)


def _is_training(value: Any) -> bool:
    """Whether a value is a metric or an optimizer."""
    return hasattr(value, "update_state") or hasattr(value, "apply_gradients")


def _walk_module(module: tf.Module, prefix: str, found: Names, seen: set[int]) -> None:
    """Names the variables of a tf.Module by their shortest paths in its object graph."""
    queue = collections.deque([(prefix, module)])
    leaves = []
    while queue:
        path, node = queue.popleft()
        if isinstance(node, tf.Variable):
            leaves.append((path, node))
            continue
        if isinstance(node, keras.layers.Layer):
            raise Refusal(
                f"a tf.Module holds {path.removeprefix(ROOT + '/')}, a layer of Keras 3; expected "
                "a keras.Model that holds both, or tf.Variables"
            )
        if (generator := getattr(node, "_random_generator", None)) is not None:
            found.generators[f"{path}/seed"] = generator
        for name, child in sorted(tf.train.TrackableView.children(node).items()):
            if id(child) not in seen:
                seen.add(id(child))
                queue.append((f"{path}/{_clean(name)}", child))
    for path, variable in sorted(leaves, key=lambda leaf: leaf[0]):
        _add(found, path, Leaf(variable, variable.trainable))


def _add(found: Names, path: str, leaf: Leaf) -> None:
    parts = path.split("/")
    parents = {"/".join(parts[:i]) for i in range(1, len(parts))}
    below = path + "/"
    if path in found.variables or any(
        other in parents or other.startswith(below) for other in found.variables
    ):
        raise Refusal(f"two variables would be called {path}; give the layers names of their own")
    found.variables[path] = leaf


def _check_complete(model: Any, found: Names) -> None:
    known = {id(leaf.holder) for leaf in found.variables.values()}
    known |= {id(generator.state) for generator in found.generators.values()}
    known |= {id(v) for v in getattr(model, "metrics_variables", [])}
    for v in [*model.variables, *model.trainable_weights]:
        if id(v) not in known:
            raise Refusal(f"variable {v.path} was not found by its name; expected it in a layer")


def _clean(name: str) -> str:
    """Turns a name into one that variables may have."""
    name = re.sub(r"[^A-Za-z0-9_.\-]", "_", name).strip("_") or "_"
    return name + "_" if name in _RESERVED else name


def _count(name: str, used: dict[str, int]) -> str:
    """Numbers the second and later uses of a name."""
    n = used.get(name, 0)
    used[name] = n + 1
    return f"{name}_{n}" if n else name


def _own_name(layer: Any) -> str:
    automatic = to_snake_case(type(layer).__name__)
    if re.fullmatch(re.escape(automatic) + r"(_\d+)?", layer.name):
        return _clean(automatic)
    return _clean(layer.name)


def held(layer: Any) -> Iterator[tuple[str, Any]]:
    """Yields what attributes, and lists and dicts in them, hold; public attributes first."""
    attributes = sorted(vars(layer).items(), key=lambda item: (item[0].startswith("_"), item[0]))
    queue = collections.deque(
        (_clean(name), value) for name, value in attributes if not _OWN_BOOKS.fullmatch(name)
    )
    visited: set[int] = set()
    while queue:
        path, value = queue.popleft()
        if isinstance(value, (list, tuple, dict)):
            if id(value) in visited:
                continue
            visited.add(id(value))
            items = value.items() if isinstance(value, dict) else enumerate(value)
            queue.extend((f"{path}/{_clean(str(key))}", item) for key, item in items)
        else:
            yield path, value


def _attributes(layer: Any) -> dict[int, str]:
    """Maps what a layer holds to the names of its attributes."""
    found: dict[int, str] = {}
    for path, value in held(layer):
        found.setdefault(id(value), path)
    return found
