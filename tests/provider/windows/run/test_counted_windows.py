"""Windows that other tasks have read: committed with their counts, whatever has happened since."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.provider.windows.world import World
from tubemq_provider.engines.function import ReportedEngine
from tubemq_provider.offsets.file_claims import FileClaimStore
from tubemq_provider.offsets.memory import MemoryOffsetStore
from tubemq_provider.windows.errors import MarkerConflict
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.protocols import Engine, OffsetStore
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.run.result import WindowResult
from tubemq_provider.windows.run.steps import WindowRun


def run_of(world: World, store: OffsetStore, engine: Engine | None = None) -> WindowRun:
    return window_run(world.planner(), store, world.sink, engine or world.engine, attempt="a")


def planned(world: World, store: OffsetStore) -> WindowPlan:
    plan, marker = run_of(world, store).planned()
    assert plan is not None
    assert marker is None
    return plan


def committed(world: World, store: OffsetStore, plan: WindowPlan) -> WindowResult:
    counts = dict.fromkeys(plan.ranges, 0)  # the sink of this world would count what was staged
    return run_of(world, store, ReportedEngine(plan.hash, counts)).run()


def test_a_window_that_was_read_is_committed_though_its_broker_is_away() -> None:
    """The brokers had it when the task between read it; a commit asks them for nothing."""
    world = World()
    world.log.append("1:0", 3)
    world.log.append("2:0", 3)
    plan = planned(world, MemoryOffsetStore(world.journal, task="plan"))
    world.log.partitions.remove("2:0")
    done = committed(world, MemoryOffsetStore(world.journal, task="commit"), plan)
    assert (done.window_id, done.ranges) == (plan.window_id, plan.ranges)
    world.log.partitions.append("2:0")
    world.log.append("2:0", 1)
    later = planned(world, MemoryOffsetStore(world.journal, task="later"))
    assert later.ranges["2:0"] == (3 * 28, 4 * 28)


def test_counts_of_a_window_that_is_not_next_leave_what_is_planned_alone() -> None:
    world = World()
    world.log.append("1:0", 3)
    plan = planned(world, MemoryOffsetStore(world.journal, task="plan"))
    world.log.append("1:0", 2)
    before = dict(world.journal.plans)
    with pytest.raises(MarkerConflict, match="run the planning task and what is between again"):
        run_of(
            world,
            MemoryOffsetStore(world.journal, task="commit"),
            ReportedEngine("f" * 64, {"1:0": 3}),
        ).run()
    assert world.journal.plans == before
    assert planned(world, MemoryOffsetStore(world.journal, task="plan")) == plan


def test_a_commit_takes_the_claim_of_the_task_that_planned_and_none_of_its_own(
    tmp_path: Path,
) -> None:
    world = World()

    def store(task: str) -> FileClaimStore:
        return FileClaimStore(tmp_path, task=task, over=lambda _: False)

    def claims() -> list[str]:
        return sorted((store("look").load_cursor() or {})["pending"])

    world.log.append("1:0", 3)
    one = planned(world, store("plan-1"))
    world.log.append("1:0", 2)
    two = planned(world, store("plan-2"))
    world.log.append("1:0", 4)
    assert (one.ranges["1:0"], two.ranges["1:0"]) == ((0, 84), (84, 140))
    with pytest.raises(MarkerConflict, match="of another window"):
        run_of(world, store("commit-0"), ReportedEngine("f" * 64, {"1:0": 4})).run()
    assert claims() == [one.window_id, two.window_id]
    assert committed(world, store("commit-2"), two).window_id == two.window_id
    assert claims() == [one.window_id]
    done = committed(world, store("commit-1"), one)
    assert done.position is not None
    assert (done.position.seq, done.position.next["1:0"]) == (2, 140)
    assert committed(world, store("commit-1"), one).replayed
    assert claims() == []
