"""Writes an export: a SavedModel with the functions that gorbit calls.

docs/reference/contract.md documents their inputs and outputs.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import fcntl
import functools
import inspect
import json
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any, Callable

import tensorflow as tf

from gorbit_export import layers, ops
from gorbit_export.errors import UsageError
from gorbit_export.optimizers import Constrained, Optimizer, Rule, clip_scale
from gorbit_export.task import Cache, Feature, Hyperparameter, Output, Phase, Task

Tensor = tf.Tensor

VERSION = 3
"""Version of the contract and of gorbit.json."""
CONTRACT_FILE = "assets/gorbit.json"
SERVING_FOLDER = "serving"
GRADIENT_PREFIX = "gradient/"
STATE_PREFIX = "state/"
FIRST_SLOTS = 2
"""The slots of a served model's caches until a program makes them: the least that there may be."""

_PASSES = ("gradients", "evaluate", "predict")
"""The passes through the model. XLA compiles them in exports made with xla."""
_SCALARS = [
    Hyperparameter("learning_rate", 0.0, "step size of this update"),
    Hyperparameter("weight_decay", 0.0, "decoupled decay, of the variables that take it"),
]
_LOSS_SCALE = Hyperparameter(
    "loss_scale", 1.0, "factor of the loss, which the gradients are divided by", minimum=1.0
)
_CLIP = Hyperparameter("clip_norm", 1.0, "global norm that gradients are clipped to; 0 is off")


class Tree(tf.Module):
    """A module whose children are set by paths with slashes."""

    def set(self, path: str, value: Any) -> None:
        """Sets the value at a path, and creates the modules on the way."""
        node, names = self, path.split("/")
        for name in names[:-1]:
            if not hasattr(node, name):
                setattr(node, name, Tree())
            node = getattr(node, name)
        setattr(node, names[-1], value)


@dataclasses.dataclass
class _Layout:
    """Variables by path, in a plain object because TensorFlow would track a dict as a child."""

    variables: dict[str, tf.Variable]
    states: dict[str, tf.Variable]
    rules: dict[str, Rule]
    slots: dict[str, dict[str, tf.Variable]]
    outputs: dict[str, dict[str, tf.TypeSpec]] = dataclasses.field(default_factory=dict)
    unreached: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    sliced: dict[str, list[str]] = dataclasses.field(default_factory=dict)


