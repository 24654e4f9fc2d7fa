"""The command line and the environments."""

import concurrent.futures
import fcntl
import os
import pathlib
import queue
import re
import shlex

import pytest

from harness import cli, venvs
from peers.base import BENCH, ROOT
from suites import base, predict, serve, text


def chosen(monkeypatch, argv):
    monkeypatch.setattr(cli, "version", lambda program: "1")
    return cli.choose(cli.parser().parse_args(argv))


def test_quick_leaves_the_document_and_the_results_alone(monkeypatch):
    options = chosen(monkeypatch, ["--quick", "--venvs", "/nowhere"])
    assert options.document("benchmarks.md") is None
    assert ".work" in options.results
    assert (options.sizes, options.lengths, options.settings.rounds) == (["minilm"], ["mrpc"], 1)
    assert options.settings.retries == 0
    assert options.steps_of("minilm") < 10


def test_everything_is_published_unless_quick(monkeypatch):
    options = chosen(monkeypatch, ["--venvs", "/nowhere", "--isa", "avx2"])
    assert options.document("benchmarks.md").endswith("docs/measurements/benchmarks.md")
    assert options.sizes == ["tiny", "minilm", "base"]
    assert options.settings.retries == 1
    assert options.suffix == "-avx2"
    assert "AVX2 by ONEDNN_MAX_CPU_ISA=AVX2" in options.titled("T")


def test_environments_that_are_missing_are_named(monkeypatch, tmp_path, capsys):
    options = chosen(monkeypatch, ["--quick", "--venvs", str(tmp_path)])
    for name in ("hf", "keras", "tfm"):
        error = f"{tmp_path}/{name}/bin/python is not there"
        assert options.settings.venvs[name].error == error
        assert f"{name}: {error}" in capsys.readouterr().out or name != "hf"


@pytest.mark.parametrize("suite", [predict, serve, text])
def test_texts_that_are_missing_are_said(options, monkeypatch, capsys, suite):
    monkeypatch.setattr(base, "beside", lambda *names: None)
    monkeypatch.setattr(base, "REVIEWS", "/no/reviews.txt")
    suite.run(options("--vocab", __file__))
    assert ": skipped, /no/reviews.txt is not there: make fetch" in capsys.readouterr().out


def test_the_command_makes_as_many_rounds_as_the_rows_have(monkeypatch):
    """Gorbit ran later than the others, and the products were measured again."""
    options = chosen(monkeypatch, ["--venvs", "/nowhere"])
    lines = [
        {"peer": peer, "variant": "v", "round": number}
        for peer, number in (("gemm", 1), ("orbit", 1), ("gemm", 2), ("gorbit", 2))
    ]
    got = base.command(options, ["train", "--sizes", "base"], lines)
    assert got == 'make bench BENCH="--only train --sizes base --rounds 1"'


def documented() -> list[list[str]]:
    """Returns the options of every `make bench` command in the pages."""
    found = []
    for path in sorted(
        [*pathlib.Path(ROOT).glob("docs/**/*.md"), pathlib.Path(BENCH, "README.md")]
    ):
        text = re.sub(r"\s+", " ", path.read_text(encoding="utf-8"))
        found += [shlex.split(words) for words in re.findall(r'make bench BENCH="([^"]*)"', text)]
    return [list(words) for words in dict.fromkeys(map(tuple, found))]


def test_documented_commands_write_their_tables(monkeypatch, tmp_path, capsys):
    """Makes the tables from the raw lines of the checkout: nothing is measured here.

    Commands with --gpu need a GPU, and those with --help only print: both are left out.
    """
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    commands = [words for words in documented() if not {"--gpu", "--help"} & set(words)]
    assert len(commands) >= 8
    tables = 0
    for number, words in enumerate(commands):
        page = tmp_path / f"{number}.md"
        assert cli.main([*words, "--rounds", "0", "--docs", str(page)]) == 0, words
        capsys.readouterr()
        if page.exists():
            tables += page.read_text().count("<!-- bench:begin")
    assert tables >= 8


@pytest.mark.parametrize(
    "argv",
    [
        ["--rounds", "-1"],
        ["--sizes", "huge"],
        ["--retries", "-1"],
        ["--pairs", "/no/pairs.tsv"],
        ["--text", "/no/text.txt"],
        ["--lock", "/no/folder/lock"],
    ],
)
def test_wrong_usage(argv):
    with pytest.raises(SystemExit) as stopped:
        cli.main(argv)
    assert stopped.value.code == 2


