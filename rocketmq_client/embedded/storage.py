"""Storage of an embedded broker: one log of records, and an index into it per queue.

Positions, sizes and record bytes are those of a genuine broker, so that stable ends, offset ids and
checksums mean the same. In memory only. The caller passes times.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from rocketmq_client._wire.properties import TAGS, find_property, tag_hash
from rocketmq_client._wire.records import StoredRecord, body_crc, encode_record
from rocketmq_client.model import Address

__all__ = ["Entry", "NewRecord", "QueueIndex", "Storage"]


class Entry(NamedTuple):
    """Stored record in its queue's index."""

    physical_offset: int
    data: bytes
    tag_hash: int
    store_ms: int


class NewRecord(NamedTuple):
    """Record as its producer sent it."""

    body: bytes
    properties: bytes
    flag: int
    sys_flag: int
    born_ms: int
    born_host: Address
    reconsume_times: int = 0


@dataclass(slots=True)
class QueueIndex:
    """One queue: entries of offsets `[first, first + len(entries))`. `reported_first` is the
    reported minimum, which lags behind while retention removes files."""

    first: int = 0
    entries: list[Entry] = field(default_factory=list)
    reported_first: int = 0

    @property
    def end(self) -> int:
        """Offset of the next record."""
        return self.first + len(self.entries)

    def get(self, offset: int) -> Entry | None:
        """Return the record at `offset`, or None."""
        place = offset - self.first
        return self.entries[place] if 0 <= place < len(self.entries) else None

    def from_offset(self, offset: int) -> Iterator[tuple[int, Entry]]:
        """Yield records from `offset` on, with offsets."""
        start = max(offset, self.first)
        for place in range(start - self.first, len(self.entries)):
            yield self.first + place, self.entries[place]


class Storage:
    """Log of one broker. Not thread-safe: it belongs to the server's loop."""

    def __init__(self, host: Address) -> None:
        self.host = host
        self.position = 0
        self.flushed = 0
        self.hold_flush = False
        self.queues: dict[tuple[str, int], QueueIndex] = {}
        self._last_ms = 0
        self.log_start = 0

    def index(self, topic: str, queue_id: int) -> QueueIndex:
        """Return the queue's index; create it on first use."""
        return self.queues.setdefault((topic, queue_id), QueueIndex())

    def append(self, topic: str, queue_id: int, record: NewRecord) -> tuple[int, int]:
        """Store a record; return its offset in the queue and its position in the log."""
        index = self.index(topic, queue_id)
        offset, at = index.end, self.position
        self._last_ms = max(self._last_ms, time.time_ns() // 1_000_000)
        data = encode_record(
            StoredRecord(
                queue_id=queue_id,
                flag=record.flag,
                queue_offset=offset,
                physical_offset=at,
                sys_flag=record.sys_flag,
                born_ms=record.born_ms,
                born_host=record.born_host,
                store_ms=self._last_ms,
                store_host=self.host,
                reconsume_times=record.reconsume_times,
                prepared_offset=0,
                body=record.body,
                topic=topic,
                properties=record.properties,
                crc=body_crc(record.body),
            )
        )
        tag = find_property(record.properties, TAGS.encode())
        hashed = tag_hash(tag.decode("utf-8", "replace")) if tag else 0
        index.entries.append(Entry(at, data, hashed, self._last_ms))
        self.position += len(data)
        if not self.hold_flush:
            self.flushed = self.position
        return offset, at

    def at(self, position: int) -> Entry | None:
        """Return the record at a position in the log, or None."""
        return next(
            (
                entry
                for index in self.queues.values()
                for entry in index.entries
                if entry.physical_offset == position
            ),
            None,
        )

    @property
    def earliest_ms(self) -> int:
        """Store time of the first record that retention cannot have removed; -1 without one. All
        queues share one log: everything before a removed record is removed as well, in all
        queues."""
        held = (entry for index in self.queues.values() for entry in index.entries)
        return min((e.store_ms for e in held if e.physical_offset >= self.log_start), default=-1)

    def lose_unflushed(self) -> None:
        """Drop everything beyond the flushed position, as when the host crashes."""
        for index in self.queues.values():
            while index.entries:
                last = index.entries[-1]
                if last.physical_offset + len(last.data) <= self.flushed:
                    break
                index.entries.pop()
        self.position = self.flushed

    def remove_until(self, topic: str, queue_id: int, offset: int, *, said: bool = True) -> None:
        """Remove records below `offset`, like retention. Without `said` the broker keeps reporting
        the old minimum, as a genuine one does for up to seconds."""
        index = self.index(topic, queue_id)
        gone = max(0, min(offset, index.end) - index.first)
        if gone:
            last = index.entries[gone - 1]
            self.log_start = max(self.log_start, last.physical_offset + len(last.data))
        del index.entries[:gone]
        index.first += gone
        if said:
            index.reported_first = index.first

    def damage(self, topic: str, queue_id: int, offset: int) -> None:
        """Flip a byte of the record's body (the last byte before topic and properties)."""
        index = self.index(topic, queue_id)
        place = offset - index.first
        entry = index.entries[place]
        data = bytearray(entry.data)
        data[88] ^= 0xFF
        index.entries[place] = entry._replace(data=bytes(data))
