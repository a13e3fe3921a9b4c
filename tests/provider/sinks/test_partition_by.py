"""Files that are partitioned by columns: written, published, and read by other readers.

Whatever the values are, a reader gets the rows that were written, and a filter loses none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.expressions import AlwaysTrue, EqualTo, GreaterThanOrEqual, IsNull

from tests.provider.sinks.object_server import object_server
from tests.provider.sinks.openers import iceberg_catalog
from tests.provider.sinks.partitioned import ROWS, SCHEMA, TEXTS, write
from tests.provider.sinks.windows import COUNTS, ignore, plan_of, stage
from tests.provider.windows.fake_reader import KEYS, TOPIC, ends_of, expected, open_fake
from tubemq_client.errors import ConfigError
from tubemq_provider.engines.inline import InlineEngine
from tubemq_provider.files import partitioned
from tubemq_provider.files.locations import LocalLocation
from tubemq_provider.files.partitioned import folder_of, staged_writer
from tubemq_provider.files.writer import with_file_parts
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.sinks.delta import DeltaSink
from tubemq_provider.sinks.iceberg import IcebergSink
from tubemq_provider.sinks.object_store import ObjectStoreSink
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.sinks.read import published_windows, read_windows
from tubemq_provider.windows.partitioning import PartitionBy
from tubemq_provider.windows.plan import WindowScope
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.protocols import Step
from tubemq_provider.windows.run.kinds import window_run

FileSink = ParquetSink | ObjectStoreSink | DeltaSink | IcebergSink
OpenSink = Callable[..., FileSink]


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, str]]:
    with object_server("apart") as found:
        yield found


@pytest.fixture(params=["parquet", "objects", "delta", "iceberg"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def open_sink(kind: str, tmp_path: Path, options: dict[str, str]) -> OpenSink:
    url = f"s3://apart/{tmp_path.name}"
    makers: dict[str, OpenSink] = {
        "parquet": lambda **given: ParquetSink(tmp_path / "lake", **given),
        "objects": lambda **given: ObjectStoreSink(url, storage_options=options, **given),
        "delta": lambda **given: DeltaSink(tmp_path / "table", **given),
        "iceberg": lambda **given: IcebergSink(
            "sales.orders", catalog=iceberg_catalog(tmp_path / "iceberg"), **given
        ),
    }
    return makers[kind]


def table_of(sink: FileSink) -> pa.Table:
    if isinstance(sink, DeltaSink):
        return DeltaTable(sink.storage.url).to_pyarrow_table()
    if isinstance(sink, IcebergSink):
        return sink._existing_table().scan().to_arrow()
    return read_windows(sink).to_table()


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.select(SCHEMA.names).to_pylist(), key=lambda row: row["id"])


BYS = [
    ["country"],
    ["number", "flag", "on"],
    ["day(at)", "country"],
    ["hour(at)"],
    ["partition"],
]


@pytest.mark.parametrize("by", BYS, ids=str)
def test_what_went_in_comes_out(open_sink: OpenSink, by: list[str]) -> None:
    sink = open_sink(partition_by=by, verify="footers")
    write(sink, 1, ROWS)
    write(sink, 2, [{**row, "id": row["id"] + 100} for row in ROWS])
    table = table_of(open_sink(partition_by=by))
    expected = [*ROWS, *({**row, "id": row["id"] + 100} for row in ROWS)]
    assert rows_of(table) == expected
    assert [table.schema.field(name).type for name in SCHEMA.names] == SCHEMA.types


def filtered(sink: FileSink, column: str, value: Any) -> set[int]:
    """Read the rows with a value, through the reader's own pruning."""
    if isinstance(sink, IcebergSink):
        wanted = IsNull(column) if value is None else EqualTo(column, value)
        found = sink._existing_table().scan(row_filter=wanted).to_arrow()
        return set(found["id"].to_pylist())
    place = pc.field(column)
    wanted = place.is_null() if value is None else place == pa.scalar(value, _type(column))
    if isinstance(sink, DeltaSink):
        dataset = DeltaTable(sink.storage.url).to_pyarrow_dataset()
        return set(dataset.to_table(filter=wanted)["id"].to_pylist())
    return set(read_windows(sink).to_table(filter=wanted)["id"].to_pylist())


