"""Values of a model's variables: from checkpoints, and from files of Keras."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import keras
import tensorflow as tf

from gorbit_export.models import Model, Refusal, names, rules

_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
_OURS = "runner_state"
"""A variable that all of gorbit's checkpoints and exports have."""
_BOOKS = {"_CHECKPOINTABLE_OBJECT_GRAPH", "save_counter", "optimizer", "step", "epoch"}
"""What checkpoints have next to a model."""
_KERAS_FILE = "a file that model.save_weights('model.weights.h5') writes"


def restore(model: Any, source: Any) -> Any:
    """See gorbit_export.restore."""
    target = model.model if isinstance(model, Model) else model
    prefix = find(source)
    reader = tf.train.load_checkpoint(prefix)
    shapes = reader.get_variable_to_shape_map()
    named = names.of(target)
    values = {}
    for path, leaf in named.variables.items():
        key = path.replace(".", "..") + _SUFFIX
        if key not in shapes:
            raise Refusal(
                f"{prefix} has no {path}; expected a checkpoint of this model, which was called "
                "once so that its layers have their variables"
            )
        if list(shapes[key]) != leaf.value.shape.as_list():
            raise Refusal(
                f"{prefix} has {path} in the shape {shapes[key]}; the model's is "
                f"{leaf.value.shape.as_list()}"
            )
        values[path] = reader.get_tensor(key)
    left = {
        key.removesuffix(_SUFFIX)
        for key in shapes
        if key.startswith(f"{names.ROOT}/") and key.endswith(_SUFFIX)
    } - {path.replace(".", "..") for path in named.variables}
    if left:
        raise Refusal(f"{prefix} has {sorted(left)[0]}, which the model lacks")
    for path, leaf in named.variables.items():
        leaf.holder.assign(values[path])
    _finish(target)
    return model


def _restore_objects(model: Any, prefix: str, top: set[str]) -> None:
    """Gives a model the values of a checkpoint of TensorFlow's, by its objects.

    Args:
        model: the model.
        prefix: the checkpoint.
        top: the names that those of its tensors begin with.

    Raises:
        Refusal: if it lacks a variable, or has none of the model.
    """
    held = sorted(top - _BOOKS)
    trees = [tf.train.Checkpoint(root=model)]
    if len(held) == 1 and held[0].isidentifier():
        trees.append(tf.train.Checkpoint(**{held[0]: model}))
    if "_all_variables" in top:  # an ExportArchive, whose list is in the order of the model's
        trees = [tf.train.Checkpoint(variables=[_plain(v) for v in model.variables])]
    found = {id(value) for value in tf.train.TrackableView(trees[0]).descendants()}
    for path, leaf in names.of(model).variables.items():
        if not {id(leaf.holder), id(leaf.value)} & found:
            raise Refusal(
                f"{prefix} has no {path}, as TensorFlow's checkpoints do not see what a layer of "
                f"Keras 3 holds in lists and dicts; expected {_KERAS_FILE}"
            )
    for tree in trees:
        try:
            tree.read(prefix).expect_partial().assert_existing_objects_matched()
        except (AssertionError, ValueError):
            continue
        _finish(model)
        return
    raise Refusal(
        f"{prefix} does not fit the model (it holds {', '.join(held) or 'nothing'}); expected a "
        f"checkpoint of the model alone, a SavedModel of it, or {_KERAS_FILE}"
    )


def _plain(variable: Any) -> tf.Variable:
    return variable.value if isinstance(variable, keras.Variable) else variable


def _finish(model: Any) -> None:
    for layer in rules.layers(model):
        if hasattr(layer, "finalize_state"):  # Normalization computes with copies
            layer.finalize_state()


def find(source: Any) -> str:
    """Returns the prefix of a checkpoint: the newest of a run, or an export's first values.

    Raises:
        OSError: if there is none.
    """
    path = pathlib.Path(source)
    if path.with_name(path.name + ".index").is_file():
        return str(path)
    if path.suffix == ".index" and path.is_file():
        return str(path.with_suffix(""))
    for folder in (path / "checkpoints", path):
        steps = {}
        if folder.is_dir():
            for file in folder.glob("ckpt-*.index"):
                if match := re.fullmatch(r"ckpt-(\d+)\.index", file.name):
                    steps[int(match.group(1))] = file
        if steps:
            return str(steps[max(steps)].with_suffix(""))
    variables = path / "variables" / "variables"
    if variables.with_name("variables.index").is_file():
        return str(variables)
    raise FileNotFoundError(f"{source} holds no checkpoint; expected a run, checkpoint or export")


def load(user: Model, file: str) -> None:
    """Gives a model that is to be exported the values of a file.

    Args:
        user: what `build()` returned.
        file: .weights.h5 or .keras as Keras writes them, what `restore` takes, a SavedModel of
            Keras, or a checkpoint of tf.train.Checkpoint that has the model.

    Raises:
        Refusal: if the file does not fit the model.
        OSError: if there is no such file.
    """
    if not str(file).endswith((".h5", ".keras")):
        prefix = find(file)
        keys = tf.train.load_checkpoint(prefix).get_variable_to_shape_map()
        if _OURS + _SUFFIX in keys:
            restore(user, file)
        else:
            _restore_objects(user.model, prefix, {key.split("/")[0] for key in keys})
        return
    if not pathlib.Path(file).is_file():
        raise FileNotFoundError(f"{file}: no such file")
    if not isinstance(user.model, keras.Model) and not names.is_legacy(user.model):
        raise Refusal(f"{file} is a file of Keras; the model is a {type(user.model).__name__}")
    try:
        user.model.load_weights(file)
    except Exception as err:
        raise Refusal(f"{file} does not fit the model: {' '.join(str(err).split())}") from err
