"""Makes the program of a training step as XLA gets it on a GPU: an HloModuleProto.

Usage: python -m check_gpu.lower GRAPH ROWS LENGTH EXAMPLES PROGRAM

GRAPH is the GraphDef of a model that XLA compiles, for one GPU, PROGRAM the file to write. It runs
with TensorFlow's library for GPUs, whose bridge makes the program as it would for a GPU. The number
of its arguments is printed.
"""

from __future__ import annotations

import pathlib
import sys

import tensorflow as tf
from tensorflow.core.framework import graph_pb2, node_def_pb2, types_pb2

from check_tpu import lower

STEP = "step"
"""The node of a training step that is one program."""


def main(path: str, rows: str, length: str, examples: str, out: str) -> None:
    """Writes the program and prints the number of its arguments."""
    graph = graph_pb2.GraphDef.FromString(pathlib.Path(path).read_bytes())
    step = next((node for node in graph.node if node.name == STEP), None)
    if step is None or not step.attr["_XlaMustCompile"].b:
        sys.exit(f"the graph has no node {STEP} that XLA compiles")
    arguments = specs(graph, step, int(rows), int(length), int(examples))
    program, _ = lower.lowered(graph, step.attr["f"].func.name, arguments, "GPU")
    pathlib.Path(out).write_bytes(program)
    print(len(arguments))


def specs(
    graph: graph_pb2.GraphDef, step: node_def_pb2.NodeDef, rows: int, length: int, examples: int
) -> list[tf.TensorSpec]:
    """Returns dtypes and shapes of what a step takes; of variables, those of their values."""
    nodes = {node.name: node for node in graph.node}
    library = {function.signature.name: function for function in graph.library.function}
    evaluate = library[nodes["evaluate"].attr["f"].func.name]
    ranks = {
        argument.name: len(evaluate.arg_attr[i].attr["_output_shapes"].list.shape[0].dim)
        for i, argument in enumerate(evaluate.signature.input_arg)
        if "_output_shapes" in evaluate.arg_attr[i].attr
    }
    out = []
    for name, dtype in zip(step.input, step.attr["Tin"].list.type):
        source = nodes[name.split(":")[0]]
        feature = source.name.removeprefix("features/")
        if dtype == types_pb2.DT_RESOURCE:
            dtype, shape = source.attr["dtype"].type, tf.TensorShape(source.attr["shape"].shape)
        elif feature in ranks:
            shape = (rows, length) if ranks[feature] == 2 else (examples,)
        elif source.op == "Placeholder":
            shape = tf.TensorShape(source.attr["shape"].shape)
        elif source.name == "seed/unpack":
            shape = (2,)
        else:
            sys.exit(f"{source.name} ({source.op}): the shape of what {STEP} takes is not known")
        out.append(tf.TensorSpec(shape, dtype))
    return out


if __name__ == "__main__":
    main(*sys.argv[1:])
