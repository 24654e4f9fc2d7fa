"""Values of a model's variables: from checkpoints, and from files of Keras."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import keras
import tensorflow as tf

from gorbit_export.models import Model, Refusal, names, rules

_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"


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
    for layer in rules.layers(target):
        if hasattr(layer, "finalize_state"):  # Normalization computes with copies
            layer.finalize_state()
    return model


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
        file: .weights.h5 or .keras as Keras writes them, or what `restore` takes.

    Raises:
        Refusal: if the file does not fit the model.
        OSError: if there is no such file.
    """
    if not str(file).endswith((".h5", ".keras")):
        restore(user, file)
        return
    if not pathlib.Path(file).is_file():
        raise FileNotFoundError(f"{file}: no such file")
    if not isinstance(user.model, keras.Model) and not names.is_legacy(user.model):
        raise Refusal(f"{file} is a file of Keras; the model is a {type(user.model).__name__}")
    try:
        user.model.load_weights(file)
    except Exception as err:
        raise Refusal(f"{file} does not fit the model: {' '.join(str(err).split())}") from err
