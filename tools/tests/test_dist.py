"""Tests of tools/dist.py; cmd/gorbit's TestInstalledTreeStandsAlone runs what it installs."""

from __future__ import annotations

import errno
import subprocess
import sys

import pytest

import dist


@pytest.mark.parametrize(
    ("error", "want"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "library", None, "prefix/library"),
            "dist: prefix/library: No space left on device; make room, or choose another folder, "
            "as PREFIX=FOLDER",
        ),
        (
            PermissionError(errno.EACCES, "Permission denied", "prefix/bin"),
            "dist: prefix/bin: Permission denied; expected a folder to write to, as PREFIX=FOLDER",
        ),
        (
            subprocess.CalledProcessError(127, ["bin/gorbit"], b"", b"no such library\n"),
            "dist: bin/gorbit does not run: no such library; run make build",
        ),
    ],
)
def test_failures_are_one_sentence(
    error: Exception, want: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """What fails is said in one line that names the place to write to."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(dist, "stage", fail)
    monkeypatch.setattr(sys, "argv", ["dist.py", "install", "prefix"])
    assert dist.main() == 1
    assert capsys.readouterr().err == want + "\n"
