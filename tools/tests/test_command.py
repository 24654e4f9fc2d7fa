"""The command line: exit codes, what is overwritten, and errors without a traceback."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
from concurrent import futures

import pytest
from helpers import run_script

from gorbit_export import __main__ as command
from gorbit_export import config, vocabulary

GOLDENS = pathlib.Path(__file__).parent / "goldens"
SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 20,
    "max_position_embeddings": 8,
}


@pytest.fixture
def small(tmp_path) -> str:
    path = tmp_path / "small.json"
    path.write_text(json.dumps(SMALL))
    return str(path)


def run(*args: object) -> int:
    return command.main(["bert-classifier", *map(str, args)])


@pytest.fixture(scope="module")
def small_export(tmp_path_factory) -> pathlib.Path:
    """A small export, to copy."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "small.json").write_text(json.dumps(SMALL))
    assert run("--config", folder / "small.json", "--out", folder / "graph") == 0
    return folder / "graph"


def contract(out: pathlib.Path) -> dict:
    return json.loads((out / "assets" / "gorbit.json").read_text())


def test_exports_what_the_options_say(only_contract, small, tmp_path, capsys):
    out = tmp_path / "a" / "b" / "graph"
    options = ["--num-labels", 5, "--pooling", "mean", "--vocab-size", 30, "--seed", 3]
    assert run("--config", small, "--out", out, *options) == 0
    model = contract(out)["model"]
    assert (model["num_labels"], model["pooling"]) == (5, "mean")
    assert model["config"]["vocab_size"] == 30
    sizes = {v["name"]: v["shape"] for v in contract(out)["variables"]}
    assert sizes["model/encoder/embeddings/word/table"] == [30, 16]
    total = config.BertConfig(**{**SMALL, "vocab_size": 30}).parameters + 16 * 5 + 5
    assert f"{total:,} parameters" in capsys.readouterr().out
    assert [p.name for p in out.parent.iterdir()] == ["graph"], "the export left other files"


