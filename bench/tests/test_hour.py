"""Pretraining for the same time: the lines that are read, and what is printed."""

import argparse
import json
import pathlib
import subprocess
import sys

import pytest

import hour

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "hour.py"


def test_lines_of_the_loop_are_read():
    said = (
        "train | step:      4 | steps/sec:  128.8 | output: {'accuracy': 0.0, 'loss': 2.8478143}",
        " eval | step:      4 | running complete evaluation...",
        " eval | step:      4 | eval time:    0.0 sec | output: {'loss': 2.5963888, 'x': 1.0}",
    )
    found = [match.groups() for line in said if (match := hour._LINE.match(line))]
    assert found == [("train", "4", "2.8478143"), ("eval", "4", "2.5963888")]


def test_losses_stand_by_time():
    curves = [
        hour.Curve("gorbit", 20, [(10, 1.4, 5.25), (20, 3.0, 4.0)]),
        hour.Curve("hf", 10, [(10, 2.9, 6.0)]),
    ]
    got = hour.report(curves, {"hf, pretrained": {"accuracy": 0.5, "f1": 0.25}}).splitlines()
    assert got[0] == "| | gorbit: s | hf: s | gorbit: loss | hf: loss |"
    assert got[2:5] == [
        "| 1 | 1 | 3 | 5.250 | 6.000 |",
        "| 2 | 3 | | 4.000 | |",
        "| steps | 20 | 10 | | |",
    ]
    assert got[-1] == "| hf, pretrained | 0.500 | 0.250 |"


def test_a_pretraining_is_kept_if_the_next_one_fails(tmp_path, monkeypatch):
    class Failing:
        def __init__(self, args, out):
            pass

        def prepare(self):
            pass

        def gorbit(self):
            return hour.Curve("gorbit", 20, [(10, 1.4, 5.25)])

        def hf(self):
            sys.exit("hour: hf ended with exit code 1")

    monkeypatch.setattr(hour, "Bench", Failing)
    monkeypatch.setattr(hour, "arguments", lambda: argparse.Namespace(out=str(tmp_path)))
    with pytest.raises(SystemExit, match="hf ended"):
        hour.main()
    assert json.loads((tmp_path / "curves.json").read_text()) == {
        "curves": [{"peer": "gorbit", "steps": 20, "points": [[10, 1.4, 5.25]]}],
        "mrpc": {},
    }


def test_wrong_arguments_are_refused():
    for args, want in (
        (["--budget", "0"], "--budget is 0.0; expected seconds above 0"),
        (["--wikitext", "none"], "none/wiki.train.tokens is not there; name it with --wikitext"),
    ):
        got = subprocess.run([sys.executable, SCRIPT, *args], capture_output=True, text=True)
        assert got.returncode == 2 and want in got.stderr, got.stderr


def test_growth_goes_from_shares_to_steps():
    stages = ((0.25, 0.1), (0.5, 0.2), (1, 0.7))
    assert hour.growth(stages, 32, 1000) == "0:8, 100:16, 300:32"


def test_recipes_stand_beside_the_peers_time():
    peer = hour.Curve("hf", 10, [(5, 10.0, 6.0), (10, 20.0, 5.0)])
    ways = [
        hour.Curve("slow", 3, [(3, 2.0, 5.5)]),
        hour.Curve("fast", 3, [(3, 2.0, 4.5)]),
    ]
    got = hour.compared(ways, peer).splitlines()[2:]
    assert [[cell.strip() for cell in row.split("|")[1:-1]] for row in got] == [
        ["slow", "3", "2", "5.500", "20"],
        ["fast", "3", "2", "4.500", "never"],
    ]
