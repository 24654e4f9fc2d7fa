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


def test_answers_of_other_tasks(tmp_path):
    import numpy as np
    import tensorflow as tf

    def ints(*values):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    features = {
        "input_ids": ints(2, 5, 3),
        "segment_ids": ints(0, 0, 0),
        "label_ids": ints(-1, 4, -1),
        "label": tf.train.Feature(float_list=tf.train.FloatList(value=[2.5])),
    }
    record = tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
    with tf.io.TFRecordWriter(str(tmp_path / "train-0.tfrecord")) as file:
        file.write(record)
    for task, want in (("tokens", [[-100, 4, -100]]), ("regression", [2.5])):
        assert finetune_hf.columns(str(tmp_path), "train", task)["labels"] == want

    class Told:
        predictions = np.array([[[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]]])
        label_ids = np.array([[1, 1, -100]])

    assert hf.tokens(Told) == {"accuracy": 0.5}
