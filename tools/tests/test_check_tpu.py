"""Tests check_tpu, but for what needs TensorFlow's TPU passes or the TPU compiler."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2, types_pb2

from check_tpu import common, compare, compiler, kernels, lower, passes, registered, values, worker

TASK = "/job:worker/replica:0/task:0/device:"


def call(replicas: int) -> graph_pb2.GraphDef:
    """What the passes make of a correct call."""
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


def test_variables_are_read_on_the_cores():
    graph = graph_pb2.GraphDef()
    assert registered.unread([graph])
    graph.node.add(name="a", op="_ReadVariablesOp", device=f"{TASK}TPU:0")
    assert registered.unread([graph]) == []
    graph.node.add(name="b", op="ReadVariableOp", device=f"{TASK}CPU:0")
    assert registered.unread([graph]) == ["1 variables on the host, such as b; expected none"]


def test_operations_without_a_kernel_are_named():
    on = {"Abs": [{"T": ["float32", "complex128"]}, {"T": ["int32"]}], "Where": [{}]}
    found = {"TPU": {"Fill": [{}]}, "DEFAULT": {}, "XLA_CPU_JIT": on}
    found["XLA_TPU_JIT"] = {"Abs": [{"T": ["float32", "int32"]}]}
    known = kernels.Kernels(json.dumps(found))
    graph = graph_pb2.GraphDef()
    graph.node.add(name="a", op="Fill", device=f"{TASK}TPU:0")
    graph.node.add(name="b", op="Print", device=f"{TASK}CPU:0")
    assert known.missing([graph]) == []
    graph.node.add(name="c", op="Print", device=f"{TASK}TPU:0")
    assert known.missing([graph]) == ["Print has no kernel on a core"]
    assert known.unlike(["Abs", "Where"]) == (["Where"], {"complex128"})


def test_a_command_that_fails_is_a_sentence():
    with pytest.raises(common.CheckError, match=r"^false: it said nothing$"):
        common.command(["false"], 10)
    with pytest.raises(common.CheckError, match="no-such-program: no such file"):
        common.command(["no-such-program"], 10)
    with pytest.raises(common.CheckError, match="sleep 60: took longer than 0 s"):
        common.command(["sleep", "60"], 0.1)


def test_the_wheel_for_tpus_is_imported_as_setup_does():
    python = common.WORK / "passes" / "bin" / "python"
    if not python.exists():
        pytest.skip("TensorFlow's wheel for TPUs is not here; make check-tpu-passes fetches it")
    common.imported(str(python))


def test_a_check_that_cannot_run_ends_with_a_sentence(capsys):
    def check():
        raise common.CheckError("no network")

    assert common.ended("check-tpu", check) == 1
    assert capsys.readouterr().err == "check-tpu: no network\n"


def test_a_check_that_is_stopped_ends_what_it_started(tmp_path):
    script = tmp_path / "check.py"
    # Wait a second for Popen to return: before that, the child is not known.
    script.write_text(
        "from check_tpu import common\n"
        f"line = 'echo $$ >{tmp_path}/pid; sleep 1; kill -TERM $PPID; exec sleep 600'\n"
        "common.ended('check', lambda: common.command(['bash', '-c', line], 600))\n"
    )
    path = f"{common.TOOLS}:{common.TOOLS.parent / 'bench'}"
    done = subprocess.run([sys.executable, script], env=os.environ | {"PYTHONPATH": path})
    assert done.returncode == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_the_operation_that_xla_does_not_have_is_named():
    said = "noise\nDetected unsupported operations when trying to compile graph\nmore\n"
    said += "No registered 'Where' OpKernel for XLA_CPU_JIT devices\nlast line\n"
    assert "No registered 'Where' OpKernel" in common.reason(said)
    assert common.reason("first\nlast line\n\n") == "last line"


def test_a_function_without_variables_computes_the_same():
    total, count = tf.Variable([1.0, 2.0]), tf.Variable(0, dtype=tf.int64)

    @tf.function
    def add(x):
        total.assign_add(x)
        return total * 2, tf.shape(x)

    @tf.function
    def twice(x):
        y, _ = add(x)
        z, shape = add(y)
        return tf.reshape(z, shape)

    @tf.function(input_signature=[tf.TensorSpec([2])], autograph=False)
    def all_of_it(x):
        def step(i, x):
            count.assign_add(1)
            y = tf.cond(x[0] > 20, lambda: twice(-x), lambda: x + total)
            total.assign_sub(y)
            return i + 1, y

        return twice(tf.while_loop(lambda i, x: i < 5, step, [0, x])[1])

    function = all_of_it.get_concrete_function()
    library = function.graph.as_graph_def().library
    library.function.append(function.function_def)
    taken = [values.Variable(i) for i, _ in enumerate(function.captured_inputs)]
    handles = {id(variable.handle): variable for variable in (total, count)}
    variables = [handles[id(handle)] for handle in function.captured_inputs]

    functions, name = values.Functions(library), function.function_def.signature.name

    @tf.function(autograph=False)
    def plain(x, *start):
        state = dict(zip(taken, start))
        return functions.run(name, [x, *taken], state), [state[v] for v in taken]

    got, left = plain(tf.constant([3.0, 4.0]), *[tf.identity(v) for v in variables])
    want = function(tf.constant([3.0, 4.0]))
    np.testing.assert_array_equal(got[0], want)
    for value, variable in zip(left, variables):
        np.testing.assert_array_equal(value, variable)
    assert count.numpy() == 5


def test_what_adam_makes_of_variables_is_what_tensorflow_does():
    var, m, v = (tf.Variable([0.5, -1.0, 2.0]) for _ in range(3))
    v.assign(tf.square(v))
    scalars = [tf.constant(x) for x in (0.7, 0.9, 0.01, 0.9, 0.99, 1e-3)]
    gradient = tf.constant([0.1, -3.0, 0.0])
    state = {values.Variable(i): tf.identity(x) for i, x in enumerate((var, m, v))}
    values.adam(*state, *scalars, gradient, state)
    handles = [x.handle for x in (var, m, v)]
    tf.raw_ops.ResourceApplyAdam(
        **dict(zip(("var", "m", "v"), handles)),
        **dict(zip(("beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon"), scalars)),
        grad=gradient,
    )
    for got, want in zip(state.values(), (var, m, v)):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_how_far_results_are_apart():
    want = np.float32([4, -2])
    assert compare.apart(want, want) == 0
    assert compare.apart(np.float32([4, -1]), want) == 0.25
    assert compare.apart(np.float32([4, np.nan]), want) == float("inf")
    with pytest.raises(common.CheckError, match="expected float32"):
        compare.apart(want.astype(np.float64), want)


def test_the_arguments_of_a_compilation():
    argument = b"\x08\x01\x12\x04\x12\x02\x08\x20\x18\x01"  # float32 [32], kind 1
    scalar = b"\x08\x09\x12\x00"  # int64 []
    metadata = b"".join(b"\n" + bytes([len(a)]) + a for a in (argument, scalar)) + b"\x18\x08"
    assert lower.specs(metadata) == [tf.TensorSpec([32]), tf.TensorSpec([], tf.int64)]


@pytest.mark.parametrize(
    ("per_row", "fixed", "start", "step"),
    [(1.0, 10.0, 8, 8), (0.01, 10.0, 32, 128), (30.0, 0.0, 1, 8), (2.0, 0.0, 8, 8)],
)
def test_the_largest_batch_is_found_with_few_tries(per_row, fixed, start, step):
    tried = {}

    def used(rows):
        assert rows not in tried
        # Close to the limit the compiler computes again what it does not keep.
        memory = min(fixed + per_row * rows, 250 + per_row * rows / 4)
        tried[rows] = memory if memory <= 300 else None
        return tried[rows]

    found = compiler.largest(used, start, step, 300)
    assert tried[found] is not None
    refused = min(rows for rows, memory in tried.items() if memory is None)
    assert found < refused <= found + max(step, found // compiler.CLOSE)
    assert len(tried) < 12


def test_a_start_that_does_not_fit_is_an_error():
    with pytest.raises(common.CheckError, match="64 rows do not fit; give fewer with --rows"):
        compiler.largest(lambda rows: None, 64, 8, 300)


def test_the_table_says_what_was_refused():
    step = compiler.Program("tiny", "bf16", "train", 32)
    text = '{"arguments": 3, "argument": 17600000, "output": 5, "alias": 4, "temp": 2000000000'
    good = compiler.Compiled.parse(
        text + ', "generated_code": 7000000, "scatters": 3, "seconds": 12.3}'
    )
    assert good.total == 17600000 + 5 - 4 + 2000000000
    hbm = compiler.Compiled(refused="RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Us")
    assert hbm.too_large
    tensor = "RESOURCE_EXHAUSTED: Allocation (size=27380416512) would exceed memory (size=17"
    assert compiler.Compiled(refused=tensor).too_large
    assert not compiler.Compiled(refused="UNIMPLEMENTED: no sort | of strings").too_large
    bad = compiler.Compiled(refused="UNIMPLEMENTED: no sort |\n of strings")
    rows = compiler.table({(step, "v5e:2x4"): good, (step, "v6e:2x4"): bad})[2:]
    assert rows == [
        "| tiny train, bf16 | v5e | 17.6 MB | 0.0 MB | 2.00 GB | 7.0 MB | 3 | 12 s |",
        "| tiny train, bf16 | v6e | refused: UNIMPLEMENTED: no sort / of strings | | | | | |",
    ]
