"""Finds the programs, and the TensorFlow whose library they load."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import platform
import re
import signal
import sys
from collections.abc import Sequence

from gorbit.errors import Error

HERE = pathlib.Path(__file__).resolve().parent
LIBRARY = "libtensorflow_cc.so.2"
FOLDER = "GORBIT_TENSORFLOW"
"""The environment variable by which a program is told where the library is."""
_INFO = re.compile(r"tensorflow(?:_[a-z]+)?-(\d+)\.(\d+)[^-]*(?:-py[\d.]+)?\.(?:dist|egg)-info")


def program(name: str) -> pathlib.Path:
    """Returns the path of a program: that of the wheel, or of the checkout that this is part of."""
    own = HERE / "bin" / name
    if own.is_file():
        if not os.access(own, os.X_OK):
            raise Error(f"{own} cannot be executed; run chmod +x {own}, or install gorbit with pip")
        return own
    if not checkout():
        raise Error(f"{own} is missing; expected the program: install gorbit's wheel again")
    built = HERE.parent.parent / "bin" / name
    if not built.is_file():
        raise Error(f"{built} is not built: run make build")
    return built


def checkout() -> bool:
    """Reports whether this package is that of a checkout, and not one that pip installed."""
    return (HERE.parent / "dist.py").is_file()


def environment() -> dict[str, str]:
    """Returns the environment for a program, in which it finds TensorFlow's library.

    The programs of a checkout are linked with it. Those of the wheel look into the folder
    tensorflow beside this package. Where it is elsewhere, the environment says so.

    Raises:
        Error: if there is no TensorFlow that the programs run with.
    """
    env = dict(os.environ)
    try:
        from gorbit import _built
    except ImportError:
        return env
    _check_libc(_built.GLIBC)
    if env.get(FOLDER):
        return env
    folder = tensorflow(_built.TENSORFLOW)
    if folder != HERE.parent / "tensorflow":
        env[FOLDER] = str(folder)
    return env


def _check_libc(needed: tuple[int, int]) -> None:
    """Raises Error if the system's C library is older than that which the programs need."""
    want = "expected glibc {}.{} or later".format(*needed)
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
        found = tuple(int(part) for part in version.split(".")[:2])
    except (ValueError, OSError):
        name, found = "", ()
    if name != "glibc":
        raise Error(f"the C library of this system is not glibc; {want}, as in most Linuxes")
    if found < needed:
        raise Error(f"the C library of this system is glibc {version}; {want}: take a newer Linux")


def tensorflow(releases: tuple[str, str]) -> pathlib.Path:
    """Returns the folder of the library of this Python's TensorFlow, which is not imported.

    In wheels that is the package's own. conda has it in lib, below the environment.

    Args:
        releases: the oldest and the newest release that the programs run with.
    """
    packages = _packages()
    oldest, newest = (tuple(int(part) for part in release.split(".")) for release in releases)
    for package in packages:
        for found in _releases(package):
            if not oldest <= found <= newest:
                raise Error(
                    f"TensorFlow in {package} is {'.'.join(map(str, found))}; expected "
                    f"{releases[0]} to {releases[1]}: {_install(releases)}"
                )
    for folder in (*packages, pathlib.Path(sys.prefix) / "lib") if packages else ():
        if (folder / LIBRARY).is_file():
            return folder
    if packages:
        raise Error(
            f"{packages[0]} has no {LIBRARY}; expected a wheel of TensorFlow {releases[0]} to "
            f"{releases[1]} for Linux: {_install(releases)}"
        )
    if sys.version_info >= (3, 14):
        raise Error(
            "TensorFlow is not installed, and the releases that gorbit runs with "
            f"({releases[0]} to {releases[1]}) are not for Python {sys.version_info[0]}."
            f"{sys.version_info[1]}; expected an environment of Python 3.9 to 3.13"
        )
    raise Error(
        f"TensorFlow is not installed; expected {releases[0]} to {releases[1]}: "
        f"{_install(releases)}"
    )


def _packages() -> list[pathlib.Path]:
    """Returns the folders of the package tensorflow."""
    try:
        spec = importlib.util.find_spec("tensorflow")
    except ValueError:  # a module that was put there by hand
        spec = None
    return [pathlib.Path(p) for p in (spec and spec.submodule_search_locations) or ()]


def _releases(package: pathlib.Path) -> list[tuple[int, int]]:
    """Returns the releases of the wheels, of whatever flavour, that a package is from."""
    found = []
    for path in sorted(package.parent.glob("tensorflow*-info")):
        if match := _INFO.fullmatch(path.name):
            known = path.name.split("-")[0] in _FLAVOURS
            found += [(int(match[1]), int(match[2]))] if known else []
    return found


_FLAVOURS = ("tensorflow", "tensorflow_cpu", "tensorflow_gpu", "tensorflow_rocm", "tensorflow_tpu")
"""Distributions that the package tensorflow comes from. tensorflow_hub and others are not."""


def _install(releases: tuple[str, str]) -> str:
    """Says what to type to install TensorFlow."""
    release = releases[0] if sys.version_info < (3, 13) else "2.20"
    name = "tensorflow" if platform.machine() == "aarch64" else "tensorflow-cpu"
    return f"run {sys.executable} -m pip install '{name}=={release}.*'"


def execute(name: str, args: Sequence[str]) -> int:
    """Becomes a program, so that it has this process's signals and exit code.

    Returns:
        The exit code, only if the program cannot be started.
    """
    try:
        path, env = program(name), environment()
        # Python ignores these, and a program inherits that.
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(ignored, signal.SIG_DFL)
        os.execve(path, [name, *args], env)
    except (Error, OSError) as err:
        print(f"{name}: {err}", file=sys.stderr)
    return 1