def test_exports_a_causal_language_model(only_contract, tmp_path, capsys):
    values = {"model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 8}
    (tmp_path / "config.json").write_text(json.dumps({**values, "vocab_size": 30}))
    args = ["causal", "--config", str(tmp_path / "config.json"), "--out", str(tmp_path / "lm")]
    assert command.main([*args, "--vocab-size", "20", "--precision", "bf16"]) == 0
    written = contract(tmp_path / "lm")
    assert (written["task"], written["precision"]) == ("lm", "bf16")
    assert (written["model"]["architecture"], written["generation"]["vocab_size"]) == ("gpt2", 20)
    assert command.main([*args, "--overwrite", "--lora-rank", "2"]) == 0
    adapted = {v["name"].split("/")[-2] for v in contract(tmp_path / "lm")["variables"]}
    assert adapted == {"query_key_value"}
    assert "generation_config" not in capsys.readouterr().out
    asked = {"do_sample": True, "temperature": 0.6, "top_k": 50, "eos_token_id": [3, 4]}
    asked |= {"suppress_tokens": [5], "bad_words_ids": [[6]], "max_length": None}
    (tmp_path / "generation_config.json").write_text(json.dumps(asked))
    assert command.main([*args, "--overwrite", "--lora-rank", "2"]) == 0
    assert (
        "generation_config.json asks for texts by --do-sample=true --temperature 0.6: gorbit takes "
        "these from its flags\n"
        "generation_config.json ends texts with tokens 3, 4: gorbit with the tokenizer's, or "
        "--eos-token\n"
        "generation_config.json has suppress_tokens, bad_words_ids, which gorbit leaves out\n"
    ) in capsys.readouterr().out
    assert command.main([*args, "--overwrite", "--lora-rank", "2", "--lora-targets", "query"]) == 2
    assert "LoRA target is 'query'; expected some of query_key_value" in capsys.readouterr().err


def test_exports_an_encoder_decoder_model(only_contract, tmp_path, capsys):
    values = json.loads((GOLDENS / "seq2seq" / "t5.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(values))
    args = ["seq2seq", "--config", str(tmp_path / "config.json"), "--out", str(tmp_path / "t5")]
    lengths = ["--max-length", "30", "--max-target-length", "40"]
    assert command.main([*args, *lengths, "--vocab-size", "25", "--precision", "bf16"]) == 0
    written = contract(tmp_path / "t5")
    assert (written["task"], written["input"], written["precision"]) == (
        "seq2seq",
        "packed",
        "bf16",
    )
    generation = written["generation"]
    assert (generation["max_length"], generation["source"]["max_length"]) == (40, 30)
    assert (generation["vocab_size"], generation["decoder_start_token_id"]) == (25, 0)
    capsys.readouterr()
    asked = {"num_beams": 4, "length_penalty": 2.0, "temperature": 0.6, "early_stopping": True}
    (tmp_path / "config.json").write_text(json.dumps({**values, **asked}))
    assert command.main([*args, "--overwrite"]) == 0
    wanted = (
        "config.json asks for texts by --early-stopping=true --length-penalty 2.0 --num-beams 4"
    )
    assert f"\n{wanted}: gorbit takes these from its flags\n" in capsys.readouterr().out
    assert command.main([*args, "--overwrite", "--lora-rank", "2", "--lora-targets", "wide"]) == 2
    assert "expected some of query, key, value, output, source_query" in capsys.readouterr().err
    assert command.main([*args, "--overwrite", "--max-length", "0"]) == 2
    assert "--max-length is 0; expected 1 or more" in capsys.readouterr().err


def test_overwrites_exports_only(small, small_export, only_contract, tmp_path, capsys):
    out = tmp_path / "graph"
    shutil.copytree(small_export, out)
    (out / "old").touch()
    assert run("--config", small, "--out", out) == 2
    assert capsys.readouterr().err == (
        f"gorbit_export: {out} already exists; choose another folder, "
        "or add --overwrite to replace it\n"
    )
    assert (out / "old").exists()
    assert run("--config", small, "--out", out, "--overwrite", "--num-labels", 3) == 0
    assert contract(out)["model"]["num_labels"] == 3
    assert not (out / "old").exists()

    capsys.readouterr()
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("years of work")
    (tmp_path / "link").symlink_to(out)
    for path in (other, other / "thesis.tex", tmp_path / "link"):
        assert run("--config", small, "--out", path, "--overwrite") == 2
        assert capsys.readouterr().err == (
            f"gorbit_export: {path} already exists and is not an export, so it is not "
            "overwritten; choose another folder\n"
        )
    assert (other / "thesis.tex").read_text() == "years of work"


def test_a_failed_export_leaves_the_old_one(small, small_export, tmp_path, monkeypatch, capsys):
    import tensorflow as tf

    out = tmp_path / "graph"
    shutil.copytree(small_export, out)

    def full(*args: object, **kwargs: object) -> None:
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    monkeypatch.setattr(tf.saved_model, "save", full)
    before = (out / "saved_model.pb").read_bytes()
    assert run("--config", small, "--out", out, "--overwrite") == 1
    assert capsys.readouterr().err == "gorbit_export: No space left on device\n"
    assert (out / "saved_model.pb").read_bytes() == before
    assert {p.name for p in tmp_path.iterdir()} == {"graph", "small.json"}


KILLED = """
import os, signal, sys
from gorbit_export import export
from gorbit_export.__main__ import main

def write(module, out):
    (out / "variables").mkdir(parents=True)
    if len(sys.argv) < 4:
        os.kill(os.getpid(), signal.SIGKILL)
    open(sys.argv[3]).read()
    raise OSError("told to end")

export._write = write
sys.exit(main(["bert-classifier", "--config", sys.argv[1], "--out", sys.argv[2]]))
"""


def test_leftovers_of_killed_exports_are_removed(only_contract, small, tmp_path):
    out = tmp_path / "graph"
    env = {**os.environ, "PYTHONPATH": str(pathlib.Path(command.__file__).parents[1])}

    def parts() -> list[str]:
        return [path.parts[-3] for path in tmp_path.glob(".graph.part-*/new/variables")]

    killed = run_script(KILLED, [small, str(out)], env)
    assert killed.returncode < 0
    [leftover] = parts()

    pipe = tmp_path / "small.pipe"
    os.mkfifo(pipe)
    with futures.ThreadPoolExecutor() as threads:
        live = threads.submit(run_script, KILLED, [small, str(out), str(pipe)], env)
        try:
            while not live.done() and parts() in ([leftover], []):
                time.sleep(0.02)
            assert not live.done(), live.result().stderr
            [part] = parts()
            assert part != leftover, "the leftovers of the killed export are still there"
            others = [
                ".graph.part-",
                ".graph.part-keep",
                ".other.part-abcdefgh",
                "graph.part-abcdefgh",
            ]
            for name in others:
                (tmp_path / name).mkdir()

            kept = {"graph", "small.json", "small.pipe", *others}
            assert run("--config", small, "--out", out) == 0
            assert {p.name for p in tmp_path.iterdir()} == {*kept, part}
        finally:
            os.close(os.open(pipe, os.O_RDWR))  # ends the wait of its reader
        assert live.result().returncode == 1
        assert {p.name for p in tmp_path.iterdir()} == kept


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--num-labels", 1], "num_labels is 1; expected 2 to 10000"),
        (["--num-labels", -1], "num_labels is -1; expected 2 to 10000"),
        (["--num-labels", 10**12], f"num_labels is {10**12}; expected 2 to 10000"),
        (["--vocab-size", 0], "vocab_size is 0; expected a positive integer"),
        (["--vocab-size", 10**14], "needs 19,200,000 GB with its optimizer slots; this machine"),
        (["--config", "giant"], "config is 'giant'; expected one of tiny, mini"),
        (["--out", "/dev/null/graph"], "/dev/null is not a folder"),
    ],
)
def test_wrong_values_are_usage_in_one_sentence(small, tmp_path, capsys, options, message):
    assert run("--config", small, "--out", tmp_path / "out", *options) == 2
    err = capsys.readouterr().err
    assert err.startswith("gorbit_export: ")
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_unknown_activation_is_named(tmp_path, capsys):
    path = tmp_path / "c.json"
    path.write_text(json.dumps({**SMALL, "hidden_act": "mish"}))
    assert run("--config", path, "--out", tmp_path / "out") == 2
    assert "hidden_act is 'mish'; expected one of gelu, " in capsys.readouterr().err


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["gpt"],
        ["bert-classifier"],
        ["bert-classifier", "--config", "tiny"],
        ["bert-classifier", "--config", "tiny", "--out", "x", "--num-labels", "two"],
        ["bert-classifier", "--config", "tiny", "--out", "x", "--pooling", "max"],
        ["bert-classifier", "--config", "tiny", "--out", "x", "--optimizer", "nadam"],
        ["bert-classifier", "--config", "tiny", "--out", "x", "--seed", str(1 << 63)],
        ["bert-classifier", "--config", "tiny", "--out", "x", "--nonsense"],
    ],
)
def test_wrong_usage_exits_with_2(args, capsys):
    with pytest.raises(SystemExit) as exit:
        command.main(args)
    assert exit.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_help_is_complete(capsys):
    with pytest.raises(SystemExit) as exit:
        command.main(["bert-classifier", "--help"])
    assert exit.value.code == 0
    out = " ".join(capsys.readouterr().out.split())
    for text in ("--config", "base, large, or a bert_config.json", "--seed", "(default: adamw)"):
        assert text in out


