"""Generated values through every sink and independent readers, by hand:
``python -m tests.provider.sinks.values --values 100000 --seed 1``.

Each case is a schema with a window of rows, written as the engines write files, published into a
sink of its own, and read back whole and by a filter: Parquet files by DuckDB and polars, Delta
tables by delta-rs and polars, Iceberg tables by pyiceberg, databases by their drivers. What comes
back is what went in, with the rules of docs/sinks.md: databases keep nested values as JSON, SQLite
instants as texts in UTC.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from deltalake import DeltaTable
from pyiceberg.expressions import EqualTo

from tests.provider.sinks.openers import delta, iceberg_catalog, iceberg_in_place, jdbc, parquet
from tests.provider.sinks.postgres import postgres_server
from tests.provider.sinks.windows import ignore, plan_of
from tubemq_provider.files.data_file import DataFile
from tubemq_provider.files.locations import location_of
from tubemq_provider.sources.tubemq.columns import RECORDS
from tubemq_provider.windows.protocols import IngestCounts, Sink

__all__ = ["SINKS", "compare", "run"]

_DAYS = [date(1, 1, 1), date(1582, 10, 15), date(1969, 12, 31), date(2026, 2, 28), date.max]
_TIMES = [
    datetime.fromisoformat(text)
    for text in (
        *("0001-01-01T00:00:00", "1582-10-04T23:59:59.999999", "1969-12-31T23:00:00"),
        *("1900-01-01T00:00:01", "2026-10-25T01:30:00", "9999-12-31T23:59:59.999999"),
        *("2038-01-19T03:14:08.000001", "2026-01-01T00:00:00"),
    )
]
_TEXTS = [
    *("", " ", "a", "A", "é", "e\u0301", "\U0001f600", "\U0010ffff", "\uffff", "null", "NULL"),
    *("x" * 33, "x" * 40 + "a", "\U0010ffff" * 20, "\uffff" * 33, '"', "'", "\\", "a\nb", "a\tb"),
    *("1", "1.0", "true", "2026-01-01", "%", "%41", "a/b", "a=b", "\ufeff", "\x7f", "\x01"),
]
_BYTES = [b"", b"\0", b"\xff" * 3, b"\xff" * 40, b"abc", b"\x80" * 33, bytes(range(256))]
_REALS = [0.0, -0.0, 1.5, -1e308, 5e-324, 0.1 + 0.2, math.inf, -math.inf, math.nan, 2.0**53 + 2]


def _whole(bits: int) -> Callable[[Random], int]:
    edges = [0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))]
    return lambda r: r.choice([*edges, r.randrange(-(2 ** (bits - 1)), 2 ** (bits - 1))])


def _decimal(precision: int, scale: int) -> Callable[[Random], Decimal]:
    most = 10**precision - 1

    def value(random: Random) -> Decimal:
        number = random.choice([0, 1, -1, most, -most, random.randrange(-most, most + 1)])
        sign, digits = int(number < 0), tuple(map(int, str(abs(number))))
        return Decimal((sign, digits, -scale))

    return value


def _of(values: list[Any]) -> Callable[[Random], Any]:
    return lambda random: random.choice(values)


def _moment(random: Random) -> datetime:
    spread = timedelta(microseconds=random.randrange(-(10**15), 10**15))
    return random.choice([*_TIMES, _TIMES[-1] + spread])


def _instant(random: Random) -> datetime:
    return _moment(random).replace(tzinfo=UTC)


def _real32(random: Random) -> float:
    return random.choice([0.0, -0.0, 1.5, 2.0**-149, math.inf, -math.inf, math.nan, 16777216.0])


def _time(random: Random) -> time:
    return random.choice([time(0), time(23, 59, 59, 999999), time(12, 30, 0, 1)])


_SIMPLE: dict[str, tuple[pa.DataType, Callable[[Random], Any]]] = {
    "bool": (pa.bool_(), _of([True, False])),
    "int8": (pa.int8(), _whole(8)),
    "int16": (pa.int16(), _whole(16)),
    "int32": (pa.int32(), _whole(32)),
    "int64": (pa.int64(), _whole(64)),
    "float": (pa.float32(), _real32),
    "double": (pa.float64(), _of(_REALS)),
    "price": (pa.decimal128(5, 2), _decimal(5, 2)),
    "wide": (pa.decimal128(38, 10), _decimal(38, 10)),
    "string": (pa.string(), _of(_TEXTS)),
    "binary": (pa.binary(), _of(_BYTES)),
    "date": (pa.date32(), _of(_DAYS)),
    "instant": (pa.timestamp("us", tz="UTC"), _instant),
    "moment": (pa.timestamp("us"), _moment),
    "time": (pa.time64("us"), _time),
}


def _nested(random: Random, names: list[str]) -> tuple[pa.DataType, Callable[[Random], Any]]:
    kind, value = _SIMPLE[random.choice(names)]

    def maybe(r: Random) -> Any:
        return None if r.random() < 0.2 else value(r)

    choice = random.randrange(3)
    if choice == 0:
        return pa.list_(kind), lambda r: [maybe(r) for _ in range(r.randrange(4))]
    if choice == 1:
        return pa.struct([("x", kind), ("y", pa.string())]), lambda r: {
            "x": maybe(r),
            "y": r.choice([None, *_TEXTS]),
        }
    return pa.map_(pa.string(), kind), lambda r: [
        (key, maybe(r)) for key in r.sample(["a", "b", "é", ""], r.randrange(4))
    ]


def table_of(random: Random, rows: int, without: tuple[str, ...] = ()) -> pa.Table:
    """Generate a window: a partition, a number of each row, and columns of random types."""
    names = [name for name in _SIMPLE if name not in without]
    exact = "nan" not in without
    columns: dict[str, pa.Array] = {
        "partition": pa.array(["1:0"] * rows),
        "number": pa.array(range(rows), pa.int64()),
    }
    for index in range(random.randrange(1, 7)):
        kind, value = (
            _nested(random, names)
            if random.random() < 0.3 and "nested" not in without
            else _SIMPLE[random.choice(names)]
        )
        few = random.random() < 0.3  # a dictionary, or bounds of one value
        pool = [value(random) for _ in range(2)]
        cells = [
            None if random.random() < 0.1 else random.choice(pool) if few else value(random)
            for _ in range(rows)
        ]
        if not exact and pa.types.is_floating(kind):
            cells = [None if cell is not None and math.isnan(cell) else cell for cell in cells]
        columns[f"c{index}"] = pa.array(cells, kind)
    return pa.table(columns)


def publish(sink: Sink, table: pa.Table, random: Random) -> None:
    """Publish a window with one or two files, as engines write and tell them."""
    plan = plan_of(sink)
    staging = sink.begin(plan, "a")
    half = random.choice([0, table.num_rows // 2])
    facts = []
    for number, part in enumerate((table[:half], table[half:]) if half else (table,)):
        file = DataFile(
            location_of(staging), f"part-{number}.parquet", part.schema, columns=RECORDS
        )
        file.write(part.combine_chunks().to_batches())
        facts.append(file.close())
    counts = IngestCounts({"1:0": table.num_rows, "1:1": 0}, 0, files=tuple(facts))
    assert sink.publish(staging, plan, counts, ignore).won


# -- independent readers ---------------------------------------------------------------------------

Rows = dict[int, dict[str, Any]]
Reader = Iterator[tuple[str, pa.Table | Rows, pa.Table | None]]
"""Name of a reader, what it reads, and what it finds where a column equals a value."""


def _filtered(table: pa.Table, random: Random) -> tuple[str, Any] | None:
    kinds = (pa.types.is_nested, pa.types.is_floating, pa.types.is_time, pa.types.is_binary)
    names = [
        f.name
        for f in table.schema
        if f.name.startswith("c") and not any(is_kind(f.type) for is_kind in kinds)
    ]
    if not names:
        return None
    name = random.choice(names)
    cells = [cell for cell in table[name].to_pylist() if cell is not None]
    return (name, random.choice(cells)) if cells else None


def _read_parquet(root: Path, table: pa.Table, wanted: tuple[str, Any] | None) -> Reader:
    pattern = f"{root}/lake/*/*.parquet"
    scan = polars.scan_parquet(pattern, hive_partitioning=False)
    found = None
    if wanted is not None:
        cell = polars.lit(pa.scalar(wanted[1], table.schema.field(wanted[0]).type).as_py())
        found = scan.filter(polars.col(wanted[0]) == cell).collect().to_arrow()
    yield "polars", scan.collect().to_arrow(), found
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        query = f"select * from read_parquet('{pattern}', hive_partitioning=false)"
        found = None
        if wanted is not None:
            found = _arrow(connection.execute(f"{query} where {wanted[0]} = ?", [wanted[1]]))
        yield "duckdb", _arrow(connection.execute(query)), found


def _arrow(found: Any) -> pa.Table:
    return found.to_arrow_table()


def _read_delta(root: Path, table: pa.Table, wanted: tuple[str, Any] | None) -> Reader:
    opened = DeltaTable(root / "delta")
    dataset, found = opened.to_pyarrow_dataset(), None
    if wanted is not None:
        cell = pa.scalar(wanted[1], dataset.schema.field(wanted[0]).type)
        found = dataset.to_table(filter=pc.field(wanted[0]) == cell)
    yield "delta-rs", dataset.to_table(), found
    scan, found = polars.scan_delta(str(root / "delta")), None
    if wanted is not None:
        found = scan.filter(polars.col(wanted[0]) == polars.lit(wanted[1])).collect().to_arrow()
    yield "polars of Delta", scan.collect().to_arrow(), found


def _read_iceberg(root: Path, table: pa.Table, wanted: tuple[str, Any] | None) -> Reader:
    opened = iceberg_catalog(root / "iceberg").load_table("sales.orders")
    found = None
    if wanted is not None:
        cell = wanted[1].isoformat() if isinstance(wanted[1], date) else wanted[1]
        found = opened.scan(row_filter=EqualTo(wanted[0], cell)).to_arrow()
    yield "pyiceberg", opened.scan().to_arrow(), found


def _read_sqlite(root: Path, table: pa.Table, wanted: tuple[str, Any] | None) -> Reader:
    with closing(sqlite3.connect(root / "lake.db")) as connection:
        cursor = connection.execute("SELECT * FROM orders")
        names = [column[0] for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor]
    yield "sqlite3", {row["number"]: row for row in rows}, None


def _read_postgresql(root: Path, table: pa.Table, wanted: tuple[str, Any] | None) -> Reader:
    engine = sa.create_engine(os.environ["TUBEMQ_VALUES_POSTGRES"], poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text("SET TIME ZONE 'UTC'"))
        rows = connection.execute(sa.text(f'SELECT * FROM "t{root.name}"')).mappings().all()
        found = {
            row["number"]: {
                name: bytes(cell) if isinstance(cell, memoryview) else cell
                for name, cell in row.items()
            }
            for row in rows
        }
        connection.execute(sa.text(f'DROP TABLE "t{root.name}"'))
    yield "psycopg2", found, None


SINKS: dict[str, tuple[Callable[[Path], Sink], Callable[..., Reader], tuple[str, ...]]] = {
    "parquet": (lambda root: parquet(root / "lake"), _read_parquet, ()),
    "delta": (lambda root: delta(str(root / "delta")), _read_delta, ("time",)),
    "iceberg": (lambda root: iceberg_in_place(root / "iceberg"), _read_iceberg, ()),
    "sqlite": (
        lambda root: jdbc(f"sqlite:///{root}/lake.db", "orders", root / "staging"),
        _read_sqlite,
        ("time", "nested", "price", "wide", "nan"),
    ),
    "postgresql": (
        lambda root: jdbc(os.environ["TUBEMQ_VALUES_POSTGRES"], f"t{root.name}", root / "staging"),
        _read_postgresql,
        ("time", "nested"),
    ),
}
"""By name: opener, readers, and types that the sink refuses."""


# -- comparison ------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    """Return a value whose equality is that of bits: NaN equals itself, zeros have signs."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else (value, math.copysign(1, value))
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).isoformat()
    if isinstance(value, list):
        items = [_plain(item) for item in value]
        if value and all(
            isinstance(item, dict) and set(item) == {"key", "value"} for item in value
        ):
            return [(item["key"], _plain(item["value"])) for item in value]
        return items
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, Decimal):
        return format(value, "f")
    return value


