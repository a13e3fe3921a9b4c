"""Windows as rows: the suite on SQLite and on a PostgreSQL that a wheel brings."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from tests.provider.sinks.openers import jdbc
from tests.provider.sinks.postgres import postgres_server
from tests.provider.sinks.windows import COUNTS, OpenSink, ignore, plan_of, publish, stage
from tubemq_client.errors import ConfigError
from tubemq_provider.sinks.factory import sink_for, spec_problems
from tubemq_provider.sinks.read import read_windows
from tubemq_provider.sinks.sql import LOCK_WAIT_S, SqlSink
from tubemq_provider.testing.sink_suite import Row, SinkSuite, written_by
from tubemq_provider.windows.errors import CountMismatch, DatabaseError
from tubemq_provider.windows.protocols import IngestCounts, Sink

EXACT = {
    "number": (pa.uint64(), 2**64 - 1),
    "price": (pa.decimal128(10, 2), Decimal("12.50")),
}
COLUMNS = {
    "small": (pa.int16(), -7),
    "ratio": (pa.float64(), 0.5),
    "flag": (pa.bool_(), True),
    "day": (pa.date32(), date(2026, 11, 21)),
    "plain_time": (pa.timestamp("us"), datetime.fromisoformat("2026-11-21T09:30:00")),
    "msg_time": (pa.timestamp("us", tz="Europe/Berlin"), datetime(2026, 11, 21, 9, tzinfo=UTC)),
    "attributes": (pa.map_(pa.string(), pa.string()), [("k", "ä")]),
    "nested": (pa.struct([("a", pa.list_(pa.int64()))]), {"a": [1, 2]}),
    "value": (pa.binary(), bytes(range(256))),
}


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with postgres_server() as url:
        yield url


def rows_in(url: str, table: str) -> Counter[Row]:
    name, _, schema = table.rpartition(".")[::-1]
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    if not sa.inspect(engine).has_table(name, schema=schema or None):
        return Counter()
    with engine.connect() as connection:
        rows = connection.execute(sa.text(f'SELECT "partition", "value" FROM {table}'))
        return Counter((key, bytes(value)) for key, value in rows)


class _Common(SinkSuite):
    points = (
        "files verified",
        "window row written",
        "file inserted",
        "rows counted",
        "committed",
    )

    def rows(self, sink: Sink) -> Counter[Row]:
        assert isinstance(sink, SqlSink)
        return rows_in(sink._url, sink._target)


class TestOnSqlite(_Common):
    @pytest.fixture
    def open_sink(self, tmp_path: Path) -> OpenSink:
        return partial(jdbc, f"sqlite:///{tmp_path}/lake.db", "orders", tmp_path / "staging")


class TestOnPostgres(_Common):
    @pytest.fixture
    def open_sink(self, tmp_path: Path, postgres: str, request: pytest.FixtureRequest) -> OpenSink:
        schema = request.node.name
        with sa.create_engine(postgres).begin() as connection:
            connection.execute(sa.schema.CreateSchema(schema))
        return partial(jdbc, postgres, f"{schema}.orders", tmp_path / "staging")


@pytest.fixture(params=["sqlite", "postgres"])
def sink(request: pytest.FixtureRequest, tmp_path: Path, postgres: str) -> SqlSink:
    if request.param == "sqlite":
        return jdbc(f"sqlite:///{tmp_path}/lake.db", "orders", tmp_path / "staging")
    schema = f"s{abs(hash(request.node.name))}"
    with sa.create_engine(postgres).begin() as connection:
        connection.execute(sa.schema.CreateSchema(schema))
    return jdbc(postgres, f"{schema}.orders", tmp_path / "staging")


def execute(sink: SqlSink, *statements: str) -> list[Any]:
    """Rows of the last statement; `{table}` stands for the target."""
    rows: list[Any] = []
    with sa.create_engine(sink._url).begin() as connection:
        for statement in statements:
            found = connection.execute(sa.text(statement.replace("{table}", sink._target)))
            rows = list(found.mappings()) if found.returns_rows else []
    return rows


def publish_one(sink: Sink, columns: Mapping[str, tuple[pa.DataType, object]]) -> None:
    """Publish a window of one row with a value in each column, and one of nulls."""
    plan = plan_of(sink)
    staging = sink.begin(plan, "a")
    arrays = [pa.array([value, None], kind) for kind, value in columns.values()]
    table = pa.table([pa.array(["1:0", "1:1"]), *arrays], ["partition", *columns])
    pq.write_table(table, Path(staging.path) / "part.parquet")
    assert sink.publish(staging, plan, IngestCounts({"1:0": 1, "1:1": 1}), ignore).won


def test_every_supported_type_comes_back(sink: SqlSink) -> None:
    publish_one(sink, COLUMNS)
    first, second = execute(sink, 'SELECT * FROM {table} ORDER BY "partition"')
    assert first["window_id"] == plan_of(sink).window_id
    assert bytes(first["value"]) == bytes(range(256))
    assert (first["small"], first["ratio"], bool(first["flag"])) == (-7, 0.5, True)
    assert second["msg_time"] is second["value"] is second["attributes"] is None
    if sink.identity.startswith("jdbc:postgresql"):
        assert first["attributes"] == {"k": "ä"}
        assert first["nested"] == {"a": [1, 2]}
        assert first["msg_time"] == datetime(2026, 11, 21, 9, tzinfo=UTC)
        assert first["plain_time"] == datetime.fromisoformat("2026-11-21T09:30:00")
        assert first["day"] == date(2026, 11, 21)
    else:
        assert first["msg_time"] == "2026-11-21 09:00:00.000000"


def test_exact_numbers_stay_exact_or_are_refused(sink: SqlSink) -> None:
    if sink.identity.startswith("jdbc:sqlite"):
        with pytest.raises(ConfigError, match="cannot keep exactly"):
            publish_one(sink, EXACT)
        return
    publish_one(sink, EXACT)
    first, _ = execute(sink, 'SELECT * FROM {table} ORDER BY "partition"')
    assert first["number"] == 2**64 - 1
    assert first["price"] == Decimal("12.50")


def test_types_without_a_counterpart_are_refused(sink: SqlSink) -> None:
    plan = plan_of(sink)
    staging = sink.begin(plan, "a")
    columns = {"partition": ["1:0"] * 3, "took": pa.array([1, 2, 3], pa.duration("s"))}
    pq.write_table(pa.table(columns), Path(staging.path) / "part.parquet")
    with pytest.raises(ConfigError, match="'took'"):
        sink.publish(staging, plan, IngestCounts({"1:0": 3, "1:1": 0}), ignore)
    assert sink.marker(plan.window_id) is None


def test_readers_see_rows_and_window_row_together(sink: SqlSink) -> None:
    """A transaction that is open shows nothing to others."""
    plan = plan_of(sink)
    publish(sink, plan_of(sink, 9), "before")
    seen = []

    def look(point: str) -> None:
        if point == "rows counted" and sink.identity.startswith("jdbc:postgresql"):
            seen.append((rows_in(sink._url, sink._target), sink.marker(plan.window_id)))

    staging = sink.begin(plan, "a")
    stage(staging, "a")
    assert sink.publish(staging, plan, COUNTS, look).won
    assert seen in ([], [(written_by("before"), None)])


def test_a_second_try_waits_for_the_first_transaction(sink: SqlSink) -> None:
    plan = plan_of(sink)
    publish(sink, plan_of(sink, 9), "before")
    outcomes: list[bool] = []

    def second() -> None:
        other = jdbc(sink._url, sink._target, Path(sink._staging.root))
        outcomes.append(publish(other, plan, "second").won)

    thread = threading.Thread(target=second)

    def meanwhile(point: str) -> None:
        if point == "window row written":
            thread.start()
            thread.join(0.3)

    staging = sink.begin(plan, "first")
    stage(staging, "first")
    assert sink.publish(staging, plan, COUNTS, meanwhile).won
    thread.join(60)
    assert outcomes == [False]
    assert rows_in(sink._url, sink._target) == written_by("before") + written_by("first")


def test_a_dead_workers_transaction_blocks_no_other_for_ever(postgres: str, tmp_path: Path) -> None:
    patient = jdbc(postgres, "held", tmp_path / "staging")
    publish(patient, plan_of(patient, 9), "before")
    plan, hasty = plan_of(patient), sa.make_url(postgres)
    hasty = hasty.update_query_dict({"options": "-c lock_timeout=200ms"})
    sink = jdbc(hasty.render_as_string(hide_password=False), "held", tmp_path / "staging")
    dead = sa.create_engine(postgres).connect()
    row = {"id": plan.window_id, "target": "held", "document": "{}"}
    dead.execute(sink.windows.insert().values(row))
    pid = dead.scalar(sa.text("SELECT pg_backend_pid()"))
    with pytest.raises(DatabaseError) as waited:
        publish(sink, plan, "a")
    assert waited.value.retriable
    for word in ("lock timeout", "pg_terminate_backend", "lock_timeout in the address"):
        assert word in str(waited.value)
    execute(patient, f"SELECT pg_terminate_backend({pid})")  # the way out
    assert publish(sink, plan, "b").won
    assert rows_in(postgres, "held") == written_by("before") + written_by("b")
    dead.invalidate()


def test_waits_have_an_end_and_commits_are_on_disk_whatever_the_database_says(
    postgres: str, tmp_path: Path
) -> None:
    """`synchronous_commit=off` lets a crash of the database take back a commit it has confirmed."""
    careless = sa.make_url(postgres).update_query_dict({"options": "-c synchronous_commit=off"})
    url = careless.render_as_string(hide_password=False)
    sink = jdbc(url, "watched", tmp_path / "staging")
    publish(sink, plan_of(sink, 9), "before")
    settings = "current_setting('lock_timeout'), current_setting('synchronous_commit')"
    execute(
        sink,
        "CREATE TABLE seen (wait text, commit text)",
        "CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"INSERT INTO seen VALUES ({settings}); RETURN NEW; END $$",
        "CREATE TRIGGER look BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION look()",
    )
    publish(sink, plan_of(sink), "a")
    assert {tuple(row.values()) for row in execute(sink, "SELECT * FROM seen")} == {("1min", "on")}
    assert LOCK_WAIT_S == 60
    with sa.create_engine(url).connect() as others:
        assert others.scalar(sa.text("SHOW synchronous_commit")) == "off"


@pytest.mark.parametrize("backend", ["mysql", "mariadb"])
def test_a_database_that_cuts_what_is_too_long_is_refused(
    backend: str, postgres: str, tmp_path: Path
) -> None:
    for spec in (f"{backend}://db/lake?table=orders", f"{backend}+pymysql://db/lake?table=orders"):
        assert any("PostgreSQL" in problem for problem in spec_problems(spec))
        with pytest.raises(ConfigError, match="use a table of PostgreSQL"):
            sink_for(spec)
    instead = sink_for(f"{postgres}&table=instead_of_{backend}", staging_root=tmp_path / "staging")
    publish_large(instead, 3 * 2**20)


def publish_large(sink: Sink, size: int) -> None:
    """Publish a window whose text and body are larger than what MySQL's plain columns hold."""
    plan = plan_of(sink)
    staging = sink.begin(plan, "a")
    columns = {"partition": ["1:0"], "stream_id": ["ä" * size], "value": [bytes(size)]}
    pq.write_table(pa.table(columns), Path(staging.path) / "part.parquet")
    assert sink.publish(staging, plan, IngestCounts({"1:0": 1, "1:1": 0}), ignore).won
    assert isinstance(sink, SqlSink)
    (row,) = execute(sink, "SELECT length(stream_id) AS text, length(value) AS body FROM {table}")
    assert (row["text"], row["body"]) == (size, size)


