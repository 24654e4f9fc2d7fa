"""Tests check_tpu, but for what needs TensorFlow's TPU passes or the TPU compiler."""

from __future__ import annotations

import grpc
import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2, types_pb2

from check_tpu import common, passes, registered, worker

TASK = "/job:worker/replica:0/task:0/device:"


def call(replicas: int) -> graph_pb2.GraphDef:
    """What the passes make of a call that is right."""
    graph = graph_pb2.GraphDef()
    compiled = graph.node.add(name="compile", op="TPUCompile", device=f"{TASK}CPU:0")
    compiled.attr["NumDynamicShapes"].i = 0
    graph.node.add(name="assert", op="TPUCompileSucceededAssert", device=f"{TASK}CPU:0")
    for i in range(replicas):
        graph.node.add(name=f"variables_{i}", op="_VarHandlesOp", device=f"{TASK}TPU:{i}")
        execute = graph.node.add(name=f"execute_{i}", op="TPUExecute", device=f"{TASK}TPU:{i}")
        execute.input.extend(["features", f"variables_{i}", f"variables_{i}:1", "compile:1"])
        execute.attr["Targs"].list.type.extend([types_pb2.DT_FLOAT, types_pb2.DT_RESOURCE])
    return graph


def node(graph: graph_pb2.GraphDef, name: str) -> graph_pb2.NodeDef:
    return next(n for n in graph.node if n.name == name)


@pytest.mark.parametrize("replicas", [1, 8])
def test_a_program_that_every_core_runs_on_its_variables_is_accepted(replicas):
    assert registered.complaints([call(replicas)], replicas) == []


def dynamic(graph):
    node(graph, "compile").attr["NumDynamicShapes"].i = 3


def without_variables(graph):
    node(graph, "execute_1").attr["Targs"].list.type[1] = types_pb2.DT_FLOAT


def another_core(graph):
    node(graph, "variables_1").device = f"{TASK}TPU:0"


def twice(graph):
    node(graph, "execute_1").device = f"{TASK}TPU:0"
    node(graph, "variables_1").device = f"{TASK}TPU:0"


def read(graph):
    graph.node.add(name="read", op="ReadVariableOp", device=f"{TASK}TPU:1")


def assign(graph):
    graph.node.add(name="assign", op="AssignVariableOp", device=f"{TASK}CPU:0")


def shared(graph):
    node(graph, "variables_0").device = f"{TASK}CPU:0"


def two_programs(graph):
    graph.node.add(name="compile_2", op="TPUCompile", device=f"{TASK}CPU:0")


@pytest.mark.parametrize(
    ("spoil", "want"),
    [
        (dynamic, "compile: 3 dynamic shapes; expected 0"),
        (without_variables, "execute_1: takes no variables"),
        (another_core, "execute_1 on TPU:1: takes variables_1 of another device"),
        (twice, "2 TPUExecute on TPU:0; expected one per core"),
        (read, "1 operations read or write variables outside of the program, such as read"),
        (assign, "such as assign (AssignVariableOp)"),
        (shared, "1 variables on the host, such as variables_0"),
        (two_programs, "2 TPUCompile; expected 1"),
    ],
)
def test_anything_else_is_a_fault(spoil, want):
    graph = call(2)
    spoil(graph)
    assert any(want in fault for fault in registered.complaints([graph], 2))


def test_too_few_cores_are_a_fault():
    assert "2 TPUExecute; expected 8" in registered.complaints([call(2)], 8)


def test_the_worker_shows_a_tpu_and_records_graphs():
    served = worker.Worker("worker", 2)
    try:
        with grpc.insecure_channel(f"127.0.0.1:{served.port}") as channel:

            def ask(name, request, reply):
                return channel.unary_unary(
                    worker.SERVICE + name,
                    request_serializer=type(request).SerializeToString,
                    response_deserializer=worker.kind(reply).FromString,
                )(request)

            status = ask("GetStatus", worker.kind("GetStatusRequest")(), "GetStatusResponse")
            graph = worker.kind("RegisterGraphRequest")(graph_def=call(2))
            ask("RegisterGraph", graph, "RegisterGraphResponse")
            with pytest.raises(grpc.RpcError, match=worker.RECORDED):
                ask("RunGraph", worker.kind("RunGraphRequest")(), "RunGraphResponse")
    finally:
        served.close()
    names = [device.name.removeprefix(TASK) for device in status.device_attributes]
    assert names == ["CPU:0", "TPU_SYSTEM:0", "TPU:0", "TPU:1"]
    assert served.graphs == [call(2)]


def test_a_master_without_passes_is_seen_through():
    """TensorFlow's CPU library has no TPU passes, and sends the configuration as it is."""
    served = worker.Worker("worker", 2)
    cluster = {"worker": [f"127.0.0.1:{served.port}"], "coordinator": ["127.0.0.1:0"]}
    server = tf.distribute.Server(cluster, job_name="coordinator", task_index=0)
    judge = passes.Judge(server.target, served, 60)
    try:
        line = judge.configure()
    finally:
        served.close()
    assert "no _ConfigureDistributedTPU: the passes did not run" in line
    assert judge.faults


def test_first_values_are_given_on_the_cores():
    graph = graph_pb2.GraphDef()
    assert registered.unassigned([graph])
    graph.node.add(name="a", op="AssignVariableOp", device=f"{TASK}TPU:1")
    assert registered.unassigned([graph]) == []
    graph.node.add(name="b", op="AssignVariableOp", device=f"{TASK}CPU:0")
    assert registered.unassigned([graph]) == ["1 variables on the host, such as b; expected none"]


def test_a_command_that_fails_is_a_sentence():
    with pytest.raises(common.CheckError, match=r"^false: it said nothing$"):
        common.command(["false"], 10)
    with pytest.raises(common.CheckError, match="no-such-program: no such file"):
        common.command(["no-such-program"], 10)
    with pytest.raises(common.CheckError, match="sleep 60: took longer than 0 s"):
        common.command(["sleep", "60"], 0.1)


def test_the_operation_that_xla_does_not_have_is_named():
    said = "noise\nDetected unsupported operations when trying to compile graph\nmore\n"
    said += "No registered 'Where' OpKernel for XLA_CPU_JIT devices\nlast line\n"
    assert "No registered 'Where' OpKernel" in common.reason(said)
    assert common.reason("first\nlast line\n\n") == "last line"
