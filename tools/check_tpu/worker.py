"""A TensorFlow worker whose TPU or GPUs exist by name only.

It records the graphs that it is sent.
"""

from __future__ import annotations

import functools
import pathlib
from concurrent import futures

import grpc
import tensorflow as tf
from google.protobuf import descriptor_pool, message, message_factory

# Registers the descriptors of all that worker.proto imports.
from tensorflow.core.framework import (
    cost_graph_pb2,  # noqa: F401
    device_attributes_pb2,
    graph_pb2,
    step_stats_pb2,  # noqa: F401
)
from tensorflow.core.protobuf import (
    config_pb2,  # noqa: F401
    debug_pb2,  # noqa: F401
    error_codes_pb2,  # noqa: F401
    named_tensor_pb2,  # noqa: F401
    tensorflow_server_pb2,  # noqa: F401
)

from gen_master import embedded

PROTO = "tensorflow/core/protobuf/worker.proto"
SERVICE = "/tensorflow.WorkerService/"
RECORDED = "recorded, and not run"
"""What a run of a recorded graph, and the wait for its results, fails with."""
GPU = (
    "device: {0}, name: NVIDIA H100 80GB HBM3, pci bus id: 0000:0{0}:00.0, compute capability: 9.0"
)
"""How a GPU describes itself."""


class Worker(grpc.GenericRpcHandler):
    """Serves the methods that a master calls until the first graph would run.

    Attributes:
        graphs: the graphs that were registered, in order.
        port: where it listens, on this machine only.
    """

    def __init__(self, job: str, devices: int, of: str = "TPU") -> None:
        """Starts to listen, as task 0 of a job, with so many cores of a TPU or so many GPUs."""
        self.graphs: list[graph_pb2.GraphDef] = []
        named = [("CPU", 0), *((of, i) for i in range(devices))]
        if of == "TPU":
            named.insert(1, ("TPU_SYSTEM", 0))
        self._devices = [
            device_attributes_pb2.DeviceAttributes(
                name=f"/job:{job}/replica:0/task:0/device:{kind}:{number}",
                device_type=kind,
                memory_limit=16 << 30,
                incarnation=1 + i,
                physical_device_desc=GPU.format(number) if kind == "GPU" else "",
            )
            for i, (kind, number) in enumerate(named)
        ]
        unlimited = [(f"grpc.max_{way}_message_length", -1) for way in ("receive", "send")]
        self._server = grpc.server(futures.ThreadPoolExecutor(8), options=unlimited)
        self._server.add_generic_rpc_handlers((self,))
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def close(self) -> None:
        """Stops."""
        self._server.stop(None).wait()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Returns the handler of a method, with messages as bytes."""
        if not details.method.startswith(SERVICE):
            return None
        name = details.method[len(SERVICE) :]
        return grpc.unary_unary_rpc_method_handler(functools.partial(self._answer, name))

    def _answer(self, name: str, request: bytes, context: grpc.ServicerContext) -> bytes:
        if name == "GetStatus":
            return kind("GetStatusResponse")(device_attributes=self._devices).SerializeToString()
        if name == "RegisterGraph":
            self.graphs.append(kind("RegisterGraphRequest").FromString(request).graph_def)
            handle = str(len(self.graphs))
            return kind("RegisterGraphResponse")(graph_handle=handle).SerializeToString()
        if name in ("RunGraph", "RecvTensor"):
            context.abort(grpc.StatusCode.UNIMPLEMENTED, RECORDED)
        return b""


@functools.cache
def kind(name: str) -> type[message.Message]:
    """Returns the class of a message of worker.proto."""
    pool = descriptor_pool.Default()
    try:
        pool.FindFileByName(PROTO)
    except KeyError:
        library = pathlib.Path(tf.__file__).parent / "libtensorflow_cc.so.2"
        pool.Add(embedded(library.read_bytes(), PROTO))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tensorflow.{name}"))
