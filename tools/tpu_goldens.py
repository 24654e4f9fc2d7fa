"""Writes graphs of tf.compat.v1.tpu.replicate, with which Go's are compared.

Usage: python tools/tpu_goldens.py [FOLDER]    (from the root of the checkout, after make setup)

FOLDER is strategy/internal/compose/testdata/tpu if it is not given. No TPU is needed. Each graph
is a step of gradient descent on the replicas of a TPU of 2 x 2 chips with 2 cores each: the
gradient of the sum of the squares of x times w, its sum over the replicas, the update of w, and a
count of steps.

    step_N    one step on N replicas
    branch_N  one step that updates only if the loss is finite
    loop_N    a loop of steps, whose number is fed

tpu/testdata/configure.pb, which is written too, is the call by which initialize_tpu_system
configures a TPU.
"""

from __future__ import annotations

import os
import pathlib
import sys
from collections.abc import Sequence
from typing import Any
from unittest import mock

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute import tpu_util
from tensorflow.python.eager import context
from tensorflow.python.tpu import device_assignment, topology, tpu, tpu_strategy_util, training_loop
from tensorflow.python.tpu.ops import tpu_ops

TASK = "/job:worker/replica:0/task:0/device:"
FOLDER = "strategy/internal/compose/testdata/tpu"
CONFIGURE = "tpu/testdata/configure.pb"
v1 = tf.compat.v1


class Mirrored:
    """A variable with a copy on each core, all of which are set from one fed value."""

    def __init__(self, name: str, shape: Sequence[int], dtype: tf.DType, replicas: int) -> None:
        """Adds the variable to the graph."""
        self.name = name
        self.handles = []
        assigned = []
        with tf.device(TASK + "CPU:0"):
            value = v1.placeholder(dtype, shape, name=f"{name}/value")
        for i in range(replicas):
            with tf.device(f"{TASK}TPU:{i}"):
                handle = tf.raw_ops.VarHandleOp(
                    dtype=dtype, shape=shape, shared_name=f"{name}_{i}", name=f"{name}_{i}"
                )
                tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype, name=f"{name}_{i}/read")
                assigned.append(
                    tf.raw_ops.AssignVariableOp(
                        resource=handle, value=value, name=f"{name}_{i}/assign"
                    )
                )
            self.handles.append(handle)
        with tf.device(TASK + "CPU:0"), tf.control_dependencies(assigned):
            tf.raw_ops.NoOp(name=f"{name}/assigned")

    def handle(self) -> tf.Tensor:
        """Returns the handle of the replica whose program is traced."""
        enclosing = tpu_util.enclosing_tpu_context()
        return enclosing.get_replicated_var_handle(self.name, self.name, self.handles, True)


@tf.function(autograph=False)
def gradients(x: tf.Tensor, w: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the sum of the squares of x times w, and its gradient."""
    y = x @ tf.raw_ops.ReadVariableOp(resource=w, dtype=tf.float32)
    return tf.reduce_sum(y * y), tf.matmul(x, 2 * y, transpose_a=True)


@tf.function(autograph=False)
def update(w: tf.Tensor, gradient: tf.Tensor, rate: tf.Tensor) -> tf.Tensor:
    """Updates a variable."""
    tf.raw_ops.ResourceApplyGradientDescent(var=w, alpha=rate, delta=gradient, use_locking=True)
    return tf.constant(0)


def build(kind: str, replicas: int) -> v1.GraphDef:
    """Returns a graph."""
    with tf.Graph().as_default() as graph:
        with tf.device(TASK + "CPU:0"):
            xs = [v1.placeholder(tf.float32, [4, 3], name=f"x{i}") for i in range(replicas)]
            rate = v1.placeholder(tf.float32, [], name="rate")
            steps = v1.placeholder(tf.int32, [], name="steps")
        w = Mirrored("w", [3, 2], tf.float32, replicas)
        count = Mirrored("count", [], tf.int64, replicas)

        def step(x: tf.Tensor, rate: tf.Tensor, w: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
            loss, gradient = gradients(x, w)
            gradient = tpu_ops.cross_replica_sum(gradient)
            total = tpu_ops.cross_replica_sum(loss)
            if kind == "branch":
                updated = tf.cond(
                    tf.math.is_finite(total),
                    lambda: tf.group(update(w, gradient, rate).op),
                    lambda: tf.no_op(),
                )
            else:
                updated = update(w, gradient, rate)
            with tf.control_dependencies([updated]):
                counted = tf.raw_ops.AssignAddVariableOp(
                    resource=count, value=tf.constant(1, tf.int64)
                )
            with tf.control_dependencies([counted]):
                return tf.identity(total)

        def computation(x: tf.Tensor, rate: tf.Tensor, *rest: tf.Tensor) -> tf.Tensor:
            own, counter = w.handle(), count.handle()
            if kind != "loop":
                return step(x, rate, own, counter)
            return training_loop.repeat(
                rest[0], lambda _: step(x, rate, own, counter), [tf.constant(0.0)]
            )

        mesh = topology.Topology(
            mesh_shape=[2, 2, 1, 2],
            device_coordinates=np.array(
                [[[x, y, 0, c] for y in (0, 1) for x in (0, 1) for c in (0, 1)]], np.int32
            ),
        )
        v1.tpu.replicate(
            computation,
            [[x, rate] + [steps] * (kind == "loop") for x in xs],
            device_assignment=device_assignment.device_assignment(
                mesh, computation_shape=[1, 1, 1, 1], num_replicas=replicas
            ),
        )
        return graph.as_graph_def()


class Resolver(tf.distribute.cluster_resolver.SimpleClusterResolver):
    """What initialize_tpu_system asks of a TPUClusterResolver, of a TPU that is not there."""

    tpu_hardware_feature = None
    _tpu = "golden"

    def get_job_name(self) -> str:
        """The job that has the TPU."""
        return "worker"


def configure() -> v1.GraphDef:
    """Returns the graph of a session that configures a TPU as initialize_tpu_system does."""
    given: dict[str, Any] = {}

    def initialize(job: str, **options: Any) -> None:
        given.update(options)
        raise InterruptedError

    with mock.patch.object(tpu, "initialize_system", initialize):
        try:
            cluster = tf.train.ClusterSpec({"worker": ["127.0.0.1:1"]})
            tpu_strategy_util.initialize_tpu_system_impl(Resolver(cluster), Resolver)
        except InterruptedError:
            pass
    with tf.Graph().as_default() as graph:
        tpu.initialize_system(job="worker", **given)
        return graph.as_graph_def()


def main(argv: list[str]) -> int:
    """Writes all graphs."""
    v1.disable_v2_behavior()
    v1.enable_control_flow_v2()
    folder = pathlib.Path(argv[0] if argv else FOLDER)
    folder.mkdir(parents=True, exist_ok=True)
    for kind in ("step", "branch", "loop"):
        for replicas in (2, 8):
            content = build(kind, replicas).SerializeToString(deterministic=True)
            (folder / f"{kind}_{replicas}.pb").write_bytes(content)
    with context.eager_mode():
        configured = configure().SerializeToString(deterministic=True)
    pathlib.Path(CONFIGURE).write_bytes(configured)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
