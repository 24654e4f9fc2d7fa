"""Compares what a TPU's program computes with what TensorFlow's own kernels do.

The program is run by XLA on CPU devices, each of which is a replica. `gorbit tpu-emulator` runs the
graph of which it was made with TensorFlow's kernels. Both get the same batches, another one for
each replica, and the same variables. Dropout is off, as its random numbers are others on a TPU.
"""

from __future__ import annotations

import contextlib
import pathlib
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from check_tpu import passes
from check_tpu.chain import Lowered
from check_tpu.common import LENGTH, TOOLS, CheckError, command

CLOSE = 1e-5
"""How much a result may differ, as a part of the largest value of its tensor."""
UNSTEADY = re.compile(r"attention.key.bias")
"""Variables whose true gradient is 0: theirs is what rounding leaves."""
SCALARS = {
    "learning_rate": 1e-2,
    "weight_decay": 0.01,
    "clip_norm": 1,
    "hidden_dropout": 0,
    "attention_dropout": 0,
    "classifier_dropout": 0,
    "label_smoothing": 0.1,
    "beta_1": 0.9,
    "beta_2": 0.999,
    "epsilon": 1e-3,
}
"""The steps' scalars. With a smaller epsilon Adam would enlarge what rounding leaves."""

v1 = tf.compat.v1
Arrays = dict[str, np.ndarray]


def difference(
    lowered: Lowered, gorbit: str, python: str, rows: int, timeout: int
) -> tuple[int, float, str]:
    """Runs a training program both ways.

    Args:
        lowered: the program.
        gorbit: the program that has the emulator.
        python: the interpreter of the environment of the compiler.
        rows: of a replica's batch.
        timeout: seconds for each way.

    Returns:
        How many tensors were compared, the largest difference, and the tensor that has it.

    Raises:
        CheckError: if one way cannot be run, or the replicas' variables differ.
    """
    random = np.random.default_rng(0)
    start = variables(lowered.runs["assign"], random)
    fed = {feed["name"]: fill(feed, rows, random) for feed in lowered.runs["train"]["feeds"]}
    got = executed(lowered, start, fed, python, timeout)
    want = emulated(lowered, start, fed, gorbit, timeout)
    steady = [name for name in want if not UNSTEADY.search(name)]
    return len(steady), *max((apart(got[name], want[name]), name) for name in steady)


def apart(got: np.ndarray, want: np.ndarray) -> float:
    """Returns how much a tensor differs, as a part of its largest value."""
    if got.shape != want.shape or got.dtype != want.dtype:
        raise CheckError(f"{got.dtype}{got.shape}; expected {want.dtype}{want.shape}")
    got, want = got.astype(np.float64), want.astype(np.float64)
    far = float(np.max(np.abs(got - want), initial=0))
    if not np.isfinite(far):
        return float("inf")
    return far / max(float(np.max(np.abs(want), initial=0)), 1e-30) if far else 0.0


def variables(assign: dict[str, Any], random: np.random.Generator) -> Arrays:
    """Returns values of all variables, by name."""
    out = {}
    for feed in assign["feeds"]:
        name = feed["name"].removeprefix("value/").removesuffix(":0")
        value = np.asarray(random.normal(0, 0.05, feed["shape"]), feed["dtype"])
        if name.endswith("norm/scale") and not name.startswith("optimizer/"):
            value += 1
        if name.startswith("optimizer/v/"):
            value = np.square(value)
        out[name] = np.asarray(3, np.int64) if name == "optimizer/iterations" else value
    return out


def fill(feed: dict[str, Any], rows: int, random: np.random.Generator) -> np.ndarray:
    """Returns values for a feed of a training call."""
    dtype, shape = feed["dtype"], feed["shape"]
    if "parts" not in feed:  # seeds, or the number of steps
        return np.full(shape, passes.STEPS[-1] if shape == [] else 7, dtype)
    made = np.concatenate(
        [part(each["name"], [*shape[:-1], each["size"]], rows, random) for each in feed["parts"]],
        axis=-1,
    )
    return made.astype(dtype)


