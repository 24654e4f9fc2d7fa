"""Every test is run by one target of the Makefile, and by no two."""

import re
import subprocess

from helpers import ROOT


def test_every_package_has_one_target():
    targets: dict[str, set[str]] = {}
    for target, package in by_target():
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
    names, packages = listed("RACED_TESTS"), listed("LONG_PACKAGES", " ")
    assert len(names) > 10
    assert commands("RACED_TESTS") == ["-skip $(LONG_PACKAGES)", "race -run $(LONG_PACKAGES)"]
    assert packages_of(names, within=packages) == set(packages)


def test_tests_that_compute_are_run_without_the_race_detector():
    """The race detector skips COMPUTING_TESTS, and `plain` runs them."""
    names, packages = listed("COMPUTING_TESTS"), listed("COMPUTING_PACKAGES", " ")
    assert commands("COMPUTING_TESTS") == ["-run $(COMPUTING_PACKAGES)", "race -skip $(RACED)"]
    raced = [package for target, package in by_target() if target == "race"]
    assert packages_of(names, within=raced) == set(packages)


def by_target() -> list[list[str]]:
    """The packages and before each the target that tests it."""
    said = subprocess.run(
        ["make", "-s", "packages"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [line.split() for line in said.stdout.splitlines()]


def makefile() -> str:
    """The Makefile's text, with its lines that go on joined."""
    return re.sub(r"\$\\\n\s*", "", (ROOT / "Makefile").read_text())


def listed(variable: str, separator: str = "|") -> list[str]:
    """The words of a variable of the Makefile, of which no two are the same."""
    words = re.search(rf"^{variable} := (.*)$", makefile(), re.MULTILINE)[1].split(separator)
    assert len(words) == len(set(words))
    return words


def commands(tests: str) -> list[str]:
    """The uses of a variable with names of tests: race or not, with which option, and where."""
    uses = re.findall(
        rf"go test (?:-(race) )?.* (-run|-skip) '\^\(\$\({tests}\)\)\$\$' (.*)$",
        makefile(),
        re.MULTILINE,
    )
    return sorted(" ".join(word for word in use if word) for use in uses)


def packages_of(names: list[str], within: list[str]) -> set[str]:
    """The packages that have tests of these names: one for each name."""
    found: dict[str, list[str]] = {}
    for package in within:
        for path in (ROOT / package).glob("*_test.go"):
            for name in re.findall(r"^func (Test\w+)\(", path.read_text(), re.MULTILINE):
                found.setdefault(name, []).append(package)
    for name in names:
        assert len(found.get(name, [])) == 1, f"{name} is in {found.get(name)}"
    return {found[name][0] for name in names}
