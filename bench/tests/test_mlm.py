"""The table of masked language models, and the losses of one."""

import sys

import pytest

import masked_losses
import peers
from harness import plan
from peers import gemm
from suites import base, mlm


@pytest.fixture
def options(options):
    return options("--only", "mlm", "--quick")


def line(peer, variant, tokens):
    rates = {"examples_per_s": tokens / plan.LENGTH, "tokens_per_s": tokens}
    rest = {"first_step_s": 4.0, "peak_gb": 1.5, "others": 0.0, "steps": 6}
    return {"peer": peer, "variant": variant, "round": 1, **rates, **rest}


def test_the_head_counts_for_masked_tokens_alone():
    shape = plan.SIZES["minilm"]
    head = 2 * shape.hidden * (shape.hidden + plan.VOCAB)
    encoder = shape.layers * sum(2 * a * b for a, b in gemm.products(shape))
    assert shape.masked_flop_per_token == pytest.approx(3 * (encoder + 0.15 * head))


def test_every_peer_has_a_row(options):
    flop = plan.SIZES["minilm"].masked_flop_per_token
    lines = [
        {"peer": "gemm", "variant": "onednn", "round": 1, "rate": 4000 * flop, "others": 0.0},
        line("gorbit-mlm", "train", 3000),
        line("keras-mlm", "default", 1000),
        {"peer": "hf-mlm", "variant": "longest", "round": 1, "error": "exit code 1: no memory"},
    ]
    table, notes = mlm.written(options, lines, "minilm").split("\n\n")
    assert table.splitlines()[2:] == [
        "| **gorbit** | 3,000 | 75% | | 4.00 | 1.50 | 1 |",
        "| Keras 3 fit | 1,000 | 25% | 3.00 times | 4.00 | 1.50 | 1 |",
        "| Keras 3 fit, oneDNN on | | | | | | failed: was not run |",
        "| Hugging Face Trainer | | | | | | failed: exit code 1: no memory |",
    ]
    assert "15% of their tokens masked" in notes


def test_losses_are_read_from_both_kinds_of_output(options, monkeypatch, tmp_path):
    """Replaces gorbit and a worker by a script."""
    job = plan.Job("train", data=str(tmp_path))
    monkeypatch.setattr(mlm, "training", lambda *a: type("Entry", (), {"job": job}))
    said = (
        "train | step:     50 | steps/sec:    1.1 | output: {'gradient_norm': 1.0, 'loss': 7.25}\n"
        'bench: info {"loss_100": 6.5, "torch": "2"}\n'
    )

    class Fake(peers.TRAIN[0].__class__):
        def command(self, job, python):
            return [sys.executable, "-c", f"print({said!r}, end='')"]

    options.settings.venvs[""] = type("Venv", (), {"python": ""})
    given = {"every": 50, "learning_rate": "1e-4", "weights": "w", "steps": 100, "batch": 8}
    args = type("Args", (), given | {"size": "minilm"})
    assert masked_losses.losses(options, Fake(), args) == {50: 7.25, 100: 6.5}


def test_parts_are_the_sizes(options):
    assert mlm.parts(options) == [base.Part("mlm-minilm", 6)]
