"""Tables that get new columns with the first files that have them, in one commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, TableFeatures

from tests.provider.sinks.object_server import object_server
from tests.provider.sinks.openers import iceberg_catalog
from tests.provider.sinks.partitioned import ROWS, SCHEMA, write
from tests.provider.sinks.windows import COUNTS, ignore, plan_of
from tubemq_client.errors import ConfigError
from tubemq_provider.files.footers import schema_in_file
from tubemq_provider.files.locations import location_of
from tubemq_provider.sinks.delta import DeltaSink
from tubemq_provider.sinks.iceberg import IcebergSink
from tubemq_provider.windows.protocols import IngestCounts, Publication, Staging

TableSink = DeltaSink | IcebergSink
OpenSink = Callable[..., TableSink]
OLD = {"id": pa.array([1, 2, 3], pa.int64())}
NEW = {**OLD, "note": pa.array(["a", None, "c"]), "more": pa.array([{"x": 1}, None, {"x": 3}])}


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, str]]:
    with object_server("grow") as found:
        yield found


@pytest.fixture(params=["delta", "delta-s3", "iceberg"])
def open_sink(request: pytest.FixtureRequest, tmp_path: Path, options: dict[str, str]) -> OpenSink:
    if request.param == "iceberg":
        root = tmp_path / "iceberg"
        return lambda **given: IcebergSink("sales.orders", catalog=iceberg_catalog(root), **given)
    if request.param == "delta":
        return lambda **given: DeltaSink(tmp_path / "table", **given)
    url = f"s3://grow/{tmp_path.name}"
    return lambda **given: DeltaSink(url, storage_options=options, **given)


def staged(sink: TableSink, seq: int, columns: dict[str, Any], who: str = "a") -> Staging:
    staging = sink.begin(plan_of(sink, seq), who)
    output = location_of(staging).create("part-0.parquet")
    pq.write_table(pa.table({"partition": ["1:0", "1:0", "1:1"], **columns}), output.stream)
    output.finish()
    return staging


def publish(
    sink: TableSink, seq: int, columns: dict[str, Any], progress: Callable[[str], None] = ignore
) -> Publication:
    return sink.publish(staged(sink, seq, columns), plan_of(sink, seq), COUNTS, progress)


def table_of(sink: TableSink, options: dict[str, str]) -> pa.Table:
    if isinstance(sink, IcebergSink):
        return sink._existing_table().scan().to_arrow()
    return DeltaTable(sink.storage.url, storage_options=options).to_pyarrow_table()


def commits_of(sink: TableSink, options: dict[str, str]) -> int:
    if isinstance(sink, IcebergSink):
        return len(sink._existing_table().metadata.snapshots)
    return DeltaTable(sink.storage.url, storage_options=options).version()


def test_new_columns_come_with_the_files_that_have_them(
    open_sink: OpenSink, options: dict[str, str]
) -> None:
    publish(open_sink(), 1, OLD)
    before = commits_of(open_sink(), options)
    assert publish(open_sink(schema_evolution="add_columns"), 2, NEW).won
    publish(open_sink(), 3, OLD)
    publish(open_sink(schema_evolution="add_columns"), 4, NEW)
    assert commits_of(open_sink(), options) == before + 3
    table = table_of(open_sink(), options)
    assert table.num_rows == 12
    assert sorted(table["note"].to_pylist(), key=str) == [*[None] * 8, "a", "a", "c", "c"]
    assert sorted(row["x"] for row in table["more"].to_pylist() if row) == [1, 1, 3, 3]
    for seq in (1, 2, 3, 4):
        assert open_sink().marker(plan_of(open_sink(), seq).window_id) is not None


def test_without_leave_new_columns_are_refused_with_the_way_out(
    open_sink: OpenSink, options: dict[str, str]
) -> None:
    publish(open_sink(), 1, OLD)
    with pytest.raises(ConfigError, match="no column 'note'; say schema_evolution='add_columns'"):
        publish(open_sink(), 2, NEW)
    assert table_of(open_sink(), options).column_names == ["partition", "id"]
    assert publish(open_sink(schema_evolution="add_columns"), 2, NEW).won


def schema_of(columns: dict[str, Any]) -> pa.Schema:
    return pa.table({"partition": ["1:0", "1:0", "1:1"], **columns}).schema


def test_columns_that_do_not_fit_are_known_before_anything_is_read(open_sink: OpenSink) -> None:
    open_sink().check_columns(schema_of(NEW))  # There is no table yet.
    publish(open_sink(), 1, OLD)
    open_sink().check_columns(schema_of(OLD))
    open_sink(schema_evolution="add_columns").check_columns(schema_of(NEW))
    with pytest.raises(ConfigError, match="no column 'note'; say schema_evolution='add_columns'"):
        open_sink().check_columns(schema_of(NEW))
    for evolution in ("refuse", "add_columns"):
        with pytest.raises(ConfigError, match="id"):
            open_sink(schema_evolution=evolution).check_columns(schema_of({"id": ["a", "b", "c"]}))


INSTANTS = pa.array([1, 2, 3], pa.int64())
ODD = {
    "days": pa.array([1, 2, 3], pa.int32()).cast(pa.date32()).cast(pa.date64()),
    "seconds": INSTANTS.cast(pa.timestamp("s", "UTC")),
    "local": INSTANTS.cast(pa.timestamp("s")),
    "inside": pa.array([[1], [2], [3]], pa.list_(pa.int64())).cast(pa.list_(pa.timestamp("s"))),
    "small": pa.array([1, 2, 3], pa.uint16()),
    "word": pa.array(["a", "b", "a"]).dictionary_encode(),
    "fixed": pa.array([b"ab"] * 3, pa.binary(2)),
    "long": pa.array(["a", "b", "c"], pa.large_string()),
    "strict": pa.array([[1]] * 3, pa.list_(pa.field("item", pa.int32(), nullable=False))),
}


@pytest.mark.parametrize("name", ODD)
def test_what_a_table_takes_is_not_refused_beforehand(open_sink: OpenSink, name: str) -> None:
    columns = {"x": ODD[name]}
    expected = schema_in_file(schema_of(columns))
    assert expected is not None
    for seq in (1, 2, 3):
        open_sink().check_columns(expected)
        assert publish(open_sink(), seq, columns).won


def test_columns_that_the_writer_makes_are_not_asked_of_records(open_sink: OpenSink) -> None:
    by = ["country", "day(at)"]
    write(open_sink(partition_by=by), 1, ROWS)
    open_sink(partition_by=by).check_columns(SCHEMA)
    with pytest.raises(ConfigError, match="it is partitioned by"):
        open_sink(partition_by=["country"]).check_columns(SCHEMA)


def test_a_table_made_for_an_empty_window_takes_any_columns(open_sink: OpenSink) -> None:
    sink = open_sink()
    plan = plan_of(sink, end=0)
    nothing = IngestCounts({"1:0": 0, "1:1": 0})
    assert sink.publish(sink.begin(plan, "a"), plan, nothing, ignore).won
    open_sink().check_columns(schema_of(NEW))


@pytest.mark.parametrize(
    "columns",
    [{"id": ["one", "two", "three"]}, {"id": pa.array([1.5, 2, 3])}],
    ids=["text", "real"],
)
def test_nothing_but_new_columns_is_ever_accepted(
    open_sink: OpenSink, options: dict[str, str], columns: dict[str, Any]
) -> None:
    publish(open_sink(), 1, OLD)
    with pytest.raises(ConfigError, match="id"):
        publish(open_sink(schema_evolution="add_columns"), 2, {**NEW, **columns})
    table = table_of(open_sink(), options)
    assert table.column_names == ["partition", "id"]
    assert table.num_rows == 3


def test_of_two_that_add_columns_at_once_both_are_published(
    open_sink: OpenSink, options: dict[str, str]
) -> None:
    """Both have checked the table before either commits: a common column, and a separate one."""
    publish(open_sink(), 1, OLD)
    sinks = {seq: open_sink(schema_evolution="add_columns") for seq in (2, 3)}
    ready: dict[int, list[Publication]] = {}

    def other(point: str) -> None:
        if point == "marker staged" and not ready:
            ready[3] = []
            ready[3].append(publish(sinks[3], 3, {**NEW, "mine": [1, 2, 3]}))

    assert publish(sinks[2], 2, {**NEW, "yours": [True, False, None]}, other).won
    assert ready[3][0].won
    table = table_of(open_sink(), options)
    assert {*table.column_names} == {"partition", "id", "note", "more", "mine", "yours"}
    assert table.num_rows == 9
    assert sorted(filter(None, table["mine"].to_pylist())) == [1, 2, 3]


def test_one_that_becomes_wrong_while_it_is_published_is_refused(
    open_sink: OpenSink, options: dict[str, str]
) -> None:
    publish(open_sink(), 1, OLD)
    first, second = (open_sink(schema_evolution="add_columns") for _ in range(2))
    done: list[Publication] = []

    def other(point: str) -> None:
        if point == "marker staged" and not done:
            done.append(publish(second, 3, {**OLD, "note": [1, 2, 3]}))

    with pytest.raises(ConfigError, match="note"):
        publish(first, 2, NEW, other)
    assert done[0].won
    assert table_of(open_sink(), options).num_rows == 6
    assert {*open_sink().storage.names("windows")} == {
        name
        for seq in (1, 3)
        for name in open_sink().marker(plan_of(first, seq).window_id).files  # type: ignore[union-attr]
    }


class Died(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("point", ["files in place", "marker staged", "committed", "confirmed"])
def test_killed_between_the_steps_a_retry_makes_it_right(
    open_sink: OpenSink, options: dict[str, str], point: str
) -> None:
    publish(open_sink(), 1, OLD)

    def die(reached: str) -> None:
        if reached == point:
            raise Died

    with suppress(Died):
        publish(open_sink(schema_evolution="add_columns"), 2, NEW, die)
    sink = open_sink(schema_evolution="add_columns")
    visible = sink.marker(plan_of(sink, 2).window_id) is not None
    assert ("note" in table_of(sink, options).column_names) is visible
    assert publish(sink, 2, NEW).won is not visible
    sink.tidy(plan_of(sink, 2).window_id)
    table = table_of(open_sink(), options)
    assert table.num_rows == 6
    assert sorted(filter(None, table["note"].to_pylist())) == ["a", "c"]


def test_of_many_tries_of_one_window_one_wins(open_sink: OpenSink, options: dict[str, str]) -> None:
    publish(open_sink(), 1, OLD)
    sinks = [open_sink(schema_evolution="add_columns") for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda sink: publish(sink, 2, NEW).won, sinks))
    assert sorted(found) == [False, False, True]
    assert table_of(open_sink(), options).num_rows == 6


ALIKE = {
    "a window": (
        {**OLD, "Id": [4, 5, 6]},
        "'Id' of the files differs from the table's column 'id'",
    ),
    "records": ({**OLD, "Partition": [4, 5, 6]}, "'Partition' .* from the table's column 'part"),
    "twice": ({**OLD, "no": [1, 2, 3], "NO": [4, 5, 6]}, "'NO' of .* differs from column 'no'"),
    "inside": ({**OLD, "more": [{"x": 1, "X": 2}] * 3}, "parts 'X', 'x' of column 'more'"),
}


@pytest.mark.parametrize("what", ALIKE)
@pytest.mark.parametrize("evolution", ["refuse", "add_columns"])
def test_columns_that_differ_in_case_alone_are_refused_before_anything_is_read(
    open_sink: OpenSink, options: dict[str, str], what: str, evolution: str
) -> None:
    columns, said = ALIKE[what]
    publish(open_sink(), 1, OLD)
    sink = open_sink(schema_evolution=evolution)
    with pytest.raises(ConfigError, match=f"{said}.*case alone.*rename"):
        sink.check_columns(schema_of(columns))
    before = {*sink.storage.names("windows")}
    staging = staged(sink, 2, columns)
    with pytest.raises(ConfigError, match=f"{said}.*case alone.*rename"):
        sink.publish(staging, plan_of(sink, 2), COUNTS, ignore)
    sink.discard(staging)
    assert {*sink.storage.names("windows")} == before
    assert table_of(open_sink(), options).column_names == ["partition", "id"]


@pytest.mark.parametrize("empty", [False, True], ids=["no table", "after an empty window"])
@pytest.mark.parametrize("name", ["ID", "Partition"])
def test_a_first_window_has_no_columns_that_differ_in_case_alone(
    open_sink: OpenSink, name: str, empty: bool
) -> None:
    sink = open_sink()
    if empty:
        plan = plan_of(sink, end=0)
        nothing = IngestCounts({"1:0": 0, "1:1": 0})
        assert sink.publish(sink.begin(plan, "a"), plan, nothing, ignore).won
    with pytest.raises(ConfigError, match=f"'{name}'.*case alone"):
        open_sink().check_columns(schema_of({**OLD, name: [4, 5, 6]}))
    with pytest.raises(ConfigError, match=f"'{name}'.*case alone"):
        publish(open_sink(), 2, {**OLD, name: [4, 5, 6]})
    assert publish(open_sink(), 2, OLD).won


def test_a_column_that_becomes_one_of_two_while_it_is_published_leaves_nothing(
    open_sink: OpenSink, options: dict[str, str]
) -> None:
    publish(open_sink(), 1, OLD)
    first, second = (open_sink(schema_evolution="add_columns") for _ in range(2))

    def other(point: str) -> None:
        if point == "marker staged":
            publish(second, 3, {**OLD, "Note": ["a", "b", "c"]})

    with pytest.raises(ConfigError, match=r"'note' of the files differs from the table's .*'Note'"):
        publish(first, 2, NEW, other)
    window = plan_of(first, 2).window_id
    assert not [*first.storage.names(f"windows/{window}")]
    assert table_of(open_sink(), options).num_rows == 6


def test_iceberg_refuses_a_column_with_the_path_of_a_part(tmp_path: Path) -> None:
    """Iceberg uses paths, in which a dot stands for a part."""
    catalog = iceberg_catalog(tmp_path)
    dotted = {**OLD, "more.x": pa.array([1, 2, 3], pa.int64())}
    both = IcebergSink("sales.both", catalog=catalog)
    with pytest.raises(ConfigError, match=r"the path 'more.x', which is column 'more.x' too"):
        publish(both, 1, {**dotted, "more": NEW["more"]})
    publish(IcebergSink("sales.orders", catalog=catalog), 1, NEW)
    sink = IcebergSink("sales.orders", catalog=catalog, schema_evolution="add_columns")
    for refused in (
        lambda: sink.check_columns(schema_of(dotted)),
        lambda: publish(sink, 2, dotted),
    ):
        with pytest.raises(ConfigError, match=r"path 'more.x', which is the table's too.*rename"):
            refused()


def test_a_column_that_needs_a_delta_feature_is_refused(tmp_path: Path) -> None:
    """Readers of the table need not know instants without a zone."""
    publish(DeltaSink(tmp_path / "t"), 1, OLD)
    sink = DeltaSink(tmp_path / "t", schema_evolution="add_columns")
    with pytest.raises(ConfigError, match="has not the feature timestampNtz; cast it"):
        publish(sink, 2, {**OLD, "at": pa.array([1, 2, 3], pa.timestamp("us"))})


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("how", ["renamed to 'remark'", "dropped"])
def test_iceberg_takes_no_new_column_for_one_that_others_renamed_or_dropped(
    tmp_path: Path, how: str, early: bool
) -> None:
    def opened() -> IcebergSink:
        catalog = iceberg_catalog(tmp_path / "iceberg")
        return IcebergSink("sales.orders", catalog=catalog, schema_evolution="add_columns")

    def change(point: str = "marker staged") -> None:
        if point != "marker staged":
            return
        table = opened()._existing_table()
        with table.update_schema(allow_incompatible_changes=True) as update:
            if how == "dropped":
                update.delete_column("note")
            else:
                update.rename_column("note", "remark")

    publish(opened(), 1, NEW)
    columns = {**NEW, "note": [7, 8, 9]}
    if early:
        change()
        with pytest.raises(ConfigError, match=f"column 'note' was {how}"):
            opened().check_columns(schema_of(columns))
    with pytest.raises(ConfigError, match=f"column 'note' was {how}"):
        publish(opened(), 2, columns if early else NEW, ignore if early else change)
    table = opened()._existing_table().scan().to_arrow()
    assert table.num_rows == 3
    if how != "dropped":
        assert table["remark"].to_pylist() == NEW["note"].to_pylist()
    assert publish(opened(), 2, {**OLD, "ours": [7, 8, 9]}).won
    assert opened()._existing_table().scan(row_filter="ours = 8").to_arrow().num_rows == 1


@pytest.mark.parametrize("name", ["variant", "timestamp_ntz"])
def test_a_column_may_be_called_as_a_type_that_readers_have_to_know(
    tmp_path: Path, name: str
) -> None:
    columns = {**OLD, name: ["a", "b", "c"], "in": [[("k", {name: "a"})]] * 3}
    columns["in"] = pa.array(columns["in"], pa.map_(pa.string(), pa.struct([(name, pa.string())])))
    publish(DeltaSink(tmp_path / "grows"), 1, OLD)
    assert publish(DeltaSink(tmp_path / "grows", schema_evolution="add_columns"), 2, columns).won
    by = ["country"]
    sink = DeltaSink(tmp_path / "begins", partition_by=by)
    plan = plan_of(sink, end=0)
    assert sink.publish(sink.begin(plan, "a"), plan, IngestCounts({"1:0": 0, "1:1": 0}), ignore).won
    row = {"partition": "1:0", "country": "at", name: "a"}
    schema = pa.schema([(column, pa.string()) for column in row])
    write(DeltaSink(tmp_path / "begins", partition_by=by), 2, [row], schema)
    for table in ("grows", "begins"):
        assert not DeltaTable(tmp_path / table).protocol().reader_features


@pytest.mark.parametrize("first", ["records", "none"])
def test_instants_without_a_zone_in_a_map_leave_the_table_as_it_is(
    first: str, tmp_path: Path
) -> None:
    """deltalake added the columns to the table of an empty window, and told readers nothing of
    their type: the table could not be opened again."""
    sink, kind = DeltaSink(tmp_path / "t"), pa.map_(pa.string(), pa.timestamp("us"))
    if first == "none":
        empty = IngestCounts({"1:0": 0, "1:1": 0})
        sink.publish(sink.begin(plan_of(sink), "a"), plan_of(sink), empty, ignore)
    for inside in (kind, pa.struct([("x", pa.list_(kind))])):
        columns = {**OLD, "at": pa.array([None] * 3, inside)}
        with pytest.raises(ConfigError, match="column 'at' has instants without a zone in a map"):
            sink.check_columns(schema_of(columns))
        with pytest.raises(ConfigError, match="column 'at' has instants without a zone in a map"):
            publish(sink, 2, columns)
    zoned = pa.map_(pa.string(), pa.timestamp("us", tz="UTC"))
    publish(sink, 2, {**OLD, "at": pa.array([None] * 3, zoned)})
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == 3


def test_a_map_of_instants_without_a_zone_goes_where_readers_know_them(tmp_path: Path) -> None:
    publish(DeltaSink(tmp_path / "t"), 1, OLD)
    feature = TableFeatures.TimestampWithoutTimezone
    table = DeltaTable(tmp_path / "t")
    table.alter.add_feature(feature, allow_protocol_versions_increase=True)
    sink = DeltaSink(tmp_path / "t", schema_evolution="add_columns")
    kind = pa.map_(pa.string(), pa.timestamp("us"))
    publish(sink, 2, {**OLD, "at": pa.array([[("a", 1)]] * 3, kind)})
    assert DeltaTable(tmp_path / "t").to_pyarrow_table()["at"].null_count == 3


def test_a_new_column_may_not_become_a_rule(tmp_path: Path) -> None:
    """Columns without nulls in the files may be null in the table: rows before them have none."""
    publish(DeltaSink(tmp_path / "t"), 1, OLD)
    schema = pa.schema(
        [
            ("partition", pa.string()),
            ("id", pa.int64()),
            pa.field("must", pa.int64(), nullable=False),
        ]
    )
    sink = DeltaSink(tmp_path / "t", schema_evolution="add_columns")
    staging = sink.begin(plan_of(sink, 2), "a")
    rows = [{"partition": key, "id": 1, "must": 2} for key in ("1:0", "1:0", "1:1")]
    pq.write_table(pa.Table.from_pylist(rows, schema), Path(staging.path) / "part-0.parquet")
    assert sink.publish(staging, plan_of(sink, 2), COUNTS, ignore).won
    table = DeltaTable(tmp_path / "t")
    assert [field.nullable for field in table.schema().fields] == [True] * 3
    assert table.to_pyarrow_table()["must"].null_count == 3


def test_words_are_judged() -> None:
    with pytest.raises(ConfigError, match="none of refuse, add_columns"):
        DeltaSink("/nowhere", schema_evolution="merge")  # type: ignore[arg-type]
