"""Fixed costs of a window grow neither with its records nor with partitions."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest

from tests.provider.sinks import openers
from tests.provider.windows.fake_reader import FakeReader
from tubemq_client.config import ClientConfig
from tubemq_client.embedded import EmbeddedTubeMQ, Switches, TopicSpec
from tubemq_client.embedded.broker_rpc import BrokerRpc
from tubemq_client.model import Anchor, Partition, PartitionEnds
from tubemq_client.sync import Metadata, Producer
from tubemq_provider.engines.inline import InlineEngine
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.sources.tubemq.source import open_source
from tubemq_provider.windows.canonical import basic_instant
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.planning.standalone_planner import TimePlanner
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.run.cursor_run import CursorRun
from tubemq_provider.windows.run.kinds import window_run

SECOND_WINDOW = {
    "load_cursor": 3,
    "newest_position": 1,
    "load_task_plan": 1,
    "load_plan": 1,
    "store_plan": 1,
    "store_task_plan": 1,
    "store_cursor": 1,
    "emit": 1,
}
"""State calls of a window that nothing disturbs: each is a request to Airflow's API server."""


class Counting:
    """An offset store that notes what it is asked."""

    def __init__(self, inner: MemoryOffsetStore) -> None:
        self.inner = inner
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if callable(found):
            self.calls[name] += 1
        return found


class CountingSink(ParquetSink):
    """A sink that notes what it is asked."""

    asked: ClassVar[Counter[str]] = Counter()

    def marker(self, window_id: str) -> Any:
        self.asked["marker"] += 1
        return super().marker(window_id)

    def window_ids(self) -> Any:
        self.asked["listing"] += 1
        return super().window_ids()


@contextmanager
def open_fake(plan: WindowPlan) -> Iterator[FakeReader]:
    yield FakeReader()


