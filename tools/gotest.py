"""Runs go test, prints its output, and records which tests were skipped and why.

Usage: python tools/gotest.py NOTES GO test [FLAGS] PACKAGES

NOTES is the file for the skipped tests, one per line. The exit code is go test's.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from collections.abc import Iterable
from typing import TextIO


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit code."""
    notes, go, test, *rest = argv
    command = [go, test, "-json", *rest]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as process:
        skipped = follow(process.stdout, sys.stdout)
    path = pathlib.Path(notes)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in skipped), encoding="utf-8")
    return process.returncode


def follow(events: Iterable[str], out: TextIO) -> list[str]:
    """Prints events as go test does without -json, and returns the skipped tests.

    Args:
        events: lines of go test -json; other lines are printed as they are.
        out: where to print.
    """
    said: dict[tuple[str, str], list[str]] = {}
    skipped = []
    for line in events:
        try:
            event = json.loads(line)
        except ValueError:
            print(line, end="", file=out, flush=True)
            continue
        package, test = event.get("Package", ""), event.get("Test", "")
        action, text = event.get("Action"), event.get("Output", "")
        if action == "build-output" or (action == "output" and not test):
            if text != "PASS\n":  # go test prints it only for a single package
                print(text, end="", file=out, flush=True)
        elif action == "output":
            said.setdefault((package, test), []).append(text)
        elif action in ("pass", "skip", "fail"):
            if not test:  # the end of the package; tests ended by a crash have no event
                ended = [key for key in said if key[0] == package] if action == "fail" else []
            else:
                ended = [(package, test)] if action == "fail" else []
                if action == "skip":
                    skipped.append(f"{package} {test}: {reason(said.get((package, test), []))}")
            for key in ended:
                print("".join(said.pop(key, [])), end="", file=out, flush=True)
            said.pop((package, test), None)
    return skipped


def reason(said: Iterable[str]) -> str:
    """Returns the output of a skipped test as one line."""
    lines = (line.strip() for line in said)
    return " ".join(s for s in lines if s and not s.startswith(("=== ", "--- "))) or "no reason"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
