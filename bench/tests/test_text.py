"""Text: sentences, commands, parsers, and the tables."""

import json

from harness import plan
from peers import text as programs
from suites import text

NEEDS = {"vocab": "/v", "text": "/t", "table": "/tsv", "text_bench": "/b", "convert_test": "/c"}


def test_sentences_are_cut_from_paragraphs(options, tmp_path):
    path = tmp_path / "wiki.tokens"
    path.write_text(
        " \n = Heading of it = \n Ten @-@ year @,@ olds are here . No . And 3 @.@ 5 of them go . \n"
    )
    name, found = text.texts(options("--text", str(path)))
    assert name == "Sentences of wiki.tokens (WikiText)"
    assert found == ["Ten-year,olds are here .", "And 3.5 of them go ."]


def test_lines_are_fit_for_a_table(options, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("a\tb\n\nc\n")
    assert text.texts(options("--text", str(path))) == ("Lines of a.txt", ["a b", "c"])


def test_both_have_as_many_cores():
    for peer in (programs.Tokenizer(), programs.Rust()):
        for variant in peer.variants:
            cores = "2" if variant.name.endswith("two") else "1"
            assert variant.env.get("GOMAXPROCS", variant.env.get("RAYON_NUM_THREADS")) == cores
            parallel = variant.env.get("TOKENIZERS_PARALLELISM", "false") == "true"
            assert parallel == (cores == "2" and peer.name == "tokenizers")
            command = peer.command(plan.Job(variant.name, options=NEEDS), "py")
            assert ("-batch" in command) == (cores == "2" and peer.name == "gorbit-text")
            assert "/t" in command


def test_what_programs_tell():
    answer = {"sentences_per_sec": 5, "sentences_per_cpu": 4, "mb_per_sec": 3, "tokens": 2}
    want = {"rate": 5, "per_cpu": 4, "mb": 3, "tokens": 2}
    assert programs.Tokenizer().parse(json.dumps(answer)).values == want
    told = programs.Rust().parse(json.dumps({**answer, "version": "0.23"})).values
    assert told == {**want, "tokenizers": "0.23"}
    line = (
        "BenchmarkRun/workers=2-2  3  9 ns/op  131.5 MB/s  2.1 cpu-s"
        "  1.0 tokenizer-cpu-s  259.0 tokenizer-MB/s"
    )
    assert programs.Convert().parse(line).values == {"rate": 131.5, "alone": 259.0}
    assert programs.Convert().parse("PASS") is None


def line(peer, variant, number, **values):
    return {"peer": peer, "variant": variant, "round": number, "asked": "S", **values}


def test_tables_compare_within_rounds_and_with_as_many_cores():
    def told(rate):
        return {"rate": rate * 2.0, "per_cpu": rate, "mb": rate / 10, "tokens": 7}

    lines = []
    for number, slow in ((1, 1), (2, 2)):
        lines += [
            line("gorbit-text", "one", number, **told(900 / slow)),
            line("gorbit-text", "two", number, **told(800 / slow)),
            line("tokenizers", "encode_batch one", number, **told(30)),
            line("tokenizers", "encode_batch two", number, **told(20)),
            line("gorbit-convert", "two", number, rate=8.0, alone=16.0 * number),
        ]
    ours, batch, fast = text.tokenizers(lines).splitlines()[2:]
    assert ours == (
        "| **gorbit** | 675 (450 to 900) | | 1,200 (800 to 1,600) | 60.0 (40.0 to 80.0) | | 2 |"
    )
    assert "| 22.5 (15.0 to 30.0) times | 40.0 (40.0 to 40.0) |" in batch
    assert batch.endswith("| 30.0 (20.0 to 40.0) times | 2 |")
    assert fast == "| tokenizers, encode_batch_fast | | | | | | 0, 1 failed: was not run |"
    [row] = text.conversion(lines).splitlines()[2:]
    assert row.endswith(
        "| 8.00 (8.00 to 8.00) | 24.0 (16.0 to 32.0) | 38% (25% to 50%) | 2.00 (2.00 to 2.00) "
        "| 4.00 (4.00 to 4.00) times | 2 |"
    )
