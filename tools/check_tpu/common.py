"""What the checks of TPUs and GPUs use: environments of their own, and programs that they start."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence

from harness import venvs

from check_tpu import server

TOOLS = pathlib.Path(__file__).resolve().parents[1]
ROOT = TOOLS.parent
CACHE = ROOT / ".cache"
WORK = CACHE / "check-tpu"
REQUIREMENTS = pathlib.Path(__file__).parent / "requirements"
LENGTH = 128
"""Positions of a row."""
EXAMPLES = 2
"""Examples of a row, which is about what sentence pairs take at this length."""

_TENSORFLOW = "import tensorflow as tf; print(tf.__version__)"


class CheckError(Exception):
    """Something could not be run; the message is a sentence for the user."""


def ended(name: str, check: Callable[[], int]) -> int:
    """Runs a check and returns its exit code. Whatever ends it, what it started is ended as well.

    Args:
        name: of the check, for its errors.
        check: raises CheckError if something could not be run.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        return check()
    except CheckError as err:
        print(f"{name}: {err}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def say(text: str) -> None:
    """Prints a line on standard error."""
    print(text, file=sys.stderr, flush=True)


def environment(name: str, tool: str = "check_tpu") -> str:
    """Returns the interpreter of the environment of TOOL/requirements/NAME.txt.

    It is made if it is not there.

    Raises:
        CheckError: if it cannot be made.
    """
    work, file = CACHE / tool.replace("_", "-"), f"{tool}/requirements/{name}.txt"
    work.mkdir(parents=True, exist_ok=True)
    venv = venvs.install(str(work), name, [str(TOOLS / file)], say)
    if venv.error:
        raise CheckError(
            f"the packages of tools/{file} {venv.error}; check the "
            "network, or the package index that pip uses"
        )
    return venv.python


def imported(python: str) -> None:
    """Imports TensorFlow's wheel for TPUs as tools/setup.sh does.

    Args:
        python: of the environment `passes`. What it lacks comes from this program's environment.

    Raises:
        CheckError: if it cannot be imported.
    """
    setup = (TOOLS / "setup.sh").read_text(encoding="utf-8")
    line = re.search(r"python -c '(import [^']*tensorflow[^']*)'", setup)[1]
    ask = [python, "-c", "import sysconfig; print(sysconfig.get_path('platlib'))"]
    folders = [command(ask, 60).strip(), sysconfig.get_path("platlib"), str(TOOLS)]
    path = f"PYTHONPATH={':'.join(folders)}"
    clean = ["env", "--unset=TPU_LOAD_LIBRARY", "PYTHONDONTWRITEBYTECODE=1", path, python]
    command([*clean, "-c", f"{line}; assert tensorflow.__version__ == '2.18.0'"], 300)


def tensorflow() -> str:
    """Returns the release of .venv's TensorFlow."""
    return command([sys.executable, "-c", _TENSORFLOW], 120).strip()


def tpu_environment(python: str, libtpu: bool = False) -> dict[str, str]:
    """Returns the environment in which .venv's interpreter has TensorFlow's library for TPUs.

    Args:
        python: the interpreter of the environment of the passes.
        libtpu: whether TensorFlow loads libtpu.
    """
    return {**tf_environment(python), "TPU_LOAD_LIBRARY": str(int(libtpu)), **server.TPU}


def tf_environment(python: str) -> dict[str, str]:
    """Returns the environment in which .venv's interpreter has another environment's TensorFlow.

    Its packages go before those of .venv, which has what TensorFlow's Python needs in addition.

    Args:
        python: the interpreter of the other environment.
    """
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = pathlib.Path(python).parents[1] / "lib" / version / "site-packages"
    return {**os.environ, "PYTHONPATH": f"{packages}:{TOOLS.parent / 'bench'}"}


def command(words: Sequence[str], timeout: float, env: Mapping[str, str] | None = None) -> str:
    """Runs a program to its end, in tools, and returns its standard output.

    Args:
        words: the program and its arguments.
        timeout: in seconds.
        env: its environment, if it is another one.

    Raises:
        CheckError: if it fails, or takes longer than `timeout` seconds.
    """
    line = " ".join(words)
    try:
        done = subprocess.run(
            words,
            cwd=TOOLS,
            env=env,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CheckError(f"{line}: took longer than {timeout:.0f} s") from None
    except OSError as err:
        raise CheckError(f"{words[0]}: {(err.strerror or str(err)).lower()}") from None
    if done.returncode:
        raise CheckError(f"{line}: {reason(done.stderr)}")
    return done.stdout


def reason(errors: str) -> str:
    """Returns what a failed program's standard error says.

    TensorFlow's bridge names an operation that XLA does not have among many lines.
    """
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    named = [line for line in lines if "No registered" in line or "unsupported operations" in line]
    return " ".join(named[:2] or lines[-1:] or ["it said nothing"])