def test_a_column_that_would_change_values_is_refused(sink: SqlSink) -> None:
    columns = {name: COLUMNS[name] for name in ("ratio", "msg_time", "plain_time", "small")}
    columns |= {"word": (pa.string(), "007"), "padded": (pa.string(), "a")}
    kinds = "ratio {}, msg_time {}, plain_time {}, small {}, word {}, padded {}"
    wrong = kinds.format("real", "date", "timestamp(0)", "double precision", "integer", "char(9)")
    execute(sink, f'CREATE TABLE {{table}} (window_id text, "partition" text, {wrong})')
    with pytest.raises(ConfigError) as refused:
        publish_one(sink, columns)
    sqlite = sink.identity.startswith("jdbc:sqlite")
    wrongs = {"small", "word"} if sqlite else set(columns)
    assert {name for name in columns if f"'{name}' is" in str(refused.value)} == wrongs
    wide = "double precision", "timestamp", "timestamp", "integer", "varchar(9)", "text"
    execute(
        sink,
        "DROP TABLE {table}",
        f'CREATE TABLE {{table}} (window_id text, "partition" text, {kinds.format(*wide)})',
    )
    publish_one(sink, columns)
    first, _ = execute(sink, 'SELECT * FROM {table} ORDER BY "partition"')
    assert (first["ratio"], first["small"], first["word"], first["padded"]) == (0.5, -7, "007", "a")


