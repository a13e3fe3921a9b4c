"""Frozen plans stay frozen, and one group in one sink is one history.

Each test is a way in which a window was planned twice, or stored beside itself, in a green run; and
where the answer is a refusal, the way out that its message names is taken to the end.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.provider.windows.planning.test_claims import MemoryClaims
from tests.provider.windows.world import (
    ENTRY,
    TOPIC,
    MemoryBook,
    MemorySink,
    World,
    keeping_boundaries,
    memory_world,
)
from tubemq_client.errors import DataLoss
from tubemq_client.model import GapPolicy
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.windows.errors import (
    MarkerConflict,
    OtherScopeFound,
    SinkHistoryLost,
)
from tubemq_provider.windows.planning.retention import lost_starts
from tubemq_provider.windows.planning.standalone_planner import (
    ExplicitPlanner,
    StandalonePlanner,
    TimePlanner,
)
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.run.result import WindowResult
from tubemq_provider.windows.run.steps import WindowRun
from tubemq_provider.windows.time_resolvers.boundaries import Boundaries

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
KEYS = ("1:0", "1:1", "2:0")


world = memory_world(dict.fromkeys(KEYS, 4), sink=keeping_boundaries)


def kill_before_reading(run: WindowRun) -> None:
    for point in run.steps():
        if point == ("ingest", "staging ready"):
            return


def alone(
    world: World, planner: StandalonePlanner, task: str = "t", *, cleared: bool = False
) -> WindowResult:
    store = MemoryOffsetStore(world.journal, task=task)
    run = window_run(planner, store, world.sink, world.engine, attempt=task, cleared=cleared)
    return run.run()


def explicit(world: World, first: int, last: int, **policies: str) -> ExplicitPlanner:
    start, end = (dict.fromkeys(KEYS, n * ENTRY) for n in (first, last))
    return ExplicitPlanner(world.scope, start, end, world.log.ends, Policies.of(**policies))


def hour(world: World, first: int, last: int, **policies: str) -> TimePlanner:
    instants = {
        (NOON + timedelta(hours=n)).isoformat(): {TOPIC: dict.fromkeys(KEYS, n * ENTRY)}
        for n in (first, last)
    }
    return TimePlanner(
        world.scope,
        NOON + timedelta(hours=first),
        NOON + timedelta(hours=last),
        Boundaries(instants, TOPIC),
        world.log.ends,
        world.sink.boundaries,
        Policies.of(**policies),
    )


class StrictWorld(World):
    """Its engine refuses what retention has taken, as the range reader does."""

    def __post_init__(self) -> None:
        super().__post_init__()
        inner = self.engine.ingest

        def ingest(plan: Any, *others: Any) -> Any:
            ends = {partition.key: found for partition, found in self.log.ends().items()}
            lost_starts(TOPIC, plan.ranges, ends, GapPolicy.FAIL)
            return inner(plan, *others)

        self.engine.ingest = ingest  # type: ignore[method-assign]


@pytest.mark.parametrize("task", ["first", "another"])
def test_the_first_plan_of_a_group_is_frozen_like_any_other(task: str) -> None:
    world = StrictWorld()
    world.log.append("1:0", 100)
    kill_before_reading(world.run(task="first"))
    world.log.lost[(1, 0)] = 50
    with pytest.raises(DataLoss):
        world.run(task=task).run()
    assert world.sink.windows == {}


def test_the_first_plan_holds_whatever_initial_position_says_by_then(world: World) -> None:
    kill_before_reading(world.run(task="first"))
    world.log.append("1:0", 5)
    assert world.run(initial_position="latest").run().total == 12
    assert world.run().run().total == 5


def test_corrected_offsets_are_read_though_the_task_has_a_window(world: World) -> None:
    first = alone(world, explicit(world, 0, 1))
    corrected = alone(world, explicit(world, 1, 4), cleared=True)
    assert not corrected.replayed
    assert corrected.ranges == dict.fromkeys(KEYS, (ENTRY, 4 * ENTRY))
    assert corrected.window_id != first.window_id
    again = alone(world, explicit(world, 1, 4), cleared=True)
    assert again.replayed


def test_words_of_explicit_offsets_keep_their_meaning_when_a_task_is_cleared(world: World) -> None:
    ends = dict.fromkeys(KEYS, "latest")
    planner = ExplicitPlanner(world.scope, dict.fromkeys(KEYS, 0), ends, world.log.ends)
    first = alone(world, planner)
    world.log.append("1:0", 5)
    again = alone(world, replace(planner), cleared=True)
    assert again.replayed
    assert again.window_id == first.window_id


def test_a_plan_whose_partition_was_taken_away_goes_on_without_it(world: World) -> None:
    world.run().run()
    for key in KEYS:
        world.log.append(key, 2)
    kill_before_reading(world.run(task="b"))
    world.log.partitions.remove("2:0")
    assert world.run(task="b").run().total == 4
    world.log.partitions.append("2:0")  # it has kept its place
    assert world.run().run().records["2:0"] == 2
    assert world.sink.records() == dict.fromkeys(world.log.all_records(), 1)


def test_a_cursor_is_not_stored_again_by_windows_of_time_or_offsets(world: World) -> None:
    world.run(initial_position={TOPIC: dict.fromkeys(KEYS, 2 * ENTRY)}).run()
    for planner in (hour(world, 1, 3), hour(world, 3, 4), explicit(world, 2, 4)):
        with pytest.raises(OtherScopeFound, match="One group in one sink is one history"):
            alone(world, planner, task=str(planner.window_id))
    older = alone(world, hour(world, 0, 2), task="older")  # what the cursor has not, and never will
    assert older.window_id
    assert alone(world, explicit(world, 2, 3, on_other_scope="start_anew"), task="x").window_id


def test_what_was_planned_before_others_began_is_not_stored_beside_them(world: World) -> None:
    """Each was planned while the sink was empty; the run that publishes second is refused."""
    planned = [explicit(world, 0, 4), hour(world, 0, 2), explicit(world, 1, 3)]
    for number, planner in enumerate(planned):
        store = MemoryOffsetStore(world.journal, task=str(number))
        kill_before_reading(
            window_run(planner, store, world.sink, world.engine, attempt="killed")  # its plan stays
        )
    world.run().run()
    for number, planner in enumerate(planned):
        with pytest.raises(OtherScopeFound, match="One group in one sink is one history"):
            alone(world, planner, task=str(number))
    assert world.sink.records() == dict.fromkeys(world.log.all_records(), 1)


@pytest.mark.parametrize("other", ["windows of time", "another group"])
@pytest.mark.parametrize("claims", [False, True])
def test_a_cursor_planned_before_others_began_is_not_stored_beside_them(
    world: World, other: str, claims: bool
) -> None:
    def run() -> WindowRun:
        store = MemoryOffsetStore(world.journal, task="c")
        if claims:
            store = MemoryClaims(world.journal, task="c", dead=set())
        return window_run(world.planner(), store, world.sink, world.engine, attempt="c")

    first = run()
    steps = first.steps()
    assert next(point for point in steps if point == ("ingest", "ingested"))
    if other == "another group":
        beside = World(log=world.log, sink=world.sink)
        beside.scope = replace(world.scope, group="renamed")
        beside.run().run()
    else:
        alone(world, hour(world, 0, 2))
    with pytest.raises(OtherScopeFound):
        list(steps)
    with pytest.raises(OtherScopeFound):
        run().run()
    assert max(world.sink.records().values()) == 1


def test_of_two_groups_that_were_planned_at_once_one_is_stored(world: World) -> None:
    kill_before_reading(
        window_run(
            hour(world, 0, 2),
            MemoryOffsetStore(world.journal, task="t"),
            world.sink,
            world.engine,
            attempt="killed",
        )
    )
    beside = World(log=world.log, sink=MemorySink(boundary_book=MemoryBook()))
    beside.sink = world.sink
    beside.scope = replace(world.scope, group="renamed")
    beside.engine = world.engine
    alone(beside, hour(beside, 0, 2))
    with pytest.raises(OtherScopeFound, match="group 'renamed'"):
        alone(world, hour(world, 0, 2))


def test_windows_of_explicit_offsets_are_not_stored_over_others(world: World) -> None:
    alone(world, hour(world, 0, 1), task="t")
    alone(world, explicit(world, 2, 3), task="x")
    over = (explicit(world, 0, 4), explicit(world, 0, 1), explicit(world, 1, 3), hour(world, 1, 3))
    for planner in over:
        with pytest.raises(OtherScopeFound, match="Give offsets that no window has") as caught:
            alone(world, planner, task=str(planner.window_id))
    assert f"[{2 * ENTRY}, {3 * ENTRY}]" in str(caught.value)
    alone(world, explicit(world, 1, 2), task="a")  # as the message says
    alone(world, explicit(world, 3, 4), task="b")
    assert max(world.sink.records().values()) == 1
    assert alone(world, explicit(world, 0, 4, on_other_scope="start_anew"), task="c").total


def test_a_cursor_does_not_begin_over_windows_of_time(world: World) -> None:
    alone(world, hour(world, 0, 2))
    with pytest.raises(OtherScopeFound, match="let the cursor begin where those windows end"):
        world.run().run()
    begin = {TOPIC: dict.fromkeys(KEYS, 2 * ENTRY)}
    world.run(initial_position=begin, policies={"on_other_scope": "start_anew"}).run()
    assert world.sink.records() == dict.fromkeys(world.log.all_records(), 1)


def test_a_renamed_group_is_refused_and_told_its_name(world: World) -> None:
    world.run().run()
    other = World(log=world.log, sink=world.sink)
    other.scope = replace(world.scope, group="renamed")
    with pytest.raises(OtherScopeFound, match="name it group='g1' as before"):
        other.run().run()
    other.scope = world.scope  # as the message says
    assert other.run().run().empty
    assert world.sink.records() == dict.fromkeys(world.log.all_records(), 1)


class Appending(MemorySink):
    """Knows nothing of what it has."""

    exactly_once = False

    def marker(self, window_id: str) -> None:
        return None

    def window_ids(self) -> list[str]:
        return []


@pytest.mark.parametrize("kind", [explicit, hour])
def test_a_cleared_window_is_not_appended_again(kind: Any) -> None:
    world = World(sink=Appending(boundary_book=MemoryBook()))
    for key in KEYS:
        world.log.append(key, 2)
    assert alone(world, kind(world, 0, 2)).total == 4
    with pytest.raises(SinkHistoryLost, match="start a new run for the same interval"):
        alone(world, kind(world, 0, 2), cleared=True)


def test_a_window_beyond_a_position_set_by_hand_is_followed_from_its_beginning(
    world: World,
) -> None:
    """The advice was the end of that window: the same error for ever."""
    world.run().run()
    before = json.loads(world.journal.cursor or "")
    world.log.append("1:0", 2)
    world.run().run()
    cursor = {**before, "next": {**before["next"], "1:0": 0}}
    world.journal.cursor = json.dumps(cursor)
    world.journal.events.pop()
    with pytest.raises(MarkerConflict) as caught:
        world.run().run()
    given = re.search(r"--offsets '(\{.*\})'", str(caught.value))
    assert given
    world.journal.cursor = json.dumps({**cursor, "next": json.loads(given[1])})
    world.log.append("1:0", 1)
    assert world.run().run().total == 1
    assert world.sink.records() == dict.fromkeys(world.log.all_records(), 1)


def test_a_position_set_by_hand_while_a_window_is_published_is_not_overwritten(
    world: World,
) -> None:
    world.run().run()
    world.log.append("1:0", 2)
    publish = world.sink.publish

    def meanwhile(*given: Any) -> Any:
        cursor = json.loads(world.journal.cursor or "")
        cursor["next"]["1:0"] = 0
        world.journal.cursor = json.dumps(cursor)
        return publish(*given)

    run = world.run()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.sink, "publish", meanwhile)
        run.run()
    assert json.loads(world.journal.cursor or "")["next"]["1:0"] == 0
    with pytest.raises(MarkerConflict, match="set the offsets again"):
        world.run().run()


def test_a_window_from_before_a_partition_that_the_position_has_is_left_behind(
    world: World,
) -> None:
    """A run died behind its window, a partition came, an operator set all of them: the advice was
    refused, as every partition of the group has to be named."""
    world.run().run()
    before, position = world.journal.cursor or "", json.loads(world.journal.cursor or "")["next"]
    world.log.append("1:0", 2)
    world.run().run()  # died before its success
    world.journal.events.pop()
    world.log.append("1:2", 1)
    wanted = {**position, "1:0": 0, "1:2": 0}
    world.journal.cursor = json.dumps({**json.loads(before), "next": wanted})
    with pytest.raises(MarkerConflict) as caught:
        world.run().run()
    assert "offsets set" not in str(caught.value)
    given = re.search(r"offsets epoch c1/orders/g1 <name> --begin '(\{.*\})'", str(caught.value))
    assert given
    assert json.loads(given[1]) == wanted
    order = {"v": 1, "epoch": "2", "past": [""], "seq": 0, "begin": wanted, "rev": 9}
    world.journal.cursor = json.dumps(order)  # what the command leaves
    world.begin("2")
    assert world.run().run().records["1:2"] == 1
    there = world.sink.records()
    assert there.keys() == set(world.log.all_records())
    assert {record for record, count in there.items() if count > 1} == {
        record for record in there if record[0] == "1:0"
    }


@pytest.mark.parametrize("claims", [False, True])
def test_a_group_whose_progress_is_lost_goes_on_behind_what_is_left_of_its_windows(
    world: World, claims: bool
) -> None:
    """A new Airflow over a lake whose old windows were removed: no cursor, no event, no window 1.
    The advice was a command that wants a cursor or an event."""
    for _ in range(3):
        world.log.append("1:0", 2)
        world.run().run()
    del world.sink.windows[world.id(1)]
    before = world.sink.records()
    world.journal = MemoryJournal()

    def run() -> WindowResult:
        kind = MemoryClaims if claims else MemoryOffsetStore
        options = {"dead": set()} if claims else {}
        store = kind(world.journal, task="t", **options)
        return window_run(world.planner(), store, world.sink, world.engine, attempt="t").run()

    with pytest.raises(SinkHistoryLost) as caught:
        run()
    given = re.search(r"offsets epoch c1/orders/g1 <name> --begin '(\{.*\})'", str(caught.value))
    assert given
    order = {"v": 1, "epoch": "2", "past": [""], "seq": 0, "begin": json.loads(given[1]), "rev": 1}
    world.journal.cursor = json.dumps(order)  # what the command leaves
    world.begin("2")
    world.log.append("1:0", 1)
    assert run().total == 1
    assert max((world.sink.records() - before).values()) == 1
    assert max(world.sink.records().values()) == 1