FAKE = """
import sys, types
{module}
from gorbit_export.__main__ import main
sys.exit(main(["bert-classifier", "--config", "tiny", "--out", sys.argv[1]]))
"""

PYTHON = """
from gorbit_export import release
release.sys = types.SimpleNamespace(version_info={})
"""


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (
            "sys.modules['tensorflow'] = None\n" + PYTHON.format("(3, 11, 7)"),
            "gorbit_export: cannot import TensorFlow (import of tensorflow halted; None in "
            "sys.modules); expected 2.18 to 2.21; run pip install 'tensorflow-cpu==2.18.*'\n",
        ),
        (
            "sys.modules['tensorflow'] = sys.modules['numpy'] = None\n"
            + PYTHON.format("(3, 13, 5)"),
            "gorbit_export: cannot import TensorFlow (import of tensorflow halted; None in "
            "sys.modules); expected 2.18 to 2.21; run pip install 'tensorflow-cpu==2.20.*'\n",
        ),
        (
            "sys.modules['tensorflow'] = sys.modules['numpy'] = None\n"
            + PYTHON.format("(3, 14, 1)"),
            "gorbit_export: cannot import TensorFlow (import of tensorflow halted; None in "
            "sys.modules); expected 2.18 to 2.21; Python 3.14 has none of them: take Python 3.9 "
            "to 3.13\n",
        ),
        (
            "m = sys.modules['tensorflow'] = types.ModuleType('tensorflow')\n"
            "m.__version__ = '2.22.0'\n" + PYTHON.format("(3, 11, 7)"),
            "gorbit_export: TensorFlow is 2.22.0; expected 2.18 to 2.21; "
            "run pip install 'tensorflow-cpu==2.18.*'\n",
        ),
    ],
)
def test_other_tensorflow_is_said(tmp_path, module, message):
    script = FAKE.format(module=module)
    run = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "out")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(pathlib.Path(command.__file__).parents[1])},
    )
    assert (run.returncode, run.stderr) == (1, message)
    assert not (tmp_path / "out").exists()


