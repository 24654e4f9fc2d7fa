"""Checks of what gorbit runs on TPUs, by TensorFlow's TPU passes and by the TPU compiler.

None needs a TPU, and none runs anything on one: see docs/guide/tpu.md.
"""
