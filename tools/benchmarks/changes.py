"""Cost of a window of changes against the format's own merge of the same changes, in turns:
`python -m tools.benchmarks.changes [--rows 10000000] [--changes 100000] [--sinks delta iceberg …]`.

Two equal tables of `--rows` rows, keys 0, 2, 4, …. Each pass makes new Debezium changes, three in
four updates, the others inserts and deletes, spread over all keys. One table gets them as a window
of the inline engine (JSON decoded, reduced, staged, merged, with the window's marker), the other
one by the format's own means from rows that are in memory: `DeltaTable.merge`, pyiceberg's `delete`
and `upsert` in one transaction, and DELETE and INSERT … ON CONFLICT from a temporary table.
Both tables must be equal in the end.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from tests.provider.changes.history import LogReader
from tests.provider.sinks.postgres import postgres_server
from tests.provider.windows.fake_reader import TOPIC, ends_of
from tools.benchmarks.interleaved import Rate, interleave, timed
from tubemq_client.model import INDEX_ENTRY_BYTES
from tubemq_provider.engines.inline import InlineEngine
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.rows.spec import DecodeSpec
from tubemq_provider.sinks.factory import sink_for
from tubemq_provider.windows.following import Following
from tubemq_provider.windows.plan import WindowScope
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.protocols import Step
from tubemq_provider.windows.run.kinds import window_run

SINKS = ("delta", "iceberg", "sqlite", "postgresql")
_SCHEMA = pa.schema(
    [
        *(("id", pa.int64()), ("name", pa.string()), ("price", pa.float64())),
        *(("partition", pa.string()), ("_source_position", pa.string())),
    ]
)
_CHUNK = 1_000_000
_KEYS = ("1:0", "2:0", "3:0")


def main() -> int:
    """Parse options, measure each sink, print the ratios."""
    parser = argparse.ArgumentParser(prog="python -m tools.benchmarks.changes")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=100_000)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--sinks", nargs="+", choices=SINKS, default=list(SINKS))
    options = parser.parse_args()
    for sink in options.sinks:
        with ExitStack() as stack:
            folder = Path(tempfile.mkdtemp(prefix="tubemq-changes-"))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            place = stack.enter_context(postgres_server()) if sink == "postgresql" else ""
            _measure(sink, folder, place, options)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"peak memory of this process: {peak} MiB")
    return 0


def _measure(sink: str, folder: Path, place: str, options: argparse.Namespace) -> None:
    made = _MADE[sink]
    ours, own = made(folder / "a", place, "a"), made(folder / "b", place, "b")
    for table in (ours, own):
        table.load(_rows(options.rows))
    source = _Changes(options.rows, options.changes)
    window = _Window(ours, source)

    def by_window() -> Rate:
        source.next("window")
        return timed(window.run, 1)

    def by_own_merge() -> Rate:
        source.next("own")
        return timed(lambda: own.merge(source.table, source.deleted), 1)

    name = f"{sink}: {options.changes} changes of {options.rows} rows"
    rates = interleave({"own merge": by_own_merge, "window": by_window}, passes=options.passes)
    seconds = {way: [rate.seconds for rate in rates[way]] for way in rates}
    ratios = [a / b for a, b in zip(seconds["window"], seconds["own merge"], strict=True)]
    print(
        f"{name}: window {median(seconds['window']):.1f} s, own merge "
        f"{median(seconds['own merge']):.1f} s, ratio {median(ratios):.2f} "
        f"({min(ratios):.2f} to {max(ratios):.2f})", flush=True,
    )  # fmt: skip
    if (left := ours.digest()) != (right := own.digest()):
        raise SystemExit(f"{sink}: the tables differ: {left} and {right}")


class _Changes:
    """Change sets, the same ones for both tables; each table takes the next in its turn."""

    def __init__(self, rows: int, count: int) -> None:
        self._rows, self.count = rows, count
        self._turns = {"window": 0, "own": 0}
        self.logs: dict[str, list[bytes]] = {key: [] for key in _KEYS}
        self.table = _SCHEMA.empty_table()
        self.deleted: list[int] = []

    def next(self, who: str) -> None:
        """Make the next changes of one table: the bodies, or the rows."""
        self._turns[who] += 1
        number = self._turns[who]
        chance = random.Random(number)  # noqa: S311 (the same changes each time)
        rows, self.deleted = [], []
        for at, key in enumerate(chance.sample(range(2 * self._rows), self.count)):
            partition = _KEYS[key % len(_KEYS)]
            position = number * self.count * 2 + at
            row = {"id": key, "name": f"name {key} {number}", "price": at / 2}
            is_delete = not key % 2 and chance.random() < 0.25
            if who == "own":
                if is_delete:
                    self.deleted.append(key)
                else:
                    rows.append({**row, "partition": partition,
                                 "_source_position": str(position).zfill(20)})  # fmt: skip
                continue
            source = {"db": "shop", "table": "goods", "lsn": position}
            before, after = (row, None) if is_delete else (None, row)
            change = {"op": "d" if is_delete else "u", "before": before, "after": after}
            self.logs[partition].append(json.dumps({**change, "source": source}).encode())
        self.table = pa.Table.from_pylist(rows, _SCHEMA)


def _rows(count: int) -> Iterator[pa.Table]:
    for first in range(0, count, _CHUNK):
        keys = range(2 * first, 2 * min(first + _CHUNK, count), 2)
        columns = [
            pa.array(keys, pa.int64()),
            pa.array([f"name {key}" for key in keys]),
            pa.array([key / 4 for key in keys]),
            pa.array([_KEYS[key % len(_KEYS)] for key in keys]),
            pa.array(["0" * 20] * len(keys)),
        ]
        yield pa.Table.from_arrays(columns, schema=_SCHEMA)


class _Silent:
    def at(self, step: Step, point: str) -> None:
        """Continue."""


class _Window:
    """Windows of the inline engine into a table."""

    def __init__(self, table: Any, source: _Changes) -> None:
        self._table, self._source = table, source
        self._following = Following("changes", ("id",), "_source_position")
        self._journal, self._number = MemoryJournal(), 0
        self._decode = DecodeSpec.parse(
            {"format": "debezium", "schema": "id bigint, name string, price double",
             "columns": ["partition"], "before": True}
        )  # fmt: skip

    def run(self) -> int:
        """Run one window with all that is new."""
        from contextlib import nullcontext

        sink = sink_for(self._table.spec, following=self._following, **self._table.options)
        logs = self._source.logs
        ends = {key: INDEX_ENTRY_BYTES * len(log) for key, log in logs.items()}
        scope = WindowScope("c1", TOPIC, "g1", sink.identity)
        planner = CursorPlanner(
            scope, lambda: ends_of(ends), initial_position="earliest", policies=Policies()
        )
        open_reader: Any = lambda _plan: nullcontext(LogReader(logs))  # noqa: E731
        engine = InlineEngine(open_reader, decode=self._decode, following=self._following)
        self._number += 1
        store = MemoryOffsetStore(self._journal, task=f"t{self._number}")
        window_run(planner, store, sink, engine, attempt="a", observer=_Silent()).run()
        return self._source.count


class _Delta:
    options: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, folder: Path, _place: str, _name: str) -> None:
        self.path = str(folder)
        self.spec = f"delta:{folder}"

    def load(self, chunks: Iterator[pa.Table]) -> None:
        from deltalake import write_deltalake

        for chunk in chunks:
            write_deltalake(self.path, _with_columns(chunk), mode="append")

    def merge(self, rows: pa.Table, deleted: list[int]) -> int:
        from deltalake import DeltaTable

        gone = pa.nulls(len(deleted), pa.string())
        changes = pa.concat_tables([
            rows.append_column("op", pa.array(["u"] * rows.num_rows, pa.string())),
            pa.table({"id": pa.array(deleted, pa.int64()), "op": gone.fill_null("d")}),
        ], promote_options="default")  # fmt: skip
        values = {f"`{name}`": f"s.`{name}`" for name in _SCHEMA.names}
        merger = DeltaTable(self.path).merge(changes, "t.id = s.id", "s", "t")
        merger = merger.when_matched_delete("s.op = 'd'").when_matched_update(values, "s.op <> 'd'")
        merger.when_not_matched_insert(values, "s.op <> 'd'").execute()
        return int(rows.num_rows) + len(deleted)

    def digest(self) -> Any:
        from deltalake import DeltaTable

        return _digest(DeltaTable(self.path).to_pyarrow_table(columns=["id", "price"]))


class _Iceberg:
    def __init__(self, folder: Path, _place: str, _name: str) -> None:
        from pyiceberg.catalog import load_catalog

        folder.mkdir(parents=True)
        properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db",
                      "warehouse": str(folder)}  # fmt: skip
        self.options = {"catalog_properties": properties}
        self.spec = "iceberg:lake/shop.goods"
        self._catalog = load_catalog("lake", **properties)

    def load(self, chunks: Iterator[pa.Table]) -> None:
        self._catalog.create_namespace("shop")
        table = None
        for plain in chunks:
            chunk = _with_columns(plain)
            if table is None:
                table = self._catalog.create_table("shop.goods", chunk.schema)
            table.append(chunk)

    def merge(self, rows: pa.Table, deleted: list[int]) -> int:
        from pyiceberg.expressions import In

        table = self._catalog.load_table("shop.goods")
        of_keys: Any = In  # mypy takes the arguments for those of its model
        with table.transaction() as change:
            if deleted:
                change.delete(of_keys("id", deleted))
            change.upsert(_with_columns(rows), ["id"])
        return int(rows.num_rows) + len(deleted)

    def digest(self) -> Any:
        scan = self._catalog.load_table("shop.goods").scan(selected_fields=("id", "price"))
        return _digest(scan.to_arrow())


class _Database:
    options: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, folder: Path, place: str, name: str) -> None:
        if not place:
            folder.mkdir(parents=True)
            place = f"sqlite:///{folder}/lake.db"
        self._engine, self._name = sa.create_engine(place), f"goods_{name}"
        self.spec = f"{place}{'&' if '?' in place else '?'}table={self._name}"
        text, number = sa.Text, sa.BigInteger
        self._table = sa.Table(
            self._name, sa.MetaData(),
            sa.Column("window_id", sa.String(255), nullable=False, index=True),
            sa.Column("id", number, nullable=False), sa.Column("name", text),
            sa.Column("price", sa.Double), sa.Column("partition", text),
            *(sa.Column(c, text) for c in ("_database", "_table", "_source_position")),
            sa.Column("_source_time", sa.DateTime(timezone=True)),
            sa.Column("_transaction_id", text),
        )  # fmt: skip
        sa.Index(f"{self._name}_key", self._table.c.id, unique=True)

    def load(self, chunks: Iterator[pa.Table]) -> None:
        self._table.create(self._engine)
        for chunk in chunks:
            with self._engine.begin() as connection:
                self._insert(connection, self._name, chunk)

    def _insert(self, connection: sa.Connection, name: str, rows: pa.Table) -> None:
        """Insert as the database's own loader does: COPY, or many rows of one statement."""
        names = ["window_id", *_SCHEMA.names]
        cells = [["x"] * rows.num_rows, *(column.to_pylist() for column in rows.columns)]
        raw = connection.connection.cursor()
        columns = ", ".join(f'"{one}"' for one in names)
        if connection.dialect.name == "sqlite":
            marks = ", ".join("?" * len(names))
            raw.executemany(
                f"INSERT INTO {name} ({columns}) VALUES ({marks})",
                list(zip(*cells, strict=True)),
            )
            return
        from io import StringIO

        lines = ("\t".join(map(str, row)) + "\n" for row in zip(*cells, strict=True))
        copy: Any = raw
        copy.copy_expert(f"COPY {name} ({columns}) FROM STDIN", StringIO("".join(lines)))

    def merge(self, rows: pa.Table, deleted: list[int]) -> int:
        names = ", ".join(f'"{one}"' for one in ["window_id", *_SCHEMA.names])
        updates = ", ".join(f'"{one}" = excluded."{one}"' for one in _SCHEMA.names)
        with self._engine.begin() as connection:
            connection.execute(sa.text(
                f"CREATE TEMPORARY TABLE staged AS SELECT * FROM {self._name} WHERE 1 = 0"
            ))  # fmt: skip
            self._insert(connection, "staged", rows)
            connection.execute(sa.text("CREATE TEMPORARY TABLE gone (id BIGINT)"))
            connection.execute(
                sa.text("INSERT INTO gone VALUES (:id)"), [{"id": key} for key in deleted]
            )
            connection.execute(
                sa.text(f"DELETE FROM {self._name} WHERE id IN (SELECT id FROM gone)")
            )
            connection.execute(sa.text(
                f"INSERT INTO {self._name} ({names}) SELECT {names} FROM staged WHERE true "
                f"ON CONFLICT (id) DO UPDATE SET {updates}"
            ))  # fmt: skip
            connection.execute(sa.text("DROP TABLE staged"))
            connection.execute(sa.text("DROP TABLE gone"))
        return int(rows.num_rows) + len(deleted)

    def digest(self) -> Any:
        query = sa.select(sa.func.count(), sa.func.sum(self._table.c.id))
        with self._engine.connect() as connection:
            return tuple(map(int, connection.execute(query).one()))


_MADE: dict[str, Callable[[Path, str, str], Any]] = {
    "delta": _Delta, "iceberg": _Iceberg, "sqlite": _Database, "postgresql": _Database,
}  # fmt: skip


def _with_columns(rows: pa.Table) -> pa.Table:
    """Add the columns of changes that a followed table has."""
    count = rows.num_rows
    for name in ("_database", "_table", "_transaction_id"):
        rows = rows.append_column(name, pa.nulls(count, pa.string()))
    return rows.append_column("_source_time", pa.nulls(count, pa.timestamp("us", tz="UTC")))


def _digest(rows: pa.Table) -> tuple[int, int]:
    return rows.num_rows, sum(rows.column("id").to_pylist())


if __name__ == "__main__":
    raise SystemExit(main())
