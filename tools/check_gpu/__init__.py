"""Shows gorbit's graphs to TensorFlow's placer, and to XLA's compiler of GPUs, without a GPU."""
