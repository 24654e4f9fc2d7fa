"""The release of TensorFlow that exports are made with."""

from __future__ import annotations

TENSORFLOW = "2.18"
"""The release whose graphs gorbit's library runs."""


def check() -> None:
    """Raises ImportError unless the release that gorbit runs can be imported."""
    wanted = f"pip install 'tensorflow-cpu=={TENSORFLOW}.*'"
    try:
        import tensorflow as tf
    except ImportError as err:
        raise ImportError(f"cannot import TensorFlow ({err}); run {wanted}") from err
    if not tf.__version__.startswith(TENSORFLOW + "."):
        raise ImportError(f"TensorFlow is {tf.__version__}; expected {TENSORFLOW}; run {wanted}")
