"""Any optimizer of Keras as update functions that take handles."""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
from collections.abc import Iterator
from typing import Any, Callable

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops

from gorbit_export import optimizers
from gorbit_export.models import Refusal, overrides, rules
from gorbit_export.models.recording import constants, replaced

Tensor = tf.Tensor

_ANY_SHAPE = ("SGD", "Adam", "AdamW", "Adamax", "Adagrad", "Lamb")
"""Optimizers whose update is the same graph for a variable of any shape."""
_ELEMENTWISE = ("SGD", "Adam", "AdamW", "Adamax", "Adagrad")
"""Those whose update of an element depends on nothing of the others."""
_TAKEN = (
    *("variable", "gradient", "gradient_scale", "iteration"),
    *("learning_rate", "weight_decay"),
)
"""Arguments of update functions, which no slot may be called."""
_RUNNERS = {
    "use_ema": "moving averages of variables are not kept",
    "gradient_accumulation_steps": "gorbit divides batches itself: micro_batches of the run",
    "clipnorm": "gorbit clips by the global norm: global_clipnorm",
    "clipvalue": "gorbit clips by the global norm: global_clipnorm",
    "loss_scale_factor": "gorbit scales the loss itself where the precision is fp16",
}
"""Settings of Keras that are the run's, and what to say of each."""


def make(optimizer: Any, holders: dict[str, Any]) -> optimizers.Optimizer:
    """Returns the optimizer that the user chose.

    Args:
        optimizer: one of Keras or its name, one of gorbit's, pairs of a regular expression and one
            of Keras, or None for gorbit's AdamW.
        holders: the trained variables by path.

    Raises:
        Refusal: if it cannot be exported.
    """
    if optimizer is None:
        return optimizers.AdamW()
    if isinstance(optimizer, optimizers.Optimizer):
        return optimizer
    if isinstance(optimizer, (list, tuple)):
        from gorbit_export.models import split

        return split.by_pattern(optimizer, holders)
    if isinstance(optimizer, str):
        optimizer = _named(optimizer)
    if any(cls.__module__.startswith("tf_keras.") for cls in type(optimizer).__mro__):
        optimizer = _of_legacy(optimizer)
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise Refusal(
            f"the optimizer is {optimizer!r}; expected one of keras.optimizers or its name, or one "
            "of gorbit_export.optimizers"
        )
    refuse(optimizer)
    return KerasOptimizer(optimizer, holders)


def _named(name: str) -> Any:
    """Makes the optimizer of Keras that compile() would take a name for."""
    kinds = {
        kind.lower(): cls
        for kind, cls in vars(keras.optimizers).items()
        if isinstance(cls, type) and issubclass(cls, keras.optimizers.Optimizer)
    }
    for abstract in ("optimizer", "lossscaleoptimizer", "multioptimizer", "optimizermap"):
        kinds.pop(abstract, None)
    if name.lower() not in kinds:
        raise Refusal(f"the optimizer is {name!r}; expected one of {', '.join(sorted(kinds))}")
    return kinds[name.lower()]()


def _of_legacy(optimizer: Any) -> Any:
    """Returns the optimizer of Keras 3 that is called and set like one of tf-keras."""
    name, config = type(optimizer).__name__, optimizer.get_config()
    kind = getattr(keras.optimizers, name, None)
    own = not type(optimizer).__module__.startswith("tf_keras.")
    if own or kind is None or config.pop("is_legacy_optimizer", False):
        raise Refusal(f"the optimizer is tf-keras' {name}; expected one of keras.optimizers")
    del config["jit_compile"]
    numbers = {k: float(v) for k, v in config.items() if isinstance(v, np.floating)}
    if not isinstance(config.get("learning_rate"), dict):
        return kind.from_config({**config, **numbers})
    made = kind.from_config({**config, **numbers, "learning_rate": 1.0})
    made._learning_rate = lambda step: optimizer._learning_rate(step)
    return made


