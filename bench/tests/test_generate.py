"""The tables of models that make texts, and what their suites compute."""

import json
import pathlib

import pytest

import peers
from harness import plan, process
from peers import generation, learning
from suites import base, generate, smollm, textscores, texttrain, translate

SAID = {"peak_gb": 1.0, "others": 0.0}


def row(text, title):
    return next(line for line in text.splitlines() if line.startswith(f"| {title} |"))


def test_every_part_has_peers():
    assert set(generate.PARTS) == set(peers.GENERATE)


def test_the_options_choose_parts(options):
    chosen = options("--only", "generate", "--rounds", "0", "--parts", "smollm")
    assert generate.parts(chosen) == [base.Part("generate-smollm")]
    assert len(generate.parts(options("--rounds", "0"))) == len(generate.PARTS)


def test_streams_stand_beside_each_other():
    def line(peer, variant, rate, both, **more):
        rates = {"rate": rate, "rate_all": both, "first_s": 0.5, "tokens": 128, **more}
        return {"peer": peer, "variant": variant, "round": 1, **rates, **SAID}

    text = smollm.written(
        [
            line("gorbit-streams", "f32", 20.0, 90.0),
            line("llama", "f32", 10.0, 60.0, equal=0.75),
            {"peer": "hf-streams", "variant": "float32", "round": 1, "tokens": 128, "error": "no"},
        ]
    )
    assert row(text, "**gorbit serve**, float32").endswith("| 20.0 | 0.50 | 90.0 | | | 1.00 | 1 |")
    assert "| 10.0 | 0.50 | 60.0 | 2.00 and 1.50 times | 75% | 1.00 | 1 |" in text
    assert row(text, "Hugging Face generate, float32").endswith("| failed: no |")


def test_continuations_are_timed_alone_and_together(tmp_path, capsys):
    files = {name: tmp_path / name for name in ("prompts", "texts")}
    files["prompts"].write_text(json.dumps([[1, 2], [3, 4], [5, 6]]))
    needs = {name: str(file) for name, file in files.items()}
    job = plan.Job("f32", options={**needs, "tokens": "8", "alone": "2"})
    calls = []

    def go_on(prompts, new):
        calls.append((len(prompts), new))
        return [str(prompt) for prompt in prompts], 0.25

    generation.measure(job, generation.lines.Reporter(), go_on)
    warm = generation.WARM_TOKENS
    assert calls == [(1, warm), (1, 8), (1, 8), (3, warm), (3, 8)]
    assert json.loads(files["texts"].read_text()) == ["[1, 2]", "[3, 4]", "[5, 6]"]
    told = [generation.lines.parse(said).values for said in capsys.readouterr().out.splitlines()]
    assert set(told[0]) == {"rate", "first_s"} and told[0]["first_s"] == 0.25
    assert set(told[1]) == {"rate_all"}


def file_lines(peer, variant, one, every, workers=1, **more):
    about = {"peer": peer, "variant": variant, "round": 1, "workers": workers, "kind": "file"}
    return [
        {**about, "count": 1, "seconds": one, **SAID},
        {**about, "count": 101, "seconds": every, **SAID, **more},
    ]


def test_files_and_single_sentences_have_tables():
    alone = {"round": 1, "workers": 1, "kind": "alone", "count": 10, "seconds": 9.0, **SAID}
    times = {"p50": 0.02, "p99": 0.05, "first_p50": 0.004, "first_p99": 0.006}
    text = translate.written(
        [
            *file_lines("gorbit-translate", "predict", 2.0, 7.0),
            *file_lines("ct2", "float32", 1.0, 11.0, equal=0.97),
            *file_lines("ct2", "float32", 1.0, 6.0, workers=2, equal=0.97),
            {"peer": "gorbit-translate-serve", "variant": "serve", **alone, **times},
            {"peer": "ct2", "variant": "float32", **alone, **times, "p50": 0.04, "equal": 1.0},
        ]
    )
    assert "| **gorbit predict** | 2.00 | 7.00 | 20.0 | | | 1.00 | 1 |" in text
    assert "| CTranslate2, float32 | 1.00 | 11.0 | 10.0 | 2.00 times | 97% | 1.00 | 1 |" in text
    assert (
        "| CTranslate2, float32, a model on each core | 1.00 | 6.00 | 20.0 | 1.00 times | 97% "
        "| 1.00 | 1 |" in text
    )
    assert "| CTranslate2, float32 | 40.0 | 50.0 | 0.50 times | 4.00, 6.00 | 100% |" in text
    assert "101 sentences in a file" in text


