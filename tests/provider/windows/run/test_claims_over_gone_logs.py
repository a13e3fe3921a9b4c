"""Claims whose logs are others by now: each ends in an error that leads on or continues exactly."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.provider.windows.exploration import Claimed, ClaimTry
from tests.provider.windows.new_lives import LivingEngine, LivingLog
from tests.provider.windows.world import World
from tubemq_client.errors import LogReplaced, LogTruncated
from tubemq_provider.offsets.memory import MemoryOffsetStore
from tubemq_provider.windows.errors import SinkHistoryLost, StoreConflict
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.run.result import WindowResult

ANEW = {"on_offset_regression": "reset_to_start"}
AT_END = {"on_offset_regression": "reset_to_end"}


@dataclass
class Group:
    """A group with claims; a task that is not running has ended for good."""

    log: LivingLog = field(default_factory=LivingLog)

    def __post_init__(self) -> None:
        self.world = World(log=self.log)
        self.world.engine = LivingEngine(self.log, self.world.sink)
        self.log.append("1:0", 4)
        self.log.append("2:0", 2)

    def start(self, task: str, **policies: str) -> Any:
        store = ClaimTry(self.world.journal, Claimed(), task)
        planner = self.world.planner(witness=self.log, policies=policies)
        engine, sink = self.world.engine, self.world.sink
        return store, window_run(planner, store, sink, engine, attempt=task).steps()

    def run(self, task: str, **policies: str) -> WindowResult:
        store, steps = self.start(task, **policies)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                MemoryOffsetStore.emit(store, store.event or {})
                result: WindowResult = done.value
                return result

    def dies(self, task: str, point: str = "plan claimed", **policies: str) -> Any:
        _, steps = self.start(task, **policies)
        for step in steps:
            if step.point == point:
                return steps
        raise AssertionError(point)

    def whole(self) -> bool:
        """Every record of the logs of now is there once, and no claim is left."""
        held = self.world.sink.records()
        cursor = json.loads(self.world.journal.cursor or "{}")
        left = cursor["pending"] or cursor["done"]
        return not left and all(held[record] == 1 for record in self.log.all_records())


def test_a_claim_over_a_lost_disk_leaves_what_is_gone_and_brings_the_rest() -> None:
    group = Group()
    group.dies("first")
    group.log.begin_anew((1, 0))
    group.log.append("1:0", 6)
    with pytest.raises(LogReplaced, match="reset_to_start"):
        group.run("second")
    assert group.run("third", **ANEW).total == 6
    result = group.run("fourth")
    assert (result.window_id, result.total) == (group.world.id(1), 2)
    assert group.run("fifth").empty
    assert group.whole()
    marker = group.world.sink.marker(group.world.id(1))
    assert marker is not None
    assert marker.plan.gaps == dict.fromkeys(("1:0", "1:1"), ((0, 112),))


@pytest.mark.parametrize("length", [2, 9], ids=["shorter", "longer"])
def test_a_claim_over_a_lost_disk_is_left_behind_by_a_reset_to_the_end(length: int) -> None:
    """No run could take it, and none reported it: its other log was never read."""
    group = Group()
    group.dies("first")
    group.log.begin_anew((1, 0))
    group.log.append("1:0", length)
    assert group.run("second", **AT_END).total == 0
    group.log.append("1:0", 3)
    results = [group.run(task) for task in ("third", "fourth")]
    assert [(done.window_id, done.total) for done in results] == [
        (group.world.id(1), 2),
        (group.world.id(3), 3),
    ]
    assert results[0].gaps["1:0"] == [[0, 112]]
    assert group.run("fifth").empty


def test_a_claim_over_a_shorter_log_says_how_to_go_on() -> None:
    """The engine reported it, as offsets; and again with each policy that was advised."""
    group = Group()
    group.dies("first")
    for found in (group.log.entries, group.log.numbers):
        del found[1, 0][2:]
    with pytest.raises(LogTruncated, match="offsets epoch"):
        group.run("second")
    assert group.run("third", **AT_END).total == 0
    group.log.append("1:0", 5)
    for task in ("fourth", "fifth"):
        group.run(task)
    assert group.whole()


def test_a_reset_within_a_window_that_is_being_written_is_seen_before_it_is_published() -> None:
    """The log was cut and grew again: its new records are those of the later window."""
    group = Group()
    steps = group.dies("first", "staging ready")
    for found in (group.log.entries, group.log.numbers):
        del found[1, 0][2:]
    group.run("second", **AT_END)
    group.log.append("1:0", 5)
    with pytest.raises(StoreConflict, match="run the task again"):
        list(steps)
    for task in ("first", "third"):
        group.run(task)
    assert group.whole()


def test_an_epoch_over_a_hole_of_logs_that_are_gone_begins_as_if_there_was_none() -> None:
    group = Group()
    group.run("task-0")
    group.log.append("1:0")
    group.dies("lost")
    group.log.append("1:0")
    group.world.sink.windows[group.world.id(3)] = _third(group)
    old = group.world.id(1)
    group.log.begin_anew(*group.log.entries)
    for key in ("1:0", "2:0"):
        group.log.append(key, 30)
    order(group, "2", [""], old)
    with pytest.raises(LogReplaced, match="--seen c-0-"):
        group.run("later")
    order(group, "3", ["", "2"], f"c-0-{group.world.scope.scope_hash}")
    assert group.run("last").total == 60


def test_a_lost_ledger_over_logs_that_are_gone_says_so() -> None:
    """It said to continue at offsets of the old logs, where the new ones may be longer."""
    group = Group()
    group.dies("lost")
    group.log.append("1:0")
    marker, records = _third(group)
    group.world.sink.windows[group.world.id(3)] = (marker, records)
    group.world.journal.cursor = None
    with pytest.raises(SinkHistoryLost, match="never written"):
        group.run("second")
    group.log.begin_anew(*group.log.entries)
    for key in ("1:0", "2:0"):
        group.log.append(key, 30)
    with pytest.raises(LogReplaced, match="offsets epoch"):
        group.run("third")


def test_a_hole_over_a_log_that_is_gone_ends_in_an_error_and_the_error_in_a_green_run() -> None:
    """With the ledger went the claim with which the log began again: the hole knows the
    old log, the windows behind it the present one. Runs with a policy passed it, green."""
    group = Group()
    group.run("first")
    group.log.begin_anew((2, 0))
    group.log.append("2:0", 5)
    lost = group.dies("second", **ANEW)
    group.log.append("1:0")
    store, beside = group.start("third")
    store.is_over = lambda claimant: False
    list(beside)
    lost.close()
    group.world.journal.cursor = None
    group.world.journal.events = group.world.journal.events[:1]
    with pytest.raises(SinkHistoryLost, match="No later window restarted there") as error:
        group.run("fourth", **ANEW)
    begin = json.loads(str(error.value).partition("--begin '")[2].partition("'")[0])
    assert begin == {"1:0": 140, "1:1": 140, "2:0": 140}
    order(group, "2", [""], "", begin=begin)
    group.log.append("2:0")
    assert group.run("fifth").total == 1


def _third(group: Group) -> Any:
    """Leave what a third window leaves behind a second that was claimed and not written."""
    other = World(log=group.log)
    other.engine = LivingEngine(group.log, other.sink)
    for key in ("1:0", "2:0"):
        other.run(witness=group.log).run()
        group.log.append(key)
    other.run(witness=group.log).run()
    return other.sink.windows[other.id(3)]


def order(
    group: Group, epoch: str, past: list[str], seen: str, *, begin: object = "earliest"
) -> None:
    """Leave what ``airflow tubemq offsets epoch`` leaves."""
    document = {"v": 1, "epoch": epoch, "past": past, "begin": begin, "seq": 0, "rev": 7}
    group.world.journal.cursor = json.dumps({**document, "seen": seen})
    group.world.begin(epoch)
