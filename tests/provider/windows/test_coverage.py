"""Coverage by published windows: the report an operator reads after a backfill."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.provider.windows.world import TOPIC
from tubemq_client.errors import ConfigError
from tubemq_provider.windows.coverage import (
    IntervalSet,
    calendar,
    coverage,
    interval_set_of,
    report,
)
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.protocols import IngestCounts, Marker

MIDNIGHT = datetime(2026, 11, 21, tzinfo=UTC)
HOUR = timedelta(hours=1)
SCOPE = WindowScope("prod", TOPIC, "lake", "parquet:/lake")


def marker(plan: WindowPlan) -> Marker:
    return Marker(plan, IngestCounts(dict.fromkeys(plan.ranges, 0)), plan.window_id)


def hourly(start: float, low: int, high: int, *, hours: float = 1) -> Marker:
    begin = MIDNIGHT + start * HOUR
    return marker(WindowPlan.for_time(SCOPE, begin, begin + hours * HOUR, {"1:0": (low, high)}))


def test_a_whole_backfill_is_complete_in_any_order() -> None:
    (found,) = coverage([hourly(2, 56, 84), hourly(0, 0, 56), hourly(1, 56, 56)])
    assert found.complete
    assert found.windows == 3
    assert found.intervals.done == ((MIDNIGHT, MIDNIGHT + 3 * HOUR),)
    assert found.offsets["1:0"] == IntervalSet(((0, 84),))


def test_missing_and_overlapping_intervals_and_offsets_are_named() -> None:
    (found,) = coverage([hourly(0, 0, 56), hourly(3, 112, 140), hourly(3.5, 112, 168)])
    assert not found.complete
    assert found.intervals.missing == ((MIDNIGHT + HOUR, MIDNIGHT + 3 * HOUR),)
    assert found.intervals.overlapping == ((MIDNIGHT + 3.5 * HOUR, MIDNIGHT + 4 * HOUR),)
    assert found.offsets["1:0"].missing == ((56, 112),)
    assert found.offsets["1:0"].overlapping == ((112, 140),)


def test_a_span_shows_what_is_missing_up_to_its_ends() -> None:
    start, end = MIDNIGHT, MIDNIGHT + 4 * HOUR
    (found,) = coverage([hourly(-1, 0, 28), hourly(1, 28, 56)], start=start, end=end)
    assert found.intervals.missing == (
        (start, MIDNIGHT + HOUR),
        (MIDNIGHT + 2 * HOUR, end),
    )
    with pytest.raises(ConfigError, match="not before"):
        coverage([], start=end, end=start)


def test_cursor_windows_are_covered_by_offsets_and_what_was_lost_is_told() -> None:
    windows = [
        marker(WindowPlan.cursor(SCOPE, 1, {"1:0": (0, 56), "1:10": (0, 28)})),
        marker(
            WindowPlan.cursor(
                SCOPE, 2, {"1:0": (56, 112), "1:10": (28, 28)}, gaps={"1:0": ((56, 84),)}
            )
        ),
    ]
    (found,) = coverage(windows)
    assert found.intervals == IntervalSet()
    assert list(found.offsets) == ["1:0", "1:10"]
    assert found.lost == {"1:0": [[56, 84]]}
    assert not found.complete
    assert "1:0 lost to retention [56, 84)" in report(found)


def moved(position: int) -> dict[str, Any]:
    return {"resets": {"1:0": position}}


def test_a_reset_is_neither_a_hole_nor_an_overlap() -> None:
    windows = [
        marker(WindowPlan.cursor(SCOPE, 1, {"1:0": (0, 280), "1:1": (0, 28)})),
        marker(WindowPlan.cursor(SCOPE, 3, {"1:0": (56, 84), "1:1": (28, 56)})),
        marker(WindowPlan.cursor(SCOPE, 2, {"1:0": (0, 56), "1:1": (28, 28)}, **moved(280))),
        marker(WindowPlan.cursor(SCOPE, 4, {"1:0": (560, 588), "1:1": (56, 56)}, **moved(84))),
    ]
    (found,) = coverage(windows)
    assert found.complete
    assert found.offsets["1:0"] == IntervalSet(((0, 280), (0, 84), (560, 588)))
    assert found.resets == {"1:0": [[280, 0], [84, 560]]}
    assert "  1:0 reset from 280 to 0" in report(found)
    assert json.loads(json.dumps(found.to_document()))["resets"] == {"1:0": [[280, 0], [84, 560]]}
    hole = marker(WindowPlan.cursor(SCOPE, 5, {"1:0": (616, 644), "1:1": (28, 56)}))
    (found,) = coverage([*windows, hole])
    assert found.offsets["1:0"].missing == ((588, 616),)
    assert found.offsets["1:1"].overlapping == ((28, 56),)


def test_epochs_are_lives_of_their_own() -> None:
    second = replace(SCOPE, epoch="life-2")
    ranges = {"1:0": (0, 28)}
    found = coverage([marker(WindowPlan.cursor(scope, 1, ranges)) for scope in (SCOPE, second)])
    assert all(item.complete for item in found)
    assert {item.epoch for item in found} == {"", "life-2"}
    assert any(", epoch life-2 (" in report(item) for item in found)


def test_scopes_are_not_mixed() -> None:
    other = WindowScope("prod", TOPIC, "other", "parquet:/lake")
    ranges = {"1:0": (0, 28)}
    found = coverage([marker(WindowPlan.cursor(scope, 1, ranges)) for scope in (SCOPE, other)])
    assert {item.group for item in found} == {"lake", "other"}
    assert all(item.complete for item in found)
    assert coverage([]) == []


def test_the_report_reads_well_and_is_plain_json() -> None:
    (found,) = coverage([hourly(20, 0, 28), hourly(22, 56, 84, hours=3)])
    assert report(found).splitlines() == [
        f"prod/{TOPIC}, group lake ({SCOPE.scope_hash}): 2 windows, NOT complete",
        "  done 2026-11-21T20:00:00Z to 2026-11-21T21:00:00Z",
        "  done 2026-11-21T22:00:00Z to 2026-11-22T01:00:00Z",
        "  missing 2026-11-21T21:00:00Z to 2026-11-21T22:00:00Z",
        "  1:0 done [0, 28)",
        "  1:0 done [56, 84)",
        "  1:0 missing [28, 56)",
        "           0     6     12    18",
        "2026-11-21                     #.##",
        "2026-11-22 #",
    ]
    document = json.loads(json.dumps(found.to_document()))
    assert document["intervals"]["missing"] == [["2026-11-21T21:00:00Z", "2026-11-21T22:00:00Z"]]
    assert document["offsets"]["1:0"]["missing"] == [[28, 56]]


def test_the_calendar_marks_halves_and_doubles() -> None:
    claimed = [(0.0, 0.5), (2.0, 3.0), (2.5, 4.0)]
    pieces = interval_set_of(
        (MIDNIGHT + low * HOUR, MIDNIGHT + high * HOUR) for low, high in claimed
    )
    assert calendar(pieces).splitlines()[1] == "2026-11-21 +.!#"
    assert calendar(IntervalSet()) == ""
    with pytest.raises(ConfigError, match="too many"):
        calendar(IntervalSet(((MIDNIGHT, MIDNIGHT + timedelta(days=9_000)),)))


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 10)), max_size=12),
    st.integers(0, 20),
    st.integers(21, 50),
)
def test_every_point_is_done_or_missing_as_counted_one_by_one(
    claims: list[tuple[int, int]], start: int, end: int
) -> None:
    claimed = [(low, low + length) for low, length in claims]
    pieces = interval_set_of(claimed, start, end)
    for point in range(start, end):
        count = sum(low <= point < high for low, high in claimed)
        found = [
            any(low <= point < high for low, high in part)
            for part in (pieces.done, pieces.missing, pieces.overlapping)
        ]
        assert found == [count > 0, count == 0, count > 1]
