"""Vectors of texts: the pairs, their split, Recall@10, and what is printed."""

import json
import pathlib
import subprocess
import sys

import pytest

import debian
import embed_st
import peers
from peers import sentences

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "embed_st.py"

TRANSLATIONS = """\
Package: ed
Description-md5: 1
Description-en: classic UNIX line editor
 ed is a line-oriented  text editor.
 .
 It is used to create files.

Package: ed-copy
Description-md5: 1
Description-en: classic UNIX line editor
 ed is a line-oriented text editor.
 It is used to create files.

Package: empty
Description-md5: 2
Description-en: a package without a description

Package: bc
Description-md5: 3
Description-en: GNU bc
 An arbitrary precision calculator."""


def test_pairs_are_those_of_the_lists():
    assert embed_st.pairs(dict(debian.entries([*TRANSLATIONS.splitlines(), ""], "en"))) == [
        ("GNU bc", "An arbitrary precision calculator."),
        (
            "classic UNIX line editor",
            "ed is a line-oriented text editor. It is used to create files.",
        ),
    ]
    assert embed_st.pairs({}) == []


def test_a_description_is_in_one_split():
    pairs = [(f"package {i}", f"description {i // 2}") for i in range(400)]
    splits = embed_st.split(pairs, 0.25)
    train, dev = ({b for _, b in splits[name]} for name in ("train", "dev"))
    assert not train & dev and len(splits["train"]) + len(splits["dev"]) == 400
    assert 60 < len(splits["dev"]) < 140
    # The hash of gorbit convert --split-by-hash; a smaller share is a part of a larger one.
    assert {b for _, b in embed_st.split(pairs, 0.1)["dev"]} < dev


def test_recall_counts_what_is_nearer():
    np = pytest.importorskip("numpy")
    texts = np.eye(4, dtype=np.float32)
    queries = np.array([[0.9, 0.1, 0, 0], [0.6, 0.5, 0.4, 0], [0, 0, 0.5, 0.5]], np.float32)
    assert sentences.recall(queries, texts, [0, 1, 2], 1) == pytest.approx(1 / 3)
    assert sentences.recall(queries, texts, [0, 1, 2], 2) == 1.0
    assert sentences.recall(queries, texts, [0, 1, 2], 4) == 1.0


def test_ratios_are_those_within_a_round():
    name = peers.SENTENCES.name
    done = [
        embed_st.Training("gorbit", 10.0, 8.0, 20.0),
        embed_st.Training(name, 30.0, 16.0, 50.0),
        embed_st.Training("gorbit", 20.0, 8.0, 40.0),
        embed_st.Training(name, 80.0, 24.0, 100.0),
    ]
    recalls = {"first weights": 0.5, "gorbit": 0.75, name: 0.7}
    got = [
        [cell.strip() for cell in row.split("|")[1:-1]]
        for row in embed_st.report(done, recalls, 55).splitlines()
    ]
    header = ["", "s of 55 steps, by round", "of the processor", "s of the program", "Recall@10"]
    assert got[0] == header
    assert got[2:] == [
        ["first weights", "", "", "", "0.5000"],
        ["gorbit", "10.0, 20.0", "8.0, 8.0", "20.0, 40.0", "0.7500"],
        [name, "30.0, 80.0", "16.0, 24.0", "50.0, 100.0", "0.7000"],
        ["times as fast", "3.50 (3.00 to 4.00)", "2.50 (2.00 to 3.00)", "2.50 (2.50 to 2.50)", ""],
    ]


def test_numbers_are_written(tmp_path):
    embed_st.write(tmp_path, [embed_st.Training("gorbit", 1.0, 1.5, 2.0)], {"gorbit": 0.5})
    assert json.loads((tmp_path / "figures.json").read_text()) == {
        "trainings": [{"peer": "gorbit", "seconds": 1.0, "processor": 1.5, "whole": 2.0}],
        "recall_10": {"gorbit": 0.5},
    }


def test_lines_of_the_loop_are_read():
    said = "train | step:     15 | steps/sec:  0.2 | output: {'loss': 0.1}"
    assert embed_st._LINE.match(said)[1] == "15"


@pytest.mark.parametrize(
    ("args", "want"),
    [
        (["--rounds", "0"], "--rounds is 0; expected 1 or more"),
        (["--steps", "12"], "--steps is 12; expected a multiple of 5 above 5"),
        (["--held", "1"], "--held is 1.0; expected a share between 0 and 1"),
        (["--weights", "none"], "none/vocab.txt is not there; name it with --weights"),
    ],
)
def test_wrong_arguments_are_refused(args, want):
    got = subprocess.run([sys.executable, SCRIPT, *args], capture_output=True, text=True)
    assert got.returncode == 2 and want in got.stderr, got.stderr
