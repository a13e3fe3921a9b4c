"""Claims that runs leave behind which have ended: what the next run does with them, and tells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.provider.windows.changing_worlds import Topic, Unreliable
from tests.provider.windows.world import ENTRY, World
from tubemq_client.errors import ConnectError
from tubemq_provider.offsets.file_claims import FileClaimStore
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.run.result import WindowResult


@dataclass
class Group:
    """A group on two brokers; a task that is not running has ended for good."""

    directory: Path
    topic: Topic = field(default_factory=Topic)

    def __post_init__(self) -> None:
        self.world = World(log=self.topic)
        self.world.engine = Unreliable(self.topic, self.world.sink)
        self.append(3)

    def append(self, count: int) -> None:
        for key in ("1:0", "2:0"):
            self.topic.append(key, count)

    def run(self, task: str, *, dies_at: str = "", **options: object) -> WindowResult | None:
        store = FileClaimStore(self.directory, task=task, over=lambda other: other != task)
        planner, world = self.world.planner(**options), self.world
        run = window_run(planner, store, world.sink, world.engine, attempt=task)
        steps = run.steps()
        while True:
            try:
                if next(steps).point == dies_at:
                    return None
            except StopIteration as done:
                result: WindowResult = done.value
                return result


@pytest.fixture
def group(tmp_path: Path) -> Group:
    """One window is written; another one was claimed by a run that died, and its broker with it."""
    found = Group(tmp_path)
    found.run("first")
    found.append(2)
    found.run("dead", dies_at="plan claimed")
    found.topic.away.add(2)
    return found


def until_empty(run: Callable[[str], WindowResult | None]) -> list[WindowResult]:
    found = []
    for number in range(10):
        result = run(f"run-{number}")
        assert result is not None
        if result.window_id is None:
            return found
        found.append(result)
    raise AssertionError("there is always another one")


def test_a_claim_whose_broker_is_away_holds_up_no_other_window(group: Group) -> None:
    """Each run took it over, and failed."""
    world = group.world
    for number in range(3):
        group.topic.append("1:0", 1)
        result = group.run(f"later-{number}")
        assert result is not None
        assert (result.window_id, result.total) == (world.id(3 + number), 1)
        assert any(f"{world.id(2)} stays claimed" in text for text in result.warnings)
    group.topic.away.clear()
    assert [result.window_id for result in until_empty(group.run)] == [world.id(2)]
    assert world.sink.records() == dict.fromkeys(group.topic.all_records(), 1)


def test_a_try_whose_broker_died_goes_on_with_another_window(group: Group) -> None:
    group.topic.append("1:0", 1)
    result = group.run("dead")
    assert result is not None
    assert result.window_id == group.world.id(3)
    group.topic.away.clear()
    assert [done.window_id for done in until_empty(group.run)] == [group.world.id(2)]


def test_a_claim_on_a_retired_broker_is_written_without_it(group: Group) -> None:
    """It could never be read, and held up the group for ever."""
    result = group.run("later", retired=lambda: {2})
    assert result is not None
    assert (result.window_id, result.total) == (group.world.id(2), 2)
    assert result.gaps == {"2:0": [[3 * ENTRY, 5 * ENTRY]]}
    group.topic.append("1:0", 1)
    (last,) = until_empty(lambda task: group.run(task, retired=lambda: {2}))
    assert (last.window_id, last.total) == (group.world.id(3), 1)


def test_a_broker_that_dies_under_a_claim_fails_its_run_only(group: Group) -> None:
    group.topic.away.clear()
    store = FileClaimStore(group.directory, task="next", over=lambda other: other != "next")
    world = group.world
    steps = window_run(world.planner(), store, world.sink, world.engine, attempt="next").steps()
    while next(steps).point != "claim adopted":
        pass
    group.topic.away.add(2)
    with pytest.raises(ConnectError):
        list(steps)
    group.topic.append("1:0", 1)
    result = group.run("next")
    assert result is not None
    assert result.window_id == world.id(3)


def test_windows_of_runs_that_died_after_they_had_published_are_told(group: Group) -> None:
    """A run that had its own window reported no other one, and no later run did."""
    group.topic.away.clear()
    group.run("next", dies_at="tidied")
    group.append(1)
    result = group.run("last")
    assert result is not None
    assert (result.window_id, result.recovered) == (group.world.id(3), (group.world.id(2),))
    again = group.run("empty")
    assert again is not None
    assert again.recovered == ()
