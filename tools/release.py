"""Makes all that a release of gorbit consists of, in dist/VERSION, and says what to push.

    git tag v0.1.0 && make release KEY=key.pem

    gorbit-VERSION-linux-MACHINE.tar.gz    programs and TensorFlow's library, for x86-64 and ARM
    gorbit-VERSION-py3-none-....whl        programs, exporter and the package gorbit, for both
    NOTES.md                               the version's section of CHANGELOG.md
    SHA256SUMS                             checksums of all of these
    SHA256SUMS.sig, release.pem            their signature by Ed25519, and the public key

The commit must have a tag v*, a section in CHANGELOG.md with a date, no changes, and passed tests
(make test). Nothing is sent anywhere. The key is the maker's own, as that of gorbit verify: a fork
signs with another.
"""

from __future__ import annotations

import argparse
import datetime
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

import dist
import dist_wheel

MACHINES = ("x86_64", "aarch64")
GIT = ("git", "-c", "safe.directory=*")
SUMS, SIGNATURE, PUBLIC = "SHA256SUMS", "SHA256SUMS.sig", "release.pem"


def said(*words: str | pathlib.Path, what: str) -> str:
    """Runs a program and returns its standard output; what it is for is said if it fails."""
    try:
        done = subprocess.run(words, cwd=dist.ROOT, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        raise dist.Failure(f"{words[0]} is missing, which {what}: install it") from None
    except subprocess.CalledProcessError as err:
        reason = (err.stderr.strip().splitlines() or [f"exit code {err.returncode}"])[-1]
        raise dist.Failure(f"{words[0]}, which {what}, fails: {reason}") from None
    return done.stdout


def tagged() -> str:
    """Returns the version of the commit's tag.

    Raises:
        dist.Failure: if it has none, or there are changes or files that are not committed.
    """
    name = said(*GIT, "describe", "--always", "--tags", "--dirty", "--match", "v*",
                what="names the commit").strip()  # fmt: skip
    if not re.fullmatch(r"v\d+\.\d+\.\d+(-rc\.\d+)?", name):
        raise dist.Failure(
            f"the commit is {name}; expected a tag such as v0.1.0 and no changes: commit them, and "
            "type git tag -a v0.1.0"
        )
    new = said(*GIT, "ls-files", "--others", "--exclude-standard", "--", ".", ":!*.pem",
               what="names new files").split("\n")[:-1]  # fmt: skip
    if new:  # which would be built, and are no changes to git describe
        raise dist.Failure(
            f"{new[0]} is not in the commit; expected no files but its own: commit it and tag that "
            "commit, or remove it"
        )
    return name[1:]


def notes(changelog: str, version: str) -> str:
    """Returns the section of a version, without its heading.

    Raises:
        dist.Failure: if there is none, it has no date, or says nothing.
    """
    wanted = f"expected a heading such as ## {version} ({datetime.date.today()})"
    for section in re.split(r"^(?=## )", changelog, flags=re.MULTILINE)[1:]:
        heading, _, text = section.partition("\n")
        if heading.split()[1:2] != [version]:
            continue
        if not re.fullmatch(r"## \S+ \(\d{4}-\d\d-\d\d\)", heading):
            raise dist.Failure(f"CHANGELOG.md has {heading!r}; {wanted}")
        if not text.strip():
            raise dist.Failure(f"CHANGELOG.md says nothing of {version}; expected what is new")
        return text.strip() + "\n"
    raise dist.Failure(f"CHANGELOG.md has no section of {version}; {wanted}")


def tested() -> None:
    """Raises dist.Failure unless all tests passed on the commit."""
    record = dist.ROOT / ".cache" / "tested"
    last = record.read_text(encoding="utf-8").strip() if record.is_file() else "no commit"
    commit = said(*GIT, "rev-parse", "HEAD", what="names the commit").strip()
    if last != commit:
        raise dist.Failure(f"make test passed on {last} last; expected {commit}: run make test")


def public(key: pathlib.Path) -> bytes:
    """Returns the public half of a private key, in PEM.

    Raises:
        dist.Failure: if it is no private key of Ed25519.
    """
    how = "make one with openssl genpkey -algorithm ed25519 -out key.pem"
    if not key.is_file():
        raise dist.Failure(f"there is no key {key}; {how}")
    text = said("openssl", "pkey", "-in", key, "-noout", "-text", what="reads the key that signs")
    if not text.startswith("ED25519 Private-Key:"):
        raise dist.Failure(f"{key} is no private key of Ed25519; {how}")
    return said("openssl", "pkey", "-in", key, "-pubout", what="reads the key").encode()


def sums(folder: pathlib.Path) -> bytes:
    """Returns the checksums of a folder's files, as sha256sum --check reads them."""
    return "".join(dist.checksum(path) for path in sorted(folder.iterdir())).encode()


def sign(folder: pathlib.Path, key: pathlib.Path) -> None:
    """Writes the checksums of a folder's files, their signature and the public key into it."""
    half = public(key)
    dist.write(sums(folder), folder / SUMS)
    dist.write(half, folder / PUBLIC)
    signed = folder / SIGNATURE
    said("openssl", "pkeyutl", "-sign", "-rawin", "-inkey", key, "-in", folder / SUMS, "-out",
         signed, what="signs")  # fmt: skip
    said("openssl", "pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", folder / PUBLIC, "-in",
         folder / SUMS, "-sigfile", signed, what="verifies the signature")  # fmt: skip


def make(target: str, **variables: str) -> None:
    """Runs a target of the Makefile, and shows what it says."""
    words = ["make", "--no-print-directory", target, *(f"{k}={v}" for k, v in variables.items())]
    if subprocess.run(words, cwd=dist.ROOT).returncode != 0:
        raise dist.Failure(f"make {target} fails, as it says above")


def release(key: pathlib.Path) -> pathlib.Path:
    """Makes a release, and returns its folder."""
    version = tagged()
    text = notes((dist.ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    tested()
    public(key)
    if platform.machine() != MACHINES[0] or dist.flavour() != "cpu":
        raise dist.Failure(
            f"TensorFlow is set up for {dist.flavour()} on {platform.machine()}; expected cpu on "
            f"{MACHINES[0]}, where programs for both processors are built"
        )
    make("arm64")  # and build
    make("check-vuln")
    folder = dist.ROOT / "dist"
    folder.mkdir(exist_ok=True)
    out = folder / version
    with tempfile.TemporaryDirectory(dir=folder, prefix=".release-") as made:
        work = pathlib.Path(made) / version
        work.mkdir()
        for machine in MACHINES:
            dist.archive(work, machine)
            dist_wheel.build(work, dist.programs(machine), machine)
        for one in work.glob("*.sha256"):
            one.unlink()  # they are in SHA256SUMS
        dist.write(text.encode(), work / "NOTES.md")
        sign(work, key)
        if out.exists():
            shutil.rmtree(out)
        os.replace(work, out)
    return out


def main() -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="release.py", description=__doc__.splitlines()[0])
    parser.add_argument("--key", type=pathlib.Path, help="PEM file of a private key of Ed25519")
    args = parser.parse_args()

    def work() -> None:
        if args.key is None:
            raise dist.Failure(
                "no key to sign with; give one as KEY=key.pem (openssl genpkey -algorithm ed25519 "
                "-out key.pem makes one)"
            )
        out = release(args.key.absolute())
        tag = f"v{out.name}"
        for path in sorted(out.iterdir()):
            print(f"{path.relative_to(dist.ROOT)} ({path.stat().st_size / 1e6:.1f} MB)")
        print(f"to publish it: git push origin {tag}, and add these files to the release of {tag}")

    return dist.reported(work, "release")


if __name__ == "__main__":
    sys.exit(main())
