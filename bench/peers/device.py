"""What the peers tell their libraries about the device of a job.

On a GPU, float32 products are computed in TF32 where the GPU has it, in every library:
TensorFlow does so unasked, gorbit through it, and torch is told to. Nothing here changes
anything on a CPU.
"""

from __future__ import annotations

from harness import plan


def tensorflow(job: plan.Job) -> None:
    """Checks that TensorFlow has the job's device, before anything else uses TensorFlow.

    Raises:
        RuntimeError: if it is not to be had: TensorFlow would take the CPU and say nothing.
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
        RuntimeError: if it is not to be had.
    """
    if not job.gpu:
        return "cpu"
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError(f"torch {torch.__version__} cannot use the GPU; is its driver too old?")
    # That is TF32 for products. The default, "highest", is without.
    torch.set_float32_matmul_precision("high")
    return "cuda"


def tensorflow_done(job: plan.Job, done: int) -> None:
    """Waits for the GPU where the time of the step that is done counts: it runs behind."""
    if job.gpu and job.counts(done):
        import tensorflow as tf

        tf.test.experimental.sync_devices()


def torch_done(job: plan.Job, done: int) -> None:
    """Waits for the GPU where the time of the step that is done counts."""
    if job.gpu and job.counts(done):
        import torch

        torch.cuda.synchronize()
