"""Tests of the package gorbit with a stand-in for the program.

cmd/gorbit's TestWheel has the real one.
"""

from __future__ import annotations

import importlib.machinery
import json
import os
import pathlib
import signal
import sys

import pytest

import gorbit
from gorbit import demo, process, programs

PROGRAM = """#!{python}
import json, os, signal, sys, time

def say(**event):
    print(json.dumps(event), file=sys.stderr, flush=True)

def stop(*_):
    print("gorbit: interrupt: saving and stopping within a step; a second signal stops at once",
          file=sys.stderr, flush=True)
    open("saved", "w").close()
    os._exit(75)

signal.signal(signal.SIGINT, stop)
signal.signal(signal.SIGTERM, stop)
open("args", "w").write(json.dumps(sys.argv[1:]))
{body}
"""

TRAINING = """
say(event="begin", phase="train", step=0, total=4)
say(epoch=0, event="step", phase="train", step=2, loss=0.5, examples=8)
say(event="metrics", phase="train", step=2, metrics={"loss": 0.5, "norm": "Infinity"})
print("train | step:      2 | output: {'loss': 0.5}", flush=True)
say(event="save", step=2, path="run/checkpoints/ckpt-2")
say(event="metrics", phase="eval", step=2, metrics={"accuracy": 0.75})
"""


@pytest.fixture(autouse=True)
def ctrl_c():
    """Has Ctrl-C raise KeyboardInterrupt also where the tests run in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Returns a function that makes what follows a program in the place of gorbit."""
    monkeypatch.chdir(tmp_path)

    def make(body: str) -> None:
        path = tmp_path / "gorbit"
        path.write_text(PROGRAM.replace("{python}", sys.executable).replace("{body}", body))
        path.chmod(0o755)
        monkeypatch.setattr(programs, "program", lambda _: path)

    return make


@pytest.mark.parametrize(
    ("params", "want"),
    [
        ({"batch_size": 8, "init": None}, ["--batch-size=8"]),
        (
            {"overwrite": True, "learning_rate": 2e-05},
            ["--overwrite=true", "--learning-rate=2e-05"],
        ),
        ({"run": pathlib.Path("a b")}, ["--run=a b"]),
        ({"params": ["a.yaml", "b.yaml"]}, ["--params=a.yaml", "--params=b.yaml"]),
        (
            {"set": {"seed": 2, "data.eval": ["dev", "test"], "x": False}},
            ["--set=seed=2", "--set=data.eval=[dev, test]", "--set=x=false"],
        ),
    ],
)
def test_flags(params, want):
    assert process.flags(params) == want


def test_a_value_that_is_no_flag():
    with pytest.raises(gorbit.Error, match=r"^seed is b'1', of type bytes; expected a string, a n"):
        process.flags({"seed": b"1"})


def test_events_reach_callbacks(program, capsys):
    program(TRAINING)
    events = []
    run = gorbit.train("graph", "data", "run", callbacks=[events.append], epochs=3)
    assert [(e["event"], e.get("phase"), e["step"]) for e in events] == [
        ("metrics", "train", 2),
        ("save", None, 2),
        ("metrics", "eval", 2),
    ]
    assert events[0]["metrics"] == {"loss": 0.5, "norm": float("inf")}
    assert (run.folder, run.stopped) == ("run", False)
    assert capsys.readouterr().out == "train | step:      2 | output: {'loss': 0.5}\n"
    assert json.loads(pathlib.Path("args").read_text()) == [
        *("train", "--progress=events", "--log-level=warn"),
        *("--graph=graph", "--data=data", "--run=run", "--epochs=3"),
    ]


def test_a_callback_stops(program):
    program(TRAINING + "time.sleep(600)")
    seen = []

    def callback(event):
        seen.append(event["event"])
        return gorbit.STOP if event.get("phase") == "eval" else None

    assert gorbit.train(run="run", callbacks=[callback], progress=False).stopped
    assert seen == ["metrics", "save", "metrics"]
    assert pathlib.Path("saved").exists()


def test_a_callback_stops_without_ctrl_c(program):
    program(TRAINING + "time.sleep(600)")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background of a shell
    assert gorbit.train(run="run", callbacks=[lambda _: gorbit.STOP], progress=False).stopped
    assert pathlib.Path("saved").exists()


def test_what_a_callback_raises_stops(program):
    program(TRAINING + "time.sleep(600)")

    def callback(event):
        raise LookupError(event["step"])

    with pytest.raises(LookupError, match="2"):
        gorbit.train(run="run", callbacks=[callback], progress=False)
    assert pathlib.Path("saved").exists()


def test_a_callback_that_returns_something_else(program):
    program(TRAINING + "time.sleep(600)")
    with pytest.raises(gorbit.Error, match=r"returned True; expected None or gorbit\.STOP"):
        gorbit.train(run="run", callbacks=[lambda _: True], progress=False)
    assert pathlib.Path("saved").exists()


def test_ctrl_c_saves_first(program):
    program(TRAINING + "time.sleep(600)")
    with pytest.raises(KeyboardInterrupt):
        gorbit.train(
            run="run", callbacks=[lambda _: os.kill(os.getpid(), signal.SIGINT)], progress=False
        )
    assert pathlib.Path("saved").exists()


