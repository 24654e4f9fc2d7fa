"""tf.distribute's strategies around the Model Garden's BERT, through Orbit."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

from harness import plan
from harness.companions import Companion
from peers.base import ONEDNN, Variant
from peers.orbit import Orbit


class Distribute(Orbit):
    """The trainer of peers.orbit, whose step is strategy.run in a tf.function's loop.

    The variants differ in the strategy only. Model, batches and the total of two threads are the
    same.
    """

    name = "distribute"
    variants = (
        Variant("one", "tf.distribute, OneDeviceStrategy, two threads", ONEDNN),
        Variant("mirrored", "tf.distribute, MirroredStrategy, two devices of one thread", ONEDNN),
        Variant(
            "workers",
            "tf.distribute, MultiWorkerMirroredStrategy, two processes of one thread",
            ONEDNN,
        ),
    )

    def beside(self, job: plan.Job, python: str) -> list[Companion]:
        """The second worker; the first one is the command itself."""
        if job.variant != "workers":
            return []
        second = dataclasses.replace(job, options={**job.options, "task": "1"})
        return [Companion(self.command(second, python))]

    def strategy(self, job: plan.Job) -> Any:
        """The strategy of the variant, and its threads."""
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(2 if job.variant == "one" else 1)
        tf.config.threading.set_inter_op_parallelism_threads(2)
        if job.variant == "one":
            return tf.distribute.OneDeviceStrategy("/cpu:0")
        if job.variant == "mirrored":
            [processor] = tf.config.list_physical_devices("CPU")
            two = [tf.config.LogicalDeviceConfiguration()] * 2
            tf.config.set_logical_device_configuration(processor, two)
            return tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
        os.environ["TF_CONFIG"] = json.dumps(
            {
                "cluster": {"worker": [f"127.0.0.1:{port}" for port in job.ports]},
                "task": {"type": "worker", "index": int(job.options.get("task", 0))},
            }
        )
        return tf.distribute.MultiWorkerMirroredStrategy()
