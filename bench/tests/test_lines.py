"""The lines with which runs report their progress."""

import pytest

from harness import lines
from peers import gorbit


def test_worker_lines_come_back_as_they_were_reported(capsys):
    report = lines.Reporter()
    report.info(torch="2.15", threads=2)
    report.step(1)
    report.step(21)
    said = capsys.readouterr().out.splitlines()
    assert [lines.parse(line) for line in said] == [
        lines.Info({"torch": "2.15", "threads": 2}),
        lines.Mark(1),
        lines.Mark(21),
    ]


def test_tokens_add_up(capsys):
    report = lines.Reporter()
    report.step(1, 1700)
    report.step(2, 1650)
    said = capsys.readouterr().out.splitlines()
    assert [lines.parse(line) for line in said] == [lines.Mark(1, 1700), lines.Mark(2, 3350)]


@pytest.mark.parametrize(
    "line", ["", "train | step: 3", "bench: step x", "bench: step 3 of 5", " bench: step 3"]
)
def test_other_lines_say_nothing(line):
    assert lines.parse(line) is None


@pytest.mark.parametrize(
    ("line", "want"),
    [
        (
            "train | step:      2 | steps/sec:    1.4 | output: {'loss': 0.69045675}",
            lines.Mark(2),
        ),
        ("train | step: 123456 | steps/sec:   22.9 | output: {}", lines.Mark(123456)),
        ("train | step:      0 | training until step 12...", None),
        (" eval | step:     12 | eval time:    1.2 sec | output: {}", None),
        ("saved checkpoint to /tmp/run/checkpoints/ckpt-12.", None),
        ("restoring or initializing model...", None),
    ],
)
def test_gorbit_train(line, want):
    assert gorbit.Train().parse(line) == want


@pytest.mark.parametrize(
    ("line", "want"),
    [
        (
            "BenchmarkNext/shuffle=full/batch=32/readers=1-2   27364   86012 ns/op"
            "   1800 cpu-ns/example   371998 examples/s"
            "   9216 B/op   8 allocs/op",
            lines.Info({"rate": 371998.0, "cpu_us": 1.8}),
        ),
        (
            "BenchmarkNext/batch=32-2 9 8 ns/op 5 cpu-ns/example 1.5e+06 examples/s",
            lines.Info({"rate": 1.5e6, "cpu_us": 0.005}),
        ),
        ("PASS", None),
        ("goos: linux", None),
    ],
)
def test_gorbit_input(line, want):
    assert gorbit.Input().parse(line) == want


def test_gorbit_predict_counts_answers():
    peer = gorbit.Predict()
    assert [peer.parse(s) for s in ("1\t0.75", "note", "label\tscore", "0\t0.25")] == [
        lines.Info({"answers": 1, "mean_score": 0.75}),
        None,
        None,
        lines.Info({"answers": 2, "mean_score": 0.5}),
    ]