@pytest.mark.parametrize(("partitions", "records"), [(2, 2), (2, 400), (200, 2)])
def test_state_calls_of_a_window_are_a_fixed_number(
    tmp_path: Path, partitions: int, records: int
) -> None:
    journal, sink = MemoryJournal(), ParquetSink(tmp_path)
    scope = WindowScope("c1", "orders", "g1", sink.identity)
    looks = 0
    for number in (1, 2):
        ends = {}
        for store in range(partitions // 2):
            for offset in (0, 1):
                place = Partition(1, "orders", store * 10_000 + offset)
                ends[place] = PartitionEnds(place, 0, 28 * records * number, stable=True)

        def look(ends: Any = ends) -> Any:
            nonlocal looks
            looks += 1
            return ends

        store_of_run = Counting(MemoryOffsetStore(journal, task=str(number)))
        result = CursorRun(
            CursorPlanner(scope, look, initial_position="earliest"),
            store_of_run,  # type: ignore[arg-type] (it passes everything on)
            sink,
            InlineEngine(open_fake, columns=["partition", "value"]),
            attempt=str(number),
        ).run()
        assert result.total == records * partitions // 2
    assert store_of_run.calls == SECOND_WINDOW
    assert looks == 3  # the first window of a group looks twice: where it begins, and where it ends


@pytest.mark.parametrize(
    ("before", "asked"),
    [
        # The position's window twice, its own before ingest, and once in publishing it.
        (1, {"listing": 1, "marker": 4}),
        (100, {"listing": 1, "marker": 4}),
        # With many windows behind it no listing: its own is looked for instead.
        (101, {"marker": 5}),
    ],
)
def test_what_a_window_asks_of_its_sink_is_a_fixed_number(
    before: int, asked: dict[str, int], tmp_path: Path
) -> None:
    journal, sink = MemoryJournal(), CountingSink(tmp_path)
    scope = WindowScope("c1", "orders", "g1", sink.identity)
    place = Partition(1, "orders", 0)

    def run(number: int) -> None:
        planner = CursorPlanner(
            scope,
            lambda: {place: PartitionEnds(place, 0, 28 * number, stable=True)},
            initial_position="earliest",
        )
        store = MemoryOffsetStore(journal, task=str(number))
        engine = InlineEngine(open_fake, columns=["partition", "value"])
        CursorRun(planner, store, sink, engine, attempt=str(number)).run()

    run(1)
    if before > 1:
        # The windows between are of no matter.
        own = tmp_path / f"window_id=c-1-{scope.scope_hash}"
        marker = json.loads((own / "_tubemq_window.json").read_text())
        plan = WindowPlan.cursor(scope, before, {"1:0": (0, 28)})
        marker |= {"plan": plan.to_document(), "hash": plan.hash}
        moved = own.rename(tmp_path / f"window_id={plan.window_id}")
        (moved / "_tubemq_window.json").write_text(json.dumps(marker))
        journal.cursor = json.dumps({**json.loads(journal.cursor or ""), "seq": before})
        journal.events.clear()
    CountingSink.asked.clear()
    run(2)
    assert CountingSink.asked == asked


def test_ends_are_asked_once_per_store(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: Counter[int] = Counter()
    answer = BrokerRpc._register

    def counting(self: Any, key: Any, client_id: str, request: Any) -> Any:
        asked[key.partition_id // 10_000] += 1
        return answer(self, key, client_id, request)

    topic = TopicSpec("wide", stores=3, partitions=40)
    with EmbeddedTubeMQ(topics=[topic], http=False) as mq:
        settings = ClientConfig.parse({"masters": mq.masters}).settings()
        monkeypatch.setattr(BrokerRpc, "_register", counting)
        with Metadata(settings) as metadata:
            ends = metadata.ends("wide", "bench", stable=True)
    assert len(ends) == 120
    assert asked == {0: 1, 1: 1, 2: 1}


@pytest.mark.parametrize("filters", [(), ("a",)])
def test_what_a_window_asks_of_retention_does_not_grow_with_the_partitions_of_a_store(
    filters: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: Counter[str] = Counter()
    fetch = BrokerRpc._get

    def counting(self: Any, request: Any) -> Any:
        asked["probe" if ".p" in request.groupName else "read"] += 1
        return fetch(self, request)

    monkeypatch.setattr(BrokerRpc, "_get", counting)
    found = []
    for partitions in (3, 12):
        topic = TopicSpec("wide", stores=1, partitions=partitions)
        switches = Switches(unflushed_records=1)
        with EmbeddedTubeMQ(topics=[topic], http=False, switches=switches) as mq:
            settings = ClientConfig.parse({"masters": mq.masters}).settings()
            sink, journal = ParquetSink(tmp_path / str(partitions)), MemoryJournal()
            scope = WindowScope("c1", "wide", "g1", sink.identity, filters=filters)
            for number in (1, 2):
                with Producer(settings) as producer:
                    for _ in range(partitions):
                        producer.send("wide", b"x", stream_id="a")
                asked.clear()
                with open_source(
                    settings, identity="c1", topic="wide", group="g1", filters=filters
                ) as source:
                    result = CursorRun(
                        CursorPlanner(
                            scope,
                            source.ends,
                            initial_position="earliest",
                            witness=source.record_lookup(),
                        ),
                        MemoryOffsetStore(journal, task=str(number)),
                        sink,
                        InlineEngine.for_source(
                            source, policies=Policies(), columns=["partition", "value"]
                        ),
                        attempt=str(number),
                    ).run()
                assert result.total == partitions
            found.append(asked["probe"])
    # A slow look may ask once more, and so does a filtered read; but twelve partitions ask no more
    # than three do.
    assert max(found) <= 2 + len(filters)


# -- windows of time: the thousandth costs what the tenth does ------------------------------------

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Hourly:
    """An entry of each partition every hour."""

    name, exact = "hourly", False

    def __init__(self, ends: Any) -> None:
        self.ends = ends

    def offsets_at(self, instant: datetime) -> Mapping[str, int]:
        past = max(0, (instant - NOON) // HOUR)
        return {place.key: min(28 * past, end.max_offset) for place, end in self.ends.items()}


class Spent:
    """Calls of Python functions, and of those of the operating system, while it is entered."""

    SYSTEM = frozenset({"scandir", "listdir", "stat", "lstat", "open", "fsync", "link", "unlink"})

    def __init__(self) -> None:
        self.calls = 0
        self.system: Counter[str] = Counter()

    def __enter__(self) -> Self:
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _count(self, _: object, event: str, what: Any) -> None:
        if event == "call":
            self.calls += 1
        elif event == "c_call" and what.__name__ in self.SYSTEM:
            self.system[what.__name__] += 1


def window_of_time(sink: Any, journal: MemoryJournal, number: int) -> None:
    scope = WindowScope("c1", "orders", "g1", sink.identity)
    place = Partition(1, "orders", 0)
    ends = {place: PartitionEnds(place, 0, 28 * 10_000, stable=True)}
    start = NOON + number * HOUR
    planner = TimePlanner(scope, start, start + HOUR, Hourly(ends), lambda: ends, sink.boundaries)
    engine = InlineEngine(open_fake, columns=["partition", "value"])
    store = MemoryOffsetStore(journal, task=str(number))
    window_run(planner, store, sink, engine, attempt=str(number)).run()


def thousands_before(root: Path, scope_hash: str, count: int) -> None:
    """Create the files of `count` windows before those that are there."""
    kept = next((root / "_boundaries").glob("2*")).read_text()
    for number in range(1, count + 1):
        at = NOON - number * HOUR
        name = basic_instant(at)
        (root / "_boundaries" / f"{name}-{scope_hash}.json").write_text(kept)
        (root / f"window_id=t-{name}-{basic_instant(at + HOUR)}-{scope_hash}").mkdir()


def test_a_window_of_time_costs_the_same_after_thousands(tmp_path: Path) -> None:
    sink, journal = ParquetSink(tmp_path / "lake"), MemoryJournal()
    for number in range(9):
        window_of_time(sink, journal, number)
    with Spent() as tenth:
        window_of_time(sink, journal, 9)
    scope = WindowScope("c1", "orders", "g1", sink.identity)
    thousands_before(tmp_path / "lake", scope.scope_hash, 2_000)
    with Spent() as later:
        window_of_time(sink, journal, 10)
    assert later.calls <= 1.2 * tenth.calls
    assert later.system.total() <= 1.2 * tenth.system.total()


class Listed:
    """A sink that notes how many ids it lists, and how often it and its book are listed."""

    def __init__(self, sink: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ids: Counter[str] = Counter()
        for name in ("window_ids", "later_window_ids"):
            monkeypatch.setattr(sink, name, self._counting(name, getattr(sink, name)))
        book = type(sink.boundaries)
        for name in ("listing", "listing_from"):
            listing = getattr(book, name)
            monkeypatch.setattr(book, name, self._counting("boundaries", listing))

    def _counting(self, name: str, listing: Any) -> Any:
        def listed(*args: Any) -> list[str]:
            ids = list(listing(*args))
            self.ids[f"{name} calls"] += 1
            self.ids[name] += len(ids)
            return ids

        return listed


@pytest.mark.parametrize("kind", ["parquet", "object_store", "delta", "sql"])
def test_a_window_of_time_lists_no_more_as_windows_pile_up(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, journal = tmp_path / "lake", MemoryJournal()
    if kind == "parquet":
        sink: Any = ParquetSink(lake)
    elif kind == "object_store":
        sink = openers.object_store(str(lake))
    elif kind == "delta":
        sink = openers.delta(str(lake))
    else:
        sink = openers.jdbc(f"sqlite:///{tmp_path}/rows.db", "orders", tmp_path / "staging")
    listed = Listed(sink, monkeypatch)
    found = []
    for number in range(13):
        listed.ids.clear()
        window_of_time(sink, journal, number)
        found.append(dict(listed.ids))
    # The window itself and the one before it, its boundaries and the turns: no earlier windows or
    # boundaries. Of the turns, which grow in number to a limit, not one may be missed.
    assert "window_ids" not in found[-1]
    assert found[-1]["later_window_ids"] == found[9]["later_window_ids"] <= 2
    assert found[-1]["boundaries calls"] == found[9]["boundaries calls"] == 2
    assert found[-1]["boundaries"] <= 2 * (len(found) + 2)


def test_old_turns_are_removed(tmp_path: Path) -> None:
    sink, journal = ParquetSink(tmp_path / "lake"), MemoryJournal()
    for number in range(130):
        window_of_time(sink, journal, number)
    names = [path.name for path in (tmp_path / "lake" / "_boundaries").iterdir()]
    assert len([name for name in names if name.startswith("turn")]) <= 101
    assert len([name for name in names if name.startswith("2")]) == 131


class Witnessed:
    """A log in which every record is where it was."""

    def first_record(self, range_: Any) -> Anchor:
        return Anchor(range_.start, 1, 1)

    def holds(self, partition: Any, anchor: Anchor, upto: int) -> bool:
        return True


def calls_of_a_window(root: Path, per_broker: int) -> int:
    """Count calls of the second window of ten brokers, a record in each partition."""
    sink, journal = ParquetSink(root), MemoryJournal()
    scope = WindowScope("c1", "orders", "g1", sink.identity)
    for number in (1, 2):
        places = [Partition(broker, "orders", n) for broker in range(10) for n in range(per_broker)]
        ends = {place: PartitionEnds(place, 0, 28 * number, stable=True) for place in places}
        run = CursorRun(
            CursorPlanner(scope, lambda: ends, initial_position="earliest", witness=Witnessed()),  # noqa: B023
            MemoryOffsetStore(journal, task=str(number)),
            sink,
            InlineEngine(open_fake, columns=["partition", "value"], target_file_bytes=1 << 20),
            attempt=str(number),
        )
        with Spent() as spent:
            run.run()
    return spent.calls


def test_a_window_of_many_partitions_costs_each_of_them_the_same(tmp_path: Path) -> None:
    few, many = (calls_of_a_window(tmp_path / str(n), n) for n in (10, 100))
    assert many <= 1.2 * 10 * few
