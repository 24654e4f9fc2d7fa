"""The Hugging Face rows of finetune_hf."""

import pytest

import finetune_hf
from peers import data, hf


def test_scores_are_those_of_label_one():
    got = hf.scores([1, 1, 0, 0, 1], [1, 0, 0, 1, 1])
    assert got["accuracy"] == pytest.approx(3 / 5)
    assert got["f1"] == pytest.approx(2 / 3)
    assert hf.scores([0, 0], [1, 0]) == {"accuracy": 0.5, "f1": 0.0}


def test_records_become_columns(tmp_path):
    data._write(str(tmp_path), [data._record(0, [5, 6, 7], [0, 0, 1], 1)])
    assert finetune_hf.columns(str(tmp_path), "train") == {
        "input_ids": [[5, 6, 7]],
        "attention_mask": [[1, 1, 1]],
        "token_type_ids": [[0, 0, 1]],
        "labels": [1],
    }
    with pytest.raises(SystemExit, match="no files of the split dev"):
        finetune_hf.columns(str(tmp_path), "dev")
