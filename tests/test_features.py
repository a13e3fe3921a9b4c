"""Tests that the documentation names exist, and every row of the feature table names some.

Names are looked up in the source: nothing is imported, so nothing optional is needed. What a test
shows is for its reader to judge; that it was renamed or removed is noticed here.
"""

from __future__ import annotations

import ast
import importlib
import re
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
ROWS = 32
"""Features of the clients published by Apache InLong, taken together."""

ALL_ROWS = 625
"""Rows of the source documents of this project."""

COMPLAINTS = 21
"""Requests and complaints of users of the nearest relative."""

TEST = re.compile(r"`(test_\w+)`")
FILE = re.compile(r"`(tests/[\w/]+(?:\.py)?)`")
ROW = re.compile(r"^\| (\d+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


@cache
def defined() -> set[str]:
    """Return the names of all tests."""
    return {
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


@pytest.mark.parametrize(
    "page", [str(path.relative_to(DOCS)) for path in sorted(DOCS.rglob("*.md"))]
)
def test_tests_that_a_page_names_exist(page: str) -> None:
    text = (DOCS / page).read_text()
    assert sorted(set(TEST.findall(text)) - defined()) == []
    assert [name for name in FILE.findall(text) if not (ROOT / name).exists()] == []


def test_every_feature_names_its_test() -> None:
    rows = ROW.findall((DOCS / "features.md").read_text())
    assert sorted(int(number) for number, *_ in rows) == list(range(1, ROWS + 1))
    without = [number for number, _, here, tests in rows if here != "no" and not TEST.search(tests)]
    assert without == []


@pytest.fixture
def features(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import the script that writes the table of all rows."""
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module("features")


def test_every_row_of_the_documents_has_a_test_or_a_reason(features: ModuleType) -> None:
    rows = features.rows_of(features.DATA.read_text())
    assert len({row.row for row in rows}) == len(rows) == ALL_ROWS
    assert {row.state for row in rows} <= {"works", "differs", "no"}
    named = {row.row: set(row.tests.split()) for row in rows}
    assert {row: tests - defined() for row, tests in named.items() if tests - defined()} == {}
    assert [row.row for row in rows if row.state == "works" and not named[row.row]] == []
    assert [row.row for row in rows if (row.state == "works") == bool(row.why)] == []
    assert [row.row for row in rows if not (row.place and row.asks)] == []


def test_the_page_has_the_table_of_all_rows(features: ModuleType) -> None:
    page = features.PAGE.read_text()
    rows = features.rows_of(features.DATA.read_text())
    assert page == features.with_table(page, rows), "run: python docs/features.py"


def test_every_row_of_the_comparison_names_its_test() -> None:
    lines = (DOCS / "comparison.md").read_text().splitlines()
    rows = [line.split(" | ") for line in lines if line.startswith("| ")][1:]
    assert len(rows) == COMPLAINTS
    assert [asked for asked, _, tests in rows if not TEST.search(tests)] == []