def _type(column: str) -> pa.DataType:
    return SCHEMA.field(column).type


@pytest.mark.parametrize("column", ["country", "number", "flag", "on"])
def test_a_filter_on_a_partition_column_loses_nothing(open_sink: OpenSink, column: str) -> None:
    sink = open_sink(partition_by=[column])
    write(sink, 1, ROWS)
    for value in {row[column] for row in ROWS}:
        expected = {row["id"] for row in ROWS if row[column] == value}
        assert filtered(sink, column, value) == expected, value
    assert filtered(sink, "id", 7) == {7}


@pytest.mark.parametrize(
    ("by", "grown", "remote"),
    [*((by, False, False) for by in BYS), (["day(at)", "country"], True, False)]
    + [(["country"], grown, True) for grown in (False, True)],
    ids=str,
)
def test_delta_readers_that_go_by_paths_get_values_and_not_nulls(
    by: list[str], grown: bool, remote: bool, tmp_path: Path, options: dict[str, str]
) -> None:
    """polars takes partition values from names of folders and not from the log. `grown`: the commit
    is written by the sink and not by deltalake, which escapes paths."""
    url = f"s3://apart/{tmp_path.name}/table" if remote else str(tmp_path / "table")
    said = {"storage_options": options} if remote else {}
    sink = DeltaSink(url, partition_by=by, schema_evolution="add_columns", **said)
    write(sink, 1, ROWS)
    rows, schema = ROWS, SCHEMA
    if grown:
        schema = SCHEMA.append(pa.field("more", pa.int64()))
        rows = [{**row, "more": 1} for row in ROWS]
    write(sink, 2, [{**row, "id": row["id"] + 100} for row in rows], schema)
    wanted = [*ROWS, *({**row, "id": row["id"] + 100} for row in ROWS)]
    table = DeltaTable(url, storage_options=options if remote else None)
    assert rows_of(table.to_pyarrow_table()) == wanted
    by_path = {f"aws_{key}": value for key, value in options.items()}
    scanned = pl.scan_delta(url, storage_options=by_path if remote else None)
    assert rows_of(scanned.collect().to_arrow()) == wanted
    for name in (name for name in by if name in SCHEMA.names):
        for value in {row[name] for row in ROWS}:
            column = pl.col(name)
            filtered = scanned.filter(column.is_null() if value is None else column == value)
            ids = {row["id"] for row in wanted if row[name] == value}
            assert set(filtered.collect()["id"]) == ids, value