@pytest.fixture
def dataset(tmp_path) -> pathlib.Path:
    """A dataset as `gorbit convert` writes it, without its records."""
    folder = tmp_path / "data"
    folder.mkdir()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens = special + [f"w{i}" for i in range(15)]
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n")
    manifest = {
        "format": "gorbit-dataset",
        "version": 1,
        "labels": ["O", "B-A", "I-A"],
        "vocab": {"file": "vocab.txt", "size": 20},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


@pytest.mark.parametrize("task", command.TASKS)
def test_every_task_exports(task, only_contract, small, dataset, tmp_path):
    """The graphs of all tasks are those of TestTextTasks, of Go."""
    out = tmp_path / "graph"
    args = ["bert", "--task", task, "--config", small, "--data", str(dataset), "--out", str(out)]
    assert command.main(args) == 0
    got = contract(out)
    assert (got["task"], got["input"]) == (task, "packed")
    features = {f["name"]: f for f in got["features"]}
    if task in ("classification", "multilabel", "tokens"):
        assert got["model"]["labels"] == ["O", "B-A", "I-A"]
    if task == "tokens":
        assert got["best"] == {"metric": "f1", "better": "higher"}
        labels = features["labels"]
        assert (labels["minimum"], labels["below"], labels["pad"]) == (-1, 3, -1)
        assert features["example_ids"]["make"] == "example_ids"
    if task == "multilabel":
        assert (features["labels"]["make"], features["labels"]["shape"]) == ("multi_hot", [None, 3])
    if task == "mlm":
        special = [0, 1, 2, 3, 4]
        assert got["masking"] == {
            "mask_token": 4,
            "vocab_size": 20,
            "special": special,
            "word_starts": False,
        }
        assert got["metrics"] == [{"name": "perplexity", "better": "lower"}]


_TOKENIZER = {
    "added_tokens": [
        {"id": 0, "content": "<s>", "special": True},
        {"id": 1, "content": "<pad>", "special": True},
        {"id": 19, "content": "<mask>", "special": True},
        {"id": 3, "content": "word", "special": False},
    ],
    "model": {"vocab": {f"w{i}": i for i in range(2, 19)}},
}


@pytest.mark.parametrize(
    ("name", "content", "wanted"),
    [
        ("tokenizer.json", json.dumps(_TOKENIZER), (20, 19, (0, 1, 19))),
        (
            "tokenizer.json",
            json.dumps({"model": {"vocab": [["<unk>", 0.0], ["a", -1.5], ["<mask>", 0]]}}),
            (3, 2, (2,)),
        ),
        ("vocab.txt", "[PAD]\n[UNK]\na\n[MASK]\n", (4, 3, (0, 1, 3))),
        ("vocab.txt", "a\r\nb", (2, None, ())),
    ],
)
def test_the_special_tokens_of_a_tokenizer(tmp_path, name, content, wanted):
    (tmp_path / name).write_text(content)
    for path in (tmp_path, tmp_path / name):
        got = vocabulary.load(path)
        assert (got.size, got.mask, got.special) == wanted


def _piece(text: str, kind: int) -> bytes:
    """Returns a piece of a SentencePiece model: its text, a score and its type."""
    inner = b"\x0a" + bytes([len(text.encode())]) + text.encode() + b"\x15\x00\x00\x80\xbf"
    inner += bytes([0x18, kind])
    return b"\x0a" + bytes([len(inner)]) + inner


_MODEL = (
    _piece("<unk>", 2)
    + _piece("<s>", 3)
    + _piece("▁a", 1)
    + _piece("<mask>", 4)
    + b"\x12\x02\x18\x02"
)


def test_the_special_tokens_of_a_sentencepiece_model(tmp_path):
    (tmp_path / "spiece.model").write_bytes(_MODEL)
    for path in (tmp_path, tmp_path / "spiece.model"):
        got = vocabulary.load(path)
        assert (got.size, got.mask, got.special) == (4, 3, (0, 1, 3))
    (tmp_path / "spiece.model").write_bytes(_MODEL[:-5])
    with pytest.raises(ValueError, match="not a model of SentencePiece"):
        vocabulary.load(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="give --data"):
        vocabulary.load(tmp_path)
    with pytest.raises(ValueError, match="is a GGUF; give --data"):
        vocabulary.load(tmp_path / "model.gguf")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON"),
        ("[]", "not a tokenizer.json"),
        ('{"model": {"vocab": {"a": "b"}}}', "not a tokenizer.json"),
        ('{"model": {"vocab": {}}, "added_tokens": [{}]}', "not a tokenizer.json: KeyError"),
    ],
)
def test_a_file_that_is_no_tokenizer(tmp_path, content, message):
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        vocabulary.load(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--task", "mlm"], "--task mlm needs --data or --tokenizer, for the special tokens"),
        (["--task", "mlm", "--data", "DATA", "--tokenizer", "DATA"], "--data has a tokenizer"),
        (["--task", "mlm", "--tokenizer", "/nowhere.json"], "/nowhere.json: no such file"),
        (["--task", "tokens", "--num-labels", 1], "num_labels is 1; expected 2 to 10000"),
        (["--task", "regression", "--num-labels", 1], "--task regression has no labels"),
        (["--task", "tokens", "--pooling", "mean"], "--task tokens has no pooling"),
        (["--task", "tokens", "--data", "/nowhere"], "/nowhere has no manifest.json"),
        (["--task", "tokens", "--data", "DATA", "--num-labels", 4], "num_labels is 4; expected 3"),
        (["--task", "mlm", "--data", "DATA", "--vocab-size", 21], "add --vocab-size 20"),
    ],
)
def test_wrong_tasks_are_usage(small, dataset, tmp_path, capsys, options, message):
    options = [str(dataset) if o == "DATA" else str(o) for o in options]
    out = str(tmp_path / "out")
    assert command.main(["bert", "--config", small, "--out", out, *options]) == 2
    assert message in capsys.readouterr().err
