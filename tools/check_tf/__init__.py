"""Runs gorbit with other releases of TensorFlow than the one it is built and tested with."""