def refuse(optimizer: Any) -> None:
    """Raises Refusal for settings that a run cannot keep to."""
    name = type(optimizer).__name__
    if name == "LossScaleOptimizer":
        raise Refusal(
            "LossScaleOptimizer scales the loss, which gorbit does itself where the precision is "
            "fp16; expected the optimizer within it"
        )
    for message in overrides.of_optimizer(optimizer):
        raise Refusal(message)
    settings = config(optimizer)
    for setting, reason in _RUNNERS.items():
        if settings.get(setting):
            raise Refusal(f"{name} has {setting}={settings[setting]}; {reason}")


def config(optimizer: Any) -> dict[str, Any]:
    """Returns the settings of an optimizer; a schedule, which may have none itself, left out."""
    if isinstance(optimizer._learning_rate, keras.Variable):
        return optimizer.get_config()
    with replaced(optimizer, "_learning_rate", 1.0):
        return {**optimizer.get_config(), "learning_rate": 1.0}


def schedule(optimizer: Any) -> Callable[[Tensor], Tensor] | None:
    """Returns what gives the learning rate of a step, counted from 0; None if it is a number.

    Raises:
        Refusal: if it is no function of the step alone.
    """
    given = optimizer._learning_rate
    if isinstance(given, keras.Variable) or not callable(given):
        return None
    what = f"the schedule of {type(optimizer).__name__}"
    plain = not isinstance(given, keras.optimizers.schedules.LearningRateSchedule)
    if plain and len(inspect.signature(given).parameters) != 1:
        raise Refusal(
            f"{what} is a function without the step, whose numbers an export cannot know; "
            "expected one of the step, or one of keras.optimizers.schedules"
        )

    def rate(iteration: Tensor) -> Tensor:
        step = tf.cast(iteration - 1, optimizer._iterations.dtype)
        return tf.reshape(tf.cast(given(step), tf.float32), [])

    try:
        with constants():
            traced = tf.function(rate, [tf.TensorSpec([], tf.int64)]).get_concrete_function()
    except Exception as err:  # the user's
        raise Refusal(
            f"{what} fails: {rules.sentence(err)}; expected operations of TensorFlow on the step, "
            "such as tf.where(step < 1000, 0.1, 0.01)"
        ) from err
    if traced.captured_inputs:
        raise Refusal(f"{what} reads a variable; expected a function of the step alone")
    return rate


class _Handle(resource_variable_ops.BaseResourceVariable):
    """A variable of which only the handle is given, of a known shape or of any."""

    def _read_variable_op(self, no_copy: bool = False) -> Tensor:
        value = super()._read_variable_op(no_copy)
        return value if self.shape.rank is None else tf.ensure_shape(value, self.shape)


