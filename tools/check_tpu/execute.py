"""Runs the program of a TPU's core on CPU devices, a replica on each.

Usage: python execute.py PROGRAM ARGUMENTS RESULTS

PROGRAM is a HloModuleProto. ARGUMENTS is an .npz file with the arguments arr_0, arr_1, ..., each
with a first axis of replicas; RESULTS, which is written, has the results in the same form. It runs
in the environment of requirements/compiler.txt and imports nothing of gorbit's.
"""

from __future__ import annotations

import os
import pathlib
import sys

import numpy as np


def main(program: str, taken: str, given: str) -> None:
    """Runs the program."""
    with np.load(taken) as file:
        arguments = [file[f"arr_{i}"] for i in range(len(file.files))]
    replicas = len(arguments[0])
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={replicas}"
    import jax
    from jax._src.lib import xla_client as xc

    jax.config.update("jax_enable_x64", True)
    computation = xc.XlaComputation(pathlib.Path(program).read_bytes())
    text = xc._xla.mlir.xla_computation_to_mlir_module(computation)
    text = text.encode() if isinstance(text, str) else text
    devices = jax.devices()
    options = xc.CompileOptions()
    options.num_replicas, options.num_partitions = replicas, 1
    options.device_assignment = xc.DeviceAssignment.create(np.array([[d.id] for d in devices]))
    client = devices[0].client
    made = client.compile_and_load(text, xc.DeviceList(tuple(devices)), options)
    mesh = jax.sharding.Mesh(np.array(devices), ("replicas",))

    def spread(value: np.ndarray) -> jax.Array:
        """An array of which each device has its replica's part, without the first axis."""
        parts = [jax.device_put(part, device) for part, device in zip(value, devices)]
        kind = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        return jax.make_array_from_single_device_arrays(value.shape[1:], kind, parts)

    done = made.execute_sharded([spread(value) for value in arguments])
    results = done.disassemble_into_single_device_arrays()
    np.savez(given, *(np.stack([np.asarray(part) for part in result]) for result in results))


if __name__ == "__main__":
    main(*sys.argv[1:])
