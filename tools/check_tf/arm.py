"""Runs gorbit for 64-bit ARM in an emulator, and compares it with the programs for this machine.

    make check-arm

tools/arm64.sh built the programs. Tests of Go run in the emulator first: of the kernels, and of
packages that read and write files. Then the programs of both processors take a BERT through all
commands: doctor, a training that stops and goes on, evaluation, prediction, the exported model, and
a checkpoint that Python restores, compares bit by bit and writes back. Losses and probabilities are
compared. Packages without C are built for macOS as well. The exit code is 1 if anything fails.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from check_tf import releases
from check_tpu.common import CACHE, ROOT, CheckError, command, ended

STEPS = 6
ROWS = 200
"""Reviews that are trained and evaluated on; the emulator takes seconds for a step."""
TESTED = ("./internal/exec/kernels", "./text/...", "./tfrecord", "./checkpoint")
SKIPPED = "TestRecordErrors/truncated|TestTouchOfWhatIsNotThere|" + (
    "TestKilledWhileSaving|TestFileTooLarge|TestLock"
)
"""Tests that the emulator cannot run: it does not tell Go where a mapped file ended, and the system
starts no programs for ARM by itself."""


@dataclasses.dataclass(frozen=True)
class Emulated(releases.Release):
    """The programs for ARM."""

    def environ(self) -> dict[str, str]:
        """Returns the environment of the programs, which know where their library is."""
        return {**os.environ}

    def program(self, name: str) -> list[str]:
        """Returns the command that starts a program in the emulator."""
        start = CACHE / "arm64" / "bin" / "go_linux_arm64_exec"
        return [str(start), str(ROOT / "bin" / "arm64" / name)]


def go(settings: str, *args: str) -> None:
    """Runs the go command with settings of a shell, and shows what it says."""
    shell = f'{settings}; exec go "$@"'
    flags = "-buildvcs=false -tags=disable_grpc_modules"
    env = {**os.environ, "GOFLAGS": flags}
    said = subprocess.run(["bash", "-ec", shell, "bash", *args], cwd=ROOT, env=env)
    if said.returncode != 0:
        raise CheckError(f"go {args[0]} fails, as it says above")


def portable() -> list[str]:
    """Returns the packages that need neither C nor what only Linux has, however indirectly."""
    source = f"source {ROOT / '.tf' / 'env'}; export GOFLAGS=-tags=disable_grpc_modules; cd {ROOT}"
    ask = '{{.ImportPath}} {{.Standard}} {{len .CgoFiles}} {{join .Deps " "}}'
    listed = command(["bash", "-ec", f"{source}; go list -deps -f '{ask}' ./..."], 300)
    packages = [line.split() for line in listed.splitlines()]
    module = "github.com/gorbit-ml/gorbit"
    others = {name for name, standard, c, *_ in packages if standard == "false" and c != "0"}
    others.add(f"{module}/internal/exec/launch")  # it places processes on cores, as Linux does
    return [
        name
        for name, _, _, *needs in packages
        if (name == module or name.startswith(f"{module}/")) and not others & {name, *needs}
    ]


def compare(work: pathlib.Path) -> str:
    """Takes a BERT through all commands on both processors, and says how much they differ."""
    lines = (CACHE / "reviews" / "reviews.txt").read_bytes().splitlines(keepends=True)[:ROWS]
    table, data = work / "reviews.txt", work / "reviews"
    table.write_bytes(b"".join(lines))
    releases.reviews(table, data)
    found = []
    for release in (releases.Release("x86-64", sys.executable), Emulated("ARM", sys.executable)):
        version = releases.gorbit(release, "version").splitlines()
        print(f"{release.name}: {'; '.join(version)}", flush=True)
        releases.gorbit(release, "doctor")
        results = releases.Results(version[1])
        place = work / release.name
        place.mkdir()
        releases.bert(release, data, place, results, STEPS)
        found.append(results)
    largest = releases.differences(found[1], found[0])
    return f"{len(found[0].numbers)} losses and probabilities differ by at most {largest:.1e}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    parser = argparse.ArgumentParser(prog="make check-arm", description=__doc__.splitlines()[0])
    parser.parse_args(arguments)

    def check() -> int:
        arm = f"source {CACHE / 'arm64' / 'env'}"
        go(arm, "vet", "./...")
        print("go vet for ARM: all packages", flush=True)
        packages = portable()
        go("export GOOS=darwin GOARCH=arm64 CGO_ENABLED=0", "build", *packages)
        print(f"go build for macOS on ARM: {len(packages)} packages without C", flush=True)
        go(arm, "test", "-short", "-timeout", "60m", "-skip", SKIPPED, *TESTED)
        with tempfile.TemporaryDirectory() as folder:
            print(f"ARM works: {compare(pathlib.Path(folder))}", flush=True)
        return 0

    return ended("check-arm", check)


if __name__ == "__main__":
    sys.exit(main())
