"""What a step is made of: the batch, the parser, and the table."""

import pytest

from harness import plan
from peers import gorbit
from suites import limit


def test_rows_hold_all_lengths_and_are_about_equally_full():
    rows = limit.packed([60, 50, 40, 30, 20, 20])
    assert sorted(length for row in rows for length in row) == [20, 20, 30, 40, 50, 60]
    assert sorted(map(sum, rows)) == [110, 110]
    # Three lengths of 70 are less than two rows hold, but no two of them fit into one row.
    assert limit.packed([70, 70, 70]) == [[70], [70], [70]]


def test_benchmarks_are_read_until_the_last():
    peer = gorbit.Kernels()
    needs = {"kernels_test": "/k", "rows": "50,60;70"}
    command = peer.command(plan.Job("kernels", "minilm", options=needs), "")
    assert command[-4:] == ["-shape", "6,384,12,1536", "-rows", "50,60;70"]
    told = {}
    for line in (
        "BenchmarkKernels/gelu-2         \t       3\t  2000000 ns/op",
        "BenchmarkKernels/gelu_gradient-2    10\t  6000000 ns/op",
        "BenchmarkCopy-2   10\t 124507324 ns/op\t8623.93 MB/s",
    ):
        told.update(peer.parse(line).values)
    assert told == {
        "gelu": 0.002,
        "gelu_gradient": 0.006,
        "rate": pytest.approx(125),
        "bandwidth": pytest.approx(8623.93e6),
    }
    assert peer.parse("PASS") is None


def test_parts_and_the_step_are_of_one_round():
    flop = plan.SIZES["tiny"].train_flop_per_token
    lines = []
    for number, slow in ((1, 1), (2, 2)):
        common = {"round": number, "positions": 100, "rows": 1, "tokens": 90, "others": 0.0}
        kernels = dict.fromkeys(limit.KERNELS, 0.005 * slow)
        lines += [
            {"peer": "gemm", "variant": "onednn", "rate": 100 * flop / (0.04 * slow), **common},
            {"peer": "gorbit-kernels", "variant": "k", "bandwidth": 1e9, **kernels, **common},
            {"peer": "gorbit", "variant": "t", "examples_per_s": 320 / slow, **common},
        ]
    # A round without a step does not count.
    lines.append({"peer": "gorbit", "variant": "t", "round": 3, "error": "no memory"})
    table, notes = limit.written(lines, "tiny").split("\n\n")
    rows = table.splitlines()[2:]
    assert rows[0] == "| matrix products | 60.0 (40.0 to 80.0) | 40% (40% to 40%) |"
    assert rows[1] == "| attention, forward | 7.50 (5.00 to 10.0) | 5% (5% to 5%) |"
    assert rows[-3] == "| sum | 120 (80.0 to 160) | 80% (80% to 80%) |"
    assert rows[-2] == "| the step, measured | 150 (100 to 200) | 100% (100% to 100%) |"
    assert "alone reach 45% (45% to 45%) of the products' rate" in notes
    assert "Rounds: 2, runs disturbed: 0" in notes
    assert limit.written(lines[-1:], "tiny") == "failed: no memory"


def test_the_parameters_are_those_of_the_model():
    assert limit.parameters(plan.SIZES["minilm"]) == 22_565_376
