"""Windows in an Iceberg table whose catalog is SQL on SQLite."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.transforms import DayTransform, IdentityTransform

from tests.provider.sinks.object_server import object_server
from tests.provider.sinks.openers import iceberg, iceberg_catalog, iceberg_in_place
from tests.provider.sinks.windows import COLUMNS, COUNTS, OpenSink, ignore, plan_of, publish, stage
from tubemq_client import Partition
from tubemq_client.errors import ConfigError
from tubemq_client.model import OffsetRange
from tubemq_provider.files.locations import location_of
from tubemq_provider.files.writer import StagedWriter
from tubemq_provider.sinks._table_sink import CommitUnclear, TableChanged
from tubemq_provider.sinks.iceberg import IcebergSink
from tubemq_provider.sources.tubemq.columns import RECORDS
from tubemq_provider.testing.sink_suite import Row, SinkSuite, written_by
from tubemq_provider.windows.errors import SinkDamaged
from tubemq_provider.windows.protocols import Sink, Staging

NAME = "sales.orders"
Trouble = Callable[[], None] | None


def rows_at(root: Path) -> Counter[Row]:
    try:
        rows = iceberg_catalog(root).load_table(NAME).scan().to_arrow()
    except NoSuchTableError:
        return Counter()
    if "value" not in rows.column_names:
        return Counter()
    return Counter(zip(rows["partition"].to_pylist(), rows["value"].to_pylist(), strict=True))


class TestIcebergSink(SinkSuite):
    points = ("files verified", "files in place", "marker staged", "committed", "confirmed")

    @pytest.fixture
    def open_sink(self, tmp_path: Path) -> OpenSink:
        self.root = tmp_path / "iceberg"
        iceberg_catalog(self.root)  # its own tables are not made by two at once
        return partial(iceberg_in_place, self.root)

    def rows(self, sink: Sink) -> Counter[Row]:
        return rows_at(self.root)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "iceberg"


@pytest.fixture
def sink(root: Path) -> IcebergSink:
    return iceberg(root)


def table_at(root: Path) -> Table:
    return iceberg_catalog(root).load_table(NAME)


def test_the_snapshot_says_which_window_it_is(sink: IcebergSink, root: Path) -> None:
    plan = plan_of(sink)
    publish(sink, plan)
    (snapshot,) = table_at(root).metadata.snapshots
    assert snapshot.summary is not None
    said = snapshot.summary.additional_properties
    assert said["tubemq.window"] == plan.window_id
    assert said["tubemq.hash"] == plan.hash
    assert said["added-records"] == "3"


class OvertakenCatalog(SqlCatalog):
    """Another writer always commits first: `overtake` runs before the first commit."""

    def __init__(self, root: Path, overtake: Callable[[], None]) -> None:
        known = iceberg_catalog(root)
        super().__init__(known.name, **known.properties)
        self._overtake: list[Callable[[], None]] = [overtake]

    def commit_table(self, *arguments: Any) -> CommitTableResponse:
        while self._overtake:
            self._overtake.pop()()
        return super().commit_table(*arguments)


def test_a_try_that_is_overtaken_inside_its_commit_loses(sink: IcebergSink, root: Path) -> None:
    plan, other = plan_of(sink), plan_of(sink, end=560)
    publish(sink, plan_of(sink, 5), "before")

    def overtake() -> None:
        assert publish(iceberg(root), other, "fast").won

    catalog = OvertakenCatalog(root, overtake)
    found = publish(IcebergSink(NAME, catalog=catalog, staging_root=root / "slow"), plan, "slow")
    assert not found.won
    assert found.marker.plan == other
    assert rows_at(root) == written_by("before") + written_by("fast")


class TroubledCatalog(SqlCatalog):
    """A catalog behind a bad network: `before` and `after` run around its first commit of a window,
    and may raise."""

    def __init__(self, root: Path, *, before: Trouble = None, after: Trouble = None) -> None:
        known = iceberg_catalog(root)
        super().__init__(known.name, **known.properties)
        self._troubles = [(before, after)]

    def commit_table(
        self, table: Table, requirements: Any, updates: tuple[Any, ...]
    ) -> CommitTableResponse:
        adds = any(type(update).__name__ == "AddSnapshotUpdate" for update in updates)
        before, after = self._troubles.pop() if adds and self._troubles else (None, None)
        if before is not None:
            before()
        answer = super().commit_table(table, requirements, updates)
        if after is not None:
            after()
        return answer


def behind(root: Path, **troubles: Trouble) -> IcebergSink:
    catalog = TroubledCatalog(root, **troubles)
    return IcebergSink(NAME, catalog=catalog)


def garble() -> None:
    """Raise what pyiceberg's REST catalog raises for a proxy's page instead of an answer."""
    CommitTableResponse.model_validate_json("<html>502 Bad Gateway</html>")


def hang_up() -> None:
    raise ConnectionResetError("the catalog hung up")


def expire_all_but(root: Path, *kept: int) -> None:
    """Expire snapshots as a maintenance job does; the newest has to stay, so another is made
    first."""
    columns = pa.schema([("partition", pa.string())])
    table_at(root).append(pa.table({"partition": ["9:9"]}, schema=columns))
    table = table_at(root)
    newest = table.metadata.current_snapshot_id
    expired = [found.snapshot_id for found in table.metadata.snapshots]
    expired = [number for number in expired if number not in (newest, *kept)]
    table.maintenance.expire_snapshots().by_ids(expired).commit()


@pytest.mark.parametrize("trouble", [garble, hang_up])
def test_a_commit_whose_answer_is_lost_stays_in_the_table(
    root: Path, sink: IcebergSink, trouble: Callable[[], None]
) -> None:
    publish(sink, plan_of(sink, 5), "before")
    plan = plan_of(sink)
    assert publish(behind(root, after=trouble), plan, "a").won
    assert rows_at(root) == written_by("before") + written_by("a")
    assert not publish(iceberg(root), plan, "again").won
    assert rows_at(root) == written_by("before") + written_by("a")


@pytest.mark.parametrize("trouble", [garble, hang_up])
def test_nothing_is_withdrawn_after_a_commit_of_which_nothing_is_known(
    root: Path, sink: IcebergSink, trouble: Callable[[], None]
) -> None:
    publish(sink, plan_of(sink, 5), "before")
    plan = plan_of(sink)
    with pytest.raises(CommitUnclear) as unclear:
        publish(behind(root, before=trouble), plan, "a")
    assert unclear.value.retriable
    files = list(sink.storage.names(f"windows/{plan.window_id}"))
    assert len(files) == 1  # the commit may still be on its way
    assert publish(iceberg(root), plan, "retry").won
    sink.tidy(plan.window_id)
    assert len(list(sink.storage.names(f"windows/{plan.window_id}"))) == 1
    assert rows_at(root) == written_by("before") + written_by("retry")


def test_a_snapshot_that_expires_right_after_the_commit_is_not_committed_again(
    root: Path, sink: IcebergSink
) -> None:
    publish(sink, plan_of(sink, 5), "before")
    expiring = behind(root, after=lambda: expire_all_but(root))
    assert publish(expiring, plan_of(sink), "a").won
    foreign: Counter[Row] = Counter({("9:9", None): 1})  # type: ignore[dict-item]
    assert rows_at(root) == written_by("before") + written_by("a") + foreign


@pytest.mark.parametrize("lost_answer", [True, False])
def test_a_snapshot_that_expires_before_anybody_sealed_the_window_is_found_by_its_files(
    root: Path, sink: IcebergSink, lost_answer: bool
) -> None:
    plan = plan_of(sink)
    publish(sink, plan_of(sink, 5), "before")

    def expire_and_hang_up() -> None:
        expire_all_but(root)
        if lost_answer:
            hang_up()

    def die(point: str) -> None:
        if point == "committed":
            raise KeyboardInterrupt

    dying = behind(root, after=expire_and_hang_up)
    staging = dying.begin(plan, "a")
    stage(staging, "a")
    with pytest.raises(KeyboardInterrupt):
        dying.publish(staging, plan, COUNTS, die)
    expected = rows_at(root)
    again = publish(iceberg(root), plan, "again")
    assert not again.won
    assert again.marker.plan == plan
    assert rows_at(root) == expected
    assert sum(expected.values()) == 7


def test_pyiceberg_by_itself_commits_after_it_was_overtaken(sink: IcebergSink, root: Path) -> None:
    """The sink turns retries off for this reason. If this fails, pyiceberg has changed: read it
    again."""
    publish(sink, plan_of(sink, 5), "before")
    catalog = OvertakenCatalog(root, lambda: table_at(root).append(rows))
    rows = pa.table({"partition": ["9:9"]}, schema=pa.schema([("partition", pa.string())]))
    catalog.load_table(NAME).append(rows)
    assert rows_at(root)[("9:9", None)] == 2  # type: ignore[index]


def test_the_tables_own_retries_stay_as_they_are(sink: IcebergSink, root: Path) -> None:
    publish(sink, plan_of(sink))
    assert "commit.retry.num-retries" not in table_at(root).metadata.properties
    with table_at(root).transaction() as change:
        change.set_properties({"commit.retry.num-retries": "7"})
    publish(sink, plan_of(sink, 2))
    assert table_at(root).metadata.properties["commit.retry.num-retries"] == "7"


def test_commits_of_others_in_between_do_no_harm(sink: IcebergSink, root: Path) -> None:
    publish(sink, plan_of(sink), "one")

    def foreign(point: str) -> None:
        if point == "marker staged":
            table = table_at(root)
            table.append(
                pa.table({"partition": ["9:9"]}, schema=pa.schema([("partition", "string")]))
            )

    staging = sink.begin(plan_of(sink, 2), "two")
    stage(staging, "two")
    assert sink.publish(staging, plan_of(sink, 2), COUNTS, foreign).won
    expected = written_by("one") + written_by("two") + Counter({("9:9", None): 1})
    assert rows_at(root) == expected


def test_a_window_survives_the_expiry_of_its_snapshot(sink: IcebergSink, root: Path) -> None:
    for seq in (1, 2):
        publish(sink, plan_of(sink, seq), f"w{seq}")
    table = table_at(root)
    oldest = table.metadata.snapshots[0].snapshot_id
    table.maintenance.expire_snapshots().by_id(oldest).commit()
    assert len(table_at(root).metadata.snapshots) == 1
    again = iceberg(root)
    found = again.marker(plan_of(sink).window_id)
    assert found is not None
    assert found.plan == plan_of(sink)
    assert not publish(again, plan_of(sink), "again").won
    assert set(again.window_ids()) == {plan_of(sink, seq).window_id for seq in (1, 2)}


def test_a_recreated_table_has_no_old_windows(sink: IcebergSink, root: Path) -> None:
    publish(sink, plan_of(sink))
    iceberg_catalog(root).drop_table(NAME)
    again = iceberg(root)
    assert again.marker(plan_of(sink).window_id) is None
    assert publish(again, plan_of(sink), "b").won
    assert rows_at(root) == written_by("b")


def test_a_table_dropped_under_an_open_sink_is_an_error(sink: IcebergSink, root: Path) -> None:
    publish(sink, plan_of(sink))
    iceberg_catalog(root).drop_table(NAME)
    staging = sink.begin(plan_of(sink, 2), "a")
    stage(staging, "a")

    def drop(point: str) -> None:
        if point == "marker staged":
            iceberg_catalog(root).drop_table(NAME)

    with pytest.raises(SinkDamaged, match="gone"):
        sink.publish(staging, plan_of(sink, 2), COUNTS, drop)


@pytest.mark.parametrize("open_table", [iceberg, iceberg_in_place])
@pytest.mark.parametrize("place", ["elsewhere", None])
def test_a_table_recreated_while_a_window_is_written_gets_no_entries_of_other_files(
    place: str | None, open_table: Callable[[Path], IcebergSink], root: Path
) -> None:
    """The files are where the table was, and the marker is that one's: readers of the new one
    stopped at files that are not there."""
    sink = open_table(root)
    publish(sink, plan_of(sink), "one")
    staging = sink.begin(plan_of(sink, 2), "two")
    stage(staging, "two")
    catalog, schema = iceberg_catalog(root), table_at(root).schema()
    catalog.drop_table(NAME)
    catalog.create_table(NAME, schema, location=place and f"file://{root}/{place}")
    with pytest.raises(TableChanged, match="recreated while a window was written"):
        sink.publish(staging, plan_of(sink, 2), COUNTS, ignore)
    assert rows_at(root) == Counter()
    assert publish(sink, plan_of(sink, 2), "again").won
    assert rows_at(root) == written_by("again")
    assert open_table(root).marker(plan_of(sink, 2).window_id) is not None


def test_columns_that_do_not_fit_are_refused_and_leave_nothing(
    sink: IcebergSink, root: Path
) -> None:
    catalog = iceberg_catalog(root)
    catalog.create_namespace("sales")
    catalog.create_table(
        NAME, schema=pa.schema([("partition", pa.string()), ("value", pa.int64())])
    )
    with pytest.raises(ConfigError, match="Iceberg table"):
        publish(sink, plan_of(sink))
    assert sink.marker(plan_of(sink).window_id) is None
    assert list(sink.storage.names("windows")) == []


def make_table(root: Path, *names: str) -> Table:
    catalog = iceberg_catalog(root)
    catalog.create_namespace("sales")
    return catalog.create_table(NAME, schema=RECORDS.arrow_schema(names or COLUMNS))


def stage_one_day(staging: Staging, *, time: int | None = 1_700_000_000_000_000) -> None:
    """Files as engines write them: with statistics of some columns only."""
    schema = RECORDS.arrow_schema(COLUMNS)
    with StagedWriter(location_of(staging), "part", schema, columns=RECORDS) as writer:
        for key, rows in (("1:0", 2), ("1:1", 1)):
            writer.begin_range(OffsetRange(Partition.from_key("orders", key), 0, 280))
            times = [1_700_000_000_000_000, time][:rows]
            columns = [[key] * rows, [0, 28][:rows], times, [None] * rows, [b"beta"] * rows]
            arrays = [pa.array(*pair) for pair in zip(columns, schema.types, strict=True)]
            writer.add(pa.RecordBatch.from_arrays(arrays, schema=schema), 10, 0)
            writer.end_range()


def publish_one_day(sink: IcebergSink, seq: int = 1, **options: Any) -> bool:
    staging = sink.begin(plan_of(sink, seq), "a")
    stage_one_day(staging, **options)
    return sink.publish(staging, plan_of(sink, seq), COUNTS, ignore).won


def test_records_are_in_the_partition_that_readers_look_in(sink: IcebergSink, root: Path) -> None:
    """pyiceberg by itself puts what no footer tells into the partition of nulls."""
    table = make_table(root)
    with table.update_spec() as spec:
        spec.add_field("value", IdentityTransform(), "by_value")
    with pytest.raises(ConfigError, match="pass over them") as refused:
        publish_one_day(sink)
    assert "partitioned by identity(value)" in str(refused.value)
    assert list(sink.storage.names("windows")) == []
    with table_at(root).update_spec() as spec:  # the way out
        spec.remove_field("by_value")
        spec.add_field("msg_time", DayTransform(), "day")
    assert publish_one_day(iceberg(root))
    day = "msg_time >= '2023-11-14T00:00:00+00:00' and msg_time < '2023-11-15T00:00:00+00:00'"
    assert table_at(root).scan(row_filter=day).to_arrow().num_rows == 3
    with pytest.raises(ConfigError, match="or some nulls"):
        publish_one_day(iceberg(root), 2, time=None)
    assert table_at(root).scan().to_arrow().num_rows == 3


def test_a_name_mapping_that_leaves_a_column_out_is_refused(sink: IcebergSink, root: Path) -> None:
    """The files have no field ids: what the mapping does not name reads as null, or not at all."""
    table = make_table(root)
    fields = json.loads(table.schema().name_mapping.model_dump_json())
    lame = json.dumps([field for field in fields if field["names"] != ["value"]])
    with table.transaction() as change:
        change.set_properties({"schema.name-mapping.default": lame})
    with pytest.raises(ConfigError, match="does not lead from 'value'"):
        publish(sink, plan_of(sink))
    with table_at(root).transaction() as change:
        change.remove_properties("schema.name-mapping.default")
    assert publish(iceberg(root), plan_of(sink)).won
    assert rows_at(root) == written_by("a")


def test_a_table_may_have_columns_of_its_own(sink: IcebergSink, root: Path) -> None:
    catalog = iceberg_catalog(root)
    catalog.create_namespace("sales")
    columns = RECORDS.arrow_schema(("partition", "offset", "msg_time", "attributes", "value"))
    catalog.create_table(NAME, schema=columns.append(pa.field("note", pa.string())))
    publish(sink, plan_of(sink))
    assert rows_at(root) == written_by("a")
    assert table_at(root).scan().to_arrow()["note"].null_count == 3


def test_boundaries_may_come_before_the_first_window(sink: IcebergSink, root: Path) -> None:
    book = sink.boundaries
    assert book is not None
    book.fix("20261121T120000Z-0123456789", {"v": 1})
    assert publish(sink, plan_of(sink)).won
    assert rows_at(root) == written_by("a")


def test_a_catalog_may_be_given_by_name_and_properties(root: Path) -> None:
    catalog = iceberg_catalog(root)
    named = IcebergSink(
        NAME,
        catalog="lake",
        catalog_properties={"type": "sql", **catalog.properties},
    )
    assert named.identity == "iceberg:lake/sales.orders"
    assert publish(named, plan_of(named)).won


def test_a_table_in_an_object_store_is_reached_with_the_catalogs_options(root: Path) -> None:
    root.mkdir()
    with object_server("iceberg") as options:
        sink = IcebergSink(
            NAME,
            catalog="lake",
            catalog_properties={
                "type": "sql",
                "uri": f"sqlite:///{root}/catalog.db",
                "warehouse": "s3://iceberg/lake",
                "s3.endpoint": options["endpoint"],
                "s3.region": options["region"],
                "s3.access-key-id": options["access_key_id"],
                "s3.secret-access-key": options["secret_access_key"],
            },
        )
        plan = plan_of(sink)
        stage(sink.begin(plan, "dead"), "dead")
        assert publish(sink, plan).won
        assert not publish(sink, plan, "again").won
        assert len(list(sink.storage.names("windows"))) == 3
        sink.tidy(plan.window_id)
        assert len(list(sink.storage.names("windows"))) == 1
        marker = sink.marker(plan.window_id)
        assert marker is not None
        assert marker.ref.startswith("s3://iceberg/lake/")
        assert sink._existing_table().scan().to_arrow().num_rows == 3
        assert "hush" not in f"{sink!r} {sink.identity} {marker!r}"


def test_a_catalog_that_is_not_configured_is_named() -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        IcebergSink("sales.orders", catalog="nowhere")
    with pytest.raises(ConfigError, match="<namespace>"):
        IcebergSink("orders")
