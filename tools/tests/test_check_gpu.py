"""Tests check_gpu on small lists of kernels and graphs; the CUDA wheel where it was fetched."""

from __future__ import annotations

import json
import subprocess

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2, kernel_def_pb2, types_pb2

from check_gpu import lower, passes, placed
from check_tpu import launched
from check_tpu import passes as shown
from check_tpu.common import CheckError
from check_tpu.worker import Worker

TASK = "/job:worker/replica:0/task:0/device:"
FLOAT, INT32 = types_pb2.DT_FLOAT, types_pb2.DT_INT32


def kernels() -> placed.Kernels:
    """Kernels of a library, some of a GPU in the host's memory, as TensorFlow has them."""
    out = kernel_def_pb2.KernelList()

    def add(op, device, *, dtype=None, host=()):
        kernel = out.kernel.add(op=op, device_type=device, host_memory_arg=host)
        if dtype:
            constraint = kernel.constraint.add(name="T")
            constraint.allowed_values.list.type.append(dtype)

    for op in ("Mul", "Sum", "Const", "_Send", "_Recv", "_HostSend", "_HostRecv"):
        add(op, "CPU")
    add("Mul", "GPU", dtype=FLOAT)
    add("Mul", "GPU", dtype=INT32, host=("x", "y", "z"))
    add("Sum", "GPU", dtype=FLOAT, host=("reduction_indices",))
    add("Const", "GPU")
    for op in ("_Send", "_Recv"):
        add(op, "GPU")
    add("_HostSend", "GPU", host=("tensor",))
    add("_HostRecv", "GPU", host=("tensor",))
    add("PartitionedCall", "GPU")
    return placed.Kernels(out)


def add(graph, name, op, device, *inputs, dtype=FLOAT):
    """Adds a node of one dtype."""
    node = graph.node.add(name=name, op=op, device=device and TASK + device, input=inputs)
    if op in ("Mul", "Sum"):
        node.attr["T"].type = dtype
    if op == "Sum":
        node.attr["Tidx"].type = INT32
    if op == "Const":
        node.attr["dtype"].type = dtype
    if op.endswith("Recv"):
        node.attr["tensor_type"].type = dtype
    return node


def step() -> graph_pb2.GraphDef:
    """What is registered of a step: a product of a feed, its sum, an update and a result."""
    graph = graph_pb2.GraphDef()
    add(graph, "rate", "Const", "CPU:0")
    add(graph, "axes", "Const", "CPU:0", dtype=INT32)
    add(graph, "fed", "_Recv", "GPU:0")
    add(graph, "gradients/Mul", "Mul", "GPU:0", "fed", "fed")
    add(graph, "gradients/Sum", "Sum", "GPU:0", "gradients/Mul", "axes")
    add(graph, "norm", "Mul", "GPU:0", "gradients/Sum", "gradients/Sum")
    add(graph, "update/a/Mul", "Mul", "GPU:0", "norm", "rate")
    add(graph, "replica_1/update/b/Mul", "Mul", "GPU:0", "norm", "rate")
    add(graph, "norm_S1", "_Send", "GPU:0", "norm").attr["tensor_name"].s = b"result"
    return graph


def test_a_step_is_counted():
    found = placed.counts([step()], step(), kernels())
    assert (found.missing, found.moved, found.read_back) == ([], [], [])
    assert found.passes == ["gradients/Mul", "gradients/Sum"]
    assert found.sums == ["norm"]
    assert found.update == ["update/a/Mul", "replica_1/update/b/Mul"]
    assert sorted(found.to_device) == ["fed", "rate"]  # each once; the axes stay with the host
    assert found.results == ["norm"]
    assert found.cpu == {("asked for", "Const"): 2}
    assert found.kernels == 5


def read_on_the_cpu(graph):
    add(graph, "gradients/late", "Mul", "CPU:0", "norm", "norm")


def read_in_the_hosts_memory(graph):
    sent = add(graph, "gradients/s", "_Send", "GPU:0", "norm")
    got = add(graph, "gradients/r", "_HostRecv", "GPU:0", dtype=INT32)
    for node in (sent, got):
        node.attr["tensor_name"].s = b"edge"
    add(graph, "gradients/late", "Mul", "GPU:0", "gradients/r", "gradients/r", dtype=INT32)


@pytest.mark.parametrize("spoil", [read_on_the_cpu, read_in_the_hosts_memory])
def test_what_the_host_waits_for_is_read_back(spoil):
    graph = step()
    spoil(graph)
    found = placed.counts([graph], graph, kernels())
    assert found.read_back == ["norm"]
    host = sum(found.host.values())
    assert host == (spoil is read_in_the_hosts_memory) and found.kernels == 5


def test_what_a_gpu_has_no_kernel_for_is_named():
    graph, composed = step(), graph_pb2.GraphDef()
    add(composed, "gradients", "PartitionedCall", "GPU:0")
    add(graph, "gradients/a", "MatMul", "GPU:0", "fed", "fed").attr["T"].type = FLOAT
    add(graph, "gradients/b", "MatMul", "CPU:0", "rate", "rate").attr["T"].type = FLOAT
    add(graph, "gradients/c", "Mul", "CPU:0", "rate", "rate")
    found = placed.counts([graph], composed, kernels())
    assert found.missing == ["gradients/a (MatMul on GPU)", "gradients/b (MatMul on CPU)"]
    assert found.moved == ["gradients/b (MatMul)"]
    assert found.cpu["next to its data", "Mul"] == 1