def part(name: str, shape: list[int], rows: int, random: np.random.Generator) -> np.ndarray:
    """Returns values for a feature, or for a scalar: two examples in each row."""
    half = LENGTH // 2
    if name == "input_ids":
        return random.integers(0, 30522, shape)
    if name in ("type_ids", "labels"):
        return random.integers(0, 2, shape)
    if name == "sequence_ids":
        return np.broadcast_to(np.tile(np.repeat([1, 2], half), rows), shape)
    if name == "position_ids":
        return np.broadcast_to(np.tile(np.arange(half), 2 * rows), shape)
    if name == "cls_positions":
        return np.broadcast_to(np.arange(2 * rows) * half, shape)
    if name == "example_weights":
        return random.integers(1, 3, shape)
    if name not in SCALARS:
        raise CheckError(f"{name} is not known to check_tpu.compare; expected one of its SCALARS")
    return np.full(shape, SCALARS[name])


def executed(lowered: Lowered, start: Arrays, fed: Arrays, python: str, timeout: int) -> Arrays:
    """Returns what XLA's program gives: variables, and outputs of the call."""
    replicas = next(len(value) for name, value in fed.items() if name.endswith("/seeds:0"))
    known = {f"train/variable/{name}": value for name, value in start.items()}
    shared = {"train/scalars:0", "train/steps:0"}  # the same for all replicas
    known = {name: np.stack([value] * replicas) for name, value in known.items()}
    for name, value in fed.items():
        value = np.stack([value] * replicas) if name in shared else value
        known[name.removesuffix(":0").replace("train/", "train/input/", 1)] = value
    known = {f"{plain(name)}_0_arg": value for name, value in known.items()}
    folder = lowered.path.parent
    taken, given = folder / "arguments.npz", folder / "results.npz"
    np.savez(taken, *(known[name] for name in lowered.arguments))
    script = str(TOOLS / "check_tpu" / "execute.py")
    command([python, script, str(lowered.path), str(taken), str(given)], timeout)
    with np.load(given) as file:
        results = [file[f"arr_{i}"] for i in range(len(file.files))]
    names = [lowered.arguments[i] for i in lowered.assigned] + lowered.results
    if len(names) != len(results):
        raise CheckError(f"the program gives {len(results)} results; expected {len(names)}")
    for name, result in zip(names, results):
        if any(not np.array_equal(result[0], other, equal_nan=True) for other in result[1:]):
            raise CheckError(f"{name} differs between the replicas")
    given_back = dict(zip(names, (result[0] for result in results)))
    out = {}
    for name in start:
        out[name] = given_back[f"{plain('train/variable/' + name)}_0_arg"]
    for fetch in lowered.runs["train"]["fetches"]:
        name = fetch.removesuffix("/0:0")
        out[name] = next(v for k, v in given_back.items() if k.startswith(f"{plain(name)}_own"))
    return out


def plain(name: str) -> str:
    """Returns how the passes spell a name."""
    return re.sub(r"\W", "_", name)


def emulated(lowered: Lowered, start: Arrays, fed: Arrays, gorbit: str, timeout: int) -> Arrays:
    """Returns what TensorFlow's kernels give: variables, and outputs of the call."""
    assign, train, read = (lowered.runs[name] for name in ("assign", "train", "read"))
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(lowered.graph, name="")
        configure = graph_pb2.GraphDef.FromString(passes.CONFIGURE.read_bytes())
        tf.import_graph_def(configure, name="")
    config = v1.ConfigProto(operation_timeout_in_ms=1000 * timeout)
    with emulator(gorbit) as target, v1.Session(target, graph=graph, config=config) as session:
        session.run(graph.get_operation_by_name(configure.node[0].name))
        values = {feed["name"]: start[feed["name"][len("value/") : -2]] for feed in assign["feeds"]}
        session.run([graph.get_operation_by_name(name) for name in assign["targets"]], values)
        out = dict(zip(train["fetches"], session.run(train["fetches"], fed)))
        out.update(zip(read["fetches"], session.run(read["fetches"])))
    out = {re.sub(r"^read/|(/0)?:0$", "", name): value for name, value in out.items()}
    return {name: np.asarray(value) for name, value in out.items()}


@contextlib.contextmanager
def emulator(gorbit: str) -> Iterator[str]:
    """Runs an emulator of a TPU, and gives its address."""
    words = [gorbit, "tpu-emulator", "--listen", "127.0.0.1:0", "--topology", passes.TOPOLOGY]
    path = pathlib.Path(gorbit)
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            line = process.stdout.readline()
            address = re.search(r"127\.0\.0\.1:\d+", line)
            if not address:
                raise CheckError(f"{path.name} tpu-emulator said {line!r}; expected its address")
            yield f"grpc://{address[0]}"
        finally:
            process.terminate()
