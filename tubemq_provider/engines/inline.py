"""The inline engine: range reader → Arrow → Parquet files, in this process, without Spark.

For small windows, tests and drills; the same plan, sink and counts as the big engines. Reads one
partition after the other and holds one row group in memory. This module must not decide which
offsets to read, retry a window, or touch the sink beyond the staging directory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from tubemq_client import COLUMNS
from tubemq_client.errors import ConfigError, require_extra
from tubemq_provider.windows.errors import WindowError
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.protocols import IngestCounts, Progress, Staging

if TYPE_CHECKING:
    import pyarrow as pa

    from tubemq_client.model import BrokerNode, ClientSettings, OffsetRange

__all__ = ["InlineEngine", "RecordBatches", "RecordReader"]


class RecordBatches(Protocol):
    """What the engine needs of a fetched batch; the client's is `MessageBatch`."""

    @property
    def nbytes(self) -> int:
        """Bytes of all record bodies."""

    def to_arrow(self, schema: pa.Schema) -> pa.RecordBatch:
        """The records with exactly `schema`."""


class ReaderStats(Protocol):
    """What a reader counts over its life."""

    corrupt: int
    gaps: list[Any]


class RecordReader(Protocol):
    """What the engine needs of a range reader; the client's is `RangeReader`."""

    @property
    def stats(self) -> ReaderStats:
        """Corrupt records and gaps so far."""

    def read(self, range_: OffsetRange) -> Iterator[RecordBatches]:
        """The records of the range, each once."""


OpenReader = Callable[[WindowPlan], AbstractContextManager[RecordReader]]


class InlineEngine:
    """Executes plans with one reader per window; see `Engine`.

    `columns` may leave some out, but not ``partition``, by which the sink verifies. A row group is
    written when about `row_group_bytes` of records have come together.
    """

    name = "inline"

    def __init__(
        self,
        open_reader: OpenReader,
        *,
        columns: Sequence[str] = COLUMNS,
        row_group_bytes: int = 16 * 1024 * 1024,
        compression: str = "snappy",
    ) -> None:
        problems = [f"unknown column {name!r}" for name in columns if name not in COLUMNS]
        if "partition" not in columns:
            problems.append("column 'partition' is needed to verify windows")
        if row_group_bytes < 1:
            problems.append(f"row_group_bytes {row_group_bytes} is not >= 1")
        if problems:
            raise ConfigError(problems, subject="inline engine")
        self._open_reader = open_reader
        self._columns = tuple(columns)
        self._row_group_bytes = row_group_bytes
        self._compression = compression
        self._cancelled = threading.Event()

    @classmethod
    def for_cluster(
        cls,
        settings: ClientSettings,
        *,
        policies: Policies,
        brokers: Mapping[int, BrokerNode] | None = None,
        **options: Any,
    ) -> InlineEngine:
        """An engine that reads from a TubeMQ cluster under the group's reader pool."""

        def open_reader(plan: WindowPlan) -> AbstractContextManager[RecordReader]:
            from tubemq_client.sync import RangeReader

            return RangeReader(
                settings,
                group=plan.group,
                filters=plan.filters,
                brokers=brokers,
                slot_seed=plan.hash,
                corrupt_records=policies.corrupt_records.value,
                gap_policy=policies.gap_policy.value,
            )

        return cls(open_reader, **options)

    def ingest(self, plan: WindowPlan, staging: Staging, progress: Progress) -> IngestCounts:
        """One file per range, at most; nothing for a range without records."""
        self._stop_if_cancelled(f"window {plan.window_id}")
        records = dict.fromkeys(plan.ranges, 0)
        pieces: dict[str, list[list[int]]] = {}
        gaps: dict[str, list[list[int]]] = {}
        body_bytes = 0
        with self._open_reader(plan) as reader:
            for range_ in plan.reads():
                key = range_.partition.key
                known_gaps = len(reader.stats.gaps)
                written = self._write(reader, range_, Path(staging.path), progress)
                records[key] += written.rows
                body_bytes += written.body_bytes
                pieces.setdefault(key, []).append([range_.start, range_.end])
                found = [[low, high] for low, high in reader.stats.gaps[known_gaps:]]
                if found:
                    gaps.setdefault(key, []).extend(found)
                progress("range written")
            corrupt = reader.stats.corrupt
        return IngestCounts(records, body_bytes, gaps, corrupt, pieces)

    def cancel(self) -> None:
        """Stop before the next batch, or before the first. A cancelled engine stays so."""
        self._cancelled.set()

    def _stop_if_cancelled(self, what: str) -> None:
        if self._cancelled.is_set():
            raise WindowError(f"cancelled while reading {what}")

    def _write(
        self, reader: RecordReader, range_: OffsetRange, directory: Path, progress: Progress
    ) -> _RangeFile:
        partition = range_.partition
        name = f"part-{partition.broker_id}-{partition.partition_id}-{range_.start}.parquet"
        file = _RangeFile(
            directory / name, arrow_schema(self._columns), self._row_group_bytes, self._compression
        )
        with file:
            for batch in reader.read(range_):
                self._stop_if_cancelled(str(range_))
                if file.add(batch):
                    progress("row group written")
        return file


class _RangeFile:
    """One Parquet file that appears with its first record; row groups of about one size."""

    def __init__(
        self, path: Path, schema: pa.Schema, row_group_bytes: int, compression: str
    ) -> None:
        self.rows = 0
        self.body_bytes = 0
        self._path = path
        self._schema = schema
        self._limit = row_group_bytes
        self._compression = compression
        self._writer: Any = None
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._flush()
        if self._writer is not None:
            self._writer.close()

    def add(self, batch: RecordBatches) -> bool:
        """Take a batch; True if a row group was written."""
        converted = batch.to_arrow(self._schema)
        if not converted.num_rows:
            return False
        self._pending.append(converted)
        self._pending_bytes += converted.nbytes
        self.rows += converted.num_rows
        self.body_bytes += batch.nbytes
        if self._pending_bytes < self._limit:
            return False
        self._flush()
        return True

    def _flush(self) -> None:
        if not self._pending:
            return
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self._writer is None:
            self._writer = pq.ParquetWriter(self._path, self._schema, compression=self._compression)
        table = pa.Table.from_batches(self._pending, self._schema)
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._pending, self._pending_bytes = [], 0


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
