"""Which tests run under the race detector, and which without it."""

import re

from helpers import ROOT


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
