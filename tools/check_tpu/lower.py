"""Makes the program of a call's TPUCompile as XLA gets it: an HloModuleProto.

Usage: python -m check_tpu.lower REGISTERED PROGRAM [highest]

REGISTERED is a GraphDef that the TPU passes registered, PROGRAM the file to write; "highest" is
what gorbit worker --matmul-precision highest asks for. It runs with
TensorFlow's library for TPUs (see common.tpu_environment), whose bridge makes the program as it
would for a TPU. Variables are arguments, and those that the program assigns are its first results.
What the program takes and gives is printed, as JSON.
"""

from __future__ import annotations

import _hashlib  # noqa: F401
import functools
import hashlib  # noqa: F401
import json
import os
import pathlib
import ssl  # noqa: F401
import sys
from typing import Any

# Importing tensorflow-tpu 2.18.0 ends the process, unless hashlib, _hashlib and ssl come first.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory
from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.compiler.xla.service import hlo_pb2
from tensorflow.core.framework import (
    graph_pb2,
    tensor_shape_pb2,
    types_pb2,
)

from check_tpu.values import Functions, Variable


def main(registered: str, out: str, products: str = "") -> None:
    """Writes the program and prints what it takes and gives."""
    tf.config.experimental.enable_tensor_float_32_execution(products != "highest")
    graph = graph_pb2.GraphDef.FromString(pathlib.Path(registered).read_bytes())
    node = next(node for node in graph.node if node.op == "TPUCompile")
    arguments = specs(node.attr["metadata"].s)
    program, described = lowered(graph, node.attr["function"].func.name, arguments)
    pathlib.Path(out).write_bytes(program)
    print(json.dumps(described))


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


def lowered(
    graph: graph_pb2.GraphDef, name: str, arguments: list[tf.TensorSpec], platform: str = "TPU"
) -> tuple[bytes, dict[str, Any]]:
    """Returns the HloModuleProto of a function of a graph's library, and what it takes and gives.

    Args:
        graph: the graph.
        name: of the function.
        arguments: what the function takes; of resources, the variables' values.
        platform: TPU or GPU, whose library this is.
    """
    functions = Functions(graph.library)
    signature = next(f.signature for f in graph.library.function if f.signature.name == name)
    variable = [argument.type == types_pb2.DT_RESOURCE for argument in signature.input_arg]
    assigned: list[int] = []

    def call(*fed: tf.Tensor) -> list[tf.Tensor]:
        start = {Variable(i): value for i, value in enumerate(fed) if variable[i]}
        taken = [Variable(i) if variable[i] else value for i, value in enumerate(fed)]
        state = dict(start)
        results = functions.run(name, taken, state)
        assigned[:] = [var.number for var in state if state[var] is not start[var]]
        return [state[Variable(i)] for i in assigned] + results

    traced = tf.function(call, jit_compile=True, autograph=False, input_signature=arguments)
    program = traced.experimental_get_compiler_ir(*arguments)(
        stage="hlo_serialized", platform_name=platform
    )
    module = hlo_pb2.HloModuleProto.FromString(program)
    for i, number in enumerate(assigned):  # as TPUExecute has it
        module.input_output_alias.entries.add(
            output_shape_index=[i], parameter_number=number, kind=hlo_pb2.Kind.MAY_ALIAS
        )
    products = [
        list(made.precision_config.operand_precision)
        for computation in module.computations
        for made in computation.instructions
        if made.opcode in ("dot", "convolution")
    ]
    described = {
        "arguments": [argument.name for argument in signature.input_arg],
        "assigned": assigned,
        "results": [result.name for result in signature.output_arg],
        "products": len(products),
        "highest": products.count([xla_data_pb2.PrecisionConfig.HIGHEST] * 2),
    }
    return module.SerializeToString(), described


if __name__ == "__main__":
    main(*sys.argv[1:])
