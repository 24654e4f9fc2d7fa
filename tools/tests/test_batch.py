"""Tests batch.py on the scheduler of this machine."""

import json
import os
import platform
import re
import subprocess
import sys

import pytest
from helpers import ROOT

import batch

TOOL = [sys.executable, str(ROOT / "tools" / "batch.py")]

GETATTR = {"x86_64": 315, "aarch64": 275}

# What a process that the command starts is told about itself.
SEEN = f"""
import ctypes, json, os, struct, subprocess, sys
if len(sys.argv) == 1:
    sys.exit(subprocess.run([sys.executable, __file__, "child"]).returncode)
attr = ctypes.create_string_buffer(56)
ctypes.CDLL(None).syscall({GETATTR.get(platform.machine())}, 0, attr, 56, 0)
runtime = struct.unpack({batch._ATTR!r}, attr.raw)[5]
policy = os.sched_getscheduler(0)
print(json.dumps({{"batch": policy == os.SCHED_BATCH, "nice": os.nice(0), "slice": runtime}}))
"""


def granted() -> bool:
    """Whether the kernel grants long slices; asked in a process of its own, which then has them."""
    script = "import batch; print(batch.ask_for_long_slices())"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "tools")}
    said = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, check=True)
    return said.stdout.strip() == b"True"


@pytest.mark.parametrize("more", [0, 3])
def test_what_it_starts_has_long_slices_and_its_nice_value(tmp_path, more):
    if platform.machine() not in GETATTR or not granted():
        pytest.skip("this system grants no process a scheduling policy of its own")
    script = tmp_path / "seen.py"
    script.write_text(SEEN)
    words = ["nice", "-n", str(more), *TOOL, sys.executable, str(script)]
    run = subprocess.run(words, capture_output=True, text=True, check=True)
    got = json.loads(run.stdout)
    assert (got["batch"], got["nice"]) == (True, min(19, os.nice(0) + more))
    if tuple(map(int, re.findall(r"\d+", platform.release())[:2])) >= (6, 12):
        assert got["slice"] == batch.SLICE_NS


def test_the_command_runs_where_nothing_is_granted():
    assert batch.ask_for_long_slices(machine="unheard of") is False


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["sh", "-c", "exit 3"], 3, ""),
        ([], 2, "no command given; expected one, such as make test"),
        (["no-such-command"], 127, "no-such-command: No such file or directory"),
    ],
)
def test_the_exit_code_is_the_commands(words, code, message):
    run = subprocess.run([*TOOL, *words], capture_output=True, text=True, check=False)
    assert run.returncode == code
    assert message in run.stderr
    assert bool(run.stderr) == bool(message)
