"""Checks of what gorbit runs on TPUs, by TensorFlow's TPU passes and by the TPU compiler.

Neither needs a TPU, and neither runs anything: see docs/guide/tpu.md.
"""
