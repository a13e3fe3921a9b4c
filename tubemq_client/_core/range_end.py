"""End record of a range: identity of the first record at or after the offset where it ends.

A range reader asks for it after it has received a batch that ends beyond its range. Records carry
no offset, but a store's message ids are unique (not ordered), so the id and the checksum identify
the record inside the batch. The search ends once the position has passed the batch: then nothing in
the batch lies at or after the requested offset. Retention must not have passed that offset
meanwhile: a fetch skips removed records without reporting it.

Source: `docs/protocol/exact-ranges.md#the-rules`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tubemq_client import errors
from tubemq_client._core.effects import Await, Sleep
from tubemq_client._wire.fetching import whole
from tubemq_client._wire.native import find

if TYPE_CHECKING:
    from tubemq_client._core.effects import Conversation
    from tubemq_client._core.registration import Registration

__all__ = [
    "FoundRecord",
    "RecordIdentity",
    "find_end_record",
    "find_record",
    "identity",
    "is_in_first_batch",
]

_RETRY_MS = 50
_MAX_STALLS = 40


class RecordIdentity(NamedTuple):
    """Message id and checksum; compare for equality only: ids jump across broker restarts."""

    message_id: int
    checksum: int


class FoundRecord(NamedTuple):
    """First record at or after an offset, and a position before which it lies."""

    record: RecordIdentity
    upto: int


def identity(record: Any) -> RecordIdentity:
    return RecordIdentity(record.messageId, record.checkSum)


def find_end_record(
    probe: Registration, offset: int, upto: int
) -> Conversation[RecordIdentity | None]:
    """Return the first record at or after `offset`; None if there is none before position `upto`.

    `probe` must use the reader's filters and priority. Raises `errors.PartitionOccupied` when the
    probe's group is busy, `errors.LogTruncated` or `errors.DataLoss` when `offset` does not exist.
    """
    registered = yield from probe.register(offset)
    try:
        _check_offset(probe, offset, registered.current)
        start, end_record = yield from _search(probe, upto)
        if start != offset:  # the position passed other records, or removed ones
            registered = yield from probe.register(offset)
            _check_offset(probe, offset, registered.current)
    except errors.TubeMQError:
        yield from probe.give_back()
        raise
    yield from probe.give_back()
    return end_record


def find_record(probe: Registration, offset: int, upto: int) -> Conversation[FoundRecord | None]:
    """Return the record as `find_end_record` does, with the end of the batch that holds it."""
    try:
        registered = yield from probe.register(offset)
    except errors.ServerFailure:  # a broker leases a partition before it checks that it exists
        yield from probe.give_back()
        raise
    try:
        _check_offset(probe, offset, registered.current)
        _, record = yield from _search(probe, upto)
        position = (yield from probe.commit()).current
    except errors.TubeMQError:
        yield from probe.give_back()
        raise
    yield from probe.give_back()
    return None if record is None else FoundRecord(record, position)


def is_in_first_batch(
    probe: Registration, offset: int, record: RecordIdentity
) -> Conversation[bool]:
    """Return whether the batch that begins at `offset` has the record: one fetch."""
    registered = yield from probe.register(offset)
    try:
        _check_offset(probe, offset, registered.current)
        reply = whole((yield Await((yield from probe.post_fetch(consumed=True, unparsed=True)))))
    finally:
        yield from probe.give_back()
    found = reply.success and reply.errCode == errors.SUCCESS and reply.currOffset == offset
    return found and find(reply.messages, *record) is not None


def _search(probe: Registration, upto: int) -> Conversation[tuple[int, RecordIdentity | None]]:
    """Return the start of the batch that has the end record, and the record."""
    stalls, before = 0, -1
    while stalls < _MAX_STALLS:
        reply = yield Await((yield from probe.post_fetch(consumed=True)))
        if reply.success and reply.errCode == errors.SUCCESS:
            if reply.messages:
                return reply.currOffset, identity(reply.messages[0])
        elif reply.errCode != errors.NOT_FOUND:
            raise probe.refusal(reply, "end record")
        position = (yield from probe.commit()).current
        if position >= upto:
            return position, None
        if position > before:
            stalls, before = 0, position
            continue
        stalls += 1
        yield Sleep(_RETRY_MS)
    text = "no progress while looking for the end record"
    raise errors.ServerFailure(500, text, where=probe.where)


def _check_offset(probe: Registration, offset: int, current: int) -> None:
    if current > offset:
        raise errors.DataLoss(
            f"retention passed offset {offset} of {probe.where} while its range was being read; "
            f"the log now starts at {current}",
            start=offset,
            available=current,
        )
    if current < offset:
        raise errors.LogTruncated(f"the log of {probe.where} ends at {current}, before {offset}")
