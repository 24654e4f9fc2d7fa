"""Finds the packages next to this folder, and makes options."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from harness import cli


@pytest.fixture
def options(monkeypatch, tmp_path):
    """Makes the options of a command line where there are no programs and no results."""

    def make(*argv):
        monkeypatch.setattr(cli, "version", lambda program: "1")
        monkeypatch.setattr(cli, "BENCH", str(tmp_path))
        return cli.choose(cli.parser().parse_args(["--venvs", "/nowhere", *argv]))

    return make
