"""Tests of the batches of JAX."""

import json

from harness import plan
from peers import jaxbert


def written(folder, lengths):
    columns = {
        "input_ids": [[7] * length for length in lengths],
        "token_type_ids": [[0] * length for length in lengths],
        "attention_mask": [[1] * length for length in lengths],
        "labels": [at % 2 for at in range(len(lengths))],
    }
    (folder / "examples.json").write_text(json.dumps(columns))


def batches(folder, variant):
    job = plan.Job(variant, steps=6, data=str(folder), options={"batch": "2"})
    return list(jaxbert.taken(job))


def test_grouped_batches_have_few_widths_and_all_examples(tmp_path):
    lengths = [20, 100, 30, 64, 90, 65, 20, 33, 40, 31, 96, 97, 16, 17, 18, 19]
    written(tmp_path, lengths)
    some = batches(tmp_path, "grouped")
    assert len(some) == 8
    assert sorted(int(n) for b in some for n in b["attention_mask"].sum(1)) == sorted(lengths)
    assert {b["input_ids"].shape[1] for b in some} == {32, 64, 96, 128}
    for batch in some:
        assert (batch["input_ids"] == 7 * batch["attention_mask"]).all()


def test_padded_batches_have_one_width(tmp_path):
    written(tmp_path, [20, 100, 30, 64])
    assert {b["input_ids"].shape for b in batches(tmp_path, "padded")} == {(2, 128)}
