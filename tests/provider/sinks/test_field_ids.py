"""Iceberg finds columns by number: files have the numbers of the table's columns.

Readers that know no name mapping read them, and a column that was dropped and added again has none
of the old values.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table
from pyiceberg.types import StringType

from tests.provider.sinks.openers import iceberg_catalog
from tests.provider.sinks.partitioned import ROWS, SCHEMA, write
from tests.provider.sinks.windows import ignore, plan_of
from tubemq_client.errors import ConfigError
from tubemq_provider.files.field_ids import ids_in, with_field_ids
from tubemq_provider.files.footers import arrow_schema_of
from tubemq_provider.files.locations import location_of
from tubemq_provider.files.partitioned import staged_writer
from tubemq_provider.files.writer import with_file_parts
from tubemq_provider.sinks._table_sink import TableChanged
from tubemq_provider.sinks.iceberg import IcebergSink, history
from tubemq_provider.sinks.read import published_windows
from tubemq_provider.windows.field_ids import FieldIds
from tubemq_provider.windows.protocols import IngestCounts, Publication, Staging

OpenSink = Callable[..., IcebergSink]
INSTANT = datetime(2026, 11, 22, tzinfo=UTC)
NESTED: dict[str, pa.Array] = {
    "id": pa.array([1, 2, 3], pa.int64()),
    "place": pa.array(
        [{"city": "a", "at": {"x": 1, "y": [1, 2]}}, None, {"city": None, "at": None}],
        pa.struct(
            [
                ("city", pa.string()),
                ("at", pa.struct([("x", pa.int64()), ("y", pa.list_(pa.int32()))])),
            ]
        ),
    ),
    "tags": pa.array(
        [[{"k": "a", "n": 1}], [], []],
        pa.list_(pa.struct([("k", pa.string()), ("n", pa.int64())])),
    ),
    "attributes": pa.array(
        [[("a", [1])], None, [("b", None)]], pa.map_(pa.string(), pa.list_(pa.int64()))
    ),
}


@pytest.fixture(params=["in place", "staged"])
def open_sink(request: pytest.FixtureRequest, tmp_path: Path) -> OpenSink:
    root = tmp_path / "iceberg"
    local = {"staging_root": tmp_path / "staging"} if request.param == "staged" else {}
    return lambda **given: IcebergSink(
        "sales.orders", catalog=iceberg_catalog(root), **local, **given
    )


@pytest.fixture
def in_place(tmp_path: Path) -> OpenSink:
    catalog = iceberg_catalog(tmp_path / "iceberg")
    return lambda **given: IcebergSink("sales.orders", catalog=catalog, **given)


def begun(sink: IcebergSink, seq: int, columns: dict[str, Any]) -> tuple[Staging, IngestCounts]:
    """Write the files of a try as an engine does: three records."""
    plan = plan_of(sink, seq)
    staging = sink.begin(plan, "a")
    batch = pa.RecordBatch.from_pydict({"partition": ["1:0", "1:0", "1:1"], **columns})
    pieces: dict[str, list[list[int]]] = {}
    with staged_writer(
        location_of(staging), "part", batch.schema, staging.partition_by, staging.field_ids
    ) as writer:
        for range_, at, count in zip(plan.reads(), (0, 2), (2, 1), strict=True):
            writer.begin_range(range_)
            writer.add(batch.slice(at, count), 1, range_.start)
            writer.end_range()
            pieces[range_.partition.key] = [[range_.start, range_.end]]
    files = with_file_parts(writer.files, writer.pieces)
    return staging, IngestCounts({"1:0": 2, "1:1": 1}, 2, pieces=pieces, files=files)


def publish(sink: IcebergSink, seq: int, columns: dict[str, Any]) -> Publication:
    staging, counts = begun(sink, seq, columns)
    return sink.publish(staging, plan_of(sink, seq), counts, ignore)


def table_of(sink: IcebergSink) -> Table:
    return sink._existing_table()


def without_mapping(sink: IcebergSink) -> pa.Table:
    """Read the table without name mapping."""
    table = table_of(sink)
    with table.transaction() as change:
        change.remove_properties("schema.name-mapping.default")
    return table_of(sink).scan().to_arrow()


def test_files_have_the_numbers_of_the_tables_columns(open_sink: OpenSink, tmp_path: Path) -> None:
    assert publish(open_sink(), 1, NESTED).won
    assert publish(open_sink(), 2, NESTED).won
    table = table_of(open_sink())
    schema = table.schema()
    wanted = {path: schema.find_field(path).field_id for path in schema.column_names}
    files = [
        Path(task.file.file_path.removeprefix("file://")) for task in table.scan().plan_files()
    ]
    assert len(files) == 4
    for file in files:
        assert ids_in(pq.read_schema(file)) == wanted
    found = without_mapping(open_sink())
    for name, values in NESTED.items():
        assert found[name].to_pylist() == values.to_pylist() * 2


def test_partitioned_files_have_field_ids(tmp_path: Path) -> None:
    sink = IcebergSink(
        "sales.orders", catalog=iceberg_catalog(tmp_path / "i"), partition_by=["country", "day(at)"]
    )
    plan = plan_of(sink, 1)
    write(sink, 1, ROWS)
    assert sink.marker(plan.window_id) is not None
    assert table_of(sink).scan().to_arrow().num_rows == len(ROWS)
    assert sorted(table_of(sink).schema().column_names) == sorted(SCHEMA.names)


@pytest.mark.parametrize("numbered", [True, False])
def test_a_table_of_an_earlier_release_takes_new_windows(
    open_sink: OpenSink, numbered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files have no numbers, and its name mapping leads to their columns."""
    with monkeypatch.context() as patched:
        patched.setattr(
            "tubemq_provider.files.partitioned.with_field_ids", lambda schema, _: schema
        )
        assert publish(open_sink(), 1, NESTED).won
    assert table_of(open_sink()).name_mapping() is not None
    more = {**NESTED, "more": pa.array(["x", "y", None])}
    assert publish(open_sink(schema_evolution="add_columns"), 2, more if numbered else NESTED).won
    found = table_of(open_sink()).scan().to_arrow()
    for name, values in NESTED.items():
        assert found[name].to_pylist() == values.to_pylist() * 2
    if numbered:
        assert sorted(found["more"].to_pylist(), key=str) == [None, None, None, None, "x", "y"]


