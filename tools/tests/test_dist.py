"""Tests of tools/dist.py; cmd/gorbit's TestInstalledTreeStandsAlone runs what it installs."""

from __future__ import annotations

import copy
import errno
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
from packaging import requirements

import dist
import dist_wheel
import sbom


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


def test_archives_are_equal(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two archives of one tree have the same bytes, and a checksum that sha256sum takes."""

    def stage(tree: pathlib.Path, *_: object, **__: object) -> None:
        (tree / "bin").mkdir(parents=True)
        (tree / "bin" / "gorbit").write_bytes(b"program")
        (tree / "bin" / "gorbit").chmod(0o755)
        os.link(tree / "bin" / "gorbit", tree / "bin" / "same")

    monkeypatch.setattr(dist, "stage", stage)
    monkeypatch.setattr(dist, "version", lambda *_: "0.1.0")
    monkeypatch.setattr(dist, "flavour", lambda: "cpu")
    archives = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        archives.append(dist.archive(tmp_path / name))
        os.utime(tmp_path / name, (1, 1))
    first, second = (path.read_bytes() for path in archives)
    assert first == second
    check = ["sha256sum", "--check", "--status", archives[0].name + ".sha256"]
    subprocess.run(check, cwd=archives[0].parent, check=True)


def test_bills_of_materials() -> None:
    """Components have names of package indexes, and one of two requirements is one component."""
    made_of = [
        sbom.component("golang", "github.com/BurntSushi/toml", "v1.2.3+incompatible"),
        sbom.required("tensorflow_cpu==2.18.*; python_version < '3.13'"),
        sbom.required("tensorflow_cpu>=2.20; python_version >= '3.13'"),
    ]
    content = sbom.bill("gorbit", "0.1.0", copy.deepcopy(made_of))
    assert content == sbom.bill("gorbit", "0.1.0", copy.deepcopy(made_of))
    bill = json.loads(content)
    assert [part["purl"] for part in bill["components"]] == [
        "pkg:golang/github.com/burntsushi/toml@v1.2.3%2Bincompatible",
        "pkg:pypi/tensorflow-cpu",
    ]
    assert [one["value"] for one in bill["components"][1]["properties"]] == [
        "tensorflow_cpu==2.18.*; python_version < '3.13'",
        "tensorflow_cpu>=2.20; python_version >= '3.13'",
    ]
    assert bill["serialNumber"].startswith("urn:uuid:")


@pytest.mark.parametrize(
    ("machine", "name"), [("x86_64", "tensorflow-cpu"), ("aarch64", "tensorflow")]
)
def test_the_tensorflow_of_a_wheel(machine: str, name: str) -> None:
    """ARM has no wheel of the name tensorflow-cpu."""
    wanted = [re.match(r"[\w-]+", one)[0] for one in dist_wheel.requirements(machine)]
    assert wanted[:2] == [name, name]
    marks = [requirements.Requirement(one).marker for one in dist_wheel.requirements(machine)[:2]]
    for minor, taken in ((8, 0), (9, 1), (12, 1), (13, 1)):  # pip tells 3.8 of Requires-Python
        python = {"python_version": f"3.{minor}"}
        assert sum(mark.evaluate(python) for mark in marks) == taken


@pytest.mark.parametrize(
    ("said", "want"),
    [
        ("Shared library: [libm.so.6]\nName: GLIBC_2.9\n Name: GLIBC_2.34\n", (2, 34)),
        ("Name: GLIBC_2.2.5", (2, 17)),
        ("Shared library: [libz.so.1]\nName: GLIBC_2.9", "gorbit needs libz.so.1; expected"),
        ("There are no versions", "gorbit names no version of glibc; expected a program for Li"),
    ],
)
def test_the_glibc_of_a_wheel(said: str, want: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tag is that of the newest symbols; TensorFlow's wheels need 2.17."""
    done = subprocess.CompletedProcess([], 0, said.encode())
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    if isinstance(want, tuple):
        assert dist_wheel.glibc([pathlib.Path("gorbit")]) == want
        return
    with pytest.raises(dist.Failure, match=want):
        dist_wheel.glibc([pathlib.Path("gorbit")])
