"""The log of one store: the records of (topic, store id) on one broker, as pure state.

Every record of every partition of the store sits in one sequence; the n-th record ever written has
offset 28*n. Four marks move along it (see `StoreLog`). The module knows neither files nor sockets
nor a clock: time comes in with each append, and `storage` decides when to flush. Reading is in
`reading`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tubemq_client.model import INDEX_ENTRY_BYTES

__all__ = ["NO_KEY", "RECORD_HEADER_BYTES", "Appended", "Ends", "Record", "StoreLog", "round_down"]

RECORD_HEADER_BYTES = 52
"""Bytes that a record takes in the data log beyond its payload."""

NO_KEY = -1
"""Key code of a record sent without a stream id."""


class Record(NamedTuple):
    """One stored record. `data_offset` is its byte position in the store's data log."""

    partition_id: int
    key_code: int
    time_ms: int
    message_id: int
    checksum: int
    flag: int
    sent_addr: int
    data_offset: int
    payload: bytes

    @property
    def size(self) -> int:
        """Bytes of the record in the data log."""
        return RECORD_HEADER_BYTES + len(self.payload)

    @property
    def data_end(self) -> int:
        """Byte position in the data log behind this record."""
        return self.data_offset + RECORD_HEADER_BYTES + len(self.payload)


class Appended(NamedTuple):
    """Offset, message id and time of a stored record."""

    offset: int
    message_id: int
    time_ms: int


class Ends(NamedTuple):
    """The marks of a store, in offsets: `min <= stable <= file <= memory`."""

    min: int
    stable: int
    file: int
    memory: int


class _Buffer:
    """Partitions and key codes in a memory buffer, each with its last offset."""

    __slots__ = ("last_of_key", "last_of_partition")

    def __init__(self) -> None:
        self.last_of_partition: dict[int, int] = {}
        self.last_of_key: dict[int, int] = {}

    def note(self, record: Record, offset: int) -> None:
        self.last_of_partition[record.partition_id] = offset
        self.last_of_key[record.key_code] = offset

    def last_match(self, partition_id: int, key_codes: frozenset[int]) -> int:
        """Return the last offset that might match, -1 for none.

        A filtered look-up ignores the partition, as the real broker does: it may therefore find
        only other partitions' records and give an empty success.
        """
        if not key_codes:
            return self.last_of_partition.get(partition_id, -1)
        return max((self.last_of_key.get(code, -1) for code in key_codes), default=-1)


