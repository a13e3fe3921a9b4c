"""Lives of logs where little else is known: before a first window, in the first one of an epoch of
windows of time, after a broker was retired."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.provider.windows.new_lives import LivingEngine, LivingLog
from tests.provider.windows.planning.test_claims import MemoryClaims
from tests.provider.windows.world import ENTRY, TOPIC, MemoryBook, MemorySink, Record, World
from tubemq_client.errors import ConfigError, DataLoss, LogReplaced
from tubemq_client.model import Anchor, OffsetRange
from tubemq_provider.offsets.memory import MemoryOffsetStore
from tubemq_provider.offsets.position_reset import moved
from tubemq_provider.windows.errors import WindowNotReady
from tubemq_provider.windows.planning.boundary_book import ScopeBook
from tubemq_provider.windows.planning.standalone_planner import TimePlanner
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.protocols import Document
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.run.result import WindowResult
from tubemq_provider.windows.time_resolvers.boundaries import Boundaries
from tubemq_provider.windows.time_resolvers.timeline import TimelineResolver, record_sample

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Samples:
    """A timeline of a log that is sampled by the hour."""

    def __init__(self, log: LivingLog) -> None:
        self.log = log
        self.document: Document | None = None

    def load_timeline(self) -> Document | None:
        return self.document

    def store_timeline(self, document: Document) -> None:
        self.document = document

    def take(self, hour: int) -> None:
        record_sample(TOPIC, self, self.log.ends, lambda: NOON + hour * HOUR)


@dataclass
class Living:
    """A log of two brokers, what samples it, and runs over it."""

    log: LivingLog = field(default_factory=lambda: LivingLog(partitions=["1:0", "2:0"]))

    def __post_init__(self) -> None:
        self.world = World(log=self.log, sink=MemorySink(boundary_book=MemoryBook()))
        self.world.engine = LivingEngine(self.log, self.world.sink)
        self.samples = Samples(self.log)

    def append(self, *counts: int) -> None:
        for key, count in zip(("1:0", "2:0"), counts, strict=False):
            self.log.append(key, count)

    def begin_anew(self, *stores: tuple[int, int]) -> None:
        self.log.begin_anew(*(stores or ((1, 0), (2, 0))))

    def next_window(self, **options: Any) -> WindowResult:
        return self.world.run(witness=self.log, **options).run()

    def hour(self, number: int, **policies: str) -> WindowResult:
        world = self.world
        planner = TimePlanner(
            world.scope,
            NOON + number * HOUR,
            NOON + (number + 1) * HOUR,
            TimelineResolver(TOPIC, self.samples.load_timeline, lambda: list(self.log.ends())),
            self.log.ends,
            world.sink.boundaries,
            Policies.of(**policies),
            self.log,
        )
        store = MemoryOffsetStore(world.journal, task=f"{number}{world.scope.epoch}")
        return window_run(planner, store, world.sink, world.engine, attempt="a").run()

    def missing(self) -> list[Record]:
        held = self.world.sink.records()
        return [record for record in self.log.all_records() if held[record] != 1]


@pytest.fixture
def living() -> Living:
    return Living()


def test_a_topic_made_anew_before_the_first_window_is_noticed(living: Living) -> None:
    """An empty run stores nothing but its event: that has to know the logs."""
    living.append(10, 10)
    assert living.next_window(initial_position="stable").empty
    living.begin_anew()
    living.append(15, 15)
    with pytest.raises(LogReplaced):
        living.next_window()


def test_empty_runs_learn_the_logs_of_a_position_of_an_earlier_release(living: Living) -> None:
    living.append(10, 10)
    living.next_window()
    journal = living.world.journal
    for number, text in enumerate(journal.events):
        event = json.loads(text)
        del event["position"]["last"]
        journal.events[number] = json.dumps(event)
    cursor = json.loads(journal.cursor or "")
    del cursor["last"]
    journal.cursor = json.dumps(cursor)
    assert living.next_window().empty
    living.begin_anew()
    living.append(15, 15)
    with pytest.raises(LogReplaced):
        living.next_window()


def set_to_the_end(living: Living) -> None:
    """Set the position like ``airflow tubemq offsets set``."""
    journal = living.world.journal
    cursor, event = json.loads(journal.cursor or ""), json.loads(journal.events[-1])
    ends = {found.key: ends.max_offset for found, ends in living.log.ends().items()}
    journal.cursor = json.dumps(moved(cursor, event, ends, by="operator", now=NOON))


@pytest.mark.parametrize("plans", [False, True])
def test_empty_runs_learn_the_logs_of_a_position_that_was_set_though_they_are_skipped(
    plans: bool, living: Living
) -> None:
    """The event of a task that is skipped is lost, and a task that only plans has none."""
    living.append(10, 10)
    living.next_window()
    living.append(5, 5)
    set_to_the_end(living)
    journal = living.world.journal
    if plans:
        assert living.world.run(witness=living.log).planned() == (None, None)
    else:
        found = living.next_window()
        journal.events.pop()
        assert found.empty
        assert not found.begun, "the task may be skipped"
    stored, accepted = journal.cursor, list(journal.events)
    assert living.next_window().empty
    assert journal.cursor == stored, "once is enough"
    journal.events[:] = accepted
    living.begin_anew()
    living.append(20, 20)
    with pytest.raises(LogReplaced):
        living.next_window()


def test_a_run_whose_event_alone_knows_the_logs_is_not_skipped(living: Living) -> None:
    """Without a cursor, as with offset_store='events'."""
    living.append(10, 10)
    living.next_window()
    journal = living.world.journal
    journal.cursor = None
    event = json.loads(journal.events[-1])
    del event["position"]["last"]
    journal.events[-1] = json.dumps(event)
    assert living.next_window().begun
    assert not living.next_window().begun


def test_a_partition_that_is_missing_when_its_log_begins_anew_is_read_from_the_beginning_later(
    living: Living,
) -> None:
    """A topic that was recreated with fewer partitions, which got the others back: they continued
    in     the new log where they had been in the old one."""
    living.log.partitions.append("1:1")
    for key in ("1:0", "1:1"):
        living.log.append(key, 5)
    living.next_window()
    living.begin_anew()
    living.log.partitions.remove("1:1")
    living.append(3, 3)
    living.next_window(policies={"on_offset_regression": "reset_to_start"})
    living.log.append("1:1", 4)
    living.append(1)
    assert living.next_window().records["1:1"] == 4
    held = living.world.sink.records()
    assert all(held[record] == 1 for record in living.log.all_records())


class Overtaken:
    """Retention passes what is looked for after the ends were looked up, in one partition."""

    def __init__(self, log: LivingLog, key: str) -> None:
        self.log, self.key, self.holds = log, key, log.holds

    def first_record(self, range_: OffsetRange) -> Anchor | None:
        if range_.partition.key == self.key:
            raise DataLoss("gone", start=range_.start, available=range_.end)
        return self.log.first_record(range_)


def test_retention_between_two_looks_ends_no_run(living: Living) -> None:
    """The task failed for good, and was told to set the policy that it had."""
    living.append(4, 2)
    policies = {"gap_policy": "skip"}
    run = living.world.run(witness=Overtaken(living.log, "1:0"), policies=policies)
    assert run.run().total == 6
    assert living.next_window().empty


def test_claims_learn_the_logs_before_the_first_window(living: Living) -> None:
    living.append(10, 10)
    world = living.world

    def run(task: str) -> WindowResult:
        store = MemoryClaims(world.journal, task=task, dead=set())
        planner = world.planner(witness=living.log, initial_position="stable")
        return window_run(planner, store, world.sink, world.engine, attempt=task).run()

    assert run("a").empty
    living.begin_anew()
    living.append(15, 15)
    with pytest.raises(LogReplaced):
        run("b")


@pytest.mark.parametrize("policy", ["earliest", "stable"])
def test_an_epoch_of_windows_of_time_takes_the_new_life_from_its_beginning(
    living: Living, policy: str
) -> None:
    """The advice of `LogReplaced`, followed: what had come into the new life before its first
    boundary was in no window of the epoch."""
    living.samples.take(0)
    living.append(10, 10)
    living.samples.take(1)
    living.hour(0)
    living.begin_anew()
    living.append(6, 6)
    living.samples.take(2)
    with pytest.raises(LogReplaced, match="offsets epoch c1/orders/g1"):
        living.hour(1)
    living.world.begin("life-2")
    living.samples.document = None  # as the command does
    living.samples.take(2)
    assert living.hour(1, new_partition_position=policy).total == 12
    living.append(20, 20)
    living.samples.take(3)
    assert living.hour(2).total == 40
    assert living.missing() == []


def order(living: Living, begin: object) -> None:
    """Leave what ``airflow tubemq offsets epoch c1/orders/g1 life-2 --begin …`` leaves."""
    living.world.journal.cursor = json.dumps(
        {"v": 1, "epoch": "life-2", "past": [""], "begin": begin, "seq": 0, "rev": 1}
    )
    living.world.begin("life-2")


@pytest.fixture
def two_hours(living: Living) -> Living:
    """Ten records of each broker in two windows, and five more in the hour after."""
    for number in range(4):
        living.samples.take(number)
        living.append(5, 5)
    assert [living.hour(number).total for number in (0, 1)] == [10, 10]
    return living


@pytest.mark.parametrize("hours", [(2, 1, 0), (0, 1, 2), (1, 2, 0), (2, 0, 1)])
@pytest.mark.parametrize("lost", ["nothing", "cursor"])
def test_an_epoch_of_windows_of_time_begins_at_the_offsets_that_the_command_was_given(
    two_hours: Living, hours: tuple[int, ...], lost: str
) -> None:
    """Records that its filters or its sink had stored are not stored again, whatever the order of
    windows; and that is still known when the order is gone."""
    order(two_hours, {"1:0": 280, "2:0": 280})
    found = {}
    for number in hours:
        found[number] = two_hours.hour(number)
        if lost == "cursor":
            two_hours.world.journal.cursor = None
    assert {number: result.total for number, result in found.items()} == {0: 0, 1: 0, 2: 10}
    assert set(two_hours.world.sink.records().values()) == {1}


def test_a_beginning_beyond_the_first_hour_is_kept_by_those_after_it(two_hours: Living) -> None:
    order(two_hours, {"1:0": 280 + 3 * ENTRY, "2:0": 280})
    assert [two_hours.hour(number).total for number in (1, 2)] == [0, 7]


def test_a_partition_that_the_beginning_does_not_name_is_read_whole(two_hours: Living) -> None:
    order(two_hours, {"1:0": 280})
    assert two_hours.hour(2).total == 5 + 15


def test_an_epoch_of_windows_of_time_may_begin_at_the_end(two_hours: Living) -> None:
    order(two_hours, "stable")
    assert two_hours.hour(2).total == 0
    two_hours.append(4, 4)
    two_hours.samples.take(4)
    two_hours.world.journal.cursor = None  # the first boundary remembers which end was meant
    assert two_hours.hour(3).total == 8


def test_the_end_of_a_broker_that_is_away_is_waited_for(two_hours: Living) -> None:
    order(two_hours, {"1:0": 280, "2:0": "stable"})
    two_hours.log.partitions.remove("2:0")
    with pytest.raises(WindowNotReady, match="partitions 2:0"):
        two_hours.hour(2)
    two_hours.log.partitions.append("2:0")
    assert two_hours.hour(2).ranges == {"1:0": (280, 420), "2:0": (560, 560)}


def test_boundaries_by_hand_before_the_beginning_of_the_epoch_are_refused(
    two_hours: Living,
) -> None:
    order(two_hours, {"1:0": 280, "2:0": 280})
    world = two_hours.world
    given = {
        (NOON + number * HOUR).isoformat(): {TOPIC: dict.fromkeys(("1:0", "2:0"), offset)}
        for number, offset in ((1, 140), (2, 280), (3, 420))
    }

    def hour(number: int) -> WindowResult:
        planner = TimePlanner(
            world.scope,
            NOON + number * HOUR,
            NOON + (number + 1) * HOUR,
            Boundaries(given, TOPIC),
            two_hours.log.ends,
            world.sink.boundaries,
        )
        store = MemoryOffsetStore(world.journal, task=f"given-{number}")
        return window_run(planner, store, world.sink, world.engine, attempt="a").run()

    with pytest.raises(ConfigError, match="start 140 is before 280, where epoch 'life-2' begins"):
        hour(1)
    assert hour(2).total == 10
    with pytest.raises(ConfigError, match="give boundaries from there on"):
        hour(1)


def test_a_retired_broker_that_comes_back_with_another_disk_is_noticed(living: Living) -> None:
    living.samples.take(0)
    living.append(10, 10)
    living.samples.take(1)
    living.hour(0)
    living.log.partitions.remove("2:0")
    ScopeBook(living.world.sink.boundary_book, living.world.scope).retire(2)  # type: ignore[arg-type]
    for number in (1, 2):
        living.append(3)
        living.samples.take(number + 1)
        living.hour(number)
    living.begin_anew((2, 0))
    living.log.partitions.append("2:0")
    living.append(0, 6)
    living.samples.take(4)
    with pytest.raises(LogReplaced, match="partition 2:0"):
        living.hour(3)