def test_a_delta_table_with_files_of_earlier_releases_takes_new_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of earlier releases are not in folders: the log has their values."""
    sink = DeltaSink(tmp_path / "table", partition_by=["country"])
    with monkeypatch.context() as patched:
        patched.setattr(partitioned.PartitionedWriter, "_begun", _begun_without_folders)
        write(sink, 1, ROWS)
    write(
        DeltaSink(tmp_path / "table", partition_by=["country"]),
        2,
        [{**row, "id": row["id"] + 100} for row in ROWS],
    )
    paths = DeltaTable(tmp_path / "table").file_uris()
    assert {"country=" in path for path in paths} == {True, False}
    wanted = [*ROWS, *({**row, "id": row["id"] + 100} for row in ROWS)]
    assert rows_of(DeltaTable(tmp_path / "table").to_pyarrow_table()) == wanted
    assert len(published_windows(sink)) == 2


_begun = partitioned.PartitionedWriter._begun


def _begun_without_folders(writer: Any, values: Any) -> Any:
    found = _begun(writer, values)
    found.folder = ""
    return found


def test_delta_readers_that_prune_by_sql_see_all_rows(tmp_path: Path) -> None:
    sink = DeltaSink(tmp_path / "table", partition_by=["country", "day(at)"])
    write(sink, 1, ROWS)
    table = DeltaTable(tmp_path / "table")
    assert table.metadata().partition_columns == ["country", "at_day"]

    def ids(where: str) -> set[int]:
        builder = QueryBuilder().register("t", table)
        found = pa.table(builder.execute(f"SELECT id FROM t WHERE {where}"))
        return set(found["id"].to_pylist())

    assert ids("country = 'a/b'") == {0, 10}
    assert ids("country IS NULL") == {9, 19}
    assert ids("at_day = DATE '2026-11-22'") == {*range(20)} - {6}
    assert ids("at >= TIMESTAMP '2026-11-22T23:00:00Z'") == {*range(1, 20, 2)}
    assert ids("id > 15 AND number IS NOT NULL") == {16, 17, 18, 19}
    assert {tuple(sorted(f.items())) for f in table.partitions()} == {
        tuple(sorted({"country": t, "at_day": None if none else "2026-11-22"}.items()))
        for t, none in [*((t, False) for t in TEXTS), (TEXTS[6], True)]
    }


def test_iceberg_filters_on_instants_use_hidden_partitions(tmp_path: Path) -> None:
    catalog = iceberg_catalog(tmp_path / "iceberg")
    sink = IcebergSink("sales.orders", catalog=catalog, partition_by=["hour(at)", "flag"])
    write(sink, 1, ROWS)
    table = catalog.load_table("sales.orders")
    assert [str(field.transform) for field in table.spec().fields] == ["hour", "identity"]
    late = GreaterThanOrEqual("at", "2026-11-22T23:00:00+00:00")
    assert set(table.scan(row_filter=late).to_arrow()["id"].to_pylist()) == {*range(1, 20, 2)}
    assert len(list(table.scan(row_filter=late).plan_files())) < len(
        list(table.scan(row_filter=AlwaysTrue()).plan_files())
    )
    hours = {row["partition"]["at_hour"] for row in table.inspect.partitions().to_pylist()}
    first = datetime(2026, 11, 22, 22, tzinfo=UTC).timestamp() // 3600
    assert hours == {first, first + 1, None}


def test_folders_are_those_of_hive_for_other_readers(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    write(ParquetSink(lake, partition_by=["country", "day(at)"]), 1, ROWS)
    found = duckdb.sql(
        f"SELECT country, at_day, id FROM read_parquet('{lake}/**/*.parquet', "
        f"hive_partitioning = true) ORDER BY id"
    ).fetchall()
    assert [row[0] for row in found] == [row["country"] for row in ROWS]
    assert {row[1] for row in found} == {date(2026, 11, 22), None}
    plain = pq.read_table(lake)
    assert sorted(plain["id"].to_pylist()) == [row["id"] for row in ROWS]


def test_partition_columns_may_change_from_window_to_window(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    for seq, by in enumerate([(), ("country",), ("day(at)",), ("number", "country")], 1):
        rows = [{**row, "id": row["id"] + 100 * seq} for row in ROWS]
        write(ParquetSink(lake, partition_by=by), seq, rows)
    table = read_windows(lake).to_table()
    assert [row["country"] for row in rows_of(table)] == [row["country"] for row in ROWS] * 4
    assert [row["number"] for row in rows_of(table)] == [row["number"] for row in ROWS] * 4


class Died(BaseException):
    """The process is gone."""


class DieAt:
    def __init__(self, point: str) -> None:
        self.point = point

    def at(self, step: Step, point: str) -> None:
        if step in (Step.INGEST, Step.PUBLISH) and point == self.point:
            raise Died


POINTS = {
    "parquet": ("row group written", "files verified", "marker staged", "renamed"),
    "objects": ("row group written", "files settled", "manifest written"),
    "delta": ("row group written", "files in place", "marker staged", "committed"),
    "iceberg": ("row group written", "files in place", "marker staged", "committed"),
}


def test_killed_anywhere_nothing_is_lost_doubled_or_left(kind: str, open_sink: OpenSink) -> None:
    """The inline engine with null instants and partition keys as partitions."""
    journal = MemoryJournal()

    def run(number: int, name: str, die_at: str = "") -> None:
        sink = open_sink(partition_by=["partition", "day(msg_time)"])
        ends = dict.fromkeys(KEYS, 28 * 4 * (number + 1))
        window_run(
            CursorPlanner(
                WindowScope("c1", TOPIC, "g1", sink.identity),
                lambda: ends_of(ends),
                initial_position="earliest",
            ),
            MemoryOffsetStore(journal, task=name),
            sink,
            InlineEngine(open_fake, row_group_bytes=1),
            attempt=name,
            observer=DieAt(die_at),
        ).run()

    run(0, "first")
    for number, point in enumerate(POINTS[kind], start=1):
        with suppress(Died):
            run(number, f"dies-{number}", point)
        run(number, f"again-{number}")
    sink = open_sink(partition_by=["partition", "day(msg_time)"])
    ends = dict.fromkeys(KEYS, 28 * 4 * (len(POINTS[kind]) + 1))
    assert sorted(table_of(sink)["value"].to_pylist()) == expected(ends)
    if not isinstance(sink, ParquetSink):
        data = "data" if isinstance(sink, ObjectStoreSink) else "windows"
        named = {name for marker in published_windows(sink) for name in marker.files}
        assert {*sink.storage.names(data)} == named
    for marker in published_windows(sink):
        if isinstance(sink, ParquetSink | ObjectStoreSink):
            assert dict(sink.recount(marker)) == {
                key: rows for key, rows in marker.counts.records.items() if rows
            }


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_an_empty_first_window_leaves_the_partitions_to_the_next(open_sink: OpenSink) -> None:
    by = ["country", "day(at)"]
    sink = open_sink(partition_by=by)
    write(sink, 1, [])
    write(open_sink(partition_by=by), 2, ROWS)
    write(open_sink(partition_by=by), 3, [{**row, "id": row["id"] + 100} for row in ROWS])
    expected = [*ROWS, *({**row, "id": row["id"] + 100} for row in ROWS)]
    assert rows_of(table_of(sink)) == expected
    if isinstance(sink, DeltaSink):
        assert DeltaTable(sink.storage.url).metadata().partition_columns == ["country", "at_day"]
    for seq in (1, 2, 3):
        assert open_sink(partition_by=by).marker(plan_of(sink, seq).window_id) is not None


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_new_column_leaves_partitions_as_they_are(open_sink: OpenSink) -> None:
    """The commit that adds a column says what the files of its window share."""
    by = ["country"]
    write(open_sink(partition_by=by), 1, ROWS)
    schema = SCHEMA.append(pa.field("𠮷", pa.int64()))
    rows = [{**row, "id": row["id"] + 100, "𠮷": row["id"]} for row in ROWS]
    write(open_sink(partition_by=by, schema_evolution="add_columns"), 2, rows, schema)
    table = table_of(open_sink(partition_by=by))
    assert rows_of(table)[len(ROWS) :] == [{**row, "id": row["id"] + 100} for row in ROWS]
    assert table["𠮷"].null_count == len(ROWS)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_that_is_partitioned_otherwise_is_refused(open_sink: OpenSink) -> None:
    write(open_sink(partition_by=["country"]), 1, ROWS)
    for by in ((), ("number",), ("country", "number")):
        if not by and isinstance(open_sink(), IcebergSink):
            continue  # footers may tell it
        with pytest.raises(ConfigError, match=r"partitioned by country.*partition_by"):
            write(open_sink(partition_by=by), 2, ROWS)
    assert len(table_of(open_sink())) == len(ROWS)


def test_a_table_without_partitions_takes_none(tmp_path: Path) -> None:
    write(DeltaSink(tmp_path / "t"), 1, ROWS)
    with pytest.raises(ConfigError, match="no partition columns"):
        write(DeltaSink(tmp_path / "t", partition_by=["country"]), 2, ROWS)


def test_an_engine_that_does_not_know_of_partitions_is_refused(open_sink: OpenSink) -> None:
    sink = open_sink(partition_by=["partition"])
    plan = plan_of(sink)
    staging = sink.begin(plan, "a")
    stage(staging, "a")
    with pytest.raises(ConfigError, match="not written apart by partition"):
        sink.publish(staging, plan, COUNTS, ignore)


@pytest.mark.parametrize("text", ["", partitioned.NULL_FOLDER])
def test_texts_that_readers_take_for_null_are_refused(
    kind: str, open_sink: OpenSink, text: str
) -> None:
    sink = open_sink(partition_by=["country"])
    rows = [{**row, "country": text} for row in ROWS]
    if kind == "iceberg":
        write(sink, 1, rows)
        assert filtered(sink, "country", text) == {*range(20)}
        return
    with pytest.raises(ConfigError, match=r"cannot tell from null.*decode or transform"):
        write(sink, 1, rows)


def test_too_many_partitions_are_refused_with_the_option(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"more than 19 partitions.*raise max_partitions"):
        write(ParquetSink(tmp_path / "few", partition_by=["id"], max_partitions=19), 1, ROWS)
    write(ParquetSink(tmp_path / "lake", partition_by=["id"], max_partitions=20), 1, ROWS)
    assert rows_of(read_windows(tmp_path / "lake").to_table()) == ROWS


def test_open_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions that take turns: a file that was closed for another one is followed by a second,
    and rows that wait for their file keep their order."""
    monkeypatch.setattr(partitioned, "_OPEN_FILES", 2)
    by = PartitionBy.of(["number"], "values")
    assert by is not None
    location = LocalLocation(tmp_path)
    rows = [{**row, "number": index % 5} for index, row in enumerate(ROWS)]
    writer = staged_writer(location, "part", SCHEMA, by, row_group_bytes=1)
    with writer:
        for row in rows:
            writer.add(pa.RecordBatch.from_pylist([row], SCHEMA), 0)
    assert len(writer.files) == 20
    assert sum(file.rows for file in writer.files) == 20
    told = with_file_parts(writer.files, writer.pieces)
    assert {key: n for f in told for key, n in (f.partitions or {}).items()} == {"1:0": 1, "1:1": 1}


