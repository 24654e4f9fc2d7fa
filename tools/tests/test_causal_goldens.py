"""Causal language models: the numbers of transformers with weights that it wrote.

Also those of llama.cpp, of models that it reads from GGUF.
"""

import json
import os
import pathlib
import subprocess

import numpy as np
import pytest
import tensorflow as tf
from helpers import safetensors
from test_causal import batch, gradients, logits_of

from gorbit_export import causal, causal_config

GOLDENS = pathlib.Path(__file__).parent / "goldens"
GGUF = pathlib.Path(__file__).parents[2] / "checkpoint" / "testdata" / "gguf"
KINDS = (
    *("gpt2", "llama", "llama-tied", "llama-scaled", "mistral", "mistral-window", "qwen2"),
    *("qwen2-window", "qwen3", "smollm3", "gemma", "gemma2", "gemma3"),
)

NAMED = {"gemma3_text": "gemma3"}


@pytest.fixture(scope="module", params=["committed", "fresh"])
def folder(request, tmp_path_factory) -> pathlib.Path:
    """The folders of models: the committed ones, and those that transformers writes."""
    if request.param == "committed":
        return GOLDENS / "causal"
    python = os.environ.get("GORBIT_TRANSFORMERS")
    if not python:
        pytest.skip("GORBIT_TRANSFORMERS is not set; expected a Python with torch, transformers")
    out = tmp_path_factory.mktemp("causal")
    subprocess.run([python, GOLDENS / "gen_causal.py", out], check=True)
    return out


def by_name(task: causal.LanguageModel) -> dict[str, tuple[tf.Variable, bool]]:
    """The variables by their names in transformers, and whether they are the other way round."""
    form = task.description()["huggingface"]
    out = {}
    for layer in task.model.submodules:
        for variable, foreign in layer.foreign() if hasattr(layer, "foreign") else ():
            bare = foreign.names[0].startswith(tuple(form["bare"]))
            name = foreign.names[0] if bare else form["prefix"] + foreign.names[0]
            out[name] = variable, foreign.transpose
    return out


@pytest.mark.parametrize("kind", KINDS)
def test_logits_loss_and_gradients_are_those_of_transformers(folder, kind):
    task = causal.LanguageModel(causal.Build(causal_config.load(str(folder / f"{kind}.json"))))
    case = json.loads((folder / "cases.json").read_text())[kind]
    weights, names = safetensors(folder / f"{kind}.safetensors"), by_name(task)
    assert set(weights) == set(names)
    for name, (variable, transpose) in names.items():
        variable.assign(weights[name].T if transpose else weights[name])
    for ids, logits in zip(case["input_ids"], case["logits"]):
        np.testing.assert_allclose(logits_of(task, ids), logits, rtol=1e-5, atol=1e-5)
    features = batch(case["input_ids"], [[0, 1], [2]])
    features["example_weights"] = tf.ones(3)
    sums, got = gradients(task, features)
    np.testing.assert_allclose(sums["loss_sum"], case["loss"], rtol=1e-5)
    found = {v.ref(): g for v, g in zip(task.model.trainable_variables, got)}
    wanted = safetensors(folder / f"{kind}.gradients.safetensors")
    norm = np.sqrt(sum(np.square(g).sum() for g in wanted.values()))
    for name, (variable, transpose) in names.items():
        want = wanted[name].T if transpose else wanted[name]
        difference = np.abs(found[variable.ref()].numpy() - want).max()
        assert difference < 1e-5 * norm, f"{name} is off by {difference}"


@pytest.mark.parametrize("kind", KINDS)
def test_the_form_for_transformers_is_that_of_its_own_files(kind):
    path = GOLDENS / "causal" / f"{kind}.json"
    config = causal_config.load(str(path))
    form = causal.LanguageModel(causal.Build(config)).description()["huggingface"]
    values = json.loads(path.read_text())
    assert form["config"]["architectures"] == values["architectures"]
    ours = {k: v for k, v in form["config"].items() if k in values and k != "n_inner"}
    assert ours == {k: values[k] for k in ours}
    assert causal_config._parse(json.loads(json.dumps(form["config"]))) == config


def test_fields_that_are_not_there_mean_what_they_do_in_transformers(folder):
    wanted = json.loads((folder / "defaults.json").read_text())
    assert set(wanted) == set(causal_config.FAMILIES)
    for kind, values in wanted.items():
        config = causal_config.load(str(GOLDENS / "causal" / f"{NAMED.get(kind, kind)}.json"))
        model = causal.LanguageModel(causal.Build(config))
        meant = model.description()["weights"]["defaults"]
        assert meant == {name: values[name] for name in meant}, kind
        left = {name for name, value in values.items() if value is not None} - set(meant)
        assert left <= {"num_key_value_heads", "hidden_act", "sliding_window"}, kind


LOGITS = """
import json, sys, safetensors.torch, torch, transformers
config, weights, ids = sys.argv[1:]
auto = transformers.AutoConfig.from_pretrained(config)
model = transformers.AutoModelForCausalLM.from_config(auto).eval()
model.load_state_dict(safetensors.torch.load_file(weights), strict=False)
model.tie_weights()
print(json.dumps([model(torch.tensor([row])).logits[0].tolist() for row in json.loads(ids)]))
"""


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_reads_the_form(kind, tmp_path):
    python = os.environ.get("GORBIT_TRANSFORMERS")
    if not python:
        pytest.skip("GORBIT_TRANSFORMERS is not set; expected a Python with torch, transformers")
    folder = GOLDENS / "causal"
    config = causal_config.load(str(folder / f"{kind}.json"))
    form = causal.LanguageModel(causal.Build(config)).description()["huggingface"]
    (tmp_path / "config.json").write_text(json.dumps(form["config"]))
    case = json.loads((folder / "cases.json").read_text())[kind]
    command = [python, "-c", LOGITS, tmp_path, folder / f"{kind}.safetensors"]
    command.append(json.dumps(case["input_ids"]))
    got = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    for logits, want in zip(got, case["logits"]):
        np.testing.assert_allclose(logits, want, rtol=1e-5, atol=1e-5)


QWEN3 = {
    "model_type": "qwen3",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "head_dim": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 48,
    "max_position_embeddings": 32,
    "rope_theta": 50000.0,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}


@pytest.mark.parametrize(
    ("name", "weights", "tolerance"),
    [
        ("qwen3", "qwen3", 1e-4),
        # llama.cpp computes Gemma's activation by a table of float16.
        *((name, name, 2e-3) for name in ("gemma", "gemma2", "gemma3")),
        *((name, "scaled", 1e-4) for name in ("linear", "llama3", "yarn")),
    ],
)
def test_logits_are_those_of_llama_cpp(tmp_path, name, weights, tolerance):
    case = json.loads((GGUF / f"{name}.json").read_text())
    path = tmp_path / "config.json"
    path.write_text(json.dumps(case.get("config", QWEN3)))
    task = causal.LanguageModel(causal.Build(causal_config.load(str(path))))
    values, names = safetensors(GGUF / f"{weights}.safetensors"), by_name(task)
    assert set(values) == set(names)
    for key, (variable, transpose) in names.items():
        variable.assign(values[key].T if transpose else values[key])
    logits = logits_of(task, case["input_ids"])
    np.testing.assert_allclose(logits, case["logits"], rtol=tolerance, atol=tolerance)
