"""The comparison of trainings: the model for a tokenizer, the table, and wrong arguments."""

import pathlib
import subprocess
import sys

import seq2seq

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "seq2seq.py"


def test_a_model_has_the_special_tokens_of_its_tokenizer():
    bert = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3}
    roberta = {"<s>": 0, "<pad>": 1, "</s>": 2}
    for tokens, want in ((bert, (2, 0, 3, 3)), (roberta, (0, 1, 2, 2))):
        added = [{"content": name, "id": i} for name, i in tokens.items()]
        made = {"added_tokens": added, "model": {"vocab": {**tokens, "a": 4}}}
        task = seq2seq.TASKS["phonemes"]
        config = seq2seq.model(made, task)
        names = ("bos_token_id", "pad_token_id", "eos_token_id", "decoder_start_token_id")
        assert tuple(config[name] for name in names) == want
        assert (config["vocab_size"], config["d_model"]) == (len(tokens) + 1, task.hidden)


def test_times_are_shares_of_the_trainers():
    results = [
        seq2seq.Result("gorbit", 500, 100.0, {"bleu": 12.345, "loss": 2.0}),
        seq2seq.Result("Hugging Face", 500, 400.0, {"bleu": 12.0, "loss": 2.5}),
    ]
    assert seq2seq.report(results).splitlines() == [
        "| | steps | s | of the Trainer's time | bleu | loss |",
        "| --- | --- | --- | --- | --- | --- |",
        "| gorbit | 500 | 100 | 0.25 | 12.35 | 2 |",
        "| Hugging Face | 500 | 400 | 1.00 | 12 | 2.5 |",
    ]


def test_wrong_arguments_are_refused(tmp_path):
    for args, want in (
        (["--budget", "0"], "--budget is 0.0; expected seconds above 0"),
        (["--steps", "0"], "--steps is 0; expected 1 or more"),
        ([], "en-de.train.tsv is not there; name it with --data or --gorbit"),
    ):
        command = [sys.executable, SCRIPT, "en-de", "--data", tmp_path, *args]
        got = subprocess.run(command, capture_output=True, text=True)
        assert got.returncode == 2 and want in got.stderr, got.stderr
