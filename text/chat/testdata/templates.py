"""Writes random.json: templates of random parts, rendered by transformers.

    hf/bin/python text/chat/testdata/templates.py [SEED TEMPLATES OUT.json]

gorbit may refuse one of them, but gives no other text, and fails where transformers fails.
"""

import json
import random
import signal
import sys
import warnings

import generate

# fmt: off
VALUES = [
    "x", "y", "m", "n", "n.a", "loop", "loop.first", "loop.index0", "messages", "messages[0]", "m.role", "m['content']",
    "m.x", "m.items", "nope", "tools", "bos_token", "none", "true", "false", "0", "1", "2", "-1", "7", "''", "'a'",
    "' b\\n'", "'a,b'", "'\u00dc'", "[]", "[1, 'a', none]", "(1,)", "()", "{'a': 1, 'items': 2}", "{}", "range(3)",
]
FILTERS = [
    "trim", "length", "upper", "lower", "capitalize", "list", "first", "last", "join(',')", "join", "string", "tojson",
    "default('d')", "default('d', true)", "replace('a', 'b')", "items", "map(attribute='role')", "select", "safe",
    "selectattr('role', 'equalto', 'user')", "reject('none')", "select('string')", "rejectattr('x')", "trim('a')",
]
TESTS = [
    "defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number", "integer", "boolean", "true",
    "false", "odd", "even", "eq(1)", "ne('a')", "in([1, 'a'])", "in 'abc'", "equalto 1",
]
AFTER = [
    ".strip()", ".lstrip()", ".rstrip('b')", ".split(',')", ".split()", ".split(',', 1)", ".upper()", ".startswith('a')",
    ".endswith('b')", ".replace('a', '')", ".find('b')", ".count('a')", ".join(['a', 'b'])", ".get('a')", ".keys()",
    ".get('role', 'z')", ".values()", ".items()", ".rsplit(',', 1)", ".removeprefix('a')", "[0]", "[-1]", "[1:]", "[:-1]",
    "[::-1]", "['a']", "['role']", "[5]", "[-5:]", "[::2]", "[2:0:-1]", ".a", ".role", ".items", ".x",
]
OPERATORS = ["+", "-", "*", "//", "%", "~", "==", "!=", "<", ">=", "in", "not in", "and", "or"]
SPACE = ["", "", "", " ", "\n", "  \n", "\n  ", "\t", "\n\n", " a ", "b\n", "\n c"]
# fmt: on


class Writer:
    """Writes templates of random parts."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def one(self, of: list) -> str:
        return self.random.choice(of)

    def value(self, depth: int = 0) -> str:
        if depth > 2 or self.random.random() < 0.4:
            return self.one(VALUES)
        a, b = self.value(depth + 1), self.value(depth + 1)
        return self.one(
            [
                f"{a} | {self.one(FILTERS)}",
                f"{a} is {self.one(['', 'not '])}{self.one(TESTS)}",
                f"{a}{self.one(AFTER)}",
                f"({a}){self.one(AFTER)}",
                f"{a} {self.one(OPERATORS)} {b}",
                f"{a} {self.one(OPERATORS)} {b}",
                f"not {a}",
                f"({a})",
                f"{a} if {b} else {self.one(VALUES)}",
                f"[{a}, {b}]",
                f"f({a})",
            ]
        )

    def tag(self, text: str) -> str:
        signs = ["", "", "-", "+"]
        return f"{{%{self.one(signs)} {text} {self.one(signs)}%}}"

    def body(self, depth: int) -> str:
        return "".join(self.statement(depth) for _ in range(self.random.randint(0, 3)))

    def statement(self, depth: int) -> str:
        tag, body, k = self.tag, lambda: self.body(depth + 1), self.random.random()
        if k < 0.45 or depth > 3:
            out = f"{{{{{self.one(['', '-'])} {self.value()} {self.one(['', '-'])}}}}}"
        elif k < 0.6:
            out = tag("if " + self.value()) + body() + tag(self.one(["else", "elif x"]))
            out += body() + tag("endif")
        elif k < 0.75:
            names = self.one(["m", "x", "k, v"])
            over = self.one(
                ["messages", "range(3)", "messages[0].items()", "'ab'", self.value()]
            )
            jump = (
                tag("if loop.index0 == 1")
                + tag(self.one(["break", "continue"]))
                + tag("endif")
            )
            out = (
                tag(f"for {names} in {over}{self.one(['', ' if ' + self.value()])}")
                + body()
            )
            out += self.one(["", jump + body()]) + self.one(["", tag("else") + body()])
            out += tag("endfor")
        elif k < 0.88:
            out = tag(f"set {self.one(['x', 'y', 'm', 'n.a'])} = {self.value()}")
        elif k < 0.92:
            out = tag("set x") + body() + tag("endset")
        elif k < 0.96:
            out = f"{{#{self.one(['', '-'])} c {self.one(['', '-'])}#}}"
        else:
            out = tag("macro f(a, b='q')") + body() + tag("endmacro")
        return self.one(SPACE) + out + self.one(SPACE)


def late(*_: object) -> None:
    """Ends a template that repeats a text many times."""
    raise ValueError("it takes too long")


def main() -> None:
    seed, number, out = (
        *sys.argv[1:],
        *[1, 400, generate.HERE / "random.json"][len(sys.argv) - 1 :],
    )
    generate.chat_template_utils.datetime = generate.Fixed
    warnings.simplefilter("ignore")  # of Python, of what templates become
    signal.signal(signal.SIGALRM, late)
    writer, templates = Writer(int(seed)), []
    while len(templates) < int(number):
        template = "{% set n = namespace(a=1) %}" + writer.body(0)
        if len(template) > 400:
            continue
        signal.alarm(5)
        case = generate.render(template, generate.CONVERSATIONS["turns"], False)
        signal.alarm(0)
        templates.append(
            {"name": "random", "template": template, "cases": {"turns": case}}
        )
    turns = {"turns": generate.CONVERSATIONS["turns"]}
    golden = {"tokens": generate.TOKENS, "conversations": turns, "templates": templates}
    with open(out, "w") as f:
        f.write(json.dumps(golden, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
