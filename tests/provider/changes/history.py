"""A random history of a genuine SQLite database, written as change records into partitions by key.

The database is what a followed table must equal; its changes are read off the rows before and after
each committed statement, so that rolled back ones leave no record.
"""

from __future__ import annotations

import json
import random
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tests.provider.windows.fake_reader import TOPIC, FakeStats
from tubemq_client.model import INDEX_ENTRY_BYTES, OffsetRange
from tubemq_provider.windows.plan import WindowPlan

KEYS = ("1:0", "2:0", "3:0")
Row = tuple[int, str | None, float | None]
SCHEMA = "id bigint, name string, price double"


@dataclass
class Database:
    """The source: rows of SQLite, and a log of bodies per partition."""

    format: str
    seed: int
    keys: tuple[str, ...] = KEYS
    move_keys: bool = True
    logs: dict[str, list[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.logs = {key: [] for key in self.keys}
        self._db = sqlite3.connect(":memory:", isolation_level=None)
        self._db.execute("CREATE TABLE goods (id INTEGER PRIMARY KEY, name TEXT, price REAL)")
        self._at = 0

    def rows(self) -> list[Row]:
        return list(self._db.execute("SELECT id, name, price FROM goods ORDER BY id"))

    def play(self, statements: int) -> None:
        """Run random statements in transactions, some of which are rolled back."""
        for _ in range(statements):
            before = {row[0]: row for row in self.rows()}
            self._db.execute("BEGIN")
            changes = [self._statement() for _ in range(self.random.randint(1, 3))]
            if self.random.random() < 0.15:
                self._db.execute("ROLLBACK")
                assert {row[0]: row for row in self.rows()} == before
                continue
            self._db.execute("COMMIT")
            for change in changes:
                if change is not None:
                    self._log(*change)

    def ends(self) -> dict[str, int]:
        return {key: INDEX_ENTRY_BYTES * len(log) for key, log in self.logs.items()}

    def _statement(self) -> tuple[str, Row | None, Row | None] | None:
        ids = [row[0] for row in self.rows()]
        new = self.random.randint(1, 30)
        name = self.random.choice([None, "", "ä", "scooter", "x" * 40])
        price = self.random.choice([None, 0.0, 1.5, -2.25])
        what = self.random.random()
        if not ids or what < 0.35:
            if new in ids:
                return None
            self._db.execute("INSERT INTO goods VALUES (?, ?, ?)", (new, name, price))
            return "c", None, (new, name, price)
        old_id = self.random.choice(ids)
        old: Row = self._db.execute("SELECT * FROM goods WHERE id = ?", (old_id,)).fetchone()
        if what < 0.6:
            self._db.execute("DELETE FROM goods WHERE id = ?", (old_id,))
            return "d", old, None
        moves = self.move_keys and what < 0.75 and new not in ids
        row = (new if moves else old_id, name, price)
        self._db.execute("UPDATE goods SET id=?, name=?, price=? WHERE id=?", (*row, old_id))
        return "u", old, row

    def _log(self, op: str, old: Row | None, new: Row | None) -> None:
        self._at += 1
        row = new if new is not None else old
        assert row is not None
        key = self.keys[zlib.crc32(str(row[0]).encode()) % len(self.keys)]
        document = getattr(self, f"_{self.format}")(op, _dict(old), _dict(new))
        self.logs[key].append(json.dumps(document).encode())

    def _debezium(self, op: str, old: Any, new: Any) -> Any:
        source = {"db": "shop", "schema": "public", "table": "goods", "lsn": self._at,
                  "ts_ms": 1_700_000_000_000 + self._at}  # fmt: skip
        payload = {"op": op, "before": old, "after": new, "source": source, "ts_ms": 1}
        return payload if self._at % 2 else {"schema": None, "payload": payload}

    def _canal(self, op: str, old: Any, new: Any) -> Any:
        word = {"c": "INSERT", "u": "UPDATE", "d": "DELETE"}[op]
        texts = {name: None if v is None else str(v) for name, v in (new or old).items()}
        changed = None
        if op == "u":
            changed = [{n: None if v is None else str(v) for n, v in old.items() if v != new[n]}]
        return {"type": word, "data": [texts], "old": changed, "isDdl": False, "database": "shop",
                "table": "goods", "es": 1_700_000_000_000 + self._at, "id": 1}  # fmt: skip

    def _maxwell(self, op: str, old: Any, new: Any) -> Any:
        word = {"c": "insert", "u": "update", "d": "delete"}[op]
        changed = {n: v for n, v in old.items() if v != new[n]} if op == "u" else None
        return {"type": word, "data": new or old, "old": changed, "database": "shop",
                "table": "goods", "ts": 1_700_000_000, "xid": self._at,
                "position": f"log.000001:{self._at}"}  # fmt: skip


VERSIONS = {"debezium": "_source_position", "canal": "_source_time", "maxwell": "_source_position"}


def _dict(row: Row | None) -> dict[str, Any] | None:
    return None if row is None else dict(zip(("id", "name", "price"), row, strict=True))


@dataclass
class LogBatch:
    key: str
    first: int
    bodies: list[bytes]

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.bodies))

    def to_arrow(self, schema: pa.Schema) -> pa.RecordBatch:
        count = len(self.bodies)
        offsets = [self.first + INDEX_ENTRY_BYTES * at for at in range(count)]
        columns = {
            "topic": [TOPIC] * count,
            "partition": [self.key] * count,
            "offset": offsets,
            "batch_offset": [self.first] * count,
            "message_id": offsets,
            "msg_time": [None] * count,
            "stream_id": [None] * count,
            "attributes": [[]] * count,
            "value": self.bodies,
        }
        arrays = [pa.array(columns[item.name], item.type) for item in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


class LogReader:
    """Range reader over the logs of a `Database`."""

    def __init__(self, logs: dict[str, list[bytes]]) -> None:
        self.stats = FakeStats()
        self._logs = logs

    def read(self, range_: OffsetRange) -> Iterator[LogBatch]:
        key = range_.partition.key
        first, end = range_.start // INDEX_ENTRY_BYTES, range_.end // INDEX_ENTRY_BYTES
        for start in range(first, end, 7):
            bodies = self._logs[key][start : min(start + 7, end)]
            yield LogBatch(key, start * INDEX_ENTRY_BYTES, bodies)


def reader_of(database: Database) -> Any:
    @contextmanager
    def open_reader(plan: WindowPlan) -> Iterator[LogReader]:
        yield LogReader(database.logs)

    return open_reader
