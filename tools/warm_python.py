"""Runs a command, and Python scripts for it in processes that have imported TensorFlow already.

Usage: python tools/warm_python.py [--import MODULE] COMMAND [ARGS]
       python tools/warm_python.py -m MODULE [ARGS]

To import TensorFlow takes seconds, and the tests run dozens of short scripts. So one process
imports it, and forks for every script. COMMAND finds the address of that process, a Unix socket,
in GORBIT_TEST_PYTHON. A connection is one script: the request is a JSON object with `script`,
`args`, `env` and `dir`, up to the end of what the client sends; the reply is one with `code`,
`stdout` and `stderr`. A script sees what `python -c` would show it. Clients are internal/testkit,
`ask` and, in the place of `python -m`, the second form of the command line.

The exit code is the command's, or the module's.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import importlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

VARIABLE = "GORBIT_TEST_PYTHON"
"""The environment variable with the address."""


def main(argv: Sequence[str] | None = None) -> int:
    """Serves the command until it ends, and returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--import", dest="module", default="tensorflow", metavar="MODULE")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    words = sys.argv[1:] if argv is None else list(argv)
    if words[:1] == ["-m"] and len(words) > 1:
        return run_module(words[1], words[2:])
    args = parser.parse_args(words)
    if not args.command:
        parser.error("no command given; expected one, such as make test")
    # Not a TemporaryDirectory: forks would remove it when they end.
    folder = tempfile.mkdtemp(prefix="gorbit-test-")
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            address = os.path.join(folder, "socket")
            listener.bind(address)
            listener.listen(64)
            # The command starts first: its scripts wait for the import, all else does not.
            command = start(args.command, {**os.environ, VARIABLE: address})
            os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
            os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
            importlib.import_module(args.module)
            collect_less()
            serve(listener, command)
        return command.wait()
    finally:
        shutil.rmtree(folder)


def collect_less() -> None:
    """Lets the garbage collector pass over what is imported, and run for every 100,000 objects.

    It takes a fifteenth of the time of an export otherwise.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000)


def start(words: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen:
    """Starts the command, which gets the signals that this process gets."""
    told: list[int] = []
    running: list[subprocess.Popen] = []

    def tell(number: int, _: object) -> None:
        told.append(number)
        for command in running:
            command.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, tell)
    running.append(subprocess.Popen(words, env=env))
    for number in told:
        running[0].send_signal(number)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the command, too
    return running[0]


def ask(script: str, args: Sequence[str], env: Mapping[str, str]) -> subprocess.CompletedProcess:
    """Runs a script as `python -c` does: in a fork if there is an address, or in a new process."""
    if VARIABLE not in os.environ:
        command = [sys.executable, "-c", script, *args]
        return subprocess.run(command, env=env, capture_output=True, text=True)
    request = {"script": script, "args": list(args), "env": dict(env), "dir": os.getcwd()}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ[VARIABLE])
        connection.sendall(json.dumps(request).encode())
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("r", encoding="utf-8") as text:
            reply = json.load(text)
    return subprocess.CompletedProcess(
        [script, *args], reply["code"], reply["stdout"], reply["stderr"]
    )


def run_module(module: str, args: Sequence[str]) -> int:
    """Runs a module as `python -m` does, prints what it prints, and returns its exit code."""
    script = f"import runpy; runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    done = ask(script, args, os.environ)
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    return done.returncode & 0xFF


def serve(listener: socket.socket, command: subprocess.Popen) -> None:
    """Forks for every connection until the command ends."""
    ended = os.pidfd_open(command.pid)
    children: set[int] = set()
    while True:
        ready, _, _ = select.select([listener, ended], [], [])
        children -= {pid for pid in children if os.waitpid(pid, os.WNOHANG)[0]}
        if ended in ready:
            os.close(ended)
            return
        connection, _ = listener.accept()
        with connection:
            pid = os.fork()
            if pid == 0:
                listener.close()
                for number in (signal.SIGTERM, signal.SIGHUP):
                    signal.signal(number, signal.SIG_DFL)
                _end(answer, connection)
        children.add(pid)


def answer(connection: socket.socket) -> int:
    """Reads a request, runs its script, and sends the reply."""
    with connection.makefile("r", encoding="utf-8") as text:
        request = json.load(text)
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        pid = os.fork()
        if pid == 0:
            connection.close()
            _end(script, request, stdout.fileno(), stderr.fileno())
        _, status = os.waitpid(pid, 0)
        reply = {"code": os.waitstatus_to_exitcode(status)}
        for name, file in (("stdout", stdout), ("stderr", stderr)):
            file.seek(0)
            reply[name] = file.read().decode("utf-8", errors="replace")
    connection.sendall(json.dumps(reply).encode())
    return 0


def script(request: dict, stdout: int, stderr: int) -> int:
    """Runs a script in this process, which is its own, and returns its exit code."""
    null = os.open(os.devnull, os.O_RDONLY)
    for new, old in ((null, 0), (stdout, 1), (stderr, 2)):
        os.dup2(new, old)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["dir"])
    sys.argv = ["-c", *request["args"]]
    # Python has read PYTHONPATH when this process began, and -c finds modules in its folder.
    paths = request["env"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = ["", *(path for path in paths if path)]
    exec(compile(request["script"], "<string>", "exec"), {"__name__": "__main__"})
    return 0


def _end(body: Callable[..., int], *args: Any) -> None:
    """Calls the body and ends this process, a fork, with what it returns."""
    code = 1
    try:
        code = body(*args)
    except SystemExit as err:
        code = err.code if isinstance(err.code, int) else int(err.code is not None)
        if err.code is not None and not isinstance(err.code, int):
            print(err.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code & 0xFF)


if __name__ == "__main__":
    sys.exit(main())
