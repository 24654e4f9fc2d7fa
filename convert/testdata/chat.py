"""Writes chat.json: conversations as transformers makes tokens of them, and which the assistant wrote.

hf/bin/python convert/testdata/chat.py
"""

import json
import pathlib

from transformers import PreTrainedTokenizerFast

HERE = pathlib.Path(__file__).parent
TOKENIZERS = HERE.parent.parent / "text" / "tokenizerjson" / "testdata"
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content + '<|im_end|>\n' }}{% endgeneration %}"
    "{% else %}{{ m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
INST = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' + m.content }} [/INST]"
    "{% elif m.role == 'assistant' %}{% generation %}{{ ' ' + m.content + eos_token }}"
    "{% endgeneration %}{% else %}{{ raise_exception('no ' + m.role) }}{% endif %}{% endfor %}"
)
CASES = {
    "smollm.json": (CHATML, {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}),
    "llama2.json": (INST, {"bos_token": "<s>", "eos_token": "</s>"}),
    "llama3.json": (
        INST,
        {"bos_token": "<|begin_of_text|>", "eos_token": "<|endoftext|>"},
    ),
}
CONVERSATIONS = [
    [("user", "the girl is fast"), ("assistant", "it is")],
    [
        ("user", "who?\n"),
        ("assistant", " the  \u00fcber \U0001f600 girl"),
        ("user", "x"),
        ("assistant", "y"),
    ],
    [("user", "a"), ("assistant", "b"), ("user", "c")],
    [
        ("user", "</s> <|im_end|>"),
        ("assistant", ""),
        ("user", "2+2"),
        ("assistant", "\n4\n"),
    ],
]


def main() -> None:
    out = []
    for name, (template, special) in CASES.items():
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_file=str(TOKENIZERS / name), **special
        )
        cases = []
        for conversation in CONVERSATIONS:
            messages = [
                {"role": role, "content": content} for role, content in conversation
            ]
            got = tokenizer.apply_chat_template(
                messages,
                chat_template=template,
                return_dict=True,
                return_assistant_tokens_mask=True,
            )
            cases.append(
                {
                    "messages": messages,
                    "ids": got["input_ids"],
                    "learned": got["assistant_masks"],
                }
            )
        out.append(
            {
                "tokenizer": name,
                "special": special,
                "template": template,
                "cases": cases,
            }
        )
    (HERE / "chat.json").write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
