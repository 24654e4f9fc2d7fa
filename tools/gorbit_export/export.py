"""Writes an export: a SavedModel with the functions that gorbit calls.

docs/reference/contract.md documents their inputs and outputs.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import fcntl
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
from gorbit_export.optimizers import Optimizer, clip_scale
from gorbit_export.task import Hyperparameter, Task

Tensor = tf.Tensor

VERSION = 2
"""Version of the contract and of gorbit.json."""
CONTRACT_FILE = "assets/gorbit.json"
SERVING_FOLDER = "serving"
GRADIENT_PREFIX = "gradient/"

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


class _Tree(tf.Module):
    """A module whose children are set by paths with slashes."""

    def set(self, path: str, value: Any) -> None:
        """Sets the value at a path, and creates the modules on the way."""
        node, names = self, path.split("/")
        for name in names[:-1]:
            if not hasattr(node, name):
                setattr(node, name, _Tree())
            node = getattr(node, name)
        setattr(node, names[-1], value)


@dataclasses.dataclass
class _Layout:
    """Variables by path, in a plain object because TensorFlow would track a dict as a child."""

    variables: dict[str, tf.Variable]
    slots: dict[str, dict[str, tf.Variable]]


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
        self.optimizer = _Tree()
        self.optimizer.iterations = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.runner_state = tf.Variable("", dtype=tf.string, trainable=False)
        self._layout = _Layout(dict(_variable_paths(task.model, "model")), {})
        for path, variable in self._layout.variables.items():
            self._layout.slots[path] = {
                slot: tf.Variable(tf.zeros(variable.shape), trainable=False)
                for slot in optimizer.slots
            }
            for slot, value in self._layout.slots[path].items():
                self.optimizer.set(f"{slot}/{path}", value)

        features = [feature.spec() for feature in task.features]
        inputs = [feature.spec() for feature in task.features if not feature.label]
        seed = [tf.TensorSpec([2], tf.int64, "seed")]
        pass_scalars = [h.spec() for h in self.hyperparameters]
        update_scalars = [h.spec() for h in [*_SCALARS, *optimizer.hyperparameters]]
        handles = [tf.TensorSpec([], tf.resource, name) for name in ("variable", *optimizer.slots)]
        gradient = tf.TensorSpec(None, tf.float32, "gradient")
        gradient_scale = tf.TensorSpec([], tf.float32, "gradient_scale")
        iteration = tf.TensorSpec([], tf.int64, "iteration")
        step_specs = [*features, *seed, *pass_scalars, *update_scalars, _CLIP.spec()]

        functions = {
            "gradients": (self._gradients, [*features, *seed, *pass_scalars]),
            "update": (
                self._update,
                [*handles, gradient, gradient_scale, iteration, *update_scalars],
            ),
            "train_step": (self._train_step, step_specs),
            "evaluate": (lambda **values: task.evaluate_sums(values), features),
            "predict": (lambda **values: task.predict(values), inputs),
        }
        for name, (body, specs) in functions.items():
            setattr(self, name, _function(name, body, specs, xla and name in _PASSES))

    @property
    def task(self) -> Task:
        """What is exported."""
        return self._task

    @property
    def hyperparameters(self) -> list[Hyperparameter]:
        """The scalar inputs of `gradients`: the task's, and loss_scale if the precision is fp16."""
        return [*self._task.hyperparameters, *([_LOSS_SCALE] if self._scaled else [])]

    @property
    def _scaled(self) -> bool:
        return self._task.precision == "fp16"

    @property
    def variables_by_path(self) -> dict[str, tf.Variable]:
        """The model's variables by slash path."""
        return self._layout.variables

    def _gradients(self, seed: Tensor, **inputs: Tensor) -> dict[str, Tensor]:
        features = {f.name: inputs[f.name] for f in self._task.features}
        scalars = {h.name: inputs[h.name] for h in self._task.hyperparameters}
        with tf.GradientTape() as tape:
            sums = dict(self._task.train_sums(features, scalars, ops.Random.from_seed(seed)))
            loss = sums["loss_sum"]
            if self._scaled:
                loss *= inputs[_LOSS_SCALE.name]
        gradients = tape.gradient(
            loss, list(self.variables_by_path.values()), unconnected_gradients="zero"
        )
        for path, gradient in zip(self.variables_by_path, gradients):
            gradient = tf.convert_to_tensor(gradient)
            if self._scaled:
                gradient /= inputs[_LOSS_SCALE.name]
            sums[GRADIENT_PREFIX + path] = gradient
        return sums

    def _update(
        self,
        variable: Tensor,
        gradient: Tensor,
        gradient_scale: Tensor,
        iteration: Tensor,
        learning_rate: Tensor,
        weight_decay: Tensor,
        **inputs: Tensor,
    ) -> dict[str, Tensor]:
        slots = {name: inputs[name] for name in self._optimizer.slots}
        self._optimizer.update(
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

    def _train_step(self, clip_norm: Tensor, **inputs: Tensor) -> dict[str, Tensor]:
        names = [f.name for f in self._task.features] + ["seed"]
        names += [h.name for h in self.hyperparameters]
        sums = self.gradients(**{name: inputs[name] for name in names})
        gradients = {path: sums.pop(GRADIENT_PREFIX + path) for path in self.variables_by_path}
        unit = 1 / sums["weight_sum"]
        squares = [tf.nn.l2_loss(g) for g in gradients.values()]
        norm = tf.sqrt(2 * tf.add_n(squares)) * unit
        scale = unit * clip_scale(norm, clip_norm)
        finite = tf.math.is_finite(norm) & tf.math.is_finite(sums["loss_sum"])
        iteration = self.optimizer.iterations.assign_add(tf.cast(finite, tf.int64), read_value=True)
        scalars = {h.name: inputs[h.name] for h in self._optimizer.hyperparameters}

        def update_all() -> Tensor:
            for path, variable in self.variables_by_path.items():
                decays = self._task.decays(path)
                self.update(
                    variable=variable.handle,
                    gradient=gradients[path],
                    gradient_scale=scale,
                    iteration=iteration,
                    learning_rate=inputs["learning_rate"],
                    weight_decay=inputs["weight_decay"] if decays else tf.constant(0.0),
                    **{slot: value.handle for slot, value in self._layout.slots[path].items()},
                    **scalars,
                )
            return tf.constant(True)

        applied = tf.cond(finite, update_all, lambda: tf.constant(False))
        return {**sums, "gradient_norm": norm, "applied": applied, "iterations": iteration}

    def contract(self) -> dict[str, Any]:
        """The content of gorbit.json."""
        task, optimizer = self._task, self._optimizer
        foreign = _foreign(task.model)
        return {
            "format": "gorbit",
            "version": VERSION,
            "task": task.name,
            **({"precision": task.precision} if task.precision != "float32" else {}),
            **({"xla": True} if self._xla else {}),
            "model": task.description(),
            "optimizer": {
                "name": optimizer.name,
                "slots": list(optimizer.slots),
                "iterations": "optimizer/iterations",
                "hyperparameters": [_describe(h) for h in optimizer.hyperparameters],
            },
            "state": "runner_state",
            "hyperparameters": [_describe(h) for h in self.hyperparameters],
            "features": [
                {
                    "name": feature.name,
                    "dtype": feature.dtype.name,
                    "axes": list(feature.axes),
                    **({"label": True} if feature.label else {}),
                }
                for feature in task.features
            ],
            "variables": [
                _describe_variable(path, variable, task, foreign.get(variable.ref()))
                for path, variable in self.variables_by_path.items()
            ],
        }


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
    """Lists a module's variables by their shortest paths in the object graph, sorted by path.

    Raises:
        ValueError: if a variable is not trainable; the contract has no place for it.
    """
    found: dict[str, tf.Variable] = {}
    seen: set[int] = {id(module)}
    queue = collections.deque([(prefix, module)])
    while queue:
        path, node = queue.popleft()
        if isinstance(node, tf.Variable):
            if not node.trainable:
                raise ValueError(f"variable {path} is not trainable; expected trainable variables")
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


def _describe_variable(
    path: str, variable: tf.Variable, task: Task, foreign: layers.Foreign | None
) -> dict[str, Any]:
    out = {
        "name": path,
        "shape": variable.shape.as_list(),
        "dtype": variable.dtype.name,
        "weight_decay": task.decays(path),
        "foreign": list(foreign.names) if foreign else [],
    }
    if foreign and foreign.transpose:
        out["transpose"] = True
    if rows := task.rows(path):
        out["rows"] = rows
    return out


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
    """
    out = pathlib.Path(out).absolute()
    refuse_existing(out, overwrite)
    module = Export(task, optimizer, xla)
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
    tf.saved_model.save(module, str(out), _serving_signature(task), options)
    serving = tf.Module()
    serving.model = task.model
    tf.saved_model.save(serving, str(out / SERVING_FOLDER), _serving_signature(task), options)
    shutil.rmtree(out / SERVING_FOLDER / "variables")
    # It contains the checksum of the variables, which changes when the model is trained.
    (out / SERVING_FOLDER / "fingerprint.pb").unlink()
    contract = out / CONTRACT_FILE
    contract.parent.mkdir(exist_ok=True)
    contract.write_text(json.dumps(module.contract(), indent=1) + "\n", encoding="utf-8")


def _serving_signature(task: Task) -> dict[str, Any]:
    specs, serve = task.serving()
    function = tf.function(serve, autograph=False)
    return {"serving_default": function.get_concrete_function(*specs)}


def parameters(module: Export) -> int:
    """Returns the number of trained parameters of the model."""
    return sum(v.shape.num_elements() for v in module.variables_by_path.values())
