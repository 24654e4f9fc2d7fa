"""Tests gotest.py on go test itself."""

import os
import pathlib
import subprocess
import sys

from helpers import ROOT

GO_FILE = """
package sample

import (
	"os"
	"testing"
)

func TestGood(t *testing.T) { t.Log("of no interest") }

func TestSkipped(t *testing.T) {
	t.Run("part", func(t *testing.T) { t.Skip("needs what is not here") })
}

func TestBad(t *testing.T) {
	switch os.Getenv("SAMPLE") {
	case "fail":
		t.Error("it is bad")
	case "crash":
		panic("on fire")
	}
}
"""


def go_test(folder: pathlib.Path, how: str) -> tuple[int, str, str]:
    (folder / "go.mod").write_text("module sample\n\ngo 1.26\n")
    (folder / "sample_test.go").write_text(GO_FILE)
    notes = folder / "notes" / "skipped"
    tool = [sys.executable, ROOT / "tools" / "gotest.py", notes]
    env = {**os.environ, "SAMPLE": how, "GOFLAGS": "-buildvcs=false"}
    words = [*map(str, tool), "go", "test", "-count=1", "./..."]
    run = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)
    return run.returncode, run.stdout, notes.read_text()


SKIPPED = "sample TestSkipped/part: sample_test.go:12: needs what is not here\n"


def test_prints_what_go_test_prints(tmp_path):
    code, said, skipped = go_test(tmp_path, "")
    assert (code, skipped) == (0, SKIPPED)
    assert said.startswith("ok  \tsample\t")
    assert said.count("\n") == 1


def test_failures_are_told(tmp_path):
    code, said, skipped = go_test(tmp_path, "fail")
    assert (code, skipped) == (1, SKIPPED)
    assert "--- FAIL: TestBad" in said
    assert "it is bad" in said
    assert "FAIL\tsample\t" in said
    assert "of no interest" not in said


def test_crashes_are_told(tmp_path):
    code, said, _ = go_test(tmp_path, "crash")
    assert code == 1
    assert "panic: on fire" in said
    assert "FAIL\tsample\t" in said


def test_what_does_not_build_is_told(tmp_path):
    (tmp_path / "other_test.go").write_text("package sample\n\nvar x int = true\n")
    code, said, _ = go_test(tmp_path, "")
    assert code == 1
    assert "cannot use true" in said
    assert "FAIL\tsample [build failed]" in said
