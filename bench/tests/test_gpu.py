"""Measuring on a GPU: what can be tested without one."""

import ctypes
import dataclasses
import json
import os
import pathlib
import re
import sys
import types

import pytest

import peers
from harness import cli, gpu, machine, plan, runs
from peers import device, gemm, gorbit
from peers.base import BENCH, variants
from suites import train

FOUND = gpu.Gpu("NVIDIA Test", 40 * 10**9, (8, 0), (12, 8))


class Driver:
    """Replaces libcuda.so.1."""

    def __init__(self, init=0, count=1):
        self.init, self.count = init, count

    def cuInit(self, flags):
        return self.init

    def cuDeviceGetCount(self, number):
        number._obj.value = self.count
        return 0

    def cuDeviceGet(self, device, ordinal):
        device._obj.value = 7 + ordinal
        return 0

    def cuDeviceGetName(self, name, size, device):
        name.value = f"NVIDIA {device}".encode()
        return 0

    def cuDeviceTotalMem_v2(self, memory, device):
        memory._obj.value = 40 * 10**9
        return 0

    def cuDeviceGetAttribute(self, value, which, device):
        value._obj.value = {75: 8, 76: 6}[which]
        return 0

    def cuDriverGetVersion(self, version):
        version._obj.value = 12080
        return 0


def test_the_gpu_is_the_first_that_the_driver_shows(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver())
    found = gpu.find()
    assert found == gpu.Gpu("NVIDIA 7", 40 * 10**9, (8, 6), (12, 8))
    assert str(found) == "NVIDIA 7 (40 GB, compute capability 8.6, driver's CUDA 12.8)"
    assert found.tf32
    assert not dataclasses.replace(found, capability=(7, 5)).tf32


@pytest.mark.parametrize(
    ("driver", "want"),
    [(Driver(init=100), "cuInit returns 100"), (Driver(count=0), "shows no GPU")],
)
def test_a_driver_without_a_gpu(monkeypatch, driver, want):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    with pytest.raises(gpu.NoGpuError, match=want):
        gpu.find()


def absent():
    raise gpu.NoGpuError("this machine has no NVIDIA GPU")


def test_without_a_gpu_nothing_is_installed(monkeypatch, capsys):
    monkeypatch.setattr(gpu, "find", absent)
    monkeypatch.setattr(cli.venvs, "install", lambda *rest: pytest.fail("installs"))
    assert cli.main(["--gpu", "--quick"]) == 1
    assert capsys.readouterr() == ("", "bench: this machine has no NVIDIA GPU\n")


def program(tmp_path, kinds):
    """A gorbit that finds these devices only."""
    path = tmp_path / "gorbit"
    told = json.dumps({"devices": [{"type": kind} for kind in kinds]})
    path.write_text(f"#!/bin/sh\n[ $1 = devices ] && echo '{told}' || echo gorbit 1\n")
    path.chmod(0o755)
    return str(path)


