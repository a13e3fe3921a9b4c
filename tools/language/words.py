"""Check of the project's words: ``python -m tools.language.words [PATH…]``.

Fails on a docstring that begins with a bare clause and on words of `refused.toml`, in docstrings,
comments and pages of docs. Prints file, line, and what to write instead. Standard library only.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_ALLOWED = re.compile(r"words: allowed\b")
"""A line that has to use a refused word says why behind this mark."""


@dataclass(frozen=True)
class Problem:
    """A place to rewrite."""

    path: Path
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.kind}: {self.text}"


@dataclass(frozen=True)
class Refused:
    """Openings and words of `refused.toml`, compiled."""

    openings: re.Pattern[str]
    words: re.Pattern[str]
    instead: dict[str, str]

    @classmethod
    def read(cls) -> Refused:
        """Read the list beside this module."""
        document = tomllib.loads(Path(__file__).with_name("refused.toml").read_text())
        words = document["words"]
        longest_first = sorted(words, key=len, reverse=True)
        return cls(
            re.compile(rf"({'|'.join(document['openings']['docstrings'])})\b"),
            re.compile(
                "|".join(r"\b" + r"\s+".join(word.split()) + r"\b" for word in longest_first),
                re.IGNORECASE,
            ),
            words,
        )


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of each docstring, those of fields included."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            if (
                isinstance(statement, ast.Expr)
                and isinstance(statement.value, ast.Constant)
                and isinstance(statement.value.value, str)
            ):
                yield statement.lineno, statement.value.value


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each comment."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def of_python(path: Path, refused: Refused) -> Iterator[Problem]:
    """Yield the problems of a Python file."""
    source = path.read_text()
    found = list(docstrings(ast.parse(source)))
    for line, text in found:
        if opening := refused.openings.match(text.lstrip()):
            yield Problem(path, line, f"begins with {opening[0]!r}", text.strip().split("\n")[0])
    for line, text in [*found, *comments(source)]:
        yield from _words(path, line, text, refused)


def of_page(path: Path, refused: Refused) -> Iterator[Problem]:
    """Yield the problems of a page of docs; blocks of code are left out."""
    text = re.sub(
        r"^(```|~~~).*?^\1",
        lambda block: "\n" * block[0].count("\n"),
        path.read_text(),
        flags=re.MULTILINE | re.DOTALL,
    )
    yield from _words(path, 1, text, refused)


def _words(path: Path, first: int, text: str, refused: Refused) -> Iterator[Problem]:
    lines = text.split("\n")
    for found in refused.words.finditer(text):
        offset = text.count("\n", 0, found.start())
        if _ALLOWED.search(lines[offset]):
            continue
        word = re.sub(r"\s+", " ", found[0]).lower()
        yield Problem(
            path,
            first + offset,
            f"{word!r} (write: {refused.instead[word]})",
            lines[offset].strip(),
        )


def problems(paths: Sequence[Path]) -> Iterator[Problem]:
    """Yield the problems of files."""
    refused = Refused.read()
    for path in paths:
        if path.suffix == ".py":
            yield from of_python(path, refused)
        elif path.suffix == ".md":
            yield from of_page(path, refused)


def main() -> int:
    """Print the problems; the exit code is 1 if there is any."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("paths", nargs="*", default=["."], help="files and folders (default: all)")
    parser.add_argument("--count", action="store_true", help="print one number for each folder")
    options = parser.parse_args()
    listed = subprocess.run(
        ["git", "ls-files", "--", *(options.paths or ["."])],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\n")
    found = list(problems([Path(path) for path in listed if path and Path(path).exists()]))
    if options.count:
        folders: dict[str, int] = {}
        for problem in found:
            folder = "/".join(problem.path.parts[:2])
            folders[folder] = folders.get(folder, 0) + 1
        print("\n".join(f"{count:6} {folder}" for folder, count in sorted(folders.items())))
    else:
        print("\n".join(map(str, found)) or "no refused words")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