def test_a_column_that_was_dropped_and_added_again_has_no_old_values(open_sink: OpenSink) -> None:
    columns = {"id": [1, 2, 3], "note": ["a", "b", "c"]}
    assert publish(open_sink(), 1, columns).won
    with table_of(open_sink()).update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("note")
    with table_of(open_sink()).update_schema() as update:
        update.add_column("note", StringType())
    assert publish(open_sink(), 2, {"id": [4, 5, 6], "note": ["d", "e", "f"]}).won
    rows = table_of(open_sink()).scan().to_arrow().select(["id", "note"]).to_pylist()
    found = {row["id"]: row["note"] for row in rows}
    assert found == {1: None, 2: None, 3: None, 4: "d", 5: "e", 6: "f"}


def test_windows_that_add_columns_at_the_same_time_have_other_numbers(open_sink: OpenSink) -> None:
    assert publish(open_sink(), 1, {"id": [1, 2, 3]}).won
    sinks = [open_sink(schema_evolution="add_columns") for _ in range(2)]
    given = [
        {"id": [4, 5, 6], "both": [1, 1, 1], "left": ["l"] * 3},
        {"id": [7, 8, 9], "both": [2, 2, 2], "right": [["r"]] * 3},
    ]
    tries = [begun(sink, at + 2, given[at]) for at, sink in enumerate(sinks)]
    for at, (staging, counts) in enumerate(tries):
        assert sinks[at].publish(staging, plan_of(sinks[at], at + 2), counts, ignore).won
    rows = without_mapping(open_sink()).sort_by("id").to_pylist()
    assert [row["both"] for row in rows] == [None] * 3 + [1] * 3 + [2] * 3
    assert [row["left"] for row in rows] == [None] * 3 + ["l"] * 3 + [None] * 3
    assert [row["right"] for row in rows] == [None] * 6 + [["r"]] * 3