class KerasRule(optimizers.Rule):
    """The update of variables of one shape, or of any, by an optimizer of Keras."""

    def __init__(
        self,
        function: str,
        optimizer: Any,
        path: str,
        shape: tuple[int, ...],
        decaying: bool = True,
    ) -> None:
        """Builds a copy of the optimizer for one variable.

        Args:
            function: name of the graph function.
            optimizer: what is copied.
            path: name of a variable that the rule updates; Muon decides by it.
            shape: shape of the variable.
            decaying: whether any variable decays.
        """
        self._decaying = decaying
        self.function = function
        self._any_shape = type(optimizer).__name__ in _ANY_SHAPE and _is_keras_own(optimizer)
        self.shape = None if self._any_shape else shape
        self.elementwise = self._any_shape and type(optimizer).__name__ in _ELEMENTWISE
        self._optimizer = type(optimizer).from_config(config(optimizer))
        self._schedule = schedule(optimizer)
        # Numbers of its own, so that a slot that begins with them is found below.
        values = np.arange(1, np.prod(shape, dtype=int) + 1, dtype=np.float32) / 7
        self._variable = keras.Variable(values.reshape(shape), name="variable")
        self._variable._path = path
        self._optimizer.build([self._variable])
        own = (self._optimizer.iterations, self._optimizer._learning_rate)
        kept = [v for v in self._optimizer.variables if not any(v is other for other in own)]
        self._take(kept, path, marked=True)

    def _take(self, slots: list[Any], path: str, marked: bool = False) -> None:
        """Names the slots; if the variable is `marked`, none may begin with its values."""
        optimizer = self._optimizer
        self._slots: dict[str, Any] = {}
        self._initial: dict[str, float] = {}
        for slot in slots:
            held = (key for key, value in vars(optimizer).items() if value is slot)
            name = _slot_name(next(held, slot.path), path, self._slots)
            values = np.unique(slot.numpy())
            if values.size > 1 or (marked and np.array_equal(slot, self._variable)):
                raise Refusal(
                    f"{type(optimizer).__name__} begins with different numbers in {name}; "
                    "expected one number, whatever the variable is"
                )
            self._slots[name] = slot
            self._initial[name] = float(values[0]) if values.size else 0.0
        self.slots = tuple(self._slots)

    def initial(self, slot: str) -> float:
        """See Rule."""
        return self._initial[slot]

    def slot_shape(self, slot: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """See Rule."""
        own = tuple(self._slots[slot].shape)
        return shape if own == tuple(self._variable.shape) else own

    def update(
        self,
        variable: Tensor,
        slots: dict[str, Tensor],
        gradient: Tensor,
        gradient_scale: Tensor,
        iteration: Tensor,
        learning_rate: Tensor,
        weight_decay: Tensor,
        hyperparameters: dict[str, Tensor],
    ) -> None:
        """See Rule."""
        optimizer = self._optimizer
        gradient *= gradient_scale
        if self._schedule is not None:
            with constants():
                learning_rate *= self._schedule(iteration)
        if self._decaying:
            value = tf.raw_ops.ReadVariableOp(resource=variable, dtype=tf.float32)
            tf.raw_ops.AssignSubVariableOp(
                resource=variable, value=value * (weight_decay * learning_rate)
            )
        if _apply_fused(optimizer, variable, slots, gradient, iteration, learning_rate):
            return
        self._step(variable, slots, gradient, iteration, learning_rate)

    def _step(
        self,
        variable: Tensor,
        slots: dict[str, Tensor],
        gradient: Tensor,
        iteration: Tensor,
        learning_rate: Tensor,
    ) -> None:
        handles = {"variable": variable, **slots}
        holders = {"variable": self._variable, **self._slots}
        proxies = [(holder, self._proxy(holder, handles[name])) for name, holder in holders.items()]
        with standing_in(self._optimizer, proxies, iteration, learning_rate):
            if isinstance(self._optimizer, keras.optimizers.Nadam):
                # Keras has one product for all variables, here each has its own.
                optimizer, t = self._optimizer, tf.cast(iteration, tf.float32)
                factor = optimizer.beta_1 * (1.0 - 0.5 * tf.pow(0.96, t))
                optimizer.assign(optimizer._u_product, optimizer._u_product * factor)
            self._optimizer.update_step(gradient, self._variable, learning_rate)

    def _proxy(self, holder: Any, handle: Tensor) -> _Handle:
        # A slot that is not like the variable keeps its shape.
        fixed = not self._any_shape or tuple(holder.shape) != tuple(self._variable.shape)
        return proxy(holder, handle, fixed)


def proxy(holder: Any, handle: Tensor, fixed: bool = True) -> _Handle:
    """Returns a variable of a handle that passes for another, of its shape or of any."""
    old = holder.value if isinstance(holder, keras.Variable) else holder
    return _Handle(
        trainable=False,
        shape=old.shape if fixed else tf.TensorShape(None),
        dtype=old.dtype,
        handle=handle,
        name=old.name,
        unique_id=old._unique_id,
        handle_name=old.name,
    )


@contextlib.contextmanager
def standing_in(
    optimizer: Any, proxies: list[tuple[Any, Any]], iteration: Tensor, learning_rate: Tensor
) -> Iterator[None]:
    """Lets an optimizer find other values in variables, its count of steps and its rate."""
    step = tf.cast(iteration - 1, optimizer._iterations.dtype)
    pairs = [*proxies, (optimizer._iterations, step), (optimizer._learning_rate, learning_rate)]
    with constants(), contextlib.ExitStack() as stack:
        for holder, value in pairs:
            if isinstance(holder, keras.Variable):
                stack.enter_context(replaced(holder, "_value", value))
        if not isinstance(optimizer._learning_rate, keras.Variable):
            stack.enter_context(replaced(optimizer, "_learning_rate", learning_rate))
        yield


class KerasOptimizer(optimizers.Optimizer):
    """An optimizer of Keras: one rule for all variables, or one for each shape."""

    def __init__(self, optimizer: Any, holders: dict[str, Any]) -> None:
        """Takes the optimizer, and the trained variables by path."""
        # Not the name alone: gorbit knows the updates of its own "adamw" and others by it.
        self.name = f"keras-{type(optimizer).__name__.lower()}"
        self.decaying = bool(optimizer.weight_decay)
        """Whether any variable decays, which the updates must know before they are traced."""
        self.slots = ()
        self.hyperparameters = []
        self._given, self._holders = optimizer, holders
        self._rules: dict[Any, KerasRule] = {}
        self.scheduled = schedule(optimizer) is not None

    def rule(self, path: str, shape: tuple[int, ...]) -> optimizers.Rule:
        """See Optimizer."""
        if not _is_keras_own(self._given):
            return self._users_rules[path]
        any_shape = type(self._given).__name__ in _ANY_SHAPE
        key: Any = "any" if any_shape else shape
        if isinstance(self._given, keras.optimizers.Muon):
            key = (shape, self._as_adam(path, shape))
        if key not in self._rules:
            function = "update" if any_shape else f"update_{len(self._rules)}"
            like = getattr(self._holders.get(path), "path", path)  # Muon decides by it
            self._rules[key] = KerasRule(function, self._given, like, shape, self.decaying)
        return self._rules[key]

    @property
    def defaults(self) -> dict[str, float | str]:
        """See Optimizer: what fit trains with."""
        rate = np.float32(1.0)
        if not self.scheduled:
            rate = np.float32(keras.ops.convert_to_numpy(self._given.learning_rate))
        found: dict[str, float | str] = {
            "learning_rate": float(str(rate)),
            "schedule": "constant",
            "warmup_ratio": 0.0,
            "clip_norm": float(self._given.global_clipnorm or 0),
        }
        # Where groups alone decay, how much is the run's.
        if self.decay or not self.decaying:
            found["weight_decay"] = self.decay
        return found

    @functools.cached_property
    def _users_rules(self) -> dict[str, KerasRule]:
        from gorbit_export.models import users_optimizer

        return users_optimizer.make(self._given, self._holders)

    def takes_slices(self, path: str) -> bool:
        """Whether Keras moves a variable as far by slices of its gradient as by their sum.

        Of a user's class it is not known.
        """
        if not _is_keras_own(self._given):
            return False
        shape = (2, *self._holders[path].shape[1:])
        values = tf.random.stateless_normal((3, *shape[1:]), [1, 2])
        slices = tf.IndexedSlices(values, tf.constant([0, 0, 1]), tf.constant(shape))
        moved = self._moved(path, slices), self._moved(path, tf.convert_to_tensor(slices))
        return bool(np.allclose(*moved, rtol=1e-3, atol=1e-3 * np.abs(moved).max()))

    def moves_by_nothing(self, path: str) -> bool:
        """Whether a gradient of zeros moves a variable, the weight decay aside."""
        own = _is_keras_own(self._given)
        return own and bool(self._moved(path, tf.zeros(self._holders[path].shape)).any())

    def _moved(self, path: str, gradient: Any) -> np.ndarray:
        """Returns how far two updates of Keras move a variable that is 1."""
        optimizer = type(self._given).from_config(self._given.get_config())
        optimizer.weight_decay = None
        variable = keras.Variable(np.ones(gradient.shape, np.float32), name="variable")
        variable._path = getattr(self._holders[path], "path", path)
        optimizer.build([variable])
        for _ in range(2):
            optimizer.apply([gradient], [variable])
        return variable.numpy() - 1

    def update(self, *args: Any, **kwargs: Any) -> None:
        """See Rule; its rules update."""
        raise NotImplementedError

    @functools.cached_property
    def decay(self) -> float:
        """The weight decay of the variables that Keras decays by the largest part."""
        given = float(self._given.weight_decay or 0)
        return max((self._decay(path) for path in self._holders), default=given)

    def _decay(self, path: str) -> float:
        """Returns how much Keras decays a variable."""
        given, holder, decay = self._given, self._holders[path], self._given.weight_decay
        if isinstance(given, keras.optimizers.Muon):
            if self._as_adam(path, tuple(holder.shape)):
                decay = given.adam_weight_decay
        elif isinstance(holder, keras.Variable):
            holder = holder.value  # Keras' others ask by it; its name has that of the layer
        return float(decay or 0) if given._use_weight_decay(holder) else 0.0

    def _as_adam(self, path: str, shape: tuple[int, ...]) -> bool:
        """Whether Muon updates a variable as Adam does, which it asks the path in Keras for."""
        like = getattr(self._holders.get(path), "path", path)
        return self._given._should_use_adamw(types.SimpleNamespace(path=like, shape=shape))

    def decays(self, path: str) -> bool | float:
        """Whether Keras decays a variable, or by which part of the weight decay."""
        decay = self._decay(path)
        return decay / self.decay if 0 < decay < self.decay else decay > 0


def _apply_fused(
    optimizer: Any,
    variable: Tensor,
    slots: dict[str, Tensor],
    gradient: Tensor,
    iteration: Tensor,
    learning_rate: Tensor,
) -> bool:
    """Updates by one operation of TensorFlow where it computes what Keras does.

    Returns:
        Whether there was one. If not, nothing was done.
    """
    kind, given = type(optimizer), optimizer
    common = {"var": variable, "grad": gradient}
    if kind in (keras.optimizers.Adam, keras.optimizers.AdamW) and not given.amsgrad:
        one, two = (
            optimizers.correction(tf.constant(beta, tf.float32), iteration)
            for beta in (given.beta_1, given.beta_2)
        )
        tf.raw_ops.ResourceApplyAdam(
            **common,
            m=slots["momentum"],
            v=slots["velocity"],
            beta1_power=0.0,
            beta2_power=0.0,
            lr=learning_rate * (tf.sqrt(two) / one),
            beta1=given.beta_1,
            beta2=given.beta_2,
            epsilon=given.epsilon,
        )
    elif kind is keras.optimizers.SGD and given.momentum:
        tf.raw_ops.ResourceApplyKerasMomentum(
            **common,
            accum=slots["momentum"],
            lr=learning_rate,
            momentum=given.momentum,
            use_nesterov=given.nesterov,
        )
    elif kind is keras.optimizers.SGD:
        tf.raw_ops.ResourceApplyGradientDescent(var=variable, alpha=learning_rate, delta=gradient)
    else:
        return False
    return True


def _is_keras_own(optimizer: Any) -> bool:
    return type(optimizer).__module__.startswith("keras.src.optimizers.")


def _slot_name(own: str, path: str, used: dict[str, Any]) -> str:
    name = own.split("/")[-1]
    for owner in ("variable", path.replace("/", "_"), path.split("/")[-1]):
        name = name.removeprefix(f"{owner}_")
    name = name.strip("_") or "slot"
    while name in used or name in _TAKEN:
        name += "_"
    return name
