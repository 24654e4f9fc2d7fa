"""Writes goldens: conversations, rendered by transformers with the templates of a folder.

    hf/bin/python text/chat/testdata/generate.py [FOLDER OUT.json]

Without arguments it renders the templates beside it into goldens.json, and the small ones of
snippets.json: either gorbit and transformers fail with one, or both give the same text. Those under
"refused" are not known to gorbit. GORBIT_CHAT_GOLDENS=OUT.json shows goldens of another folder, such
as the templates of the package trl, to the same test.
"""

import datetime
import json
import pathlib
import sys

from jinja2 import TemplateError
from transformers.utils import chat_template_utils

HERE = pathlib.Path(__file__).parent
TOKENS = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "pad_token": "<pad>",
    "unk_token": "<unk>",
}


class Fixed(datetime.datetime):
    """A clock that stands, for strftime_now."""

    @classmethod
    def now(cls, tz=None):
        return cls(2025, 3, 7, 9, 5, 4)


def conversation(*turns: tuple) -> list:
    return [{"role": role, "content": content} for role, content in turns]


def called(name: str, function: str, arguments: dict) -> dict:
    return {
        "id": name,
        "type": "function",
        "function": {"name": function, "arguments": arguments},
    }


CONVERSATIONS = {
    "question": conversation(("user", "What is 2+2?")),
    "system": conversation(
        ("system", "  Be brief.\n"), ("user", ' Hi <there> & "you" ')
    ),
    "turns": conversation(
        ("system", "You help."),
        ("user", "One?"),
        ("assistant", " 1\n"),
        ("user", "Zwei? \u00dc\u4e2d\U0001f600"),
        ("assistant", "2\n\nlines"),
    ),
    "thoughts": conversation(
        ("user", "Q"),
        ("assistant", "<think>\nhm\n</think>\n\nA"),
        ("user", "R"),
        ("assistant", "<think>ho</think>B"),
        ("user", "S\u00a0\u2003"),
    ),
    "code": conversation(
        ("user", "{{ 1 }}{% if %}\\n'\"\t"), ("assistant", "```\n{# x #}\n```")
    ),
    "empty": conversation(("user", ""), ("assistant", "")),
    "twice": conversation(("user", "a"), ("user", "b")),
    "starts": conversation(("assistant", "Hello"), ("user", "b"), ("assistant", "c")),
    "role": conversation(("user", "a"), ("critic", "b")),
    "late system": conversation(
        ("user", "a"), ("assistant", "b"), ("system", "s"), ("user", "c")
    ),
    "nothing": [],
}
CALLED = {
    "calls": [
        *conversation(("user", "Weather?")),
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                called(
                    "a1",
                    "get",
                    {"city": 'U"lm\u00e4 <b>', "days": [1, -2], "all": None},
                ),
                called("a2", "list", {}),
            ],
        },
        {"role": "tool", "content": '{"rain": true}', "tool_call_id": "a1"},
        {"role": "tool", "content": "none"},
        *conversation(("assistant", "Rain."), ("user", "Thanks")),
    ],
}
"""Conversations for calls.jinja alone, as others ignore what they do not know."""

# What a template fails with.
FAILURES = (
    TemplateError,
    TypeError,
    ValueError,
    ArithmeticError,
    RecursionError,
    SyntaxError,
)


def render(template: str, messages: list, prompt: bool) -> dict:
    try:
        texts, spans = chat_template_utils.render_jinja_template(
            conversations=[messages],
            chat_template=template,
            add_generation_prompt=prompt,
            return_assistant_tokens_mask=True,
            **TOKENS,
        )
    except FAILURES as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"text": texts[0], "spans": [list(s) for s in spans[0]]}


def main() -> None:
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 2 else HERE
    out = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else HERE / "goldens.json"
    chat_template_utils.datetime = Fixed
    templates = []
    for path in sorted(folder.glob("*.jinja")):
        template = path.read_bytes().decode()
        cases = {
            f"{name}, prompt" if prompt else name: render(template, messages, prompt)
            for name, messages in (
                CONVERSATIONS | (CALLED if path.stem == "calls" else {})
            ).items()
            for prompt in (False, True)
        }
        templates.append({"name": path.name, "template": template, "cases": cases})
    if folder == HERE:
        small = json.loads((HERE / "snippets.json").read_text())
        for name, template in [(n, t) for n in small for t in small[n]]:
            case = render(template, CONVERSATIONS["turns"], False)
            templates.append(
                {"name": name, "template": template, "cases": {"turns": case}}
            )
    conversations = CONVERSATIONS | CALLED
    golden = {"tokens": TOKENS, "conversations": conversations, "templates": templates}
    out.write_text(json.dumps(golden, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
