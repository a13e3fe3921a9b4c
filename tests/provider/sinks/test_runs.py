"""Whole window runs into every exactly-once sink: killed while publishing, wiped, and run again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
from deltalake import DeltaTable

from tests.provider.sinks.openers import (
    delta,
    iceberg,
    iceberg_catalog,
    jdbc,
    object_store,
    parquet,
)
from tests.provider.windows.fake_reader import KEYS, TOPIC, ends_of, expected, open_fake
from tubemq_provider.engines.inline import InlineEngine
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.sinks.read import published_windows, read_windows
from tubemq_provider.windows.errors import SinkHistoryLost
from tubemq_provider.windows.plan import WindowScope
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.planning.standalone_planner import TimePlanner
from tubemq_provider.windows.protocols import Sink, Step
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.run.result import WindowResult
from tubemq_provider.windows.verify import chain_problems

ENDS = [dict.fromkeys(KEYS, 28 * count) for count in (11, 40, 50)]
Values = list[bytes | None]


class Died(BaseException):
    """The process is gone: nothing of the run may catch this."""


@dataclass
class DieAt:
    """Dies at one point of publishing."""

    point: str

    def at(self, step: Step, point: str) -> None:
        if step is Step.PUBLISH and point == self.point:
            raise Died


def _in_files(sink: Sink, root: Path) -> Values:
    return read_windows(sink).to_table()["value"].to_pylist()


def _in_delta(sink: Sink, root: Path) -> Values:
    return DeltaTable(root / "delta").to_pyarrow_table()["value"].to_pylist()


def _in_iceberg(sink: Sink, root: Path) -> Values:
    table = iceberg_catalog(root / "iceberg").load_table("sales.orders")
    return table.scan().to_arrow()["value"].to_pylist()


def _in_sqlite(sink: Sink, root: Path) -> Values:
    with sa.create_engine(f"sqlite:///{root}/lake.db").connect() as connection:
        return list(connection.scalars(sa.text("SELECT value FROM orders")))


SINKS: dict[str, tuple[Callable[[Path], Sink], Callable[[Sink, Path], Values], list[str]]] = {
    "parquet": (lambda root: parquet(root / "lake"), _in_files, ["staging on disk", "renamed"]),
    "object_store": (
        lambda root: object_store(str(root / "objects"), root / "staging"),
        _in_files,
        ["file uploaded", "manifest written"],
    ),
    "delta": (lambda root: delta(str(root / "delta")), _in_delta, ["marker staged", "committed"]),
    "iceberg": (
        lambda root: iceberg(root / "iceberg"),
        _in_iceberg,
        ["marker staged", "committed"],
    ),
    "jdbc": (
        lambda root: jdbc(f"sqlite:///{root}/lake.db", "orders", root / "staging"),
        _in_sqlite,
        ["file inserted", "committed"],
    ),
}


@pytest.mark.parametrize("kind", ["parquet", "delta", "object_store", "jdbc"])
def test_a_lake_that_is_not_mounted_gets_no_window_on_the_disk_below(
    kind: str, tmp_path: Path
) -> None:
    open_sink, _, _ = SINKS[kind]
    journal = MemoryJournal()

    def run(number: int) -> WindowResult:
        sink = open_sink(tmp_path / "mnt")
        scope = WindowScope("c1", TOPIC, "g1", sink.identity)
        planner = CursorPlanner(scope, lambda: ends_of(ENDS[number]), initial_position="earliest")
        store = MemoryOffsetStore(journal, task=f"{number}")
        return window_run(planner, store, sink, InlineEngine(open_fake), attempt="a").run()

    (tmp_path / "mnt").mkdir()
    run(0)
    (tmp_path / "mnt").rename(tmp_path / "elsewhere")
    (tmp_path / "mnt").mkdir()
    with pytest.raises(SinkHistoryLost, match=r"1 windows were written before, but .* not mounted"):
        run(1)
    assert not any((tmp_path / "mnt").iterdir())
    (tmp_path / "mnt").rmdir()
    (tmp_path / "elsewhere").rename(tmp_path / "mnt")
    assert run(1).total == len(expected(ENDS[1])) - len(expected(ENDS[0]))


class ByHour:
    """Hour `n` ends where the log ended then; answers of later days are a little higher."""

    name, exact = "timeline", False

    def __init__(self, later: int = 0) -> None:
        self.later = later

    def offsets_at(self, instant: datetime) -> dict[str, int]:
        entries = (0, 11, 40, 50)[instant.hour] + self.later
        return dict.fromkeys(KEYS, 28 * entries)


@pytest.mark.parametrize("kind", ["parquet", "delta", "object_store", "jdbc"])
def test_hours_of_a_lake_that_is_not_mounted_are_not_written_to_the_disk_below(
    kind: str, tmp_path: Path
) -> None:
    """Nor are their boundaries fixed there: once the lake is back, they would be fixed twice. A
    group that goes to a new place, which is not there yet either, makes it."""
    open_sink, _, _ = SINKS[kind]
    journal = MemoryJournal()

    def run(place: str, hour: int, resolver: ByHour) -> WindowResult:
        sink = open_sink(tmp_path / place)
        planner = TimePlanner(
            WindowScope("c1", TOPIC, "g1", sink.identity),
            datetime(2026, 1, 1, hour, tzinfo=UTC),
            datetime(2026, 1, 1, hour + 1, tzinfo=UTC),
            resolver,
            lambda: ends_of(ENDS[2]),
            sink.boundaries,
        )
        store = MemoryOffsetStore(journal, task=f"{place}-{hour}")
        return window_run(planner, store, sink, InlineEngine(open_fake), attempt="a").run()

    (tmp_path / "mnt").mkdir()
    run("mnt", 0, ByHour())
    (tmp_path / "mnt").rename(tmp_path / "elsewhere")
    (tmp_path / "mnt").mkdir()
    with pytest.raises(
        SinkHistoryLost, match=r"window t-2026.* was written before, but .* mounted"
    ):
        run("mnt", 1, ByHour(later=3))
    assert not any((tmp_path / "mnt").iterdir())
    (tmp_path / "mnt").rmdir()
    (tmp_path / "elsewhere").rename(tmp_path / "mnt")
    assert run("mnt", 1, ByHour()).total == len(expected(ENDS[1])) - len(expected(ENDS[0]))
    (tmp_path / "new").mkdir()
    assert run("new", 0, ByHour()).total == len(expected(ENDS[0]))


@pytest.mark.parametrize("kind", SINKS)
def test_runs_that_die_are_made_good_by_the_next(kind: str, tmp_path: Path) -> None:
    open_sink, values, points = SINKS[kind]
    journal = MemoryJournal()

    def run(number: int, name: str, die_at: str = "") -> WindowResult:
        sink = open_sink(tmp_path)
        scope = WindowScope("c1", TOPIC, "g1", sink.identity)
        return window_run(
            CursorPlanner(scope, lambda: ends_of(ENDS[number]), initial_position="earliest"),
            MemoryOffsetStore(journal, task=name),
            sink,
            InlineEngine(open_fake, row_group_bytes=200),
            attempt=name,
            observer=DieAt(die_at),
        ).run()

    run(0, "first")
    before, after = points
    with pytest.raises(Died):
        run(1, "second", before)
    assert not run(1, "second").replayed
    with pytest.raises(Died):
        run(2, "third", after)
    found = run(2, "third")
    assert found.replayed
    assert found.exactly_once
    # Everything but the sink is lost: the next run finds its way along the markers.
    journal = MemoryJournal()
    assert run(2, "fourth").empty
    sink = open_sink(tmp_path)
    assert sorted(values(sink, tmp_path)) == expected(ENDS[-1])
    plans = [marker.plan for marker in published_windows(sink)]
    assert len(plans) == 3
    assert chain_problems(plans) == []
