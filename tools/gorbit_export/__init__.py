"""Exports TensorFlow training graphs as SavedModels that gorbit drives from Go."""