class StoreLog:
    """Index entries `[min_offset, end)` with their marks; all offsets are multiples of 28.

    Index and data expire separately, as on a genuine broker: an entry whose record lies below
    `min_data_offset` of the data log still exists but has no record.

    `stable_end`: behind the last record that survives a hard kill. `file_end`: behind the last
    record written to the file. `[file_end, backup_end)` is the memory buffer being written out
    (usually empty), `[backup_end, end)` the one that receives. Message ids count up from
    `first_message_id`; use another one after a crash so that ids of lost records never return.
    `data_end` is the byte position in the data log of the next record.
    """

    def __init__(
        self,
        *,
        first_message_id: int = 1,
        base_offset: int = 0,
        min_data_offset: int = 0,
        data_end: int | None = None,
        records: Iterable[Record] = (),
    ) -> None:
        self._records = list(records)
        self._next_message_id = first_message_id
        self.min_offset = base_offset
        self.min_data_offset = min_data_offset
        end = min_data_offset if data_end is None else data_end
        self.data_end = self._records[-1].data_end if self._records else end
        self.stable_end = self.file_end = self.backup_end = self.end
        self._main = _Buffer()
        self._backup = _Buffer()

    @property
    def end(self) -> int:
        """Offset that the next record gets."""
        return self.min_offset + INDEX_ENTRY_BYTES * len(self._records)

    @property
    def ends(self) -> Ends:
        return Ends(self.min_offset, self.stable_end, self.file_end, self.end)

    @property
    def unflushed(self) -> int:
        """Number of records that a hard kill would lose now."""
        return (self.end - self.stable_end) // INDEX_ENTRY_BYTES

    def __len__(self) -> int:
        return len(self._records)

    def append(
        self,
        partition_id: int,
        payload: bytes,
        *,
        time_ms: int,
        checksum: int,
        flag: int = 0,
        key_code: int = NO_KEY,
        sent_addr: int = 0,
    ) -> Appended:
        """Add one record to the receiving memory buffer. It is not stable before `flush`."""
        offset = self.end
        record = Record(
            partition_id,
            key_code,
            time_ms,
            self._next_message_id,
            checksum,
            flag,
            sent_addr,
            self.data_end,
            payload,
        )
        self._next_message_id += 1
        self._records.append(record)
        self.data_end = record.data_end
        self._main.note(record, offset)
        return Appended(offset, record.message_id, time_ms)

    def slice(self, start: int, end: int) -> Sequence[Record]:
        """Return the records with offsets in `[start, end)`, clipped to what exists."""
        return self._records[self._index(start) : self._index(end)]

    def data_offset_at(self, offset: int) -> int:
        """Return the data offset that corresponds to `offset`, clipped to what exists."""
        index = self._index(offset)
        return self._records[index].data_offset if index < len(self._records) else self.data_end

    def last_in_backup(self, partition_id: int, key_codes: frozenset[int]) -> int:
        """Return the last offset in the backup buffer that might match, -1 for none."""
        return self._backup.last_match(partition_id, key_codes)

    def last_in_main(self, partition_id: int, key_codes: frozenset[int]) -> int:
        """Return the last offset in the receiving buffer that might match, -1 for none."""
        return self._main.last_match(partition_id, key_codes)

    def swap(self) -> None:
        """Start to write out: the receiving buffer becomes the backup one, the old one is in the
        file."""
        self.file_end = self.backup_end
        self._backup, self._main = self._main, _Buffer()
        self.backup_end = self.end

    def write(self) -> None:
        """Put everything into the file without making it stable."""
        self._backup, self._main = _Buffer(), _Buffer()
        self.file_end = self.backup_end = self.end

    def flush(self) -> None:
        """Make everything stable."""
        self.write()
        self.stable_end = self.end

    def expire_to(self, offset: int) -> None:
        """Remove records below `offset` (rounded down, clipped to `[min, end]`), data and index.

        Unflushed records are flushed first: retention only ever removes closed files.
        """
        self.expire_data_to(offset)
        self.expire_index_to(offset)

    def expire_data_to(self, offset: int) -> None:
        """Remove the data of the records below `offset` and leave their index entries."""
        if self.unflushed:
            self.flush()
        self.min_data_offset = max(self.min_data_offset, self.data_offset_at(self._clip(offset)))

    def expire_index_to(self, offset: int) -> None:
        """Remove the index entries below `offset` and leave the data, which is then unreachable."""
        if self.unflushed:
            self.flush()
        target = self._clip(offset)
        del self._records[: self._index(target)]
        self.min_offset = target

    def expire_segments(self, before_ms: int, *, data_bytes: int, index_records: int) -> bool:
        """Remove closed segments whose last record is older than `before_ms`; return True if any.

        Data and index expire separately. A data segment is closed by the record that fills
        `data_bytes`, an index segment by the one that fills `index_records` entries. Records not
        yet in the file close none.
        """
        marks = self.min_offset, self.min_data_offset
        written = self.slice(self.min_offset, self.stable_end)
        self.min_data_offset = self._open_data_segment(written, before_ms, data_bytes)
        start, step = self.min_offset // INDEX_ENTRY_BYTES, index_records
        closes = (start // step + 1) * step - start
        while closes <= len(written) and written[closes - 1].time_ms < before_ms:
            self.min_offset = (start + closes) * INDEX_ENTRY_BYTES
            closes += step
        del self._records[: (self.min_offset - marks[0]) // INDEX_ENTRY_BYTES]
        return marks != (self.min_offset, self.min_data_offset)

    def _open_data_segment(self, written: Sequence[Record], before_ms: int, data_bytes: int) -> int:
        """Return the start of the first data segment that must be kept."""
        start = self.min_data_offset
        for record in written:
            if record.data_end - start >= data_bytes:
                if record.time_ms >= before_ms:
                    break
                start = record.data_end
        return start

    def truncate_to(self, offset: int, *, first_message_id: int) -> int:
        """Lose all records from `offset` on, so that their offsets are assigned again.

        Returns the number of records lost.
        """
        target = self._clip(offset)
        lost = (self.end - target) // INDEX_ENTRY_BYTES
        self.data_end = self.data_offset_at(target)
        del self._records[self._index(target) :]
        self.min_data_offset = min(self.min_data_offset, self.data_end)
        self._next_message_id = first_message_id
        self.flush()
        return lost

    def corrupt(self, offset: int) -> None:
        """Corrupt the record's checksum at `offset` for good. Raises `ValueError` if absent."""
        if not self.min_offset <= offset < self.end or offset % INDEX_ENTRY_BYTES:
            raise ValueError(f"no record at offset {offset}")
        index = self._index(offset)
        record = self._records[index]
        self._records[index] = record._replace(checksum=record.checksum ^ 1)

    def _clip(self, offset: int) -> int:
        return max(self.min_offset, min(round_down(offset), self.end))

    def _index(self, offset: int) -> int:
        index = (offset - self.min_offset) // INDEX_ENTRY_BYTES
        return max(0, min(index, len(self._records)))


def round_down(offset: int) -> int:
    """Return `offset` rounded down to an index entry."""
    return offset - offset % INDEX_ENTRY_BYTES
