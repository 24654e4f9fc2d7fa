"""Sets the peers' libraries up for the device of a job.

On a GPU with TF32, all libraries compute float32 products in TF32: it is the default of
TensorFlow, which gorbit uses, and torch is set to it. On a CPU nothing is changed.
"""

from __future__ import annotations

from harness import plan


def tensorflow(job: plan.Job) -> None:
    """Checks that TensorFlow has the job's device, before anything else uses TensorFlow.

    Raises:
        RuntimeError: if it has not. TensorFlow would use the CPU without a message.
    """
    if not job.gpu:
        return
    import tensorflow as tf

    if len(tf.config.list_physical_devices("GPU")) != 1:
        raise RuntimeError(f"TensorFlow {tf.__version__} cannot use the GPU")
    tf.config.experimental.enable_tensor_float_32_execution(True)


def torch(job: plan.Job) -> str:
    """Checks that torch has the job's device, and returns torch's name for it.

    Raises:
        RuntimeError: if it has not.
    """
    if not job.gpu:
        return "cpu"
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError(f"torch {torch.__version__} cannot use the GPU; is its driver too old?")
    # This is TF32 for products. The default, "highest", does not use it.
    torch.set_float32_matmul_precision("high")
    return "cuda"


def tensorflow_done(job: plan.Job, done: int) -> None:
    """Waits for the GPU, which runs behind, if the time of the last step is used."""
    if job.gpu and job.counts(done):
        import tensorflow as tf

        tf.test.experimental.sync_devices()


def torch_done(job: plan.Job, done: int) -> None:
    """Waits for the GPU if the time of the last step is used."""
    if job.gpu and job.counts(done):
        import torch

        torch.cuda.synchronize()
