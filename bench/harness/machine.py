"""Describes the machine and its load, and sets the environment of child processes."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from typing import Any

_TICKS = os.sysconf("SC_CLK_TCK")
_TOLD_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "asimd")

ISA = {
    "avx2": {
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "GORBIT_KERNELS": "avx2",
    },
}
"""Variables that limit libraries to instructions of older CPUs: oneDNN, torch, MKL, gorbit.

They do not affect TensorFlow's own operations, which use what its package was compiled for.
"""

# Variables that a user may have set for other programs, and that would change the measurement.
_UNSET = re.compile(
    r"(OMP|MKL|KMP|OPENBLAS|ONEDNN|DNNL|ATEN|TF|XLA|KERAS|TORCH|PYTORCH|RAYON|GORBIT"
    r"|NVIDIA_TF32|CUBLAS|CUBLASLT|CUDNN|ACCELERATE)_"
)


def busy_seconds(stat: str) -> float:
    """Returns the processor seconds that the machine was busy since it started.

    Args:
        stat: the content of /proc/stat. Time stolen by other guests counts as busy.
    """
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, stat.split()[1:9])
    return (user + nice + system + irq + softirq + steal) / _TICKS


def process_seconds(stat: str) -> float:
    """Returns the processor seconds of a process, from its /proc/PID/stat.

    Includes those of children that it has waited for.
    """
    fields = stat.rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS


def started(pid: int) -> int:
    """Returns when a process began, in ticks since the machine started; 0 if it has ended."""
    fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return int(fields[19]) if fields and fields[0] not in "ZX" else 0


def family(roots: Sequence[int]) -> list[int]:
    """Returns those of the processes, and of their descendants, that are alive."""
    if not roots:
        return []
    children: dict[int, list[int]] = {}
    living = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    for pid in living:
        fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        if fields:
            children.setdefault(int(fields[1]), []).append(pid)
    found = [pid for pid in roots if pid in living]
    for pid in found:
        found += children.get(pid, [])
    return found


def peak_bytes(pid: int) -> int:
    """Returns the peak memory of a process; 0 if it has ended."""
    match = re.search(r"^VmHWM:\s*(\d+) kB", read(f"/proc/{pid}/status"), re.M)
    return int(match[1]) * 1024 if match else 0


def listening(port: int) -> bool:
    """Returns whether a process listens on a TCP port. Asks the kernel and does not connect."""
    ours, listen = f":{port:04X}", "0A"
    rows = (line.split() for name in ("tcp", "tcp6") for line in _sockets(name))
    return any(row[1].endswith(ours) and row[3] == listen for row in rows)


def _sockets(name: str) -> list[str]:
    return read(f"/proc/net/{name}").splitlines()[1:]


def read(path: str) -> str:
    """Returns the content of a file of /proc, or "" if the file is gone."""
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def environment(isa: str | None = None, gpu: bool = False, **values: str) -> dict[str, str]:
    """Returns the environment of a run: the caller's, without variables that tune libraries.

    GPUs are hidden. If the run needs one, the first that the caller sees stays visible.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0] if gpu else "-1"
    env = {k: v for k, v in os.environ.items() if not _UNSET.match(k)}
    env.update(
        TF_CPP_MIN_LOG_LEVEL="2",
        CUDA_VISIBLE_DEVICES=visible,
        HF_HUB_OFFLINE="1",
        KERAS_BACKEND="tensorflow",
    )
    if isa:
        env.update(ISA[isa])
    env.update(values)
    return env


def told() -> str:
    """Describes the machine in a sentence."""
    about = describe()
    flags = ", ".join(about["flags"]) or "no vector extensions"
    return (
        f"{about['cpu']} ({flags}), {about['cores']} cores, "
        f"{about['memory_gb']} GB, Linux {about['kernel']}"
    )


def describe() -> dict[str, Any]:
    """Returns the processor, its instruction sets, cores and memory."""
    info = read("/proc/cpuinfo")
    model = re.search(r"^model name\s*: (.*)$", info, re.M)
    flags = re.search(r"^(?:flags|Features)\s*: (.*)$", info, re.M)
    present = set(flags[1].split()) if flags else set()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": model[1].strip() if model else platform.machine(),
        "flags": [flag for flag in _TOLD_FLAGS if flag in present],
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(memory / 1e9),
        "kernel": platform.release(),
    }
