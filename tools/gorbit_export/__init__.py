"""Exports TensorFlow training graphs as SavedModels that gorbit drives from Go."""

from gorbit_export.models import Feature, Model, Refusal, restore

__all__ = ["Feature", "Model", "Refusal", "restore"]
