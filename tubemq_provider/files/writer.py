"""Writer of staged Parquet files of a target size, with the facts of each.

Used by engines that write with pyarrow, on a driver or an executor, directly to the staging place.
A row group has records of one partition only, so that its statistics prove the partition. This
module must not plan windows, read brokers, or import pyspark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self

from tubemq_provider.files.data_file import DataFile
from tubemq_provider.files.locations import Location
from tubemq_provider.windows.facts import FileFact

if TYPE_CHECKING:
    import pyarrow as pa

    from tubemq_provider.files.columns import ColumnSet

__all__ = ["ROW_GROUP_BYTES", "FilePart", "StagedWriter", "rows_by_key", "with_file_parts"]

ROW_GROUP_BYTES: Final = 16 * 1024 * 1024
"""Size of Arrow data in bytes at which a row group is written."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """Sub-range `[start, end)` of one partition in a file; `path` is empty if it has no records.
    `bytes` is the size of the bodies."""

    path: str
    partition: str
    start: int
    end: int
    rows: int
    bytes: int


def rows_by_key(rows: pa.RecordBatch) -> Iterator[tuple[str, int]]:
    """Yield the partition keys in the column ``partition``, with the number of rows of each."""
    for item in rows.column("partition").value_counts().to_pylist():
        yield str(item["values"]), item["counts"]


def with_file_parts(facts: Iterable[FileFact], pieces: Iterable[FilePart]) -> tuple[FileFact, ...]:
    """Return `facts`, each with the sub-ranges of its file and its rows by partition."""
    of_file: dict[str, list[FilePart]] = {}
    for file_part in pieces:
        of_file.setdefault(file_part.path, []).append(file_part)
    made = []
    for fact in facts:
        mine = sorted(of_file.get(fact.path, []), key=lambda p: (p.partition, p.start))
        rows: Counter[str] = Counter()
        for file_part in mine:
            rows[file_part.partition] += file_part.rows
        parts = tuple((p.partition, p.start, p.end, p.rows) for p in mine)
        made.append(replace(fact, partitions=dict(rows), pieces=parts))
    return tuple(made)


class StagedWriter:
    """Writer of files ``<stem>-<number>.parquet`` in `location`. A file is created with its first
    record; in an object store it appears when it is closed. `files` are the facts of closed files.

    A file is closed when it has `target_bytes` or more, so it is larger by at most a row group, and
    only the last one is smaller. Without a target there is a file per range,
    ``<stem>-<partition key with - for :>-<start>.parquet``.

    Without `begin_range`, rows may be of any partition, by their column ``partition``; `pieces`
    then have the rows of each file by partition, without offsets. `columns` select the columns with
    dictionary and statistics; without them all have both.
    """

    def __init__(
        self,
        location: Location,
        stem: str,
        schema: pa.Schema,
        *,
        target_bytes: int | None = None,
        row_group_bytes: int = ROW_GROUP_BYTES,
        compression: str = "snappy",
        columns: ColumnSet | None = None,
    ) -> None:
        self.pieces: list[FilePart] = []
        self.files: list[FileFact] = []
        self._location = location
        self._stem = stem
        self._schema = schema
        self._target = target_bytes
        self._limit = min(row_group_bytes, target_bytes or row_group_bytes)
        self._compression = compression
        self._columns = columns
        self._number = 0
        self._name = ""
        self._file: DataFile | None = None
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._range: Any | None = None
        self._start = self._rows = self._bytes = 0
        self._of_any: Counter[str] = Counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.end_range()
            self._flush()
            self._close()
        else:
            self._abandon()

    def begin_range(self, range_: Any) -> None:
        """Begin a range: the next records are of `range_`, in offset order."""
        if self._target is None:
            self._close()
        self._range = range_
        self._start, self._rows, self._bytes = range_.start, 0, 0

    def end_range(self) -> None:
        """End the range, which is complete. Idempotent."""
        range_ = self._range
        if range_ is None:
            return
        self._flush()
        self._note(range_.end)
        self._range = None

    def add(self, batch: pa.RecordBatch, body_bytes: int, start: int | None = None) -> bool:
        """Add records of the range; return True if a row group was written. `start` is their first
        offset, if a file may end before them."""
        if not batch.num_rows:
            return False
        if self._range is None:
            self._count(batch)
        elif start is not None and self._is_full():
            self._note(start)
            self._close()
        self._pending.append(batch)
        self._pending_bytes += batch.nbytes
        self._rows += batch.num_rows
        self._bytes += body_bytes
        if self._pending_bytes < self._limit:
            return False
        self._flush()
        return True

    def _count(self, batch: pa.RecordBatch) -> None:
        if self._is_full():
            self._close()
        for key, count in rows_by_key(batch):
            self._of_any[key] += count

    def _is_full(self) -> bool:
        """Return True if the file has its target size. Only without pending rows, which belong to
        it."""
        return (
            self._target is not None
            and self._file is not None
            and not self._pending
            and self._file.size >= self._target
        )

    def _note(self, end: int) -> None:
        """Record a sub-range that ends at `end`; the next one begins there."""
        assert self._range is not None
        name = self._name if self._rows else ""
        key = self._range.partition.key
        self.pieces.append(FilePart(name, key, self._start, end, self._rows, self._bytes))
        self._start, self._rows, self._bytes = end, 0, 0

    def _flush(self) -> None:
        if not self._pending:
            return
        if self._file is None:
            self._name = self._next_name()
            self._file = DataFile(
                self._location, self._name, self._schema, self._compression, self._columns
            )
        self._file.write(self._pending)
        self._pending, self._pending_bytes = [], 0

    def _next_name(self) -> str:
        if self._target is None and self._range is not None:
            partition = self._range.partition.key.replace(":", "-")
            return f"{self._stem}-{partition}-{self._range.start}.parquet"
        self._number += 1
        return f"{self._stem}-{self._number - 1}.parquet"

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            self.files.append(file.close())
            for key, rows in sorted(self._of_any.items()):
                self.pieces.append(FilePart(self._name, key, 0, 0, rows, 0))
            self._of_any.clear()

    def _abandon(self) -> None:
        self._pending, self._pending_bytes, self._range = [], 0, None
        file, self._file = self._file, None
        if file is not None:
            file.abandon()
