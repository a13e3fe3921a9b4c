"""Checks the Markdown of the project: what it links to exists, what it shows as code is code.

For every page: relative links and anchors lead somewhere; Python blocks compile, and what they
import from this project is public (docs/public.toml) and defined there, in example Dags too; JSON
and TOML blocks parse; `make` commands in shell blocks are targets of the Makefile; tables are
whole; the tests that pages name exist, and the files that ARCHITECTURE.md and CONTRIBUTING.md name.
Pages and headings that the source of a package cites exist. Every page under docs/ can be reached
from docs/index.md.

The reference pages are read where `docs/reference.py` wrote them, and linked to as if they were in
docs/reference/. Run by `make docs`. It imports none of the packages (names are looked up in their
source), follows no external link and changes no file. A block that is meant to be wrong carries
`no-check` behind its language.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token
from reference import PAGES, PUBLIC, ROOT, public_modules, public_names

INDEX = ROOT / "docs" / "index.md"
OWN_PACKAGES = (
    *("tubemq_client", "rocketmq_client", "rocketmq_snode", "tubemq_provider"),
    *("pyspark_tubemq", "pyspark_rocketmq"),
)
_OF_MAINTAINERS = ("ARCHITECTURE.md", "CONTRIBUTING.md")
_PUNCTUATION = re.compile(r"[^\w\- ]")
_CITED = re.compile(r"\bdocs/[\w/-]+\.md(?:#[\w-]+)?")
_TEST = re.compile(r"test_\w+|tests/[\w/.]+")
_PATH = re.compile(r"(?:[\w.-]+/)*[\w.-]+\.py|(?:[\w.-]+/)+")
_MAKE = re.compile(r"^(?:\$ )?make((?: +[a-z][a-z-]*)+)", re.MULTILINE)


class Link(NamedTuple):
    line: int
    target: str


class Block(NamedTuple):
    line: int
    language: str
    code: str


class Page:
    """One parsed Markdown file: its anchors, links and code blocks."""

    def __init__(self, path: Path, built: Path | None = None) -> None:
        self.path = path
        self.anchors: set[str] = set()
        self.links: list[Link] = []
        self.blocks: list[Block] = []
        self.broken_rows: list[int] = []
        self.tests: list[Link] = []
        self.paths: list[Link] = []
        for token, line in _tokens(
            MarkdownIt("commonmark").enable("table").parse((built or path).read_text())
        ):
            self._take(token, line)

    def _take(self, token: Token, line: int) -> None:
        if token.type == "fence":
            words = token.info.split()
            if words and "no-check" not in words:
                self.blocks.append(Block(line, words[0], token.content))
        elif token.type == "heading_text":
            self.anchors.add(self._free_slug(token.content))
        elif token.type == "link_open":
            self.links.append(Link(line, str(token.attrGet("href"))))
        elif token.type == "image":
            self.links.append(Link(line, str(token.attrGet("src"))))
        elif token.type == "inline" and _is_broken_row(token.content):
            self.broken_rows.append(line)
        elif token.type == "code_inline" and _TEST.fullmatch(token.content):
            self.tests.append(Link(line, token.content))
        elif token.type == "code_inline" and _PATH.fullmatch(token.content):
            self.paths.append(Link(line, token.content))

    def _free_slug(self, heading: str) -> str:
        """Return the anchor that code hosts give a heading; repeated headings are numbered."""
        slug = _PUNCTUATION.sub("", heading.lower()).strip().replace(" ", "-")
        number = 0
        while (name := f"{slug}-{number}" if number else slug) in self.anchors:
            number += 1
        return name


def _tokens(stream: list[Token]) -> Iterator[tuple[Token, int]]:
    """All tokens with their line, inline ones too; a heading's plain text as `heading_text`."""
    line, in_heading = 1, False
    for token in stream:
        line = token.map[0] + 1 if token.map else line
        yield token, line
        if token.type == "inline":
            children = token.children or []
            if in_heading:
                text = "".join(c.content for c in children if c.type in {"text", "code_inline"})
                yield Token("heading_text", "", 0, content=text), line
            for child in children:
                yield child, line
        in_heading = token.type == "heading_open"


def _is_broken_row(text: str) -> bool:
    """Tell if a line looks like a table row outside of a table, or a second header rule."""
    return text.startswith("| ") or re.fullmatch(r":?-{3,}:?", text) is not None


def check_links(page: Page, pages: dict[Path, Page]) -> Iterator[str]:
    for link in page.links:
        if re.match(r"[a-z][a-z0-9+.-]*:", link.target):
            continue
        name, _, anchor = unquote(link.target).partition("#")
        target = (page.path.parent / name).resolve() if name else page.path
        if not target.is_relative_to(ROOT) or not (target in pages or target.exists()):
            yield f"{link.line}: link to {link.target}: no such file"
        elif anchor and target in pages and anchor not in pages[target].anchors:
            yield f"{link.line}: link to {link.target}: no such heading"


def check_tables(page: Page) -> Iterator[str]:
    for line in page.broken_rows:
        yield f"{line}: two tables in one, or a row outside a table"


def check_tests(page: Page) -> Iterator[str]:
    for line, name in page.tests:
        if not ((ROOT / name).exists() if "/" in name else name in _tests()):
            yield f"{line}: {name}: no such test"


def check_paths(page: Page) -> Iterator[str]:
    """Files and folders that a page of maintainers names, in full or from a room on."""
    for line, name in page.paths if page.path.name in _OF_MAINTAINERS else ():
        if not name.startswith((".", "build/")) and not any(
            f"/{known}".endswith(f"/{name.rstrip('/')}") for known in _sources()
        ):
            yield f"{line}: {name}: no such file"


