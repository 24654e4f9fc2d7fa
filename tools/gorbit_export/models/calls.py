"""Calls of a model that change nothing: new values of its states are results."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import inspect
from typing import Any, Callable

import keras
import tensorflow as tf
from keras.src.models.functional import Functional
from tensorflow.python.autograph.core import ag_ctx
from tensorflow.python.eager.polymorphic_function import polymorphic_function

from gorbit_export import ops
from gorbit_export.models import Refusal, names
from gorbit_export.models.recording import constants, recording, replaced

Tensor = tf.Tensor
Words = Callable[[int], Tensor]


@dataclasses.dataclass
class Outcome:
    """What a call gives.

    Attributes:
        y: the model's outputs, a tensor or a structure of tensors.
        losses: scalars that the model adds to the loss: regularizers and add_loss.
        states: new values of the states and trained variables that the call assigned, by path.
            Gradients with respect to such a variable are those at its new value.
    """

    y: Any
    losses: list[Tensor]
    states: dict[str, Tensor]


class Caller(abc.ABC):
    """Calls a model with features by name."""

    def __init__(self, model: Any, named: names.Names, inputs: list[str]) -> None:
        """Takes the model, its names, and the names of the features that it takes."""
        self.model, self.named, self.inputs = model, named, inputs
        self._invoke = invocation(model, inputs)

    @abc.abstractmethod
    def __call__(
        self,
        features: dict[str, Tensor],
        training: bool,
        words: Words,
        body: Callable[..., Any] | None = None,
    ) -> Outcome:
        """Calls the model.

        Args:
            features: at least the inputs.
            training: what Keras calls so.
            words: gives each generator, by its number in walk order, the two numbers that it
                draws from.
            body: is called instead of the model, with features, `training` and a seed: it calls
                parts of the model itself.
        """


def caller(model: Any, named: names.Names, inputs: list[str]) -> Caller:
    """Returns what calls a model of one of the kinds that `names.of` takes."""
    kind = KerasCaller if isinstance(model, keras.layers.Layer) else ModuleCaller
    return kind(model, named, inputs)


def drawn(random: ops.Random) -> Words:
    """Returns numbers of 31 bits from a step's seed, one site per generator."""

    def words(site: int) -> Tensor:
        stream = random.site(site)
        drawn = tf.raw_ops.StatelessRandomUniformFullIntV2(
            shape=[2], key=stream.key, counter=stream.counter, alg=1, dtype=tf.int32
        )
        return tf.bitwise.bitwise_and(drawn, 0x7FFFFFFF)

    return words


def fixed(seed: int = 0) -> Words:
    """Returns numbers for passes that draw nothing, or nothing that they use."""
    return lambda site: tf.constant([seed, site], tf.int32)


class KerasCaller(Caller):
    """Calls a model of Keras 3 in a StatelessScope."""

    def __call__(
        self,
        features: dict[str, Tensor],
        training: bool,
        words: Words,
        body: Callable[..., Any] | None = None,
    ) -> Outcome:
        """See Caller."""
        leaves = self.named.variables
        # Trained variables, too: regularizers read them outside of any layer.
        mapping = [
            (leaf.holder, tf.convert_to_tensor(leaf.value))
            for leaf in leaves.values()
            if isinstance(leaf.holder, keras.Variable) and leaf.trained
        ]
        for site, generator in enumerate(self.named.generators.values()):
            mapping.append((generator.state, tf.cast(words(site), generator.state.dtype)))
        plain = {
            path: leaf.value
            for path, leaf in leaves.items()
            if isinstance(leaf.holder, tf.Variable)
        }
        trained = {id(leaf.holder): leaf.value for leaf in leaves.values() if leaf.trained}
        with (
            constants(),
            # A function within the model would keep its trace, and with it these values.
            _inlined(),
            recording((v, tf.convert_to_tensor(v)) for v in plain.values()) as record,
            _Scope(mapping, trained) as scope,
        ):
            y = (body or self._invoke)(features, training)
            losses = list(self.model.losses)
        states = {}
        for path, leaf in leaves.items():
            if path in plain:
                if record.assigned(leaf.value):
                    states[path] = record.get(leaf.value)
            elif id(leaf.holder) in scope.assigned:
                states[path] = tf.convert_to_tensor(scope.get_current_value(leaf.holder))
        return Outcome(y, losses, states)


class _Scope(keras.StatelessScope):
    """A scope in which an assigned trained variable is differentiated at its new value.

    As in fit, where a tape does not see how the new value came about.
    """

    def __init__(self, mapping: list[tuple[Any, Tensor]], trained: dict[int, tf.Variable]) -> None:
        super().__init__(mapping, collect_losses=True)
        self._trained, self.assigned = trained, set()

    def add_update(self, update: tuple[Any, Tensor]) -> None:
        holder, value = update
        self.assigned.add(id(holder))
        if (variable := self._trained.get(id(holder))) is not None:
            nothing = variable - tf.stop_gradient(variable)
            value = tf.stop_gradient(value) + nothing
        super().add_update((holder, value))


