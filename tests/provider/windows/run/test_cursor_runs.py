"""Cursor windows as a user meets them: progress, replays, recovery, refusals."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.provider.windows.world import (
    ENTRY,
    TOPIC,
    MemoryEngine,
    MemorySink,
    World,
    memory_world,
)
from tubemq_client.errors import ConfigError, DataLoss, LogTruncated
from tubemq_provider.offsets.memory import MemoryOffsetStore
from tubemq_provider.windows.errors import (
    DocumentError,
    IdentityMismatch,
    MarkerConflict,
    NoInitialPosition,
    SinkHistoryLost,
)
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.protocols import IngestCounts, IngestWatch, Staging, Step
from tubemq_provider.windows.run.cursor_run import PLANS_KEPT
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.run.steps import WindowRun

world = memory_world({"1:0": 2, "1:1": 1, "2:0": 4})


def cursor_of(world: World) -> dict[str, object]:
    assert world.journal.cursor is not None
    document: dict[str, object] = json.loads(world.journal.cursor)
    return document


def stop_after(run: WindowRun, step: Step, point: str) -> None:
    """Run until `point` of `step` and die there."""
    steps = run.steps()
    for reached in steps:
        if reached == (step, point):
            return
    raise AssertionError(f"the run never came to {point!r} of {step}")


@pytest.mark.parametrize("restricts", [False, True])
def test_columns_are_computed_only_for_a_sink_that_restricts_them(
    world: World, restricts: bool
) -> None:
    """A task that consumes with a function needs neither a decoder nor pyarrow for them."""
    computed: list[object] = []

    class Restricting(MemorySink):
        def check_columns(self, columns: object) -> None:
            computed.append(columns)

    sink = Restricting() if restricts else world.sink
    window_run(
        world.planner(),
        MemoryOffsetStore(world.journal, task="task"),
        sink,
        MemoryEngine(world.log, sink),
        attempt="try",
        columns=lambda: computed.append("computed") or "columns",
    ).run()
    assert computed == (["computed", "columns"] if restricts else [])


def test_the_first_window_takes_everything_and_the_next_what_is_new(world: World) -> None:
    first = world.run().run()
    assert first.window_id == world.id(1)
    assert first.records == {"1:0": 2, "1:1": 1, "2:0": 4}
    assert first.ranges["2:0"] == (0, 4 * ENTRY)
    world.log.append("1:1", 3)
    second = world.run().run()
    assert second.window_id == world.id(2)
    assert second.records == {"1:0": 0, "1:1": 3, "2:0": 0}
    assert second.ranges["1:0"] == (3 * ENTRY, 6 * ENTRY)
    assert world.sink.records() == dict.fromkeys(world.log.all_records(), 1)


def test_the_result_is_json_and_the_event_carries_the_position(world: World) -> None:
    result = world.run().run()
    assert json.loads(json.dumps(result.to_document()))["total"] == 7
    event = json.loads(world.journal.events[-1])
    assert event["window_id"] == world.id(1)
    assert event["position"]["seq"] == 1
    assert event["position"]["next"] == cursor_of(world)["next"]


def test_three_runs_without_new_data_then_one_with_data_make_one_window(world: World) -> None:
    world.run().run()
    for _ in range(3):
        result = world.run().run()
        assert result.empty
        assert result.window_id is None
        assert result.position is not None
        assert result.position.seq == 1
    assert set(world.journal.plans) == {world.id(1)}
    world.log.append("2:0")
    assert world.run().run().window_id == world.id(2)
    assert set(world.sink.windows) == {world.id(1), world.id(2)}


def test_a_group_without_progress_needs_an_initial_position(world: World) -> None:
    with pytest.raises(NoInitialPosition, match="initial_position"):
        world.run(initial_position=None).run()


def test_an_initial_position_may_name_offsets(world: World) -> None:
    initial = {TOPIC: {"1:0": ENTRY, "1:1": "stable", "2:0": "earliest"}}
    result = world.run(initial_position=initial).run()
    assert result.records == {"1:0": 1, "1:1": 0, "2:0": 4}


def test_an_initial_position_lists_all_its_problems(world: World) -> None:
    with pytest.raises(ConfigError) as caught:
        world.run(initial_position={TOPIC: {"1:0": 27, "x": 0, "2:0": "middle"}})
    assert len(caught.value.problems) == 3
    with pytest.raises(ConfigError, match="not named") as caught:
        world.run(initial_position={TOPIC: {"1:0": 28 * 100, "7:0": 0}}).run()
    assert len(caught.value.problems) == 4


def test_stable_is_refused_where_runs_may_overlap(world: World) -> None:
    with pytest.raises(ConfigError, match="serialised"):
        world.run(initial_position="stable", serialised=False)


def test_stable_begins_at_the_end_of_the_first_run_even_if_that_was_empty(world: World) -> None:
    assert world.run(initial_position="stable").run().empty
    world.log.append("2:0", 2)
    assert world.run(initial_position="stable").run().records["2:0"] == 2


def test_a_cap_splits_the_backlog_and_says_that_there_is_more(world: World) -> None:
    seen = []
    for _ in range(20):
        result = world.run(max_records=3).run()
        if result.empty:
            break
        assert result.total <= 3
        seen.append(result.has_more)
    assert seen == [True, True, False]
    assert world.sink.records() == dict.fromkeys(world.log.all_records(), 1)


def test_killed_after_publishing_the_retry_only_says_so(world: World) -> None:
    stop_after(world.run(task="a"), Step.PUBLISH, "published")
    assert world.journal.cursor is None
    result = world.run(task="a").run()
    assert result.replayed
    assert result.window_id == world.id(1)
    assert result.recovered == ()
    assert cursor_of(world)["seq"] == 1
    assert world.engine.ingested == [world.id(1)]


def test_the_next_run_announces_what_a_dead_run_published(world: World) -> None:
    stop_after(world.run(), Step.PUBLISH, "published")
    world.log.append("1:0")
    result = world.run().run()
    assert result.window_id == world.id(2)
    assert result.recovered == (world.id(1),)
    assert world.sink.records() == dict.fromkeys(world.log.all_records(), 1)
    assert cursor_of(world)["seq"] == 2


def test_an_empty_run_announces_recovered_windows_too(world: World) -> None:
    stop_after(world.run(), Step.PUBLISH, "published")
    result = world.run().run()
    assert result.empty
    assert result.recovered == (world.id(1),)


def test_a_retry_ingests_the_plan_of_the_try_before_it(world: World) -> None:
    stop_after(world.run(task="a"), Step.INGEST, "begin")
    world.log.append("1:0", 5)
    assert world.run(task="a").run().total == 7


def test_the_run_after_a_failed_one_takes_over_its_plan(world: World) -> None:
    stop_after(world.run(task="a"), Step.INGEST, "begin")
    world.log.append("1:0", 5)
    assert world.run(task="b").run().total == 7
    assert world.run(task="c").run().total == 5


def test_a_cleared_old_task_replays_its_window_and_never_rewinds(world: World) -> None:
    world.run(task="a").run()
    world.log.append("1:0")
    world.run(task="b").run()
    result = world.run(task="a").run()
    assert result.replayed
    assert result.window_id == world.id(1)
    assert result.position is not None
    assert result.position.seq == 2
    assert cursor_of(world)["seq"] == 2


def test_the_cursor_is_rebuilt_from_the_newest_event(world: World) -> None:
    world.run().run()
    world.journal.cursor = None
    world.journal.plans.clear()
    world.log.append("1:0")
    assert world.run(initial_position=None).run().window_id == world.id(2)
    assert cursor_of(world)["seq"] == 2


def test_the_cursor_is_rebuilt_from_the_sink_alone(world: World) -> None:
    for _ in range(3):
        world.log.append("1:0")
        world.run().run()
    world.journal.cursor = None
    world.journal.plans.clear()
    world.journal.events.clear()
    world.log.append("1:0")
    result = world.run(initial_position=None).run()
    assert result.window_id == world.id(4)
    assert result.recovered == (world.id(1), world.id(2), world.id(3))
    assert world.sink.records() == dict.fromkeys(world.log.all_records(), 1)


def test_a_cursor_that_fell_behind_catches_up(world: World) -> None:
    world.run().run()
    behind = world.journal.cursor
    world.log.append("1:0")
    world.run().run()
    world.journal.cursor = behind
    world.log.append("1:0")
    assert world.run().run().window_id == world.id(3)
    assert cursor_of(world)["seq"] == 3


def test_a_window_whose_marker_was_taken_away_is_not_written_again(world: World) -> None:
    world.run(task="a").run()
    world.log.append("1:0")
    world.run(task="b").run()
    del world.sink.windows[world.id(1)]
    with pytest.raises(SinkHistoryLost, match="explicit window") as caught:
        world.run(task="a").run()
    said = str(caught.value)
    assert f"{world.sink.identity} has no marker of it" in said
    assert "bring back the one that has the window" in said
    assert 'starting_offsets={"orders": {"1:0": ' in said


def test_a_sleeping_try_does_not_write_a_window_that_came_and_went(world: World) -> None:
    sleeper = world.run(task="a").steps()
    for reached in sleeper:
        if reached == (Step.INGEST, "ingested"):
            break
    world.run(task="b").run()
    del world.sink.windows[world.id(1)]
    with pytest.raises(SinkHistoryLost):
        list(sleeper)
    assert world.sink.windows == {}


def test_lost_progress_is_not_taken_for_a_first_run(world: World) -> None:
    for _ in range(2):
        world.log.append("1:0")
        world.run().run()
    world.journal.cursor = None
    world.journal.plans.clear()
    world.journal.events.clear()
    del world.sink.windows[world.id(1)]
    with pytest.raises(SinkHistoryLost, match="lost its cursor"):
        world.run().run()


def test_a_plan_with_a_partition_that_was_added_meanwhile_is_kept(world: World) -> None:
    """Both runs begin before the partition is there; the faster one plans after."""
    world.log.partitions.remove("2:0")
    fast, slow = world.run().steps(), world.run().steps()
    for steps in (fast, slow):
        while next(steps) != (Step.LOAD, "initial position resolved"):
            pass
    world.log.partitions.append("2:0")
    while next(fast) != (Step.PLAN, "plan stored"):
        pass
    planned = dict(world.journal.plans)
    assert WindowPlan.from_document(json.loads(planned[world.id(1)]), where="test").joined
    world.log.append("1:0", 1)
    for _ in slow:
        pass
    assert world.journal.plans == planned


def test_the_marker_wins_over_a_stored_plan_with_other_ends(world: World) -> None:
    slow = world.run(task="a").steps()
    for reached in slow:
        if reached == (Step.PLAN, "plan created"):
            break
    world.log.append("1:0", 5)
    fast = world.run(task="b").run()
    world.journal.plans.clear()  # asset state is wiped: both runs have their own plan
    rest = list(slow)
    assert (Step.PUBLISH, "published") not in rest
    assert fast.total == 12
    assert world.run(task="a").run().ranges == fast.ranges
    assert world.sink.records() == dict.fromkeys(world.log.all_records(), 1)


def test_whoever_publishes_second_takes_the_first_ones_window(world: World) -> None:
    slow = world.run(task="a").steps()
    for reached in slow:
        if reached == (Step.INGEST, "ingested"):
            break
    world.journal.plans.clear()
    world.log.append("1:0", 5)
    fast = world.run(task="b").run()
    for _ in slow:
        pass
    event = json.loads(world.journal.events[-1])
    assert event["hash"] == fast.hash
    assert event["replayed"] == 1
    assert world.sink.staged == {}


def test_an_ingest_that_fails_is_pardoned_if_the_window_was_written_meanwhile(
    world: World,
) -> None:
    slow = world.run(task="a").steps()
    for reached in slow:
        if reached == (Step.INGEST, "staging ready"):
            break
    world.run(task="b").run()  # tidies the slow try's staging place away
    for _ in slow:
        pass
    assert json.loads(world.journal.events[-1])["window_id"] == world.id(1)


def test_a_failed_ingest_leaves_nothing_and_the_retry_succeeds(world: World) -> None:
    world.engine.failing = ConnectionError("the broker went away")
    with pytest.raises(ConnectionError):
        world.run(task="a").run()
    assert world.sink.staged == {}
    assert world.journal.events == []
    world.engine.failing = None
    assert world.run(task="a").run().total == 7


def test_a_marker_that_does_not_continue_the_position_is_refused(world: World) -> None:
    world.run().run()
    document = cursor_of(world)
    document["next"] = {**document["next"], "2:0": ENTRY}  # type: ignore[dict-item]
    world.journal.cursor = json.dumps(document)
    world.journal.events.clear()
    stray = WindowPlan.cursor(
        world.scope, 2, {"1:0": (84, 84), "1:1": (84, 84), "2:0": (4 * ENTRY, 5 * ENTRY)}
    )
    world.log.append("2:0")
    staging = world.sink.begin(stray, "x")
    counts = world.engine.ingest(stray, staging, IngestWatch())
    world.sink.publish(staging, stray, counts, lambda _: None)
    with pytest.raises(MarkerConflict, match="set by hand"):
        world.run().run()


def test_progress_of_another_sink_or_filter_is_refused(world: World) -> None:
    world.run().run()
    world.scope = WindowScope("c1", TOPIC, "g1", world.sink.identity, filters=("clicks",))
    with pytest.raises(IdentityMismatch, match="its own group"):
        world.run().run()


def test_a_cursor_edited_by_hand_lists_its_problems(world: World) -> None:
    world.run().run()
    document = cursor_of(world) | {"seq": -1, "next": {"1:0": 5, "one": 28}}
    world.journal.cursor = json.dumps(document)
    with pytest.raises(DocumentError) as caught:
        world.run().run()
    assert len(caught.value.problems) == 3
    world.journal.cursor = json.dumps(document | {"v": 99})
    with pytest.raises(DocumentError, match="version 99"):
        world.run().run()


def test_retention_past_the_position_fails_and_names_what_is_lost(world: World) -> None:
    world.run().run()
    world.log.append("2:0", 6)
    world.log.lost[2, 0] = 7
    with pytest.raises(DataLoss) as caught:
        world.run().run()
    text = str(caught.value)
    for word in (TOPIC, "2:0", "[112, 196)", "gap_policy='skip'"):
        assert word in text
    assert caught.value.start == 4 * ENTRY


def test_a_skipped_gap_is_recorded_and_the_chain_goes_on(world: World) -> None:
    world.run().run()
    world.log.append("2:0", 6)
    world.log.lost[2, 0] = 7
    result = world.run(policies={"gap_policy": "skip"}).run()
    assert result.gaps == {"2:0": [[112, 196]]}
    assert result.records["2:0"] == 3
    assert json.loads(world.journal.events[-1])["gaps"] == {"2:0": [[112, 196]]}
    assert world.run().run().empty


def test_a_log_shorter_than_the_position_is_an_error_by_default(world: World) -> None:
    world.run().run()
    del world.log.entries[2, 0][1:]
    with pytest.raises(LogTruncated, match="on_offset_regression"):
        world.run().run()


@pytest.mark.parametrize(
    ("policy", "start", "records"), [("reset_to_end", 28, 0), ("reset_to_start", 0, 1)]
)
def test_a_reset_is_kept_by_a_window_even_if_that_is_empty(
    world: World, policy: str, start: int, records: int
) -> None:
    world.run().run()
    del world.log.entries[2, 0][1:]
    result = world.run(policies={"on_offset_regression": policy}).run()
    assert result.ranges["2:0"] == (start, ENTRY)
    assert result.records["2:0"] == records
    assert json.loads(world.journal.events[-1])["resets"] == {"2:0": 4 * ENTRY}
    world.log.append("2:0", 2)
    assert world.run().run().records["2:0"] == 2


def test_a_plan_beyond_a_truncated_log_is_made_anew_once_a_reset_is_allowed(world: World) -> None:
    world.run().run()
    world.log.append("2:0", 4)
    stop_after(world.run(task="a"), Step.PLAN, "end")
    del world.log.entries[2, 0][6:]
    result = world.run(task="a", policies={"on_offset_regression": "reset_to_end"}).run()
    assert result.records["2:0"] == 2


def test_a_new_partition_begins_where_the_policy_says(world: World) -> None:
    world.run().run()
    world.log.append("1:10000", 3)
    assert world.run().run().records["1:10000"] == 3
    world.log.append("3:0", 3)
    result = world.run(policies={"new_partition_position": "stable"}).run()
    assert result.ranges["3:0"] == (84, 84)  # fixed by a window, or the next run would move it on
    world.log.append("3:0", 1)
    assert world.run().run().records["3:0"] == 1


def test_a_partition_whose_broker_is_away_keeps_its_place(world: World) -> None:
    world.run().run()
    world.log.append("2:0", 1)
    world.log.append("1:0", 1)
    world.log.partitions.remove("2:0")
    assert world.run().run().ranges["2:0"] == (112, 112)
    world.log.partitions.append("2:0")
    assert world.run().run().records["2:0"] == 1


def test_old_stored_plans_are_removed(world: World) -> None:
    for _ in range(PLANS_KEPT + 3):
        world.log.append("1:0")
        world.run().run()
    assert len(world.journal.plans) == PLANS_KEPT
    assert world.id(1) not in world.journal.plans


def test_a_failing_mirror_is_a_warning(world: World) -> None:
    told: list[object] = []

    def mirror(ends: object) -> None:
        told.append(ends)
        raise ConnectionError("no broker")

    result = world.run(mirror=mirror).run()
    assert told == [{"1:0": 84, "1:1": 84, "2:0": 112}]
    assert "no broker" in result.warnings[0]


def test_what_a_mirror_leaves_out_is_a_warning(world: World) -> None:
    result = world.run(mirror=lambda _: {"1:1": "its broker is away", "2:0": "away too"}).run()
    assert result.warnings == (
        "group offsets at the brokers leave out 1:1 and 1 more: its broker is away",
    )


def test_rewriting_is_refused_where_a_window_cannot_be_replaced_in_one_step(world: World) -> None:
    with pytest.raises(ConfigError, match="on_clear"):
        world.run(policies={"on_clear": "rewrite"})


def test_the_brokers_are_shown_the_position_also_by_a_replay(world: World) -> None:
    shown: list[dict[str, int]] = []

    def mirror(ends: Mapping[str, int]) -> None:
        shown.append(dict(ends))

    world.log.append("1:0", 2)
    world.run(task="first", mirror=mirror).run()
    world.log.append("1:0", 3)
    world.run(mirror=mirror).run()
    world.run(task="first", mirror=mirror).run()
    assert [ends["1:0"] // ENTRY for ends in shown] == [5, 8, 8]


def test_an_event_says_what_was_left_out(world: World) -> None:
    world.log.append("1:0", 2)
    world.engine = CountsCorrupt(world.log, world.sink)
    world.run().run()
    assert json.loads(world.journal.events[-1])["corrupt"] == 1


class CountsCorrupt(MemoryEngine):
    """Reads as if one record had failed its checksum."""

    def ingest(self, plan: WindowPlan, staging: Staging, watch: IngestWatch) -> IngestCounts:
        return replace(super().ingest(plan, staging, watch), corrupt=1)
