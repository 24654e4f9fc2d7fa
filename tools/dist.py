"""Installs the built programs with TensorFlow's library next to them, or packs them in an archive.

A tree that it makes needs neither this checkout nor Python, at any place:

    bin/gorbit, bin/gorbit-predict
    lib/gorbit/tensorflow/           TensorFlow's library, and lib/gorbit/nvidia/ for GPUs
    share/bash-completion/, share/zsh/, share/fish/
    share/doc/gorbit/                licences, the files of deploy/, and what the programs are
                                     made of (sbom.cdx.json)

The programs find the library by their own place ($ORIGIN). What they are linked with for use in the
checkout are more places after that one, which are cut off here: a program must not look for
libraries in a folder that another user could make. Nothing else in a program names the checkout
(-trimpath), so that checkouts at two places make equal archives.

Usage: dist.py install PREFIX [--programs FOLDER] [--link]
       dist.py uninstall PREFIX
       dist.py archive FOLDER [--machine aarch64]
"""

from __future__ import annotations

import argparse
import errno
import gzip
import hashlib
import importlib.util
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from importlib import metadata

import sbom

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = ("gorbit", "gorbit-predict")
BESIDE = b"$ORIGIN/../lib/gorbit/tensorflow"
LIBRARIES = ("libtensorflow_cc.so.2", "libtensorflow_framework.so.2")
FLAVOURS = ("cpu", "gpu")
TENSORFLOWS = ("tensorflow", "tensorflow-cpu")
COMPLETIONS = {
    "bash": "share/bash-completion/completions/gorbit",
    "zsh": "share/zsh/site-functions/_gorbit",
    "fish": "share/fish/vendor_completions.d/gorbit.fish",
}


class Failure(Exception):
    """What is wrong, in a sentence for the user."""


def relocated(program: bytes, name: str, place: bytes = BESIDE) -> bytes:
    """Returns a program that looks for libraries in a place next to itself only.

    The list of places is a string of the program's dynamic section, which ends with a zero byte.
    Zero bytes from its first colon on leave the first place.

    Args:
        program: the content of the program.
        name: what to call it.
        place: the place, which is not longer than BESIDE.
    """
    if program.count(BESIDE + b":") != 1:
        raise Failure(
            f"{name} does not look for TensorFlow beside itself: it was linked without .tf/env; "
            "run make build"
        )
    at = program.index(BESIDE + b":")
    end = program.index(b"\0", at)
    return program[:at] + place.ljust(end - at, b"\0") + program[end:]


def programs(machine: str) -> pathlib.Path:
    """The folder of the programs that were built for a processor."""
    return ROOT / "bin" if machine == platform.machine() else ROOT / "bin" / "arm64"


def tensorflow(machine: str) -> pathlib.Path:
    """The folder of TensorFlow's library for a processor.

    It is that of the wheel in .venv, or, for ARM on another machine, the one of tools/arm64.sh.
    """
    if machine != platform.machine():
        found = sorted((ROOT / ".cache" / "arm64" / "tensorflow").glob("2.*/lib"))
        if len(found) != 1:
            raise Failure(
                f"{len(found)} libraries for ARM are in .cache/arm64/tensorflow; expected one: "
                "remove that folder, and run make arm64"
            )
        return found[0]
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or not spec.submodule_search_locations:
        raise Failure("TensorFlow is not set up: run make build")
    return pathlib.Path(spec.submodule_search_locations[0])


def put(source: pathlib.Path, target: pathlib.Path, link: bool = False, mode: int = 0o644) -> None:
    """Copies a file, or links it where the file system can, in place of what is there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part-{os.getpid()}")
    part.unlink(missing_ok=True)
    try:
        if link:
            try:
                os.link(source.resolve(), part)
            except OSError:
                link = False
        if not link:
            shutil.copyfile(source, part)
            part.chmod(mode)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def write(data: bytes, target: pathlib.Path, mode: int = 0o644) -> None:
    """Writes a file in place of what is there, which a running program may be."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part-{os.getpid()}")
    try:
        part.write_bytes(data)
        part.chmod(mode)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def flavour() -> str:
    """The flavour of TensorFlow that is set up: cpu or gpu."""
    name = (ROOT / ".tf" / "stamp").read_text().split()[0]
    if name not in FLAVOURS:
        raise Failure(
            f"TensorFlow is set up for {name}; expected cpu or gpu. A TPU's host uses the checkout"
        )
    return name