def _in_sqlite(value: Any) -> Any:
    """Return what SQLite keeps of a value."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float) and value == 0:
        return 0.0  # its zero has no sign
    if isinstance(value, datetime):
        text = value.astimezone(UTC) if value.tzinfo else value
        return text.replace(tzinfo=None).isoformat(" ", "microseconds")
    if isinstance(value, date):
        return value.isoformat()
    return value


def _rows(read: pa.Table | Rows) -> Rows:
    if isinstance(read, dict):
        return read
    return {row["number"]: row for row in read.to_pylist()}


def _differences(table: pa.Table, read: pa.Table | Rows, keep: Callable[[Any], Any]) -> list[str]:
    rows, problems = _rows(read), []
    if len(rows) != table.num_rows:
        problems.append(f"{len(rows)} rows of {table.num_rows}")
    for row in table.to_pylist():
        found = rows.get(row["number"], {})
        for name in row:
            ours, theirs = _plain(keep(row[name])), _plain(found.get(name))
            if isinstance(ours, str) and isinstance(row[name], Decimal):
                theirs = _same_number(ours, theirs)
            if ours != theirs:
                kind = table.schema.field(name).type
                problems.append(f"{kind} {row[name]!r} is {found.get(name)!r}")
    return problems


def _same_number(ours: str, theirs: Any) -> Any:
    try:
        return ours if Decimal(str(theirs)) == Decimal(ours) else theirs
    except ArithmeticError:
        return theirs


def compare(name: str, random: Random, rows: int, tally: Counter[str]) -> list[str]:
    """Publish a window and read it by every reader; return what differs."""
    open_sink, readers, without = SINKS[name]
    table = table_of(random, rows, without)
    wanted = _filtered(table, random)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        publish(open_sink(root), table, random)
        problems = []
        for reader, read, found in readers(root, table, wanted):
            keep = _in_sqlite if name == "sqlite" else lambda value: value
            problems += [f"{reader}: {one}" for one in _differences(table, read, keep)]
            tally[reader] += table.num_rows * (table.num_columns - 2)
            if wanted is None or found is None:
                continue
            column, cell = wanted
            expected = [row["number"] for row in table.to_pylist() if row[column] == cell]
            if sorted(found["number"].to_pylist()) != expected:
                kind = table.schema.field(column).type
                problems.append(f"{reader}: the filter {kind} = {cell!r} finds other rows")
            tally[f"{reader}, filters"] += 1
    return problems


def run(
    values: int, seed: int, rows: int = 200, sinks: Sequence[str] = ()
) -> tuple[Counter[str], list[str]]:
    """Compare at least so many values in each sink."""
    tally: Counter[str] = Counter()
    problems: list[str] = []
    for name in sinks or SINKS:
        random, done = Random(f"{name} {seed}"), 0
        while done < values:
            before = sum(tally.values())
            problems += [f"{name}: {one}" for one in compare(name, random, rows, tally)]
            done += sum(tally.values()) - before
    return tally, problems


def main() -> int:
    """Print the tally and what differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--values", type=int, default=100_000, help="values of each sink")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sink", action="append", choices=SINKS, help="only this; repeatable")
    given = parser.parse_args()
    sinks = given.sink or list(SINKS)
    with ExitStack() as stack:
        if "postgresql" in sinks:
            os.environ["TUBEMQ_VALUES_POSTGRES"] = stack.enter_context(postgres_server())
        tally, problems = run(given.values, given.seed, sinks=sinks)
    for problem in problems[:30]:
        print(problem[:300])
    print(json.dumps(tally))
    print(f"{len(problems)} differences")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
