"""Every test is run by one target of the Makefile, and by no two."""

import re
import subprocess

from helpers import ROOT


def test_every_package_has_one_target():
    """Of plain and race; numeric takes tests of raced packages, which race leaves out."""
    said = subprocess.run(
        ["make", "-s", "packages"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    targets: dict[str, set[str]] = {}
    for line in said.stdout.splitlines():
        target, package = line.split()
        targets.setdefault(package, set()).add(target)
    for package, names in targets.items():
        assert len(names) == 1, f"{package} is tested by {names}"
    for path in ROOT.glob("[a-z]*/**/*_test.go"):
        package = f"./{path.parent.relative_to(ROOT)}"
        if "testdata" not in path.parts:
            assert package in targets, f"no target tests {package}"
    numeric = re.search(
        r"^NUMERIC_PACKAGES := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    for package in numeric[1].split():
        assert targets[package] == {"race"}, f"{package} is tested by {targets[package]}, too"


def test_every_python_test_is_run():
    text = (ROOT / "Makefile").read_text()
    folders = re.search(r"for folder in ([a-z ]+);", text)[1].split()
    for path in ROOT.glob("[a-z]*/**/test_*.py"):
        assert path.relative_to(ROOT).parts[:2] in {(folder, "tests") for folder in folders}, path


def test_all_targets_of_tests_are_run():
    """By make test, which adds their lists of skipped tests up."""
    text = (ROOT / "Makefile").read_text()
    jobs = re.search(r"\$\(MAKE\) .* -j\d+ --output-sync=none (.*)", text)[1].split()
    assert set(jobs) == {"lint", "plain", "race", "numeric", "pytest"}
    lists = re.search(r"cat \$\(SKIPPED\)/\{(.*)\}", text)[1].split(",")
    assert set(lists) == set(re.findall(r"\$\(GOTEST\) \$\(SKIPPED\)/(\w+)", text)) | {
        "tools",
        "bench",
    }


def test_every_numeric_test_is_one_of_its_packages():
    """The race detector skips them by name, in all packages, and nothing else runs them."""
    text = re.sub(r"\$\\\n\s*", "", (ROOT / "Makefile").read_text())
    packages = re.search(r"^NUMERIC_PACKAGES := (.*)$", text, re.MULTILINE)[1].split()
    names = re.search(r"^NUMERIC := (.*)$", text, re.MULTILINE)[1].split("|")
    assert len(names) == len(set(names)) > 10
    found: dict[str, list[str]] = {}
    for path in ROOT.glob("[a-z]*/**/*_test.go"):
        for name in re.findall(r"^func (Test\w+)\(", path.read_text(), re.MULTILINE):
            found.setdefault(name, []).append(f"./{path.parent.relative_to(ROOT)}")
    for name in names:
        assert len(found.get(name, [])) == 1, f"{name} is in {found.get(name)}"
        assert found[name][0] in packages, f"{name} is in {found[name][0]}"
