"""Reads the file that describes a model, and calls its build()."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import pathlib
import sys
import traceback
from typing import Any, Callable

from gorbit_export.models import Model, Refusal

_NO_TF_KERAS = "tf-keras is not installed; run pip install --no-deps 'tf-keras==2.18.*'"


def load(path: str) -> Callable[..., Model]:
    """Runs a Python file and returns its function `build`.

    Raises:
        OSError: if there is no such file.
        Refusal: if it fails or has no `build`.
    """
    file = pathlib.Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise Refusal(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.resolve().parent))
    sys.modules.setdefault(file.stem, module)  # so that its classes know where they are from
    try:
        spec.loader.exec_module(module)
    except Exception as err:
        raise _failed(path, err, file) from err
    build = getattr(module, "build", None)
    if not callable(build):
        raise Refusal(f"{path} has no function build(); expected one that returns a Model")
    return build


def settings(build: Callable[..., Model], given: list[str]) -> dict[str, Any]:
    """Turns NAME=VALUE into arguments of `build`.

    A value has the type of the parameter's default, or of its annotation.

    Raises:
        Refusal: if there is no such parameter, or the value is none of its type.
    """
    parameters = inspect.signature(build).parameters
    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise Refusal(f"--set {text}: expected NAME=VALUE")
        if name not in parameters:
            known = ", ".join(parameters) or "none"
            raise Refusal(f"--set {text}: build() has no such parameter; it has {known}")
        found[name] = _value(text, value, parameters[name])
    missing = [
        name
        for name, p in parameters.items()
        if p.default is p.empty
        and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        and name not in found
    ]
    if missing:
        raise Refusal(f"build() needs {missing[0]}; add --set {missing[0]}=VALUE")
    return found


def _value(text: str, value: str, parameter: inspect.Parameter) -> Any:
    annotation = parameter.annotation
    wanted = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    default = parameter.default
    if default is not parameter.empty and default is not None:
        wanted = type(default).__name__
    try:
        if wanted == "bool":
            return {"true": True, "false": False, "1": True, "0": False}[value.lower()]
        if wanted in ("int", "float"):
            return {"int": int, "float": float}[wanted](value)
        if wanted == "str":
            return value
    except (ValueError, KeyError):
        raise Refusal(f"--set {text}: expected a value of type {wanted}") from None
    try:
        parsed = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        parsed = value
    if wanted in ("list", "tuple", "dict") and type(parsed).__name__ != wanted:
        raise Refusal(f"--set {text}: expected a value of type {wanted}")
    return parsed


def call(build: Callable[..., Model], arguments: dict[str, Any], path: str) -> Model:
    """Calls `build`.

    Raises:
        Refusal: if it fails or returns something else than a Model.
    """
    try:
        user = build(**arguments)
    except Refusal:
        raise
    except Exception as err:
        raise _failed(f"build() of {path}", err, pathlib.Path(path)) from err
    if not isinstance(user, Model):
        raise Refusal(
            f"build() of {path} returns a {type(user).__name__}; expected a gorbit_export.Model"
        )
    return user


def _failed(what: str, err: Exception, file: pathlib.Path) -> Refusal:
    """Returns the refusal of a file that fails, with the traceback from its own first line on."""
    refusal = Refusal(f"{what} fails: {_where(err, file)}")
    at = err.__traceback__
    while at and at.tb_frame.f_code.co_filename != str(file):
        at = at.tb_next
    if at and not refusal.args[0].endswith(_NO_TF_KERAS):
        refusal.trace = "".join(traceback.format_exception(type(err), err, at))
    return refusal


def _where(err: Exception, file: pathlib.Path) -> str:
    """Returns an error's class and message, and the line of the user's file."""
    if isinstance(err, ModuleNotFoundError) and err.name == "tf_keras":
        return _NO_TF_KERAS
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(err.__traceback__)
        if frame.filename == str(file)
    ]
    at = f" (line {lines[-1]})" if lines else ""
    return f"{type(err).__name__}: {' '.join(str(err).split())}{at}"