def test_columns_that_do_not_fit_are_known_before_anything_is_read(sink: SqlSink) -> None:
    whole = pa.schema([("partition", pa.string()), ("id", pa.int64())])
    sink.check_columns(whole)
    with pytest.raises(ConfigError, match="tags"):
        sink.check_columns(whole.append(pa.field("tags", pa.dictionary(pa.int8(), pa.binary()))))
    publish_one(sink, {"id": (pa.int64(), 1)})
    sink.check_columns(whole)
    with pytest.raises(ConfigError, match="it has no column 'note'"):
        sink.check_columns(whole.append(pa.field("note", pa.string())))


def test_instants_are_utc_in_a_column_without_a_zone(postgres: str, tmp_path: Path) -> None:
    berlin = sa.make_url(postgres).update_query_dict({"options": "-c timezone=Europe/Berlin"})
    url = berlin.render_as_string(hide_password=False)
    sink = jdbc(url, "zoneless", tmp_path / "staging")
    execute(sink, 'CREATE TABLE {table} (window_id text, "partition" text, msg_time timestamp)')
    publish_one(sink, {"msg_time": COLUMNS["msg_time"]})
    first, _ = execute(sink, 'SELECT * FROM {table} ORDER BY "partition"')
    assert first["msg_time"] == datetime.fromisoformat("2026-11-21T09:00:00")


