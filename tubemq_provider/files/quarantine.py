"""Records that fail their checksum or do not decode, set aside in a file of their own.

A reader hands each one over and goes on; what is kept lies beside the window and never among its
records. This module must not decide whether corrupt records are kept, dropped or an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

from tubemq_provider.files.locations import Location, Output, give_up

__all__ = ["CHECKSUM", "CORRUPT", "CORRUPT_SUFFIX", "Corrupt", "Place", "QuarantineFile"]

CORRUPT: Final = "_corrupt"
"""Directory of a staging place, and of a window, for records that fail their checksum."""

CORRUPT_SUFFIX: Final = ".corrupt"
"""Parquet all the same; but globs for ``**/*.parquet`` enter every directory, whatever its name."""

CHECKSUM: Final = "checksum"
"""The reason of what the reader itself sets aside."""

_ASIDE_BYTES: Final = 4 * 1024 * 1024
_ASIDE_ROWS: Final = 1024
"""Corrupt records are written once this many bytes, or records, have come together."""


class Place(Protocol):
    """Where a record was read."""

    @property
    def key(self) -> str:
        """The partition's key."""


class Corrupt(Protocol):
    """What is kept of a record that is set aside; the client calls it `CorruptEntry`. One that does
    not decode has a `reason` besides."""

    @property
    def partition(self) -> Place:
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


class QuarantineFile:
    """Records set aside in one file, if there are any: partition, batch_offset, position,
    message_id, data, reason.

    Written as they come: at most `_ASIDE_BYTES` of them are held, however damaged a log is. Give
    it `into` what file before a reader is given `add`.
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
        """Keep what comes in the file `name`, which is whole when this ends; after an error,
        whatever."""
        self._place, self._count = (location, name), 0
        self._entries, self._bytes = [], 0  # of what was read before, which is not this file's
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
                "reason": pa.array([getattr(e, "reason", CHECKSUM) for e in entries], pa.string()),
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