@pytest.mark.parametrize(
    ("body", "code", "want"),
    [
        (
            "print('level=WARN msg=x', file=sys.stderr); print('gorbit: --run is missing', "
            "file=sys.stderr); sys.exit(2)",
            2,
            "--run is missing",
        ),
        (
            "print('gorbit: two problems:\\n- a\\n- b', file=sys.stderr); sys.exit(3)",
            3,
            "two problems:\n- a\n- b",
        ),
        ("os.kill(os.getpid(), signal.SIGKILL)", -9, "the program was ended by SIGKILL"),
        (
            "print('no memory', file=sys.stderr, flush=True); os.kill(os.getpid(), 6)",
            -6,
            "the program was ended by SIGABRT: no memory",
        ),
    ],
)
def test_errors_are_the_sentence_of_the_program(program, body, code, want):
    program(body)
    with pytest.raises(gorbit.Error) as caught:
        gorbit.train(run="run", progress=False)
    assert (str(caught.value), caught.value.code) == (want, code)


def test_evaluate_with_metrics_of_ones_own(program):
    program("""
path = next(a for a in sys.argv if a.startswith("--predictions=")).split("=")[1]
with open(path, "w") as out:
    out.write(json.dumps({"label": "good", "prediction": "bad"}) + "\\n")
    out.write(json.dumps({"label": "good", "prediction": "good"}) + "\\n")
print(json.dumps({"step": 4, "outputs": {"loss": 0.5, "auc": "nan"}}))
""")

    def compute(predictions, labels):
        return {"right": sum(p == label for p, label in zip(predictions, labels)) / len(labels)}

    got = gorbit.evaluate("run", compute_metrics=compute, progress=False)
    assert got.pop("auc") != 0  # not a number
    assert got == {"step": 4, "loss": 0.5, "right": 0.5}
    with pytest.raises(gorbit.Error, match="returns loss, which the evaluation has as well"):
        gorbit.evaluate("run", compute_metrics=lambda p, _: {"loss": 1.0}, progress=False)


def test_predict_gives_texts_by_a_file(program):
    program("""
path = next(a for a in sys.argv if a.startswith("--file=")).split("=")[1]
for line in open(path):
    print(json.dumps({"label": "good", **json.loads(line)}))
""")
    got = gorbit.predict("run", ["a\n\u2028b", "c"], ["d", "e"], progress=False)
    rows = got if isinstance(got, list) else got.to_dict("records")
    assert rows == [
        {"label": "good", "text": "a\n\u2028b", "text_pair": "d"},
        {"label": "good", "text": "c", "text_pair": "e"},
    ]
    with pytest.raises(gorbit.Error, match="2 texts and 1 pairs; expected as many"):
        gorbit.predict("run", ["a", "b"], ["c"])
    with pytest.raises(gorbit.Error, match="a string is given; expected a list of strings"):
        gorbit.predict("run", "a")


@pytest.mark.parametrize(
    ("params", "want"),
    [
        ({"file": "a.csv"}, "texts and file are both given"),
        ({"split": "test"}, "texts and split are both given"),
        ({"text_column": "b"}, "texts and text_column are both given"),
        ({"out": "answers.csv"}, "out is given"),
    ],
)
def test_predict_with_two_meanings(program, params, want):
    program("")
    with pytest.raises(gorbit.Error, match=want):
        gorbit.predict("run", ["a"], progress=False, **params)


def test_a_stopped_program_has_no_result(program):
    program("""
print(json.dumps({"label": "good"}), flush=True)
sys.exit(75)
""")
    with pytest.raises(gorbit.Error, match="stopped by a signal") as raised:
        gorbit.predict("run", ["a", "b"], progress=False)
    assert raised.value.code == 75


