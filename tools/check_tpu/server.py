"""Runs the master: a TensorFlow server of a wheel for TPUs or GPUs, without its Python.

Usage: python server.py LENGTH     in the environment of requirements/passes.txt
       python server.py kernels    writes all kernels that are registered, a KernelList

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


def folder(package: str) -> pathlib.Path | None:
    """Where a package is, which is not imported; None if it is not there."""
    spec = importlib.util.find_spec(package)
    return pathlib.Path(spec.submodule_search_locations[0]) if spec else None


class Buffer(ctypes.Structure):
    """A TF_Buffer."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("length", ctypes.c_size_t),
        ("deallocator", ctypes.c_void_p),
    )


def main(word: str) -> None:
    """Starts the server and waits for the end of standard input, or writes the kernels."""
    libtpu = folder("libtpu")
    if libtpu:
        os.environ.update(TPU, TPU_LIBRARY_PATH=str(libtpu / "libtpu.so"))
    for name in ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2"):
        library = ctypes.CDLL(str(folder("tensorflow") / name), mode=ctypes.RTLD_GLOBAL)
    library.TF_NewStatus.restype = library.TF_NewServer.restype = ctypes.c_void_p
    library.TF_ServerTarget.restype = library.TF_Message.restype = ctypes.c_char_p
    library.TF_GetAllRegisteredKernels.restype = ctypes.POINTER(Buffer)
    status = ctypes.c_void_p(library.TF_NewStatus())

    def check() -> None:
        if library.TF_GetCode(status):
            sys.exit(library.TF_Message(status).decode())

    if word == "kernels":
        found = library.TF_GetAllRegisteredKernels(status)
        check()
        sys.stdout.buffer.write(ctypes.string_at(found.contents.data, found.contents.length))
        return
    definition = sys.stdin.buffer.read(int(word))
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
