"""The summary: what is taken of raw lines, and that the page has it."""

import dataclasses
import os

from peers.base import BENCH, ROOT
from suites import summary


def line(peer, variant, round_, **numbers):
    return {"peer": peer, "variant": variant, "round": round_, "machine": "A, 2 cores, 25 GB"} | (
        numbers
    )


def test_the_best_setting_of_a_peer_counts_within_a_round():
    lines = [
        *(line("gorbit", "train", n, rate=r) for n, r in ((1, 90.0), (2, 60.0), (3, 80.0))),
        *(line("hf", "longest", n, rate=20.0) for n in (1, 2, 3)),
        *(line("hf", "grouped", n, rate=r) for n, r in ((1, 30.0), (2, 30.0), (3, 40.0))),
        line("gemm", "onednn", 1, rate=1e9),
    ]
    found = dict(summary.beside(lines, ("gorbit", "train"), summary.key("rate"), summary.named))
    assert list(found) == ["Hugging Face Trainer"]
    assert found["Hugging Face Trainer"].median == 2.0


def test_what_gorbit_is_behind_in_comes_first():
    def entry(peer, *ratios):
        return summary.Entry("x", peer, summary.stats.Summary.of(ratios), "", "A", "t.md")

    text = summary.written([entry("b", 2.0), entry("a", 1.5), entry("c", 0.5), entry("d", 1.0)])
    rows = [row.split("|")[1:4] for row in text.splitlines() if "[table]" in row]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["Behind", "x", "c 0.50"],
        ["Level", "x", "d 1.00"],
        ["Ahead", "x", "a 1.50; b 2.00"],
    ]


def test_the_page_is_that_of_the_raw_lines(options):
    found = dataclasses.replace(options(), results=os.path.join(BENCH, "results"))
    text = summary.written([entry for part in summary.PARTS for entry in part(found)])
    with open(os.path.join(ROOT, "docs", "measurements", "summary.md"), encoding="utf-8") as page:
        assert text in page.read(), 'make bench BENCH="--only summary" writes it again'
