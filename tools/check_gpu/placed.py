"""Judges what TensorFlow's placer and its optimizer of graphs made of a call on GPUs."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from tensorflow.core.framework import graph_pb2, kernel_def_pb2, node_def_pb2, op_def_pb2, types_pb2
from tensorflow.python.framework import op_def_registry

_FREE = frozenset(
    [
        "Const",
        "VarHandleOp",
        "NoOp",
        "Identity",
        "IdentityN",
        "Reshape",
        "ExpandDims",
        "Squeeze",
        "StopGradient",
        "Shape",
        "ReadVariableOp",
        "AssignVariableOp",
        "Switch",
        "Merge",
        "Enter",
        "Exit",
        "NextIteration",
        "LoopCond",
        "Placeholder",
        "VarIsInitializedOp",
        "DestroyResourceOp",
        "Bitcast",
        "_Send",
        "_Recv",
        "_HostSend",
        "_HostRecv",
        "_Arg",
        "_Retval",
    ]
)
"""Operations that start no kernel on a GPU: they hand on memory that is there."""
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_PASSES = ("gradients", "evaluate", "predict")
_UPDATE = ("update", "shared", "rate", "decay", "no_decay", "average", "take", "fused")


_AROUND = re.compile(r"Func|loop|body|_\d+|replica_\d+|apply")
"""Words that a node's name has before what it is: of replicas, loops and functions."""


@dataclasses.dataclass
class Counts:
    """What a call does on its GPUs. Lists hold names of nodes.

    Attributes:
        missing: nodes for which their device has no kernel.
        moved: nodes that were asked for on a GPU, and are on the CPU since a GPU has no kernel.
        cpu: nodes on the CPU, by why and operation.
        host: nodes that a GPU's kernels compute in the host's memory, by operation and dtype.
        to_device: tensors that are copied from the host to a GPU.
        read_back: tensors that are copied from a GPU to the host, for which its queue must drain,
            but for results of the call.
        results: tensors that are copied from a GPU to the host for who made the call.
        passes, sums, update: kernels on GPUs of the passes through the model, of the gradients'
            sums and norm, and of the update. Those of a loop are counted once.
        programs: calls that XLA compiles into one program each.
    """

    missing: list[str] = dataclasses.field(default_factory=list)
    moved: list[str] = dataclasses.field(default_factory=list)
    cpu: Counter[tuple[str, str]] = dataclasses.field(default_factory=Counter)
    host: Counter[tuple[str, str]] = dataclasses.field(default_factory=Counter)
    to_device: list[str] = dataclasses.field(default_factory=list)
    read_back: list[str] = dataclasses.field(default_factory=list)
    results: list[str] = dataclasses.field(default_factory=list)
    passes: list[str] = dataclasses.field(default_factory=list)
    sums: list[str] = dataclasses.field(default_factory=list)
    update: list[str] = dataclasses.field(default_factory=list)
    programs: list[str] = dataclasses.field(default_factory=list)

    @property
    def kernels(self) -> int:
        """How many kernels the call starts on its GPUs, without those of programs."""
        return len(self.passes) + len(self.sums) + len(self.update)


@dataclasses.dataclass(frozen=True)
class _Placed:
    """A node's device, and which of its inputs and outputs are in the host's memory."""

    node: node_def_pb2.NodeDef
    device: str
    inputs: tuple[bool, ...]
    outputs: tuple[bool, ...]


class Kernels:
    """The kernels of a TensorFlow library."""

    def __init__(self, registered: kernel_def_pb2.KernelList) -> None:
        """Takes what TF_GetAllRegisteredKernels returns."""
        self._by_op = defaultdict(list)
        for kernel in registered.kernel:
            self._by_op[kernel.op].append(kernel)

    def __len__(self) -> int:
        """How many there are for GPUs."""
        return sum(k.device_type == "GPU" for kernels in self._by_op.values() for k in kernels)

    def of(self, node: node_def_pb2.NodeDef, kind: str) -> kernel_def_pb2.KernelDef | None:
        """Returns the kernel that computes a node on a kind of device, or None."""
        op = op_def_registry.get(node.op)
        label = node.attr["_kernel"].s.decode() if "_kernel" in node.attr else ""
        fitting = [
            kernel
            for kernel in self._by_op[node.op]
            if kernel.device_type in (kind, "DEFAULT")
            and kernel.label == label
            and all(
                set(_dtypes(node, op, c.name)) <= set(c.allowed_values.list.type)
                for c in kernel.constraint
            )
        ]
        return max(fitting, key=lambda k: (k.device_type == kind, k.priority), default=None)


def counts(
    graphs: Sequence[graph_pb2.GraphDef], composed: graph_pb2.GraphDef, kernels: Kernels
) -> Counts:
    """Counts what a call does.

    Args:
        graphs: what the master registered with its worker for the call.
        composed: the graph of which the call was made, with the devices that were asked for.
        kernels: those of the library that runs the graphs.
    """
    out = Counts()
    asked = {node.name: _kind(node.device) for node in composed.node}
    for graph in graphs:
        placed = {node.name: _placed(node, kernels, out) for node in graph.node}
        for it in placed.values():
            _count(it, asked, kernels, out)
        _copies(graph, placed, out)
    return out


