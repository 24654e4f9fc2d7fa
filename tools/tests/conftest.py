"""Shared by the tests: quiet TensorFlow, and real data next to the checkout."""

from __future__ import annotations

import json
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import pytest
from helpers import ROOT

from gorbit_export import export


@pytest.fixture
def shared_data() -> pathlib.Path:
    path = ROOT.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip(
            f"no real data next to the checkout: {path}; "
            "without it there are small files of the same forms, in the tests beside this one"
        )
    return path


@pytest.fixture
def only_contract(monkeypatch) -> None:
    """Exports without their graphs, whose writing takes most of the time."""

    def write(module: export.Export, out: pathlib.Path) -> None:
        path = out / export.CONTRACT_FILE
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(module.contract()))

    monkeypatch.setattr(export, "_write", write)