class Export(tf.Module):
    """The root of an export: model, optimizer state and the contract's functions.

    Gorbit's checkpoints have the same object graph, so
    `tf.train.Checkpoint(root=export).restore(...)` reads them.
    """

    def __init__(self, task: Task, optimizer: Optimizer, xla: bool = False) -> None:
        """Makes slots and functions for the task's model; `xla` compiles the passes with XLA."""
        super().__init__()
        self._task, self._optimizer, self._xla = task, optimizer, xla
        self.model = task.model
        self.optimizer = Tree()
        self.optimizer.iterations = tf.Variable(0, dtype=tf.int64, trainable=False)
        for phase in task.phases:
            self.optimizer.set(f"phases/{phase.name}", tf.Variable(0, False, dtype=tf.int64))
        self.runner_state = tf.Variable("", dtype=tf.string, trainable=False)
        self._layout = _layout(task, optimizer)
        for path, slots in self._layout.slots.items():
            for slot, value in slots.items():
                self.optimizer.set(f"{slot}/{path}", value)

        features = [feature.spec() for feature in task.features if not feature.aside]
        inputs = [feature.spec() for feature in task.features if not feature.label]
        seed = [tf.TensorSpec([2], tf.int64, "seed")]
        pass_scalars = [h.spec() for h in self.hyperparameters]
        update_scalars = [h.spec() for h in [*_SCALARS, *optimizer.hyperparameters]]
        step_specs = [*features, *seed, *pass_scalars, *update_scalars, _CLIP.spec()]

        functions = {
            **{
                name: (
                    self._noted(name, functools.partial(self._gradients, phase)),
                    [*features, *seed, *pass_scalars],
                )
                for name, phase in self.gradient_functions.items()
            },
            **{
                rule.function: (
                    functools.partial(_update, rule),
                    _update_specs(rule, update_scalars),
                )
                for rule in self._layout.rules.values()
            },
            **({} if task.phases else {"train_step": (self._train_step, step_specs)}),
            "evaluate": (lambda **values: task.evaluate_sums(values), features),
            "predict": (self._noted("predict", lambda **values: task.predict(values)), inputs),
        }
        for name, (body, specs) in functions.items():
            setattr(self, name, _function(name, body, specs, xla and name in _PASSES))
        if self.adapted:
            self.merge = _function("merge", self._merge, [], False)
        if generation := task.generation():
            self.generate = _function("generate", generation.generate, generation.specs(), False)
            if source := generation.source:
                self.encode = _function("encode", source.encode, source.specs(), False)
        if task.metrics:
            self.results = _function("results", self._results, self._results_specs(), False)

    @property
    def task(self) -> Task:
        """What is exported."""
        return self._task

    @property
    def gradient_functions(self) -> dict[str, Phase | None]:
        """The functions that give gradients, and the phase of each; None of the only one."""
        phases = {f"gradients_{phase.name}": phase for phase in self._task.phases}
        return phases or {"gradients": None}

    @property
    def hyperparameters(self) -> list[Hyperparameter]:
        """The scalar inputs of `gradients`: the task's, and loss_scale if the precision is fp16."""
        return [*self._task.hyperparameters, *([_LOSS_SCALE] if self._scaled else [])]

    @property
    def _scaled(self) -> bool:
        return self._task.precision == "fp16"

    @property
    def variables_by_path(self) -> dict[str, tf.Variable]:
        """The model's trained variables by slash path."""
        return self._layout.variables

    @property
    def states_by_path(self) -> dict[str, tf.Variable]:
        """The model's variables that are not trained, by slash path."""
        return self._layout.states

    @property
    def _assignable(self) -> dict[str, tf.Variable]:
        return {**self.states_by_path, **self.variables_by_path}

    @property
    def rules_by_path(self) -> dict[str, Rule]:
        """What updates each trained variable, by slash path."""
        return self._layout.rules

    @property
    def unreached(self) -> list[str]:
        """The trained variables that the loss does not reach, once `gradients` is traced."""
        return [path for paths in self._layout.unreached.values() for path in paths]

    @property
    def sliced(self) -> list[str]:
        """The trained variables whose gradients TensorFlow has as slices, such as embeddings."""
        return [path for paths in self._layout.sliced.values() for path in paths]

    @property
    def adapted(self) -> dict[str, layers.Dense]:
        """The layers with an adapter of low rank, by the paths of their kernels."""
        paths = {variable.ref(): path for path, variable in self.states_by_path.items()}
        found = {
            paths[layer.kernel.ref()]: layer
            for layer in self._task.model.submodules
            if isinstance(layer, layers.Dense) and layer.adapter
        }
        return dict(sorted(found.items()))

    def _noted(self, name: str, body: Callable[..., Any]) -> Callable[..., Any]:
        """Notes what a function's outputs are when it is traced."""

        def noted(**inputs: Tensor) -> Any:
            outputs = body(**inputs)
            self._layout.outputs[name] = tf.nest.map_structure(tf.type_spec_from_value, outputs)
            return outputs

        return noted

    def _outputs(self, name: str) -> dict[str, tf.TypeSpec]:
        """Returns what a function's outputs are.

        The concrete function is not asked: a trace that a SavedModel was written with is not found
        outside of that, and to trace the passes again is a tenth of an export.
        """
        if name not in self._layout.outputs:
            getattr(self, name).get_concrete_function()
        return self._layout.outputs[name]

    def _gradients(self, phase: Phase | None, seed: Tensor, **inputs: Tensor) -> dict[str, Tensor]:
        features = {f.name: inputs[f.name] for f in self._task.features if not f.aside}
        scalars = {h.name: inputs[h.name] for h in self._task.hyperparameters}
        random = ops.Random.from_seed(seed)
        with tf.GradientTape() as tape:
            if phase:
                sums = dict(self._task.phase_sums(phase, features, scalars, random))
            else:
                sums = dict(self._task.train_sums(features, scalars, random))
            loss = sums["loss_sum"]
            if self._scaled:
                loss *= inputs[_LOSS_SCALE.name]
        variables = {
            path: variable
            for path, variable in self.variables_by_path.items()
            if phase is None or path in phase.paths
        }
        gradients = dict(zip(variables, tape.gradient(loss, list(variables.values()))))
        part = phase.name if phase else ""
        self._layout.unreached[part] = [path for path, g in gradients.items() if g is None]
        self._layout.sliced[part] = [
            path for path, g in gradients.items() if isinstance(g, tf.IndexedSlices)
        ]
        for path, gradient in gradients.items():
            if gradient is None:
                gradient = tf.zeros_like(variables[path])
            gradient = tf.convert_to_tensor(gradient)
            if self._scaled:
                gradient /= inputs[_LOSS_SCALE.name]
            sums[GRADIENT_PREFIX + path] = gradient
        for path, variable in self._assignable.items():
            if (new := sums.pop(STATE_PREFIX + path, None)) is not None:
                weight = sums["weight_sum"]
                # A part that holds nothing may have statistics that are not finite.
                change = tf.where(weight > 0, weight * (new - variable), 0.0)
                sums[STATE_PREFIX + path] = change
        return sums

    def _merge(self) -> dict[str, Tensor]:
        return {path: layer.merged() for path, layer in self.adapted.items()}

    def train_pass(self, again: bool = True) -> Callable[..., dict[str, Tensor]]:
        """Returns the training pass, for tries of a task's own.

        Of several phases it gives the gradients of all, their other sums under "PHASE/NAME", and
        the totals of `loss_sum` and `weight_sum`.

        Args:
            again: whether `gradients` is traced again at the first call.
        """
        passes = {
            phase: self._traced_again(phase) if again else getattr(self, name)
            for name, phase in self.gradient_functions.items()
        }
        if None in passes:
            return passes[None]

        def run(**inputs: Tensor) -> dict[str, Tensor]:
            out = {name: tf.constant(0.0) for name in ("loss_sum", "weight_sum")}
            for phase, function in passes.items():
                for name, value in function(**inputs).items():
                    own = name.startswith(GRADIENT_PREFIX)
                    out[name if own else f"{phase.name}/{name}"] = value
                    if name in ("loss_sum", "weight_sum"):
                        out[name] += value
            return out

        return run

    def _traced_again(self, phase: Phase | None) -> Any:
        task = self._task
        specs = [f.spec() for f in task.features if not f.aside] + [
            tf.TensorSpec([2], tf.int64, "seed")
        ]
        specs += [h.spec() for h in self.hyperparameters]
        body = functools.partial(self._gradients, phase)
        return _function("gradients", body, specs, False)

    def _results_specs(self) -> list[tf.TensorSpec]:
        sums = self.evaluate.get_concrete_function().structured_outputs
        return [
            tf.TensorSpec(sums[name].shape, tf.float32, f"sum_{i}")
            for i, name in enumerate(self._task.results_of)
        ]

    def _results(self, **sums: Tensor) -> dict[str, Tensor]:
        names = self._task.results_of
        return self._task.results({name: sums[f"sum_{i}"] for i, name in enumerate(names)})

    def _train_step(self, clip_norm: Tensor, **inputs: Tensor) -> dict[str, Tensor]:
        names = [f.name for f in self._task.features if not f.aside] + ["seed"]
        names += [h.name for h in self.hyperparameters]
        sums = self.gradients(**{name: inputs[name] for name in names})
        gradients = {path: sums.pop(GRADIENT_PREFIX + path) for path in self.variables_by_path}
        unit = 1 / sums["weight_sum"]
        states = {
            path: variable + unit * sums.pop(STATE_PREFIX + path)
            for path, variable in self._assignable.items()
            if STATE_PREFIX + path in sums
        }
        squares = [tf.nn.l2_loss(g) for g in gradients.values()]
        norm = tf.sqrt(2 * tf.add_n(squares)) * unit
        scale = unit * clip_scale(norm, clip_norm)
        finite = tf.math.is_finite(norm) & tf.math.is_finite(sums["loss_sum"])
        for value in states.values():
            finite &= tf.math.is_finite(tf.nn.l2_loss(value))
        iteration = self.optimizer.iterations.assign_add(tf.cast(finite, tf.int64), read_value=True)
        scalars = {h.name: inputs[h.name] for h in self._optimizer.hyperparameters}

        def update_all() -> Tensor:
            for path, value in states.items():
                self._assignable[path].assign(value)
            for path, variable in self.variables_by_path.items():
                factor, rate = self._task.decays(path), self._task.learning_rate(path)
                getattr(self, self._layout.rules[path].function)(
                    variable=variable.handle,
                    gradient=gradients[path],
                    gradient_scale=scale,
                    iteration=iteration,
                    learning_rate=_times(inputs["learning_rate"], rate),
                    weight_decay=_times(inputs["weight_decay"], factor),
                    **{slot: value.handle for slot, value in self._layout.slots[path].items()},
                    **scalars,
                )
            return tf.constant(True)

        applied = tf.cond(finite, update_all, lambda: tf.constant(False))
        return {**sums, "gradient_norm": norm, "applied": applied, "iterations": iteration}

    def compile_updates(self) -> None:
        """Has XLA compile each function of the update, for the smallest variable that it updates.

        Raises:
            UsageError: if XLA cannot.
        """
        scalars = [*_SCALARS, *self._optimizer.hyperparameters]
        known = {h.name: tf.constant(h.default, tf.float32) for h in scalars}
        known |= {"gradient_scale": tf.constant(1.0), "iteration": tf.constant(1, tf.int64)}
        done = set()
        for path, variable in sorted(
            self.variables_by_path.items(), key=lambda item: item[1].shape.num_elements()
        ):
            name = self._layout.rules[path].function
            if name in done:
                continue
            done.add(name)
            of = {"variable": variable, **self._layout.slots[path]}
            copies = {key: tf.Variable(value, trainable=False) for key, value in of.items()}
            handles = {key: copy.handle for key, copy in copies.items()}
            update = functools.partial(
                getattr(self, name), gradient=tf.zeros_like(variable), **handles, **known
            )
            try:
                tf.function(lambda update=update: update(), autograph=False, jit_compile=True)()
            except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError) as err:
                unknown = re.search(r" on XLA_\w+: (\w+)", err.message)
                why = f"it has no {unknown[1]}" if unknown else err.message.splitlines()[0]
                raise UsageError(
                    f"XLA cannot compile {name} of the optimizer {self._optimizer.name}: {why}; "
                    "export without --xla, or with an optimizer of other operations"
                ) from err

    def contract(self) -> dict[str, Any]:
        """The content of gorbit.json."""
        task, optimizer = self._task, self._optimizer
        generation = task.generation()
        return {
            "format": "gorbit",
            "version": VERSION,
            "task": task.name,
            **({"precision": task.precision} if task.precision != "float32" else {}),
            **({"xla": True} if self._xla else {}),
            "input": task.input,
            "additive": task.additive and not task.across,
            **({"loss": "across_examples"} if task.across else {}),
            **({"best": dict(zip(("metric", "better"), task.best))} if task.best else {}),
            "model": task.description(),
            "optimizer": {
                "name": optimizer.name,
                "iterations": "optimizer/iterations",
                "hyperparameters": [_describe(h) for h in optimizer.hyperparameters],
                **({"defaults": optimizer.defaults} if optimizer.defaults else {}),
                **({"scheduled": True} if optimizer.scheduled else {}),
            },
            "state": "runner_state",
            "hyperparameters": [_describe(h) for h in self.hyperparameters],
            "features": [_describe_feature(feature) for feature in task.features],
            **({"masking": task.masking} if task.masking else {}),
            "outputs": self._describe_outputs(),
            **({"generation": generation.described()} if generation else {}),
            **self._describe_metrics(),
            "updates": {
                rule.function: {
                    "slots": [{"name": slot, "initial": rule.initial(slot)} for slot in rule.slots],
                    **({"elementwise": True} if rule.elementwise else {}),
                }
                for rule in self._layout.rules.values()
            },
            **({"phases": [_describe_phase(p) for p in task.phases]} if task.phases else {}),
            "variables": self._describe_variables(),
            "states": self._describe_states(),
            **({"merge": list(self.adapted)} if self.adapted else {}),
        }

    def _describe_variables(self) -> list[dict[str, Any]]:
        foreign = _foreign(self._task.model)
        drawn = _initializers(self._task.model)
        assigned = self._gradient_outputs()
        phases = {path: p.name for p in self._task.phases for path in p.paths}
        out = []
        for path, variable in self.variables_by_path.items():
            initializer = drawn.get(variable.ref()) or self._task.initializer(path)
            shapes = {
                slot: value.shape.as_list()
                for slot, value in self._layout.slots[path].items()
                if value.shape != variable.shape
            }
            out.append(
                {
                    **_describe_variable(path, variable, self._task, foreign.get(variable.ref())),
                    "update": self._layout.rules[path].function,
                    **({"phase": phases[path]} if phases else {}),
                    **({"assigned": True} if STATE_PREFIX + path in assigned else {}),
                    **({"slot_shapes": shapes} if shapes else {}),
                    **({"initializer": initializer.described()} if initializer else {}),
                }
            )
        return out

    def _gradient_outputs(self) -> set[str]:
        return {output for name in self.gradient_functions for output in self._outputs(name)}

    def _describe_states(self) -> list[dict[str, Any]]:
        updated = self._gradient_outputs()
        foreign = _foreign(self._task.model)
        return [
            {
                "name": path,
                "shape": variable.shape.as_list(),
                "dtype": variable.dtype.name,
                "updated": STATE_PREFIX + path in updated,
                **_describe_foreign(foreign.get(variable.ref()), self._task.foreign(path)),
            }
            for path, variable in self.states_by_path.items()
        ]

    def _describe_outputs(self) -> list[dict[str, Any]]:
        known = {output.name: output for output in self._task.outputs}
        out = []
        for name, tensor in self._outputs("predict").items():
            output = known.get(name) or _plain_output(name, tensor)
            described = {
                "name": name,
                "dtype": tensor.dtype.name,
                "axes": list(output.axes),
                "kind": output.kind,
            }
            out.append({**described, "of": output.of} if output.of else described)
        return out

    def _describe_metrics(self) -> dict[str, Any]:
        if not self._task.metrics:
            return {}
        return {
            "metrics": [dataclasses.asdict(metric) for metric in self._task.metrics],
            "results": list(self._task.results_of),
        }


