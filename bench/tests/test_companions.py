"""Programs that run at the same time as the measured one."""

import os
import socket
import sys

from harness import companions, lines, machine, process
from harness.companions import Companion

WAIT = "import time; time.sleep(600)"
LISTEN = "import socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n"
"""Python that listens; what follows is done while it does."""


def python(code, *args):
    return [sys.executable, "-c", code, *map(str, args)]


def observe(code, *others, timeout=60.0):
    return process.observe(
        python(code), lines.parse, machine.environment(), os.getcwd(), timeout, others
    )


def told(path):
    return int(path.read_text())


def tells(path):
    """Returns Python code that writes its process id to a file, in one step."""
    return (
        f"import os; open({str(path)!r} + '.tmp', 'w').write(str(os.getpid()))\n"
        f"os.rename({str(path)!r} + '.tmp', {str(path)!r})\n"
    )


def waits(path):
    """Returns Python code that waits for a file."""
    return f"import os, time\nwhile not os.path.exists({str(path)!r}): time.sleep(0.01)\n"


def test_a_program_starts_when_those_beside_it_listen_and_they_end_with_it():
    [port] = companions.free_ports(1)
    ask = f"import socket; socket.create_connection(('127.0.0.1', {port})); print('bench: step 1')"
    late = "import time; time.sleep(0.3)\n" + LISTEN + "time.sleep(600)"
    seen = observe(ask, Companion(python(late, port), port))
    assert seen.error == ""
    assert [s.mark.done for s in seen.stamps] == [1]
    assert not machine.listening(port)


def test_their_memory_and_their_processor_time_count(tmp_path):
    child = "x = bytearray(80_000_000)\n" + tells(tmp_path / "full") + WAIT
    parent = f"import subprocess; subprocess.run({python(child)!r})"
    # Longer than the period between two samples of the processes.
    code = waits(tmp_path / "full") + "time.sleep(1); print('bench: step 1')"
    alone = observe("print('bench: step 1')")
    seen = observe(code, Companion(python(parent)))
    assert seen.error == ""
    assert seen.peak_bytes > alone.peak_bytes + 80_000_000
    assert seen.stamps[0].own > alone.stamps[0].own
    assert machine.started(told(tmp_path / "full")) == 0, "a child of a companion is left"


def test_one_that_ends_well_ends_nothing():
    seen = observe("import time; time.sleep(0.8); print('bench: step 1')", Companion(["true"]))
    assert seen.error == ""
    assert len(seen.stamps) == 1


def test_one_that_fails_ends_the_run():
    seen = observe(WAIT, Companion(python("raise SystemExit('no such flag')")))
    assert seen.error == f"{os.path.basename(sys.executable)} beside it: exit code 1: no such flag"


def test_one_that_fails_before_it_listens_keeps_the_program_from_starting(tmp_path):
    [port] = companions.free_ports(1)
    failing = Companion(python("print('busy'); raise SystemExit(2)"), port)
    seen = observe(tells(tmp_path / "started"), failing)
    assert seen.error.endswith("beside it: exit code 2: busy")
    assert not (tmp_path / "started").exists()


def test_one_that_never_listens_is_named(monkeypatch):
    monkeypatch.setattr(companions, "START_SECONDS", 0.2)
    [port] = companions.free_ports(1)
    seen = observe("pass", Companion(python(WAIT), port))
    assert f"did not listen on port {port} within 0 s" in seen.error


def test_one_that_is_not_there():
    assert observe("pass", Companion(["/no/program"])).error == (
        "/no/program: No such file or directory"
    )


def test_one_that_will_not_end_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(companions, "STOP_SECONDS", 0.2)
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    companion = Companion(python(deaf + tells(tmp_path / "pid") + WAIT))
    seen = observe(waits(tmp_path / "pid"), companion)
    assert seen.error == ""
    assert machine.started(told(tmp_path / "pid")) == 0


def test_free_ports_differ_and_nobody_listens_on_them():
    ports = companions.free_ports(3)
    assert len(set(ports)) == 3
    assert not any(map(machine.listening, ports))
    with socket.create_server(("127.0.0.1", ports[0])):
        assert machine.listening(ports[0])
