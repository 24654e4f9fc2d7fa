"""Writes small tokenizers as llama.cpp keeps them, and the ids that it gives (ids.json).

Needs `pip install gguf llama-cpp-python`.
"""

import json
import pathlib

import gguf
from llama_cpp import Llama

FOLDER = pathlib.Path(__file__).parent
TEXTS = (
    "hello there",
    " the other  the\n\nthere's 1234 thermometers",
    "It's 2024;  don't\tTHE'RE\r\n\r\n  end  ",
    "<|end|>the<|begin|> she<tool>then",
    "Grüße, 世界 ½ ٣٤٥ 12\u00a034",
    "x=(1+22)*333-4444;//the",
    "   ",
)
MERGES = [
    "Ġ t",
    "h e",
    "Ġt he",
    "r e",
    "e r",
    "Ġthe re",
    "t he",
    "the r",
    "1 2",
    "12 3",
    "3 4",
    "' s",
    "' re",
    "ĠĠ ĠĠ",
    "Ċ Ċ",
    "Ġ Ġ",
    "t h",
    "2 0",
    "20 2",
]


def characters() -> list[str]:
    """Returns GPT-2's character of each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(others)) for b in range(256)]


def write(pre: str) -> pathlib.Path:
    """Writes the tokenizer whose texts are divided as `pre` says."""
    path = FOLDER / f"{pre}.gguf"
    tokens, kinds = ["<|end|>", "<|begin|>", "<tool>"], [3, 3, 4]
    merges = []
    for token in characters():
        tokens.append(token)
        kinds.append(1)
    for merge in MERGES:
        if merge.replace(" ", "") in tokens or any(
            p not in tokens for p in merge.split()
        ):
            continue
        merges.append(merge)
        tokens.append(merge.replace(" ", ""))
        kinds.append(1)
    if (
        pre == "llama-bpe"
    ):  # a token that no merge makes, which is taken if it is a word
        tokens.append("hello")
        kinds.append(1)
    writer = gguf.GGUFWriter(path, "llama")
    for name, value in (
        ("vocab_size", len(tokens)),
        ("context_length", 64),
        ("block_count", 0),
    ):
        getattr(writer, f"add_{name}")(value)
    writer.add_embedding_length(32)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(0)
    if pre == "qwen2":
        writer.add_add_bos_token(True)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def main() -> None:
    """Writes all tokenizers, and ids.json."""
    ids = {}
    for pre in ("gpt-2", "smollm", "qwen2", "llama-bpe"):
        model = Llama(str(write(pre)), vocab_only=True, verbose=False)
        ids[pre] = [
            {
                "text": text,
                "ids": model.tokenize(text.encode(), add_bos=True, special=True),
            }
            for text in TEXTS
        ]
    (FOLDER / "ids.json").write_text(json.dumps(ids, indent=1) + "\n")


if __name__ == "__main__":
    main()
