"""Numbers from the stamps of runs."""

import pytest

from harness import plan, stats
from harness.lines import Mark
from harness.process import Observation, Stamp


def stamp(done, at, tokens=None, busy=None, own=None):
    """Returns a stamp of a run that alone keeps one core of the machine busy."""
    return Stamp(Mark(done, tokens), at, at if busy is None else busy, at if own is None else own)


JOB = plan.Job("x", "minilm", "mrpc", 4)


def test_rate_leaves_the_warm_up_out():
    seen = Observation(
        [stamp(1, 10), stamp(2, 12), stamp(3, 13), stamp(6, 16)], peak_bytes=2 * 10**9
    )
    line = stats.training(seen, JOB, 50)
    assert line["examples_per_s"] == pytest.approx(32)
    assert line["tokens_per_s"] == pytest.approx(32 * 50)
    assert line["tflops"] == pytest.approx(1600 * 63_700_992 / 1e12)
    assert (line["steps"], line["first_step_s"], line["peak_gb"]) == (4, 10, 2.0)
    assert line["cores"] == pytest.approx(1)
    assert line["others"] == 0


def test_counted_tokens_decide_the_rate():
    seen = Observation([stamp(1, 1, 900), stamp(2, 2, 1000), stamp(4, 4, 5000)])
    line = stats.training(seen, JOB, 40)
    assert line["tokens_per_s"] == pytest.approx(2000)
    assert line["examples_per_s"] == pytest.approx(50)


def test_others_are_what_the_machine_did_beside_the_run():
    seen = Observation(
        [
            stamp(1, 10, busy=10, own=10),
            stamp(2, 12, busy=12, own=12),
            stamp(6, 16, busy=20, own=16),
        ]
    )
    line = stats.training(seen, JOB, 50)
    assert line["others"] == pytest.approx(1)
    assert stats.disturbed(line)


def test_a_disturbed_start_disturbs_the_run():
    seen = Observation(
        [
            stamp(1, 10, busy=15, own=10),
            stamp(2, 12, busy=17, own=12),
            stamp(6, 16, busy=21, own=16),
        ]
    )
    assert stats.training(seen, JOB, 50)["others"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("seen", "want"),
    [
        (Observation(error="exit code 1: boom"), "exit code 1: boom"),
        (Observation([]), "0 marks"),
        (Observation([stamp(1, 1), stamp(2, 2)]), "1 marks"),
        (Observation([stamp(2, 2), stamp(4, 4)]), "first mark was for 2"),
    ],
)
def test_what_is_no_measurement_has_a_reason(seen, want):
    assert want in stats.training(seen, JOB, 50)["error"]


def test_told_rate():
    seen = Observation(info={"rate": 5.0}, seconds=3, others=0.05)
    assert stats.told(seen)["rate"] == 5.0


def test_rate_between_the_first_and_the_last_mark():
    seen = Observation([stamp(0, 8), stamp(32, 9), stamp(96, 10)], seconds=11)
    line = stats.told(seen)
    assert (line["rate"], line["seconds"]) == (48, 11)
    assert line["cpu_us"] == pytest.approx(2e6 / 96)


def test_nothing_told_is_an_error():
    assert "error" in stats.told(Observation(seconds=1))


def test_summary():
    assert stats.Summary.of([3, 1, 2, 10]) == stats.Summary(1, 2.5, 10, 4)
    assert stats.Summary.of([]) is None


def line(rate=1.0, others=0.0, **more):
    return {"peer": "p", "variant": "v", "rate": rate, "others": others, **more}


def test_disturbed_lines_do_not_count_and_are_counted():
    runs = stats.Variant.of([line(1), line(100, 0.11), line(3, 0.1)])
    assert runs.summary("rate") == stats.Summary(1, 2, 3, 2)
    assert (runs.discarded, runs.only_disturbed) == (1, False)


def test_where_all_are_disturbed_they_are_shown_as_such():
    runs = stats.Variant.of([line(1, 0.5), line(3, 0.5)])
    assert runs.summary("rate") == stats.Summary(1, 2, 3, 2)
    assert (runs.discarded, runs.only_disturbed) == (0, True)


def test_failures_are_kept_beside_good_lines():
    runs = stats.Variant.of([line(1), {"peer": "p", "variant": "v", "error": "boom"}])
    assert runs.errors == ["boom"]
    assert len(runs.lines) == 1


def test_variants_keep_their_order():
    lines = [{"peer": p, "variant": "v", "rate": 1.0} for p in "BAB"]
    assert [key for key in stats.variants(lines)] == [("B", "v"), ("A", "v")]
