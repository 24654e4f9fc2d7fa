"""The releases of TensorFlow that exports are made with."""

from __future__ import annotations

import platform
import sys

TENSORFLOW = "2.18"
"""The release that gorbit is built and tested with."""
NEWEST = "2.21"
"""The newest release that gorbit was run with (make check-tf)."""


def wheel(machine: str) -> str:
    """Returns the name of TensorFlow's wheel for CPUs of a kind, which has no other on ARM."""
    return "tensorflow" if machine == "aarch64" else "tensorflow-cpu"


def check() -> None:
    """Raises ImportError unless a release that gorbit runs can be imported."""
    python = sys.version_info[:2]
    # Python 3.13 has no older ones, and later Pythons have none of these.
    oldest = TENSORFLOW if python < (3, 13) else "2.20"
    wanted = f"run pip install '{wheel(platform.machine())}=={oldest}.*'"
    if python > (3, 13):
        wanted = f"Python {python[0]}.{python[1]} has none of them: take Python 3.9 to 3.13"
    try:
        import tensorflow as tf
    except ImportError as err:
        raise ImportError(
            f"cannot import TensorFlow ({err}); expected {TENSORFLOW} to {NEWEST}; {wanted}"
        ) from err
    found = tf.__version__
    if not _number(TENSORFLOW) <= _number(found) <= _number(NEWEST):
        raise ImportError(f"TensorFlow is {found}; expected {TENSORFLOW} to {NEWEST}; {wanted}")


def _number(release: str) -> tuple[int, ...]:
    """Returns the first two numbers of a release."""
    return tuple(int(part) for part in release.split(".")[:2])
