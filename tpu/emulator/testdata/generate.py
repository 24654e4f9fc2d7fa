"""Makes the graphs and numbers that the tests of the emulator compare with.

Run from the checkout: .venv/bin/python tpu/emulator/testdata/generate.py

Graphs: tf.compat.v1.tpu.replicate of TensorFlow writes them, for a TPU 2x2x1x2. Each replica
has 4 examples of a linear model y = x w; the loss is the sum of y^2. The gradients and losses
of all replicas are summed (CrossReplicaSum), and the variables are updated unless the norm is
not finite. The kinds:

    step   one step; the update is an If with resources
    loop   a functional While over steps, until one is not applied
    calls  as loop, with the sums in a function that the body calls
    branch one step, with the sum in a branch of an If

Numbers: losses and variables of the same steps on the full batch, by TensorFlow without TPUs.
"""

import json
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute import tpu_util
from tensorflow.python.framework import kernels
from tensorflow.python.tpu import device_assignment, topology
from tensorflow.python.tpu.ops import tpu_ops

v1 = tf.compat.v1
HERE = pathlib.Path(__file__).parent
HOST = "/job:worker/replica:0/task:0/device:"
STEPS, EXAMPLES, IN, OUT = 4, 4, 3, 2
GRAPHS = [("step", 2), ("step", 8), ("loop", 2), ("loop", 8), ("calls", 2), ("branch", 2)]


def variable(name: str, shape: list[int], value: np.ndarray, dtype: tf.DType, replica: int):
    """Adds a variable of a core, which fetches and targets NAME_REPLICA/Read and /Assign use."""
    with tf.device(f"{HOST}TPU:{replica}"):
        name = f"{name}_{replica}"
        handle = tf.raw_ops.VarHandleOp(
            dtype=dtype, shape=shape, shared_name=name, container="", name=name
        )
        assign = tf.raw_ops.AssignVariableOp(
            resource=handle, value=tf.constant(value, dtype, shape), name=f"{name}/Assign"
        )
        tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype, name=f"{name}/Read")
    return handle, assign


