"""Prediction: the pairs, the parsers, and the table."""

import dataclasses
import pathlib

from harness import plan, process
from peers import gorbit
from suites import base, predict


def test_pairs_come_with_one_of_the_two_forms_of_files(options, monkeypatch, tmp_path):
    commands = []
    monkeypatch.setattr(base, "call", lambda options, command: commands.append(command))
    for content in ("a\tb\nc\td\n", "index\t#1 ID\t#1 String\t#2 String\n0\t7\ta\tb\n1\t8\tc\td\n"):
        source = tmp_path / "test.tsv"
        source.write_text(content, encoding="utf-8-sig")
        got = predict.pairs(options("--pairs", str(source)))
        assert (got.name, got.count) == ("Pairs of test.tsv", 2)
        assert pathlib.Path(got.file).read_text() == "a\tb\nc\td\n"
        assert pathlib.Path(f"{got.file}.first").read_text() == "a\tb\n"
        labelled = pathlib.Path(f"{got.file}.labelled").read_text()
        assert labelled == "first\tsecond\tlabel\na\tb\t0\nc\td\t1\n"
    assert commands[-1][1] == "convert"
    assert commands[-1][-1] == f"{got.data}/gorbit"


def test_without_pairs_the_reviews_are_taken(options, monkeypatch, tmp_path):
    monkeypatch.setattr(base, "call", lambda options, command: None)
    monkeypatch.setattr(base, "BESIDE", str(tmp_path / "none"))
    reviews = tmp_path / "reviews.txt"
    reviews.write_bytes(b"1\t0.5\ta\n2\t1\tb\xff\n3\t0\tc\n")
    monkeypatch.setattr(base, "REVIEWS", str(reviews))
    got = predict.pairs(options())
    assert got.count == 1
    assert pathlib.Path(got.file).read_text() == "a\tb\ufffd\n"


def test_evaluation_answers_all_examples_of_its_split():
    peer = gorbit.Evaluate()
    needs = {"gorbit": "g", "run": "/r", "split": "dev", "count": "7"}
    command = peer.command(plan.Job("evaluate", options=needs), "")
    assert command[-4:] == ["--run", "/r", "--split", "dev"]
    assert peer.parse('{"outputs":{"accuracy":1},"step":3}').values == {"answers": 7}
    assert peer.parse("restored") is None
    short = process.Observation(info={"answers": 7}, seconds=2.0)
    assert predict.timed(short, 8) == {"error": "7 answers to 8 pairs"}
    assert predict.timed(short, 7)["rate"] == 3.5


def test_the_exported_model_is_answered_by_the_program_beside_gorbit():
    peer = gorbit.Exported()
    needs = {"gorbit": "/bin/gorbit", "exported": "/served", "pairs": "/pairs.txt"}
    command = peer.command(plan.Job("predict", options=needs), "")
    assert command[0] == "/bin/gorbit-predict"
    assert command[-4:] == ["--model", "/served", "--file", "/pairs.txt"]
    assert peer.parse("a\tb\tno\t0.75").values == {"answers": 1, "mean_score": 0.75}
    assert peer.parse("b\tc\tno\t0.25").values == {"answers": 2, "mean_score": 0.5}


def test_the_model_in_int8_is_answered_by_gorbit():
    needs = {"gorbit": "/bin/gorbit", "exported8": "/served8", "pairs": "/pairs.txt"}
    command = gorbit.Int8().command(plan.Job("predict", options=needs), "")
    assert command[:2] == ["/bin/gorbit", "predict"]
    assert command[-4:] == ["--model", "/served8", "--file", "/pairs.txt"]


def test_what_cannot_be_made_is_said_and_gorbit_has_the_weights_of_its_export(
    options, monkeypatch, tmp_path
):
    commands, said = [], []

    def fails(options, peer, job):
        raise base.PrepareError("no torch")

    monkeypatch.setattr(base, "work", fails)
    monkeypatch.setattr(base, "call", lambda options, command: commands.append(command))
    monkeypatch.setattr(base, "graph", lambda options, size: "/graph")
    chosen = options()
    settings = dataclasses.replace(chosen.settings, work=str(tmp_path), say=said.append)
    made = predict.models(dataclasses.replace(chosen, settings=settings), "tiny", "/data")
    assert said == ["tiny: no torch"]
    assert [command[1] for command in commands] == ["train", "export", "export"]
    assert "--init" not in commands[0]
    assert made["run"] in commands[1]
    assert "--precision" not in commands[1]
    assert commands[2][-3:] == ["--precision", "int8", "--unmeasured"]


def test_the_forward_passes_tell_their_rate():
    line = "BenchmarkPredict/calls_alone-2  \t  3\t  56984159 ns/op\t       701.9 examples/s"
    assert gorbit.Forward().parse(line).values == {"rate": 701.9}
    assert gorbit.Forward().parse("PASS") is None


def line(peer, variant, number, pairs, seconds, **values):
    told = {"peer": peer, "variant": variant, "round": number, "pairs": pairs}
    return {**told, "seconds": seconds, "rate": pairs / seconds, "peak_gb": 0.5, **values}


def test_rates_are_those_behind_the_start(options):
    lines = [
        line("gorbit-predict", "predict", 1, 1, 1.0),
        line("gorbit-predict", "predict", 1, 101, 2.0, mean_score=0.6),
        line("gorbit-predict", "predict", 2, 1, 2.0),
        line("gorbit-predict", "predict", 2, 101, 4.0, mean_score=0.6),
        line("gorbit-evaluate", "evaluate", 1, 1, 1.0),
        line("gorbit-evaluate", "evaluate", 1, 101, 1.0, asked="Pairs of x"),
        {**line("gorbit-forward", "forward", 1, 101, 9.0), "rate": 120.0},
        {"peer": "hf-predict", "variant": "single", "round": 1, "error": "no torch"},
    ]
    table, notes = predict.written(options(), lines, 101).split("\n\n")
    rows = [row.split(" | ", 1)[1] for row in table.splitlines()[2:]]
    assert rows[0] == (
        "1.50 (1.00 to 2.00) | 3.00 (2.00 to 4.00) | 75.0 (50.0 to 100) | 0.50 (0.50 to 0.50) | 2 |"
    )
    assert rows[1] == "1.00 | 1.00 | | 0.50 | 1 |"
    assert table.splitlines()[4].endswith("| | 120 | 0.50 | 1 |")
    assert table.splitlines()[7].endswith("| | | | failed: no torch |")
    assert notes.startswith("Pairs of x; ")
    assert "gorbit-predict predict 0.60000" in notes
