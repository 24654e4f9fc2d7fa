"""Continuing texts with the same weights: gorbit serve, llama.cpp, and Hugging Face's generate.

A job's option `prompts` is a JSON file of lists of tokens. The first `alone` of them are continued
one after the other, and then all at the same time, each by `tokens` tokens without an end token
among them, the likeliest one each time. `texts` is the file for the continuations of all.
"""

from __future__ import annotations

import concurrent.futures
import ctypes
import http.client
import json
import os
import pathlib
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from harness import lines, plan
from harness.companions import Companion
from peers.base import Variant, Worker

Continued = tuple[list[str], float]
"""The texts, and the seconds until the first token."""

WARM_TOKENS = 4
"""Tokens of a continuation before those that are timed."""


def measure(
    job: plan.Job, report: lines.Reporter, go_on: Callable[[list[list[int]], int], Continued]
) -> None:
    """Continues the prompts of a job by a function, and reports the rates in tokens."""
    prompts = json.loads(pathlib.Path(job.options["prompts"]).read_text())
    new, alone = int(job.options["tokens"]), int(job.options["alone"])
    go_on(prompts[:1], WARM_TOKENS)
    began, first = time.perf_counter(), []
    for prompt in prompts[:alone]:
        first.append(go_on([prompt], new)[1])
    seconds = time.perf_counter() - began
    report.info(rate=alone * new / seconds, first_s=statistics.median(first))
    go_on(prompts, WARM_TOKENS)
    began = time.perf_counter()
    texts, _ = go_on(prompts, new)
    seconds = time.perf_counter() - began
    report.info(rate_all=len(prompts) * new / seconds)
    pathlib.Path(job.options["texts"]).write_text(json.dumps(texts))


class Served(Worker):
    """gorbit serve with an export and weights, asked over HTTP for streams."""

    name = "gorbit-streams"
    venv = ""
    variants = (
        Variant("f32", "**gorbit serve**, float32", on=("cpu",)),
        Variant("bf16", "**gorbit serve**, bf16", on=("cpu",)),
    )

    def beside(self, job: plan.Job, python: str) -> list[Companion]:
        """The server."""
        del python
        needs, port = job.options, job.ports[0]
        graph = needs["graph" if job.variant == "f32" else "graph_bf16"]
        command = [needs["gorbit"], "serve", "--graph", graph, "--init", needs["gguf"]]
        prompts = json.loads(pathlib.Path(needs["prompts"]).read_text())
        room = sum(len(prompt) + int(needs["tokens"]) for prompt in prompts)
        command += ["--data", needs["data"], "--listen", f"127.0.0.1:{port}", "--timeout", "10m"]
        command += ["--cache-tokens", str(room)]  # llama.cpp's have room for as many
        return [Companion([*command, "--log-level", "error"], port)]

    def run(self, job: plan.Job, report: lines.Reporter) -> None:
        """Asks for the continuations, each by a client of its own."""

        def go_on(prompts: list[list[int]], new: int) -> Continued:
            with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
                found = list(pool.map(lambda prompt: streamed(job.ports[0], prompt, new), prompts))
            return [text for text, _ in found], min(first for _, first in found)

        measure(job, report, go_on)


def streamed(port: int, prompt: list[int], new: int) -> tuple[str, float]:
    """Returns the continuation of a prompt by a server, and the seconds until its first part."""
    asked = {"prompt": prompt, "max_tokens": new, "min_tokens": new, "temperature": 0}
    asked |= {"stream": True, "stream_options": {"include_usage": True}}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    began, first, text, made = time.perf_counter(), 0.0, [], 0
    connection.request("POST", "/v1/completions", json.dumps(asked))
    response = connection.getresponse()
    if response.status != http.client.OK:
        raise RuntimeError(f"status {response.status}: {response.read().decode()}")
    for line in response:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line.removeprefix(b"data: "))
        if "error" in event:
            raise RuntimeError(f"the stream ended with {event['error']}")
        first = first or time.perf_counter() - began
        text += [choice["text"] for choice in event["choices"]]
        made = (event.get("usage") or {}).get("completion_tokens", made)
    connection.close()
    if made != new:
        raise RuntimeError(f"{made} tokens came; expected {new}")
    return "".join(text), first


