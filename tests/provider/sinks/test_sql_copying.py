"""Rows that PostgreSQL gets by COPY: the same as by inserts, and inserts where COPY means less."""

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

from tests.provider.sinks.postgres import postgres_server
from tubemq_client.errors import ConfigError
from tubemq_provider.sinks.sql.copying import can_copy
from tubemq_provider.sinks.sql.types import RowWriter

COLUMNS = {
    "partition": pa.array(["1:0", "tab\tand \\N", None, "ü\r\nend\\"]),
    'odd "name" %s': pa.array([1, -(2**63), None, 2**63 - 1], pa.int64()),
    "single": pa.array([0.1, float("inf"), None, float("nan")], pa.float32()),
    "body": pa.array([b"", b"\x00\\x\t", None, b"\xff" * 9]),
    "flag": pa.array([True, False, None, True]),
    "day": pa.array([date(1, 1, 1), date(9999, 12, 31), None, date(2026, 2, 28)]),
    "plain": pa.array([datetime(2026, 1, 2, 3, 4, 5, 6, UTC)] * 3 + [None], pa.timestamp("us")),
    "at": pa.array(
        [datetime(9999, 12, 31, 23, 59, tzinfo=UTC)] * 3 + [None], pa.timestamp("ms", "Asia/Tokyo")
    ),
    "price": pa.array([Decimal("1.50"), Decimal("-0.01"), None, Decimal(0)], pa.decimal128(10, 2)),
    "big": pa.array([2**64 - 1, 0, None, 1], pa.uint64()),
    "more": pa.array(
        [[("a", "tab\t\\")], [], None, [("ü", None)]], pa.map_(pa.string(), pa.string())
    ),
    "things": pa.array([[{"n": 1}], [], None, [None]], pa.list_(pa.struct([("n", pa.int64())]))),
}
RULED = (
    "CREATE TABLE target (window_id text); "
    "CREATE RULE quiet AS ON INSERT TO target DO INSTEAD NOTHING"
)


@pytest.fixture(scope="module")
def engine() -> Iterator[sa.Engine]:
    with postgres_server() as url:
        yield sa.create_engine(url, poolclass=sa.NullPool)


def written(engine: sa.Engine, path: Path, name: str, *, by_copy: bool) -> list[Any]:
    """Return the rows of a file after they were written into a new table."""
    writer = RowWriter(name, None, pq.read_schema(path), engine.dialect)
    writer.table.create(engine)
    writer._copies = by_copy
    with engine.begin() as connection:
        writer.write(connection, path, "w\\1")
        return sorted(map(str, connection.execute(sa.text(f"SELECT t::text FROM {name} t"))))


def test_a_copy_leaves_the_rows_that_inserts_leave(engine: sa.Engine, tmp_path: Path) -> None:
    pq.write_table(pa.table(COLUMNS), path := tmp_path / "part.parquet")

    copied = written(engine, path, "copied", by_copy=True)

    assert copied == written(engine, path, "inserted", by_copy=False)
    assert len(copied) == 4


def test_what_copy_cannot_say_is_refused_by_name(engine: sa.Engine, tmp_path: Path) -> None:
    for name, column in {
        "nul": pa.array(["a\0b"]),
        "nested_nul": pa.array([[("k", "a\0b")]], pa.map_(pa.string(), pa.string())),
        "far": pa.array([10**14], pa.int64()).cast(pa.timestamp("s")),
    }.items():
        table = pa.table({"partition": ["1:0"], name: column})
        pq.write_table(table, path := tmp_path / f"{name}.parquet", coerce_timestamps=None)
        with pytest.raises(ConfigError, match=f"'?{name}'?"):
            written(engine, path, f"t_{name}", by_copy=True)


@pytest.mark.parametrize(
    ("ddl", "copies"),
    [
        ("CREATE TABLE target (window_id text)", True),
        ("CREATE TABLE target (window_id text) PARTITION BY LIST (window_id)", True),
        ("CREATE TABLE target (window_id text, n int GENERATED ALWAYS AS IDENTITY)", False),
        (
            "CREATE TABLE target (window_id text); ALTER TABLE target ENABLE ROW LEVEL SECURITY",
            False,
        ),
        ("CREATE VIEW target AS SELECT 'w'::text AS window_id", False),
        (RULED, False),
    ],
)
def test_tables_that_do_more_with_an_insert_get_inserts(
    engine: sa.Engine, ddl: str, *, copies: bool
) -> None:
    table = sa.Table("target", sa.MetaData(), sa.Column("window_id", sa.Text))
    with engine.connect() as connection:  # never committed
        connection.exec_driver_sql(ddl)
        assert can_copy(connection, table) is copies
