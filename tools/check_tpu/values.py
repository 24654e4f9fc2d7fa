"""Makes a function without variables of one that reads and writes them.

TensorFlow's Python compiles for a TPU that is not there only what takes no variables. So their
values become arguments, and those that the function leaves in them become results. Calls become
what the called function does: XLA's bridge, as TensorFlow's Python drives it, takes all that is
handed to a call for a constant of the program if one of the call's results must be constant.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Union

import tensorflow as tf
from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2
from tensorflow.python.eager import context
from tensorflow.python.framework import function_def_to_graph


@dataclasses.dataclass(frozen=True)
class Variable:
    """What takes the place of a variable's handle."""

    number: int


Value = Union[tf.Tensor, Variable]
State = dict[Variable, tf.Tensor]
"""The variables' values at a point of the function."""


class Functions:
    """The functions of a graph."""

    def __init__(self, library: function_pb2.FunctionDefLibrary) -> None:
        """Takes the functions, without their devices."""
        self._functions: dict[str, tuple[list[str], list[node_def_pb2.NodeDef], list[str]]] = {}
        for function in library.function:
            for node in function.node_def:
                node.device = ""
            context.context().add_function_def(function)
        for function in library.function:
            graph, names = function_def_to_graph.function_def_to_graph_def(function)
            signature = function.signature
            arguments = [argument.name for argument in signature.input_arg]
            results = [names[function.ret[output.name]] for output in signature.output_arg]
            self._functions[signature.name] = arguments, ordered(graph), results

    def run(
        self, name: str, arguments: Sequence[Value], state: State, scope: str = ""
    ) -> list[Value]:
        """Adds a function's operations to the graph at hand, and returns its results.

        Args:
            name: of the function.
            arguments: of the function.
            state: the variables' values before, and after it those that it leaves.
            scope: what the operations' names begin with.
        """
        taken, nodes, results = self._functions[name]
        values: dict[str, list[Value]] = {n: [value] for n, value in zip(taken, arguments)}

        def value(source: str) -> Value:
            node, _, index = source.partition(":")
            return values[node][int(index or 0)]

        for node in nodes:
            if node.name not in values:
                inputs = [value(source) for source in node.input if not source.startswith("^")]
                values[node.name] = self._node(node, inputs, state, scope)
        return [value(source) for source in results]

    def _node(
        self, node: node_def_pb2.NodeDef, inputs: list[Value], state: State, scope: str
    ) -> list[Value]:
        """Returns what a node gives."""
        inner = f"{scope}{node.name}/"
        if node.op in ("PartitionedCall", "StatefulPartitionedCall"):
            return self.run(node.attr["f"].func.name, inputs, state, inner)
        if node.op in ("If", "StatelessIf"):
            return self._if(node, inputs, state, inner)
        if node.op in ("While", "StatelessWhile"):
            return self._while(node, inputs, state, inner)
        if any(isinstance(value, Variable) for value in inputs):
            return access(node, inputs, state)
        attributes = {key: value for key, value in node.attr.items() if key != "_class"}
        graph = tf.compat.v1.get_default_graph()
        made = graph.create_op(node.op, inputs, name=scope + node.name, attrs=attributes)
        return made.outputs

    def _if(
        self, node: node_def_pb2.NodeDef, inputs: list[Value], state: State, scope: str
    ) -> list[Value]:
        handles = [value for value in inputs if isinstance(value, Variable)]

        def branch(which: str) -> Callable[[], list[tf.Tensor]]:
            def body() -> list[tf.Tensor]:
                own = dict(state)
                got = self.run(node.attr[which].func.name, inputs[1:], own, scope)
                return got + [own[handle] for handle in handles]

            return body

        got = tf.cond(inputs[0], branch("then_branch"), branch("else_branch"))
        count = len(got) - len(handles)
        state.update(zip(handles, got[count:]))
        return got[:count]

    def _while(
        self, node: node_def_pb2.NodeDef, inputs: list[Value], state: State, scope: str
    ) -> list[Value]:
        variable = [isinstance(value, Variable) for value in inputs]

        def run(which: str, loop: Sequence[tf.Tensor]) -> tuple[list[Value], State]:
            own = dict(state)
            arguments = list(inputs)
            for i, value in enumerate(loop):
                if variable[i]:
                    own[inputs[i]] = value
                else:
                    arguments[i] = value
            return self.run(node.attr[which].func.name, arguments, own, scope), own

        def condition(*loop: tf.Tensor) -> tf.Tensor:
            return run("cond", loop)[0][0]

        def body(*loop: tf.Tensor) -> list[tf.Tensor]:
            got, own = run("body", loop)
            return [own[inputs[i]] if variable[i] else value for i, value in enumerate(got)]

        start = [state[value] if isinstance(value, Variable) else value for value in inputs]
        got = tf.while_loop(condition, body, start)
        state.update((inputs[i], value) for i, value in enumerate(got) if variable[i])
        return [inputs[i] if variable[i] else value for i, value in enumerate(got)]


def ordered(graph: graph_pb2.GraphDef) -> list[node_def_pb2.NodeDef]:
    """Returns a graph's nodes, each after those that it needs or waits for."""
    nodes = {node.name: node for node in graph.node}
    done: dict[str, node_def_pb2.NodeDef] = {}
    todo = [node.name for node in reversed(graph.node)]
    while todo:
        name = todo[-1]
        sources = [source.lstrip("^").partition(":")[0] for source in nodes[name].input]
        missing = [source for source in sources if source not in done]
        if missing and name not in done:
            todo.extend(missing)
            continue
        done.setdefault(todo.pop(), nodes[name])
    return list(done.values())


def access(node: node_def_pb2.NodeDef, inputs: list[Any], state: State) -> list[Value]:
    """Does what an operation does with variables."""
    handle = inputs[0]
    if node.op == "Identity":
        return [handle]
    if node.op == "ReadVariableOp":
        return [state[handle]]
    if node.op == "AssignVariableOp":
        state[handle] = inputs[1]
    elif node.op == "AssignAddVariableOp":
        state[handle] += inputs[1]
    elif node.op == "AssignSubVariableOp":
        state[handle] -= inputs[1]
    elif node.op == "ResourceApplyAdam" and not node.attr["use_nesterov"].b:
        adam(*inputs, state)
    else:
        raise ValueError(f"{node.name}: {node.op} of a variable is not known to check_tpu")
    return []


def adam(
    var: Variable,
    m: Variable,
    v: Variable,
    beta1_power: tf.Tensor,
    beta2_power: tf.Tensor,
    lr: tf.Tensor,
    beta1: tf.Tensor,
    beta2: tf.Tensor,
    epsilon: tf.Tensor,
    grad: tf.Tensor,
    state: State,
) -> None:
    """ResourceApplyAdam, by the formula of TensorFlow's bridge."""
    rate = lr * tf.sqrt(1 - beta2_power) / (1 - beta1_power)
    state[m] += (grad - state[m]) * (1 - beta1)
    state[v] += (tf.square(grad) - state[v]) * (1 - beta2)
    state[var] -= state[m] * rate / (tf.sqrt(state[v]) + epsilon)
