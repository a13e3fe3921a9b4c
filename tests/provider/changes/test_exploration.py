"""Kills of routed windows between and inside all tables, and planted mistakes that they find."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.provider.changes.exploration import (
    ForgetsRoutes,
    Lake,
    PublishesTwice,
    SkipsATable,
    change_a_route,
    explore,
)
from tubemq_provider.sinks.routed import RoutedSink
from tubemq_provider.windows.errors import CountMismatch

FEW = ("files", "objects", "rows")


def test_no_kill_loses_or_doubles_a_record_in_five_kinds_of_tables(tmp_path: Path) -> None:
    points, kills = explore(Lake(tmp_path), stride=45)
    assert points >= 100
    assert kills >= 3


@pytest.mark.parametrize(
    ("mistake", "word"), [(SkipsATable, "lost, 0 doubled"), (PublishesTwice, "0 lost")]
)
def test_kills_find_a_table_that_is_skipped_or_published_twice(
    tmp_path: Path, mistake: type[RoutedSink], word: str
) -> None:
    with pytest.raises(AssertionError, match=word):
        explore(Lake(tmp_path, mistake, FEW), stride=7)


def test_a_stream_that_moves_to_another_table_between_two_tries_is_seen(tmp_path: Path) -> None:
    for name in ("right", "wrong"):
        (tmp_path / name).mkdir()
    with pytest.raises(CountMismatch, match="a route was changed between two tries"):
        change_a_route(Lake(tmp_path / "right", RoutedSink, FEW))
    assert "0 lost" in change_a_route(Lake(tmp_path / "wrong", ForgetsRoutes, FEW))[-1]
