"""The commands `keras` and `check`."""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
from typing import Any

from gorbit_export import release
from gorbit_export.errors import UsageError
from gorbit_export.models import Refusal


def add(parsers: Any) -> None:
    """Adds the two commands to those of the program."""
    keras = parsers.add_parser(
        "keras",
        help="a model of your own: Keras, tf-keras or tf.Module",
        description="Exports the model that build() of a Python file returns; see "
        "docs/guide/keras.md.",
    )
    keras.set_defaults(run=_export)
    keras.add_argument("file", help="Python file with a function build() that returns a Model")
    keras.add_argument("--out", required=True, help="folder to write; must not exist")
    keras.add_argument(
        "--overwrite", action="store_true", help="replace an existing export in --out"
    )
    keras.add_argument(
        "--xla",
        action="store_true",
        help="compile the passes through the model with XLA, once for each batch shape",
    )
    check = parsers.add_parser(
        "check",
        help="say which rule a model of your own breaks, without exporting it",
        description="Says which rule the model that build() of a Python file returns breaks.",
    )
    check.set_defaults(run=_check)
    check.add_argument("file", help="Python file with a function build() that returns a Model")
    for parser in (keras, check):
        parser.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="argument of build(); may be given several times",
        )
        parser.add_argument(
            "--weights",
            metavar="FILE",
            help="initial values: .weights.h5, .keras or SavedModel of Keras, a checkpoint of "
            "tf.train.Checkpoint, or a run, checkpoint or export of the same model",
        )
        parser.add_argument(
            "--seed", type=int, default=0, help="seed of the initial weights (default: 0)"
        )


def _prepare() -> None:
    """Readies the process for Keras. Call it before anything that imports Keras."""
    # On a GPU, recurrent layers would choose kernels that only GPUs have.
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    release.check()


def _build(args: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    import keras

    from gorbit_export.models import userfile

    keras.utils.set_random_seed(args.seed)
    build = userfile.load(args.file)
    try:
        arguments = userfile.settings(build, args.set)
    except Refusal as err:
        raise UsageError(str(err)) from err
    return userfile.call(build, arguments, args.file), arguments


def _task(args: argparse.Namespace) -> Any:
    _prepare()
    from gorbit_export.models import initializers, task, weights

    with initializers.recorded() as drawn:
        user, arguments = _build(args)
        made = task.ModelTask(user, arguments, drawn)
    if args.weights:
        weights.load(user, args.weights)
    return made


def _export(args: argparse.Namespace) -> None:
    from gorbit_export import export

    out = pathlib.Path(args.out)
    try:
        export.refuse_existing(out, args.overwrite)
    except OSError as err:
        raise UsageError(str(err)) from err
    import tensorflow as tf

    made = _task(args)
    try:
        module = export.write(made, made.optimizer, out, args.overwrite, args.xla)
    except tf.errors.OpError as err:  # a full disk, or not enough memory
        raise OSError(err.message) from err
    for note in made.notes:
        print(f"gorbit_export: note: {note}", file=sys.stderr)
    print(
        f"{args.file}: {export.parameters(module):,} parameters in "
        f"{len(module.variables_by_path)} variables, {len(module.states_by_path)} states"
    )


def _check(args: argparse.Namespace) -> int:
    _prepare()
    from gorbit_export import export
    from gorbit_export.models import rules, task, weights

    user, arguments = _build(args)
    sentences = list(rules.broken(user))
    if not sentences:
        try:
            made = task.ModelTask(user, arguments)
            if args.weights:
                weights.load(user, args.weights)
            made.inspect(export.Export(made, made.optimizer))
        except Refusal as err:
            sentences = [" ".join(str(err).split())]
    for sentence in sentences:
        print(f"gorbit_export: {args.file}: {sentence}", file=sys.stderr)
    if sentences:
        return 1
    for note in made.notes:
        print(f"{args.file}: {note}")
    print(f"{args.file}: keeps to all rules")
    return 0
