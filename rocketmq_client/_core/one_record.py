"""Look-up of one record by its offset, which planning compares and bisects with.

Works like range reads: an answer without the record counts as "removed by retention" only once the
queue's minimum confirms it, and as "the queue ends before" only once the broker has nothing left to
index. The record is not unpacked and its checksum is not verified: a damaged record has a position,
too. Decides only; does no I/O.

Source: `docs/rocketmq-protocol/exact-ranges.md#what-an-answer-means`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_client import errors
from rocketmq_client._core.addresses import AddressFinder
from rocketmq_client._core.pull_errors import PullErrors, Unexplained
from rocketmq_client._core.pulling import PullAnswer, pull_request
from rocketmq_client._core.read_policy import StallTimer
from rocketmq_client._wire import codes
from rocketmq_client._wire.records import parse_record
from rocketmq_client.model import QueueRange, RecordMark

if TYPE_CHECKING:
    from rocketmq_client._core.cluster import Cluster
    from rocketmq_client._wire.records import StoredRecord
    from rocketmq_client.model import Address, Queue
    from tubemq_client._core.effects import Conversation

__all__ = ["pull_one", "record_at"]

_DEADLINE_MS: Final = 15_000
"""Deadline for a broker that neither returns the record nor explains its absence."""


def record_at(
    cluster: Cluster, queue: Queue, group: str, offset: int
) -> Conversation[RecordMark | None]:
    """Call `pull_one` at the queue's broker; refresh a stale route and retry once. Raises
    `errors.UnknownTopic`."""
    finder = AddressFinder(cluster, queue, {})
    address = yield from finder.find(False)  # noqa: FBT003 - callback of the reader
    try:
        record = yield from pull_one(cluster, address, queue, group, offset)
    except (errors.NetworkError, errors.NotLeader):
        address = yield from finder.find(True)  # noqa: FBT003
        record = yield from pull_one(cluster, address, queue, group, offset)
    if record is None:
        return None
    return RecordMark(record.queue_offset, record.physical_offset, record.store_ms)


def pull_one(
    cluster: Cluster, address: Address, queue: Queue, group: str, offset: int
) -> Conversation[StoredRecord | None]:
    """Return the record at `offset`, or None if retention has removed it. Raises
    `errors.LogTruncated` if the queue ends at `offset` or before, and `errors.RangeStalled` for a
    broker that reports neither."""
    range_ = QueueRange(queue, offset, offset + 1)
    refusals, patience = PullErrors(range_, cluster), StallTimer(range_, _DEADLINE_MS)
    yield from patience.renew()
    while True:
        request = pull_request(cluster, queue, group, offset, 1)
        answer = PullAnswer.of((yield from cluster.ask(address, codes.PULL_MESSAGE, request)))
        try:
            return (yield from _record(refusals, range_, address, answer))
        except Unexplained as error:
            yield from patience.pause(offset, error)


def _record(
    refusals: PullErrors, range_: QueueRange, address: Address, answer: PullAnswer
) -> Conversation[StoredRecord | None]:
    offset = range_.start
    if answer.code != codes.SUCCESS:
        yield from refusals.judge(address, offset, answer)
        return None
    try:
        record = parse_record(answer.body, 0)[0] if answer.body else None
        if record is not None:
            _refuse_another(range_, record)
    except errors.ProtocolViolation as error:
        yield from refusals.stranger(address, offset, answer, error)
        return None
    if record is None:
        raise Unexplained("the broker found records and sent none")
    if record.queue_offset > offset:
        yield from refusals.hole(offset, answer, record.queue_offset)
    return record if record.queue_offset == offset else None


def _refuse_another(range_: QueueRange, record: StoredRecord) -> None:
    queue = range_.queue
    if (record.topic, record.queue_id) != (queue.topic, queue.queue_id) and not (
        queue.topic.startswith("%LMQ%")
    ):
        raise errors.ProtocolViolation(
            f"{queue}: the broker sent a record of queue {record.queue_id} of topic "
            f"{record.topic!r}"
        )
