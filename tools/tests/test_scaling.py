"""The figures of docs/measurements/scaling.md."""

import math
import re
import sys

import pytest
from helpers import ROOT

sys.path.insert(0, str(ROOT / "tools" / "docs"))
import scaling
from harness import plan

BASE, LARGE = scaling.MODELS.values()
LINK = scaling.Hardware("link", 1e12, 1e-3, 1e9)


def test_the_models_are_those_that_are_published():
    """109,482,240 and 335,141,888 numbers with the pooler, and a classifier of two labels."""
    assert sum(scaling.numbers(BASE)) == 109_482_240 + 768 * 2 + 2
    assert sum(scaling.numbers(LARGE)) == 335_141_888 + 1024 * 2 + 2


def test_variables_are_those_of_an_export():
    """The export of tiny has 41 variables of 4,386,178 numbers."""
    tiny = scaling.variables(plan.SIZES["tiny"])
    assert len(tiny) == 41
    assert sum(map(math.prod, tiny.values())) == 4_386_178
    assert tiny["layers/1/feed_forward/output/kernel"] == (512, 128)


def test_large_variables_are_divided_by_rows():
    assert scaling.owners([(80, 2), (1,), (2,)], 2) == [[80, 2], [80, 1]]
    assert scaling.owners([(9, 4)], 4) == [[8], [8], [8], [12]]
    assert scaling.owners([(3, 50), (2,)], 4) == [[150], [2], [], []], "there are too few rows"


def test_owners_are_balanced_and_own_everything_once():
    for replicas in scaling.REPLICAS:
        for size in (BASE, LARGE):
            loads = [sum(some) for some in scaling.owned_variables(size, replicas)]
            assert sum(loads) == sum(scaling.numbers(size))
    loads = [sum(some) for some in scaling.owned_variables(BASE, 8)]
    assert max(loads) < 1.05 * sum(loads) / 8


def test_ring_bytes():
    assert scaling.ring_bytes(800, 1) == 0
    assert scaling.ring_bytes(800, 2) == 800
    assert scaling.ring_bytes(800, 8) == 1400


def test_owners_send_what_a_ring_sends_if_they_are_balanced():
    owned = [[10], [10], [10], [10]]
    assert scaling.owner_bytes(owned, 40) == [scaling.ring_bytes(160, 4)] * 4
    assert scaling.owner_bytes([[30], [10]], 40) == [160, 160]
    assert scaling.owner_bytes([[40], [], []], 40) == [320, 160, 160]


def test_ring_seconds_are_hops_and_bytes():
    assert scaling.ring_seconds([1e9], 2, LINK) == pytest.approx(0.002 + 1)
    assert scaling.ring_seconds([5e8, 5e8], 2, LINK) == pytest.approx(0.004 + 1)
    half = scaling.Hardware("half", 1e12, 1e-3, 1e9, 2)
    assert scaling.ring_seconds([1e9], 2, half) == pytest.approx(0.002 + 0.5)


def test_the_busiest_owner_decides():
    assert scaling.owner_seconds([[250_000_000], []], LINK) == pytest.approx(2 + 0.002)
    assert scaling.owner_seconds([[1], [1], [1, 1]], LINK) == pytest.approx(0.008, rel=1e-3)


def test_buckets_hold_whole_gradients_last_first():
    assert scaling.buckets([5, 1, 2, 3], 18) == [20, 24]
    assert scaling.buckets([1, 2, 3], 18) == [20, 4]


def test_a_reduction_that_hides_costs_its_last_bucket():
    slow = scaling.Hardware("slow", 1e9, 0, 1e12)
    sizes = scaling.numbers(BASE)
    compute = scaling.compute_seconds(BASE, slow)
    last = scaling.ring_seconds(scaling.buckets(sizes, scaling.BUCKET)[-1:], 8, slow)
    assert scaling.ring_step(BASE, slow, 8, 1) == pytest.approx(compute / (compute + last))


def test_accumulating_and_more_replicas():
    for hardware in scaling.HARDWARE:
        shares = [scaling.ring_step(BASE, hardware, 64, k) for k in scaling.ACCUMULATE]
        assert shares == sorted(shares)
        assert scaling.ring_step(BASE, hardware, 1024, 1) < shares[0]


def test_the_largest_number_of_replicas():
    assert scaling.largest(lambda n: n <= 37) == 37
    assert scaling.largest(lambda n: n < 2) == 1
    assert scaling.largest(lambda n: True) == scaling.MOST


@pytest.fixture(scope="module")
def computed() -> dict:
    """The tables, which take a while to compute."""
    return {name: table() for name, table in scaling.TABLES.items()}


def test_tables_are_replaced_in_the_document(tmp_path, computed, monkeypatch):
    texts = {name: (lambda text=text: text) for name, text in computed.items()}
    monkeypatch.setattr(scaling, "TABLES", texts)
    path = tmp_path / "scaling.md"
    scaling.main([str(path)])
    once = path.read_text()
    for name in scaling.TABLES:
        assert f"<!-- bench:begin scaling-{name} -->\n|" in once
    assert "| BERT-base, all-reduce | 766 | 862 | 875 |" in once
    scaling.main([str(path)])
    assert path.read_text() == once


def test_the_reader_is_as_fast_as_it_was_measured():
    """The tables and the text quote the rate of the measurement's own table."""
    with open(f"{scaling.ROOT}/docs/measurements/benchmarks.md", encoding="utf-8") as file:
        row = re.search(r"^\| \*\*gorbit\*\*, 2 readers \| ([\d,]+)", file.read(), re.MULTILINE)
    assert row, "the input table has no row for two readers"
    measured = int(row[1].replace(",", ""))
    assert pytest.approx(measured, rel=1e-3) == scaling.READ
    with open(f"{scaling.ROOT}/docs/measurements/scaling.md", encoding="utf-8") as file:
        document = " ".join(file.read().split())
    assert f"{scaling.READ:,} examples/s" in document


def test_the_text_says_what_the_table_of_input_says():
    """The limits of the chief's reader are also in a table written by hand."""
    with open(f"{scaling.ROOT}/docs/measurements/scaling.md", encoding="utf-8") as file:
        document = file.read()
    readers = dict(
        re.findall(r"^\| (BERT-base, GPU in \w+), .* \| ([\d,]+) \|$", document, re.MULTILINE)
    )
    bf16, float32 = (readers[f"BERT-base, GPU in {name}"] for name in ("bf16", "float32"))
    assert f"{bf16} GPUs in bf16, {float32} in float32 (base)" in document


def test_the_document_holds_the_tables_that_are_computed(computed):
    with open(f"{scaling.ROOT}/docs/measurements/scaling.md", encoding="utf-8") as file:
        document = file.read()
    for name, table in computed.items():
        assert f"{scaling.tables.begin(f'scaling-{name}')}\n{table}\n" in document, name
