"""Boundaries that a user has broken are reported by name, and nothing is planned with them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.provider.windows.world import ENTRY, TOPIC, MemoryBook
from tubemq_provider.windows.errors import DocumentError
from tubemq_provider.windows.plan import WindowScope
from tubemq_provider.windows.planning.boundary_book import ScopeBook
from tubemq_provider.windows.planning.instants import Resolved
from tubemq_provider.windows.protocols import Document

SCOPE = WindowScope("c1", TOPIC, "g1", "memory:test")


def fix(book: MemoryBook, hour: int) -> None:
    at = datetime(2026, 11, 21, hour, tzinfo=UTC)
    answer = Resolved({"1:0": hour * ENTRY})
    ScopeBook(book, SCOPE).fix(at, "says", lambda: answer, exact=False)


@pytest.fixture
def book() -> MemoryBook:
    found = MemoryBook()
    fix(found, 1)
    return found


@pytest.mark.parametrize(
    "change",
    [
        {"evidence": []},
        {"evidence": {"anchors": {"1:0": [0, "x"]}}},
        {"evidence": {"begin": {"1:0": "x"}}},
        {"evidence": {"eroded": 1}},
        {"offsets": {"1:0": -1}},
    ],
    ids=str,
)
def test_a_broken_boundary_is_reported(book: MemoryBook, change: Document) -> None:
    key = f"20261121T010000Z-{SCOPE.scope_hash}"
    book.fixed[key] = book.fixed[key] | change
    with pytest.raises(DocumentError, match=key):
        fix(book, 2)


@pytest.mark.parametrize("change", [None, {"v": 2}, {"instant": "yesterday"}], ids=str)
def test_a_broken_turn_is_reported(book: MemoryBook, change: Document | None) -> None:
    turn = book.fixed[f"turn-1-{SCOPE.scope_hash}"]
    turn["boundary"] = change and turn["boundary"] | change
    with pytest.raises(DocumentError, match="boundary turn-1-"):
        fix(book, 2)


def test_a_name_of_no_instant_is_reported(book: MemoryBook) -> None:
    book.fixed[f"before-{SCOPE.scope_hash}"] = {}
    with pytest.raises(DocumentError, match="it is of no instant"):
        fix(book, 2)
