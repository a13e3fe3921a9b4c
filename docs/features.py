"""Writes the table of all rows into docs/features.md, from docs/features.csv.

A row is one thing that a source document of this project describes: where, what it asks, whether it
works here, and the tests that show it, or the reason why not. ``python docs/features.py`` replaces
what lies between the two marks of the page. `tests/test_features.py` judges both.
"""

from __future__ import annotations

import csv
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

__all__ = ["DATA", "PAGE", "Row", "rows_of", "with_table"]

PAGE = Path(__file__).resolve().parent / "features.md"
DATA = PAGE.with_suffix(".csv")
BEGIN, END = "<!-- all rows: begin -->\n", "<!-- all rows: end -->\n"

DOCUMENTS = {
    "000": "TubeMQ's C++ client",
    "001": "TubeMQ's Java client for programs that choose their partitions",
    "002": "TubeMQ's Go client",
    "003": "RocketMQ's service node",
    "004": "TubeMQ's protocol of clients",
    "card": "The design of this project",
}


class Row(NamedTuple):
    """Row of a document. `state` is "works", "differs" or "no"; `why` is empty for what works."""

    row: str
    place: str
    asks: str
    state: str
    why: str
    tests: str

    @property
    def document(self) -> str:
        """Key of the row's document in `DOCUMENTS`."""
        return self.row.rpartition("-")[0]


def rows_of(text: str) -> list[Row]:
    """Return the rows in a CSV text with a header."""
    return [Row(**item) for item in csv.DictReader(text.splitlines())]


def with_table(page: str, rows: list[Row]) -> str:
    """Return the page with the table of these rows between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + _table(rows) + END + after


def _table(rows: list[Row]) -> str:
    counts = Counter(row.state for row in rows)
    works, differs, no = counts["works"], counts["differs"], counts["no"]
    lines = [f"\n{len(rows)} rows: {works} work, {differs} differ, {no} do not work.\n"]
    for key, group in groupby(rows, key=lambda row: row.document):
        lines += [
            f"\n### {DOCUMENTS[key]}\n",
            "\n| Row | Where | What it asks | Here | Why | Shown by |\n|---|---|---|---|---|---|\n",
        ]
        lines += [_line(row) for row in group]
    return "".join([*lines, "\n"])


def _line(row: Row) -> str:
    tests = ", ".join(f"`{test}`" for test in row.tests.split())
    cells = (row.row, _plain(row.place), _plain(row.asks), row.state, row.why, tests)
    return f"| {' | '.join(cells)} |\n".replace("|  |", "| |")


def _plain(text: str) -> str:
    """Return text that Markdown shows as it is."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>#$|" else letter for letter in text)


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(), rows_of(DATA.read_text())))
