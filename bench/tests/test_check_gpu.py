"""The check of GPUs, with a CPU in the GPU's place."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

import check_gpu

ROOT = check_gpu.ROOT
CHECK = ROOT / "bench" / "check_gpu.py"


@pytest.fixture(scope="module")
def gorbit(tmp_path_factory) -> pathlib.Path:
    """The program, built from this checkout."""
    program = tmp_path_factory.mktemp("bin") / "gorbit"
    build = f"source .tf/env && go build -buildvcs=false -o {program} ./cmd/gorbit"
    subprocess.run(["bash", "-c", build], cwd=ROOT, check=True)
    return program


def check(*options: object) -> subprocess.CompletedProcess:
    words = [sys.executable, CHECK, *options]
    return subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False)


def test_the_cpu_agrees_with_itself(gorbit, tmp_path):
    options = ["--device", "cpu", "--config", "tiny", "--steps", 2, "--timed-steps", 5]
    chosen = ["--precisions", "float32", "--strategies", "one"]
    done = check(*options, *chosen, "--gorbit", gorbit, "--keep", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "| one cpu | float32 | 0.0e+00 | 0.0e+00 | 0.0e+00 | agrees |" in done.stdout
    assert "All agree." in done.stdout
    assert done.stdout.count("| one cpu | float32 |") == 2, "no rate"

    # A run on other data differs, and so does one that skipped batches.
    run = tmp_path / "run-one-cpu-float32"
    metrics = (run / "metrics.jsonl").read_text().splitlines()

    def compare(**changes: float) -> tuple[str, bool]:
        entry = json.loads(metrics[-1])
        entry["outputs"].update(changes)
        (run / "metrics.jsonl").write_text("\n".join([*metrics[:-1], json.dumps(entry)]) + "\n")
        args = check_gpu.parser().parse_args(["--steps", "2"])
        case = check_gpu.Case("one cpu", "float32", ())
        return check_gpu.compare(
            args, tmp_path / "graph-float32", tmp_path / "run-cpu-float32", run, case
        )

    assert compare()[1]
    row, agrees = compare(loss=json.loads(metrics[-1])["outputs"]["loss"] * 1.001)
    assert not agrees
    assert "| 1.0e-03 |" in row
    assert "**differs**" in row
    row, agrees = compare(skipped_steps=2)
    assert not agrees
    assert "**passed over 2 batches that overflowed**" in row


def test_a_run_that_fails_is_a_row_and_the_exit_code(monkeypatch, tmp_path, capfd):
    monkeypatch.setattr(check_gpu, "export", lambda *rest: None)  # nothing reads it
    program = tmp_path / "gorbit"
    program.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        'devices) echo \'{"tensorflow": "2.18", "cuda": {}, "devices": [{"type": "CPU"}]}\' ;;\n'
        "convert) ;;\n"
        '*) case "$*" in *run-one*) echo "gorbit: no memory" >&2; exit 1 ;; esac ;;\n'
        "esac\n"
    )
    program.chmod(0o755)
    options = ["--device", "cpu", "--config", "tiny", "--timed-steps", 0, "--strategies", "one"]
    options += ["--precisions", "float32", "--gorbit", program, "--keep", tmp_path]
    assert check_gpu.main([str(option) for option in options]) == 1
    said, error = capfd.readouterr()
    row = f"| one cpu | float32 | | | | failed: exit code 1 of {program} train: gorbit: no memory |"
    assert row in said
    assert error == "check-gpu: does not agree with the CPU: one cpu in float32\n"


def test_the_probe_says_in_one_sentence_that_there_is_no_gpu():
    # The tests hide GPUs by a variable, which is not what this test is about.
    env = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
    words = [sys.executable, str(CHECK), "--probe"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    if pathlib.Path("/dev/nvidiactl").exists():
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    else:
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert done.stderr.startswith("check-gpu: ")
        assert "no NVIDIA GPU" in done.stderr or "finds no GPU" in done.stderr


def test_the_table_of_the_bench_changes_no_exit_code(monkeypatch, capfd):
    """No measurement is made on a CPU, and a failure is reported."""
    ran = []

    def run(words, **options):
        ran.append((words, options["env"]["PYTHONPATH"]))
        return subprocess.CompletedProcess(words, 1)

    monkeypatch.setattr(check_gpu.subprocess, "run", run)
    check_gpu.bench(check_gpu.parser().parse_args(["--gorbit", "/g"]))
    words = [sys.executable, str(ROOT / "bench"), "--gpu", "--quick", "--gorbit", "/g"]
    assert ran == [(words, str(ROOT / "tools"))]
    assert "The table was not made: bench ended with exit code 1." in capfd.readouterr().out


@pytest.mark.parametrize(
    ("options", "made"),
    [([], True), (["--no-bench"], False), (["--device", "cpu"], False)],
)
def test_the_table_is_made_on_gpus_unless_left_out(monkeypatch, tmp_path, options, made):
    offer = '{"tensorflow": "2.18", "cuda": {}, "devices": [{"type": "GPU"}]}'
    monkeypatch.setattr(check_gpu, "command", lambda *rest: offer)
    for name in ("make_data", "export", "train", "speed"):
        monkeypatch.setattr(check_gpu, name, lambda *rest: tmp_path)
    monkeypatch.setattr(check_gpu, "compare", lambda *rest: ("| row |", True))
    benched = []
    monkeypatch.setattr(check_gpu, "bench", benched.append)
    args = check_gpu.parser().parse_args(options)
    assert check_gpu.check(args, tmp_path) == 0
    assert benched == [args] * made


def test_mirrored_uses_all_gpus_or_two_and_three_virtual_ones():
    args = check_gpu.parser().parse_args(["--strategies", "mirrored", "--precisions", "bf16"])
    one, four = (check_gpu.cases(args, n) for n in (1, 4))
    assert [c.name for c in one] == ["mirrored, 2 virtual gpus", "mirrored, 3 virtual gpus"]
    assert [c.name for c in four] == ["mirrored, 4 gpus"]
    assert [c.flags[-1] for c in one + four] == ["gpu:2", "gpu:3", "gpu:4"]


def test_every_case_has_its_export(monkeypatch, tmp_path):
    made = []
    monkeypatch.setattr(check_gpu, "command", lambda args, words, env: made.append(words))
    args = check_gpu.parser().parse_args(["--precisions", "fp16", "--config", "tiny"])
    chosen = check_gpu.cases(args, 2)
    graphs = ["graph-fp16", "graph-fp16-xla", "graph-fp16"]
    assert [c.graph for c in chosen] == graphs
    for case in chosen:
        check_gpu.export(args, tmp_path, case)
    assert [words[words.index("--out") + 1] for words in made] == [tmp_path / g for g in graphs]
    assert ["--xla" in words for words in made] == [False, True, False]


@pytest.mark.parametrize("args", [["--device", "tpu"], ["--precisions", "int8"], ["--steps", "x"]])
def test_wrong_usage_exits_with_2(args):
    with pytest.raises(SystemExit) as exit:
        check_gpu.main(args)
    assert exit.value.code == 2
