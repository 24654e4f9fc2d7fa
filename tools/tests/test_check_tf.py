"""Tests check_tf on made-up results; the releases themselves where they were fetched."""

from __future__ import annotations

import re

import pytest

from check_tf import releases
from check_tpu.common import CACHE, ROOT, CheckError
from gorbit_export import release


def results(**numbers: float) -> releases.Results:
    return releases.Results("2.21.0", numbers)


def test_differences():
    expected = results(loss=0.5, predicted=0.25)
    assert releases.differences(results(loss=0.5, predicted=0.25), expected) == 0
    nearly = releases.differences(results(loss=0.500001, predicted=0.25), expected)
    assert nearly == pytest.approx(2e-6, rel=1e-3)
    for wrong in (results(loss=0.501, predicted=0.25), results(loss=float("nan"), predicted=0.25)):
        with pytest.raises(CheckError, match=r"loss is .*; expected 0.5"):
            releases.differences(wrong, expected)
    with pytest.raises(CheckError, match="predicted"):
        releases.differences(results(loss=0.5), expected)


def test_releases_are_those_that_are_allowed():
    """Setup, the exporter and the check name the same releases."""
    checked = sorted(file.stem for file in releases.REQUIREMENTS.glob("2.*.txt"))
    assert checked[-1] == release.NEWEST
    setup = (ROOT / "tools" / "setup.sh").read_text(encoding="utf-8")
    named = re.search(r"RELEASE is \$release; expected ([\d., or]+)\"", setup)[1]
    assert re.findall(r"\d\.\d+", named) == [release.TENSORFLOW, *checked]
    source = (ROOT / "cmd" / "gorbit-setup" / "source.go").read_text(encoding="utf-8")
    bounds = re.search(r"oldest = (\d+)\n\tnewest = (\d+)\n", source)
    assert [f"2.{n}" for n in bounds.groups()] == [release.TENSORFLOW, release.NEWEST]


def test_one_release_works():
    """bin/gorbit works with the newest release, if it was fetched by make check-tf."""
    python = CACHE / "check-tf" / release.NEWEST / "bin" / "python"
    if not python.exists() or not (ROOT / "bin" / "gorbit").exists():
        pytest.skip(f"TensorFlow {release.NEWEST} was not fetched; run make check-tf")
    assert releases.main(["--only", release.NEWEST]) == 0
