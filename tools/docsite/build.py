"""Makes a site of the documentation, with a search, that any server of files can serve.

    make site

The pages are README.md and what is in docs/, as they are; the table at the side is that of
docs/README.md. Links between pages lead to pages, and links to sources to the project's forge. Each
link is checked, and nothing is loaded from elsewhere when a page is looked at.
"""

from __future__ import annotations

import argparse
import html.parser
import os
import pathlib
import posixpath
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence

from check_tpu.common import ROOT, TOOLS, CheckError, command, ended, environment

OUT = ROOT / "dist" / "site"
FORGE = "https://github.com/gorbit-ml/gorbit"
INDEX = "index.md"
LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]*)?\)")
FENCE = re.compile(r"^ *```", re.MULTILINE)


def pages() -> list[str]:
    """Returns the names of all pages, from the root of the checkout."""
    files = [*ROOT.glob("*.md"), ROOT / "bench" / "README.md", *(ROOT / "docs").rglob("*.md")]
    return sorted(file.relative_to(ROOT).as_posix() for file in files)


def staged(name: str) -> str:
    """Returns a page's name in the site's source: README.md is what one sees first."""
    return INDEX if name == "README.md" else name


def target(page: str, link: str, known: Sequence[str], revision: str) -> str:
    """Returns where a link of a page leads on the site.

    Raises:
        CheckError: if it leads nowhere.
    """
    if "://" in link or not link:
        return link
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), link))
    if path in known:
        return posixpath.relpath(staged(path), posixpath.dirname(page) or ".")
    if path.startswith("..") or not (ROOT / path).exists():
        raise CheckError(f"{page}: the link to {link} leads nowhere")
    return f"{FORGE}/{'tree' if (ROOT / path).is_dir() else 'blob'}/{revision}/{path}"


def rewritten(page: str, text: str, known: Sequence[str], revision: str) -> str:
    """Returns a page with the links of the site. Blocks of code stay as they are."""

    def link(match: re.Match[str]) -> str:
        return f"]({target(page, match[1], known, revision)}{match[2] or ''})"

    parts = FENCE.split(text)
    fences = FENCE.findall(text)
    if len(parts) % 2 == 0:
        raise CheckError(f"{page}: a block of code does not end; expected ```")
    out = ""
    for i, part in enumerate(parts):
        out += part if i % 2 else LINK.sub(link, part)
        out += fences[i] if i < len(fences) else ""
    return out


def contents(known: Sequence[str]) -> str:
    """Returns the tables at the side: the pages that docs/README.md links, by its sections."""
    here = "docs/README.md"
    sections = re.split(r"^## (.*)$", (ROOT / here).read_text(encoding="utf-8"), flags=re.M)
    listed = {"README.md", here}
    tables = [("", [here])]
    for caption, text in zip(sections[1::2], sections[2::2]):
        found = []
        for link, _ in LINK.findall(text):
            path = posixpath.normpath(posixpath.join("docs", link))
            if path in known and path not in listed:
                listed.add(path)
                found.append(path)
        tables.append((caption, found))
    tables.append(("More", [name for name in known if name not in listed]))
    out = ""
    for caption, found in tables:
        names = "\n".join(name.removesuffix(".md") for name in found)
        named = f":caption: {caption}\n" if caption else ""
        out += f"\n```{{toctree}}\n:hidden:\n{named}\n{names}\n```\n"
    return out


class Resources(html.parser.HTMLParser):
    """Collects what a page loads from elsewhere when it is looked at."""

    def __init__(self) -> None:
        """Has nothing yet."""
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Looks at a tag."""
        address = dict(attrs).get("href" if tag == "link" else "src")
        if tag != "a" and address and re.match(r"(https?:)?//", address):
            self.found.append(address)


def elsewhere(site: pathlib.Path) -> list[str]:
    """Returns what pages and style sheets load from elsewhere."""
    found = []
    for file in sorted(site.rglob("*.html")):
        parser = Resources()
        parser.feed(file.read_text(encoding="utf-8"))
        found += parser.found
    for file in sorted(site.rglob("*.css")):
        found += re.findall(r"url\([\"']?((?:https?:)?//[^)]*)", file.read_text(encoding="utf-8"))
    return found


def build(out: pathlib.Path, revision: str) -> int:
    """Makes the site in a folder, and returns how many pages it has."""
    known = pages()
    python = environment("site", "docsite")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".site-") as folder:
        work = pathlib.Path(folder)
        for name in known:
            text = rewritten(name, (ROOT / name).read_text(encoding="utf-8"), known, revision)
            file = work / "source" / staged(name)
            file.parent.mkdir(parents=True, exist_ok=True)
            text += contents(known) if name == "README.md" else ""
            file.write_text(text, encoding="utf-8")
        command([python, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going",
                 "--builder", "html", "--conf-dir", str(TOOLS / "docsite"),
                 "--doctree-dir", str(work / "trees"), str(work / "source"),
                 str(work / "site")], 600)  # fmt: skip
        if found := elsewhere(work / "site"):
            raise CheckError(f"the site loads {found[0]}; expected nothing from elsewhere")
        (work / "site" / ".buildinfo").unlink(missing_ok=True)
        shutil.rmtree(out, ignore_errors=True)
        os.replace(work / "site", out)
    return len(known)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    parser = argparse.ArgumentParser(prog="make site", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=OUT, help="folder of the site")
    parser.add_argument("--revision", default="main", help="of the sources that pages link")
    args = parser.parse_args(arguments)

    def make() -> int:
        count = build(args.out.absolute(), args.revision)
        print(f"{count} pages in {args.out}; to look at them: python3 -m http.server -d {args.out}")
        return 0

    return ended("site", make)


if __name__ == "__main__":
    sys.exit(main())