@pytest.mark.parametrize(
    ("by", "value", "type_"),
    [
        (f"{unit}(value)", instant, pa.timestamp("us", tz="UTC"))
        for unit in ("day", "hour")
        for instant in (253_402_300_800_000_000, -62_135_596_800_000_001)
    ]
    + [("value", 2_932_897, pa.date32()), ("value", 2**31, pa.uint32())],
    ids=str,
)
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_value_that_no_reader_can_parse_does_not_spoil_the_table(
    open_sink: OpenSink, by: str, value: int, type_: pa.DataType
) -> None:
    schema = pa.schema([("partition", pa.string()), ("value", type_), ("id", pa.int64())])
    row = {"partition": "1:0", "value": 5, "id": 1}
    write(open_sink(partition_by=[by]), 1, [row], schema)
    with pytest.raises(ConfigError, match=r"partition 'value.*leave .*out of partition_by"):
        write(open_sink(partition_by=[by]), 2, [{**row, "value": value}], schema)
    write(open_sink(partition_by=[by]), 3, [row], schema)
    assert len(table_of(open_sink(partition_by=[by]))) == 2


def test_instants_out_of_reach_make_no_folder(tmp_path: Path) -> None:
    schema = pa.schema([("partition", pa.string()), ("at", pa.timestamp("us"))])
    sink = ParquetSink(tmp_path / "lake", partition_by=["day(at)"])
    with pytest.raises(ConfigError, match="readers know the years 0001 to 9999"):
        write(sink, 1, [{"partition": "1:0", "at": 253_402_300_800_000_000}], schema)
    assert published_windows(sink) == []


