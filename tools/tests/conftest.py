"""Shared by the tests: quiet TensorFlow, and real data beside the checkout."""

from __future__ import annotations

import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import pytest
from helpers import ROOT


@pytest.fixture
def shared_data() -> pathlib.Path:
    path = ROOT.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip(
            f"no real data next to the checkout: {path}; "
            "without it there are small files of the same forms, in the tests beside this one"
        )
    return path
