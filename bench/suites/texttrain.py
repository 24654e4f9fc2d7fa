"""Measures training steps of models that make texts with each peer, and the machine's peak."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import shutil
from collections.abc import Sequence

import peers
from harness import plan, process, report, runs, stats, tables
from peers.base import Peer, Variant, variants
from suites import base, train, translate

HEADER = (
    "",
    "real tokens/s",
    "share of the GEMM peak",
    "gorbit's rate is",
    "first step done after, s",
    "peak memory, GB",
    "runs",
)
EXAMPLES = 8000
STEPS, QUICK_STEPS = 20, 4
HIDDEN, INNER, HEADS, LAYERS = 384, 1536, 6, 6
VOCABULARY = 8000
GPT2 = {
    "model_type": "gpt2",
    "n_embd": HIDDEN,
    "n_layer": LAYERS,
    "n_head": HEADS,
    "n_positions": plan.LENGTH,
    "embd_pdrop": plan.DROPOUT,
    "attn_pdrop": plan.DROPOUT,
    "resid_pdrop": plan.DROPOUT,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
T5 = {
    "model_type": "t5",
    "d_model": HIDDEN,
    "d_kv": HIDDEN // HEADS,
    "d_ff": INNER,
    "num_heads": HEADS,
    "num_layers": LAYERS,
    "num_decoder_layers": LAYERS,
    "dropout_rate": plan.DROPOUT,
    "feed_forward_proj": "relu",
    "pad_token_id": 0,
    "eos_token_id": 1,
    "decoder_start_token_id": 0,
}


class Model:
    """A part of the suite: a model, its data and its table."""

    def __init__(self, kind: str, config: dict[str, object], what: str) -> None:
        """Takes the kind, gpt2 or t5, and what it learns."""
        self.NAME, self._kind, self._config, self._what = f"generate-{kind}", kind, config, what

    def run(self, options: base.Options) -> None:
        """Measures and writes the table."""
        steps = options.steps or (QUICK_STEPS if options.quick else STEPS)
        if options.settings.rounds:
            lines = base.kept(options, self.NAME, self._measured(options, steps), steps)
        elif not (lines := base.earlier(options, self.NAME)):
            return
        only = ["generate", "--parts", self._kind, "--steps", str(steps)]
        title = f"Training a small {self._kind.upper().replace('GPT', 'GPT-')}, {self._what}"
        base.publish(options, self.NAME, title, written(lines), lines, only)

    def _measured(self, options: base.Options, steps: int) -> list[stats.Line]:
        folder, graph, means = self._prepared(options)
        shapes = products(self._kind, *means)
        flop = sum(6 * rows * a * b * times for rows, a, b, times in shapes) / sum(means)
        gemm = {"shapes": json.dumps([(plan.BATCH * rows, *rest) for rows, *rest in shapes])}
        peaks = [
            runs.Entry(peers.GEMM, variant, plan.Job(variant.name, options=gemm), stats.told)
            for variant in variants(peers.GEMM, False)
        ]
        needs = {
            **{"graph": graph, "gorbit": options.gorbit, "weights": f"{folder}/first"},
            "timed": "yes",
        }

        def entry(peer: Peer, variant: Variant) -> runs.Entry:
            job = plan.Job(variant.name, steps=steps, data=folder, options=needs)
            numbers = functools.partial(told, job=job, tokens=sum(means), flop=flop)
            return runs.Entry(peer, variant, job, numbers)

        entries = [entry(p, v) for p in peers.TEXT_TRAIN for v in variants(p, False)]
        options.settings.say(f"{self.NAME}: {steps} steps a run, {options.settings.rounds} rounds")
        return runs.everything(options.settings, [*peaks, *entries, *peaks])

    def _prepared(self, options: base.Options) -> tuple[str, str, tuple[float, float]]:
        """Returns the folder of the data, the export, and the mean tokens of both sides."""
        folder = os.path.join(options.settings.work, "data", self.NAME)
        about = os.path.join(folder, "train.about.json")
        config = os.path.join(folder, "config.json")
        if not os.path.exists(about):
            shutil.rmtree(folder, ignore_errors=True)
            os.makedirs(folder)
            self._convert(options, folder)
            manifest = json.loads(pathlib.Path(folder, "gorbit", "manifest.json").read_text())
            model = {**self._config, "vocab_size": manifest["vocab"]["size"]}
            pathlib.Path(config).write_text(json.dumps(model))
            needs = {"config": config, "weights": f"{folder}/first"}
            base.work(options, peers.FIRST, plan.Job("weights", options=needs))
            needs = {"records": f"{folder}/gorbit", "splits": "train"}
            base.work(options, peers.COLUMNS, plan.Job("columns", data=folder, options=needs))
        family = "causal" if self._kind == "gpt2" else "seq2seq"
        graph = base.exported(options, self.NAME, family, config, f"{folder}/gorbit")
        known = json.loads(pathlib.Path(about).read_text())
        count = known["examples"]
        return folder, graph, (known["sources"] / count, known["targets"] / count)

    def _convert(self, options: base.Options, folder: str) -> None:
        """Makes the tokenizer and the records of Debian's descriptions."""
        name = "summaries" if self._kind == "gpt2" else "en-de"
        source = pathlib.Path(translate.translations(options), f"{name}.train.tsv")
        header, *rows = source.read_text(encoding="utf-8").splitlines()
        rows = rows[:: len(rows) // EXAMPLES][:EXAMPLES]
        pairs = [row.split("\t") for row in rows]
        text, table = f"{folder}/text.txt", f"{folder}/pairs.tsv"
        pathlib.Path(table).write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
        said = (
            [a for a, _ in pairs] if self._kind == "gpt2" else [t for pair in pairs for t in pair]
        )
        pathlib.Path(text).write_text("\n".join(said) + "\n", encoding="utf-8")
        kind = ("bpe", "roberta") if self._kind == "gpt2" else ("unigram", "t5")
        learn = ["tokenizer", "train", "--type", kind[0], "--template", kind[1]]
        learn += ["--vocab-size", str(VOCABULARY), "--out", f"{folder}/tok", text]
        base.call(options, [options.gorbit, *learn])
        convert = ["convert", "--tokenizer", f"{folder}/tok", "--max-length", str(plan.LENGTH)]
        if self._kind == "gpt2":
            convert += ["--task", "lm", "--blocks", "keep", "--train", text]
        else:
            convert += ["--task", "seq2seq", "--source-column", "en", "--target-column", "de"]
            convert += ["--max-target-length", str(plan.LENGTH), "--train", table]
        base.call(options, [options.gorbit, *convert, "--out", f"{folder}/gorbit"])


def products(kind: str, sources: float, targets: float) -> list[tuple[int, int, int, int]]:
    """Returns the dense products of an example: rows, both widths, and how often, forward.

    Rows are those of an example on average, as whole numbers of a batch come of them.
    """

    def layer(rows: int, times: int) -> list[tuple[int, int, int, int]]:
        return [
            (rows, HIDDEN, 3 * HIDDEN, times),
            (rows, HIDDEN, HIDDEN, times),
            (rows, HIDDEN, INNER, times),
            (rows, INNER, HIDDEN, times),
        ]

    a, b = round(sources), round(targets)
    if kind == "gpt2":
        return [*layer(a, LAYERS), (a, HIDDEN, VOCABULARY, 1)]
    across = [(b, HIDDEN, HIDDEN, 2 * LAYERS), (a, HIDDEN, 2 * HIDDEN, LAYERS)]
    return [*layer(a, LAYERS), *layer(b, LAYERS), *across, (b, HIDDEN, VOCABULARY, 1)]


def told(seen: process.Observation, job: plan.Job, tokens: float, flop: float) -> stats.Line:
    """Returns the numbers of a training, whose operations are those of this model."""
    line = stats.training(seen, job, tokens)
    if "error" not in line:
        line["tflops"] = line["tokens_per_s"] * flop / 1e12
    return line


def written(lines: Sequence[stats.Line]) -> str:
    """Returns the table and its notes."""
    ours = stats.variants(lines).get(("gorbit-text", "train"))
    fastest = train.peak(lines)

    def cells(of: stats.Variant) -> list[str]:
        shares = (
            line["tflops"] * 1e12 / fastest[line["round"]]
            for line in of.lines
            if line["round"] in fastest
        )
        own = ours is None or of.lines[0]["peer"] == "gorbit-text"
        times = None if own else stats.ratio(ours, of, "tokens_per_s")
        return [
            tables.spread(of.summary("tokens_per_s")),
            tables.spread(stats.Summary.of(shares), tables.percent),
            f"{tables.spread(times)} times" if times else "",
            tables.spread(of.summary("first_step_s")),
            tables.spread(of.summary("peak_gb")),
        ]

    rows = report.rows(peers.TEXT_TRAIN, lines, cells, len(HEADER) - 2)
    timed = sorted({line["steps"] for line in lines if "steps" in line})
    peaks = stats.Summary.of(rate / 1e9 for rate in fastest.values())
    rates = next((line for line in lines if "tflops" in line), None)
    each = f"{rates['tflops'] * 1e6 / rates['tokens_per_s']:.3g}" if rates else "unknown"
    return (
        f"{tables.markdown(HEADER, rows)}\n\nThe same examples for all, {plan.BATCH} a batch, "
        f"float32, dropout {plan.DROPOUT}, {LAYERS} layers (of an encoder and of a decoder), "
        f"{HIDDEN} wide, {VOCABULARY:,} tokens; {' or '.join(map(str, timed))} steps a run after "
        f"{plan.WARM_STEPS} that do not count; median (least to greatest); shares and ratios are "
        f"those within a round. GEMM peak in these shapes, GFLOP/s: {tables.spread(peaks)}. A "
        f"token takes {each} MFLOP of dense products, with those of the head. "
        f"{report.surroundings(lines)}"
    )


gpt2 = Model("gpt2", GPT2, "descriptions of Debian's packages")
t5 = Model("t5", T5, "their translations into German")