class Llama(Worker):
    """llama.cpp through the functions of its library, which take several sequences at a time."""

    name = "llama"
    venv = "llama"
    variants = (
        Variant("f32", "llama.cpp, float32", on=("cpu",)),
        Variant("bf16", "llama.cpp, bfloat16", on=("cpu",)),
        Variant("q4_1", "llama.cpp, Q4_1 as it is", on=("cpu",)),
    )

    def run(self, job: plan.Job, report: lines.Reporter) -> None:
        """Loads the file of the variant and continues the prompts."""
        import llama_cpp as api
        import numpy as np

        report.info(llama_cpp_python=api.__version__)
        quiet = api.llama_log_callback(lambda level, text, data: None)
        api.llama_log_set(quiet, ctypes.c_void_p(0))
        api.llama_backend_init()
        model = api.llama_model_load_from_file(
            job.options[job.variant].encode(), api.llama_model_default_params()
        )
        prompts = json.loads(pathlib.Path(job.options["prompts"]).read_text())
        most = max(map(len, prompts)) + int(job.options["tokens"])
        asked = api.llama_context_default_params()
        asked.n_ctx = len(prompts) * -(-most // 256) * 256  # as many for each sequence
        asked.n_seq_max = len(prompts)
        asked.n_batch = max(512, sum(map(len, prompts)))
        asked.n_threads = asked.n_threads_batch = len(os.sched_getaffinity(0))
        if job.variant == "f32":  # its caches are float16 unless they are asked for otherwise
            asked.type_k = asked.type_v = api.GGML_TYPE_F32
        context = api.llama_init_from_model(model, asked)
        vocabulary = api.llama_model_get_vocab(model)
        words, end = api.llama_vocab_n_tokens(vocabulary), int(job.options["end"])
        batch = api.llama_batch_init(asked.n_batch, 0, 1)

        def decode(tokens: Sequence[tuple[int, int, int, bool]]) -> None:
            """Computes tokens, each with its position, its sequence, and whether logits count."""
            batch.n_tokens = len(tokens)
            for i, (token, position, sequence, counts) in enumerate(tokens):
                batch.token[i], batch.pos[i] = token, position
                batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
                batch.logits[i] = counts
            if code := api.llama_decode(context, batch):
                raise RuntimeError(f"llama_decode returned {code}")

        def likeliest(place: int) -> int:
            logits = np.ctypeslib.as_array(api.llama_get_logits_ith(context, place), (words,))
            logits[end] = -np.inf
            return int(logits.argmax())

        def go_on(prompts: list[list[int]], new: int) -> Continued:
            api.llama_memory_clear(api.llama_get_memory(context), True)
            began = time.perf_counter()
            decode(
                [
                    (token, position, sequence, position == len(prompt) - 1)
                    for sequence, prompt in enumerate(prompts)
                    for position, token in enumerate(prompt)
                ]
            )
            ends = [sum(map(len, prompts[: i + 1])) - 1 for i in range(len(prompts))]
            made = [[likeliest(place)] for place in ends]
            first = time.perf_counter() - began
            for done in range(new - 1):
                last = enumerate(zip(prompts, made))
                decode([(ids[-1], len(p) + done, i, True) for i, (p, ids) in last])
                for i, ids in enumerate(made):
                    ids.append(likeliest(i))
            return [text(ids) for ids in made], first

        def text(ids: list[int]) -> str:
            """Decodes tokens; the special ones are no part of the text."""
            room, said = ctypes.create_string_buffer(256), b""
            for token in ids:
                size = api.llama_token_to_piece(vocabulary, token, room, 256, 0, False)
                said += room.raw[:size]
            return said.decode(errors="replace")

        measure(job, report, go_on)


class Generate(Worker):
    """Hugging Face's generate; several prompts are a batch of equal lengths."""

    name = "hf-streams"
    venv = "hf"
    variants = (
        Variant("float32", "Hugging Face generate, float32", on=("cpu",)),
        Variant("bfloat16", "Hugging Face generate, bfloat16", on=("cpu",)),
    )

    def run(self, job: plan.Job, report: lines.Reporter) -> None:
        """Continues the prompts."""
        import tokenizers
        import torch
        import transformers

        report.info(torch=torch.__version__, transformers=transformers.__version__)
        transformers.logging.set_verbosity_error()
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        tokenizer = tokenizers.Tokenizer.from_file(
            os.path.join(job.options["hf"], "tokenizer.json")
        )
        model = transformers.AutoModelForCausalLM.from_pretrained(
            job.options["hf"], dtype=getattr(torch, job.variant)
        ).eval()
        end = int(job.options["end"])

        def go_on(prompts: list[list[int]], new: int) -> Continued:
            clock, ids = Clock(), torch.tensor(prompts)
            with torch.inference_mode():
                out = model.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    do_sample=False,
                    max_new_tokens=new,
                    min_new_tokens=new,
                    eos_token_id=end,
                    pad_token_id=end,
                    streamer=clock if len(prompts) == 1 else None,
                )
            made = out[:, ids.shape[1] :].tolist()
            return [tokenizer.decode(row) for row in made], clock.first

        measure(job, report, go_on)


