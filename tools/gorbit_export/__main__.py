"""The command line: python -m gorbit_export MODEL --out FOLDER [options]."""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

# TensorFlow is imported only after the arguments have been checked: the import
# takes seconds, and TensorFlow may not be installed.
from gorbit_export import causal_config, release, search, seq2seq_config
from gorbit_export import config as configs
from gorbit_export.errors import UsageError
from gorbit_export.models import command

if TYPE_CHECKING:
    from gorbit_export import data as datasets
    from gorbit_export import vocabulary as vocabularies
    from gorbit_export.task import Task

TASKS = ("classification", "multilabel", "regression", "tokens", "qa", "choices", "mlm", "embed")
"""The tasks of BERT."""


_OPTIMIZERS = ("adamw", "sgd", "lion", "lamb", "adafactor", "muon")
"""The names of optimizers.OPTIMIZERS, which cannot be imported without TensorFlow."""


def main(argv: Sequence[str] | None = None) -> int:
    """Writes the export that the arguments describe.

    Returns:
        The exit code: 0 done, 1 failed, 2 wrong usage, 130 interrupted.

    Raises:
        SystemExit: with code 2 if the arguments cannot be parsed.
    """
    args = _parser().parse_args(argv)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    start = time.monotonic()
    try:
        code = args.run(args) or 0
    except UsageError as err:
        print(f"gorbit_export: {err}", file=sys.stderr)
        return 2
    except (ValueError, OSError, ImportError, MemoryError) as err:
        # After the traceback of a user's own file, so that the last line says what is wrong.
        print(f"{getattr(err, 'trace', '')}gorbit_export: {_sentence(err)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("gorbit_export: interrupted; nothing was written", file=sys.stderr)
        return 130
    if "out" in args:
        print(f"exported to {args.out} in {time.monotonic() - start:.1f} s")
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m gorbit_export",
        description="Exports a training graph as a SavedModel that gorbit drives from Go.",
        epilog="Exit codes: 0 done, 1 failed, 2 usage.",
    )
    models = parser.add_subparsers(dest="model", required=True, metavar="MODEL")
    classifier = models.add_parser(
        "bert-classifier",
        help="BERT with a classification head",
        description="BERT with a classification head, for sentences and sentence pairs.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    classifier.set_defaults(run=_export)
    _add_encoder(classifier)
    classifier.add_argument(
        "--num-labels", type=int, default=2, help="number of classes, 2 or more"
    )
    bert = models.add_parser(
        "bert",
        help="BERT with the head of a task: " + ", ".join(TASKS),
        description="BERT with the head of a task, for sentences and sentence pairs.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    bert.add_argument("--task", required=True, choices=TASKS, help="what the model answers")
    _add_tokenizer(bert)
    bert.add_argument(
        "--num-labels",
        type=int,
        help="number of labels, or of choices of an example (default: those of --data, or 2)",
    )
    bert.set_defaults(run=_export)
    _add_encoder(bert)
    _add_embed(bert)
    causal = models.add_parser(
        "causal",
        help="a causal language model, such as GPT-2 or Llama",
        description="A causal language model, such as GPT-2 or Llama, for texts.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    causal.add_argument("--task", choices=["lm"], default="lm", help="what the model answers")
    _add_tokenizer(causal)
    causal.set_defaults(run=_export)
    presets = ", ".join(causal_config.PRESETS)
    types = ", ".join(causal_config.FAMILIES)
    _add_model(
        causal,
        f"{presets}, or a config.json file of Hugging Face whose model_type is one of {types}",
        "default: attention's queries and values, query_key_value in GPT-2",
    )
    _add_seq2seq(models)
    command.add(models)
    return parser


def _add_seq2seq(models: Any) -> None:
    parser = models.add_parser(
        "seq2seq",
        help="an encoder-decoder model, such as T5, BART or Marian",
        description="An encoder-decoder model, such as T5, BART or Marian, that makes a text of a "
        "text: translations, summaries.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    _add_tokenizer(parser)
    parser.set_defaults(run=_export)
    types = ", ".join(seq2seq_config.FAMILIES)
    _add_model(
        parser,
        f"a config.json file of Hugging Face whose model_type is one of {types}",
        "default: queries and values of all attention: query, value, source_query, source_value",
    )
    for option, side, field in (
        ("--max-length", "source", "n_positions"),
        ("--max-target-length", "target", "n_positions"),
    ):
        parser.add_argument(
            option,
            type=int,
            help=f"most tokens of a {side} in T5, which has no limit of its own (default: the "
            f"configuration's {field}, or 512)",
        )


def _add_tokenizer(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data",
        help="folder of a dataset that gorbit convert wrote, for its labels and special tokens",
    )
    parser.add_argument(
        "--tokenizer",
        help="tokenizer.json, .model, vocab.txt or a folder with one of them, in place of --data: "
        "the special tokens of records that another program wrote",
    )


def _add_encoder(parser: argparse.ArgumentParser) -> None:
    _add_model(
        parser,
        f"{', '.join(configs.PRESETS)}, or a bert_config.json / config.json file",
        "query, key, value (ModernBERT: qkv), output, intermediate, feed_forward "
        "(default: query,value; of ModernBERT qkv)",
    )
    parser.add_argument(
        "--pooling",
        choices=["first", "mean"],
        help="first: BERT's own pooler on the first token; mean: the mean of all tokens "
        "(default: that of the configuration, which is first but for some ModernBERTs)",
    )


def _add_embed(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--loss",
        choices=["ranking", "triplet", "cosine"],
        help="task embed: ranking: each text finds its second among those of the whole batch; "
        "triplet: the third text is further away; cosine: cosines are the scores (default: cosine "
        "if --data has scores, else ranking)",
    )
    add(
        "--texts",
        type=int,
        help="task embed: texts of an example, 2 or 3 (default: those of --data, else 2, and 3 "
        "for triplet)",
    )
    add(
        "--normalize",
        action=argparse.BooleanOptionalAction,
        help="task embed: make vectors of length 1 (default: true)",
    )
    add("--scale", type=float, help="loss ranking: factor of the cosines (default: 20)")
    add("--margin", type=float, help="loss triplet: how much further away (default: 5)")
    add(
        "--matryoshka",
        metavar="SIZES",
        help="task embed: numbers with commas between; the loss is the sum of those of so many "
        "first numbers of the vectors, so that these can be used alone",
    )
    add(
        "--cache-rows",
        type=int,
        help="task embed: encode so many rows of a batch at a time in training, and twice, so that "
        "a batch of any size fits in memory; the gradient is that of the whole batch (GradCache)",
    )


def _add_model(
    parser: argparse.ArgumentParser, config: str, targets: str, default: str | None = None
) -> None:
    add = parser.add_argument
    add("--config", required=True, help=config)
    add("--out", required=True, help="folder to write; must not exist")
    add("--overwrite", action="store_true", help="replace an existing export in --out")
    add("--optimizer", choices=_OPTIMIZERS, default="adamw", help="how variables are updated")
    add(
        "--recompute",
        choices=["none", "layers"],
        default="none",
        help="layers: keep only the inputs of the encoder layers for the backward pass and "
        "recompute the rest, which takes less memory and more time",
    )
    add(
        "--precision",
        choices=["float32", "bf16", "fp16"],
        default="float32",
        help="dtype of the encoder's matrix products and activations; variables, gradients "
        "and updates stay float32. fp16 uses loss scaling",
    )
    add(
        "--xla",
        action="store_true",
        help="compile the passes through the model with XLA, once for each batch shape; "
        "gorbit then makes all rows the same length and turns off its own CPU kernels and lanes",
    )
    add(
        "--lora-rank",
        type=int,
        help="freeze the encoder and train adapters of this rank in its layers (LoRA) and the head",
    )
    add("--lora-alpha", type=float, default=16.0, help="adapters are multiplied by alpha / rank")
    add(
        "--lora-targets",
        default=default,
        help=f"which maps of a layer get an adapter: {targets}",
    )
    add("--vocab-size", type=int, help="vocabulary size (default: the configuration's)")
    add("--seed", type=_seed, default=0, help="seed of the initial weights")


def _seed(text: str) -> int:
    value = int(text)
    if not -(1 << 63) <= value < 1 << 63:
        raise argparse.ArgumentTypeError(f"{text} does not fit in 64 bits")
    return value


_seed.__name__ = "int"  # argparse uses the name in "invalid int value"


def _export(args: argparse.Namespace) -> None:
    import dataclasses
    import pathlib

    with _usage():
        config = _config(args)
        if args.vocab_size is not None:
            config = dataclasses.replace(config, vocab_size=args.vocab_size)
        _check_memory(config)
    release.check()
    import tensorflow as tf

    from gorbit_export import export, optimizers

    out = pathlib.Path(args.out)
    try:
        with _usage():
            export.refuse_existing(out, args.overwrite)
            task = {"causal": _causal, "seq2seq": _seq2seq}.get(args.model, _task)(args, config)
        optimizer = optimizers.OPTIMIZERS[args.optimizer]()
        module = export.write(task, optimizer, out, args.overwrite, args.xla)
    except tf.errors.OpError as err:  # a full disk, or not enough memory
        raise OSError(err.message) from err
    print(
        f"{args.model}: {export.parameters(module):,} parameters "
        f"in {len(module.variables_by_path)} variables"
    )
    if args.model in ("causal", "seq2seq") and (said := search.told(args.config, args.model)):
        print(said)


def _config(args: argparse.Namespace) -> Any:
    """Reads --config of the kind of model."""
    if args.model == "seq2seq":
        return seq2seq_config.load(args.config, args.max_length, args.max_target_length)
    return (causal_config if args.model == "causal" else configs).load(args.config)


def _lora(args: argparse.Namespace, config: configs.BertConfig) -> Any:
    """Returns the bert.Lora that the arguments ask for, or None."""
    from gorbit_export import bert

    if args.lora_rank is None:
        return None
    targets = args.lora_targets or ("qkv" if config.model_type == "modernbert" else "query,value")
    return bert.Lora(args.lora_rank, args.lora_alpha, tuple(targets.split(",")))


def _causal(args: argparse.Namespace, config: causal_config.CausalConfig) -> Task:
    """Returns the causal language model that the arguments describe."""
    from gorbit_export import causal

    _dataset(args, config.vocab_size)
    lora = _generator_lora(args)
    build = causal.Build(config, args.seed, args.recompute, args.precision, lora)
    return causal.LanguageModel(build)


def _seq2seq(args: argparse.Namespace, config: seq2seq_config.Seq2SeqConfig) -> Task:
    """Returns the encoder-decoder model that the arguments describe."""
    from gorbit_export import seq2seq, seq2seq_task

    _dataset(args, config.vocab_size)
    lora = _generator_lora(args)
    build = seq2seq.Build(config, args.seed, args.recompute, args.precision, lora)
    return seq2seq_task.Seq2Seq(build)


def _generator_lora(args: argparse.Namespace) -> Any:
    """Returns the causal.Lora that the arguments ask for, or None."""
    from gorbit_export import causal

    if args.lora_rank is None:
        return None
    targets = tuple(args.lora_targets.split(",")) if args.lora_targets else ()
    return causal.Lora(args.lora_rank, args.lora_alpha, targets)


def _dataset(
    args: argparse.Namespace, rows: int
) -> tuple[datasets.Data | None, vocabularies.Vocabulary | None]:
    """Reads --data or --tokenizer, and checks that a model of so many words is for them."""
    from gorbit_export import data as datasets
    from gorbit_export import vocabulary as vocabularies

    if args.data and args.tokenizer:
        raise ValueError("--data and --tokenizer are given; --data has a tokenizer: expected one")
    data = datasets.load(args.data) if args.data else None
    vocabulary = data.vocabulary if data else None
    if args.tokenizer:
        vocabulary = vocabularies.load(pathlib.Path(args.tokenizer))
    size = data.vocab_size if data else vocabulary.size if vocabulary else rows
    # A model may have more rows than a tokenizer.json, so that their number is a round one.
    spare = vocabulary is not None and vocabulary.path.suffix in (".json", ".model")
    if size != rows and not (spare and size < rows):
        raise ValueError(
            f"the vocabulary of {args.data or args.tokenizer} has {size} tokens; expected "
            f"{rows}, as in the configuration; add --vocab-size {size}"
        )
    return data, vocabulary


def _task(args: argparse.Namespace, config: configs.BertConfig) -> Task:
    """Returns the task that the arguments describe."""
    from gorbit_export import classifier, encoded

    how = (args.seed, args.recompute, args.precision, _lora(args, config))
    pooling = args.pooling or config.pooling
    if args.model == "bert-classifier":
        return classifier.Classification(config, args.num_labels, pooling, *how)
    from gorbit_export import choices, mlm, multilabel, qa, regression, tokens
    from gorbit_export import vocabulary as vocabularies

    build = encoded.Build(config, *how)
    data, vocabulary = _dataset(args, config.vocab_size)
    labels = data.labels if data else ()
    if args.num_labels is not None and args.task in ("regression", "qa", "mlm", "embed"):
        raise ValueError(f"--num-labels is given; --task {args.task} has no labels")
    if args.pooling not in (None, "first") and args.task in ("tokens", "qa", "mlm"):
        raise ValueError(f"--pooling is {args.pooling}; --task {args.task} has no pooling")
    if args.task == "embed":
        return _embed(args, build, data)
    for name in _EMBED:
        if getattr(args, name) is not None:
            option = name.replace("_", "-")
            raise ValueError(f"--{option} is given; it is for --task embed only")
    count = len(labels) or 2 if args.num_labels is None else args.num_labels
    if labels and count != len(labels):
        raise ValueError(f"num_labels is {count}; expected {len(labels)}, as in {args.data}")
    if args.task == "regression":
        return regression.Regression(build, pooling)
    if args.task == "multilabel":
        return multilabel.MultiLabel(build, count, pooling, labels)
    if args.task == "tokens":
        return tokens.Tokens(build, count, labels)
    if args.task == "choices":
        return choices.Choices(build, count, pooling)
    if args.task == "qa":
        return qa.QuestionAnswering(build)
    if args.task == "mlm":
        if not vocabulary:
            raise ValueError("--task mlm needs --data or --tokenizer, for the special tokens")
        if vocabulary.mask is None:
            masks = ", ".join(vocabularies.MASKS)
            raise ValueError(f"{vocabulary.path} has none of {masks}; expected one, for --task mlm")
        special = mlm.Special(vocabulary.mask, vocabulary.special)
        return mlm.MaskedLM(build, special, bool(data and data.word_starts))
    return classifier.Classification(config, count, pooling, *how, labels)


_EMBED = ("loss", "texts", "normalize", "scale", "margin", "matryoshka", "cache_rows")
"""The options of task embed."""


def _embed(args: argparse.Namespace, build: Any, data: datasets.Data | None) -> Task:
    """Returns the task embed that the arguments describe."""
    from gorbit_export import embed

    loss = args.loss or ("cosine" if data and data.scored else "ranking")
    if data and data.scored != (loss == "cosine"):
        has, of = ("has", "cosine") if data.scored else ("has no", "ranking or triplet")
        raise ValueError(f"--loss is {loss}, and {args.data} {has} scores; expected {of}")
    texts = data.texts if data else 3 if loss == "triplet" else 2
    if data and args.texts not in (None, texts):
        raise ValueError(f"--texts is {args.texts}; expected {texts}, as in {args.data}")
    given = {"texts": args.texts or texts, "pooling": args.pooling or "mean"}
    for name, of in (("scale", "ranking"), ("margin", "triplet")):
        if (value := getattr(args, name)) is None:
            continue
        if loss != of:
            raise ValueError(f"--{name} is given; it is for --loss {of}, and the loss is {loss}")
        given[name] = value
    if args.xla and args.cache_rows:
        raise ValueError("--cache-rows and --xla are given, and XLA needs rows of one number")
    for name in ("normalize", "cache_rows"):
        if (value := getattr(args, name)) is not None:
            given[name] = value
    if args.matryoshka is not None:
        try:
            given["matryoshka"] = tuple(int(size) for size in args.matryoshka.split(","))
        except ValueError as err:
            raise ValueError(
                f"--matryoshka is {args.matryoshka!r}; expected numbers with commas between, such "
                "as 384,128,64"
            ) from err
    return embed.Embed(build, embed.Settings(loss, **given))


@contextlib.contextmanager
def _usage() -> Iterator[None]:
    """Turns errors about the arguments into UsageError."""
    try:
        yield
    except (ValueError, OSError, MemoryError) as err:
        raise UsageError(_sentence(err)) from err


def _check_memory(config: Any) -> None:
    """Raises MemoryError if the model does not fit this machine, for instance after a typo."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return
    needed = 3 * 4 * config.parameters  # float32: weights and two slots
    if needed > memory:
        raise MemoryError(
            f"a model of {config.parameters:,} parameters needs {needed / 1e9:,.0f} GB with its "
            f"optimizer slots; this machine has {memory / 1e9:,.0f} GB"
        )


def _sentence(err: Exception) -> str:
    """Returns the error as one line, an OSError without its number."""
    if isinstance(err, OSError) and err.strerror:
        return f"{err.filename}: {err.strerror.lower()}" if err.filename else err.strerror.lower()
    return " ".join(str(err).split())


if __name__ == "__main__":
    sys.exit(main())