def _layout(task: Task, optimizer: Optimizer) -> _Layout:
    variables, states, rules, slots = {}, {}, {}, {}
    for path, variable in _variable_paths(task.model, "model"):
        if not task.trains(path, variable):
            states[path] = variable
            continue
        variables[path] = variable
        shape = tuple(variable.shape.as_list())
        rule = optimizer.rule(path, shape)
        if constraint := task.constraint(path):
            name = f"{rule.function}_constrained_{len(rules)}"
            rule = Constrained(rule, constraint, shape, name)
        rules[path] = rule
        slots[path] = {
            slot: tf.Variable(
                tf.fill(rule.slot_shape(slot, shape), rule.initial(slot)), trainable=False
            )
            for slot in rule.slots
        }
    return _Layout(variables, states, rules, slots)


def _update_specs(rule: Rule, scalars: list[tf.TensorSpec]) -> list[tf.TensorSpec]:
    return [
        *(tf.TensorSpec([], tf.resource, name) for name in ("variable", *rule.slots)),
        tf.TensorSpec(rule.shape, tf.float32, "gradient"),
        tf.TensorSpec([], tf.float32, "gradient_scale"),
        tf.TensorSpec([], tf.int64, "iteration"),
        *scalars,
    ]


def _update(
    rule: Rule,
    variable: Tensor,
    gradient: Tensor,
    gradient_scale: Tensor,
    iteration: Tensor,
    learning_rate: Tensor,
    weight_decay: Tensor,
    **inputs: Tensor,
) -> dict[str, Tensor]:
    slots = {name: inputs.pop(name) for name in rule.slots}
    rule.update(
        variable,
        slots,
        gradient,
        gradient_scale,
        iteration,
        learning_rate,
        weight_decay,
        inputs,
    )
    return {}


