"""Reading images, numbers and tokens: the benchmark's line, and what is run."""

import pytest

import peers
from harness import lines, plan
from peers import dense


def test_the_benchmarks_line_is_read():
    line = (
        "BenchmarkNext/digits/readers=2-2 \t 8900\t 65616 ns/op\t 386.25 MB/s\t"
        " 530.8 cpu-ns/example\t 487689 examples/s\t 7178 B/op"
    )
    told = dense.Gorbit().parse(line)
    assert isinstance(told, lines.Info)
    assert told.values == pytest.approx({"rate": 487689.0, "cpu_us": 0.5308})
    assert dense.Gorbit().parse("PASS") is None


def test_both_read_all_kinds():
    for peer in peers.DENSE:
        assert [v.name for v in peer.variants] == list(dense.KINDS) == list(dense.BATCHES)


def test_the_command_names_the_kind_and_the_records():
    job = plan.Job("jpeg", data="/d", options={"dense_test": "/t"})
    command = dense.Gorbit().command(job, "")
    assert command[0] == "/t"
    assert command[-3:] == ["Next$/^jpeg$/^readers=2$", "-records", "/d"]


@pytest.mark.parametrize("name", ["dense-data", "tfdata-dense"])
def test_workers_are_found(name):
    assert peers.worker(name).name == name