def _placed(node: node_def_pb2.NodeDef, kernels: Kernels, out: Counts) -> _Placed:
    device, op = _kind(node.device), op_def_registry.get(node.op)
    inputs, outputs = list(_names(node, op.input_arg)), list(_names(node, op.output_arg))
    kernel = kernels.of(node, device)
    if kernel is None:
        out.missing.append(f"{node.name} ({node.op} on {device})")
    host = set(kernel.host_memory_arg) if kernel else set()
    return _Placed(
        node,
        node.device,
        tuple(device == "CPU" or name in host for name in inputs),
        tuple(device == "CPU" or name in host for name in outputs),
    )


def _count(it: _Placed, asked: dict[str, str], kernels: Kernels, out: Counts) -> None:
    """Counts a node."""
    node, kind = it.node, _kind(it.device)
    if node.attr["_XlaMustCompile"].b and kind == "GPU":
        out.programs.append(node.name)
    elif kind == "CPU":
        why = "asked for"
        if _asked(node.name, asked) == "GPU" and node.op not in ("_Recv", "_Send", "_HostRecv"):
            why = "next to its data"
            if kernels.of(node, "GPU") is None:
                why = "no kernel"
                out.moved.append(f"{node.name} ({node.op})")
        out.cpu[why, node.op] += 1
    elif node.op not in _FREE and (it.outputs or it.inputs):
        if it.outputs and all(it.outputs):
            if node.op not in _CALLS:
                out.host[node.op, _dtype(node)] += 1
        else:
            getattr(out, part(node.name)).append(node.name)


def _copies(graph: graph_pb2.GraphDef, placed: dict[str, _Placed], out: Counts) -> None:
    """Counts the copies of tensors, each once for each device that gets it."""
    gpu = [node for node in graph.node if _kind(node.device) == "GPU"]
    sent = {_edge(node): node for node in gpu if node.op in ("_Send", "_HostSend")}
    received = {_edge(node): node for node in gpu if node.op in ("_Recv", "_HostRecv")}
    for edge in {**sent, **received}:
        source, to = sent.get(edge), received.get(edge)
        if source is None:  # it is fed
            out.to_device += [to.name] if to.op == "_Recv" else []
        elif to is None:
            out.results += [source.input[0]] if source.op == "_Send" else []
        elif source.op == "_Send" and to.op == "_HostRecv":
            out.read_back.append(source.input[0])
        elif source.op == "_HostSend" and to.op == "_Recv":
            out.to_device.append(source.input[0])
    seen = set()
    for it in placed.values():
        data = [name for name in it.node.input if not name.startswith("^")]
        for name, host in zip(data, it.inputs):
            source, _, number = name.partition(":")
            at, number = placed[source], int(number or 0)
            if at.device == it.device or (name, it.device) in seen or _resource(at.node, number):
                continue
            seen.add((name, it.device))
            if at.outputs[number] != host:
                (out.read_back if host else out.to_device).append(name)


def part(name: str) -> str:
    """Returns the part of a call that a node belongs to, by its name: passes, sums or update."""
    first = next((word for word in name.split("/") if not _AROUND.fullmatch(word)), "")
    return "passes" if first in _PASSES else "update" if first in _UPDATE else "sums"


def _asked(name: str, asked: dict[str, str]) -> str:
    """The kind of device that a node was asked for on: its own, or that of a call around it."""
    words = name.split("/")
    for end in range(len(words), 0, -1):
        found = asked.get("/".join(words[:end]))
        if found is not None:
            return found
    return ""


def _kind(device: str) -> str:
    found = re.search(r"/device:(\w+):\d+$", device)
    return found[1] if found else ""


def _edge(node: node_def_pb2.NodeDef) -> tuple[bytes, bytes, bytes]:
    return tuple(node.attr[name].s for name in ("tensor_name", "send_device", "recv_device"))


def _resource(node: node_def_pb2.NodeDef, number: int) -> bool:
    types = [t for arg in op_def_registry.get(node.op).output_arg for t in _types(node, arg)]
    return types[number] in (types_pb2.DT_RESOURCE, types_pb2.DT_VARIANT)


def _dtype(node: node_def_pb2.NodeDef) -> str:
    types = [t for arg in op_def_registry.get(node.op).output_arg for t in _types(node, arg)]
    return types_pb2.DataType.Name(types[0])[3:].lower()


def _names(
    node: node_def_pb2.NodeDef, arguments: Sequence[op_def_pb2.OpDef.ArgDef]
) -> Iterator[str]:
    """The names of a node's inputs or outputs, of which lists have one for each element."""
    for arg in arguments:
        for _ in _types(node, arg):
            yield arg.name


def _types(node: node_def_pb2.NodeDef, arg: op_def_pb2.OpDef.ArgDef) -> list[int]:
    op = op_def_registry.get(node.op)
    if arg.type_list_attr:
        return list(node.attr[arg.type_list_attr].list.type)
    one = arg.type or (_dtypes(node, op, arg.type_attr) or [types_pb2.DT_INVALID])[0]
    return [one] * (node.attr[arg.number_attr].i if arg.number_attr else 1)


def _dtypes(node: node_def_pb2.NodeDef, op: op_def_pb2.OpDef, name: str) -> list[int]:
    """The dtypes of a node's attribute, or the operation's if it has none."""
    value = node.attr.get(name)
    if value is None:
        value = next((a.default_value for a in op.attr if a.name == name), None)
    if value is None:
        return []
    return list(value.list.type) if value.WhichOneof("value") == "list" else [value.type]
