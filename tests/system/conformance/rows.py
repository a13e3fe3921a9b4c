"""A table is a list of rows, a row a list of questions: data, independent of any server.

Answers of a genuine server are in ``answers/<table>.txt``, one line per question, below the row's
name. Write a row, record it (``python -m tests.system.conformance --record``), and review the
result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["LONG", "OWN", "Question", "Row", "answers", "ask", "quiet", "until"]

LONG = "long"
"""Rows that take a genuine server more than a few seconds; not for every run."""

OWN = "own"
"""Rows that change what everyone on the server sees: not on one that others use."""


class Question(NamedTuple):
    """`verb` is ``player.call``, ``master`` or ``change`` or ``broker`` for HTTP, or a control of
    the server (`playing`). With `goal` it is repeated until the answer has these fields. Answers to
    `quiet` ones depend on earlier state and are not compared."""

    verb: str
    words: Mapping[str, Any]
    goal: Mapping[str, Any] | None = None
    quiet: bool = False

    @property
    def text(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.words.items())
        return f"{self.verb}({shown})"


@dataclass(frozen=True)
class Row:
    """One row of a table. `$topic` and `$group` in its words are its own ones."""

    name: str
    topic: str
    questions: tuple[Question, ...]
    group: str = ""
    tags: frozenset[str] = field(default_factory=frozenset)

    @property
    def long(self) -> bool:
        """Not for every run on a genuine server."""
        return bool(self.tags)


def ask(verb: str, **words: Any) -> Question:
    return Question(verb, words)


def quiet(verb: str, **words: Any) -> Question:
    return Question(verb, words, quiet=True)


def until(goal: Mapping[str, Any], verb: str, **words: Any) -> Question:
    """Repeat until the answer has these fields (None: lacks it); the last answer counts."""
    return Question(verb, words, goal)


def answers(table: str) -> dict[str, list[str]]:
    """Return the recorded answers of a table, by row."""
    path = Path(__file__).with_name("answers") / f"{table}.txt"
    found: dict[str, list[str]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        if line.startswith("## "):
            continue
        if line.startswith("# "):
            current = found.setdefault(line[2:], [])
        else:
            current.append(line)
    return found
