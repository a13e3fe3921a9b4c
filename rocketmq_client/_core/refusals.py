"""What an answer means that has no record at the offset that was asked for.

While retention removes files, genuine brokers answer with records far ahead, with positions far
behind, or with "nothing" in mid-queue; one that has just started has not built its index yet; and
an operator's reset of a group is answered once. So an answer is believed only where the queue's
minimum explains it, or it stays as it is for long; else the caller asks again. Shared by all that
reads. This module sends nothing but the question for a broker's lag.

Source: `docs/rocketmq-protocol/exact-ranges.md#what-an-answer-means`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_client import errors
from rocketmq_client._core.read_policy import truncated
from rocketmq_client._wire import codes
from rocketmq_client._wire.records import parse_record, position_in
from tubemq_client._core.effects import Now

if TYPE_CHECKING:
    from rocketmq_client._core.cluster import Cluster
    from rocketmq_client._core.pulling import PullAnswer
    from rocketmq_client.model import Address, Queue, QueueRange
    from tubemq_client._core.effects import Conversation

__all__ = ["REMOVING", "Refusals", "Unexplained", "begins_elsewhere"]

REMOVING: Final = "MESSAGE_WAS_REMOVING"
"""A broker's word for records whose file is gone, though their queue's index has them."""

_EROSION_MS: Final = 5_000
"""So long a hole may stay unexplained: brokers correct their minimum after files are deleted."""


class Unexplained(errors.NetworkError):
    """The answer explains itself only later: ask again. Never leaves this package but as the last
    problem of a read that stalled."""


def begins_elsewhere(body: bytes, queue: Queue, log_start: int) -> bool:
    """Whether an answer is what brokers send in the place of their log's very first record once it
    is removed: as many bytes of where the log begins now, some of another record or all."""
    if not 0 < log_start <= position_in(body) or queue.topic.startswith("%LMQ%"):
        return False
    try:
        record, _ = parse_record(body, 0)
    except errors.ProtocolViolation:
        return True
    return (record.topic, record.queue_id) != (queue.topic, queue.queue_id)


class Refusals:
    """Judges the answers to pulls of one range, one after the other."""

    def __init__(self, range_: QueueRange, cluster: Cluster) -> None:
        self._range = range_
        self._cluster = cluster
        self._eroding_since: int | None = None
        self._end_asked_at: int | None = None
        self._log_end: int | None = None

    def forget(self) -> None:
        """There was a record, or something else went wrong: what is odd next is new."""
        self._eroding_since = self._end_asked_at = self._log_end = None

    def judge(self, address: Address, at: int, answer: PullAnswer) -> Conversation[int]:
        """Of an answer without records: the first offset behind what retention has removed at `at`.
        Raises `Unexplained`, and `errors.LogTruncated` where the queue ends at `at` or before."""
        if answer.code == codes.PULL_OFFSET_MOVED and at < answer.min_offset:
            return answer.min_offset
        if answer.code == codes.PULL_RETRY or (
            answer.code == codes.PULL_NOTHING and at < answer.max_offset
        ):
            left = yield from self._left_behind(address, at, answer)
            return (yield from self.hole(at, answer, left))
        if at >= answer.max_offset:
            yield from self._end(address, at, answer)
        # An operator reset the group's offset: the pull after it is answered so, once.
        raise Unexplained(f"the broker moves offset {at}: {answer.remark}")

    def hole(self, at: int, answer: PullAnswer, found: int | None) -> Conversation[int]:
        """Of an answer whose first record is `found`, beyond `at`, or that has none: retention
        removes files just now. As `judge`, once the minimum explains the hole."""
        now = yield Now()
        if self._eroding_since is None:
            self._eroding_since = now
        if answer.min_offset > at:
            return answer.min_offset
        if now - self._eroding_since >= _EROSION_MS and found is not None:
            return found
        raise Unexplained(
            f"nothing at offset {at}, although the queue is said to have "
            f"[{answer.min_offset}, {answer.max_offset}): {answer.remark}"
        )

    def stranger(
        self, address: Address, at: int, answer: PullAnswer, error: errors.ProtocolViolation
    ) -> Conversation[int]:
        """As `judge`, of an answer whose records break the protocol. Raises `error` unless it is
        the work of retention."""
        queue = self._range.queue
        info = yield from self._cluster.runtime_info(address, queue.broker)
        if not begins_elsewhere(answer.body, queue, info.log_start):
            raise error
        return (yield from self.hole(at, answer, at + 1 if info.keeps_minima else None))

    def _left_behind(
        self, address: Address, at: int, answer: PullAnswer
    ) -> Conversation[int | None]:
        """How far a 4.x broker has looked and found that all is gone, without telling another
        minimum for a while: it never will, before the queue has a record again."""
        now, since = (yield Now()), self._eroding_since
        waited = since is not None and now - since >= _EROSION_MS
        if not waited or answer.remark != REMOVING or answer.next_offset <= at:
            return None
        info = yield from self._cluster.runtime_info(address, self._range.queue.broker)
        return min(answer.next_offset, answer.max_offset) if info.keeps_minima else None

    def _end(self, address: Address, at: int, answer: PullAnswer) -> Conversation[None]:
        """The queue ends before the range. A broker that has just started may still be building its
        index; one look later, with nothing left to build, the log is too short."""
        info = yield from self._cluster.runtime_info(address, self._range.queue.broker)
        # What others have sent since is still to be indexed at any moment.
        upto = self._log_end = info.log_end if self._log_end is None else self._log_end
        if info.indexed_bytes >= upto:
            if self._end_asked_at == at:
                raise truncated(self._range, at, answer.max_offset)
            self._end_asked_at = at
        raise Unexplained(
            f"the queue ends at {answer.max_offset}, with {info.dispatch_behind_bytes} bytes to "
            f"be indexed: {answer.remark}"
        )