def _times(scalar: Tensor, factor: float) -> Tensor:
    """Multiplies by a number; factors of 1 and 0 need no operation."""
    if factor == 1:
        return scalar
    return scalar * factor if factor else tf.constant(0.0)


def _plain_output(name: str, tensor: Tensor) -> Output:
    """Describes an output that the task says nothing of: a number or numbers per example."""
    rank = tensor.shape.rank or 1
    axes = ("examples", *(f"{name}_{i}" for i in range(1, rank)))
    return Output(name, axes, "value" if rank == 1 else "values")


def _function(name: str, body: Callable[..., Any], specs: list[tf.TensorSpec], xla: bool) -> Any:
    """Makes a graph function called `name` with one argument per spec, in the same order."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(spec.name, kind) for spec in specs])

    def function(*args: Tensor, **kwargs: Tensor) -> Any:
        return body(**signature.bind(*args, **kwargs).arguments)

    function.__name__ = name
    function.__signature__ = signature  # tf.function takes the argument names from it
    return tf.function(function, specs, autograph=False, jit_compile=xla or None)


def _variable_paths(module: tf.Module, prefix: str) -> list[tuple[str, tf.Variable]]:
    """Lists a module's variables by their shortest paths in the object graph, sorted by path."""
    found: dict[str, tf.Variable] = {}
    seen: set[int] = {id(module)}
    queue = collections.deque([(prefix, module)])
    while queue:
        path, node = queue.popleft()
        if isinstance(node, tf.Variable):
            found[path] = node
            continue
        for name, child in sorted(tf.train.TrackableView.children(node).items()):
            if id(child) not in seen:
                seen.add(id(child))
                queue.append((f"{path}/{name}", child))
    return sorted(found.items())


