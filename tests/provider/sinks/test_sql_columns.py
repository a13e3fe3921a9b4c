"""Values in columns of an existing table are kept unchanged, or refused before a window is read; on
SQLite and on a PostgreSQL that a wheel brings."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from tests.provider.sinks.openers import jdbc
from tests.provider.sinks.postgres import postgres_server
from tests.provider.sinks.windows import ignore, plan_of
from tubemq_client.errors import ConfigError
from tubemq_provider.sinks.sql import SqlSink
from tubemq_provider.sinks.sql.types import RowWriter
from tubemq_provider.windows.protocols import IngestCounts

TEXT, LONG, DOUBLE = pa.string(), pa.int64(), pa.float64()
DAY, PLAIN, INSTANT = pa.date32(), pa.timestamp("us"), pa.timestamp("us", tz="UTC")
PRICE, FLAG, BODY = pa.decimal128(10, 2), pa.bool_(), pa.binary()
MAP = pa.map_(pa.string(), pa.string())
NOON = datetime(2026, 11, 21, 12, 0, 0, 123456, tzinfo=UTC)

CHANGED_BY_POSTGRES = [
    *((TEXT, kind) for kind in ("date", "time", "timestamp", "timestamptz", "interval")),
    *((TEXT, kind) for kind in ("bigint", "numeric", "money", "oid", "boolean", "bit(3)", "uuid")),
    *((TEXT, kind) for kind in ("char(3)", "bpchar", '"char"', "name", "bytea", "jsonb", "inet")),
    *((TEXT, kind) for kind in ("short_text", "shorter_text", "text[]", "xml[]", "xml")),
    *((LONG, kind) for kind in ("real", "double precision", "money", "numeric(9,-2)", "boolean")),
    *((LONG, kind) for kind in ("oid", "name", '"char"', "char(9)", "timestamp")),
    *((DOUBLE, kind) for kind in ("money", "real", "numeric", "numeric(9,2)", "bigint", "text")),
    *((DAY, kind) for kind in ("time", "text", "bigint")),
    *((PLAIN, kind) for kind in ("date", "time", "timestamp(3)", "exact_time", "text")),
    *((INSTANT, kind) for kind in ("date", "time", "timetz", "timestamptz(0)", "text", "bigint")),
    *((PRICE, kind) for kind in ("money", "numeric(9,1)", "bigint", "double precision", "price")),
    *((FLAG, kind) for kind in ("name", "bigint", '"char"')),
    *((BODY, kind) for kind in ("text", "jsonb")),
    *((MAP, kind) for kind in ("name", "char(30)", "text[]", "integer", "bytea")),
]
KEPT_BY_POSTGRES: list[tuple[pa.DataType, str, object, str]] = [
    (TEXT, "text", "ab    ", "ab    "),
    (TEXT, "varchar", "ab    ", "ab    "),
    (TEXT, "varchar(6)", "ab    ", "ab    "),
    (TEXT, "any_text", "ab    ", "ab    "),
    (TEXT, "mood", "fine", "fine"),
    (TEXT, "json", '{"a":1,  "a":2}', '{"a":1,  "a":2}'),
    *((LONG, kind, -7, "-7") for kind in ("smallint", "integer", "bigint", "numeric", "text")),
    (LONG, "numeric(9,2)", -7, "-7.00"),
    (LONG, "varchar(9)", -7, "-7"),
    (DOUBLE, "double precision", 0.1 + 0.2, "0.30000000000000004"),
    (DOUBLE, "float", float("nan"), "NaN"),
    (DAY, "date", date(2026, 11, 21), "2026-11-21"),
    (DAY, "timestamp(0)", date(2026, 11, 21), "2026-11-21 00:00:00"),
    (PLAIN, "timestamp", NOON.replace(tzinfo=None), "2026-11-21 12:00:00.123456"),
    (PLAIN, "timestamptz", NOON.replace(tzinfo=None), "2026-11-21 12:00:00.123456+00"),
    (INSTANT, "timestamptz(6)", NOON, "2026-11-21 12:00:00.123456+00"),
    (PRICE, "numeric", Decimal("12.50"), "12.50"),
    (PRICE, "numeric(10,3)", Decimal("12.50"), "12.500"),
    (PRICE, "text", Decimal("12.50"), "12.50"),
    (pa.uint64(), "bigint", 7, "7"),
    (FLAG, "boolean", True, "true"),
    (FLAG, "text", True, "true"),
    (BODY, "bytea", b"\0\xff", "\\x00ff"),
    *((MAP, kind, [("k", "a")], '{"k": "a"}') for kind in ("jsonb", "json", "text")),
]
CHANGED_BY_SQLITE = [
    *((TEXT, kind) for kind in ("DATE", "DATETIME", "TIMESTAMP", "TIME", "BOOLEAN", "NUMERIC")),
    *((TEXT, kind) for kind in ("INTEGER", "REAL", "JSON", "STRING", "UUID")),
    *((LONG, kind) for kind in ("REAL", "FLOAT", "DOUBLE PRECISION")),
    *((DOUBLE, kind) for kind in ("TEXT", "VARCHAR(9)")),
]
KEPT_BY_SQLITE: list[tuple[pa.DataType, str, object, object]] = [
    *((TEXT, kind, "007  ", "007  ") for kind in ("TEXT", "VARCHAR(3)", "CHAR(3)", "CLOB", "BLOB")),
    *((TEXT, kind, "1e3", "1e3") for kind in ("NVARCHAR(9)", "")),
    *((LONG, kind, 2**53 + 1, 2**53 + 1) for kind in ("INT", "BIGINT", "NUMERIC", "")),
    (DOUBLE, "REAL", 0.1 + 0.2, 0.1 + 0.2),
    (DOUBLE, "DOUBLE", float("inf"), float("inf")),
    *((DAY, kind, date(2026, 11, 21), "2026-11-21") for kind in ("DATE", "TEXT", "NUMERIC")),
    *((INSTANT, kind, NOON, "2026-11-21 12:00:00.123456") for kind in ("TIMESTAMP", "TEXT")),
    *((MAP, kind, [("k", "a")], '{"k": "a"}') for kind in ("JSON", "TEXT")),
    *((FLAG, kind, True, 1) for kind in ("BOOLEAN", "INTEGER")),
    (BODY, "BLOB", b"\0\xff", b"\0\xff"),
]


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with postgres_server() as url:
        run(
            url,
            "CREATE DOMAIN any_text AS text",
            "CREATE DOMAIN short_text AS varchar(3)",
            "CREATE DOMAIN shorter_text AS short_text",
            "CREATE DOMAIN exact_time AS timestamp(0)",
            "CREATE DOMAIN price AS numeric(9,1)",
            "CREATE TYPE mood AS ENUM ('fine', 'sad')",
        )
        yield url


def run(url: str, *statements: str) -> list[Any]:
    """Rows of the last statement."""
    rows: list[Any] = []
    with sa.create_engine(url, poolclass=sa.NullPool).begin() as connection:
        for statement in statements:
            found = connection.execute(sa.text(statement))
            rows = list(found) if found.returns_rows else []
    return rows


def table_with(url: str, ddl: str, tmp_path: Path) -> SqlSink:
    """Return a sink into an existing table, whose column `v` is as given."""
    run(
        url,
        "DROP TABLE IF EXISTS existing",
        "DROP TABLE IF EXISTS tubemq_windows",
        f'CREATE TABLE existing (window_id text, "partition" text, v {ddl})',
    )
    return jdbc(url, "existing", tmp_path / "staging")


def columns_of(kind: pa.DataType) -> pa.Schema:
    return pa.schema([("partition", pa.string()), ("v", kind)])


def refusal_of(sink: SqlSink, kind: pa.DataType) -> str:
    """Return the refusal before a window is read; empty if the column is accepted."""
    try:
        sink.check_columns(columns_of(kind))
    except ConfigError as refused:
        return str(refused)
    return ""


def publish_value(sink: SqlSink, kind: pa.DataType, value: object) -> None:
    """Publish a window of one record with the value, and one with null."""
    plan = plan_of(sink)
    staging = sink.begin(plan, "a")
    table = pa.table([["1:0", "1:1"], pa.array([value, None], kind)], columns_of(kind))
    pq.write_table(table, Path(staging.path) / "part.parquet")
    assert sink.publish(staging, plan, IngestCounts({"1:0": 1, "1:1": 1}), ignore).won


@pytest.mark.filterwarnings("ignore:Did not recognize type")  # SQLAlchemy, of bpchar and xml
def test_columns_of_postgresql_that_change_values_are_refused(
    postgres: str, tmp_path: Path
) -> None:
    for kind, ddl in CHANGED_BY_POSTGRES:
        said = refusal_of(table_with(postgres, ddl, tmp_path), kind)
        assert "its column 'v' is " in said, (kind, ddl)
        assert "alter it to that, or cast it in a transform" in said


def test_other_columns_of_postgresql_keep_values_as_they_are(postgres: str, tmp_path: Path) -> None:
    for kind, ddl, value, text in KEPT_BY_POSTGRES:
        sink = table_with(postgres, ddl, tmp_path)
        sink.check_columns(columns_of(kind))
        publish_value(sink, kind, value)
        query = 'SELECT v::text FROM existing ORDER BY "partition"'
        kept, empty = run(postgres, "SET TimeZone = 'UTC'", query)
        assert (kind, ddl, kept[0]) == (kind, ddl, text)
        assert empty[0] is None


def test_columns_of_sqlite_that_change_values_are_refused(tmp_path: Path) -> None:
    for kind, ddl in CHANGED_BY_SQLITE:
        sink = table_with(f"sqlite:///{tmp_path}/lake.db", ddl, tmp_path)
        assert "its column 'v' is " in refusal_of(sink, kind), (kind, ddl)


def test_other_columns_of_sqlite_keep_values_as_they_are(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    for kind, ddl, value, stored in KEPT_BY_SQLITE:
        sink = table_with(url, ddl, tmp_path)
        sink.check_columns(columns_of(kind))
        publish_value(sink, kind, value)
        row, empty = run(url, 'SELECT v FROM existing ORDER BY "partition"')
        assert (kind, ddl, row[0]) == (kind, ddl, stored)
        assert empty[0] is None


@pytest.mark.parametrize("text", ["ab    ", "abcd"])
def test_a_text_that_its_column_is_too_short_for_names_the_column(
    postgres: str, tmp_path: Path, text: str
) -> None:
    """PostgreSQL cuts blanks off without an error, and of other texts names no column."""
    sink = table_with(postgres, "varchar(3)", tmp_path)
    with pytest.raises(ConfigError, match="more than 3 characters in 'v'") as refused:
        publish_value(sink, TEXT, text)
    assert text not in str(refused.value)
    assert run(postgres, "SELECT * FROM existing") == []
    publish_value(sink, TEXT, "ab ")
    assert run(postgres, "SELECT v || '|' FROM existing WHERE v IS NOT NULL") == [("ab |",)]


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_nan_is_not_made_null_by_sqlite(tmp_path: Path, kind: pa.DataType) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    sink = jdbc(url, "made", tmp_path / "staging")
    with pytest.raises(ConfigError, match="NaN in 'v', of which SQLite would make NULL"):
        publish_value(sink, kind, float("nan"))
    assert run(url, "SELECT * FROM made") == []
    assert sink.marker(plan_of(sink).window_id) is None
    publish_value(sink, kind, 0.5)
    assert run(url, "SELECT v FROM made WHERE v IS NOT NULL") == [(0.5,)]


def test_a_column_of_the_sinks_own_name_is_refused_before_a_window_is_read(
    postgres: str, tmp_path: Path
) -> None:
    """Decoded bodies may have any names; `window_id` is the one that the sink fills."""

    def with_names(*names: str) -> pa.Schema:
        return pa.schema([(name, pa.string()) for name in ("partition", *names)])

    for url in (postgres, f"sqlite:///{tmp_path}/lake.db"):
        sink = jdbc(url, "named", tmp_path / "staging")
        with pytest.raises(ConfigError, match="'window_id' has the name of the column in which"):
            sink.check_columns(with_names("window_id"))
    # SQLite, which is the last, takes no names that differ in case only.
    for names in (("Window_Id",), ("note", "Note")):
        with pytest.raises(ConfigError, match=f"{names[-1]!r} has the name of .*; rename it"):
            sink.check_columns(with_names(*names))
    jdbc(postgres, "named", tmp_path / "staging").check_columns(with_names("Window_Id"))


ALIKE = ("a.b", "a_b", "a b", "a%b", "aPb", "a:b")


def test_columns_whose_names_are_alike_have_values_of_their_own(
    postgres: str, tmp_path: Path
) -> None:
    """Of names that differ in such signs SQLAlchemy 2.0 makes one parameter, so none is made of
    them."""
    schema = pa.schema([(name, TEXT) for name in ALIKE])
    insert = RowWriter("alike", None, schema, postgresql.dialect()).table.insert().compile()
    assert len(insert.params) == len(ALIKE) + 1
    assert not {*insert.params} & {*ALIKE}
    for url in (postgres, f"sqlite:///{tmp_path}/lake.db"):
        sink = jdbc(url, "alike", tmp_path / "staging")
        publish_row(sink, {name: pa.array([name]) for name in ALIKE})
        with sa.create_engine(url, poolclass=sa.NullPool).connect() as connection:
            (row,) = connection.exec_driver_sql("SELECT * FROM alike")
        assert tuple(row)[2:] == ALIKE


def publish_row(sink: SqlSink, columns: dict[str, pa.Array]) -> None:
    """Publish a window of one record."""
    plan = plan_of(sink)
    staging = sink.begin(plan, "a")
    table = pa.table([["1:0"], *columns.values()], ["partition", *columns])
    pq.write_table(table, Path(staging.path) / "part.parquet")
    assert sink.publish(staging, plan, IngestCounts({"1:0": 1, "1:1": 0}), ignore).won


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("c" * 64, "has a name of 64 bytes, of which PostgreSQL keeps 63"),
        ("単価" * 11, "has a name of 66 bytes"),
        ("xmin", "has a name that PostgreSQL keeps for a column of its own"),
        ("", "has no name"),
    ],
)
def test_a_name_that_postgresql_would_change_is_refused_before_a_window_is_read(
    name: str, said: str, postgres: str, tmp_path: Path
) -> None:
    columns = pa.schema([("partition", TEXT), (name, TEXT)])
    with pytest.raises(ConfigError, match=said):
        jdbc(postgres, "named", tmp_path / "staging").check_columns(columns)
    if name:
        jdbc(f"sqlite:///{tmp_path}/lake.db", "t", tmp_path / "staging").check_columns(columns)


def test_a_table_whose_name_is_too_long_for_postgresql_is_refused() -> None:
    """It was made under a shorter name, and not found again."""
    for table in ("t" * 64, f"{'s' * 64}.orders", "表" * 22):
        with pytest.raises(ConfigError, match=r"of which PostgreSQL keeps 63"):
            SqlSink("postgresql://db/lake", table)
    assert SqlSink("postgresql://db/lake", "t" * 63)


@pytest.mark.parametrize("kind", ["GENERATED ALWAYS AS IDENTITY", "GENERATED ALWAYS AS (7) STORED"])
def test_a_column_that_takes_no_values_is_refused_before_a_window_is_read(
    kind: str, postgres: str, tmp_path: Path
) -> None:
    sink = table_with(postgres, f"bigint {kind}", tmp_path)
    assert "its column 'v' is generated always" in refusal_of(sink, LONG)
    sink.check_columns(pa.schema([("partition", TEXT)]))
    by_default = table_with(postgres, "bigint GENERATED BY DEFAULT AS IDENTITY", tmp_path)
    assert refusal_of(by_default, LONG) == ""
    if "STORED" in kind:
        local = table_with(f"sqlite:///{tmp_path}/lake.db", f"bigint {kind}", tmp_path)
        assert "its column 'v' is generated always" in refusal_of(local, LONG)


FAR = {
    "instant": pa.array([253402300800000000], INSTANT),
    "plain": pa.array([-62135596800000001], PLAIN),
    "day": pa.array([2932897], DAY),
    "nested": pa.array([[253402300800000000]], pa.list_(INSTANT)),
}


@pytest.mark.parametrize("name", FAR)
def test_a_time_that_is_in_no_year_names_its_column(name: str, tmp_path: Path) -> None:
    """It was `OverflowError: date value out of range`."""
    sink = jdbc(f"sqlite:///{tmp_path}/lake.db", "far", tmp_path / "staging")
    columns = {"note": pa.array(["x"]), name: FAR[name]}
    with pytest.raises(ConfigError, match=f"a time in '{name}' that is in no year"):
        publish_row(sink, columns)
    assert sink.marker(plan_of(sink).window_id) is None


def test_the_last_hour_of_the_calendar_is_kept_wherever_it_is_another_year(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    zoned = pa.array([253402300799000000], pa.timestamp("us", tz="Europe/Berlin"))
    publish_row(jdbc(url, "late", tmp_path / "staging"), {"at": zoned})
    assert run(url, 'SELECT "at" FROM late') == [("9999-12-31 23:59:59.000000",)]
