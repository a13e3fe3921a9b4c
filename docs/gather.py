"""Gathers the pages of the site where MkDocs reads them: `build/docs/pages/`.

    python docs/gather.py    then: mkdocs build --strict --config-file docs/mkdocs.yml

Pages of docs/ keep their place. Pages at the top of the repository are in `project/`, example Dags
are pages with their source, the reference is what `docs/reference.py` wrote. Links are changed to
where their targets are on the site; a link to a file that the site does not have becomes plain
text, since there is no public repository to link to. Run by `make docs`, behind `docs/check.py`,
which judges the links of the repository. It imports none of the packages.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from reference import PAGES as REFERENCE
from reference import ROOT

DOCS = ROOT / "docs"
SITE_PAGES = ROOT / "build" / "docs" / "pages"

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_OUTSIDE = re.compile(r"[a-z][a-z0-9+.-]*:")
_FENCE = re.compile(r"^(\s*`{3,})(\w*)(.*)$")
_TITLE = re.compile(r'title="[^"]+"')


def places() -> dict[Path, Path]:
    """Return where each file of the repository is on the site, relative to its root."""
    found = {
        path: path.relative_to(DOCS)
        for path in sorted(DOCS.rglob("*"))
        if path.suffix in {".md", ".svg", ".png", ".json"}
    }
    for path in sorted(ROOT.glob("*.md")):
        found[path] = Path("project") / path.name.lower()
    found[ROOT / "README.zh-CN.md"] = Path("zh/readme.md")
    found[ROOT / "README.md"] = Path("project/overview.md")
    found[ROOT / "tools/demo/README.md"] = Path("project/demo.md")
    for path in sorted(REFERENCE.glob("*.md")):
        found[DOCS / "reference" / path.name] = Path("reference") / path.name
    for path in sorted((ROOT / "dags").glob("*.py")):
        found[path] = Path("dags") / f"{path.stem}.md"
    found[ROOT / "dags"] = Path("dags/index.md")
    found[DOCS / "adr"] = Path("adr/README.md")
    return found


class Writer:
    """Writes pages with the links that they have on the site."""

    def __init__(self, found: dict[Path, Path]) -> None:
        self.places = found

    def page(self, source: Path, text: str) -> str:
        return "\n".join(self._lines(source, text)) + "\n"

    def _lines(self, source: Path, text: str) -> Iterator[str]:
        fence = ""
        for line in text.splitlines():
            opening = _FENCE.match(line)
            if opening and not fence:
                fence = opening[1].strip()
                title = _TITLE.search(opening[3])
                yield f"{opening[1]}{opening[2]}{f' {title[0]}' if title else ''}"
            elif fence:
                fence = "" if line.strip() == fence else fence
                yield line
            else:
                yield _LINK.sub(lambda link: self._link(source, *link.groups()), line)

    def _link(self, source: Path, image: str, text: str, target: str) -> str:
        if _OUTSIDE.match(target) or target.startswith("#"):
            return f"{image}[{text}]({target})"
        name, mark, anchor = unquote(target).partition("#")
        place = self.places.get((source.parent / name).resolve())
        if place is None:
            return text
        here = self.places[source].parent
        return f"{image}[{text}]({os.path.relpath(place, here)}{mark}{anchor})"


def dag_page(path: Path) -> str:
    """Return an example Dag as a page: what its docstring says, and its source."""
    source = path.read_text(encoding="utf-8")
    about = ast.get_docstring(ast.parse(source)) or ""
    title, _, rest = about.partition("\n")
    code = f'```python title="dags/{path.name}"\n{source}```'
    return f"# {title.rstrip('.')}\n{rest}\n\n{code}\n"


def dags_page(paths: list[Path]) -> str:
    """Return the list of example Dags."""
    lines = ["# Example Dags", "", "Tests run each of them against an embedded server.", ""]
    for path in paths:
        about = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or path.stem
        lines.append(f"- [{path.name}]({path.stem}.md): {about.partition(chr(10))[0]}")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write all pages again."""
    found = places()
    writer = Writer(found)
    shutil.rmtree(SITE_PAGES, ignore_errors=True)
    for path, place in found.items():
        target = SITE_PAGES / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            continue
        if path.suffix == ".py":
            target.write_text(dag_page(path), encoding="utf-8")
        elif path.suffix == ".md":
            read = REFERENCE / path.name if path.parent == DOCS / "reference" else path
            target.write_text(writer.page(path, read.read_text(encoding="utf-8")), encoding="utf-8")
        else:
            shutil.copyfile(path, target)
    dags = sorted((ROOT / "dags").glob("*.py"))
    (SITE_PAGES / "dags/index.md").write_text(dags_page(dags), encoding="utf-8")
    shutil.copyfile(DOCS / "site.css", SITE_PAGES / "site.css")
    print(f"site: {len(list(SITE_PAGES.rglob('*.md')))} pages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