def gradients(x: tf.Tensor, w: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the loss of examples, and its gradient."""
    y = tf.matmul(x, w)
    return tf.reduce_sum(y * y), tf.matmul(x, 2.0 * y, transpose_a=True)


def model(kind: str):
    """Returns the step of a replica: (x, rate, handles) to (loss, applied)."""

    @tf.function(autograph=False)
    def local(x, w):
        return gradients(x, tf.raw_ops.ReadVariableOp(resource=w, dtype=tf.float32))

    @tf.function(autograph=False)
    def local_sums(x, w):
        loss, g = gradients(x, tf.raw_ops.ReadVariableOp(resource=w, dtype=tf.float32))
        return tpu_ops.cross_replica_sum(loss), tpu_ops.cross_replica_sum(g)

    def step(x, rate, w, it):
        if kind == "calls":
            loss, g = local_sums(x, w)
        else:
            loss, g = local(x, w)
            if kind == "branch":
                g = tf.cond(rate > 0.0, lambda: tpu_ops.cross_replica_sum(g), lambda: g)
                loss = tpu_ops.cross_replica_sum(loss)
            else:
                loss, g = tpu_ops.cross_replica_sum(loss), tpu_ops.cross_replica_sum(g)
        applied = tf.math.is_finite(tf.reduce_sum(g * g))

        def update():
            a = tf.raw_ops.ResourceApplyGradientDescent(
                var=w, alpha=rate, delta=g, use_locking=True
            )
            b = tf.raw_ops.AssignAddVariableOp(resource=it, value=tf.constant(1, tf.int64))
            with tf.control_dependencies([a, b]):
                return tf.constant(True)

        return loss, tf.cond(applied, update, lambda: tf.constant(False))

    def loop(x, rates, n, w, it):
        def body(k, go, losses):
            loss, applied = step(x[k], rates[k], w, it)
            return k + 1, applied, tf.tensor_scatter_nd_update(losses, [[k]], [loss])

        return tf.while_loop(
            lambda k, go, losses: tf.logical_and(k < n, go),
            body,
            [tf.constant(0), tf.constant(True), tf.zeros([STEPS])],
        )

    return step, loop


def build(kind: str, replicas: int) -> tf.compat.v1.GraphDef:
    """Builds the graph of replicas of a step or a loop."""
    mesh = np.array(
        [[[x, y, 0, c] for y in (0, 1) for x in (0, 1) for c in (0, 1)]], np.int32
    )
    topo = topology.Topology(mesh_shape=[2, 2, 1, 2], device_coordinates=mesh)
    looped = kind in ("loop", "calls")
    with tf.Graph().as_default() as g:
        with tf.device(HOST + "CPU:0"):
            shape = [STEPS, EXAMPLES, IN] if looped else [EXAMPLES, IN]
            feeds = [v1.placeholder(tf.float32, shape, f"x{i}") for i in range(replicas)]
            rate = v1.placeholder(tf.float32, [STEPS] if looped else [], "rate")
            n = v1.placeholder(tf.int32, [], "n") if looped else None
        w, it, inits = [], [], []
        for i in range(replicas):
            first = np.arange(IN * OUT).reshape(IN, OUT) / 10.0
            for handles, arguments in (
                (w, ("w", [IN, OUT], first, tf.float32, i)),
                (it, ("it", [], 0, tf.int64, i)),
            ):
                handle, init = variable(*arguments)
                handles.append(handle)
                inits.append(init)
        step, loop = model(kind)

        def replica(x, *rest):
            context = tpu_util.enclosing_tpu_context()
            mine = [
                context.get_replicated_var_handle(name, name, hs, True)
                for name, hs in (("w", w), ("it", it))
            ]
            return (loop if looped else step)(x, *rest, *mine)

        same = [rate, n] if looped else [rate]
        v1.tpu.replicate(
            replica,
            [[x, *same] for x in feeds],
            device_assignment=device_assignment.device_assignment(
                topo, computation_shape=[1, 1, 1, 1], num_replicas=replicas
            ),
        )
        tf.group(*inits, name="init")
        return g.as_graph_def()


def expected(replicas: int) -> dict:
    """Runs the steps on the full batch and returns what is fed and what comes out."""
    rng = np.random.default_rng(replicas)
    x = rng.uniform(-1, 1, [STEPS, replicas, EXAMPLES, IN]).astype(np.float32)
    rates = (0.01 / np.arange(1, STEPS + 1)).astype(np.float32)
    with tf.Graph().as_default(), v1.Session() as s:
        feed, rate = v1.placeholder(tf.float32, [None, IN]), v1.placeholder(tf.float32, [])
        w = v1.get_variable("w", initializer=np.arange(IN * OUT).reshape(IN, OUT).astype("f4") / 10)
        loss, g = gradients(feed, w)
        with tf.control_dependencies([loss]):
            update = v1.assign_sub(w, rate * g)
        s.run(v1.global_variables_initializer())
        out = [
            s.run([loss, update], {feed: x[k].reshape(-1, IN), rate: rates[k]})
            for k in range(STEPS)
        ]
    return {
        "x": x.tolist(),
        "rates": rates.tolist(),
        "losses": [float(loss) for loss, _ in out],
        "w": [w.tolist() for _, w in out],
    }


def operations() -> list[str]:
    """Returns the operations that XLA compiles for the CPU."""
    tf.function(lambda x: x + 1, jit_compile=True)(tf.constant(1.0))  # registers the kernels
    registered = kernels.get_all_registered_kernels().kernel
    return sorted({k.op for k in registered if k.device_type == "XLA_CPU_JIT"})


def main() -> None:
    (HERE / "xla_ops.txt").write_text("\n".join(operations()) + "\n")
    v1.disable_v2_behavior()
    v1.enable_control_flow_v2()
    for kind, replicas in GRAPHS:
        graph = build(kind, replicas)
        for function in graph.library.function:
            for node in function.node_def:
                node.ClearField("experimental_debug_info")
        path = HERE / f"{kind}_{replicas}.pb"
        path.write_bytes(graph.SerializeToString(deterministic=True))
    numbers = {str(n): expected(n) for n in sorted({n for _, n in GRAPHS})}
    (HERE / "expected.json").write_text(json.dumps(numbers) + "\n")


if __name__ == "__main__":
    main()
