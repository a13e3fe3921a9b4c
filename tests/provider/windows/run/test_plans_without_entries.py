"""A task that plans for others finishes windows without entries, and plans what follows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.provider.windows.world import ENTRY, World
from tubemq_provider.offsets.file_claims import FileClaimStore
from tubemq_provider.offsets.memory import MemoryOffsetStore
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.protocols import OffsetStore, Step
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.verify import chain_problems

Stores = Callable[[str], OffsetStore]


class Killed(Exception):
    """The process died."""


class Countdown:
    """Kills a run after a number of points."""

    def __init__(self, left: int) -> None:
        self.left = left

    def at(self, step: Step, point: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed


@pytest.fixture
def world() -> World:
    """Return a group with one window, and a second one that retention removed unread."""
    found = World()
    found.log.append("1:0", 5)
    return found


@pytest.fixture(params=["memory", "claims"])
def stores(request: pytest.FixtureRequest, world: World, tmp_path: Path) -> Stores:
    if request.param == "memory":
        return lambda task: MemoryOffsetStore(world.journal, task=task)
    return lambda task: FileClaimStore(tmp_path, task=task, over=lambda other: other != task)


def planned(
    world: World, stores: Stores, task: str, *, points: int = 10_000, **policies: str
) -> WindowPlan | None:
    """Plan as `IngestJob.plan` does; die after the given number of points."""
    observer = Countdown(points)
    for _ in range(10):
        run = window_run(
            world.planner(policies=policies),
            stores(task),
            world.sink,
            world.engine,
            attempt=task,
            observer=observer,
        )
        plan, _ = run.planned()
        if run.finished is None:
            return plan
    pytest.fail("there is always another one")


def read(world: World, stores: Stores, task: str, **policies: str) -> None:
    """Run the task after it, as one with the engine."""
    window_run(
        world.planner(policies=policies), stores(task), world.sink, world.engine, attempt=task
    ).run()


def test_what_was_lost_unread_is_passed_wherever_the_task_dies(
    world: World, stores: Stores
) -> None:
    policy = {"gap_policy": "skip"}
    read(world, stores, "first")
    deaths = 0
    for number in range(200):
        world.log.append("1:0", 2)
        world.log.lost[(1, 0)] = len(world.log.entries[(1, 0)])
        died = False
        try:
            assert planned(world, stores, f"plan-{number}", points=number, **policy) is None
        except Killed:
            died = True
            assert planned(world, stores, f"plan-{number}", **policy) is None
        deaths += died
        world.log.append("1:0")
        read(world, stores, f"read-{number}", **policy)
        if not died:
            break
    assert 20 < deaths < 100
    world.log.append("1:0", 3)
    plan = planned(world, stores, "last", **policy)
    assert plan is not None
    end = len(world.log.entries[(1, 0)]) * ENTRY
    assert plan.ranges["1:0"] == (end - 3 * ENTRY, end)
    assert planned(world, stores, "last", **policy) == plan
    read(world, stores, "last", **policy)
    assert chain_problems(world.sink.plans()) == []
    assert len(world.sink.records()) == 5 + deaths + 1 + 3


def test_a_reset_to_the_end_is_passed(world: World, stores: Stores) -> None:
    policy = {"on_offset_regression": "reset_to_end"}
    read(world, stores, "first")
    world.log.entries[(1, 0)] = ["1:0"] * 2
    assert planned(world, stores, "one", **policy) is None
    world.log.append("1:0", 4)
    plan = planned(world, stores, "two", **policy)
    assert plan is not None
    assert plan.ranges["1:0"] == (2 * ENTRY, 6 * ENTRY)


def test_a_window_without_entries_that_an_earlier_release_left_is_passed(
    world: World, stores: Stores
) -> None:
    """It was planned and skipped, in every run."""
    policy = {"gap_policy": "skip"}
    read(world, stores, "first")
    world.log.append("1:0", 2)
    world.log.lost[(1, 0)] = 7
    steps = window_run(
        world.planner(policies=policy), stores("old"), world.sink, world.engine, attempt="old"
    ).steps()
    for step, _ in steps:
        if step is Step.INGEST:
            break
    world.log.append("1:0", 1)
    for task in ("old", "new"):
        plan = planned(world, stores, task, **policy)
        assert plan is not None
        assert plan.ranges["1:0"] == (7 * ENTRY, 8 * ENTRY)
