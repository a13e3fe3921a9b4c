"""Writes staged Parquet files of about one size, and says what lies in each.

Used by engines that write with pyarrow, on a driver or an executor. A row group holds records of
one partition only, so that its statistics prove where they come from. This module must not know
windows, read brokers, or import pyspark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from tubemq_client import COLUMNS
from tubemq_client.errors import require_extra

if TYPE_CHECKING:
    import pyarrow as pa

    from tubemq_client.model import OffsetRange, Partition

__all__ = ["CORRUPT", "ROW_GROUP_BYTES", "CorruptFile", "FilePiece", "StagedWriter", "arrow_schema"]

ROW_GROUP_BYTES: Final = 16 * 1024 * 1024
"""A row group is written when about so many bytes of Arrow data have come together."""

CORRUPT: Final = "_corrupt"
"""Directory of a staging place, and of a window, for records that fail their checksum."""

_ASIDE_BYTES: Final = 4 * 1024 * 1024
_ASIDE_ROWS: Final = 1024
"""Corrupt records are written when so many bytes, or records, have come together."""

_REPEATING: Final = (
    "topic",
    "partition",
    "stream_id",
    "msg_time",
    "attributes.key_value.key",
    "attributes.key_value.value",
)
"""Columns with few values: a dictionary pays. Bodies and numbers are written as they are."""
_RANGED: Final = ("partition", "offset", "batch_offset", "message_id", "msg_time")
"""Columns whose least and largest value help readers to skip row groups."""


@dataclass(frozen=True, slots=True)
class FilePiece:
    """Part of a file, or a sub-range without records (`path` is then empty): offsets
    `[start, end)` of one partition. `bytes` counts bodies."""

    path: str
    partition: str
    start: int
    end: int
    rows: int
    bytes: int


class StagedWriter:
    """Files ``<stem>-<number>.parquet`` in `directory`; each appears with its first record.

    A file is closed when it has `target_bytes` or more, so it is larger by at most a row group,
    and only the last one is smaller. Without a target there is a file per range,
    ``<stem>-<broker>-<partition>-<start>.parquet``.
    """

    def __init__(
        self,
        directory: Path,
        stem: str,
        schema: pa.Schema,
        *,
        target_bytes: int | None = None,
        row_group_bytes: int = ROW_GROUP_BYTES,
        compression: str = "snappy",
    ) -> None:
        self.pieces: list[FilePiece] = []
        self._directory = directory
        self._stem = stem
        self._schema = schema
        self._target = target_bytes
        self._limit = min(row_group_bytes, target_bytes or row_group_bytes)
        self._compression = compression
        self._number = 0
        self._name = ""
        self._file: Any = None
        self._writer: Any = None
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._range: OffsetRange | None = None
        self._start = self._rows = self._bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.end_range()
        self._close()

    def begin_range(self, range_: OffsetRange) -> None:
        """What comes now are records of `range_`, in offset order."""
        if self._target is None:
            self._close()
        self._range = range_
        self._start, self._rows, self._bytes = range_.start, 0, 0

    def end_range(self) -> None:
        """The range is complete. Calling it again changes nothing."""
        range_ = self._range
        if range_ is None:
            return
        self._flush()
        self._note(range_.end)
        self._range = None

    def add(self, batch: pa.RecordBatch, body_bytes: int, start: int | None = None) -> bool:
        """Take records of the range; True if a row group was written. `start` is the offset they
        begin at, where a file may end before them."""
        if not batch.num_rows:
            return False
        if start is not None and self._is_full():
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

    def _is_full(self) -> bool:
        """Asked between row groups only: what is pending belongs to the file before."""
        return (
            self._target is not None
            and self._file is not None
            and not self._pending
            and self._file.tell() >= self._target
        )

    def _note(self, end: int) -> None:
        """A piece ends at `end`, and the next one begins there."""
        assert self._range is not None
        name = self._name if self._rows else ""
        key = self._range.partition.key
        self.pieces.append(FilePiece(name, key, self._start, end, self._rows, self._bytes))
        self._start, self._rows, self._bytes = end, 0, 0

    def _flush(self) -> None:
        if not self._pending:
            return
        import pyarrow as pa

        if self._writer is None:
            self._open()
        table = pa.Table.from_batches(self._pending, self._schema)
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._pending, self._pending_bytes = [], 0

    def _open(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._name = self._next_name()
        self._file = pa.OSFile(str(self._directory / self._name), "wb")
        self._writer = pq.ParquetWriter(
            self._file,
            self._schema,
            compression=self._compression,
            use_dictionary=_of(self._schema, _REPEATING),
            write_statistics=_of(self._schema, _RANGED),
        )

    def _next_name(self) -> str:
        if self._target is None and self._range is not None:
            partition = self._range.partition
            place = f"{partition.broker_id}-{partition.partition_id}-{self._range.start}"
            return f"{self._stem}-{place}.parquet"
        self._number += 1
        return f"{self._stem}-{self._number - 1}.parquet"

    def _close(self) -> None:
        writer, file, self._writer, self._file = self._writer, self._file, None, None
        if writer is not None:
            writer.close()
        if file is not None:
            file.close()


class Corrupt(Protocol):
    """What is kept of a record that fails its checksum; the client calls it `CorruptEntry`."""

    @property
    def partition(self) -> Partition:
        """Where it was read."""

    @property
    def batch_offset(self) -> int:
        """Offset of its batch."""

    @property
    def position(self) -> int:
        """Its place in the batch."""

    @property
    def message_id(self) -> int:
        """The broker's number for it."""

    @property
    def data(self) -> bytes:
        """What the broker sent, attributes and body together."""