def _foreign(module: tf.Module) -> dict[Any, layers.Foreign]:
    """Maps references of variables to their names in other releases."""
    return {
        variable.ref(): foreign
        for sub in [module, *module.submodules]
        if isinstance(sub, layers.Layer)
        for variable, foreign in sub.foreign()
    }


def _initializers(module: tf.Module) -> dict[Any, layers.Initializer]:
    """Maps references of variables to how their initial values are drawn."""
    return {
        variable.ref(): initializer
        for sub in [module, *module.submodules]
        if isinstance(sub, layers.Layer)
        for variable, initializer in sub.initializers()
    }


def _describe(hyperparameter: Hyperparameter) -> dict[str, Any]:
    out = {
        "name": hyperparameter.name,
        "default": hyperparameter.default,
        "help": hyperparameter.help,
        "minimum": hyperparameter.minimum,
    }
    if hyperparameter.below is not None:
        out["below"] = hyperparameter.below
    return out


def _describe_phase(phase: Phase) -> dict[str, Any]:
    return {"name": phase.name, "every": phase.every, "offset": phase.offset}


def _describe_feature(feature: Feature) -> dict[str, Any]:
    optional = {
        "make": feature.make or None,
        "minimum": feature.minimum,
        "below": feature.below,
        "pad": feature.pad or None,
    }
    return {
        "name": feature.name,
        "dtype": feature.dtype.name,
        "axes": list(feature.axes),
        "shape": list(feature.shape),
        "role": feature.role,
        **{name: value for name, value in optional.items() if value is not None},
    }


