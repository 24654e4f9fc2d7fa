"""Serving: the batcher of ONNX Runtime, and the table."""

import os
import sys
import threading

from harness import lines, plan
from peers import serving
from suites import serve


def test_a_batch_is_what_waits():
    batches, go, begun = [], threading.Event(), threading.Event()

    def answer(batch):
        batches.append(sorted(batch))
        begun.set()
        assert go.wait(10)

    batcher = serving.Batcher([answer], 2)
    clients = [threading.Thread(target=batcher.answer, args=((str(i),),)) for i in range(4)]
    clients[0].start()
    assert begun.wait(10)
    for client in clients[1:]:
        client.start()
    while len(batcher._queue) < 3:
        pass
    go.set()
    for client in clients:
        client.join()
    batcher.close()
    assert [len(batch) for batch in batches] == [1, 2, 1]
    assert sorted(r for batch in batches for r in batch) == [(str(i),) for i in range(4)]


def test_the_load_takes_requests_in_turn():
    seen = []
    batcher = serving.Batcher([seen.extend], 8)
    times = serving.load(batcher, ["a", "b"], 2, 0.05)
    batcher.close()
    assert 0 < len(times) <= len(seen)
    assert abs(seen.count("a") - seen.count("b")) <= 2


def test_every_number_of_clients_has_its_numbers(tmp_path, capsys):
    pairs = tmp_path / "pairs.txt"
    pairs.write_text("a\tb\nc\td\n")
    needs = {"pairs": str(pairs), "batch": "8", "seconds": "0.05", "clients": "1,3"}
    seen = []
    serving.answer_all([seen.extend], plan.Job("one", options=needs), lines.Reporter())
    told = [lines.parse(line).values for line in capsys.readouterr().out.splitlines()]
    assert [set(values) for values in told] == [
        {"rate_1", "p50_1", "p99_1", "rate"},
        {"rate_3", "p50_3", "p99_3", "rate"},
    ]
    assert all(values["rate"] > 0 for values in told)
    assert set(seen) == {("a", "b"), ("c", "d")}


def test_the_table_has_the_best_of_each(options):
    def line(peer, variant, batch, rate, p50):
        told = {"rate_8": rate, "p50_8": p50, "p99_8": 2 * p50, "rate": rate, "batch": batch}
        made = {"peer": peer, "variant": variant, "round": 1, "machine": "m", "at": "t"}
        return {**made, **told, "asked": "Pairs", "peak_gb": 1.0, "others": 0.0, "seconds": 1.0}

    told = [
        line("gorbit-serve", "run", 0, 300.0, 0.02),
        line("ort-serve", "one", 8, 100.0, 0.08),
        line("ort-serve", "one", 16, 150.0, 0.04),
        line("gorbit-serve", "exported8", 0, 900.0, 0.01),
        line("ort-serve", "each-int8", 8, 600.0, 0.02),
    ]
    text = serve.written(options("--rounds", "0"), told)
    assert "| 300; 20, 40 |" in text
    assert "| 150; 40, 80 |" in text
    assert "best beside ONNX Runtime's: 2.00 times its answers at 0.50 times its p50 with 8" in text
    assert "in int8 beside ONNX Runtime's: 1.50 times its answers at 0.50 times its p50" in text


def test_sessions_are_of_the_file_of_their_variant(monkeypatch, tmp_path):
    opened = []

    class Session:
        def __init__(self, file, options, providers):
            opened.append((file, options.intra_op_num_threads))

    class Tokenizer:
        def __init__(self, vocab, lowercase):
            del vocab, lowercase

        def enable_truncation(self, length):
            del length

    class Module:
        SessionOptions = type("SessionOptions", (), {})
        InferenceSession = Session
        BertWordPieceTokenizer = Tokenizer
        __version__ = "1"

    for name in ("onnxruntime", "tokenizers"):
        monkeypatch.setitem(sys.modules, name, Module)
    monkeypatch.setattr(serving, "answer_all", lambda answerers, job, report: None)
    needs = {"vocab": "v", "onnx": "m.onnx", "onnx8": "m8.onnx"}
    cores = len(os.sched_getaffinity(0))
    for variant in serving.Ort.variants:
        serving.Ort().run(plan.Job(variant.name, options=needs), lines.Reporter())
    expected = []
    for file in ("m.onnx", "m8.onnx"):
        expected += [(file, cores), *[(file, 1)] * cores]
    assert opened == expected
