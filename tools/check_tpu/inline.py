"""Puts the bodies of called functions in the place of calls, in a library of functions.

XLA's bridge, as TensorFlow's Python drives it, takes all that is handed to a call for a constant of
the program if one of the call's results must be constant, such as a shape. Without calls it looks
at single operations, and only what must be constant is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tensorflow.core.framework import function_pb2, node_def_pb2

CALLS = ("PartitionedCall", "StatefulPartitionedCall")


SUFFIX = "_inlined"


def inlined(library: function_pb2.FunctionDefLibrary) -> function_pb2.FunctionDefLibrary:
    """Returns the library's functions without calls, except those of If and While.

    Their names end in SUFFIX, so that TensorFlow can have both.
    """
    known = {function.signature.name: function for function in library.function}
    done: dict[str, function_pb2.FunctionDef] = {}

    def inline(name: str) -> function_pb2.FunctionDef:
        if name not in done:
            done[name] = _inline(known[name], inline)
        return done[name]

    out = function_pb2.FunctionDefLibrary()
    out.function.extend(inline(name) for name in known)
    for function in out.function:
        function.signature.name += SUFFIX
        for node in function.node_def:
            for value in node.attr.values():
                for called in (value.func, *value.list.func):
                    if called.name in known:
                        called.name += SUFFIX
    return out


def _inline(
    function: function_pb2.FunctionDef, inline: Callable[[str], function_pb2.FunctionDef]
) -> function_pb2.FunctionDef:
    """Returns a function with the bodies of what it calls; `inline` returns them by name."""
    results: dict[str, str] = {}  # the calls' results, by "call:output:0", and what they are now
    nodes: list[node_def_pb2.NodeDef] = []
    for node in function.node_def:
        if node.op not in CALLS:
            nodes.append(node)
            continue
        callee = inline(node.attr["f"].func.name)
        data = [name for name in node.input if not name.startswith("^")]
        arguments = dict(zip((a.name for a in callee.signature.input_arg), data))
        before = node_def_pb2.NodeDef(name=f"{node.name}/before", op="NoOp")
        before.input.extend(name for name in node.input if name.startswith("^"))
        nodes.append(before)
        for inner in callee.node_def:
            copy = node_def_pb2.NodeDef()
            copy.CopyFrom(inner)
            copy.name = f"{node.name}/{inner.name}"
            copy.attr.pop("_class", None)  # names other nodes, for placement
            del copy.input[:]
            copy.input.extend(_moved(name, node.name, arguments) for name in inner.input)
            copy.input.append(f"^{before.name}")
            nodes.append(copy)
        for i, output in enumerate(callee.signature.output_arg):
            result = _moved(callee.ret[output.name], node.name, arguments)
            results[f"{node.name}:output:{i}"] = result
        after = node_def_pb2.NodeDef(name=node.name, op="NoOp")
        after.input.append(f"^{before.name}")
        after.input.extend(f"^{node.name}/{name}" for name in callee.control_ret.values())
        nodes.append(after)

    def now(name: str) -> str:
        while name in results:  # a result of a call may be the result of another
            name = results[name]
        return name

    out = function_pb2.FunctionDef()
    out.CopyFrom(function)
    del out.node_def[:]
    for node in nodes:
        added = out.node_def.add()
        added.CopyFrom(node)
        del added.input[:]
        added.input.extend(_ordered(now(name) for name in node.input))
    for name, result in function.ret.items():
        out.ret[name] = now(result)
    return out


def _moved(name: str, call: str, arguments: dict[str, str]) -> str:
    """Returns what an input of a node of a called function is called in the calling function."""
    if name.startswith("^"):
        return f"^{call}/{name[1:]}"
    return arguments.get(name) or f"{call}/{name}"


def _ordered(names: Iterable[str]) -> list[str]:
    """Returns the names of inputs with those of control after the others, each once."""
    names = list(names)
    data = [name for name in names if not name.startswith("^")]
    return data + list(dict.fromkeys(name for name in names if name.startswith("^")))
