"""Read-ahead on a thread during writes: order, bound, errors, early ends."""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tubemq_provider.spark import read_ahead
from tubemq_provider.spark.read_ahead import ReadAhead

PATIENCE_S: Final = 60
"""Seconds that a test waits for an event; it comes at once unless something is broken."""


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for the thread however busy the machine is."""
    monkeypatch.setattr(read_ahead, "STOP_S", PATIENCE_S)


class Source:
    """Source of numbers from 0 with their sizes; counts them, and records its close."""

    def __init__(self, sizes: list[int], error: BaseException | None = None) -> None:
        self.made = 0
        self.closed_by: str | None = None
        self._sizes = sizes
        self._error = error

    def items(self) -> Generator[tuple[int, int], None, None]:
        try:
            for number, size in enumerate(self._sizes):
                self.made += size
                yield number, size
            if self._error is not None:
                raise self._error
        finally:
            self.closed_by = threading.current_thread().name

    def ahead(self, limit: int) -> ReadAhead[int]:
        return ReadAhead(self.items(), limit)


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 100))
def test_items_come_whole_and_in_order_and_no_more_wait_than_the_limit(
    sizes: list[int], limit: int
) -> None:
    source, taken, found = Source(sizes), 0, []
    with source.ahead(limit) as ahead:
        for number in ahead:
            found.append(number)
            taken += sizes[number]
            # The buffered items, and one that waits for room.
            assert source.made - taken <= max(limit, *sizes) + max(sizes)
    assert found == list(range(len(sizes)))


def test_items_are_made_while_the_one_before_is_in_use() -> None:
    third = threading.Event()

    def items() -> Generator[tuple[int, int], None, None]:
        yield 1, 10
        yield 2, 10
        third.set()
        yield 3, 10

    with ReadAhead(items(), 100) as ahead:
        for number in ahead:
            if number == 1:
                assert third.wait(PATIENCE_S)


def test_an_item_above_the_limit_passes() -> None:
    with Source([500, 500, 500]).ahead(100) as ahead:
        assert list(ahead) == [0, 1, 2]


def test_an_error_comes_after_the_items_before_it() -> None:
    source, found = Source([1, 1], ValueError("the broker said no")), list[int]()
    with source.ahead(100) as ahead, pytest.raises(ValueError, match="the broker said no"):
        found.extend(ahead)
    assert found == [0, 1]


def _leave_at_once(source: Source) -> None:
    with source.ahead(30) as ahead:
        for _ in ahead:
            raise OSError("disk full")


@pytest.mark.usefixtures("patience")
def test_leaving_early_closes_the_source_on_its_own_thread() -> None:
    source = Source([10] * 1000)
    with pytest.raises(OSError, match="disk full"):
        _leave_at_once(source)
    assert source.closed_by == "tubemq-ahead"
    assert source.made < 1000


@pytest.mark.usefixtures("patience")
def test_leaving_without_taking_anything_ends_the_thread() -> None:
    source = Source([10] * 1000)
    with source.ahead(30):
        pass
    assert source.made <= 50
    assert all(thread.name != "tubemq-ahead" for thread in threading.enumerate())