@pytest.mark.parametrize("name", ["stream_id", "attributes"])
def test_a_record_with_nul_says_how_to_go_on(postgres: str, tmp_path: Path, name: str) -> None:
    """Any producer can send one; without a word the window would be tried for ever."""
    sink = jdbc(postgres, f"nul_{name}", tmp_path / "staging")
    attributes = pa.map_(pa.string(), pa.string())

    def of(text: str) -> dict[str, tuple[pa.DataType, object]]:
        given: dict[str, tuple[pa.DataType, object]] = {"stream_id": (pa.string(), text)}
        return given if name == "stream_id" else {name: (attributes, [("k", text)])}

    with pytest.raises(ConfigError, match=f"NUL in {name}") as refused:
        publish_one(sink, of("a\0b"))
    assert "use a sink of files" in str(refused.value)
    assert "a\0b" not in str(refused.value)
    publish_one(sink, of("ab"))  # as a transform leaves it
    files = sink_for(str(tmp_path / "files"))
    publish_one(files, of("a\0b"))
    assert read_windows(files).count_rows() == 2


def test_large_records_are_inserted_a_few_at_a_time(tmp_path: Path) -> None:
    """However large producers make them, a statement holds some megabytes."""
    sink = jdbc(f"sqlite:///{tmp_path}/lake.db", "orders", tmp_path / "staging")
    plan = plan_of(sink)
    staging = sink.begin(plan, "a")
    columns = {"partition": ["1:0"] * 30, "value": [bytes(2**20)] * 30}
    path = Path(staging.path) / "part.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=16)
    sizes: list[int] = []

    def measure(*given: Any) -> None:
        rows = given[3] if isinstance(given[3], list) else [given[3]]
        found = [
            len(value) for row in rows for value in row if isinstance(value, bytes | memoryview)
        ]
        sizes.append(sum(found))

    sa.event.listen(sink._engine, "before_cursor_execute", measure)
    assert sink.publish(staging, plan, IngestCounts({"1:0": 30, "1:1": 0}), ignore).won
    assert sum(sizes) == 30 * 2**20
    assert max(sizes) <= 8 * 2**20


def test_rows_without_a_window_are_refused(sink: SqlSink) -> None:
    publish(sink, plan_of(sink), "a")
    stray = plan_of(sink, 2)
    execute(sink, f"UPDATE {{table}} SET window_id = '{stray.window_id}'")
    with pytest.raises(CountMismatch, match="6 rows"):
        publish(sink, stray, "b")
    assert sink.marker(stray.window_id) is None
    assert rows_in(sink._url, sink._target) == written_by("a")


def test_a_table_of_ones_own_is_used_if_it_has_all_columns(sink: SqlSink) -> None:
    execute(sink, 'CREATE TABLE {table} (window_id text, note text, "partition" text)')
    with pytest.raises(ConfigError) as refused:
        publish(sink, plan_of(sink))
    assert "'offset'" in str(refused.value)
    assert "'value'" in str(refused.value)
    kind = "bytea" if sink.identity.startswith("jdbc:postgresql") else "blob"
    execute(
        sink,
        'ALTER TABLE {table} ADD COLUMN "offset" bigint',
        "ALTER TABLE {table} ADD COLUMN msg_time timestamp",
        "ALTER TABLE {table} ADD COLUMN attributes text",
        f"ALTER TABLE {{table}} ADD COLUMN value {kind}",
    )
    assert publish(sink, plan_of(sink), "a").won
    assert rows_in(sink._url, sink._target) == written_by("a")


