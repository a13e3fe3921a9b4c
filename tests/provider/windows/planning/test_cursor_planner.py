"""Size of a cursor window: limits over shared stores, for any backlog."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.provider.windows.world import ENTRY, MemoryBook, World
from tubemq_client.errors import DataLoss
from tubemq_client.model import Partition, PartitionEnds
from tubemq_provider.windows.cursor import Position
from tubemq_provider.windows.plan import WindowScope
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.planning.standalone_planner import TimePlanner

KEYS = ["1:0", "1:1", "1:10000", "2:0"]
backlogs = st.lists(st.tuples(st.sampled_from(KEYS), st.integers(1, 40)), min_size=1, max_size=12)


@given(backlogs, st.integers(1, 60))
def test_capped_windows_tile_the_backlog_and_keep_the_cap(
    backlog: list[tuple[str, int]], cap: int
) -> None:
    world = World()
    for key, count in backlog:
        world.log.append(key, count)
    total = sum(count for _, count in backlog)
    position = world.planner().initial()
    records = 0
    for _ in range(total + 1):
        plan = world.planner(max_records=cap).plan(position)
        if plan is None:
            break
        assert plan.continues(position.next)
        found = len(list(world.log.records(plan)))
        assert found <= cap
        assert plan.has_more == (records + found < total)
        records += found
        position = Position(position.seq + 1, plan.ends)
    assert records == total
    assert world.planner(max_records=cap).plan(position) is None


def test_a_cap_below_the_number_of_stores_starves_nobody() -> None:
    world = World()
    for key in ("1:0", "1:10000", "2:0"):
        world.log.append(key, 10)
    position = world.planner().initial()
    for _ in range(3):
        plan = world.planner(max_records=1).plan(position)
        assert plan is not None
        position = Position(position.seq + 1, plan.ends)
    assert {key: position.next[key] for key in ("1:0", "1:10000", "2:0")} == dict.fromkeys(
        ("1:0", "1:10000", "2:0"), ENTRY
    )


def test_a_cap_does_not_move_a_partition_backwards() -> None:
    world = World()
    world.log.append("1:0", 10)
    ahead = Position(3, {"1:0": 0, "1:1": 8 * ENTRY, "2:0": 0})
    plan = world.planner(max_records=2).plan(ahead)
    assert plan is not None
    assert plan.ranges["1:0"] == (0, 2 * ENTRY)
    assert plan.ranges["1:1"] == (8 * ENTRY, 8 * ENTRY)


class DeadEntries:
    """A witness of a store that lists entries from 0 and has their data from `data` on."""

    def __init__(self, data: int) -> None:
        self.data = data

    def first_record(self, range_: Any) -> None:
        return None

    def holds(self, partition: Any, anchor: Any, upto: int) -> None:
        return None

    def readable_from(self, range_: Any) -> int:
        return min(max(range_.start, self.data), range_.end)


def planner_of_two(data: int) -> CursorPlanner:
    places = [Partition(1, "orders", number) for number in (0, 1)]
    return CursorPlanner(
        WindowScope("c1", "orders", "g1", "lake"),
        lambda: {place: PartitionEnds(place, 0, 28 * 100, stable=True) for place in places},
        initial_position="earliest",
        witness=DeadEntries(data),  # type: ignore[arg-type] (takes no anchor)
    )


def test_a_partition_that_joins_a_known_store_misses_nothing_of_what_was_removed_before() -> None:
    plan = planner_of_two(28 * 30).plan(Position(3, {"1:0": 28 * 60}))
    assert plan is not None
    assert plan.ranges == {"1:0": (28 * 60, 28 * 100), "1:1": (28 * 30, 28 * 100)}
    assert (plan.joined, plan.gaps) == (("1:1",), {})


def test_a_partition_that_joins_may_have_lost_what_came_after_the_position() -> None:
    with pytest.raises(DataLoss, match=r"1:1: offsets \[0, 1960\)"):
        planner_of_two(28 * 70).plan(Position(3, {"1:0": 28 * 60}))


def test_a_window_of_time_too_begins_a_joining_partition_behind_what_was_removed() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    places = [Partition(1, "orders", number) for number in (0, 1)]

    class Fixed:
        name, exact = "fixed", False

        def offsets_at(self, instant: datetime) -> dict[str, int]:
            later = {"1:0": 28 * 90, "1:1": 28 * 90}
            return {"1:0": 28 * 60} if instant == noon else later

    planner = TimePlanner(
        WindowScope("c1", "orders", "g1", "lake"),
        noon,
        noon + timedelta(hours=1),
        Fixed(),
        lambda: {place: PartitionEnds(place, 0, 28 * 100, stable=True) for place in places},
        MemoryBook(),
        witness=DeadEntries(28 * 30),  # type: ignore[arg-type] (takes no anchor)
    )
    plan = planner.plan()
    assert plan.ranges == {"1:0": (28 * 60, 28 * 90), "1:1": (28 * 30, 28 * 90)}
    assert (plan.joined, plan.gaps) == (("1:1",), {})
