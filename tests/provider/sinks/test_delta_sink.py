"""Windows in a Delta table: the suite on a local table and on a loopback object store."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Schema, write_deltalake

from tests.provider.sinks.object_server import object_server
from tests.provider.sinks.openers import delta
from tests.provider.sinks.windows import COUNTS, OpenSink, ignore, plan_of, publish, stage
from tubemq_client.errors import ConfigError
from tubemq_provider.sinks._table_sink import TableChanged
from tubemq_provider.sinks.delta import DeltaSink, application_id
from tubemq_provider.sinks.delta import sink as delta_module
from tubemq_provider.sources.tubemq.columns import RECORDS
from tubemq_provider.testing.sink_suite import Row, SinkSuite, written_by
from tubemq_provider.windows.errors import SinkDamaged
from tubemq_provider.windows.protocols import Sink

COLUMNS = ("partition", "offset", "msg_time", "attributes", "value")


class _Common(SinkSuite):
    points = (
        "files verified",
        "files in place",
        "marker staged",
        "committed",
        "confirmed",
    )

    def rows(self, sink: Sink) -> Counter[Row]:
        assert isinstance(sink, DeltaSink)
        return rows_of(sink.storage.url, sink._options)


def rows_of(url: str, options: dict[str, str] | None = None) -> Counter[Row]:
    if not DeltaTable.is_deltatable(url, storage_options=options):
        return Counter()
    table = DeltaTable(url, storage_options=options).to_pyarrow_table()
    return Counter(zip(table["partition"].to_pylist(), table["value"].to_pylist(), strict=True))


class TestLocal(_Common):
    @pytest.fixture
    def open_sink(self, tmp_path: Path) -> OpenSink:
        return partial(delta, str(tmp_path / "table"))


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, str]]:
    with object_server("delta") as found:
        yield found


class TestOnS3(_Common):
    @pytest.fixture
    def open_sink(self, options: dict[str, str], request: pytest.FixtureRequest) -> OpenSink:
        return partial(delta, f"s3://delta/{request.node.name}", None, options)


@pytest.fixture
def sink(tmp_path: Path) -> DeltaSink:
    return delta(str(tmp_path / "table"))


def make_table(sink: DeltaSink, schema: pa.Schema, **options: object) -> DeltaTable:
    return DeltaTable.create(sink.storage.url, schema=Schema.from_arrow(schema), **options)


def test_the_commit_carries_transaction_and_marker(sink: DeltaSink) -> None:
    plan = plan_of(sink)
    publish(sink, plan)
    table = DeltaTable(sink.storage.url)
    assert application_id(plan) == f"tubemq/c1/orders/g1/{plan.window_id}"
    assert table.transaction_version(application_id(plan)) == 1
    written = json.loads(table.history(1)[0]["tubemq"])
    assert written["plan"] == plan.to_document()
    assert written["records"] == {"1:0": 2, "1:1": 1}


def test_a_window_forces_the_log_of_its_own_and_of_others_before_it_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced: list[str] = []
    fsync = delta_module.fsync_path
    monkeypatch.setattr(
        delta_module, "fsync_path", lambda path: forced.append(path.name) or fsync(path)
    )
    url = str(tmp_path / "table")

    def commits_forced_by(seq: int) -> list[int]:
        forced.clear()
        publish(delta(url), plan_of(delta(url), seq))
        return sorted({int(name[:20]) for name in forced if name.endswith(".json")})

    for seq in range(1, 6):
        commits = commits_forced_by(seq)
        assert commits[-1] == DeltaTable(url).version()
    assert len(commits) == 2
    version = DeltaTable(url).version()
    rows = DeltaTable(url).to_pyarrow_table().slice(0, 1)
    for _ in range(3):
        write_deltalake(url, rows, mode="append")
    # One commit of the sink, three of others, and the window's own.
    assert commits_forced_by(6) == [*range(version, version + 5)]
    assert commits_forced_by(7) == [version + 4, version + 5]


def test_a_window_survives_checkpoints_and_log_clean_up(tmp_path: Path) -> None:
    sink = delta(str(tmp_path / "table"))
    make_table(
        sink,
        RECORDS.arrow_schema(COLUMNS),
        configuration={
            "delta.logRetentionDuration": "interval 0 seconds",
            "delta.checkpointInterval": "3",
        },
    )
    for seq in range(1, 8):
        publish(sink, plan_of(sink, seq), f"w{seq}")
    table = DeltaTable(sink.storage.url)
    table.create_checkpoint()
    table.cleanup_metadata()
    assert not (tmp_path / "table" / "_delta_log" / f"{1:020}.json").exists()
    shutil.rmtree(next((tmp_path / "table" / "_tubemq").glob("*/windows")))
    again = delta(sink.storage.url)
    found = again.marker(plan_of(sink, 1).window_id)
    assert found is not None
    assert found.plan == plan_of(sink, 1)
    assert len(list(again.window_ids())) == 7


def test_compaction_and_vacuum_leave_windows_published(sink: DeltaSink) -> None:
    for seq in (1, 2, 3):
        publish(sink, plan_of(sink, seq), f"w{seq}")
    expected = rows_of(sink.storage.url)
    table = DeltaTable(sink.storage.url)
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert rows_of(sink.storage.url) == expected
    again = delta(sink.storage.url)
    assert not publish(again, plan_of(sink, 2), "again").won
    assert rows_of(sink.storage.url) == expected


def test_commits_of_others_in_between_do_no_harm(sink: DeltaSink) -> None:
    publish(sink, plan_of(sink), "one")

    def foreign(point: str) -> None:
        if point == "marker staged":
            write_deltalake(
                sink.storage.url,
                pa.table({"partition": ["9:9"]}),
                mode="append",
                schema_mode="merge",
            )

    staging = sink.begin(plan_of(sink, 2), "two")
    stage(staging, "two")
    assert sink.publish(staging, plan_of(sink, 2), COUNTS, foreign).won
    rows = rows_of(sink.storage.url)
    assert rows == written_by("one") + written_by("two") + Counter({("9:9", None): 1})


def test_a_recreated_table_has_no_old_windows(sink: DeltaSink) -> None:
    plan = plan_of(sink)
    publish(sink, plan)
    shutil.rmtree(Path(sink.storage.url) / "_delta_log")
    again = delta(sink.storage.url)
    make_table(again, RECORDS.arrow_schema(COLUMNS))
    assert again.marker(plan.window_id) is None
    assert list(again.window_ids()) == []
    assert publish(again, plan, "b").won
    assert rows_of(sink.storage.url) == written_by("b")


@pytest.mark.parametrize("commits", [0, 1, 4])
@pytest.mark.parametrize("point", ["begun", "marker staged"])
def test_a_table_recreated_while_a_window_is_written_gets_nothing_of_it(
    sink: DeltaSink, commits: int, point: str
) -> None:
    """delta-rs continues from the commits that it knows: the window was in the new table, and its
    marker with the old one, so that no later run could find it."""
    place = sink.storage.url
    publish(sink, plan_of(sink), "one")
    publish(sink, plan_of(sink, 2), "two")
    plan = plan_of(sink, 3)
    staging = sink.begin(plan, "three")
    stage(staging, "three")

    def make_anew(reached: str) -> None:
        if reached == point:
            shutil.rmtree(Path(place) / "_delta_log")
            for seq in range(commits):
                publish(delta(place), plan_of(sink, 7 + seq), f"new-{seq}")

    make_anew("begun")
    with pytest.raises(TableChanged, match="recreated while a window was written"):
        sink.publish(staging, plan, COUNTS, make_anew)
    assert publish(sink, plan, "again").won
    found = delta(place).marker(plan.window_id)
    assert found is not None
    assert found.plan == plan
    new = (written_by(f"new-{seq}") for seq in range(commits))
    assert rows_of(place) == sum(new, written_by("again"))


def test_a_window_whose_marker_is_gone_is_not_written_again(sink: DeltaSink) -> None:
    plan = plan_of(sink)
    publish(sink, plan)
    shutil.rmtree(Path(sink.storage.url) / "_tubemq")
    with pytest.raises(SinkDamaged, match="is gone"):
        publish(delta(sink.storage.url), plan, "b")
    assert rows_of(sink.storage.url) == written_by("a")


def test_tidy_removes_files_that_no_commit_names(sink: DeltaSink) -> None:
    plan = plan_of(sink)

    class Killed(Exception):
        """The try dies."""

    def die(point: str) -> None:
        if point == "marker staged":
            raise Killed

    dead = sink.begin(plan, "dead")
    stage(dead, "dead")
    with pytest.raises(Killed):
        sink.publish(dead, plan, COUNTS, die)
    publish(sink, plan, "a")
    files = Path(sink.storage.url) / "windows" / plan.window_id
    assert len(list(files.iterdir())) == 2
    sink.tidy(plan.window_id)
    marker = sink.marker(plan.window_id)
    assert marker is not None
    assert [f"windows/{plan.window_id}/{path.name}" for path in files.iterdir()] == list(
        marker.files
    )


def test_tries_that_make_the_table_at_once_make_one(tmp_path: Path) -> None:
    """delta-rs lets two succeed, and the second gives the table another id."""
    for number in range(5):
        sinks = [delta(str(tmp_path / f"table-{number}")) for _ in range(4)]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda sink: sink._prepare(None), sinks))
        table = DeltaTable(sinks[0].storage.url)
        assert table.version() == 0
        assert {sink._table_id() for sink in sinks} == {table.metadata().id}


def test_a_table_that_does_not_fit_is_refused_with_every_reason(sink: DeltaSink) -> None:
    fields = [pa.field("value", pa.string()), pa.field("extra", pa.int64(), nullable=False)]
    schema = pa.schema([*fields, pa.field("day", pa.string())])
    make_table(sink, schema, partition_by=["day"])
    with pytest.raises(ConfigError) as refused:
        publish(sink, plan_of(sink))
    for reason in ("partitioned by day", "no column 'partition'", "'value' is", "'extra' must not"):
        assert reason in str(refused.value)


def refusal_of(sink: DeltaSink) -> str:
    """Return why the table refuses a window, after a check that nothing of it is in the table or
    next to it."""
    before = rows_of(sink.storage.url)
    with pytest.raises(ConfigError) as refused:
        publish(sink, plan_of(sink))
    assert rows_of(sink.storage.url) == before
    assert list(sink.storage.names("windows")) == []
    return str(refused.value)


def test_a_table_that_maps_column_names_is_refused(sink: DeltaSink, tmp_path: Path) -> None:
    """Readers look for the names behind the mapping: they would find nulls in every column."""
    mapped = {
        "delta.columnMapping.mode": "name",
        "delta.minReaderVersion": "2",
        "delta.minWriterVersion": "5",
    }
    make_table(sink, RECORDS.arrow_schema(COLUMNS), configuration=mapped)
    with pytest.raises(ConfigError, match="maps column names"):
        publish(sink, plan_of(sink))
    own = delta(str(tmp_path / "own"))
    assert publish(own, plan_of(own)).won
    assert rows_of(own.storage.url) == written_by("a")


def test_a_constraint_is_never_broken(sink: DeltaSink) -> None:
    table = make_table(sink, RECORDS.arrow_schema(COLUMNS))
    table.alter.add_constraint({"known": "partition = '9:9'"})
    reason = refusal_of(delta(sink.storage.url))
    assert "CHECK constraint known (partition = '9:9')" in reason
    assert "DROP CONSTRAINT known" in reason
    DeltaTable(sink.storage.url).alter.drop_constraint("known")
    assert publish(delta(sink.storage.url), plan_of(sink)).won
    assert rows_of(sink.storage.url) == written_by("a")


def test_a_constraint_added_while_a_window_is_written_is_not_broken(sink: DeltaSink) -> None:
    plan = plan_of(sink)
    publish(sink, plan_of(sink, 5), "before")

    def constrain(point: str) -> None:
        if point == "marker staged":
            DeltaTable(sink.storage.url).alter.add_constraint({"early": "offset < 99"})

    staging = sink.begin(plan, "a")
    stage(staging, "a")
    with pytest.raises(TableChanged) as changed:
        sink.publish(staging, plan, COUNTS, constrain)
    assert changed.value.retriable
    assert rows_of(sink.storage.url) == written_by("before")
    with pytest.raises(ConfigError, match="CHECK constraint early"):
        publish(sink, plan)
    DeltaTable(sink.storage.url).alter.drop_constraint("early")
    assert publish(sink, plan, "b").won
    assert rows_of(sink.storage.url) == written_by("before") + written_by("b")


def not_null(*names: str) -> pa.Schema:
    fields = [
        field.with_nullable(field.name not in names) for field in RECORDS.arrow_schema(COLUMNS)
    ]
    return pa.schema(fields)


def test_not_null_is_obeyed(sink: DeltaSink, tmp_path: Path) -> None:
    make_table(sink, not_null("partition", "offset", "value"))
    assert publish(sink, plan_of(sink)).won
    assert rows_of(sink.storage.url) == written_by("a")
    strict = delta(str(tmp_path / "strict"))
    make_table(strict, not_null("partition", "attributes"))
    reason = refusal_of(strict)
    assert "column 'attributes' must not be null, and 2 records have none" in reason
    assert "fill it in a transform" in reason
    shutil.rmtree(strict.storage.url)
    make_table(strict, not_null("partition"))  # as after ALTER COLUMN … DROP NOT NULL
    assert publish(delta(strict.storage.url), plan_of(strict)).won


def test_not_null_inside_a_value_is_refused(sink: DeltaSink) -> None:
    inner = pa.field("value", pa.string(), nullable=False)
    columns = RECORDS.arrow_schema(COLUMNS)
    strict = columns.field("attributes").with_type(pa.map_(pa.string(), inner))
    make_table(sink, columns.set(columns.get_field_index("attributes"), strict))
    assert "the parts of which must not be null" in refusal_of(sink)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("delta.invariants", '{"expression": {"expression": "offset > 0"}}', "has an invariant"),
        ("delta.generationExpression", "batch_offset", "is generated"),
        ("CURRENT_DEFAULT", "0", "has a default"),
    ],
)
def test_a_column_with_a_rule_that_is_not_kept_here_is_refused(
    sink: DeltaSink, key: str, value: str, words: str
) -> None:
    extra = pa.field("ours", pa.int64(), metadata={key: value})
    make_table(sink, RECORDS.arrow_schema(COLUMNS).append(extra))
    assert words in refusal_of(sink)


@pytest.mark.parametrize("feature", ["rowTracking", "icebergCompatV2", "tomorrowsIdea"])
def test_a_table_with_a_feature_that_is_not_known_is_refused(
    sink: DeltaSink, feature: str, tmp_path: Path
) -> None:
    make_table(sink, RECORDS.arrow_schema(COLUMNS))
    known = ["appendOnly", "invariants"]
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [*known, feature]}
    log = Path(sink.storage.url) / "_delta_log" / f"{1:020}.json"
    log.write_text(json.dumps({"protocol": protocol}))
    with pytest.raises(ConfigError, match=f"DROP FEATURE {feature}"):
        publish(delta(sink.storage.url), plan_of(sink))
    protocol["writerFeatures"] = known
    log.with_name(f"{2:020}.json").write_text(json.dumps({"protocol": protocol}))
    assert publish(delta(sink.storage.url), plan_of(sink)).won
    assert rows_of(sink.storage.url) == written_by("a")


def test_change_data_feed_and_deletion_vectors_do_no_harm(sink: DeltaSink) -> None:
    rules = {"delta.enableChangeDataFeed": "true", "delta.appendOnly": "true"}
    make_table(sink, RECORDS.arrow_schema(COLUMNS), configuration=rules)
    assert publish(sink, plan_of(sink)).won
    assert rows_of(sink.storage.url) == written_by("a")


def test_a_table_may_have_nullable_columns_of_its_own(sink: DeltaSink) -> None:
    make_table(sink, RECORDS.arrow_schema(COLUMNS).append(pa.field("note", pa.string())))
    publish(sink, plan_of(sink))
    table = DeltaTable(sink.storage.url).to_pyarrow_table()
    assert table["note"].null_count == 3
    assert rows_of(sink.storage.url) == written_by("a")


def test_files_by_directory_are_refused(sink: DeltaSink) -> None:
    plan = plan_of(sink)
    staging = sink.begin(plan, "a")
    directory = Path(staging.path) / "partition=1%3A0"
    directory.mkdir()
    pq.write_table(pa.table({"value": [b"a"] * 3}), directory / "part.parquet")
    with pytest.raises(ConfigError, match="column 'partition'"):
        sink.publish(staging, plan, type(COUNTS)({"1:0": 3, "1:1": 0}), ignore)


def test_the_reference_names_the_table_without_secrets(
    tmp_path: Path, options: dict[str, str]
) -> None:
    remote = delta("s3://delta/named", tmp_path, options)
    publish(remote, plan_of(remote))
    marker = remote.marker(plan_of(remote).window_id)
    assert marker is not None
    assert marker.ref == "s3://delta/named"
    assert "hush" not in f"{remote!r} {remote.identity} {marker!r}"


def test_a_path_that_deltalake_decodes_to_another_is_refused(tmp_path: Path) -> None:
    """It went by the log of `a b`, and without one it failed at every try."""
    for name in ("a%20b", "a\\b"):
        with pytest.raises(ConfigError, match="it would open another directory"):
            DeltaSink(tmp_path / name)
    sink = DeltaSink(tmp_path / "100% a b")
    assert publish(sink, plan_of(sink)).won
    assert rows_of(sink.storage.url) == written_by("a")
