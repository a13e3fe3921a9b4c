"""Reading RocketMQ's queues as engines and planners take it: readers, witnesses, single records.

A record is known again by its offset, its physical offset in the broker's log and its store time:
a queue that begins anew under the same name has other ones. This module must not decide what is
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

__all__ = ["NO_TOPIC", "QueueReader", "Witness", "anchor_of", "reader_group"]

_STORE_TIME: Final = struct.Struct(">q")
NO_TOPIC: Final = 17
"""A topic that name servers do not know."""


def reader_group(group: str) -> str:
    """The name that brokers see for reads of `group`: it has no members and commits nothing."""
    return f"{group}_reader"


def anchor_of(offset: int, physical_offset: int, store_ms: int) -> Anchor:
    """What a log is known by: a record's place in its queue, in its broker's log, and in time."""
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


class _Aside(NamedTuple):
    """A corrupt record as `files.quarantine` keeps it: RocketMQ numbers records, not batches."""

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
            quarantine=_aside(quarantine),
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
        """The records of the range, in offset order; each offset once, or an error."""
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
    """What a plan or a position names has been there: a topic that name servers do not know has no
    broker that is registered now, and has one again after a restart. So may a queue that its broker
    has no more, or lets nobody read, and windows that are planned anew leave it out."""
    try:
        yield
    except errors.TopicForbids as error:
        raise errors.ConnectError(
            f"the topic or its broker has been made write-only (perm, brokerPermission): {error}"
        ) from error
    except errors.UnknownTopic as error:
        told = (
            "no broker of the topic is registered now"
            if error.code == NO_TOPIC
            else "the topic has been given fewer queues (readQueueNums)"
        )
        raise errors.ConnectError(f"{told}: {error}") from error


def _aside(keep: Keep | None) -> Callable[[Any], None] | None:
    if keep is None:
        return None

    def put(entry: Any) -> None:
        keep(_Aside(entry.partition, entry.offset, 0, entry.offset, entry.data))

    return put


class Witness:
    """Finds single records again: `planning.lives.LogWitness`. Damaged ones have their place, too:
    whether a window may have them its policy says."""

    def __init__(self, settings: ClientSettings, group: str) -> None:
        self._client = Metadata(settings, group=reader_group(group))

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def first_record(self, range_: QueueRange) -> Anchor | None:
        """The first record of a range: offsets have no holes, so it is at the range's start."""
        if range_.start >= range_.end:
            return None
        try:
            found = self._at(range_.queue, range_.start)
        except errors.LogTruncated:
            return None
        return None if found is None else anchor_of(*found)

    def holds(self, partition: Queue, anchor: Anchor, upto: int) -> bool | None:
        """Whether the anchor's record is where it was; None if retention has removed the place.
        Offsets have no holes, so nothing up to `upto` has to be searched."""
        del upto
        try:
            found = self._at(partition, anchor.offset)
        except errors.LogTruncated:
            return False
        return None if found is None else anchor_of(*found) == anchor

    def _at(self, queue: Queue, offset: int) -> RecordMark | None:
        with _registered():
            return self._client.record_at(queue, offset)
