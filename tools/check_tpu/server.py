"""Runs the master: a TensorFlow server of the tensorflow-tpu wheel, without its Python.

Usage: python server.py LENGTH    in the environment of requirements/passes.txt

It reads a ServerDef of LENGTH bytes from standard input and prints the server's address. It ends
when standard input ends, so it cannot outlive what started it.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import pathlib
import sys

# Without these, libtpu asks the metadata service of a machine that is not in a cloud. Other
# topologies than that of a host with 8 cores are not known to it. Without the last one, one process
# at a time may load libtpu.
TPU = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "TPU_CHIPS_PER_HOST_BOUNDS": "2,2,1",
    "TPU_HOST_BOUNDS": "1,1,1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


def folder(package: str) -> pathlib.Path:
    """Where a package is, which is not imported."""
    return pathlib.Path(importlib.util.find_spec(package).submodule_search_locations[0])


def main(length: str) -> None:
    """Starts the server and waits for the end of standard input."""
    os.environ.update(TPU)
    os.environ["TPU_LIBRARY_PATH"] = str(folder("libtpu") / "libtpu.so")
    tensorflow = folder("tensorflow")
    for name in ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2"):
        library = ctypes.CDLL(str(tensorflow / name), mode=ctypes.RTLD_GLOBAL)
    library.TF_NewStatus.restype = library.TF_NewServer.restype = ctypes.c_void_p
    library.TF_ServerTarget.restype = library.TF_Message.restype = ctypes.c_char_p
    definition = sys.stdin.buffer.read(int(length))
    status = ctypes.c_void_p(library.TF_NewStatus())

    def check() -> None:
        if library.TF_GetCode(status):
            sys.exit(library.TF_Message(status).decode())

    server = library.TF_NewServer(definition, ctypes.c_size_t(len(definition)), status)
    check()
    server = ctypes.c_void_p(server)
    library.TF_ServerStart(server, status)
    check()
    print(library.TF_ServerTarget(server).decode(), flush=True)
    sys.stdin.buffer.read()
    os._exit(0)  # a server cannot be stopped


if __name__ == "__main__":
    main(sys.argv[1])