def libraries(package: pathlib.Path) -> list[tuple[pathlib.Path, str]]:
    """The libraries of TensorFlow and, for GPUs, CUDA's, with their places in the tree."""
    found = [(package / name, f"lib/gorbit/tensorflow/{name}") for name in LIBRARIES]
    # What they need of others: libomp, on ARM.
    others = sorted((package.parent / "tensorflow.libs").glob("*.so*"))
    found += [(path, f"lib/gorbit/tensorflow.libs/{path.name}") for path in others]
    if flavour() == "gpu":
        # TensorFlow's library looks for them next to its own folder.
        site = package.parent
        found += [
            (path, f"lib/gorbit/{path.relative_to(site)}")
            for path in sorted((site / "nvidia").rglob("*"))
            if path.is_file() and path.suffix not in (".py", ".pyc", ".h", ".hpp", ".a")
        ]
    return found


def stage(
    tree: pathlib.Path, built: pathlib.Path, link: bool = False, machine: str = platform.machine()
) -> None:
    """Makes the tree of programs that were built for a processor.

    With link, large files are hard links.
    """
    content = {}
    for name in PROGRAMS:
        try:
            content[name] = relocated((built / name).read_bytes(), f"{built / name}")
        except FileNotFoundError:
            raise Failure(f"{built / name} is not built: run make build") from None
    package = tensorflow(machine)
    for source, place in libraries(package):
        put(source, tree / place, link=link, mode=0o755 if os.access(source, os.X_OK) else 0o644)
    for name, program in content.items():
        write(program, tree / "bin" / name, 0o755)
    runs = built if machine == platform.machine() else ROOT / "bin"
    for shell, place in COMPLETIONS.items():
        # Not the program in the tree, which may lie where nothing can be run.
        script = subprocess.run(
            [runs / "gorbit", "completion", shell], check=True, capture_output=True
        )
        write(script.stdout, tree / place)
    doc = tree / "share" / "doc" / "gorbit"
    for name in ("LICENSE", "README.md", "CHANGELOG.md"):
        put(ROOT / name, doc / name)
    for path in sorted((ROOT / "deploy").rglob("*")):
        if path.is_file():
            put(path, doc / path.relative_to(ROOT), mode=path.stat().st_mode & 0o755)
    write(sbom.bill("gorbit", version(runs), parts(built, package)), doc / "sbom.cdx.json")
    notices = package / "THIRD_PARTY_NOTICES.txt"
    if notices.is_file():
        put(notices, doc / "tensorflow" / notices.name)


def parts(built: pathlib.Path, package: pathlib.Path) -> list[sbom.Component]:
    """What the tree is made of: modules of Go, and the wheels whose libraries are in it."""
    found = sbom.modules(built / name for name in PROGRAMS)
    if package.name == "lib":  # gorbit-setup's folder, which is named by the release
        release = package.parent.name.split("-")[0]
        return [*found, sbom.component("pypi", "tensorflow", release)]
    for info in metadata.distributions(path=[str(package.parent)]):
        name = info.metadata["Name"].lower().replace("_", "-")
        if name in TENSORFLOWS or (flavour() == "gpu" and name.startswith("nvidia-")):
            found.append(sbom.component("pypi", info.metadata["Name"], info.version))
    return found


def version(built: pathlib.Path = ROOT / "bin") -> str:
    """The version of the built gorbit, such as 0.1.0-dev+d58c3a9."""
    out = subprocess.run([built / "gorbit", "version"], check=True, capture_output=True)
    return out.stdout.decode().split()[1]