class ModuleCaller(Caller):
    """Calls a model of tf-keras or a tf.Module, whose variables are plain ones."""

    def __call__(
        self,
        features: dict[str, Tensor],
        training: bool,
        words: Words,
        body: Callable[..., Any] | None = None,
    ) -> Outcome:
        """See Caller."""
        states = {p: leaf.value for p, leaf in self.named.variables.items() if not leaf.trained}
        with contextlib.ExitStack() as stack:
            stack.enter_context(constants())
            for site, generator in enumerate(self.named.generators.values()):
                _draw_from(stack, generator, words(site))
            held = [(v, tf.convert_to_tensor(v)) for v in states.values()] if training else []
            record = stack.enter_context(recording(held))
            if held:
                # A function within the model would keep its trace, and with it these values.
                stack.enter_context(_inlined())
            seed = words(len(self.named.generators)) if training else None
            y = (body or self._invoke)(features, training, seed)
            losses = list(getattr(self.model, "losses", ()))
            new = {path: record.get(v) for path, v in states.items() if record.assigned(v)}
        return Outcome(y, losses, new)


def _inlined() -> contextlib.AbstractContextManager[None]:
    """Calls what tf.functions are made of, converted by AutoGraph, instead of the functions."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        converts = ag_ctx.ControlStatusCtx(status=ag_ctx.Status.ENABLED)
        body = tf.__internal__.autograph.tf_convert(self.python_function, converts)
        with converts:
            return body(*args, **kwargs)

    return replaced(polymorphic_function.Function, "__call__", call)


def _draw_from(stack: contextlib.ExitStack, generator: Any, words: Tensor) -> None:
    """Lets a generator of tf-keras draw from the step's numbers."""
    draws = iter(range(1 << 30))

    def seed() -> Tensor:
        return words + tf.constant([0, next(draws)])

    generator._maybe_init()
    stack.enter_context(replaced(generator, "_rng_type", generator.RNG_STATELESS))
    stack.enter_context(replaced(generator, "make_seed_for_stateless_op", seed))


def invocation(model: Any, inputs: list[str]) -> Any:
    """Returns a function of features, `training` and a seed that calls the model.

    The seed, int32 [2], is for a tf.Module whose `__call__` takes one.

    Raises:
        Refusal: if the model's inputs cannot be told.
    """
    if (declared := _declared_inputs(model)) is not None:
        return _structured(model, inputs, declared)
    body = getattr(model, "call", None) or model.__call__
    parameters = inspect.signature(getattr(body, "python_function", body)).parameters
    takes = {"training", "seed"} & set(parameters) - set(inputs)
    if isinstance(model, (keras.layers.Layer,)) or names.is_legacy(model):
        takes = {"training"}  # Layer.__call__ takes it, and drops what call() does not know.
    by_name = [name for name in inputs if name in parameters]

    def invoke(features: dict[str, Tensor], training: bool, seed: Tensor | None = None) -> Any:
        given = {name: {"training": training, "seed": seed}[name] for name in takes}
        if len(by_name) == len(inputs) and len(inputs) > 1:
            ordered = sorted(inputs, key=list(parameters).index)
            first, rest = ordered[0], ordered[1:]
            return model(features[first], **{name: features[name] for name in rest}, **given)
        if len(inputs) == 1:
            return model(features[inputs[0]], **given)
        return model({name: features[name] for name in inputs}, **given)

    return invoke


def _declared_inputs(model: Any) -> Any:
    """Returns the structure of a functional model's inputs, None of other models."""
    if isinstance(model, Functional):
        return model._inputs_struct
    if isinstance(model, keras.Sequential) and model.built and model._functional:
        return model._functional._inputs_struct
    if names.is_legacy(model) and getattr(model, "_nested_inputs", None) is not None:
        return model._nested_inputs
    return None


def _structured(model: Any, inputs: list[str], declared: Any) -> Any:
    tensors = tf.nest.flatten(declared)
    wanted = [tensor.name.split(":")[0] for tensor in tensors]
    if len(inputs) == len(wanted) == 1:
        wanted = inputs
    if isinstance(declared, dict) and set(declared) == set(inputs):
        wanted = sorted(declared)
    if set(wanted) != set(inputs):
        raise Refusal(
            f"the model's inputs are {', '.join(wanted)} and the features "
            f"{', '.join(inputs)}; expected features with the names of the inputs"
        )

    def invoke(features: dict[str, Tensor], training: bool, seed: Tensor | None = None) -> Any:
        del seed
        flat = [features[name] for name in wanted]
        return model(tf.nest.pack_sequence_as(declared, flat), training=training)

    return invoke
