"""Texts made of texts by the same encoder-decoder model: gorbit, CTranslate2, Hugging Face.

A job has the option `kind`. `file` answers all texts of a file by beams, as fast as possible; the
process is timed from outside. `alone` answers one after the other by beams, and then tells the time
of the first token of a greedy search. `texts` is the file for the answers.
"""

from __future__ import annotations

import http.client
import json
import os
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from harness import lines, plan
from harness.companions import Companion
from peers.base import Alone, Variant, Worker
from peers.generation import Clock

BEAMS, BATCH = 4, 32
TOKENS = 64
"""The most new tokens of a text."""
WARM = 2
"""Texts before those that are timed one after the other."""

Translate = Callable[[Sequence[str]], list[str]]


def read(job: plan.Job) -> list[str]:
    """Returns the texts of a job."""
    return pathlib.Path(job.options["file"]).read_text(encoding="utf-8").splitlines()


def write(job: plan.Job, report: lines.Reporter, texts: Sequence[str]) -> None:
    """Writes the answers of a job and reports their number."""
    pathlib.Path(job.options["texts"]).write_text(json.dumps(texts))
    report.info(answers=len(texts))


def answer(
    job: plan.Job, report: lines.Reporter, translate: Translate, first: Callable[[str], float]
) -> None:
    """Answers the texts of a job by functions for texts and for the time of a first token."""
    texts = read(job)
    if job.options["kind"] == "file":
        write(job, report, translate(texts))
        return
    for text in texts[:WARM]:
        translate([text])
        first(text)
    answers, times = [], []
    for text in texts:
        began = time.perf_counter()
        answers += translate([text])
        times.append(time.perf_counter() - began)
    rate = len(times) / sum(times)
    firsts = sorted(first(text) for text in texts)
    times.sort()
    report.info(
        rate=rate,
        p50=times[len(times) // 2],
        p99=times[len(times) * 99 // 100],
        first_p50=firsts[len(firsts) // 2],
        first_p99=firsts[len(firsts) * 99 // 100],
    )
    write(job, report, answers)


def asked(job: plan.Job) -> list[str]:
    """Returns the flags of gorbit's programs for a file."""
    return [
        *("--file", job.options["file"], "--format", "json", "--out", job.options["texts"] + "l"),
        *("--num-beams", str(BEAMS), "--sequences", str(BEAMS * BATCH), "--overwrite"),
        *("--max-new-tokens", str(TOKENS), "--early-stopping", "true"),
        *("--input-format", "lines"),
    ]


class Predict(Alone):
    """gorbit predict with a run, on a file."""

    name = "gorbit-translate"
    venv = ""
    variants = (Variant("predict", "**gorbit predict**", on=("cpu",)),)

    def command(self, job: plan.Job, python: str) -> list[str]:
        """Answers the file."""
        del python
        command = [job.options["gorbit"], "predict", "--progress", "off"]
        return [*command, "--run", job.options["run"], *asked(job)]

    def parse(self, line: str) -> lines.Mark | lines.Info | None:
        """Passes all over: the answers go to a file."""
        del line
        return None


class Exported(Predict):
    """gorbit-predict with the exported model, on a file."""

    name = "gorbit-translate-tfgo"
    variants = (Variant("predict", "**gorbit-predict**, the exported model", on=("cpu",)),)

    def command(self, job: plan.Job, python: str) -> list[str]:
        """Answers the file."""
        del python
        command = [f"{job.options['gorbit']}-predict", "--model", job.options["exported"]]
        return [*command, *asked(job)]


class Served(Worker):
    """gorbit serve with a run, asked over HTTP."""

    name = "gorbit-translate-serve"
    venv = ""
    variants = (Variant("serve", "**gorbit serve**", on=("cpu",)),)

    def beside(self, job: plan.Job, python: str) -> list[Companion]:
        """The server."""
        del python
        command = [job.options["gorbit"], "serve", job.options["run"], "--log-level", "error"]
        listen = ["--listen", f"127.0.0.1:{job.ports[0]}", "--timeout", "10m"]
        return [Companion([*command, *listen], job.ports[0])]

    def run(self, job: plan.Job, report: lines.Reporter) -> None:
        """Asks for one text after the other."""
        connection = http.client.HTTPConnection("127.0.0.1", job.ports[0], timeout=600)

        def post(asked: dict[str, Any]) -> http.client.HTTPResponse:
            asked |= {"temperature": 0, "max_tokens": TOKENS}
            connection.request("POST", "/v1/completions", json.dumps(asked))
            response = connection.getresponse()
            if response.status != http.client.OK:
                raise RuntimeError(f"status {response.status}: {response.read().decode()}")
            return response

        def translate(texts: Sequence[str]) -> list[str]:
            how = {"num_beams": BEAMS, "early_stopping": True}
            response = post({"prompt": list(texts), **how})
            return [choice["text"] for choice in json.loads(response.read())["choices"]]

        def first(text: str) -> float:
            began = time.perf_counter()
            response = post({"prompt": text, "stream": True})
            response.readline()
            seconds = time.perf_counter() - began
            response.read()
            return seconds

        answer(job, report, translate, first)


class CTranslate2(Worker):
    """CTranslate2 with its form of the exported weights."""

    name = "ct2"
    venv = "ct2"
    variants = (
        Variant("float32", "CTranslate2, float32", on=("cpu",)),
        Variant("int8", "CTranslate2, int8", on=("cpu",)),
    )

    def run(self, job: plan.Job, report: lines.Reporter) -> None:
        """Answers all texts, on all cores: by one model, or for a file by the faster division."""
        import ctranslate2
        import tokenizers

        report.info(ctranslate2=ctranslate2.__version__, tokenizers=tokenizers.__version__)
        cores = len(os.sched_getaffinity(0))
        each = int(job.options.get("workers", 1))
        translator = ctranslate2.Translator(
            job.options["ct2"],
            compute_type=job.variant,
            inter_threads=each,
            intra_threads=max(1, cores // each),
        )
        tokenizer = tokenizers.Tokenizer.from_file(
            os.path.join(job.options["hf"], "tokenizer.json")
        )

        def translate(texts: Sequence[str]) -> list[str]:
            encoded = tokenizer.encode_batch(list(texts))
            found = translator.translate_batch(
                [e.tokens for e in encoded],
                beam_size=BEAMS,
                max_batch_size=BATCH,
                max_decoding_length=TOKENS,
            )
            ids = [[tokenizer.token_to_id(t) for t in each.hypotheses[0]] for each in found]
            return tokenizer.decode_batch(ids)

        def first(text: str) -> float:
            began, seconds = time.perf_counter(), []

            def step(result: Any) -> bool:
                del result
                seconds.append(time.perf_counter() - began)
                return False

            tokens = tokenizer.encode(text).tokens
            translator.translate_batch(
                [tokens], beam_size=1, max_decoding_length=TOKENS, callback=step
            )
            return seconds[0]

        answer(job, report, translate, first)


class Generate(Worker):
    """Hugging Face's generate; a file is sorted by the number of tokens."""

    name = "hf-translate"
    venv = "hf"
    variants = (Variant("float32", "Hugging Face generate, float32", on=("cpu",)),)

    def run(self, job: plan.Job, report: lines.Reporter) -> None:
        """Answers all texts."""
        import torch
        import transformers

        report.info(torch=torch.__version__, transformers=transformers.__version__)
        transformers.logging.set_verbosity_error()
        tokenizer = transformers.AutoTokenizer.from_pretrained(job.options["hf"])
        model = transformers.AutoModelForSeq2SeqLM.from_pretrained(job.options["hf"]).eval()

        def generate(texts: Sequence[str], **more: Any) -> list[str]:
            batch = tokenizer(list(texts), return_tensors="pt", padding=True, truncation=True)
            with torch.inference_mode():
                out = model.generate(
                    input_ids=batch["input_ids"],
                    attention_mask=batch["attention_mask"],
                    max_new_tokens=TOKENS,
                    do_sample=False,
                    **more,
                )
            return tokenizer.batch_decode(
                out, skip_special_tokens=True, clean_up_tokenization_spaces=False
            )

        def translate(texts: Sequence[str]) -> list[str]:
            order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
            answers = [""] * len(texts)
            for start in range(0, len(order), BATCH):
                some = order[start : start + BATCH]
                made = generate([texts[i] for i in some], num_beams=BEAMS, early_stopping=True)
                for i, text in zip(some, made):
                    answers[i] = text
            return answers

        def first(text: str) -> float:
            clock = Clock()
            generate([text], num_beams=1, streamer=clock)
            return clock.first

        answer(job, report, translate, first)


class Converter(Worker):
    """Makes CTranslate2's form of Hugging Face's, with the library's own converter."""

    name = "ct2-convert"
    venv = "hf"
    variants = (Variant("convert", ""),)

    def run(self, job: plan.Job, report: lines.Reporter) -> None:
        """Reads the folder `hf` and writes the folder `ct2`."""
        import sys

        sys.path.append(job.options["packages"])  # torch's environment has no CTranslate2
        from ctranslate2.converters import TransformersConverter

        TransformersConverter(job.options["hf"]).convert(job.options["ct2"], force=True)
