"""Exports TensorFlow training graphs as SavedModels that gorbit drives from Go."""

# TensorFlow's library has functions of OpenSSL's names. Its wheel for TPUs loads it before these
# modules, which would take its functions for OpenSSL's, and crash.
import hashlib  # noqa: F401
import os
import ssl  # noqa: F401

# An export needs no TPU: with libtpu loaded, this process would hold the chips of a TPU VM, and
# elsewhere would look for a metadata server for minutes.
os.environ.setdefault("TPU_LOAD_LIBRARY", "0")

from gorbit_export.models import Feature, Model, Phase, Refusal, restore

__all__ = ["Feature", "Model", "Phase", "Refusal", "restore"]