def test_first_windows_that_differ_are_never_read_from_each_others_columns(
    open_sink: OpenSink,
) -> None:
    """Both begin while the table has no columns, so both count from one."""
    sinks = [open_sink(schema_evolution="add_columns") for _ in range(2)]
    given = [{"id": [1, 2, 3], "a": [1, 1, 1]}, {"id": [4, 5, 6], "b": [2, 2, 2]}]
    tries = [begun(sink, at + 1, given[at]) for at, sink in enumerate(sinks)]
    assert sinks[0].publish(tries[0][0], plan_of(sinks[0], 1), tries[0][1], ignore).won
    with pytest.raises(TableChanged, match="number"):
        sinks[1].publish(tries[1][0], plan_of(sinks[1], 2), tries[1][1], ignore)
    assert table_of(open_sink()).scan().to_arrow().num_rows == 3
    assert publish(open_sink(schema_evolution="add_columns"), 2, given[1]).won
    rows = without_mapping(open_sink()).sort_by("id").to_pylist()
    assert [(row["a"], row["b"]) for row in rows] == [(1, None)] * 3 + [(None, 2)] * 3


def test_numbers_are_unique_and_never_those_of_former_columns() -> None:
    paths = [f"c{at}" for at in range(2000)]
    known = FieldIds({"partition": 1, "c0": 7}, used=(8,))
    found = known.of(["partition", *paths])
    assert found["partition"] == 1
    assert found["c0"] == 7
    assert len({*found.values()}) == 2001
    assert 8 not in found.values()
    assert max(found.values()) < 2147483447
    # The same for every window, whatever other columns it has.
    assert FieldIds({"partition": 1}).of(["c9"])["c9"] == found["c9"]
    former = FieldIds({"partition": 1}, used=(found["c9"],)).of(["c9"])["c9"]
    assert former != found["c9"]
    first = FieldIds({"partition": 1}, first=True).of(["partition", "a", "a.b", "c"])
    assert first == {"partition": 1, "a": 2, "a.b": 3, "c": 4}
    assert FieldIds.from_json(known.to_json()) == known