def _describe_variable(
    path: str, variable: tf.Variable, task: Task, foreign: layers.Foreign | None
) -> dict[str, Any]:
    out = {
        "name": path,
        "shape": variable.shape.as_list(),
        "dtype": variable.dtype.name,
        "weight_decay": task.decays(path),
        "foreign": [],
        **_describe_foreign(foreign, task.foreign(path)),
    }
    if (rate := task.learning_rate(path)) != 1:
        out["learning_rate"] = rate
    if rows := task.rows(path):
        out["rows"] = rows
    return out


def _describe_foreign(
    foreign: layers.Foreign | None, more: list[str | dict[str, Any]]
) -> dict[str, Any]:
    if not foreign:
        return {"foreign": more} if more else {}
    release = [{"name": n, "transpose": False, "reshape": True} for n in foreign.tensorflow]
    return {
        "foreign": [*foreign.names, *release, *more],
        **({"transpose": True} if foreign.transpose else {}),
    }


def write(
    task: Task,
    optimizer: Optimizer,
    out: str | pathlib.Path,
    overwrite: bool = False,
    xla: bool = False,
) -> Export:
    """Writes the export of a task to a folder. The folder appears only once it is complete.

    The folder holds the training SavedModel, `assets/gorbit.json`, and in
    `serving/` the SavedModel that serves the trained model, without its
    variables: gorbit adds those from a checkpoint.

    Args:
        task: what to export.
        optimizer: how it is trained.
        out: the folder to create.
        overwrite: whether to replace an existing export. Anything else is never replaced.
        xla: whether XLA compiles the passes through the model.

    Raises:
        FileExistsError: if `out` exists and may not be replaced.
        UsageError: if XLA cannot compile the update, but has to.
    """
    out = pathlib.Path(out).absolute()
    refuse_existing(out, overwrite)
    if xla and task.phases:
        raise UsageError("XLA compiles no step of several phases; export without --xla")
    module = Export(task, optimizer, xla)
    if xla:
        module.compile_updates()
    task.inspect(module)
    out.parent.mkdir(parents=True, exist_ok=True)
    with _part(out) as part:
        _write(module, part / "new")
        if out.exists():
            out.rename(part / "old")
        (part / "new").rename(out)
    return module