@cache
def _sources() -> frozenset[str]:
    """Folders at the top, and what is in packages and tests."""
    folders = [path for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "."]
    inner = (p for folder in folders if folder.name != "build" for p in folder.rglob("*"))
    return frozenset(str(path.relative_to(ROOT)) for path in (*folders, *inner))


def check_citations(pages: dict[Path, Page]) -> Iterator[str]:
    """Problems of pages and headings that modules of the packages name as their source."""
    for path in sorted(p for package in OWN_PACKAGES for p in (ROOT / package).rglob("*.py")):
        for number, text in enumerate(path.read_text().splitlines(), 1):
            for cited in _CITED.findall(text):
                name, _, anchor = cited.partition("#")
                page = pages.get(ROOT / name)
                if page is None or (anchor and anchor not in page.anchors):
                    yield f"{path.relative_to(ROOT)}:{number}: cites {cited}: not there"


def check_blocks(page: Page) -> Iterator[str]:
    for block in page.blocks:
        try:
            if block.language in {"python", "py"}:
                yield from _python_problems(block)
            elif block.language == "json":
                json.loads(block.code)
            elif block.language == "toml":
                tomllib.loads(block.code)
            elif block.language in {"console", "sh", "shell", "bash"}:
                yield from _make_problems(block)
        except (SyntaxError, ValueError) as error:
            yield f"{block.line}: {block.language} block: {error}"


def check_dags() -> Iterator[str]:
    for path in sorted((ROOT / "dags").glob("*.py")):
        yield from (f"dags/{path.name}:{problem}" for problem in _not_public(path.read_text(), 0))


def _python_problems(block: Block) -> Iterator[str]:
    yield from _not_public(textwrap.dedent(block.code), block.line)


def _not_public(code: str, first: int) -> Iterator[str]:
    """Yield the imports from this project that are not public or do not exist."""
    for node in ast.walk(ast.parse(code)):
        wanted: list[tuple[str, str | None]] = []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            wanted = [(node.module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            wanted = [(alias.name, None) for alias in node.names]
        for module, name in wanted:
            if module.partition(".")[0] not in OWN_PACKAGES:
                continue
            what = f"{module}.{name}" if name else module
            if not _defines(module, name):
                yield f"{first + node.lineno}: {what} does not exist"
            elif not _is_public(module, name):
                yield f"{first + node.lineno}: {what} is not public ({PUBLIC.relative_to(ROOT)})"


def _is_public(module: str, name: str | None) -> bool:
    public = public_modules()
    if name is None or f"{module}.{name}" in public:
        return any(f"{listed}.".startswith(f"{module}.") for listed in public)
    return module in public and name in public_names(module)


def _make_problems(block: Block) -> Iterator[str]:
    for command in _MAKE.finditer(block.code):
        for target in command[1].split():
            if target not in _make_targets():
                yield f"{block.line}: make {target}: no such target"


def _defines(module: str, name: str | None) -> bool:
    base = ROOT.joinpath(*module.split("."))
    source = next((p for p in (base.with_suffix(".py"), base / "__init__.py") if p.is_file()), None)
    if name is None:
        return source is not None or base.is_dir()
    if any(part.exists() for part in (base / name, base / f"{name}.py")):
        return True
    return source is not None and name in _names(source)


@cache
def _names(source: Path) -> frozenset[str]:
    """Names bound at the top level of a module, conditional imports included."""
    bound: set[str] = set()
    pending: list[ast.AST] = list(ast.parse(source.read_text()).body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        else:
            pending.extend(ast.iter_child_nodes(node))
    return frozenset(bound)


@cache
def _tests() -> frozenset[str]:
    """Names of test functions, and of the modules they stand in."""
    found: set[str] = set()
    for path in (ROOT / "tests").rglob("*.py"):
        found |= {path.stem, *re.findall(r"def (test_\w+)", path.read_text())}
    return frozenset(found)


@cache
def _make_targets() -> frozenset[str]:
    text = (ROOT / "Makefile").read_text()
    return frozenset(re.findall(r"^([a-z][a-z-]*):", text, re.MULTILINE))


def orphans(pages: dict[Path, Page]) -> Iterator[str]:
    """Pages below docs/ that no chain of links from the index reaches."""
    reached, pending = {INDEX}, [INDEX]
    while pending:
        page = pages[pending.pop()]
        targets = {(page.path.parent / unquote(k.target).partition("#")[0]) for k in page.links}
        fresh = {t.resolve() for t in targets}.intersection(pages) - reached
        reached |= fresh
        pending.extend(fresh)
    for path in sorted(pages):
        if path.is_relative_to(INDEX.parent) and path not in reached:
            yield f"{path.relative_to(ROOT)}: cannot be reached from docs/index.md"


def main() -> int:
    """Print every problem; 1 if there is one."""
    if not PAGES.is_dir():
        print(f"{PAGES.relative_to(ROOT)} is not there: run docs/reference.py first")
        return 1
    paths = sorted([*ROOT.glob("*.md"), *INDEX.parent.rglob("*.md")])
    pages = {path: Page(path) for path in paths}
    for built in sorted(PAGES.glob("*.md")):
        path = INDEX.parent / "reference" / built.name
        pages[path] = Page(path, built)
    problems = [
        f"{page.path.relative_to(ROOT)}:{problem}"
        for page in pages.values()
        for problem in (
            *check_links(page, pages),
            *check_blocks(page),
            *check_tables(page),
            *check_tests(page),
            *check_paths(page),
        )
    ]
    problems += [*check_dags(), *check_citations(pages), *orphans(pages)]
    print("\n".join([*problems, f"docs: {len(pages)} pages, {len(problems)} problems"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