def test_rows_that_wait_keep_no_others_in_memory(tmp_path: Path) -> None:
    schema = pa.schema(
        [(n, pa.string()) for n in ("partition", "country")] + [("body", pa.binary())]
    )
    by, before = PartitionBy.of(["country"], "values"), pa.total_allocated_bytes()
    with staged_writer(LocalLocation(tmp_path), "p", schema, by, row_group_bytes=1 << 20) as writer:
        for index in range(32):
            columns = [["1:0"] * 1000, ["many"] * 999 + [f"few {index}"], [b"x" * 1000] * 1000]
            writer.add(pa.record_batch(columns, schema=schema), 0)
        held = pa.total_allocated_bytes() - before
    assert held < 8 << 20, "of 32 MB, 32 rows wait and at most a row group of the others"


@pytest.mark.parametrize(
    ("by", "said"),
    [
        (["nowhere"], "there is no column 'nowhere', only partition, country"),
        (["at"], r"at: at is timestamp.*day\(…\)"),
        (["day(country)"], "instants have days and hours"),
        ([*SCHEMA.names[:5], "id", "at"], "at: at is timestamp"),
    ],
)
def test_columns_are_checked_before_anything_is_read(
    by: list[str], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=said):
        staged_writer(LocalLocation(tmp_path), "p", SCHEMA, PartitionBy.of(by, "folders"))