@contextlib.contextmanager
def _part(out: pathlib.Path) -> Iterator[pathlib.Path]:
    """Makes a folder next to `out` for an unfinished export, and removes it at the end.

    The folder is locked. The lock ends with the process, so a folder without a lock was
    left behind by a killed export of the same name. Such folders are removed first.
    """
    prefix = f".{out.name}.part-"
    for path in out.parent.iterdir():
        if re.fullmatch(re.escape(prefix) + r"\w{8}", path.name):
            with contextlib.suppress(OSError), _lock(path):
                shutil.rmtree(path)
    part = pathlib.Path(tempfile.mkdtemp(prefix=prefix, dir=out.parent))
    with _lock(part):
        try:
            yield part
        finally:
            shutil.rmtree(part, ignore_errors=True)


@contextlib.contextmanager
def _lock(folder: pathlib.Path) -> Iterator[None]:
    """Locks a folder.

    Raises:
        OSError: if another process has locked it, or it is not a folder.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def refuse_existing(out: pathlib.Path, overwrite: bool) -> None:
    """Raises FileExistsError or NotADirectoryError if an export must not be written to `out`."""
    if out.parent.exists() and not out.parent.is_dir():
        raise NotADirectoryError(f"{out.parent} is not a folder")
    if not out.exists() and not out.is_symlink():
        return
    if not overwrite:
        raise FileExistsError(
            f"{out} already exists; choose another folder, or add --overwrite to replace it"
        )
    if out.is_symlink() or not (out / CONTRACT_FILE).is_file():
        raise FileExistsError(
            f"{out} already exists and is not an export, so it is not overwritten; "
            "choose another folder"
        )


def _write(module: Export, out: pathlib.Path) -> None:
    task = module.task
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    signatures = _serving_signature(task)
    tf.saved_model.save(module, str(out), signatures, options)
    serving = tf.Module()
    serving.model = _merged_model(module)
    with layers.without_adapters():
        if serving.model is not task.model:
            signatures = _serving_signature(task)
        signatures = {
            **signatures,
            **_packed_signature(task),
            **_generation_signatures(task, serving),
        }
        tf.saved_model.save(serving, str(out / SERVING_FOLDER), signatures, options)
    shutil.rmtree(out / SERVING_FOLDER / "variables")
    # It contains the checksum of the variables, which changes when the model is trained.
    (out / SERVING_FOLDER / "fingerprint.pb").unlink()
    contract = out / CONTRACT_FILE
    contract.parent.mkdir(exist_ok=True)
    contract.write_text(json.dumps(module.contract(), indent=1) + "\n", encoding="utf-8")


def _merged_model(module: Export) -> tf.Module:
    """Returns the task's model, or what is left of it once its adapters are merged."""
    adapters = {v.ref() for layer in module.adapted.values() for v in layer.adapter}
    if not adapters:
        return module.task.model
    tree = Tree()
    for path, variable in {**module.variables_by_path, **module.states_by_path}.items():
        if variable.ref() not in adapters:
            tree.set(path.removeprefix("model/"), variable)
    return tree


