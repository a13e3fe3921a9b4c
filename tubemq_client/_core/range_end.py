"""The end record of a range: identity of the first record at or after the offset where it ends.

A range reader asks for it after it has received a batch that ends beyond its range. Records carry
no offset, but a store's message ids are unique (not ordered), so the id together with the checksum
recognises it inside the batch. The search gives up once the position has passed the batch:
then nothing in the batch lies at or after the offset asked for. Retention must not have passed that
offset meanwhile: a fetch jumps without a word.

Source: `docs/protocol/exact-ranges.md#the-rules`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tubemq_client import errors
from tubemq_client._core.effects import Await, Sleep

if TYPE_CHECKING:
    from tubemq_client._core.effects import Conversation
    from tubemq_client._core.registration import Registration

__all__ = ["Found", "RecordIdentity", "find_end_record", "find_record", "identity"]

_RETRY_MS = 50
_MAX_STALLS = 40


class RecordIdentity(NamedTuple):
    """Message id and checksum: compare for equality only, ids jump across broker restarts."""

    message_id: int
    checksum: int


class Found(NamedTuple):
    """The first record at or after an offset, and a position behind which it does not lie."""

    record: RecordIdentity
    upto: int


def identity(record: Any) -> RecordIdentity:
    return RecordIdentity(record.messageId, record.checkSum)


def find_end_record(
    probe: Registration, offset: int, upto: int
) -> Conversation[RecordIdentity | None]:
    """First record at or after `offset`, or None if there is none before position `upto`.

    `probe` must use the reader's filters and priority. Raises `errors.PartitionOccupied` when the
    probe's group is busy, `errors.LogTruncated` or `errors.DataLoss` when `offset` is not there.
    """
    found = yield from probe.register(offset)
    try:
        _check_offset(probe, offset, found.current)
        start, end_record = yield from _search(probe, upto)
        if start != offset:  # the position moved, be it past other records or past removed ones
            found = yield from probe.register(offset)
            _check_offset(probe, offset, found.current)
    except errors.TubeMQError:
        yield from probe.give_back()
        raise
    yield from probe.give_back()
    return end_record


def find_record(probe: Registration, offset: int, upto: int) -> Conversation[Found | None]:
    """`find_end_record`, and where the batch ended that the record was found in."""
    try:
        found = yield from probe.register(offset)
    except errors.ServerFailure:  # a broker leases a partition before it sees that there is none
        yield from probe.give_back()
        raise
    try:
        _check_offset(probe, offset, found.current)
        _, record = yield from _search(probe, upto)
        position = (yield from probe.commit()).current
    except errors.TubeMQError:
        yield from probe.give_back()
        raise
    yield from probe.give_back()
    return None if record is None else Found(record, position)


def _search(probe: Registration, upto: int) -> Conversation[tuple[int, RecordIdentity | None]]:
    """The end record, and where the batch starts that has it."""
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
