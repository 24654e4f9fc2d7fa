"""Packs the built programs, the exporter and the package gorbit as a wheel, for pip install.

    gorbit/              train, evaluate, predict and tune for Python, and the commands
    gorbit/bin/          the programs gorbit and gorbit-predict
    gorbit_export/       the exporter

TensorFlow is not in it: pip installs it as well, and the programs load the library of the one that
is installed. The tag of the wheel names the glibc that the programs need, by the versions of the
symbols that they take from it. Wheels of equal files are equal; SOURCE_DATE_EPOCH is the time of
the files, 1980 without it.

Usage: dist_wheel.py FOLDER [--machine aarch64] [--programs FOLDER]
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import pathlib
import platform
import re
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterable
from importlib import metadata

from packaging.version import Version

import dist
import sbom
from gorbit_export import release

TOOLS = pathlib.Path(__file__).resolve().parent
BESIDE = b"$ORIGIN/../../tensorflow"
"""Where a program in site-packages/gorbit/bin finds TensorFlow that is installed beside it."""
SYSTEM = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libresolv.so.2",
          "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1")  # fmt: skip
"""Libraries of glibc, the only ones that the programs may need."""
LATER = f">=2.20,<2.{int(release.NEWEST.split('.')[1]) + 1}"


def tensorflow(machine: str) -> tuple[str, ...]:
    """Returns what pip installs with the wheel for a processor.

    Whoever has another flavour installs the wheel without it.
    """
    name = release.wheel(machine)
    return (
        f"{name}=={release.TENSORFLOW}.*; python_version >= '3.9' and python_version < '3.13'",
        f"{name}{LATER}; python_version >= '3.13'",
    )


def glibc(programs: Iterable[pathlib.Path]) -> tuple[int, int]:
    """Returns the oldest glibc that has all symbols that programs need.

    Raises:
        dist.Failure: if a program needs libraries of others than glibc.
    """
    needed = (2, 17)  # that of TensorFlow's wheels
    for name in programs:
        try:
            said = subprocess.run(
                ["readelf", "--wide", "--dynamic", "--version-info", name],
                env={**os.environ, "LC_ALL": "C"},
                capture_output=True,
                check=True,
            ).stdout.decode()
        except FileNotFoundError:
            raise dist.Failure("readelf is missing: install binutils") from None
        for library in re.findall(r"Shared library: \[(.*)\]", said):
            if library not in SYSTEM:
                raise dist.Failure(
                    f"{name} needs {library}; expected a program that needs glibc alone: the "
                    "wheel would not run elsewhere"
                )
        found = re.findall(r"Name: GLIBC_(\d+)\.(\d+)", said)
        if not found:
            raise dist.Failure(f"{name} names no version of glibc; expected a program for Linux")
        needed = max(needed, *((int(major), int(minor)) for major, minor in found))
    return needed


def files(built: pathlib.Path, machine: str) -> tuple[dict[str, bytes], str, str]:
    """Returns the files of the wheel for a processor, its version and its tag."""
    if dist.flavour() != "cpu":
        raise dist.Failure(
            f"TensorFlow is set up for {dist.flavour()}; expected cpu: a wheel for others was not "
            "tried"
        )
    out: dict[str, bytes] = {}
    for package in ("gorbit", "gorbit_export"):
        for path in sorted((TOOLS / package).rglob("*.py")):
            out[path.relative_to(TOOLS).as_posix()] = path.read_bytes()
    programs = {}
    for name in dist.PROGRAMS:
        try:
            content = dist.relocated((built / name).read_bytes(), f"{built / name}", BESIDE)
        except FileNotFoundError:
            raise dist.Failure(f"{built / name} is not built: run make build") from None
        if b"GORBIT_TENSORFLOW" not in content:
            raise dist.Failure(f"{built / name} is of an older set-up; run make setup build")
        programs[f"gorbit/bin/{name}"] = content
    libc = glibc(built / name for name in dist.PROGRAMS)
    tag = "py3-none-manylinux_{}_{}_{}".format(*libc, machine)
    runs = built if machine == platform.machine() else dist.programs(platform.machine())
    version = str(Version(dist.version(runs)))
    about = f"gorbit-{version}.dist-info"
    releases = (release.TENSORFLOW, release.NEWEST)
    out |= programs
    out["gorbit/_built.py"] = (
        '"""What the programs of this wheel need."""\n\n'
        f"GLIBC = {libc}\nTENSORFLOW = {releases}\n".encode()
    )
    out[f"{about}/METADATA"] = _metadata(version, machine)
    out[f"{about}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: gorbit\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    )
    out[f"{about}/entry_points.txt"] = (
        b"[console_scripts]\n"
        b"gorbit = gorbit.__main__:main\n"
        b"gorbit-predict = gorbit.__main__:predict\n"
    )
    needed = [sbom.required(one) for one in requirements(machine)]
    made_of = sbom.modules(built / name for name in dist.PROGRAMS) + needed
    out[f"{about}/sboms/gorbit.cdx.json"] = sbom.bill("gorbit", version, made_of)
    out[f"{about}/licenses/LICENSE"] = (dist.ROOT / "LICENSE").read_bytes()
    record = "".join(f"{name},{_digest(out[name])},{len(out[name])}\n" for name in sorted(out))
    out[f"{about}/RECORD"] = f"{record}{about}/RECORD,,\n".encode()
    return out, version, tag


def _digest(content: bytes) -> str:
    """Returns the checksum of a file as RECORD has it."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
    return "sha256=" + digest.rstrip(b"=").decode()