def test_metrics_of_a_run(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    log = tmp_path / "metrics.jsonl"
    line = '{"phase":"train","step":2,"outputs":{"loss":"NaN","rate":1e-05},"sum":7}\n'
    log.write_text(line + line.replace("NaN", "+Inf") + '{"phase":')
    first, second = gorbit.Run(tmp_path).metrics
    assert first["loss"] != first["loss"]
    assert second == {"phase": "train", "step": 2, "loss": float("inf"), "rate": 1e-05}
    log.write_text("{}\n")
    with pytest.raises(gorbit.Error, match=r"metrics\.jsonl:1: the line is damaged"):
        _ = gorbit.Run(tmp_path).metrics
    with pytest.raises(gorbit.Error, match="no such file or directory; expected a run"):
        _ = gorbit.Run(tmp_path / "none").metrics
    with pytest.raises(gorbit.Error, match="is in a bucket"):
        _ = gorbit.Run("gs://b/run").metrics


RELEASES = ("2.18", "2.21")


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Returns a function that installs a TensorFlow of files without content, the only one."""

    def install(*paths: str) -> pathlib.Path:
        for path in paths:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).touch()
        package = tmp_path / "lib/python3/site-packages"
        spec = importlib.machinery.PathFinder.find_spec("tensorflow", [str(package)])
        monkeypatch.setattr("importlib.util.find_spec", lambda _: spec)
        monkeypatch.setattr(sys, "prefix", str(tmp_path))
        return package / "tensorflow"

    return install


SITE = "lib/python3/site-packages"
PACKAGE = f"{SITE}/tensorflow/__init__.py"


@pytest.mark.parametrize(
    "info",
    [
        "tensorflow_cpu-2.18.1.dist-info",
        "tensorflow-2.21.0.dist-info",
        "tensorflow-2.19.0-py3.11.egg-info",
        "tensorflow_hub-0.16.1.dist-info",
        "tensorflow_io_gcs_filesystem-0.37.1.dist-info",
    ],
)
def test_tensorflow_of_wheels(site, info):
    folder = site(PACKAGE, f"{SITE}/tensorflow/libtensorflow_cc.so.2", f"{SITE}/{info}/METADATA")
    assert programs.tensorflow(RELEASES) == folder


def test_tensorflow_of_conda(site, tmp_path):
    site(PACKAGE, "lib/libtensorflow_cc.so.2", f"{SITE}/tensorflow-2.18.0.dist-info/METADATA")
    assert programs.tensorflow(RELEASES) == tmp_path / "lib"


@pytest.mark.parametrize(
    ("paths", "version", "want"),
    [
        (
            [],
            (3, 11),
            r"^TensorFlow is not installed; expected 2\.18 to 2\.21: run \S+ -m pip install "
            r"'tensorflow-cpu==2\.18\.\*'$",
        ),
        ([], (3, 13), r"'tensorflow-cpu==2\.20\.\*'$"),
        (
            [],
            (3, 14),
            r"^TensorFlow is not installed, and the releases that gorbit runs with "
            r"\(2\.18 to 2\.21\) are not for Python 3\.14; expected an environment of Python 3\.9 "
            r"to 3\.13$",
        ),
        (
            [PACKAGE, f"{SITE}/tensorflow_cpu-2.17.1.dist-info/METADATA"],
            (3, 11),
            r"^TensorFlow in \S+ is 2\.17; expected 2\.18 to 2\.21: run ",
        ),
        ([PACKAGE, f"{SITE}/tensorflow-2.22.0.dist-info/METADATA"], (3, 11), r"is 2\.22; expected"),
        ([PACKAGE], (3, 11), r"tensorflow has no libtensorflow_cc\.so\.2; expected a wheel of Te"),
    ],
)
def test_tensorflow_that_is_wrong(site, monkeypatch, paths, version, want):
    site(*paths)
    monkeypatch.setattr(sys, "version_info", version)
    with pytest.raises(gorbit.Error, match=want) as caught:
        programs.tensorflow(RELEASES)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("libc", "want"),
    [
        ("glibc 2.31", r"is glibc 2\.31; expected glibc 2\.34 or later: take a newer Linux$"),
        (None, r"is not glibc; expected glibc 2\.34 or later, as in most Linuxes$"),
        ("glibc 2.34", None),
        ("glibc 2.41", None),
    ],
)
def test_c_libraries(monkeypatch, libc, want):
    monkeypatch.setattr(os, "confstr", lambda _: libc)
    if want is None:
        programs._check_libc((2, 34))
        return
    with pytest.raises(gorbit.Error, match=want):
        programs._check_libc((2, 34))


def test_the_demo_without_tensorflow(tmp_path, monkeypatch, capsys):
    """The demo says what is missing before it fetches anything."""

    def environment():
        raise gorbit.Error("TensorFlow is not installed")

    monkeypatch.setattr(programs, "environment", environment)
    assert demo.main(["--cache", str(tmp_path / "cache"), "--out", str(tmp_path / "demo")]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "gorbit demo: TensorFlow is not installed\n")
    assert not list(tmp_path.iterdir())


def test_bars(monkeypatch, capsys):
    """A bar for each phase, by what tqdm is asked for, and lines above it."""
    calls = []

    class Bar:
        def __init__(self, desc, total, initial, unit, leave):
            calls.append((desc, total, initial, leave))
            self.n = initial

        def set_postfix(self, values, refresh):
            calls.append(values)

        def update(self, n):
            self.n += n
            calls.append(self.n)

        def close(self):
            calls.append("close")

        @staticmethod
        def write(text, file):
            calls.append(text)

    monkeypatch.setattr("gorbit.progress._bars", lambda: Bar)
    display = gorbit.process.Progress(True)
    display.line("before")
    display.event({"event": "begin", "phase": "train", "step": 2, "total": 9})
    display.event({"event": "step", "phase": "train", "step": 5, "loss": 0.123456})
    display.event({"event": "begin", "phase": "eval", "step": 0, "total": -1})
    display.line("above")
    display.event({"event": "finish", "phase": "eval"})
    display.event({"event": "step", "phase": "train", "step": 4, "loss": "NaN"})
    display.close()
    assert calls == [
        *(("train", 9, 2, True), {"loss": "0.1235"}, 5, ("eval", None, 0, False), "above"),
        *("close", {"loss": "NaN"}, 4, "close"),
    ]
    assert capsys.readouterr().out == "before\n"
