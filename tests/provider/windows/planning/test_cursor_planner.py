"""How much a cursor window takes: caps over shared stores, for any backlog."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.provider.windows.world import ENTRY, World
from tubemq_provider.windows.cursor import Position

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
