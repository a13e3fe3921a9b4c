"""New scopes that continue another one, and new scopes that are independent."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.provider.windows.planning.test_claims import MemoryClaims
from tests.provider.windows.world import (
    ENTRY,
    TOPIC,
    World,
    keeping_boundaries,
    memory_world,
)
from tubemq_provider.offsets.memory import MemoryOffsetStore
from tubemq_provider.windows.errors import OtherScopeFound, SinkHistoryLost
from tubemq_provider.windows.planning.standalone_planner import (
    ExplicitPlanner,
    StandalonePlanner,
    TimePlanner,
)
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.run.result import WindowResult
from tubemq_provider.windows.time_resolvers.boundaries import Boundaries

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
MAPPING = {
    (NOON + n * HOUR).isoformat(): {TOPIC: dict.fromkeys(("1:0", "1:1", "2:0"), n * ENTRY)}
    for n in range(4)
}


world = memory_world({"1:0": 3, "1:1": 3, "2:0": 3}, sink=keeping_boundaries)


def beside(world: World, **changes: object) -> World:
    """Return the same topic and sink for a group with other settings and no progress."""
    other = World(log=world.log, sink=world.sink)
    other.scope = replace(world.scope, **changes)  # type: ignore[arg-type]
    return other


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"cluster": "renamed"}, "set cluster='c1'"),
        ({"filters": ("a",)}, "another group, or another sink"),
        ({"group": "g2"}, "name it group='g1' as before"),
        ({"cluster": "renamed", "filters": ("a",)}, r"filters \[\] \(this run: \['a'\]\)"),
    ],
)
def test_what_may_have_the_same_records_is_refused(
    world: World, changes: dict[str, object], hint: str
) -> None:
    world.run().run()
    with pytest.raises(OtherScopeFound, match=hint) as refused:
        beside(world, **changes).run().run()
    assert refused.value.fatal
    assert refused.value.found.scope_hash == world.scope.scope_hash


def test_another_life_of_the_topic_begins_as_ever(world: World) -> None:
    world.run().run()
    assert beside(world, epoch="2").run().run().total == 9


@pytest.mark.parametrize(
    ("changes", "hint"),
    [({"cluster": "renamed"}, "set cluster='c1'"), ({"group": "g2"}, "name it group='g1'")],
)
@pytest.mark.parametrize(("stored", "asked"), [("2", ""), ("", "2"), ("2", "3")])
def test_an_epoch_is_another_life_of_its_own_group_only(
    world: World, stored: str, asked: str, changes: dict[str, object], hint: str
) -> None:
    """A group that was moved here by `offsets epoch … --begin`, and whose connection is renamed, is
    without progress and epoch: it does not store the topic again."""
    world.begin(stored)
    world.run().run()
    with pytest.raises(OtherScopeFound, match=hint) as refused:
        beside(world, epoch=asked, **changes).run().run()
    assert f"epoch {stored!r} (this run: {asked!r})" in str(refused.value)
    assert max(world.sink.records().values()) == 1


def test_who_began_anew_beside_another_group_follows_its_topic_into_its_next_life(
    world: World,
) -> None:
    world.run().run()
    anew = {"on_other_scope": "start_anew"}
    other = beside(world, cluster="renamed")
    assert other.run(policies=anew).run().total == 9
    assert beside(other, epoch="2").run().run().total == 9
    # What asked about its own windows of time still does.
    alone(other, time_planner(beside(other, epoch="3"), 0, on_other_scope="start_anew"))
    with pytest.raises(OtherScopeFound, match="not of its cursor"):
        beside(other, epoch="3").run().run()


def test_filters_with_nothing_in_common_share_a_sink(world: World) -> None:
    first = beside(world, filters=("a", "b"))
    first.run().run()
    assert beside(world, filters=("c",)).run().run().window_id
    with pytest.raises(OtherScopeFound, match="filters"):
        beside(world, filters=("b", "d")).run().run()


def test_whatever_the_initial_position_is_it_is_asked_first(world: World) -> None:
    world.run().run()
    for initial in (None, "stable", {TOPIC: dict.fromkeys(("1:0", "1:1", "2:0"), 0)}):
        with pytest.raises(OtherScopeFound):
            beside(world, cluster="renamed").run(initial_position=initial).run()


def test_progress_of_its_own_ends_the_question(world: World) -> None:
    world.run().run()
    other = beside(world, cluster="renamed")
    other.run(policies={"on_other_scope": "start_anew"}, initial_position="stable").run()
    # That run was empty: its event alone says that the scope has begun.
    assert other.journal.cursor is None
    assert json.loads(other.journal.events[-1])["position"]["seq"] == 0
    other.log.append("1:0", 2)
    assert other.run().run().total == 2


def test_runs_with_claims_ask_too(world: World) -> None:
    world.run().run()
    other = beside(world, cluster="renamed")
    store = MemoryClaims(other.journal, task="t", dead=set())
    with pytest.raises(OtherScopeFound):
        window_run(other.planner(), store, other.sink, other.engine, attempt="1").run()
    assert other.journal.cursor is None


def time_planner(world: World, number: int, **policies: str) -> TimePlanner:
    return TimePlanner(
        world.scope,
        NOON + number * HOUR,
        NOON + (number + 1) * HOUR,
        Boundaries(MAPPING, TOPIC),
        world.log.ends,
        world.sink.boundaries,
        Policies.of(**policies),
    )


def alone(world: World, planner: StandalonePlanner) -> WindowResult:
    store = MemoryOffsetStore(world.journal, task="t")
    return window_run(planner, store, world.sink, world.engine, attempt="1").run()


def test_time_windows_of_a_renamed_cluster_are_refused_until_it_has_begun(world: World) -> None:
    alone(world, time_planner(world, 0))
    other = beside(world, cluster="renamed")
    for _ in range(2):
        with pytest.raises(OtherScopeFound):
            alone(other, time_planner(other, 0))
    assert alone(other, time_planner(other, 1, on_other_scope="start_anew")).window_id
    # The neighbour shares a boundary, the window further away finds the first one's id.
    for number in (0, 2):
        assert alone(beside(other), time_planner(other, number)).window_id


def test_explicit_windows_are_asked_and_found(world: World) -> None:
    def planner(of: World, first: int, last: int, **policies: str) -> ExplicitPlanner:
        start, end = (dict.fromkeys(("1:0", "1:1", "2:0"), n * ENTRY) for n in (first, last))
        return ExplicitPlanner(of.scope, start, end, of.log.ends, Policies.of(**policies))

    alone(world, planner(world, 0, 1))
    other = beside(world, cluster="renamed")
    with pytest.raises(OtherScopeFound, match="x-"):
        alone(other, planner(other, 0, 1))
    with pytest.raises(OtherScopeFound, match="x-"):
        other.run().run()
    alone(other, planner(other, 0, 1, on_other_scope="start_anew"))
    assert alone(beside(other), planner(other, 1, 2)).window_id


def test_a_hole_in_its_own_windows_is_told_first(world: World) -> None:
    for _ in range(2):
        world.run().run()
        world.log.append("1:0")
    world.sink.windows.pop(world.id(1))
    with pytest.raises(SinkHistoryLost):
        beside(world).run().run()
