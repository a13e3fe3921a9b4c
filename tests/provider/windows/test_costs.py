"""What a window costs besides its records does not grow with them, nor with partitions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.provider.windows.fake_reader import FakeReader
from tubemq_client.config import ClientConfig
from tubemq_client.embedded import EmbeddedTubeMQ, TopicSpec
from tubemq_client.embedded.broker_rpc import BrokerRpc
from tubemq_client.model import Partition, PartitionEnds
from tubemq_client.sync import Metadata
from tubemq_provider.engines.inline import InlineEngine
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.run.cursor_run import CursorRun

SECOND_WINDOW = {
    "load_cursor": 3,
    "newest_position": 1,
    "load_task_plan": 1,
    "load_plan": 2,
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
