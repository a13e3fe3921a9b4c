"""Quarantine: files of records that fail their checksum or do not decode.

A reader passes each of them to the quarantine and continues. The files are next to the window's
data and never among its records. This module must not decide whether corrupt records are kept,
dropped or an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from tubemq_provider.files.arrays import binaries, int64s, texts
from tubemq_provider.files.locations import Location, Output, give_up

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "CHECKSUM",
    "CORRUPT",
    "CORRUPT_FILE",
    "CORRUPT_SUFFIX",
    "Corrupt",
    "QuarantineFile",
    "RecordPosition",
    "quarantined_in",
]

CORRUPT: Final = "_corrupt"
"""Directory in a staging place, and in a window, with the quarantine."""

CORRUPT_SUFFIX: Final = ".corrupt"
"""Suffix of quarantine files: Parquet that readers' globs for ``**/*.parquet`` must not match."""

CORRUPT_FILE: Final = f"{CORRUPT}/records{CORRUPT_SUFFIX}"
"""Quarantine file of a window that one process reads."""

CHECKSUM: Final = "checksum"
"""Reason of records that the reader itself quarantines."""

_ASIDE_BYTES: Final = 4 * 1024 * 1024
_ASIDE_ROWS: Final = 1024
"""Limits at which pending corrupt records are written."""


def quarantined_in(location: Location, names: Iterable[str]) -> Iterator[pa.Table]:
    """Yield the records of quarantine files, by name."""
    import pyarrow.parquet as pq

    for name in sorted(names):
        if name.endswith(CORRUPT_SUFFIX):
            with location.open(name) as source:
                yield pq.read_table(source)


class RecordPosition(Protocol):
    """Partition of a corrupt record."""

    @property
    def key(self) -> str:
        """Key of the partition."""


class Corrupt(Protocol):
    """Quarantined record; the client's `CorruptEntry`. One that does not decode also has a
    `reason`."""

    @property
    def partition(self) -> RecordPosition:
        """Partition from which it was read."""

    @property
    def batch_offset(self) -> int:
        """Offset of its batch."""

    @property
    def position(self) -> int:
        """Index of the record in the batch."""

    @property
    def message_id(self) -> int:
        """Number that the broker gave it."""

    @property
    def data(self) -> bytes:
        """Bytes that the broker sent, attributes and body."""


class QuarantineFile:
    """File of quarantined records, created with the first one. Columns: partition, batch_offset,
    position, message_id, data, reason.

    At most `_ASIDE_BYTES` of records are in memory. Enter `into` before a reader calls `add`.
    """

    def __init__(self) -> None:
        self._place: tuple[Location, str] | None = None
        self._output: Output | None = None
        self._writer: Any = None
        self._entries: list[Corrupt] = []
        self._bytes = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @contextmanager
    def into(self, location: Location, name: str) -> Iterator[None]:
        """Write the records of the body to the file `name`, which is finished at the end, and
        abandoned after an error."""
        self._place, self._count = (location, name), 0
        self._entries, self._bytes = [], 0  # drop records of an earlier file
        try:
            yield
            self._flush()
        except BaseException:
            self._close(whole=False)
            raise
        self._close(whole=True)

    def _close(self, *, whole: bool) -> None:
        self._entries, self._bytes, self._place = [], 0, None
        writer, output = self._writer, self._output
        self._writer = self._output = None
        if output is None:
            return
        if whole:
            writer.close()
            output.finish()
        else:
            give_up(writer, output)

    def add(self, entry: Corrupt) -> None:
        """Add a record. Readers take it as their `quarantine` callback."""
        self._count += 1
        self._entries.append(entry)
        self._bytes += len(entry.data)
        if self._bytes >= _ASIDE_BYTES or len(self._entries) >= _ASIDE_ROWS:
            self._flush()

    def _flush(self) -> None:
        """Write the pending records as a row group."""
        if not self._entries:
            return
        import pyarrow as pa
        import pyarrow.parquet as pq

        entries = self._entries
        table = pa.table(
            {
                "partition": texts([e.partition.key for e in entries]),
                "batch_offset": int64s(e.batch_offset for e in entries),
                "position": int64s(e.position for e in entries),
                "message_id": int64s(e.message_id for e in entries),
                "data": binaries([e.data for e in entries]),
                "reason": texts([getattr(e, "reason", CHECKSUM) for e in entries]),
            }
        )
        if self._writer is None:
            if self._place is None:
                raise RuntimeError("corrupt records came before there was a file for them")
            location, name = self._place
            self._output = location.create(name)
            self._writer = pq.ParquetWriter(self._output.stream, table.schema)
        self._writer.write_table(table)
        self._entries, self._bytes = [], 0
