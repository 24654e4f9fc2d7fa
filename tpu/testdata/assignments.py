"""Writes assignments.json: topologies and device assignments as TensorFlow makes them.

Usage: python assignments.py > assignments.json
"""

import itertools
import json
import sys

import numpy as np
from tensorflow.python.tpu import device_assignment, topology

MESHES = [
    # mesh, cores of a host: its block of chips
    ((2, 2, 1, 1), (2, 2, 1)),
    ((2, 2, 1, 2), (2, 2, 1)),
    ((1, 1, 1, 1), (1, 1, 1)),
    ((1, 1, 1, 2), (1, 1, 1)),
    ((4, 2, 1, 1), (2, 2, 1)),
    ((4, 4, 1, 1), (2, 2, 1)),
    ((4, 4, 1, 2), (2, 2, 1)),
    ((8, 4, 1, 1), (4, 2, 1)),
    ((2, 2, 4, 1), (2, 2, 1)),
    ((4, 4, 4, 1), (2, 2, 1)),
    ((2, 4, 4, 2), (2, 2, 1)),
    ((1, 4, 2, 1), (1, 2, 1)),
    ((4, 1, 2, 1), (2, 1, 1)),
    ((1, 1, 4, 1), (1, 1, 1)),
    ((1, 8, 1, 1), (1, 4, 1)),
    ((3, 2, 1, 1), (3, 1, 1)),
    ((3, 3, 1, 2), (3, 3, 1)),
]


def coordinates(mesh: tuple[int, ...], host: tuple[int, ...]) -> np.ndarray:
    """Coordinates [tasks, devices, 4] of hosts that are blocks of chips."""
    tasks = []
    for z, y, x in itertools.product(*(range(0, mesh[a], host[a]) for a in (2, 1, 0))):
        block = itertools.product(range(host[2]), range(host[1]), range(host[0]), range(mesh[3]))
        tasks.append([[x + i, y + j, z + k, core] for k, j, i, core in block])
    return np.array(tasks, np.int32)


def main() -> None:
    """Writes every mesh with several numbers of replicas, and some with hosts missing."""
    out = []
    for mesh, host in MESHES:
        for missing in (0, 1):
            where = coordinates(mesh, host)
            if missing and len(where) < 2:
                continue
            t = topology.Topology(mesh_shape=mesh, device_coordinates=where[missing:])
            cores = t.num_tasks * t.num_tpus_per_task
            some = {3, cores // 2, cores} if cores > 16 else {1, 2, 3, 4, 6, 8, cores - 1, cores}
            for replicas in sorted(some):
                if not 1 <= replicas <= cores:
                    continue
                a = device_assignment.device_assignment(t, num_replicas=replicas)
                out.append(
                    {
                        "topology": t.serialized().hex(),
                        "replicas": replicas,
                        "coordinates": a.core_assignment.reshape(-1, 4).tolist(),
                        "devices": [a.tpu_device(r, job="worker") for r in range(replicas)],
                    }
                )
    json.dump(out, sys.stdout, separators=(",", ":"))


if __name__ == "__main__":
    main()