def test_a_program_that_is_not_there_ends_the_command(capsys):
    assert cli.main(["--quick", "--venvs", "/nowhere", "--gorbit", "/no/gorbit"]) == 1
    assert "bench: /no/gorbit: No such file" in capsys.readouterr().err


def test_requirements_are_pinned_names():
    folder = os.path.join(BENCH, "requirements")
    devices = ["keras-cpu.txt", "keras-gpu.txt", "tfm-cpu.txt", "tfm-gpu.txt"]
    every = ("ct2", "hf", "jax", "keras", "llama", "ort", "st", "tfm")
    assert sorted(os.listdir(folder)) == sorted([*(f"{name}.txt" for name in every), *devices])
    for name in os.listdir(folder):
        with open(os.path.join(folder, name)) as file:
            lines = [line.strip() for line in file if not line.startswith("#")]
        assert lines
        for line in lines:
            assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line), (name, line)


def test_an_install_that_fails_gives_pips_reason(tmp_path):
    requirements = tmp_path / "x.txt"
    requirements.write_text("/no/such/package.whl\n")
    said = []
    venv = venvs.install(str(tmp_path / "venvs"), "x", [str(requirements)], said.append)
    assert venv.error.startswith("could not be installed: ERROR")
    assert len(said) == 1


@pytest.mark.parametrize("name", ["hf", "keras"])
def test_a_python_that_is_too_old_is_said_before_anything_is_fetched(name, monkeypatch, tmp_path):
    monkeypatch.setattr(cli.sys, "version_info", (3, 10, 13))
    args = cli.parser().parse_args(["--only", "train", "--peers", name])
    found = cli.environments(args, str(tmp_path))[name]
    assert "need Python 3.11 or later, and .venv has 3.10" in found.error
    assert cli.too_old("tfm", (3, 9)) == cli.too_old(name, (3, 11)) == ""
    assert not list(tmp_path.iterdir())


def test_an_environment_is_made_once(tmp_path):
    requirements = tmp_path / "x.txt"
    requirements.write_text("# nothing\n")
    said = []
    for _ in range(2):
        venv = venvs.install(str(tmp_path / "venvs"), "x", [str(requirements)], said.append)
        assert venv.error == ""
        assert os.access(venv.python, os.X_OK)
    assert len(said) == 1
    requirements.write_text("# something else\n")
    venvs.install(str(tmp_path / "venvs"), "x", [str(requirements)], said.append)
    assert len(said) == 2


def test_one_process_at_a_time_makes_an_environment(tmp_path):
    requirements = tmp_path / "x.txt"
    requirements.write_text("# nothing\n")
    folder = tmp_path / "venvs"
    folder.mkdir()
    said: queue.Queue[str] = queue.Queue()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        with open(folder / "x.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            made = pool.submit(venvs.install, str(folder), "x", [str(requirements)], said.put)
            assert said.get().startswith("waiting for another process")
            assert not (folder / "x").exists()
        assert os.access(made.result().python, os.X_OK)


def test_how_long_it_takes_is_told_from_raw_lines(monkeypatch, tmp_path):
    """Ten steps of a second each are saved; twenty are requested."""
    monkeypatch.setattr(base, "BENCH", str(tmp_path))
    gemm = {"peer": "gemm", "variant": "onednn", "round": 1, "seconds": 60.0}
    one = {"peer": "gorbit", "variant": "train", "first_step_s": 9.0, "steps": 10}
    lines = [gemm, gemm, {**one, "round": 1, "examples_per_s": 32.0}]
    # The second run reports its total time.
    lines += [{**one, "round": 2, "examples_per_s": 32.0, "seconds": 40.0}]
    lines += [{**one, "peer": "orbit", "round": 1, "examples_per_s": 0.1}]
    base.runs.save(str(tmp_path / "results" / "train-minilm-mrpc.jsonl"), lines)
    argv = ["--venvs", "/nowhere", "--sizes", "minilm", "--lengths", "mrpc", "--peers", "gorbit"]
    options = chosen(monkeypatch, argv)
    [part] = cli.train.parts(options)
    assert part == base.Part("train-minilm-mrpc", 20, ["gorbit"])
    assert base.expected(options, part) == 2 * 60 + (30 + 50) / 2
    said = cli.takes(options, ["train", "input"])
    assert said.startswith("rounds: 3, about 8 min on the machine of the raw lines")
    assert said.endswith("what is not known of input")
    assert cli.takes(options, ["input"]).endswith("has not been measured: input")