class Clock:
    """A streamer of generate that takes the time of the first token."""

    def __init__(self) -> None:
        """Starts the clock."""
        self._began, self._calls, self.first = time.perf_counter(), 0, 0.0

    def put(self, value: Any) -> None:
        """Is called with the prompt, and then with each token."""
        del value
        self._calls += 1
        if self._calls == 2:
            self.first = time.perf_counter() - self._began

    def end(self) -> None:
        """Is called at the end."""


class Prompts(Worker):
    """Takes prompts of equal lengths out of the records of gorbit convert."""

    name = "prompts"
    venv = ""
    variants = (Variant("prompts", ""),)

    def run(self, job: plan.Job, report: lines.Reporter) -> None:
        """Writes the file `prompts` of `count` blocks of `length` tokens, at even distances."""
        import tensorflow as tf

        blocks, length = [], int(job.options["length"])
        file = os.path.join(job.data, "train-00000-of-00001.tfrecord")
        for record in tf.data.TFRecordDataset(file).as_numpy_iterator():
            feature = tf.train.Example.FromString(record).features.feature
            ids = list(feature["input_ids"].int64_list.value)
            if len(ids) == length:
                blocks.append(ids)
        count = int(job.options["count"])
        if len(blocks) < count:
            raise ValueError(
                f"{file} has {len(blocks)} blocks of {length} tokens; expected {count}"
            )
        chosen = blocks[:: len(blocks) // count][:count]
        pathlib.Path(job.options["prompts"]).write_text(json.dumps(chosen))


class Precisions(Worker):
    """Writes a GGUF again in other precisions, with what its quantized numbers stand for."""

    name = "precisions"
    venv = "llama"
    variants = (Variant("precisions", ""),)

    def run(self, job: plan.Job, report: lines.Reporter) -> None:
        """Reads the file `gguf`, and writes the files `f32` and `bf16`."""
        import gguf
        import numpy as np

        reader = gguf.GGUFReader(job.options["gguf"])
        architecture = reader.fields["general.architecture"].contents()
        for name, kind, file_type in (
            ("f32", gguf.GGMLQuantizationType.F32, gguf.LlamaFileType.ALL_F32),
            ("bf16", gguf.GGMLQuantizationType.BF16, gguf.LlamaFileType.MOSTLY_BF16),
        ):
            path = job.options[name]
            writer = gguf.GGUFWriter(path + ".part", architecture)
            for field in reader.fields.values():
                if field.name.startswith("GGUF.") or field.name == "general.architecture":
                    continue
                value, (kept, *inner) = field.contents(), field.types
                if field.name == "general.file_type":
                    value = int(file_type)
                writer.add_key_value(field.name, value, kept, inner[-1] if inner else None)
            for tensor in reader.tensors:
                numbers = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
                if numbers.ndim > 1 and kind != gguf.GGMLQuantizationType.F32:
                    packed = gguf.quantize(numbers, kind)
                    writer.add_tensor(tensor.name, packed, raw_dtype=kind)
                else:
                    writer.add_tensor(tensor.name, numbers)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
            os.replace(path + ".part", path)