def archive(folder: pathlib.Path, machine: str = platform.machine()) -> pathlib.Path:
    """Packs the tree in FOLDER, with a checksum next to it. Equal trees give equal archives."""
    kind = flavour()
    if kind != "cpu" and machine != platform.machine():
        raise Failure(f"TensorFlow is set up for {kind}; expected cpu, the only one for {machine}")
    name = f"gorbit-{version()}-linux-{machine}" + ("" if kind == "cpu" else f"-{kind}")
    work = folder / f".{name}.part-{os.getpid()}"
    out = folder / f"{name}.tar.gz"
    part = folder / f".{name}.tar.gz.part-{os.getpid()}"
    try:
        stage(work / name, programs(machine), link=True, machine=machine)

        def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
            info.uid = info.gid = info.mtime = 0
            info.uname = info.gname = "root"
            # One file that has two names here need not be a link in the archive.
            if info.islnk():
                info.type = tarfile.REGTYPE
            return info

        with (
            part.open("wb") as raw,
            gzip.GzipFile("", "wb", 6, raw, mtime=0) as zipped,
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            for path in sorted((work / name).rglob("*")):
                tar.inodes = {}
                tar.add(path, path.relative_to(work), recursive=False, filter=plain)
        part.replace(out)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        part.unlink(missing_ok=True)
    note_checksum(out)
    return out


def checksum(file: pathlib.Path) -> str:
    """Returns the SHA-256 checksum of a file as a line that sha256sum --check reads."""
    digest = hashlib.sha256()
    with file.open("rb") as content:
        while block := content.read(1 << 20):
            digest.update(block)
    return f"{digest.hexdigest()}  {file.name}\n"


def note_checksum(file: pathlib.Path) -> None:
    """Writes the checksum of a file next to it."""
    write(checksum(file).encode(), file.with_name(file.name + ".sha256"))


def uninstall(prefix: pathlib.Path) -> None:
    """Removes what stage makes."""
    if not (prefix / "lib/gorbit").is_dir():
        raise Failure(f"gorbit is not installed below {prefix}; give its folder with PREFIX=")
    for name in PROGRAMS:
        (prefix / "bin" / name).unlink(missing_ok=True)
    for place in COMPLETIONS.values():
        (prefix / place).unlink(missing_ok=True)
    for folder in ("share/doc/gorbit", "lib/gorbit"):
        if (prefix / folder).is_dir():
            shutil.rmtree(prefix / folder)


def main() -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="dist.py", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("install", "uninstall"):
        command = commands.add_parser(name)
        command.add_argument("prefix", type=pathlib.Path)
        if name == "install":
            command.add_argument("--programs", type=pathlib.Path, default=ROOT / "bin")
            command.add_argument(
                "--link", action="store_true", help="link the libraries if possible"
            )
    command = commands.add_parser("archive")
    command.add_argument("folder", type=pathlib.Path)
    machine(command)
    args = parser.parse_args()
    return reported(lambda: _run(args), prefix=args.command != "archive")


def machine(command: argparse.ArgumentParser) -> None:
    """Adds the argument that names a processor."""
    command.add_argument(
        "--machine",
        choices=sorted({platform.machine(), "aarch64"}),
        default=platform.machine(),
        help="the processor that the programs are for (this machine's)",
    )


def _run(args: argparse.Namespace) -> None:
    """Runs the command of the arguments."""
    if args.command == "install":
        stage(args.prefix.absolute(), args.programs.absolute(), args.link)
        print(f"installed gorbit below {args.prefix}; try {args.prefix}/bin/gorbit doctor")
    elif args.command == "uninstall":
        uninstall(args.prefix)
        print(f"removed gorbit from {args.prefix}")
    else:
        out = archive(args.folder, args.machine)
        print(f"{out} ({out.stat().st_size / 1e6:.0f} MB)")


def reported(work: Callable[[], None], name: str = "dist", prefix: bool = False) -> int:
    """Does work and returns the exit code. What is wrong is said in one sentence.

    Args:
        work: what to do.
        name: of the program.
        prefix: whether the folder to write to was given as PREFIX.
    """
    try:
        work()
    except (Failure, sbom.GoError) as e:
        print(f"{name}: {e}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as e:
        said = e.stderr.decode(errors="replace").strip()
        print(f"{name}: {e.cmd[0]} does not run: {said}; run make build", file=sys.stderr)
        return 1
    except OSError as e:
        place = e.filename2 or e.filename  # of a copy, the one to write to
        what = f"{place}: {e.strerror}" if place else str(e)
        do = "expected a folder to write to"
        if e.errno in (errno.ENOSPC, errno.EDQUOT):
            do = "make room, or choose another folder"
        how = ", as PREFIX=FOLDER" if prefix else ""
        print(f"{name}: {what}; {do}{how}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
