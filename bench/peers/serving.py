"""Answers of servers and to files: gorbit serve, ONNX Runtime, and the Hugging Face pipeline."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from harness import lines, plan
from peers.base import Alone, Variant, Worker


class Gorbit(Alone):
    """gorbit serve, loaded over HTTP by a program in Go on the same cores."""

    name = "gorbit-serve"
    venv = ""
    variants = (
        Variant("run", "gorbit serve, a run", on=("cpu",)),
        Variant("exported", "gorbit serve, an exported model", on=("cpu",)),
        Variant("exported8", "gorbit serve, an exported model in int8", on=("cpu",)),
    )

    def command(self, job: plan.Job, python: str) -> list[str]:
        """Starts the load, which starts the server."""
        del python
        needs = job.options
        return [
            *(needs["load"], "--gorbit", needs["gorbit"], "--model", needs[job.variant]),
            *("--pairs", needs["pairs"], "--clients", needs["clients"]),
            *("--seconds", needs["seconds"]),
        ]

    def parse(self, line: str) -> lines.Mark | lines.Info | None:
        """Reads what the load prints."""
        return lines.parse(line)


class Onnx(Worker):
    """Makes the ONNX file of a classifier, with torch, and fuses its operations.

    ONNX Runtime's own optimizer of transformers does the fusing.
    """

    name = "onnx"
    venv = "hf"
    variants = (Variant("onnx", "the ONNX file"),)

    def run(self, job: plan.Job, report: lines.Reporter) -> None:
        """Writes the file `onnx` of the model in the folder `weights`."""
        sys.path.append(job.options["packages"])  # torch's environment has no onnx
        import torch
        import transformers
        from onnxruntime.transformers import optimizer

        classifier = transformers.BertForSequenceClassification
        model = classifier.from_pretrained(job.options["weights"], attn_implementation="eager")
        names = ("input_ids", "attention_mask", "token_type_ids")
        out, ids = job.options["onnx"], torch.ones(2, 16, dtype=torch.int64)

        class Logits(torch.nn.Module):
            """The model with one output."""

            def __init__(self) -> None:
                super().__init__()
                self.model = model.eval()

            def forward(self, *values: torch.Tensor) -> torch.Tensor:
                """Computes the logits."""
                return self.model(**dict(zip(names, values))).logits

        torch.onnx.export(
            Logits(),
            (ids, ids, torch.zeros_like(ids)),
            out + ".plain",
            input_names=list(names),
            output_names=["logits"],
            dynamic_axes={**{n: {0: "batch", 1: "length"} for n in names}, "logits": {0: "batch"}},
            opset_version=17,
            dynamo=False,
        )
        size = plan.SIZES[job.size]
        fused = optimizer.optimize_model(
            out + ".plain", model_type="bert", num_heads=size.heads, hidden_size=size.hidden
        )
        fused.save_model_to_file(out)
        report.info(fused={k: v for k, v in fused.get_fused_operator_statistics().items() if v})


class OnnxInt8(Worker):
    """Makes the ONNX file whose matrices are int8, by ONNX Runtime's own dynamic quantization."""

    name = "onnx8"
    venv = "ort"
    variants = (Variant("onnx8", "the ONNX file in int8"),)

    def run(self, job: plan.Job, report: lines.Reporter) -> None:
        """Writes the file `onnx8` of the file `onnx`."""
        import onnx
        from onnxruntime import quantization

        quantization.quantize_dynamic(
            job.options["onnx"],
            job.options["onnx8"],
            per_channel=True,
            weight_type=quantization.QuantType.QInt8,
            # The fused operations have no types of their own.
            extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
        )
        report.info(onnx8=os.path.getsize(job.options["onnx8"]))


INT8 = "-int8"
"""Ends the names of variants of ONNX Runtime with the file in int8."""