def _serving_signature(task: Task) -> dict[str, Any]:
    specs, serve = task.serving()
    function = tf.function(serve, autograph=False)
    return {"serving_default": function.get_concrete_function(*specs)}


def _packed_signature(task: Task) -> dict[str, Any]:
    """The signature of packed rows, which only gorbit serve calls."""
    if not task.packs:
        return {}
    specs = [feature.spec() for feature in task.features if not feature.label]
    function = _function("packed", lambda **values: task.predict(values), specs, False)
    return {"packed": function.get_concrete_function()}


def _generation_signatures(task: Task, serving: tf.Module) -> dict[str, Any]:
    """The signatures with which a program generates by the served model, whose caches they share.

    The caches are variables of the model, so that each program that loads it has its own.
    """
    if not (generation := task.generation()):
        return {}
    source = generation.source
    sides = {"slots": generation.caches, **({"source_slots": source.caches} if source else {})}
    serving.caches, handles = Tree(), {}
    for cache in (cache for caches in sides.values() for cache in caches):
        value = tf.zeros([FIRST_SLOTS, *cache.shape], cache.dtype)
        variable = tf.Variable(value, trainable=False, shape=[None, *cache.shape])
        serving.caches.set(cache.argument, variable)
        handles[cache.argument] = variable.handle

    def make_caches(**slots: Tensor) -> dict[str, Tensor]:
        for name, count in slots.items():
            for cache in sides[name]:
                zeros = tf.zeros(tf.concat([[count], cache.shape], 0), cache.dtype)
                getattr(serving.caches, cache.argument).assign(zeros)
        return {"made": tf.add_n(list(slots.values()))}

    def called(body: Callable[..., Any], caches: tuple[Cache, ...]) -> Callable[..., Any]:
        own = {cache.argument: handles[cache.argument] for cache in caches}
        return lambda **inputs: body(**inputs, **own)

    counts = [tf.TensorSpec([], tf.int32, name) for name in sides]
    both = tuple(cache for caches in sides.values() for cache in caches)
    bodies = {
        "make_caches": (make_caches, counts),
        "generate": (called(generation.generate, both), generation.specs()),
    }
    if source:
        bodies["encode"] = (called(source.encode, source.caches), source.specs())
    return {
        name: _function(
            name, body, [s for s in specs if s.dtype != tf.resource], False
        ).get_concrete_function()
        for name, (body, specs) in bodies.items()
    }


def parameters(module: Export) -> int:
    """Returns the number of trained parameters of the model."""
    return sum(v.shape.num_elements() for v in module.variables_by_path.values())
