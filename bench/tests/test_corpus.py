"""The corpus of code and text: its size, its order, and what is left out."""

import pathlib
import subprocess
import sys

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "corpus.py"


def run(*args: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, SCRIPT, *args], capture_output=True, text=True)


def test_half_is_code_and_half_is_text(tmp_path):
    code, text, out = tmp_path / "code", tmp_path / "text.txt", tmp_path / "out"
    (code / "b").mkdir(parents=True)
    (code / "b" / "one.go").write_text("package one\n" * 30_000)
    (code / "a.py").write_text("x = 1\n" * 20_000)
    (code / "copy.py").write_text("x = 1\n" * 20_000)
    (code / "image.png").write_text("left out\n" * 50_000)
    (code / "broken.c").write_bytes(b"\xff\n" * 50_000)
    (code / "c.txt").write_text("last line\n" * 30_000)
    text.write_text("a line of the text\nand another\n")
    got = run("--text", str(text), "--out", str(out), "--megabytes", "1", str(code))
    assert got.returncode == 0, got.stderr
    written = (out / "code.txt").read_bytes()
    assert 500_000 <= len(written) < 500_020
    # In the order of names, files before the folders below; each content once.
    assert written.startswith(b"x = 1\n" * 20_000 + b"last line\n")
    assert b"left out" not in written and b"\xff" not in written and written.endswith(b"\n")
    assert 500_000 <= (out / "wiki.txt").stat().st_size < 500_040
    # x, =, 1, last, line, package, one; a, of, the, text, and, another
    assert "13 different words" in got.stdout


def test_what_is_missing_is_said(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("a\n")
    (tmp_path / "code").mkdir()
    out = str(tmp_path / "out")
    got = run("--text", str(text), "--out", out, "--megabytes", "1", str(tmp_path / "code"))
    assert got.returncode == 1 and "name more folders, or a smaller --megabytes" in got.stderr
    got = run("--text", str(tmp_path / "none"), "--out", out)
    assert got.returncode == 2 and "expected a file that has a text" in got.stderr
    got = run("--text", str(text), "--out", out, "--megabytes", "0")
    assert got.returncode == 2 and "--megabytes is 0; expected 1 or more" in got.stderr