def test_two_tables_of_a_database_keep_separate_windows(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    one, two = (jdbc(url, name, tmp_path / "staging") for name in ("one", "two"))
    publish(one, plan_of(one), "a")
    publish(two, plan_of(two), "b")
    assert list(one.window_ids()) == [plan_of(one).window_id]
    assert list(two.window_ids()) == [plan_of(two).window_id]
    assert plan_of(one).window_id != plan_of(two).window_id


def test_credentials_stay_out_of_sight() -> None:
    sink = SqlSink("postgresql://user:hush@db.example:5433/lake?sslpassword=hush", "s.orders")
    assert repr(sink) == "SqlSink('postgresql://db.example:5433/lake', 's.orders')"
    assert sink.identity == "jdbc:postgresql://db.example:5433/lake/s.orders"
    with pytest.raises(ConfigError) as refused:
        SqlSink("postgresql//user:hush@x", "orders")
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("typed", "normal"),
    [
        ("postgresql+psycopg2://u:p@db.example/lake", "postgresql://db.example/lake"),
        ("postgresql:///lake?host=/run/PG", "postgresql:///run/PG/lake"),
        ("sqlite:////Data/lake.db", "sqlite:/Data/lake.db"),
        ("mssql://db.example:5432/lake", "mssql://db.example:5432/lake"),
    ],
)
def test_an_address_in_normal_form_is_the_identity_as_it_is(typed: str, normal: str) -> None:
    sink = SqlSink(typed, "orders")
    assert sink.identity == sink._typed_identity == f"jdbc:{normal}/orders"


def test_addresses_that_mean_the_same_have_one_identity(postgres: str, tmp_path: Path) -> None:
    plain = jdbc(postgres, "spelled", tmp_path / "staging")
    with_port = jdbc(_with_default_port(postgres), "spelled", tmp_path / "staging")
    assert with_port._typed_identity != plain._typed_identity
    assert with_port.identity == plain.identity
    publish(with_port, plan_of(with_port), "a")
    again = jdbc(_with_default_port(postgres), "spelled", tmp_path / "staging")
    assert again.identity == plain.identity
    assert plain.marker(plan_of(again).window_id) is not None


def test_windows_that_are_named_after_what_was_typed_keep_their_name(
    postgres: str, tmp_path: Path
) -> None:
    url, staging = _with_default_port(postgres), tmp_path / "staging"
    typed = jdbc(url, "earlier", staging)._typed_identity
    # As releases before the normal form did.
    earlier = SqlSink(url, "earlier", staging_root=staging, identity=typed)
    publish(earlier, plan_of(earlier), "a")
    now = jdbc(url, "earlier", staging)
    assert now.identity == typed
    assert now.marker(plan_of(now).window_id) is not None


def _with_default_port(url: str) -> str:
    return sa.make_url(url).set(port=5432).render_as_string(hide_password=False)


def test_a_database_in_memory_is_refused() -> None:
    with pytest.raises(ConfigError, match="name a file"):
        SqlSink("sqlite://", "orders")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://db/lake?host=elsewhere",
        "postgresql://db/lake?hostaddr=10.0.0.66",
        "postgresql://db/lake?port=5433",
        "postgresql://db/lake?dbname=other",
        "oracle://db/lake?dsn=other",
    ],
)
def test_an_address_that_leads_elsewhere_needs_a_name_of_its_own(url: str) -> None:
    """The identity says which database it is, and names the windows: another one must not continue
    with them."""
    with pytest.raises(ConfigError, match="give identity="):
        SqlSink(url, "orders")
    assert SqlSink(url, "orders", identity="elsewhere").identity == "elsewhere"


def test_an_address_says_how_long_sqlite_waits(tmp_path: Path) -> None:
    """`timeout` is one of the parameters that an address may have."""
    for parameter, waits_ms in (("", LOCK_WAIT_S * 1000), ("?timeout=0.5", 500)):
        sink = jdbc(f"sqlite:///{tmp_path}/lake.db{parameter}", "orders", tmp_path / "staging")
        with sink._engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == waits_ms
