"""Compiles a program for a TPU or GPU that is not there, and prints what the compiler says.

Usage: python aot.py PROGRAM TOPOLOGY [KEPT]

TOPOLOGY is such as v5e:2x4, whose cores all run the program, or a file *.txtpb that describes a
GPU. What is printed is JSON.

It runs in the environment of requirements/compiler.txt and imports nothing of gorbit's.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import pathlib
import sys
import tempfile
import time
from typing import Any

# Without the last one, one process at a time may load libtpu, as if there were a TPU to share.
os.environ.update(
    {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
)

import launched
import numpy as np
from jax._src.lib import xla_client as xc
from jax.experimental import topologies

GPU = ".txtpb"
FLAGS = "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false"
"""Of the compiler for GPUs. Without one, nothing can be tried out, which Triton's products need."""
MEMORY = ("argument", "output", "alias", "temp", "generated_code")


def main(path: str, topology: str, kept: str = "") -> None:
    """Compiles the HloModuleProto of a file for the cores of a topology, a replica on each.

    What was compiled before is read from the folder `kept`. The program's text, and that of this
    script, is what identifies it: the bytes of equal messages differ.
    """
    computation = xc.XlaComputation(pathlib.Path(path).read_bytes())
    text = xc._xla.mlir.xla_computation_to_mlir_module(computation)
    text = text.encode() if isinstance(text, str) else text
    script = pathlib.Path(__file__).read_text(encoding="utf-8")
    key = hashlib.sha256("\n".join([*compiler(topology), script]).encode() + text).hexdigest()
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


def compiler(topology: str) -> list[str]:
    """What the result of a compilation depends on, but for the program."""
    if not topology.endswith(GPU):
        versions = [importlib.metadata.version(name) for name in ("jaxlib", "libtpu")]
        return [topology, *versions]
    described = pathlib.Path(topology).read_text(encoding="utf-8")
    versions = [importlib.metadata.version(name) for name in ("jaxlib", "jax-cuda12-pjrt")]
    return [described, *versions, FLAGS]


def devices_of(topology: str) -> list[Any]:
    """The devices of a topology."""
    if not topology.endswith(GPU):
        return topologies.get_topology_desc(topology_name=topology, platform="tpu").devices
    import jax_plugins.xla_cuda12

    library = pathlib.Path(jax_plugins.xla_cuda12.__file__).parent / "xla_cuda_plugin.so"
    plugin = xc.load_pjrt_plugin_dynamically("cuda", str(library))
    xc.initialize_pjrt_plugin("cuda")
    described = pathlib.Path(topology).read_text(encoding="utf-8")
    made = xc.make_c_api_device_topology(plugin, "", target_config=described, topology="1 x 1 x 1")
    return topologies.TopologyDescription(made._make_compile_only_devices()).devices


def compiled(computation: xc.XlaComputation, text: bytes, topology: str) -> dict[str, Any]:
    """Compiles a program, and returns what the compiler says."""
    gpu = topology.endswith(GPU)
    if gpu:
        dumped = tempfile.TemporaryDirectory(prefix="check-gpu-")
        os.environ["XLA_FLAGS"] = f"{FLAGS} --xla_dump_to={dumped.name} --xla_dump_hlo_as_text"
    devices = devices_of(topology)
    options = xc.CompileOptions()
    options.num_replicas, options.num_partitions = len(devices), 1
    options.device_assignment = xc.DeviceAssignment.create(np.array([[d.id] for d in devices]))
    out: dict[str, Any] = {"arguments": len(computation.program_shape().parameter_shapes())}
    made = None
    start = time.process_time()  # the compiler is in this process; the machine may be busy
    try:
        made = devices[0].client.compile(text, xc.DeviceList(tuple(devices)), options)
    except Exception as err:  # the compiler's refusal, in whatever class of the binding
        out["refused"] = str(err)
    out["seconds"] = time.process_time() - start
    if made:
        stats = made.get_compiled_memory_stats()
        out.update({name: getattr(stats, f"{name}_size_in_bytes") for name in MEMORY})
        if not gpu:
            texts = (module.to_string() for module in made.hlo_modules())
            out["scatters"] = sum(text.count(" scatter(") for text in texts)
    if gpu:
        for path in pathlib.Path(dumped.name).glob("*after_optimizations.txt"):
            out["kernels"] = launched.kernels(path.read_text(encoding="utf-8"))
        dumped.cleanup()
    return out


if __name__ == "__main__":
    main(*sys.argv[1:])