class CorruptFile:
    """Corrupt records in one file, if there are any: partition, batch_offset, position, message_id,
    data.

    Written as they come: at most `_ASIDE_BYTES` of them are held, however damaged a log is. Give
    it `into` what file before a reader is given `add`.
    """

    def __init__(self) -> None:
        self._path: Path | None = None
        self._writer: Any = None
        self._entries: list[Corrupt] = []
        self._bytes = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @contextmanager
    def into(self, path: Path) -> Iterator[None]:
        """Keep what comes in `path`, which is whole when this ends; after an error, whatever."""
        self._path, self._count = path, 0
        try:
            yield
            self._flush()
        finally:
            self._entries, self._bytes = [], 0
            writer, self._writer, self._path = self._writer, None, None
            if writer is not None:
                writer.close()

    def add(self, entry: Corrupt) -> None:
        """Keep one; a reader's `quarantine`."""
        self._count += 1
        self._entries.append(entry)
        self._bytes += len(entry.data)
        if self._bytes >= _ASIDE_BYTES or len(self._entries) >= _ASIDE_ROWS:
            self._flush()

    def _flush(self) -> None:
        """Write what is held as a row group."""
        if not self._entries:
            return
        import pyarrow as pa
        import pyarrow.parquet as pq

        entries = self._entries
        table = pa.table(
            {
                "partition": pa.array([e.partition.key for e in entries], pa.string()),
                "batch_offset": pa.array([e.batch_offset for e in entries], pa.int64()),
                "position": pa.array([e.position for e in entries], pa.int64()),
                "message_id": pa.array([e.message_id for e in entries], pa.int64()),
                "data": pa.array([e.data for e in entries], pa.binary()),
            }
        )
        if self._writer is None:
            if self._path is None:
                raise RuntimeError("corrupt records came before there was a file for them")
            self._path.parent.mkdir(exist_ok=True)
            self._writer = pq.ParquetWriter(self._path, table.schema)
        self._writer.write_table(table)
        self._entries, self._bytes = [], 0


def _of(schema: pa.Schema, paths: Sequence[str]) -> list[str]:
    return [path for path in paths if path.partition(".")[0] in schema.names]


def arrow_schema(columns: Iterable[str] = COLUMNS) -> pa.Schema:
    """The Arrow schema of `columns`; times are UTC microseconds. Needs the `arrow` extra."""
    try:
        import pyarrow as pa
    except ImportError as exc:
        raise require_extra("arrow", exc) from exc
    types = {
        "topic": pa.string(),
        "partition": pa.string(),
        "offset": pa.int64(),
        "batch_offset": pa.int64(),
        "message_id": pa.int64(),
        "msg_time": pa.timestamp("us", tz="UTC"),
        "stream_id": pa.string(),
        "attributes": pa.map_(pa.string(), pa.string()),
        "value": pa.binary(),
    }
    return pa.schema([(name, types[name]) for name in columns])
