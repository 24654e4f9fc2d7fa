"""Every test is run by one target of the Makefile, and by no two."""

import re
import subprocess

from helpers import ROOT


def test_every_package_has_one_target():
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


def test_every_python_test_is_run():
    text = (ROOT / "Makefile").read_text()
    folders = re.search(r"for folder in ([a-z ]+);", text)[1].split()
    for path in ROOT.glob("[a-z]*/**/test_*.py"):
        assert path.relative_to(ROOT).parts[:2] in {(folder, "tests") for folder in folders}, path


def test_all_targets_of_tests_are_run():
    """The target test runs them, and joins their lists of skipped tests."""
    text = (ROOT / "Makefile").read_text()
    jobs = re.search(r"\$\(MAKE\) .* -j\d+ --output-sync=none (.*)", text)[1].split()
    assert set(jobs) == {"lint", "plain", "race", "long", "pytest"}
    lists = re.search(r"cat \$\(SKIPPED\)/\{(.*)\}", text)[1].split(",")
    assert set(lists) == set(re.findall(r"\$\(GOTEST\) \$\(SKIPPED\)/(\w+)", text)) | {
        "tools",
        "bench",
    }


def test_tests_of_long_packages_are_raced_or_not():
    """The race detector runs those of RACED_TESTS, by name, and `long` runs all others."""
    text = re.sub(r"\$\\\n\s*", "", (ROOT / "Makefile").read_text())
    packages = re.search(r"^LONG_PACKAGES := (.*)$", text, re.MULTILINE)[1].split()
    names = re.search(r"^RACED_TESTS := (.*)$", text, re.MULTILINE)[1].split("|")
    assert len(names) == len(set(names)) > 10
    for option in ("race .* -run", "vet=off .* -skip"):
        found = re.findall(option + r" '\^\(\$\(RACED_TESTS\)\)\$\$' (.*)$", text, re.MULTILINE)
        assert found == ["$(LONG_PACKAGES)"], option
    found: dict[str, list[str]] = {}
    for package in packages:
        for path in (ROOT / package).glob("*_test.go"):
            for name in re.findall(r"^func (Test\w+)\(", path.read_text(), re.MULTILINE):
                found.setdefault(name, []).append(package)
    for name in names:
        assert len(found.get(name, [])) == 1, f"{name} is in {found.get(name)}"
    assert {found[name][0] for name in names} == set(packages)
