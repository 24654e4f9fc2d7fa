"""The command line: python -m gorbit_export MODEL --out FOLDER [options]."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from typing import Optional


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Exports what the arguments say. Returns the exit code: 0, 1 failed, 2 usage."""
    from gorbit_export import config as configs

    parser = argparse.ArgumentParser(
        prog="python -m gorbit_export",
        description="Exports a training graph as a SavedModel that gorbit drives from Go.",
    )
    models = parser.add_subparsers(dest="model", required=True, metavar="MODEL")
    classifier = models.add_parser(
        "bert-classifier",
        help="BERT with a classification head",
        description="BERT with a classification head, for sentences and sentence pairs.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    classifier.add_argument(
        "--config",
        required=True,
        help=f"{', '.join(configs.PRESETS)}, or a bert_config.json / config.json file",
    )
    classifier.add_argument("--out", required=True, help="folder to write; must not exist")
    classifier.add_argument("--overwrite", action="store_true", help="replace --out if it exists")
    classifier.add_argument("--num-labels", type=int, default=2, help="number of classes")
    classifier.add_argument(
        "--pooling",
        choices=["first", "mean"],
        default="first",
        help="first: BERT's own pooler on the first token; mean: the mean of all tokens",
    )
    classifier.add_argument("--optimizer", choices=["adamw"], default="adamw")
    classifier.add_argument("--vocab-size", type=int, help="instead of the configuration's")
    classifier.add_argument("--seed", type=int, default=0, help="of the initial weights")
    args = parser.parse_args(argv)

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    start = time.monotonic()
    try:
        _export(args)
    except (ValueError, OSError) as err:
        print(f"gorbit_export: {err}", file=sys.stderr)
        return 1
    print(f"exported to {args.out} in {time.monotonic() - start:.1f} s")
    return 0


def _export(args: argparse.Namespace) -> None:
    import dataclasses
    import pathlib
    import shutil

    from gorbit_export import config as configs

    config = configs.load(args.config)
    if args.vocab_size is not None:
        config = dataclasses.replace(config, vocab_size=args.vocab_size)
    out = pathlib.Path(args.out)
    if out.exists():
        if not args.overwrite:
            raise ValueError(f"{out} exists already: remove it, or say --overwrite")
        # Only an export is replaced, never a folder that --out names by mistake.
        if not (out / "assets" / "gorbit.json").is_file():
            raise ValueError(f"{out} exists and is no export: not overwriting it")

    import tensorflow as tf

    from gorbit_export import classifier, export, optimizers

    if not tf.__version__.startswith("2.18."):
        raise ValueError(f"TensorFlow {tf.__version__} is installed; gorbit needs 2.18")
    task = classifier.Classification(config, args.num_labels, args.pooling, args.seed)
    if out.exists():
        shutil.rmtree(out)
    module = export.write(task, optimizers.OPTIMIZERS[args.optimizer](), out)
    print(
        f"{args.model}: {export.parameters(module):,} parameters "
        f"in {len(module.variables_by_path)} variables"
    )


if __name__ == "__main__":
    sys.exit(main())
