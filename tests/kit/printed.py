"""Blocks of a documentation page, and the commands of a console block with what they print.

For tests that run a page as it is printed. Reads Markdown; runs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

__all__ = ["Block", "Command", "blocks", "commands", "prints", "steps"]

_FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_STEP = re.compile(
    rf"{_FENCE.pattern}|^<!-- run( on-spark)?:\s(.*?)\s-->$", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, the words after it, its text."""

    language: str
    words: str
    text: str

    @property
    def title(self) -> str:
        """File that the reader saves the block as, or ""."""
        found = re.search(r'title="([^"]+)"', self.words)
        return found[1] if found else ""

    @property
    def fails(self) -> bool:
        """True if the last command of the block fails, as the page says."""
        return "fails" in self.words.split()

    @property
    def not_run(self) -> str:
        """Reason for which no test runs the block, or ""."""
        found = re.search(r'not-run="([^"]+)"', self.words)
        return found[1] if found else ""

    @property
    def only_built(self) -> str:
        """Reason for which the block is run, and the tasks that it makes are not, or ""."""
        found = re.search(r'only-built="([^"]+)"', self.words)
        return found[1] if found else ""

    @property
    def on_spark(self) -> bool:
        """True if the block needs the reader's Spark session: tests/provider/spark runs it."""
        code = re.sub(r"#.*", "", self.text)
        named = r"(?<![\".\w])spark\.|writeStream|frame\.selectExpr"
        return "on-spark" in self.words.split() or re.search(named, code) is not None


class Command(NamedTuple):
    """A command after ``$``, and the lines that the page prints below it."""

    line: str
    output: str


def blocks(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page that name a language, in order."""
    for language, words, text in _FENCE.findall(page.read_text()):
        yield Block(language, words.strip(), text)


def steps(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page, and its comments ``<!-- run: … -->`` as blocks of ``hidden``.

    A comment makes what a page supposes: that retention has deleted records, for instance. That of
    ``run on-spark`` does so for the blocks on Spark.
    """
    for language, words, text, kind, hidden in _STEP.findall(page.read_text()):
        if hidden:
            yield Block("hidden", kind.strip(), hidden)
        else:
            yield Block(language, words.strip(), text)


def commands(block: Block) -> list[Command]:
    """Return the commands of a console block."""
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]
    return [Command(line, output) for line, _, output in (part.partition("\n") for part in parts)]


def prints(expected: str, printed: str) -> bool:
    """Return True if `printed` has the expected text; ``…`` in it stands for any text."""
    fragments = (re.escape(part.strip()) for part in expected.split("…"))
    return re.search(".*".join(fragments), printed, re.DOTALL) is not None