def test_a_program_of_xla_is_one():
    graph = step()
    call = add(graph, "gradients/whole", "PartitionedCall", "GPU:0", "fed")
    call.attr["Tin"].list.type.append(FLOAT)
    call.attr["Tout"].list.type.append(FLOAT)
    call.attr["_XlaMustCompile"].b = True
    found = placed.counts([graph], graph, kernels())
    assert found.programs == ["gradients/whole"] and found.kernels == 5


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("gradients/encoder/update/Mul", "passes"),
        ("loop/body/_1/replica_1/update/kernel/Mul", "update"),
        ("Func/update/kernel/input/_3", "update"),
        ("apply/squares/all", "sums"),
        ("replica_2/evaluate/MatMul", "passes"),
    ],
)
def test_a_node_belongs_to_a_part_by_its_name(name, want):
    assert placed.part(name) == want


def test_a_limit_that_is_passed_is_a_fault():
    assert passes.over([1] * 8, [0, 1, 1, 1, 1, 1, 1, 2]) == ["programs: 2; expected at most 1"]
    assert passes.over(None, [0] * 8) == ["has no limits; set them with --set-limits"]


def test_every_call_of_every_case_has_limits():
    limits = json.loads(passes.LIMITS.read_text(encoding="utf-8"))
    assert passes.written(limits) == passes.LIMITS.read_text(encoding="utf-8")
    assert set(limits) == {f"{case}, {call}" for case in passes.CASES for call in case.calls}


def test_a_word_that_no_case_has_is_refused(capsys):
    assert passes.main(["--only", "huge"]) == 1
    assert "no case has the words ['huge']" in capsys.readouterr().err


def test_the_kernels_of_a_compiled_program_are_counted():
    program = """HloModule m, is_scheduled=true

%command_buffer (p: f32[2]) -> (f32[2], f32[2]) {
  %p = f32[2]{0} parameter(0)
  %a = f32[2]{0} fusion(%p), kind=kLoop, calls=%fused
  ROOT %b = (f32[2]{0}, f32[2]{0}) custom-call(%a), custom_call_target="__cublas$gemm"
}

ENTRY %main (x: f32[2]) -> f32[2] {
  %x = f32[2]{0} parameter(0)
  %call = (f32[2]{0}, /*index=1*/f32[2]{0}) call(%x), to_apply=%command_buffer
  %first = f32[2]{0} get-tuple-element(%call), index=0
  %start = f32[2]{0} all-reduce-start(%first), to_apply=%add
  %done = f32[2]{0} all-reduce-done(%start)
  ROOT %y = f32[2]{0} fusion(%done), kind=kLoop, calls=%fused
}
"""
    assert launched.kernels(program) == 4


def test_the_shapes_of_what_a_step_takes():
    graph = graph_pb2.GraphDef()
    evaluate = graph.library.function.add()
    evaluate.signature.name = "f"
    for i, (name, rank) in enumerate([("ids", 2), ("labels", 1)]):
        evaluate.signature.input_arg.add(name=name, type=INT32)
        shape = evaluate.arg_attr[i].attr["_output_shapes"].list.shape.add()
        for _ in range(rank):
            shape.dim.add(size=-1)
    graph.node.add(name="evaluate", op="PartitionedCall").attr["f"].func.name = "f"
    handle = graph.node.add(name="kernel", op="VarHandleOp")
    handle.attr["dtype"].type = FLOAT
    handle.attr["shape"].shape.dim.add(size=7)
    inputs = ["features/ids", "features/labels", "seed/unpack", "kernel"]
    for name in inputs[:3]:
        graph.node.add(name=name, op="Reshape")
    step = graph.node.add(name="step", op="PartitionedCall", input=inputs)
    dtypes = [INT32, INT32, types_pb2.DT_INT64, types_pb2.DT_RESOURCE]
    step.attr["Tin"].list.type.extend(dtypes)
    specs = lower.specs(graph, step, 4, 8, 5)
    assert [spec.shape.as_list() for spec in specs] == [[4, 8], [5], [2], [7]]
    assert specs[3].dtype == tf.float32
    graph.node.add(name="other", op="Reshape")
    step.input[0] = "other"
    with pytest.raises(SystemExit, match=r"other .* is not known"):
        lower.specs(graph, step, 4, 8, 5)


def test_the_cuda_wheel_places_a_graph():
    """A product of floats is on the GPU, one of integers in the host's memory, which is read."""
    python = passes.WORK / "passes" / "bin" / "python"
    if not (python.parent.parent / "bench-stamp").exists():
        pytest.skip("the CUDA wheel is not there; make check-gpu-passes fetches it")
    try:
        have = passes.registered(str(python))
    except (CheckError, subprocess.SubprocessError) as err:
        pytest.fail(str(err))
    assert len(have) > 1000
    with tf.Graph().as_default() as graph, tf.device(f"{TASK}GPU:0"):
        fed = tf.compat.v1.placeholder(tf.float32, [2], name="fed")
        number = tf.cast(fed, tf.int32) * np.int32(2)
        tf.identity(tf.cast(number, tf.float32) * fed, name="gradients")
    feed = {"name": "fed:0", "dtype": "float32", "shape": [-2]}
    run = {"feeds": [feed], "fetches": ["gradients:0"]}
    served = Worker("worker", 1, "GPU")
    try:
        with shown.master(str(python), served.port) as target:
            verdict = shown.Judge(target, served, 120).run(graph.as_graph_def(), run)
    finally:
        served.close()
    found = placed.counts(verdict.graphs, graph.as_graph_def(), have)
    assert verdict.refused == "" and found.missing == [] and found.moved == []
    assert found.host == {("Mul", "int32"): 1}
    assert len(found.read_back) == len(found.results) == 1 and len(found.to_device) >= 2
