"""Translations and summaries of descriptions, and the phonemes of CMUdict."""

import sys

import pytest

import cmudict
import debian

ENGLISH = """Package: ten
Description-md5: aa
Description-en: ten of them
 The first
 paragraph.
 .
   * a list
 .
 Open here.

Package: gone
Description-md5: bb
Description-en: only in English
 Text.
"""
GERMAN = """Package: ten
Description-md5: aa
Description-de: zehn davon
 Der erste\tAbsatz.
 .
   * a list
 .
 <trans>
"""


@pytest.fixture
def lists(tmp_path, monkeypatch):
    """Makes a folder of lists that need no decompression."""
    for name, text in (("en", ENGLISH), ("de", GERMAN)):
        (tmp_path / f"host_main_i18n_Translation-{name}").write_text(text)
    helper = tmp_path / "helper"
    helper.write_text('#!/bin/sh\nexec cat "$2"\n')
    helper.chmod(0o755)
    monkeypatch.setattr(debian, "HELPER", str(helper))
    return tmp_path


def rows(folder, name):
    found = []
    for split in debian.SPLITS:
        header, *lines = (folder / f"{name}.{split}.tsv").read_text().splitlines()
        found += [tuple(line.split("\t")) for line in lines]
    return header, sorted(found)


def test_descriptions_become_translations_and_summaries(lists, tmp_path):
    debian.make(tmp_path / "out", lists)
    assert rows(tmp_path / "out", "en-de") == (
        "en\tde",
        [("The first paragraph.", "Der erste Absatz."), ("ten of them", "zehn davon")],
    )
    assert rows(tmp_path / "out", "summaries") == (
        "text\tsummary",
        [
            ("Text.", "only in English"),
            ("The first paragraph. * a list Open here.", "ten of them"),
        ],
    )


def test_lists_without_german_are_refused(lists, tmp_path, monkeypatch, capsys):
    (tmp_path / "host_main_i18n_Translation-de").unlink()
    argv = ["debian.py", "--out", str(tmp_path / "out"), "--lists", str(lists)]
    monkeypatch.setattr(sys, "argv", argv)
    assert debian.main() == 1
    assert "has 0 files *_Translation-de with descriptions; expected" in capsys.readouterr().err


def test_a_split_is_fixed():
    keys = [f"text {i}" for i in range(1000)]
    counts = {name: sum(debian.split(key) == name for key in keys) for name in debian.SPLITS}
    assert counts == {"train": 972, "dev": 16, "test": 12}


def test_words_become_letters_and_phonemes(tmp_path, monkeypatch, capsys):
    package = tmp_path / "package"
    package.mkdir()
    (package / "index.js").write_text(
        'export const dictionary = {\n  "a": "AH0",\n  "a(2)": "EY1",\n'
        '  "aalen": "AE1 L AH0 N # place, german",\n}\n'
    )
    argv = ["cmudict.py", str(package), "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", argv)
    assert cmudict.main() == 0
    header, found = rows(tmp_path / "out", "phonemes")
    assert header == "word\tphonemes"
    assert ("a a l e n", "AE L AH N") in found and ("a", "AH") in found
    # Other pronunciations are for training alone.
    assert (("a", "EY") in found) == (debian.split("a") == "train")
    (package / "index.js").write_text("nothing")
    assert cmudict.main() == 1
    assert 'has no lines "word": "PHONEMES"' in capsys.readouterr().err
