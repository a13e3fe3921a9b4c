"""Files that are written where they stay: by tries that die anywhere, lose, or replace a window.

What a reader sees and what lies in the storage are both looked at: after `tidy` there is nothing
that no marker names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from deltalake.transaction import AddAction
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.conversions import from_bytes
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import SortOrder

from tests.provider.sinks.object_server import object_server
from tests.provider.sinks.openers import (
    delta,
    iceberg,
    iceberg_catalog,
    iceberg_in_place,
    object_store,
)
from tests.provider.sinks.windows import COUNTS, ignore, plan_of, publish, stage, told
from tests.provider.windows.fake_reader import KEYS, TOPIC, ends_of, expected, open_fake
from tubemq_provider.engines.inline import InlineEngine
from tubemq_provider.files.footers import fact_from_json, fact_to_json, inspect
from tubemq_provider.files.locations import LocalLocation, location_of
from tubemq_provider.files.staging import StagingArea
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.sinks.delta import DeltaSink
from tubemq_provider.sinks.delta.stats import stats_of
from tubemq_provider.sinks.iceberg import IcebergSink
from tubemq_provider.sinks.iceberg.files import data_file_of
from tubemq_provider.sinks.object_store import ObjectStoreSink
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.sinks.read import published_windows, read_windows
from tubemq_provider.sources.tubemq.columns import RECORDS
from tubemq_provider.testing.sink_suite import rows_of, written_by
from tubemq_provider.windows.errors import CountMismatch, StoreConflict
from tubemq_provider.windows.facts import FileFact
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.protocols import IngestCounts, IngestWatch, Sink, Staging, Step
from tubemq_provider.windows.run.kinds import window_run

InPlace = ObjectStoreSink | DeltaSink | IcebergSink
INGEST = ("staging ready", "row group written", "range written", "records written")
PUBLISH = {
    "objects": ("files verified", "files settled", "manifest written", "published"),
    "delta": ("files verified", "files in place", "marker staged", "committed", "confirmed"),
    "iceberg": ("files verified", "files in place", "marker staged", "committed", "confirmed"),
}


class Died(BaseException):
    """The process is gone: nothing of the run may catch this."""


@dataclass
class DieAt:
    """Dies at one point of writing or publishing."""

    point: str

    def at(self, step: Step, point: str) -> None:
        if step in (Step.INGEST, Step.PUBLISH) and point == self.point:
            raise Died


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, str]]:
    with object_server("place") as found:
        yield found


def values_of(sink: InPlace, options: dict[str, str]) -> list[bytes]:
    if isinstance(sink, ObjectStoreSink):
        return read_windows(sink).to_table()["value"].to_pylist()
    if isinstance(sink, DeltaSink):
        table = DeltaTable(sink.storage.url, storage_options=options)
        return table.to_pyarrow_table()["value"].to_pylist()
    return sink._existing_table().scan().to_arrow()["value"].to_pylist()


def data_in(sink: InPlace) -> set[str]:
    """All that lies where data files do."""
    return {*sink.storage.names("data" if isinstance(sink, ObjectStoreSink) else "windows")}


def named_in(sink: InPlace) -> set[str]:
    return {name for marker in published_windows(sink) for name in marker.files}


@pytest.fixture(params=["objects", "delta", "iceberg"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def open_sink(
    kind: str, tmp_path: Path, options: dict[str, str], request: pytest.FixtureRequest
) -> Callable[[], InPlace]:
    url = f"s3://place/{request.node.name}"
    if kind == "objects":
        return lambda: object_store(url, None, options)
    if kind == "delta":
        return lambda: delta(url, None, options)
    return lambda: iceberg_in_place(tmp_path / "iceberg")


def test_killed_anywhere_nothing_is_lost_doubled_or_left(
    kind: str, open_sink: Callable[[], InPlace], options: dict[str, str]
) -> None:
    journal = MemoryJournal()

    def run(number: int, name: str, die_at: str = "") -> None:
        sink = open_sink()
        ends = dict.fromkeys(KEYS, 28 * 8 * (number + 1))
        window_run(
            CursorPlanner(
                WindowScope("c1", TOPIC, "g1", sink.identity),
                lambda: ends_of(ends),
                initial_position="earliest",
            ),
            MemoryOffsetStore(journal, task=name),
            sink,
            InlineEngine(open_fake, row_group_bytes=100),
            attempt=name,
            observer=DieAt(die_at),
        ).run()

    points = (*INGEST, *PUBLISH[kind])
    for number, point in enumerate(points):
        with pytest.raises(Died):
            run(number, f"dies-{number}", point)
        run(number, f"dies-{number}")
    sink = open_sink()
    whole = expected(dict.fromkeys(KEYS, 28 * 8 * len(points)))
    assert sorted(values_of(sink, options)) == whole
    assert data_in(sink) == named_in(sink)


def test_a_try_that_is_overtaken_while_it_writes_leaves_nothing(
    open_sink: Callable[[], InPlace],
) -> None:
    slow, fast = open_sink(), open_sink()
    plan = plan_of(slow)
    staging = slow.begin(plan, "slow")
    stage(staging, "slow")
    counts = told(staging)
    assert publish(fast, plan, "fast").won
    fast.tidy(plan.window_id)
    assert not slow.publish(staging, plan, counts, ignore).won
    with suppress(FileNotFoundError):  # in a directory that is gone
        stage(staging, "late")  # a copy of a task that does not know
    slow.discard(staging)
    assert data_in(slow) == named_in(slow)


def test_files_of_tasks_that_were_tried_again_are_neither_read_nor_left(
    open_sink: Callable[[], InPlace], options: dict[str, str]
) -> None:
    sink = open_sink()
    plan = plan_of(sink)
    staging = sink.begin(plan, "a")
    stage(staging, "a")
    counts = told(staging)
    copy = location_of(staging).create("part-7-of-another-try.parquet")
    copy.stream.write(b"PAR1")
    copy.finish()
    assert sink.publish(staging, plan, counts, ignore).won
    assert len(values_of(sink, options)) == 3
    assert len(data_in(sink)) == 2
    sink.tidy(plan.window_id)
    sink.discard(staging)  # published files are never discarded
    assert len(values_of(sink, options)) == 3
    assert data_in(sink) == named_in(sink)


def test_other_bytes_under_the_same_name_are_noticed(options: dict[str, str]) -> None:
    sink = object_store("s3://place/other-bytes", None, options)
    plan = plan_of(sink)
    staging = sink.begin(plan, "a")
    stage(staging, "a")
    counts = told(staging)
    (fact,) = counts.files or ()
    again = location_of(staging).create(fact.path)
    again.stream.write(b"x" * fact.size)
    again.finish()
    with pytest.raises(CountMismatch, match="other bytes than were written"):
        sink.publish(staging, plan, counts, ignore)


@pytest.mark.parametrize("verify", ["facts", "footers"])
def test_footers_are_read_only_where_they_are_asked_for(verify: str, tmp_path: Path) -> None:
    """A writer that lies about its rows is believed, unless footers are read."""
    sinks: list[Sink] = [
        ParquetSink(tmp_path / "lake", verify=verify),  # type: ignore[arg-type]
        ObjectStoreSink(str(tmp_path / "objects"), verify=verify),  # type: ignore[arg-type]
        DeltaSink(tmp_path / "table", verify=verify),  # type: ignore[arg-type]
    ]
    for sink in sinks:
        plan = plan_of(sink)
        staging = sink.begin(plan, "a")
        stage(staging, "a")
        lies = {"1:0": 1, "1:1": 2}
        facts = tuple(replace(f, partitions=lies) for f in told(staging).files or ())
        counts = IngestCounts(lies, 21, files=facts)
        if verify == "facts":
            assert sink.publish(staging, plan, counts, ignore).won
        else:
            with pytest.raises(CountMismatch, match="were told"):
                sink.publish(staging, plan, counts, ignore)


def test_publishing_reads_no_byte_of_the_data(tmp_path: Path) -> None:
    """Files whose content is gone by then are published by what their writers said of them."""
    sink = ObjectStoreSink(str(tmp_path / "objects"))
    plan = plan_of(sink)
    staging = sink.begin(plan, "a")
    stage(staging, "a")
    counts = told(staging)
    for path in Path(staging.path).iterdir():
        path.write_bytes(b"\0" * path.stat().st_size)
    assert sink.publish(staging, plan, counts, ignore).marker.counts == COUNTS


def test_who_replaces_a_window_keeps_its_files_from_those_who_tidy(
    options: dict[str, str],
) -> None:
    sink, other = (object_store("s3://place/replaced", None, options) for _ in range(2))
    plan = plan_of(sink)
    publish(sink, plan, "old")
    staging = sink.begin(plan, "new")
    stage(staging, "new")
    other.tidy(plan.window_id)
    assert sink.replace(staging, plan, COUNTS, ignore).won
    assert rows_of(sink) == written_by("new")
    sink.tidy(plan.window_id)
    assert data_in(sink) == named_in(sink)
    first, second = sink.begin(plan, "first"), other.begin(plan, "second")
    for staging, who in ((first, "first"), (second, "second")):
        stage(staging, who)
    with pytest.raises(StoreConflict, match="begun to replace"):
        sink.replace(first, plan, COUNTS, ignore)
    assert other.replace(second, plan, COUNTS, ignore).won
    assert rows_of(sink) == written_by("second")


def test_windows_that_an_earlier_release_brought_in_are_found_and_kept(tmp_path: Path) -> None:
    """Files came from a local directory, under other names; what its tries left is tidied."""
    earlier = [
        object_store(str(tmp_path / "objects"), tmp_path / "staging"),
        delta(str(tmp_path / "table"), tmp_path / "staging"),
        iceberg(tmp_path / "iceberg"),
    ]
    now: list[InPlace] = [
        object_store(str(tmp_path / "objects")),
        delta(str(tmp_path / "table")),
        iceberg_in_place(tmp_path / "iceberg"),
    ]
    for before, sink in zip(earlier, now, strict=True):
        plan = plan_of(sink)
        assert publish(before, plan, "before").won
        left = StagingArea.of_machine(sink.identity).begin(plan, "dead")
        assert not publish(sink, plan, "now").won
        sink.tidy(plan.window_id)
        assert data_in(sink) == named_in(sink)
        assert (Path(left.path).exists()) is isinstance(sink, DeltaSink)  # staged in the table
        assert publish(sink, plan_of(sink, 2), "next").won
        assert len(values_of(sink, {})) == 6


def written_by_inline(sink: Sink) -> tuple[WindowPlan, Staging, IngestCounts]:
    plan = WindowPlan.cursor(
        WindowScope("c1", TOPIC, "g1", sink.identity), 1, dict.fromkeys(KEYS, (0, 28 * 60))
    )
    staging = sink.begin(plan, "a")
    return (
        plan,
        staging,
        InlineEngine(open_fake, row_group_bytes=300).ingest(plan, staging, IngestWatch()),
    )


def test_what_iceberg_gets_from_facts_is_what_footers_say(tmp_path: Path) -> None:
    from pyiceberg.io.pyarrow import parquet_file_to_data_file

    sink = iceberg_in_place(tmp_path / "iceberg")
    plan, staging, counts = written_by_inline(sink)
    assert sink.publish(staging, plan, counts, ignore).won
    catalog: SqlCatalog = iceberg_catalog(tmp_path / "iceberg")
    table = catalog.load_table("sales.orders")
    assert [field.name for field in table.schema().fields] == list(RECORDS.names)
    assert counts.files
    for fact in counts.files:
        path = f"file://{staging.path}/{fact.path}"
        footer = parquet_file_to_data_file(table.io, table.metadata, path)
        ours = data_file_of(table.metadata, path, fact)
        for name in (
            "record_count",
            "file_size_in_bytes",
            "column_sizes",
            "value_counts",
            "null_value_counts",
            "lower_bounds",
            "upper_bounds",
            "split_offsets",
        ):
            assert getattr(ours, name) == getattr(footer, name), name
        assert len(fact.splits) > 1
    metrics = table.inspect.files().to_pydict()["readable_metrics"][0]
    assert 0 <= metrics["offset"]["lower_bound"] < metrics["offset"]["upper_bound"] < 28 * 60


def logical_values(root: Path) -> tuple[pa.Table, FileFact]:
    """Return a file as Spark writes it, whose decimals are integers, and its facts."""
    two, last = [Decimal("12.34"), Decimal("20.00")], datetime.max.replace(tzinfo=UTC)
    table = pa.table(
        {
            "amount": pa.array(two, pa.decimal128(9, 2)),
            "total": pa.array(two, pa.decimal128(18, 2)),
            "day": [date(2026, 1, 1), date(2026, 1, 2)],
            "until": pa.array([last, last], pa.timestamp("us", "UTC")),
            "far": pa.array([0, 2**60]).cast(pa.timestamp("us", "UTC")),
            "name": ["a" * 80, "b"],
            "share": [0.5, 1.0],
            "count": [3, 4],
        }
    )
    pq.write_table(table, root / "a.parquet", store_decimal_as_integer=True)
    location = LocalLocation(root)
    return table, inspect(location, "a.parquet", location.stored()["a.parquet"])


def test_values_that_are_stored_as_integers_are_found_in_delta(tmp_path: Path) -> None:
    table, fact = logical_values(tmp_path)
    assert fact.leaves["amount"].physical == "INT32"
    empty = DeltaTable.create(str(tmp_path), schema=table.schema)
    added = AddAction(fact.path, fact.size, {}, 0, True, stats_of(fact))
    empty.create_write_transaction([added], mode="append", schema=empty.schema())
    found = DeltaTable(tmp_path)
    for field in table.schema:
        value = pa.scalar(table[field.name][0].as_py(), field.type)
        rows = found.to_pyarrow_dataset().to_table(filter=ds.field(field.name) <= value)
        assert rows.num_rows >= 1, field.name
    counted = QueryBuilder().register("t", found).execute("SELECT * FROM t WHERE amount < 100")
    assert len(pa.table(counted.read_all())) == 2


def test_iceberg_gets_decimals_as_decimals(tmp_path: Path) -> None:
    table, fact = logical_values(tmp_path)
    schema = _pyarrow_to_schema_without_ids(table.schema)
    fresh = new_table_metadata(schema, PartitionSpec(), SortOrder(), str(tmp_path))
    ours = data_file_of(fresh, "file:///a.parquet", fact_from_json(fact_to_json(fact)))
    for field in fresh.schema().fields:
        if field.name in {"amount", "total"}:
            bounds = (ours.lower_bounds[field.field_id], ours.upper_bounds[field.field_id])
            found = [from_bytes(field.field_type, bound) for bound in bounds]
            assert found == [Decimal("12.34"), Decimal("20.00")]


def test_delta_gets_bounds_by_which_readers_skip_files(tmp_path: Path) -> None:
    sink = delta(str(tmp_path / "table"))
    plan, staging, counts = written_by_inline(sink)
    assert sink.publish(staging, plan, counts, ignore).won
    table = DeltaTable(tmp_path / "table")
    actions = table.get_add_actions(flatten=True)
    found = {name: actions[name].to_pylist() for name in actions.schema.names}
    for at, rows in enumerate(found["num_records"]):
        assert found["min.partition"][at] == found["max.partition"][at]
        assert found["null_count.value"][at] == 0
        key, start = found["min.partition"][at], found["min.offset"][at]
        mine = table.to_pyarrow_table(filters=[("partition", "=", key), ("topic", "=", TOPIC)])
        assert mine.num_rows == rows
        assert (min(mine["offset"].to_pylist()), max(mine["offset"].to_pylist())) == (
            start,
            found["max.offset"][at],
        )