def test_a_gorbit_without_cuda_is_refused(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(gpu, "find", lambda: FOUND)
    monkeypatch.setattr(cli.venvs, "install", lambda *rest: pytest.fail("installs"))
    assert cli.main(["--gpu", "--quick", "--gorbit", program(tmp_path, ["CPU"])]) == 1
    assert "finds no GPU; build it with make TF=gpu build" in capsys.readouterr().err


@pytest.fixture
def options(monkeypatch, tmp_path):
    monkeypatch.setattr(gpu, "find", lambda: FOUND)
    argv = ["--gpu", "--venvs", "/nowhere", "--gorbit", program(tmp_path, ["CPU", "GPU"])]
    return cli.choose(cli.parser().parse_args(argv))


def test_tables_have_names_and_steps_of_their_own(options):
    assert options.suffix == "-gpu"
    assert options.titled("T") == "T, on one NVIDIA Test"
    assert train.base.command(options, ["train"], []).endswith('train --rounds 1 --gpu"')
    quick = dataclasses.replace(options, quick=True)
    for size in plan.SIZES:
        assert options.steps_of(size) > quick.steps_of(size) >= plan.STEPS[size]


def test_environments_are_those_with_cuda(options):
    known = {name: venv.python for name, venv in options.settings.venvs.items() if name}
    homes = {"tfm": "tfm-gpu", "keras": "keras-gpu", "hf": "hf"}
    assert known == {name: f"/nowhere/{home}/bin/python" for name, home in homes.items()}


def test_requirements_of_cpus_and_gpus_differ_in_tensorflow_alone():
    def read(name, on_gpu):
        home, files = cli.requirements(name, on_gpu)
        lines = "".join(pathlib.Path(file).read_text() for file in files).splitlines()
        return home, dict(line.split("==") for line in lines if not line.startswith("#"))

    assert read("hf", True) == read("hf", False)
    for name in ("tfm", "keras"):
        (cpu_home, cpu), (gpu_home, cuda) = read(name, False), read(name, True)
        assert (cpu_home, gpu_home) == (name, f"{name}-gpu")
        assert "tensorflow" not in cpu
        assert "tensorflow_cpu" not in cuda
        assert cuda.pop("tensorflow") == cpu.pop("tensorflow_cpu")
        added = cuda.keys() - cpu.keys()
        assert cuda == {**cpu, **{package: cuda[package] for package in added}}
        assert added >= {f"nvidia-{lib}-cu12" for lib in ("cudnn", "cublas", "cuda-nvcc", "nccl")}
        assert all(re.fullmatch(r"nvidia-[a-z-]+-cu12", package) for package in added)


def test_peers_see_one_gpu_or_none(monkeypatch):
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert machine.environment()["CUDA_VISIBLE_DEVICES"] == "-1"
    env = machine.environment(gpu=True)
    assert env["CUDA_VISIBLE_DEVICES"] == "0"
    assert not {"NVIDIA_TF32_OVERRIDE", "TF_FORCE_GPU_ALLOW_GROWTH"} & env.keys()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    assert machine.environment(gpu=True)["CUDA_VISIBLE_DEVICES"] == "3"
    assert machine.environment()["CUDA_VISIBLE_DEVICES"] == "-1"


def test_variants_of_processors_are_left_out_and_every_peer_has_one():
    def names(on_gpu):
        every = {p.name: variants(p, on_gpu) for p in (*peers.TRAIN, peers.GEMM)}
        return {name: [v.name for v in some] for name, some in every.items() if some}

    assert names(True) == {
        "gorbit": ["train"],
        "orbit": ["default"],
        "keras": ["xla", "plain"],
        "hf": ["longest", "grouped"],
        "gemm": ["gpu"],
    }
    assert names(False)["keras"] == ["default", "onednn"]
    assert names(False)["gemm"] == ["onednn", "eigen"]
    assert names(False)["gorbit-bf16"] == ["bf16"]
    assert names(False)["hf-settings"] == ["compiled", "bf16", "compiled-bf16"]


def test_gorbit_is_told_the_gpu():
    job = plan.Job("train", data="/d", scratch="/s", options={"gorbit": "g", "graph": "/g"})
    device = "runtime.device=/device:GPU:0"
    assert device not in gorbit.Train().command(job, "")
    assert device in gorbit.Train().command(dataclasses.replace(job, gpu=True), "")


def test_jobs_and_tables_are_those_of_the_gpu(options, monkeypatch):
    monkeypatch.setattr(train.base, "data", lambda options, lengths: ("/data", 53.0))
    monkeypatch.setattr(train.base, "graph", lambda *rest, **more: "/graph")
    measured, published = [], []

    def measure(settings, entries):
        measured.extend(entries)
        failed = {"peer": "keras", "variant": "xla", "round": 1, "error": "no memory"}
        return [
            {"peer": "gemm", "variant": "gpu", "round": 1, "rate": 9e12, "others": 0.0},
            *({**failed, "peer": peer.name} for peer in peers.TRAIN),
        ]

    monkeypatch.setattr(runs, "everything", measure)
    monkeypatch.setattr(train.base, "publish", lambda *rest: published.append(rest))
    train.measure(options, peers.TRAIN, "minilm", "mrpc")
    assert [e.variant.name for e in measured] == [
        *("gpu", "train", "default", "xla", "plain", "longest", "grouped", "gpu")
    ]
    assert all(e.job.gpu for e in measured)
    text = published[0][3]
    assert "peak memory of the host, GB" in text
    assert "Keras 3 fit, without XLA | | | | | | | | failed: was not run" in text
    assert "TensorFlow on the GPU 9,000." in text
    assert "500 steps a run after 20 that do not count" in text
    assert "Products in TF32 in all rows and in the peak" in text
    assert str(FOUND) in text


def test_what_is_not_measured_on_gpus_is_said(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(gpu, "find", lambda: FOUND)
    argv = ["--gpu", "--only", "strategy", "input", "--gorbit", program(tmp_path, ["GPU"])]
    assert cli.main(argv) == 0
    said = capsys.readouterr().out
    assert "strategy: skipped, it is measured on CPUs only" in said
    assert "input: skipped, it is measured on CPUs only" in said


def test_gpus_and_older_processors_exclude_each_other():
    with pytest.raises(SystemExit) as stopped:
        cli.main(["--gpu", "--isa", "avx2"])
    assert stopped.value.code == 2


@pytest.mark.parametrize("gpus", [0, 1])
def test_tensorflow_is_told_of_tf32_and_must_have_the_gpu(monkeypatch, gpus):
    told = []
    experimental = types.SimpleNamespace(enable_tensor_float_32_execution=told.append)
    config = types.SimpleNamespace(
        list_physical_devices=lambda kind: [kind] * gpus, experimental=experimental
    )
    fake = types.SimpleNamespace(config=config, __version__="2")
    monkeypatch.setitem(sys.modules, "tensorflow", fake)
    device.tensorflow(plan.Job("v"))
    if gpus:
        device.tensorflow(plan.Job("v", gpu=True))
    else:
        with pytest.raises(RuntimeError, match="TensorFlow 2 cannot use the GPU"):
            device.tensorflow(plan.Job("v", gpu=True))
    assert told == [True] * gpus


@pytest.mark.parametrize("there", [False, True])
def test_torch_is_told_of_tf32_and_must_have_the_gpu(monkeypatch, there):
    told = []
    fake = types.SimpleNamespace(
        cuda=types.SimpleNamespace(is_available=lambda: there),
        set_float32_matmul_precision=told.append,
        __version__="2",
    )
    monkeypatch.setitem(sys.modules, "torch", fake)
    assert device.torch(plan.Job("v")) == "cpu"
    if there:
        assert device.torch(plan.Job("v", gpu=True)) == "cuda"
    else:
        with pytest.raises(RuntimeError, match="torch 2 cannot use the GPU"):
            device.torch(plan.Job("v", gpu=True))
    assert told == ["high"] * there


def test_products_side_by_side_are_timed_by_the_product(monkeypatch):
    import tensorflow as tf

    calls = []
    clock = iter(range(100))
    monkeypatch.setattr(gemm, "SECONDS", 2)
    monkeypatch.setattr(gemm, "time", types.SimpleNamespace(perf_counter=lambda: next(clock)))

    def product(a, b):
        calls.append(a)
        return tf.matmul(a, b)

    got = gemm.on_gpu(product, tf.ones([4, 3]), tf.ones([3, 2]))
    assert got == 1 / (gemm.SIDE_BY_SIDE * gemm.IN_A_ROW)
    assert len(calls) == gemm.SIDE_BY_SIDE, "traced more than once"


def test_the_folder_of_results_is_not_that_of_cpus(options):
    assert train.base.raw(options, "train-tiny-mrpc") == os.path.join(
        BENCH, "results", "train-tiny-mrpc-gpu.jsonl"
    )
