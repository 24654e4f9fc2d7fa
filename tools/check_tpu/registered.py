"""Judges what TensorFlow's TPU passes made of a graph."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from tensorflow.core.framework import graph_pb2, types_pb2

_ACCESS = ("ReadVariableOp", "AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")
_CANCELLATION = "tpu_cancellation_closes_chips"
_READS = ("ReadVariableOp", "_ReadVariablesOp")
_HANDLES = ("VarHandleOp", "_VarHandlesOp")


def complaints(graphs: Sequence[graph_pb2.GraphDef], replicas: int) -> list[str]:
    """Returns what is wrong with the graphs of a call that should run one program on every core.

    Args:
        graphs: what the master registered with its worker for the call.
        replicas: the cores that run the program.
    """
    nodes = [node for graph in graphs for node in graph.node]
    count = Counter(node.op for node in nodes)
    out = []
    for op, want in (("TPUCompile", 1), ("TPUCompileSucceededAssert", 1), ("TPUExecute", replicas)):
        if count[op] != want:
            out.append(f"{count[op]} {op}; expected {want}")
    for node in nodes:
        if node.op == "TPUCompile" and node.attr["NumDynamicShapes"].i:
            shapes = node.attr["NumDynamicShapes"].i
            out.append(f"{node.name}: {shapes} dynamic shapes; expected 0")
        if node.op.startswith("TPUExecute") and not takes_variables(node):
            out.append(f"{node.name}: takes no variables; expected resource arguments")
    cores = Counter(core(node) for node in nodes if node.op == "TPUExecute")
    for name, times in sorted(cores.items()):
        if times > 1 or not name:
            out.append(f"{times} TPUExecute on {name or 'no core'}; expected one per core")
    cores_of = {node.name: core(node) for node in nodes if node.op in _HANDLES}
    for node in nodes:
        if node.op == "TPUExecute":
            names = {name.split(":")[0] for name in node.input}
            strange = sorted(n for n in names & cores_of.keys() if cores_of[n] != core(node))
            if strange:
                out.append(f"{node.name} on {core(node)}: takes {strange[0]} of another device")
    beside = [node for node in nodes if node.op in _ACCESS]
    if beside:
        out.append(
            f"{len(beside)} operations read or write variables outside of the program, "
            f"such as {beside[0].name} ({beside[0].op}); expected none"
        )
    host = [node for node in nodes if node.op in _HANDLES and not core(node)]
    if host:
        out.append(f"{len(host)} variables on the host, such as {host[0].name}; expected none")
    return out


def unconfigured(graphs: Sequence[graph_pb2.GraphDef]) -> list[str]:
    """Returns what is wrong with the graphs of the call that configures a TPU."""
    nodes = {node.op: node for graph in graphs for node in graph.node}
    wanted = ("_ConfigureDistributedTPU", host := "_InitializeHostForDistributedTPU")
    out = [f"no {op}: the passes did not run; expected one" for op in wanted if op not in nodes]
    if host in nodes and nodes[host].attr[_CANCELLATION].i != 2:
        out.append(f"{host}: {_CANCELLATION} is {nodes[host].attr[_CANCELLATION].i}; expected 2")
    return out


def unassigned(graphs: Sequence[graph_pb2.GraphDef]) -> list[str]:
    """Returns what is wrong with the graphs of the call that gives variables their first value."""
    assigns = [n for graph in graphs for n in graph.node if n.op == "AssignVariableOp"]
    host = [node.name for node in assigns if not core(node)]
    if host:
        return [f"{len(host)} variables on the host, such as {host[0]}; expected none"]
    return [] if assigns else ["no variable gets a value; expected AssignVariableOp"]


def unread(graphs: Sequence[graph_pb2.GraphDef]) -> list[str]:
    """Returns what is wrong with the graphs of the call that reads variables."""
    reads = [node for graph in graphs for node in graph.node if node.op in _READS]
    host = [node.name for node in reads if not core(node)]
    if host:
        return [f"{len(host)} variables on the host, such as {host[0]}; expected none"]
    return [] if reads else ["no variable is read; expected ReadVariableOp"]


def takes_variables(node: graph_pb2.NodeDef) -> bool:
    """Whether a TPUExecute has resource arguments."""
    return types_pb2.DT_RESOURCE in node.attr["Targs"].list.type


def core(node: graph_pb2.NodeDef) -> str:
    """The core that a node is placed on, such as TPU:3, or "" if it is none."""
    found = re.search(r"/device:(TPU:\d+)$", node.device)
    return found[1] if found else ""