def test_texts_of_a_file_are_compared(tmp_path):
    def job(peer, variant):
        name = f"{translate.NAME}-{peer}-{variant}-file-2-1.json"
        asked = translate.about("file", 2, "", "1")
        return plan.Job(variant, options={**asked, "texts": str(tmp_path / name)})

    own, other = job("gorbit-translate", "predict"), job("ct2", "float32")
    rows = ({"generated": "eins"}, {"generated": "zwei"})
    pathlib.Path(own.options["texts"] + "l").write_text("".join(f"{json.dumps(r)}\n" for r in rows))
    line = translate.told(process.Observation(seconds=4.0), own)
    assert line["rate"] == 0.5 and "equal" not in line
    pathlib.Path(other.options["texts"]).write_text('["eins", "drei"]')
    seen = process.Observation(seconds=4.0, info={"answers": 2})
    assert translate.told(seen, other)["equal"] == 0.5
    seen = process.Observation(seconds=4.0, info={"answers": 1})
    assert translate.told(seen, other)["error"] == "1 answers to 2 sentences"


def test_the_folder_of_a_runs_data_is_read(tmp_path):
    (tmp_path / "params.yaml").write_text("model:\n  dir: no\ndata:\n  a: 1\n  dir: /d/x\n")
    assert translate.data(None, str(tmp_path)) == "/d/x"
    (tmp_path / "params.yaml").write_text("model:\n  dir: no\n")
    with pytest.raises(base.PrepareError, match=r"has no data\.dir"):
        translate.data(None, str(tmp_path))


def test_products_are_those_of_the_layers():
    h, inner, layers = texttrain.HIDDEN, texttrain.INNER, texttrain.LAYERS
    layer, head = 4 * h * h + 2 * h * inner, h * texttrain.VOCABULARY

    def all_of(kind, sources, targets):
        return sum(r * a * b * n for r, a, b, n in texttrain.products(kind, sources, targets))

    assert all_of("gpt2", 50, 0) == 50 * (layers * layer + head)
    across = layers * (30 * 2 * h * h + 20 * 2 * h * h)
    assert all_of("t5", 30, 20) == 50 * layers * layer + across + 20 * head


def test_trainings_stand_beside_each_other():
    def line(peer, variant, tokens):
        rates = {"tokens_per_s": tokens, "tflops": tokens * 1e6 / 1e12, "first_step_s": 2.0}
        return {"peer": peer, "variant": variant, "round": 1, "steps": 4, **rates, **SAID}

    text = texttrain.written(
        [
            {"peer": "gemm", "variant": "onednn", "round": 1, "rate": 2e9, "others": 0.0},
            line("gorbit-text", "train", 1600.0),
            line("hf-learn", "longest", 400.0),
        ]
    )
    assert row(text, "**gorbit**") == "| **gorbit** | 1,600 | 80% | | 2.00 | 1.00 | 1 |"
    assert "| Hugging Face, padded to the longest | 400 | 20% | 4.00 times | 2.00 |" in text
    assert "token takes 1 MFLOP" in text


def test_evaluations_stand_beside_each_other():
    told = [
        {**line, "variant": {"gorbit-scores": "evaluate"}.get(line["peer"], "longest")}
        for line in [
            *file_lines("gorbit-scores", "", 2.0, 3.0),
            *file_lines("hf-scores", "", 5.0, 25.0),
        ]
    ]
    text = textscores.written(told)
    assert "| **gorbit evaluate** | 2.00 | 3.00 | 100 | | 1.00 | 1 |" in text
    assert "| 5.00 | 25.0 | 5.00 | 20.0 times | 1.00 | 1 |" in text


def test_an_evaluation_asks_for_as_many_texts():
    asked = {"gorbit": "g", "run": "r", "split": "test", "beams": "1", "max_new_tokens": "9"}
    peer = peers.TEXT_SCORES[0]
    command = peer.command(plan.Job("evaluate", options={**asked, "evaluate": "7"}), "")
    assert "eval.generate.examples=7" in command and "--generate" in command
    assert peer.parse('{"outputs": {}}').values == {"answers": 7}


def test_columns_are_filled_up_to_the_longest():
    features = [{"labels": [7]}, {"labels": [9, 2]}]
    assert learning.column(features, "labels", learning.IGNORED) == [[7, -100], [9, 2]]
