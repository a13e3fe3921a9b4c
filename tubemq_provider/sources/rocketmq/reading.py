"""Readers of RocketMQ's queues for engines and planners: ranges, witnesses, single records.

A record is identified by its offset, its physical offset in the broker's log and its store time: in
a queue that was recreated under the same name they differ. This module must not decide what is
read.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, NamedTuple, Self

from rocketmq_client import errors
from rocketmq_client.model import Address, ClientSettings, Queue, QueueRange, RecordMark
from rocketmq_client.sync import Metadata, RangeReader
from tubemq_client.model import Anchor
from tubemq_provider.sources.base import Keep, MissingRange, RecordBatches

__all__ = ["NO_TOPIC", "QueueReader", "QueueRecordLookup", "anchor_of", "reader_group"]

_STORE_TIME: Final = struct.Struct(">q")
NO_TOPIC: Final = 17
"""Response code for a topic that name servers do not know."""


def reader_group(group: str) -> str:
    """Return the group name in reads for `group`: it has no members and commits nothing."""
    return f"{group}_reader"


def anchor_of(offset: int, physical_offset: int, store_ms: int) -> Anchor:
    """Return the anchor of a record: its place in the queue, in the broker's log, and in time."""
    return Anchor(offset, physical_offset, zlib.crc32(_STORE_TIME.pack(store_ms)))


class _Stats:
    """Counters of the client's reader, and the last record of each queue."""

    def __init__(self, reader: RangeReader) -> None:
        self._reader = reader
        self.records = self.bytes = 0
        self.last: dict[str, Anchor] = {}

    @property
    def corrupt(self) -> int:
        return self._reader.stats.corrupt

    @property
    def gaps(self) -> Sequence[MissingRange]:
        return self._reader.stats.gaps


class _CorruptRecord(NamedTuple):
    """Corrupt record in the form of `files.quarantine`; RocketMQ numbers records, not batches."""

    partition: Any
    batch_offset: int
    position: int
    message_id: int
    data: bytes


class QueueReader(AbstractContextManager["QueueReader"]):
    """`sources.base.RecordReader` over the client's range reader."""

    def __init__(
        self,
        settings: ClientSettings,
        group: str,
        *,
        tags: Sequence[str] = (),
        brokers: Mapping[str, Address] | None = None,
        quarantine: Keep | None = None,
        **options: Any,
    ) -> None:
        self._reader = RangeReader(
            settings,
            group=reader_group(group),
            tags=tags,
            brokers=brokers,
            quarantine=_quarantine_callback(quarantine),
            **options,
        )
        self.stats = _Stats(self._reader)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._reader.close()

    def read(self, range_: QueueRange) -> Iterator[RecordBatches]:
        """Yield the records of the range, in offset order; each offset once, or raise."""
        with _registered():
            for batch in self._reader.read(range_):
                self.stats.records += len(batch)
                self.stats.bytes += batch.nbytes
                if len(batch):
                    last = batch.columns.stored(len(batch) - 1)
                    self.stats.last[range_.queue.key] = anchor_of(
                        last.queue_offset, last.physical_offset, last.store_ms
                    )
                yield batch


@contextmanager
def _registered() -> Iterator[None]:
    """Turn errors of an unregistered topic or queue into retriable `ConnectError`.

    A plan or a position names what existed: a topic unknown to name servers has no broker
    registered at the moment, and has one again after a restart. The same may hold for a queue that
    its broker no longer has, or made unreadable; windows that are planned later leave it out.
    """
    try:
        yield
    except errors.TopicForbids as error:
        raise errors.ConnectError(
            f"the topic or its broker has been made write-only (perm, brokerPermission): {error}"
        ) from error
    except errors.UnknownTopic as error:
        reason = (
            "no broker of the topic is registered now"
            if error.code == NO_TOPIC
            else "the topic has been given fewer queues (readQueueNums)"
        )
        raise errors.ConnectError(f"{reason}: {error}") from error


def _quarantine_callback(keep: Keep | None) -> Callable[[Any], None] | None:
    if keep is None:
        return None

    def put(entry: Any) -> None:
        keep(_CorruptRecord(entry.partition, entry.offset, 0, entry.offset, entry.data))

    return put


class QueueRecordLookup:
    """Look-up of single records: `planning.lives.RecordLookup`.

    Includes corrupt records: the policy decides if a window may contain them.
    """

    def __init__(self, settings: ClientSettings, group: str) -> None:
        self._client = Metadata(settings, group=reader_group(group))

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def first_record(self, range_: QueueRange) -> Anchor | None:
        """Return the first record of a range: offsets have no holes, so it is at the start."""
        if range_.start >= range_.end:
            return None
        try:
            record = self._at(range_.queue, range_.start)
        except errors.LogTruncated:
            return None
        return None if record is None else anchor_of(*record)

    def holds(self, partition: Queue, anchor: Anchor, upto: int) -> bool | None:
        """Return True if the anchor's record is where it was; None if retention has removed the
        place.

        Offsets have no holes, so nothing up to `upto` has to be searched.
        """
        del upto
        try:
            record = self._at(partition, anchor.offset)
        except errors.LogTruncated:
            return False
        return None if record is None else anchor_of(*record) == anchor

    def _at(self, queue: Queue, offset: int) -> RecordMark | None:
        with _registered():
            return self._client.record_at(queue, offset)