def requirements(machine: str) -> list[str]:
    """Returns what pip installs with the wheel: TensorFlow, and what the exporter needs."""
    exporter = metadata.requires("gorbit-export") or ()
    return [*tensorflow(machine), *(one for one in exporter if "extra ==" not in one)]


def _metadata(version: str, machine: str) -> bytes:
    """Returns METADATA."""
    headers = [
        "Metadata-Version: 2.4",
        "Name: gorbit",
        f"Version: {version}",
        "Summary: Trains TensorFlow models from Go: programs, exporter, and callers for Python",
        "License-Expression: Apache-2.0",
        "License-File: LICENSE",
        f"Requires-Python: {metadata.metadata('gorbit-export')['Requires-Python']}",
        *(f"Requires-Dist: {one}" for one in requirements(machine)),
        "Provides-Extra: notebook",
        "Requires-Dist: pandas; extra == 'notebook'",
        "Requires-Dist: tqdm; extra == 'notebook'",
        "Description-Content-Type: text/markdown",
        "",
        (dist.ROOT / "README.md").read_text(encoding="utf-8"),
    ]
    return "\n".join(headers).encode()


def build(folder: pathlib.Path, built: pathlib.Path, machine: str) -> pathlib.Path:
    """Writes the wheel of programs for a processor into a folder, and returns its path."""
    content, version, tag = files(built, machine)
    seconds = max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 315532800)  # zip begins in 1980
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / f"gorbit-{version}-{tag}.whl"
    part = folder / f".{out.name}.part-{os.getpid()}"
    try:
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as zipped:
            # RECORD last, as tools expect it.
            for name in sorted(content, key=lambda name: (name.endswith("/RECORD"), name)):
                info = zipfile.ZipInfo(name, time.gmtime(seconds)[:6])
                info.compress_type = zipfile.ZIP_DEFLATED
                info.create_system = 3  # the mode is Unix's
                mode = 0o755 if name.startswith("gorbit/bin/") else 0o644
                info.external_attr = (0o100000 | mode) << 16
                zipped.writestr(info, content[name])
        part.replace(out)
        dist.note_checksum(out)
    finally:
        part.unlink(missing_ok=True)
    return out


def main() -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="dist_wheel.py", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--programs", type=pathlib.Path, help="folder of the built programs")
    dist.machine(parser)
    args = parser.parse_args()
    built = args.programs or dist.programs(args.machine)
    return dist.reported(lambda: _say(build(args.folder, built, args.machine)))


def _say(out: pathlib.Path) -> None:
    """Says what was written."""
    print(f"{out} ({out.stat().st_size / 1e6:.0f} MB)")


if __name__ == "__main__":
    sys.exit(main())