@pytest.mark.parametrize(
    ("by", "said"),
    [
        (["week(at)"], "neither a column nor day"),
        (["a", "a"], "a is named twice"),
        (["day(a)", "a_day"], "a_day is named twice"),
    ],
)
def test_partition_columns_are_checked_where_they_are_given(by: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        PartitionBy.of(by, "folders")


@pytest.mark.parametrize(("by", "called"), [("_type", "_type"), ("day(.at)", ".at_day")])
@pytest.mark.parametrize("kind", ["parquet", "objects"])
def test_folders_that_readers_skip_are_refused(open_sink: OpenSink, by: str, called: str) -> None:
    with pytest.raises(ConfigError, match=rf"{called} would be the name of a folder.*rename"):
        open_sink(partition_by=[by])


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_tables_are_partitioned_by_columns_of_any_name(open_sink: OpenSink) -> None:
    schema = pa.schema([("partition", pa.string()), ("_type", pa.string()), ("id", pa.int64())])
    write(
        open_sink(partition_by=["_type"]), 1, [{"partition": "1:0", "_type": "x", "id": 1}], schema
    )
    assert table_of(open_sink(partition_by=["_type"]))["_type"].to_pylist() == ["x"]


def test_a_folder_is_called_as_spark_calls_it() -> None:
    assert folder_of("a", "x/y=ü 1%") == "a=x%2Fy%3Dü 1%25"
    assert folder_of("a", None) == "a=__HIVE_DEFAULT_PARTITION__"


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_instants_before_1970_are_of_the_day_that_they_are_in(
    zone: str | None, tmp_path: Path
) -> None:
    least = -(2**63) + 1
    schema = pa.schema([("partition", pa.string()), ("at", pa.timestamp("ns", zone))])
    days = {-1: "1969-12-31", -1000: "1969-12-31", 0: "1970-01-01", least: "1677-09-21"}
    by = PartitionBy.of(["day(at)"], "folders")
    with staged_writer(LocalLocation(tmp_path), "p", schema, by) as writer:
        columns = [pa.array(["1:0"] * len(days)), pa.array([*days], pa.int64())]
        columns[1] = columns[1].cast(schema.field("at").type)
        writer.add(pa.record_batch(columns, schema=schema), 0)
    found = {file.keys[0][2]: file.rows for file in writer.files}
    assert found == {"1969-12-31": 2, "1970-01-01": 1, "1677-09-21": 1}


@pytest.mark.parametrize("by", [[], ["country"], ["day(at)"]], ids=str)
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_an_empty_first_window_leaves_instants_without_a_zone_to_the_next(
    open_sink: OpenSink, by: list[str]
) -> None:
    schema = pa.schema(
        [
            ("partition", pa.string()),
            ("country", pa.string()),
            ("at", pa.timestamp("us")),
            ("id", pa.int64()),
        ]
    )
    row = {"partition": "1:0", "country": "a", "at": datetime(2026, 11, 22, 23), "id": 1}  # noqa: DTZ001 - it has none
    write(open_sink(partition_by=by), 1, [])
    write(open_sink(partition_by=by), 2, [row], schema)
    write(open_sink(partition_by=by), 3, [{**row, "id": 2}], schema)
    found = table_of(open_sink(partition_by=by)).select(["id", "at"])
    assert sorted(found.to_pylist(), key=lambda got: got["id"]) == [
        {"id": number, "at": row["at"]} for number in (1, 2)
    ]
