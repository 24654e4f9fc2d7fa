"""Prints what TensorFlow's library for TPUs has kernels for, as JSON.

Usage: python -m check_tpu.kernels

It runs with that library (see common.tpu_environment), and with libtpu. The rest judges operations
by what it printed.
"""

from __future__ import annotations

import _hashlib  # noqa: F401
import hashlib  # noqa: F401
import json
import os
import ssl  # noqa: F401
from collections.abc import Iterable, Sequence

# Importing tensorflow-tpu 2.18.0 ends the process, unless hashlib, _hashlib and ssl come first.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.python.framework import kernels

from check_tpu.common import TOOLS
from check_tpu.registered import core

Types = dict[str, set[str]]
"""The dtypes that a kernel takes, by the operation's attribute."""

EMULATED = TOOLS.parent / "tpu" / "emulator" / "testdata" / "xla_ops.txt"
"""The operations that the emulator takes in a program."""


def main() -> None:
    """Prints, for each device, the operations and the dtypes of their kernels."""
    traced = tf.function(lambda x: x, jit_compile=True, input_signature=[tf.TensorSpec([])])
    # This registers the kernels of programs, of all operations.
    traced.experimental_get_compiler_ir(tf.TensorSpec([]))(stage="hlo", platform_name="TPU")
    found: dict[str, dict[str, list[dict[str, list[str]]]]] = {}
    for kernel in kernels.get_all_registered_kernels().kernel:
        types = {
            constraint.name: [tf.as_dtype(t).name for t in constraint.allowed_values.list.type]
            for constraint in kernel.constraint
        }
        found.setdefault(kernel.device_type, {}).setdefault(kernel.op, []).append(types)
    print(json.dumps(found))


class Kernels:
    """The kernels of TensorFlow's library for TPUs.

    Attributes:
        on_cores: operations that a core runs outside of a program.
    """

    def __init__(self, text: str) -> None:
        """Reads what main prints."""
        found = json.loads(text)
        self.on_cores = {*found["TPU"], *found["DEFAULT"]}
        self._tpu, self._cpu = (
            {op: united(of) for op, of in found[f"XLA_{kind}_JIT"].items()}
            for kind in ("TPU", "CPU")
        )

    def missing(self, graphs: Sequence[graph_pb2.GraphDef]) -> list[str]:
        """Returns what is on a core in registered graphs, and has no kernel there."""
        ops = {node.op for graph in graphs for node in graph.node if core(node)}
        return [f"{op} has no kernel on a core" for op in sorted(ops - self.on_cores)]

    def unlike(self, emulated: Iterable[str]) -> tuple[list[str], set[str]]:
        """Compares the operations that the emulator takes in programs with those of TPUs.

        Returns:
            The operations that TPUs lack, and the dtypes that XLA has for CPUs and not for TPUs.
        """
        names = [op for op in emulated if op in self._tpu]
        types: set[str] = set()
        for op in names:
            for name, taken in self._cpu[op].items():
                types |= taken - self._tpu[op].get(name, taken)
        return sorted(set(emulated) - set(names)), types


def united(of: list[dict[str, list[str]]]) -> Types:
    """Returns the dtypes that any of an operation's kernels takes."""
    out: Types = {}
    for types in of:
        for name, taken in types.items():
            out.setdefault(name, set()).update(taken)
    return out


if __name__ == "__main__":
    main()
