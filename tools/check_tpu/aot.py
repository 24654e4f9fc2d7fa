"""Compiles a program for a TPU that is not there, and prints what the compiler says, as JSON.

Usage: python aot.py PROGRAM TOPOLOGY [KEPT]    TOPOLOGY such as v5e:2x4, whose cores all run it

It runs in the environment of requirements/compiler.txt and imports nothing of gorbit's.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import pathlib
import sys
import time
from typing import Any

# Without the last one, one process at a time may load libtpu, as if there were a TPU to share.
os.environ.update(
    {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
)

import numpy as np
from jax._src.lib import xla_client as xc
from jax.experimental import topologies

MEMORY = ("argument", "output", "alias", "temp", "generated_code")


def main(path: str, topology: str, kept: str = "") -> None:
    """Compiles the HloModuleProto of a file for the cores of a topology, a replica on each.

    What was compiled before is read from the folder `kept`. The program's text is what identifies
    it: the bytes of equal messages differ.
    """
    computation = xc.XlaComputation(pathlib.Path(path).read_bytes())
    text = xc._xla.mlir.xla_computation_to_mlir_module(computation)
    text = text.encode() if isinstance(text, str) else text
    versions = [importlib.metadata.version(name) for name in ("jaxlib", "libtpu")]
    key = hashlib.sha256("\n".join([topology, *versions]).encode() + text).hexdigest()
    memo = pathlib.Path(kept or os.devnull) / f"{key}.json"
    if memo.exists():
        print(memo.read_text(encoding="utf-8"))
        return
    out = json.dumps(compiled(computation, text, topology))
    if kept:
        memo.parent.mkdir(exist_ok=True)
        part = memo.with_suffix(f".{os.getpid()}")
        part.write_text(out, encoding="utf-8")
        part.rename(memo)
    print(out)


def compiled(computation: xc.XlaComputation, text: bytes, topology: str) -> dict[str, Any]:
    """Compiles a program, and returns what the compiler says."""
    devices = topologies.get_topology_desc(topology_name=topology, platform="tpu").devices
    options = xc.CompileOptions()
    options.num_replicas, options.num_partitions = len(devices), 1
    options.device_assignment = xc.DeviceAssignment.create(np.array([[d.id] for d in devices]))
    out: dict[str, Any] = {"arguments": len(computation.program_shape().parameter_shapes())}
    start = time.process_time()  # the compiler is in this process; the machine may be busy
    try:
        made = devices[0].client.compile(text, xc.DeviceList(tuple(devices)), options)
    except Exception as err:  # the compiler's refusal, in whatever class of the binding
        out["refused"] = str(err)
    else:
        stats = made.get_compiled_memory_stats()
        out.update({name: getattr(stats, f"{name}_size_in_bytes") for name in MEMORY})
    out["seconds"] = time.process_time() - start
    return out


if __name__ == "__main__":
    main(*sys.argv[1:])
