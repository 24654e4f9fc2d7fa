"""Tables and their places in a document."""

import pytest

from harness import tables
from harness.stats import Summary

DOCUMENT = """# Title

By hand.

<!-- bench:begin a -->
old
<!-- bench:end a -->

Between.

<!-- bench:begin ab -->
other
<!-- bench:end ab -->
"""


def test_only_the_part_changes():
    want = DOCUMENT.replace("old", "new\nlines")
    assert tables.replace(DOCUMENT, "a", "\nnew\nlines\n", "A") == want


def test_a_second_time_changes_nothing():
    once = tables.replace(DOCUMENT, "a", "new", "A")
    assert tables.replace(once, "a", "new", "A") == once


def test_a_part_that_is_not_there_comes_at_the_end():
    got = tables.replace(DOCUMENT, "b", "new", "B's title")
    assert got.startswith(DOCUMENT.rstrip())
    assert got.endswith("\n## B's title\n\n<!-- bench:begin b -->\nnew\n<!-- bench:end b -->\n")


@pytest.mark.parametrize(
    "document",
    [
        "<!-- bench:begin a -->",
        "<!-- bench:end a -->",
        "<!-- bench:end a -->\n<!-- bench:begin a -->",
        DOCUMENT + DOCUMENT,
    ],
)
def test_broken_marks_are_refused(document):
    with pytest.raises(ValueError, match="marks of a"):
        tables.replace(document, "a", "new", "A")


def test_a_refused_document_stays_as_it_was(tmp_path):
    path = tmp_path / "doc.md"
    path.write_text(DOCUMENT + DOCUMENT)
    with pytest.raises(ValueError, match="marks of a"):
        tables.write(str(path), "a", "new", "A")
    assert path.read_text() == DOCUMENT + DOCUMENT


def test_write(tmp_path):
    path = tmp_path / "doc.md"
    path.write_text(DOCUMENT)
    tables.write(str(path), "a", "new", "A")
    assert path.read_text() == DOCUMENT.replace("old", "new")
    assert [p.name for p in tmp_path.iterdir()] == ["doc.md"]


def test_markdown():
    assert tables.markdown(["", "x"], [["a", "1"], ["b", ""]]) == (
        "| | x |\n| --- | --- |\n| a | 1 |\n| b | |"
    )
    with pytest.raises(ValueError, match="3 cells under 2"):
        tables.markdown(["", "x"], [["a", "b", "c"]])


@pytest.mark.parametrize(
    ("value", "want"), [(1234.5, "1,234"), (150.4, "150"), (58.44, "58.4"), (1.234, "1.23")]
)
def test_number(value, want):
    assert tables.number(value) == want


def test_spread():
    assert tables.spread(Summary(1, 2, 3, 3)) == "2.00 (1.00 to 3.00)"
    assert tables.spread(Summary(2, 2, 2, 1)) == "2.00"
    assert tables.spread(None) == ""


def test_foreign_text_stays_in_its_cell():
    assert tables.cell("a | b\nc") == "a \\| b c"
    assert len(tables.cell("x" * 500)) == 200