class Ort(Worker):
    """ONNX Runtime behind a batcher of this process, without HTTP.

    That is in its favour: requests cost it neither sockets nor JSON. Batches are made as gorbit
    serve makes them, of what waits whenever a session is free, padded to the longest.
    """

    name = "ort-serve"
    venv = "ort"
    variants = (
        Variant("one", "ONNX Runtime, one session on all cores", on=("cpu",)),
        Variant("each", "ONNX Runtime, a session on each core", on=("cpu",)),
        Variant("one-int8", "ONNX Runtime in int8, one session on all cores", on=("cpu",)),
        Variant("each-int8", "ONNX Runtime in int8, a session on each core", on=("cpu",)),
    )

    def run(self, job: plan.Job, report: lines.Reporter) -> None:
        """Answers the pairs for each number of clients and reports rates and times."""
        import onnxruntime
        import tokenizers

        report.info(onnxruntime=onnxruntime.__version__, tokenizers=tokenizers.__version__)
        cores = len(os.sched_getaffinity(0))
        sessions = 1 if job.variant.startswith("one") else cores
        answer_all([answerer(job, cores // sessions) for _ in range(sessions)], job, report)


Answerer = Callable[[Sequence[tuple[str, ...]]], Any]


def answerer(job: plan.Job, threads: int) -> Answerer:
    """Returns what answers pairs by an ONNX Runtime session of its own: their probabilities."""
    import numpy as np
    import onnxruntime
    import tokenizers

    tokenizer = tokenizers.BertWordPieceTokenizer(job.options["vocab"], lowercase=True)
    tokenizer.enable_truncation(plan.LENGTH)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    file = job.options["onnx8" if job.variant.endswith(INT8) else "onnx"]
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])

    def answer(batch: Sequence[tuple[str, ...]]) -> np.ndarray:
        encoded = tokenizer.encode_batch(list(batch))
        longest = max(len(e.ids) for e in encoded)
        feeds = {
            name: np.zeros((len(batch), longest), np.int64)
            for name in ("input_ids", "attention_mask", "token_type_ids")
        }
        for i, e in enumerate(encoded):
            feeds["input_ids"][i, : len(e.ids)] = e.ids
            feeds["attention_mask"][i, : len(e.ids)] = 1
            feeds["token_type_ids"][i, : len(e.ids)] = e.type_ids
        logits = session.run(None, feeds)[0]
        exponents = np.exp(logits - logits.max(1, keepdims=True))
        return exponents / exponents.sum(1, keepdims=True)

    return answer


class OrtPredict(Worker):
    """ONNX Runtime on a file of pairs, sorted by their lengths."""

    name = "ort-predict"
    venv = "ort"
    variants = (
        Variant("sorted", "ONNX Runtime, sorted by length, batches of 32, all cores", on=("cpu",)),
        Variant("sorted-int8", "ONNX Runtime in int8, the same", on=("cpu",)),
    )

    def run(self, job: plan.Job, report: lines.Reporter) -> None:
        """Answers every pair and reports the mean of the scores."""
        import onnxruntime
        import tokenizers

        report.info(onnxruntime=onnxruntime.__version__, tokenizers=tokenizers.__version__)
        pairs = read(job)
        answer = answerer(job, len(os.sched_getaffinity(0)))
        order = sorted(range(len(pairs)), key=lambda i: sum(map(len, pairs[i])))
        scores = [0.0] * len(pairs)
        for start in range(0, len(order), plan.BATCH):
            some = order[start : start + plan.BATCH]
            for i, score in zip(some, answer([pairs[i] for i in some]).max(1)):
                scores[i] = float(score)
        report.info(**lines.answers(scores).values)


class Pipeline(Worker):
    """The Hugging Face pipeline behind the batcher of ONNX Runtime, without HTTP."""

    name = "hf-serve"
    venv = "hf"
    variants = (Variant("pipeline", "Hugging Face pipeline, on all cores", on=("cpu",)),)

    def run(self, job: plan.Job, report: lines.Reporter) -> None:
        """Answers the pairs for each number of clients and reports rates and times."""
        import torch
        import transformers

        report.info(torch=torch.__version__, transformers=transformers.__version__)
        tokenizer = transformers.BertTokenizerFast(
            job.options["vocab"], model_max_length=plan.LENGTH
        )
        made = transformers.BertForSequenceClassification
        pipe = transformers.pipeline(
            "text-classification",
            model=made.from_pretrained(job.options["weights"]).eval(),
            tokenizer=tokenizer,
            device="cpu",
        )

        def answer(batch: Sequence[tuple[str, ...]]) -> None:
            asked = [{"text": a, "text_pair": b} for a, b in batch]
            pipe(asked, batch_size=len(asked), truncation=True)

        answer_all([answer], job, report)


def read(job: plan.Job) -> list[tuple[str, ...]]:
    """Returns the pairs of texts of a job."""
    with open(job.options["pairs"], encoding="utf-8") as file:
        return [tuple(line.rstrip("\n").split("\t")) for line in file]


def answer_all(answerers: Sequence[Answerer], job: plan.Job, report: lines.Reporter) -> None:
    """Answers the pairs for each number of clients and reports rates and times."""
    pairs = read(job)
    batcher = Batcher(answerers, int(job.options["batch"]))
    seconds = float(job.options["seconds"])
    for clients in map(int, job.options["clients"].split(",")):
        load(batcher, pairs, clients, seconds / 4)
        times = sorted(load(batcher, pairs, clients, seconds))
        rate = len(times) / seconds
        report.info(
            **{
                f"rate_{clients}": rate,
                f"p50_{clients}": times[len(times) // 2],
                f"p99_{clients}": times[len(times) * 99 // 100],
                "rate": rate,
            }
        )
    batcher.close()


class Batcher:
    """Batches of what waits, for whichever of the given functions is free."""

    def __init__(self, answerers: Sequence[Callable[..., None]], most: int) -> None:
        """Starts a thread for each function, whose batches have `most` requests or fewer."""
        self._most = most
        self._queue: list[tuple[tuple[str, ...], threading.Event]] = []
        self._wake = threading.Condition()
        self._closed = False
        self._threads = [threading.Thread(target=self._serve, args=(a,)) for a in answerers]
        for thread in self._threads:
            thread.start()

    def answer(self, request: tuple[str, ...]) -> None:
        """Waits until a request is answered."""
        done = threading.Event()
        with self._wake:
            self._queue.append((request, done))
            self._wake.notify()
        done.wait()

    def close(self) -> None:
        """Ends the threads."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()
        for thread in self._threads:
            thread.join()

    def _serve(self, answer: Callable[..., None]) -> None:
        while True:
            with self._wake:
                while not self._queue and not self._closed:
                    self._wake.wait()
                if not self._queue:
                    return
                batch, self._queue = self._queue[: self._most], self._queue[self._most :]
            answer([request for request, _ in batch])
            for _, done in batch:
                done.set()


def load(
    batcher: Batcher, requests: Sequence[tuple[str, ...]], clients: int, seconds: float
) -> list[float]:
    """Asks with some clients for a time, and returns the times of requests that ended in it."""
    times: list[float] = []
    end = time.monotonic() + seconds
    lock = threading.Lock()
    taken = iter(range(sys.maxsize))

    def ask() -> None:
        while (start := time.monotonic()) < end:
            with lock:
                number = next(taken)
            batcher.answer(requests[number % len(requests)])
            if (now := time.monotonic()) < end:
                times.append(now - start)

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times
