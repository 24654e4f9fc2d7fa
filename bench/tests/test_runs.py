"""Rounds, repeats, and that every peer is listed."""

import os
import sys

import pytest

from harness import lines, plan, report, runs, stats, venvs
from harness.companions import Companion
from peers.base import Variant


class Fake:
    """A peer that runs a line of Python; it counts its runs in a file."""

    def __init__(self, name, code, venv=""):
        self.name, self.code, self.venv = name, code, venv
        self.variants = (Variant("v", name.title()),)

    def command(self, job, python):
        return [python, "-c", self.code]

    def beside(self, job, python):
        return []

    def parse(self, line):
        return lines.parse(line)


RATE = 'print(\'bench: info {"rate": 5.0, "torch": "9"}\')'


@pytest.fixture
def settings(tmp_path):
    def make(**values):
        values = {
            "root": str(tmp_path),
            "work": str(tmp_path / "work"),
            "venvs": {
                "": venvs.Venv(sys.executable),
                "gone": venvs.Venv("", "could not be installed: no disk"),
            },
            "rounds": 2,
            "retries": 0,
            "timeout": 60.0,
            "isa": None,
            "lock": None,
            "say": lambda text: None,
            **values,
        }
        return runs.Settings(**values)

    return make


def entry(peer, numbers=stats.told):
    return runs.Entry(peer, peer.variants[0], plan.Job("v"), numbers)


def test_runs_are_interleaved(settings):
    entries = [entry(Fake(name, RATE)) for name in "ab"]
    got = runs.everything(settings(), entries)
    assert [(line["round"], line["peer"]) for line in got] == [
        (1, "a"),
        (1, "b"),
        (2, "a"),
        (2, "b"),
    ]
    assert all(line["rate"] == 5 and line["torch"] == "9" for line in got)


def test_peers_that_fail_stand_in_the_table_with_their_reasons(settings):
    fakes = [
        Fake("good", RATE),
        Fake("broken", "raise SystemExit('boom | bang')"),
        Fake("absent", RATE, venv="gone"),
        Fake("silent", "pass"),
    ]
    got = runs.everything(settings(), [entry(fake) for fake in fakes])
    forgotten = Fake("forgotten", RATE)
    rows = report.rows([*fakes, forgotten], got, lambda v: [str(v.summary("rate").median)], 1)
    assert [row[0] for row in rows] == ["Good", "Broken", "Absent", "Silent", "Forgotten"]
    assert rows[0][1] == "5.0"
    assert rows[1:] == [
        ["Broken", "", "failed: exit code 1: boom \\| bang"],
        ["Absent", "", "failed: could not be installed: no disk"],
        ["Silent", "", "failed: said nothing of how fast it was"],
        ["Forgotten", "", "failed: was not run"],
    ]


def test_every_run_has_ports_of_its_own(settings):
    class Asking(Fake):
        def command(self, job, python):
            told = f'bench: info {{"rate": 1.0, "ports": {job.ports}}}'
            return [python, "-c", f"print({told!r})"]

        def beside(self, job, python):
            code = (
                "import socket, time; s = socket.create_server(('127.0.0.1', "
                f"{job.ports[0]})); time.sleep(600)"
            )
            return [Companion([python, "-c", code], job.ports[0])]

    got = runs.everything(settings(), [entry(Asking("a", ""))])
    assert ["error" in line for line in got] == [False, False]
    assert all(len(set(line["ports"])) == 2 for line in got)


def test_what_failed_is_not_run_again(settings, tmp_path):
    log = tmp_path / "log"
    fake = Fake("x", f"open({str(log)!r}, 'a').write('.'); raise SystemExit(1)")
    got = runs.everything(settings(rounds=3), [entry(fake)])
    assert len(got) == 1
    assert log.read_text() == "."


@pytest.mark.parametrize(
    ("others", "runs_made", "repeated"),
    [([0.0], 1, None), ([0.5, 0.0], 2, 1), ([0.5, 0.5, 0.0], 2, 1)],
)
def test_disturbed_runs_are_repeated(settings, others, runs_made, repeated):
    left = list(others)
    line = runs.once(
        settings(retries=1),
        entry(Fake("x", RATE), lambda seen: {"rate": 1.0, "others": left.pop(0)}),
        1,
    )
    assert len(others) - len(left) == runs_made
    assert line.get("repeated") == repeated
    assert line["others"] == others[runs_made - 1]


def test_scratch_folders_are_removed(settings):
    made = settings()
    runs.everything(made, [entry(Fake("x", RATE))])
    assert os.listdir(made.work) == []


def test_the_count_of_runs_tells_what_became_of_the_others():
    def line(others=0.0, **more):
        return {"rate": 1.0, "others": others, **more}

    def told(*lines):
        return report.counted(stats.Variant.of(lines))

    assert told(line(), line()) == "2"
    assert told(line(), line(1.0)) == "1, 1 disturbed left out"
    assert told(line(1.0), line(1.0)) == "2, all disturbed"
    assert told(line(), {"error": "boom"}) == "1, 1 failed: boom"


def test_versions_are_told_by_peer():
    got = report.versions(
        [{"peer": "hf", "torch": "2.15"}, {"peer": "x"}, {"peer": "keras", "keras_hub": "1"}]
    )
    assert got == "hf: torch 2.15; keras: keras-hub 1"


def test_a_lock_is_held_by_one_at_a_time(settings, tmp_path):
    import fcntl

    from harness import process

    path = str(tmp_path / "lock")
    with process.exclusive(path), open(path) as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with open(path) as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_rounds_are_added_to_those_kept(tmp_path):
    path = str(tmp_path / "kept.jsonl")
    assert runs.load(path) == []
    runs.save(path, [{"peer": "a", "round": 1}, {"peer": "a", "round": 2}])
    got = runs.joined(runs.load(path), [{"peer": "a", "round": 1}])
    assert [line["round"] for line in got] == [1, 2, 3]


def test_versions_that_differ_are_all_told():
    got = report.versions([{"peer": "x", "torch": v} for v in ("1", "2", "1")])
    assert got == "x: torch 1 and 2"
