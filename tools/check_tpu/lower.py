"""Makes the program of a call's TPUCompile as XLA gets it: an HloModuleProto.

Usage: python -m check_tpu.lower REGISTERED PROGRAM

REGISTERED is a GraphDef that the TPU passes registered, PROGRAM the file to write. The number of
the program's arguments is printed. It runs in a process of its own, whose memory is that of one
model. Variables are zeros: they are arguments of the program, so their values do not matter.

The bridge is that of TensorFlow's CPU library. It has no kernel for CrossReplicaSum, but one for
XlaAllReduce, which becomes the same operation of XLA.
"""

from __future__ import annotations

import functools
import os
import pathlib
import sys
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory
from tensorflow.core.framework import (
    function_pb2,
    graph_pb2,
    tensor_shape_pb2,
    types_pb2,
)
from tensorflow.python.eager import context
from tensorflow.python.framework import function_def_to_graph

from check_tpu.inline import SUFFIX, inlined


def main(registered: str, out: str) -> None:
    """Writes the program and prints the number of its arguments."""
    graph = graph_pb2.GraphDef.FromString(pathlib.Path(registered).read_bytes())
    node = next(node for node in graph.node if node.op == "TPUCompile")
    arguments = specs(node.attr["metadata"].s)
    pathlib.Path(out).write_bytes(lowered(graph, node.attr["function"].func.name, arguments))
    print(len(arguments))


def specs(metadata: bytes) -> list[tf.TensorSpec]:
    """Returns dtypes and shapes of the arguments in a TPUCompileMetadataProto."""
    return [tf.TensorSpec(a.shape, a.dtype) for a in _metadata().FromString(metadata).args]


@functools.cache
def _metadata() -> type[message.Message]:
    """Declares the fields of TPUCompileMetadataProto that are read; TensorFlow's Python has none.

    They are those of tensorflow/core/protobuf/tpu/compile_metadata.proto.
    """
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="check_tpu/compile_metadata.proto",
        package="check_tpu",
        syntax="proto3",
        dependency=[tensor_shape_pb2.DESCRIPTOR.name, types_pb2.DESCRIPTOR.name],
    )

    def add(kind: descriptor_pb2.DescriptorProto, name: str, number: int, of: str) -> None:
        enum = of == ".tensorflow.DataType"
        kind.field.add(
            name=name,
            number=number,
            type_name=of,
            type=field.TYPE_ENUM if enum else field.TYPE_MESSAGE,
            label=field.LABEL_REPEATED if name == "args" else field.LABEL_OPTIONAL,
        )

    argument = file.message_type.add(name="Arg")
    add(argument, "dtype", 1, ".tensorflow.DataType")
    add(argument, "shape", 2, ".tensorflow.TensorShapeProto")
    add(file.message_type.add(name="TPUCompileMetadata"), "args", 1, ".check_tpu.Arg")
    pool = descriptor_pool.Default()
    pool.Add(file)
    found = pool.FindMessageTypeByName("check_tpu.TPUCompileMetadata")
    return message_factory.GetMessageClass(found)


def lowered(graph: graph_pb2.GraphDef, name: str, arguments: list[tf.TensorSpec]) -> bytes:
    """Returns the HloModuleProto of a function of a graph's library.

    Args:
        graph: the graph.
        name: of the function.
        arguments: what the function takes; of resources, the variables' values.
    """
    library = inlined(graph.library)
    for function in library.function:
        replaced(function)
        context.context().add_function_def(function)
    function = next(f for f in library.function if f.signature.name == name + SUFFIX)
    body, outputs = function_def_to_graph.function_def_to_graph_def(function)
    taken = [node for node in body.node if node.op == "Placeholder"]
    for node in taken:
        body.node.remove(node)
    body.library.CopyFrom(library)
    body.versions.CopyFrom(graph.versions)
    signature = function.signature
    variable = [argument.type == types_pb2.DT_RESOURCE for argument in signature.input_arg]
    zeros = [tf.zeros(spec.shape, spec.dtype) for spec in arguments]
    made = [tf.Variable(zero) if var else zero for zero, var in zip(zeros, variable)]

    def call(*fed: tf.Tensor) -> list[Any]:
        values = iter(fed)
        inputs = {
            f"{argument.name}:0": tf.compat.v1.get_default_graph().capture(value.handle)
            if var
            else next(values)
            for argument, value, var in zip(signature.input_arg, made, variable)
        }
        fetched = [outputs[function.ret[output.name]] for output in signature.output_arg]
        return tf.import_graph_def(body, input_map=inputs, return_elements=fetched, name="")

    traced = tf.function(call, jit_compile=True, autograph=False)
    fed = [value for value, var in zip(made, variable) if not var]
    return traced.experimental_get_compiler_ir(*fed)(stage="hlo_serialized")


def replaced(function: function_pb2.FunctionDef) -> None:
    """Makes a function of the TPU's one of the CPU's: in place."""
    for node in function.node_def:
        node.device = ""
        if node.op == "CrossReplicaSum":
            node.op = "XlaAllReduce"
            node.attr["reduce_op"].s = b"Add"
            node.attr["mode"].s = b"CrossReplica"


if __name__ == "__main__":
    main(*sys.argv[1:])
