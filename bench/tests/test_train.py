"""The table of training."""

import dataclasses

import pytest

import peers
from harness import cli
from suites import base, train


@pytest.fixture
def options(options):
    return options("--quick")


def line(peer, variant, examples, others=0.0):
    return {
        "peer": peer,
        "variant": variant,
        "round": 1,
        "examples_per_s": examples,
        "tokens_per_s": examples * 53,
        "tflops": examples * 53 * 63.7e-6,
        "first_step_s": 4.0,
        "peak_gb": 1.5,
        "others": others,
    }


def peak(variant, rate):
    return {"peer": "gemm", "variant": variant, "round": 1, "rate": rate, "others": 0.0}


def test_every_peer_has_a_row(options):
    """Orbit ran, Keras failed, and Hugging Face was not run."""
    lines = [
        peak("onednn", 300e9),
        peak("eigen", 200e9),
        line("gorbit", "train", 60.0),
        line("orbit", "default", 20.0),
        line("orbit", "onednn", 30.0, others=0.5),
        {"peer": "keras", "variant": "default", "round": 1, "error": "exit code 1: no memory"},
        {"peer": "keras", "variant": "onednn", "round": 1, "error": "exit code 1: no memory"},
    ]
    text = train.written(options, peers.TRAIN, lines, "minilm", 6)
    table, notes = text.split("\n\n")
    assert table.splitlines()[2:] == [
        "| **gorbit** | 60.0 | 3,180 | 68% | | 4.00 | 1.50 | | 1 |",
        "| **gorbit**, bf16 | | | | | | | | failed: was not run |",
        "| Orbit, Model Garden | 20.0 | 1,060 | 23% | 3.00 times | 4.00 | 1.50 | 1.00 times | 1 |",
        "| Orbit, Model Garden, oneDNN on | 30.0 | 1,590 | 34% | 2.00 times | 4.00 | 1.50 "
        "| 1.00 times | 1, all disturbed |",
        "| Keras 3 fit | | | | | | | | failed: exit code 1: no memory |",
        "| Keras 3 fit, oneDNN on | | | | | | | | failed: exit code 1: no memory |",
        "| Hugging Face Trainer, padded to the longest | | | | | | | | failed: was not run |",
        "| Hugging Face Trainer, group_by_length | | | | | | | | failed: was not run |",
        *(
            f"| Hugging Face Trainer, group_by_length, {setting} "
            "| | | | | | | | failed: was not run |"
            for setting in ("compiled", "bf16", "compiled, bf16")
        ),
        "| JAX, padded to 128 | | | | | | | | failed: was not run |",
        "| JAX, grouped by length, padded to multiples of 32 | | | | | | | | failed: was not run |",
    ]
    assert "oneDNN on 300, oneDNN off 200." in notes
    assert "63.7 MFLOP" in notes


def test_rows_in_bf16_are_beside_gorbit_in_bf16(options):
    lines = [
        line("gorbit", "train", 60.0),
        line("gorbit-bf16", "bf16", 90.0),
        line("hf-settings", "compiled", 20.0),
        line("hf-settings", "bf16", 30.0),
    ]
    rows = [p for p in peers.TRAIN if p.name in ("gorbit", "gorbit-bf16", "hf-settings")]
    table = train.written(options, rows, lines, "minilm", 6).splitlines()[2:7]
    assert [row.split("|")[5].strip() for row in table] == [
        *("", "", "3.00 times", "3.00 times", "")
    ]


def later(number, line, **values):
    return {**line, "round": number, **values}


def test_shares_and_ratios_are_those_within_a_round(options):
    """In the second round the machine is half as fast, and its fastest products were disturbed."""
    lines = [
        peak("onednn", 400e9),
        line("gorbit", "train", 60.0),
        line("orbit", "default", 20.0),
        later(2, peak("onednn", 150e9)),
        later(2, peak("onednn", 200e9), others=0.5),
        later(2, line("gorbit", "train", 40.0), peak_gb=0.75),
        later(2, line("orbit", "default", 10.0)),
    ]
    text = train.written(options, [peers.TRAIN[0], peers.TRAIN[2]], lines, "minilm", 6)
    ours, orbit = text.splitlines()[2:4]
    assert "| 50.0 (40.0 to 60.0) | 2,650 | 59% (51% to 68%) | |" in ours
    assert "| 3.50 (3.00 to 4.00) times |" in orbit
    assert "| 0.75 (0.50 to 1.00) times | 2 |" in orbit
    assert "oneDNN on 300 (200 to 400)." in text


def test_without_a_common_round_the_medians_are_compared_and_it_is_said(options):
    lines = [later(2, line("gorbit", "train", 60.0)), line("orbit", "default", 20.0)]
    text = train.written(options, [peers.TRAIN[0], peers.TRAIN[2]], lines, "minilm", 6)
    assert "| 3.00 times, of other rounds |" in text


def test_tables_are_written_again_from_the_raw_lines(monkeypatch, tmp_path):
    monkeypatch.setattr(train.runs, "everything", lambda *rest: pytest.fail("measures"))
    lines = [{**line("gorbit", "train", 60.0), "steps": 7, "machine": "a machine"}]
    raw = tmp_path / "train-tiny-mrpc.jsonl"
    base.runs.save(str(raw), lines)
    before, document = raw.read_text(), tmp_path / "doc.md"
    argv = ["--only", "train", "--rounds", "0", "--results", str(tmp_path), "--gorbit", "/none"]
    assert cli.main([*argv, "--docs", str(document)]) == 0
    text = document.read_text()
    assert "**Training tiny, pairs of MRPC's lengths, 53 tokens on average.**" in text
    assert "a machine." in text
    command = "--only train --sizes tiny --lengths mrpc --steps 7 --peers gorbit --rounds 1"
    assert f'    make bench BENCH="{command}"' in text
    assert "train-base" not in text
    assert raw.read_text() == before


def test_a_table_without_gorbit_and_without_a_peak(options):
    """The rows of the other peers do not depend on them."""
    lines = [
        {"peer": "gemm", "variant": "onednn", "round": 1, "error": "exit code 1: x"},
        {"peer": "gorbit", "variant": "train", "round": 1, "error": "exit code 2: usage"},
        line("orbit", "default", 20.0),
    ]
    text = train.written(options, [peers.TRAIN[0], peers.TRAIN[2]], lines, "minilm", 6)
    assert "| **gorbit** | | | | | | | | failed: exit code 2: usage |" in text
    assert "| Orbit, Model Garden | 20.0 | 1,060 | | | 4.00 | 1.50 | | 1 |" in text
    assert "oneDNN on failed: exit code 1: x" in text


def test_tables_of_fewer_instructions_stand_apart(options, tmp_path):
    settings = dataclasses.replace(options.settings, isa="avx2", say=lambda text: None)
    document = tmp_path / "doc.md"
    options = dataclasses.replace(
        options, settings=settings, docs=str(document), results=str(tmp_path / "results")
    )
    lines = [{"peer": "x", "variant": "v", "round": 1}]
    base.publish(options, "train-tiny-mrpc", "Training tiny", "| table |", lines, ["train"])
    raw = tmp_path / "results" / "train-tiny-mrpc-avx2.jsonl"
    assert base.runs.load(str(raw)) == lines
    text = document.read_text()
    assert "<!-- bench:begin train-tiny-mrpc-avx2 -->" in text
    assert "**Training tiny, kept to AVX2 by ONEDNN_MAX_CPU_ISA=AVX2" in text
    assert 'make bench BENCH="--only train --rounds 1 --isa avx2"' in text