def test_every_part_of_a_column_gets_its_number() -> None:
    kinds = pa.schema(
        [
            ("a", pa.large_list(pa.list_(pa.int8(), 2))),
            ("b", pa.map_(pa.struct([("x", pa.date32())]), pa.list_(pa.string()))),
            pa.field("c", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        ]
    )
    found = with_field_ids(kinds, FieldIds({}, first=True))
    assert found.equals(kinds)
    assert list(ids_in(found) or {}) == [
        "a", "a.element", "a.element.element", "b", "b.key", "b.key.x", "b.value",
        "b.value.element", "c",
    ]  # fmt: skip
    assert ids_in(kinds) is None


MISMATCHES: dict[str, tuple[Any, Any]] = {
    "bytes for text": (["a", "b", "c"], [b"\xff", b"b", b"c"]),
    "text for bytes": ([b"a", b"b", b"c"], ["a", "b", "c"]),
    "bytes for text in a list": ([["a"]] * 3, [[b"\xff"]] * 3),
    "bytes for text in a struct": ([{"x": "a"}] * 3, [{"x": b"\xff"}] * 3),
    "bytes for text in a map": (
        pa.array([[("k", "a")]] * 3, pa.map_(pa.string(), pa.string())),
        pa.array([[("k", b"a")]] * 3, pa.map_(pa.string(), pa.binary())),
    ),
    "long for int": (pa.array([1] * 3, pa.int32()), pa.array([1] * 3, pa.int64())),
    "double for float": (pa.array([1] * 3, pa.float32()), pa.array([1] * 3, pa.float64())),
    "double for long": (pa.array([1] * 3, pa.int64()), pa.array([1.5] * 3, pa.float64())),
    "scale": (
        pa.array([Decimal("1.10")] * 3, pa.decimal128(9, 2)),
        pa.array([Decimal("1.1")] * 3, pa.decimal128(9, 1)),
    ),
    "precision": (
        pa.array([Decimal("1.10")] * 3, pa.decimal128(9, 2)),
        pa.array([Decimal("1.10")] * 3, pa.decimal128(12, 2)),
    ),
    "no zone": (
        pa.array([INSTANT] * 3, pa.timestamp("us", "UTC")),
        pa.array([INSTANT.replace(tzinfo=None)] * 3, pa.timestamp("us")),
    ),
    "date": (pa.array([INSTANT] * 3, pa.timestamp("us", "UTC")), [INSTANT.date()] * 3),
    "fixed": (pa.array([b"ab"] * 3, pa.binary(2)), pa.array([b"ab"] * 3, pa.binary())),
}


@pytest.mark.parametrize("name", MISMATCHES)
def test_a_window_of_another_type_is_refused_by_name_and_leaves_the_table_readable(
    name: str, in_place: OpenSink
) -> None:
    first, second = MISMATCHES[name]
    assert publish(in_place(), 1, {"value": first}).won
    staging, counts = begun(in_place(), 2, {"value": second})
    with pytest.raises(ConfigError, match="column 'value"):
        in_place().check_columns(arrow_schema_of((counts.files or ())[0]))
    sink = in_place()
    with pytest.raises(ConfigError, match="column 'value"):
        sink.publish(staging, plan_of(sink, 2), counts, ignore)
    assert table_of(in_place()).scan().to_arrow().num_rows == 3
    assert len(published_windows(in_place())) == 1


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        (pa.array([2**40] * 3, pa.int64()), pa.array([1] * 3, pa.int32())),
        (pa.array([0.1] * 3, pa.float64()), pa.array([0.5] * 3, pa.float32())),
        (
            pa.array([Decimal("1.10")] * 3, pa.decimal128(30, 2)),
            pa.array([Decimal("2.20")] * 3, pa.decimal128(9, 2)),
        ),
    ],
    ids=["long", "double", "decimal"],
)
def test_promotions_of_the_format_are_taken(
    wide: pa.Array, narrow: pa.Array, in_place: OpenSink
) -> None:
    assert publish(in_place(), 1, {"value": wide}).won
    assert publish(in_place(), 2, {"value": narrow}).won
    found = table_of(in_place()).scan().to_arrow()["value"]
    assert sorted(found.to_pylist()) == sorted([*wide.to_pylist(), *narrow.to_pylist()])


# -- what the table keeps of its past -------------------------------------------------------------


def test_old_snapshots_leave_and_windows_stay(
    in_place: OpenSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "KEPT", 3)
    for seq in range(1, 10):
        assert publish(in_place(), seq, {"id": [seq] * 3}).won
    table = table_of(in_place())
    assert len(table.metadata.snapshots) == 4
    assert table.scan().to_arrow().num_rows == 27
    assert len(published_windows(in_place())) == 9
    again = in_place()
    staging, counts = begun(again, 2, {"id": [2] * 3})
    assert not again.publish(staging, plan_of(again, 2), counts, ignore).won
    lists = {snapshot.manifest_list for snapshot in table.metadata.snapshots}
    metadata = Path(table.metadata_location.removeprefix("file://")).parent
    assert {f"file://{path}" for path in metadata.glob("snap-*.avro")} == lists
    assert len([*metadata.glob("*.metadata.json")]) <= 21


