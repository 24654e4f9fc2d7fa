"""Tests of tools/release.py; what it packs is tested with dist and dist_wheel."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess

import pytest

import dist
import release

CHANGELOG = """# Changelog

## 0.2.0 (not released yet)

- More.

## 0.1.1 (2026-12-24)

### Fixed

- A bug.

## 0.1.0 (2026-11-27)
"""


@pytest.mark.parametrize(
    ("version", "want"),
    [
        ("0.2.0", r"CHANGELOG.md has '## 0.2.0 \(not released yet\)'; expected a heading such as "),
        ("0.1.0", r"CHANGELOG.md says nothing of 0.1.0; expected what is new"),
        ("0.1", r"CHANGELOG.md has no section of 0.1; expected a heading such as ## 0.1 \(20"),
    ],
)
def test_versions_without_notes(version: str, want: str):
    with pytest.raises(dist.Failure, match=want):
        release.notes(CHANGELOG, version)


def test_notes():
    assert release.notes(CHANGELOG, "0.1.1") == "### Fixed\n\n- A bug.\n"


@pytest.fixture
def checkout(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Makes a repository with a commit, in the place of the checkout."""
    monkeypatch.setattr(dist, "ROOT", tmp_path)
    who = ("-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "tag.gpgSign=false")
    (tmp_path / ".gitignore").write_text("/.cache/\n")
    for words in (("init", "-q"), ("add", "."), (*who, "commit", "-q", "-m", "first")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


def test_only_tags_without_changes(checkout: pathlib.Path):
    wanted = "expected a tag such as v0.1.0 and no changes"
    with pytest.raises(dist.Failure, match=rf"the commit is [0-9a-f]+; {wanted}"):
        release.tagged()
    subprocess.run(["git", "tag", "v0.1.0"], cwd=checkout, check=True)
    (checkout / "key.pem").write_text("the key may lie in the checkout")
    assert release.tagged() == "0.1.0"
    (checkout / "new.go").write_text("package main")
    with pytest.raises(dist.Failure, match=r"new\.go is not in the commit; expected no"):
        release.tagged()
    (checkout / "new.go").unlink()
    (checkout / ".gitignore").write_text("/.cache/\n/other/\n")
    with pytest.raises(dist.Failure, match=f"the commit is v0.1.0-dirty; {wanted}"):
        release.tagged()


def test_only_what_was_tested(checkout: pathlib.Path):
    with pytest.raises(dist.Failure, match=r"make test passed on no commit last; expected \w"):
        release.tested()
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=checkout, capture_output=True).stdout
    (checkout / ".cache").mkdir()
    (checkout / ".cache" / "tested").write_bytes(commit)
    release.tested()


def genpkey(path: pathlib.Path, *words: str) -> pathlib.Path:
    subprocess.run(["openssl", "genpkey", *words, "-out", path], check=True, capture_output=True)
    return path


def verified(folder: pathlib.Path) -> bool:
    """Checks a release as its readers do (docs/guide/install.md)."""
    signed = ["openssl", "pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", "release.pem", "-in",
              "SHA256SUMS", "-sigfile", "SHA256SUMS.sig"]  # fmt: skip
    check = ["sha256sum", "--check", "--status", "SHA256SUMS"]
    return all(
        subprocess.run(words, cwd=folder, capture_output=True).returncode == 0
        for words in (signed, check)
    )


def test_signatures(tmp_path: pathlib.Path):
    key = genpkey(tmp_path / "key.pem", "-algorithm", "ed25519")
    folder = tmp_path / "0.1.0"
    folder.mkdir()
    (folder / "archive").write_bytes(b"program")
    release.sign(folder, key)
    assert verified(folder)
    (folder / "archive").write_bytes(b"another")
    assert not verified(folder)
    (folder / "SHA256SUMS").write_bytes(dist.checksum(folder / "archive").encode())
    assert not verified(folder)


def test_keys_that_are_none(tmp_path: pathlib.Path):
    with pytest.raises(dist.Failure, match=r"there is no key .*; make one with openssl genpkey"):
        release.public(tmp_path / "none.pem")
    other = genpkey(tmp_path / "rsa.pem", "-algorithm", "RSA")
    with pytest.raises(dist.Failure, match=r"rsa.pem is no private key of Ed25519; make one with"):
        release.public(other)
    half = tmp_path / "public.pem"
    key = genpkey(tmp_path / "key.pem", "-algorithm", "ed25519")
    half.write_bytes(release.public(key))
    with pytest.raises(dist.Failure, match="openssl, which reads the key that signs, fails: "):
        release.public(half)


def looked(program: pathlib.Path, **variables: str) -> tuple[int, str]:
    """Runs make check-vuln's script on a program; returns the exit code and what it said last."""
    words = [pathlib.Path(release.__file__).with_name("vuln.sh"), program]
    environ = {**os.environ, "NO_PROXY": "", "no_proxy": "", **variables}
    done = subprocess.run(words, env=environ, capture_output=True, text=True)
    return done.returncode, (done.stdout + done.stderr).splitlines()[-1]


def test_vulnerabilities(tmp_path: pathlib.Path):
    source, program, db = (tmp_path / name for name in ("hello.go", "hello", "db"))
    source.write_text('package main\n\nimport "fmt"\n\nfunc main() { fmt.Println() }\n')
    subprocess.run(["go", "build", "-o", program, source], cwd=tmp_path, check=True)
    for name in ("index", "ID"):
        (db / name).mkdir(parents=True)

    def write(symbol: str) -> None:
        """Makes a database that knows of a vulnerability in a function of fmt."""
        known = {"id": "GO-2000-0001", "modified": "2026-01-02T03:04:05Z"}
        affected = {
            "package": {"name": "stdlib", "ecosystem": "Go"},
            "ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}]}],
            "ecosystem_specific": {"imports": [{"path": "fmt", "symbols": [symbol]}]},
        }
        about = {"summary": "Made up", "database_specific": {"url": "https://example.invalid"}}
        for place, content in {
            "index/db.json": {"modified": known["modified"]},
            "index/modules.json": [{"path": "stdlib", "vulns": [known]}],
            "ID/GO-2000-0001.json": {**known, **about, "affected": [affected]},
        }.items():
            (db / place).write_text(json.dumps(content))

    write("Fprintln")
    code, text = looked(program, VULNDB=str(db))
    assert (code, text) == (1, f"check-vuln: {program} has functions with known vulnerabilities, "
                            "as it says above; expected none: update the modules or Go, and build "
                            "again")  # fmt: skip
    write("Sscanf")
    code, text = looked(program, VULNDB=str(db))
    assert (code, text) == (0, f"check-vuln: {program} calls nothing with a known vulnerability "
                            "(database of 2026-01-02 03:04:05 +0000 UTC)")  # fmt: skip
    code, text = looked(program, VULNDB=str(tmp_path))
    assert code == 1 and text.startswith(f"check-vuln: VULNDB is {tmp_path}, which has no index/")
    unreachable = {name: "http://127.0.0.1:1" for name in ("HTTPS_PROXY", "https_proxy")}
    code, text = looked(program, VULNDB="", **unreachable)
    assert code == 0 and text.startswith(
        "check-vuln: not checked for known vulnerabilities, as the"
    )
    code, text = looked(program, VULNDB="https://127.0.0.1:1")
    assert code == 1 and text.startswith(f"check-vuln: govulncheck cannot check {program}: ")
