"""Time windows and explicit ranges: shared boundaries, coverage, refusals, replays."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.provider.windows.world import (
    ENTRY,
    TOPIC,
    World,
    keeping_boundaries,
    memory_world,
)
from tubemq_client.errors import ConfigError, DataLoss
from tubemq_client.model import ReachableEnds
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.windows.errors import (
    BoundaryConflict,
    DocumentError,
    MarkerConflict,
    OtherScopeFound,
    WindowNotReady,
)
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.planning.instants import TimeResolver
from tubemq_provider.windows.planning.standalone_planner import (
    ExplicitPlanner,
    StandalonePlanner,
    TimePlanner,
)
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.protocols import IngestCounts, IngestWatch, Marker
from tubemq_provider.windows.run._progress import same_window
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.run.result import WindowResult
from tubemq_provider.windows.run.steps import StepPoint
from tubemq_provider.windows.time_resolvers.boundaries import Boundaries

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def hour(number: int) -> str:
    return (NOON + number * HOUR).isoformat()


MAPPING = {
    hour(0): {TOPIC: {"1:0": 0, "1:1": 0, "2:0": 0}},
    hour(1): {TOPIC: {"1:0": 56, "1:1": 56, "2:0": 28}},
    hour(2): {TOPIC: {"1:0": 84, "1:1": 84, "2:0": 28}},
    hour(3): {TOPIC: {"1:0": 84, "1:1": 84, "2:0": 28}},
    hour(9): {"other": {"1:0": 0}},
}


class Guessing:
    """A resolver that says something else every time it is asked."""

    name = "guessing"
    exact = False

    def __init__(self) -> None:
        self.asked = 0

    def offsets_at(self, instant: datetime) -> Mapping[str, int]:
        self.asked += 1
        return {"1:0": ENTRY * self.asked, "1:1": ENTRY * self.asked, "2:0": 0}


world = memory_world({"1:0": 1, "1:1": 2, "2:0": 1}, sink=keeping_boundaries)


def time_planner(
    world: World, number: int, resolver: TimeResolver | None = None, **policies: str
) -> TimePlanner:
    return TimePlanner(
        world.scope,
        NOON + number * HOUR,
        NOON + (number + 1) * HOUR,
        resolver or Boundaries(MAPPING, TOPIC),
        world.log.ends,
        world.sink.boundaries,
        Policies.of(**policies),
    )


def run(world: World, planner: StandalonePlanner, task: str = "a") -> WindowResult:
    store = MemoryOffsetStore(world.journal, task=task)
    return window_run(planner, store, world.sink, world.engine, attempt="1").run()


def test_neighbouring_windows_tile_the_log_in_any_order(world: World) -> None:
    for number in (1, 0, 2):
        run(world, time_planner(world, number), task=str(number))
    assert world.sink.records() == dict.fromkeys(world.log.all_records(), 1)


def test_an_empty_time_window_is_recorded_for_coverage(world: World) -> None:
    result = run(world, time_planner(world, 2))
    assert result.empty
    assert result.window_id in world.sink.windows
    assert result.records == {"1:0": 0, "1:1": 0, "2:0": 0}
    assert world.engine.ingested == []


def test_time_windows_leave_the_cursor_alone(world: World) -> None:
    run(world, time_planner(world, 0))
    assert world.journal.cursor is None
    assert "position" not in json.loads(world.journal.events[-1])
    with pytest.raises(OtherScopeFound, match="not of its cursor"):
        world.run().run()  # would store the same records
    assert world.run(policies={"on_other_scope": "start_anew"}).run().total == 4


def test_a_window_run_again_by_a_new_task_writes_nothing(world: World) -> None:
    first = run(world, time_planner(world, 0), task="a")
    again = run(world, time_planner(world, 0), task="b")
    assert again.replayed
    assert again.hash == first.hash
    assert len(world.engine.ingested) == 1


def test_stored_plans_of_published_windows_do_not_pile_up(world: World) -> None:
    run(world, time_planner(world, 0))
    assert world.journal.plans == {}


def test_a_backfill_of_three_intervals_made_twice_writes_three_windows(world: World) -> None:
    for turn in range(2):
        for number in (2, 0, 1):
            run(world, time_planner(world, number), task=f"{turn}-{number}")
    assert len(world.sink.windows) == 3
    assert len(world.engine.ingested) == 2  # the third interval is empty
    assert world.sink.records() == dict.fromkeys(world.log.all_records(), 1)


def test_a_time_window_killed_anywhere_beside_another_run_is_there_once(world: World) -> None:
    def steps(task: str, planner: TimePlanner) -> Generator[StepPoint, None, WindowResult]:
        store = MemoryOffsetStore(world.journal, task=task)
        return window_run(planner, store, world.sink, world.engine, attempt=task).steps()

    length = len(list(steps("probe", time_planner(world, 0))))
    for stop in range(length):
        for wipe in (False, True):
            world.sink.windows.clear()
            world.journal = MemoryJournal()
            killed = steps("a", time_planner(world, 0))
            for _ in range(stop):
                next(killed)
            if wipe:
                world.journal.plans.clear()
            beside = run(world, time_planner(world, 0), task="b")
            zombie = list(killed) if stop % 2 else []
            again = run(world, time_planner(world, 0), task="a")
            assert again.replayed, zombie
            assert again.hash == beside.hash
            assert sum(world.sink.records().values()) == 3


def test_a_boundary_is_fixed_once_and_shared(world: World) -> None:
    resolver = Guessing()
    first = run(world, time_planner(world, 0, resolver), task="a")
    second = run(world, time_planner(world, 1, resolver), task="b")
    assert {key: end for key, (_, end) in first.ranges.items()} == {
        key: start for key, (start, _) in second.ranges.items()
    }
    assert resolver.asked == 3


def test_a_resolver_that_may_change_its_mind_needs_a_place_to_fix_its_answer(world: World) -> None:
    world.sink.boundary_book = None
    with pytest.raises(ConfigError, match="boundaries"):
        run(world, time_planner(world, 0, Guessing()))
    assert run(world, time_planner(world, 0)).total == 3


def test_a_damaged_boundary_is_reported(world: World) -> None:
    assert world.sink.boundary_book is not None
    world.sink.boundary_book.fixed[f"20261121T120000Z-{world.scope.scope_hash}"] = {
        "v": 1,
        "offsets": {"1:0": 5},
    }
    with pytest.raises(DocumentError) as caught:
        run(world, time_planner(world, 0))
    assert len(caught.value.problems) == 2


def test_an_instant_after_the_newest_boundary_is_waited_for(world: World) -> None:
    with pytest.raises(
        WindowNotReady, match=r"2026-11-21T16:00:00Z yet; the newest is .*15:00:00Z"
    ):
        run(world, time_planner(world, 3))


def test_an_instant_that_was_left_out_names_the_nearest_known_ones(world: World) -> None:
    known = Boundaries({hour(0): MAPPING[hour(0)], hour(3): MAPPING[hour(0)]}, TOPIC)
    with pytest.raises(ConfigError, match=r"at 2026-11-21T13:00:00Z; nearest known: .*12:00:00Z"):
        run(world, time_planner(world, 0, known))


def test_a_window_that_is_not_there_yet_may_be_tried_later(world: World) -> None:
    mapping = MAPPING | {hour(2): {TOPIC: {"1:0": 84, "1:1": 84, "2:0": 280}}}
    with pytest.raises(WindowNotReady, match="2:0: the window ends at 280, the stable end is 28"):
        run(world, time_planner(world, 1, Boundaries(mapping, TOPIC)))
    assert WindowNotReady.retriable


def test_retention_past_the_start_fails_unless_skipped(world: World) -> None:
    world.log.lost[1, 0] = 1
    with pytest.raises(DataLoss, match="1:1"):
        run(world, time_planner(world, 0))
    result = run(world, time_planner(world, 0, gap_policy="skip"))
    assert result.gaps == {"1:0": [[0, 28]], "1:1": [[0, 28]]}
    assert result.records == {"1:0": 0, "1:1": 1, "2:0": 1}


def test_a_partition_that_appears_between_boundaries_is_read_from_its_start(world: World) -> None:
    world.log.append("3:0", 2)
    mapping = MAPPING | {hour(1): {TOPIC: {"1:0": 56, "1:1": 56, "2:0": 28, "3:0": 56}}}
    result = run(world, time_planner(world, 0, Boundaries(mapping, TOPIC)))
    assert result.records["3:0"] == 2


def test_boundaries_that_run_backwards_or_forget_a_partition_are_refused(world: World) -> None:
    mapping = MAPPING | {hour(2): {TOPIC: {"1:0": 0, "1:1": 84}}}
    with pytest.raises(BoundaryConflict) as caught:
        run(world, time_planner(world, 1, Boundaries(mapping, TOPIC)))
    assert len(caught.value.problems) == 2


def test_another_start_under_the_same_window_is_a_conflict(world: World) -> None:
    planner = time_planner(world, 0)
    other = WindowPlan.for_time(
        world.scope, NOON, NOON + HOUR, {"1:0": (28, 56), "1:1": (0, 56), "2:0": (0, 28)}
    )
    staging = world.sink.begin(other, "x")
    counts = world.engine.ingest(other, staging, IngestWatch())
    run_first = window_run(
        planner, MemoryOffsetStore(world.journal), world.sink, world.engine, attempt="1"
    ).steps()
    for step, point in run_first:
        if (step, point) == ("plan", "end"):
            break
    world.sink.publish(staging, other, counts, lambda _: None)
    with pytest.raises(MarkerConflict, match="other ranges"):
        list(run_first)


def test_a_partition_of_which_nothing_is_read_is_no_other_start(world: World) -> None:
    """It was announced after another run had planned the window, and before that was published."""
    planner = time_planner(world, 0)
    mine = planner.plan()
    ranges = {key: range_ for key, range_ in mine.ranges.items() if key != "2:0"}
    other = WindowPlan.for_time(world.scope, NOON, NOON + HOUR, ranges)
    joined = replace(mine, ranges={**ranges, "2:0": (0, 0)})
    marker = Marker(other, IngestCounts({}), "memory/w")
    assert same_window(joined, marker) is other
    with pytest.raises(MarkerConflict, match="other ranges"):
        same_window(mine, marker)


def test_a_partition_that_either_plan_reads_is_another_start(world: World) -> None:
    """One says that it joined here, the other that a window before had it."""
    mine = time_planner(world, 0).plan()
    joined = replace(mine, ranges={**mine.ranges, "2:0": (0, 28)}, joined=("2:0",))
    known = replace(mine, ranges={**mine.ranges, "2:0": (28, 28)})
    for marked, planned in ((joined, known), (known, joined)):
        with pytest.raises(MarkerConflict, match="other ranges"):
            same_window(planned, Marker(marked, IngestCounts({}), "memory/w"))


def test_a_partition_that_joins_a_chain_is_no_other_start(world: World) -> None:
    """A partition that joins is no part of where a window begins, whatever is read of it."""
    knows = WindowPlan.cursor(world.scope, 2, {"1:0": (28, 56), "2:0": (0, 28)})
    knows = replace(knows, joined=("2:0",))
    mine = WindowPlan.cursor(world.scope, 2, {"1:0": (28, 56)})
    for marked, planned in ((knows, mine), (mine, knows)):
        assert same_window(planned, Marker(marked, IngestCounts({}), "memory/w")) is marked
    idle = WindowPlan.cursor(world.scope, 2, {"1:0": (28, 56), "2:0": (0, 0)})
    with pytest.raises(MarkerConflict, match="other ranges"):
        same_window(mine, Marker(idle, IngestCounts({}), "memory/w"))


def test_an_interval_must_have_a_length(world: World) -> None:
    with pytest.raises(ConfigError, match="not before"):
        TimePlanner(
            world.scope, NOON, NOON, Boundaries(MAPPING, TOPIC), world.log.ends, None, Policies()
        )


def test_a_boundary_file_is_read_like_a_mapping(tmp_path: Path, world: World) -> None:
    path = tmp_path / "boundaries.json"
    path.write_text(json.dumps(MAPPING))
    for source in (path, str(path), path.as_uri()):
        assert Boundaries.load(source, TOPIC).offsets_at(NOON) == {"1:0": 0, "1:1": 0, "2:0": 0}
    path.write_text("[]")
    with pytest.raises(ConfigError, match="no JSON object"):
        Boundaries.load(path, TOPIC)
    with pytest.raises(ConfigError, match="cannot be read"):
        Boundaries.load(tmp_path / "missing.json", TOPIC)


def test_a_boundary_file_may_live_behind_fsspec() -> None:
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://lake/boundaries.json", "wt") as file:
        json.dump(MAPPING, file)
    found = Boundaries.load("memory://lake/boundaries.json", TOPIC)
    assert found.offsets_at(NOON + HOUR)["1:0"] == 56


def test_a_mapping_lists_all_its_problems() -> None:
    with pytest.raises(ConfigError) as caught:
        Boundaries(
            {
                "yesterday": {TOPIC: {"1:0": 0}},
                hour(0): {TOPIC: {"1:0": 5, "x": 0, "1:1": "earliest"}},
                hour(1): [],
                hour(2): {TOPIC: {"1:0": 0}},
                (NOON + 2 * HOUR).isoformat().replace("+00:00", "Z"): {TOPIC: {"1:0": 28}},
            },
            TOPIC,
        )
    assert len(caught.value.problems) == 6


def test_explicit_ranges_are_read_once_and_found_again(world: World) -> None:
    def planner(**policies: str) -> ExplicitPlanner:
        return ExplicitPlanner(
            world.scope,
            {"1:0": 0, "1:1": "earliest"},
            {"1:0": 28, "1:1": "stable"},
            world.log.ends,
            Policies.of(**policies),
        )

    first = run(world, planner(), task="a")
    assert first.window_id == f"x-{first.hash}"
    assert first.records == {"1:0": 1, "1:1": 2}
    world.log.append("1:1")
    assert run(world, planner(), task="a").replayed  # the retry of a task keeps what it planned
    again = planner(on_other_scope="start_anew")  # else it would store two records again
    assert run(world, again, task="b").records["1:1"] == 3
    assert world.journal.cursor is None


def test_explicit_ranges_wait_for_a_broker_that_is_away(world: World) -> None:
    """It is no partition that the topic does not have: a retry finds it."""
    everything = world.log.ends()
    away = {partition: "ConnectError" for partition in everything if partition.key == "1:1"}
    here = {place: end for place, end in everything.items() if place not in away}
    planner = ExplicitPlanner(
        world.scope, {"1:0": 0, "1:1": 0}, {"1:0": 28, "1:1": 28}, lambda: ReachableEnds(here, away)
    )
    with pytest.raises(WindowNotReady, match="partition 1:1: ConnectError"):
        run(world, planner, task="a")


def test_explicit_ranges_list_all_their_problems(world: World) -> None:
    with pytest.raises(ConfigError) as caught:
        ExplicitPlanner(world.scope, {"1:0": 56, "1:1": 0}, {"1:0": 28, "2:0": 28}, world.log.ends)
    assert len(caught.value.problems) == 3
    with pytest.raises(ConfigError, match="no partition 9:9"):
        run(world, ExplicitPlanner(world.scope, {"9:9": 0}, {"9:9": 28}, world.log.ends))


def test_policies_list_all_their_problems() -> None:
    with pytest.raises(ConfigError) as caught:
        Policies.of(gap_policy="ignore", on_clear="rewrite", colour="red")
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize("ends", [("earliest", 2 * ENTRY), (9 * ENTRY, "stable")])
def test_a_word_that_is_beyond_the_other_side_by_now_is_told(
    world: World, ends: tuple[int | str, int | str]
) -> None:
    """It was an invalid window plan, as if a user had edited one."""
    world.log.append("1:0", 1)
    world.log.lost[1, 0] = 3
    planner = ExplicitPlanner(world.scope, {"1:0": ends[0]}, {"1:0": ends[1]}, world.log.ends)
    with pytest.raises(ConfigError, match=r"offsets:\s+.*1:0: .* now, beyond its end"):
        run(world, planner)