def test_a_try_that_slept_until_its_window_was_forgotten_writes_nothing(
    in_place: OpenSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another try has published it, its snapshot has left, and its files were merged."""
    monkeypatch.setattr(history, "KEPT", 2)
    assert publish(in_place(), 1, {"id": [1] * 3}).won
    sleeper = in_place()
    staging, counts = begun(sleeper, 2, {"id": [2] * 3})

    def others(point: str) -> None:
        if point != "marker staged":
            return
        for seq in range(2, 7):
            assert publish(in_place(), seq, {"id": [seq] * 3}).won
        table = table_of(in_place())
        assert len(table.metadata.snapshots) < 6
        table.overwrite(table.scan().to_arrow())

    found = sleeper.publish(staging, plan_of(sleeper, 2), counts, others)
    assert not found.won
    ids = table_of(in_place()).scan().to_arrow()["id"].to_pylist()
    assert sorted(ids) == [seq for seq in range(1, 7) for _ in range(3)]


def test_a_snapshot_that_may_be_needed_stays(
    in_place: OpenSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tagged, of others, of a window whose marker is not noted yet, or with files that are gone."""
    monkeypatch.setattr(history, "KEPT", 2)
    for seq in (1, 2):
        assert publish(in_place(), seq, {"id": [seq] * 3}).won
    table = table_of(in_place())
    first, second = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
    table.manage_snapshots().create_tag(first, "audit").commit()
    table = table_of(in_place())
    table.append(pa.table({"partition": ["x"], "id": pa.array([0], pa.int64())}))
    others = table_of(in_place()).metadata.current_snapshot_id
    noted = [*Path(table.location().removeprefix("file://")).rglob("windows/c-2-*.json")]
    assert len(noted) == 1
    noted[0].unlink()
    for seq in (3, 4, 5, 6):
        assert publish(in_place(), seq, {"id": [seq] * 3}).won
    left = {snapshot.snapshot_id for snapshot in table_of(in_place()).metadata.snapshots}
    assert {first, second, others} <= left
    assert len(left) == 6
    assert len(published_windows(in_place())) == 6
    table_of(in_place()).delete("id = 3")
    before = {snapshot.snapshot_id for snapshot in table_of(in_place()).metadata.snapshots}
    for seq in (7, 8, 9):
        assert publish(in_place(), seq, {"id": [seq] * 3}).won
    assert before <= {s.snapshot_id for s in table_of(in_place()).metadata.snapshots}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("history.expire.min-snapshots-to-keep", "100"),
        ("history.expire.max-snapshot-age-ms", "3600000"),
    ],
)
def test_the_tables_own_policy_is_obeyed(
    name: str, value: str, in_place: OpenSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "KEPT", 2)
    assert publish(in_place(), 1, {"id": [1] * 3}).won
    with table_of(in_place()).transaction() as change:
        change.set_properties({name: value})
    for seq in range(2, 7):
        assert publish(in_place(), seq, {"id": [seq] * 3}).won
    assert len(table_of(in_place()).metadata.snapshots) == 6


def test_a_window_loads_the_table_twice_and_the_catalog_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = iceberg_catalog(tmp_path / "i")
    publish(IcebergSink("sales.orders", catalog=catalog), 1, {"id": [1] * 3})
    loads, load = [], catalog.load_table
    monkeypatch.setattr(catalog, "load_table", lambda name: loads.append(name) or load(name))
    sink = IcebergSink("sales.orders", catalog=catalog)
    assert sink.marker("c-2-none") is None
    sink.check_columns(pa.schema([("partition", pa.string()), ("id", pa.int64())]))
    publish(sink, 2, {"id": [2] * 3})
    sink.tidy(plan_of(sink, 2).window_id)
    # The look at markers, begin, publish, and the catalog's own when it commits.
    assert len(loads) == 4
