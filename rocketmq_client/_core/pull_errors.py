"""Interpretation of answers without a record at the requested offset.

While retention removes files, genuine brokers answer with records far ahead, with positions far
behind, or with "nothing" in mid-queue; one that has just started has not built its index yet; and
an operator's reset of a group is answered once. So an answer counts only if the queue's minimum
explains it, or if it stays the same for long; otherwise the caller asks again. Shared by all
readers. Sends only requests for a broker's indexing lag.

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

__all__ = ["REMOVING", "PullErrors", "Unexplained", "is_present_log_start"]

REMOVING: Final = "MESSAGE_WAS_REMOVING"
"""Status of a broker for records whose file is deleted although their queue's index has them."""

_EROSION_MS: Final = 5_000
"""Grace for an unexplained hole: brokers correct their minimum after files are deleted."""


class Unexplained(errors.NetworkError):
    """Answer that only a later one can explain: ask again. Never leaves this package except as the
    last problem of a stalled read."""


def is_present_log_start(body: bytes, queue: Queue, log_start: int) -> bool:
    """Return True for the answer that brokers send in place of their log's very first record once
    it is removed: the same number of bytes from the present start of the log, part of another
    record or all of it."""
    if not 0 < log_start <= position_in(body) or queue.topic.startswith("%LMQ%"):
        return False
    try:
        record, _ = parse_record(body, 0)
    except errors.ProtocolViolation:
        return True
    return (record.topic, record.queue_id) != (queue.topic, queue.queue_id)


class PullErrors:
    """Interprets the answers to pulls of one range, in order."""

    def __init__(self, range_: QueueRange, cluster: Cluster) -> None:
        self._range = range_
        self._cluster = cluster
        self._eroding_since: int | None = None
        self._end_asked_at: int | None = None
        self._log_end: int | None = None

    def forget(self) -> None:
        """Reset after a record or another failure: the next odd answer is a new one."""
        self._eroding_since = self._end_asked_at = self._log_end = None

    def judge(self, address: Address, at: int, answer: PullAnswer) -> Conversation[int]:
        """Return, for an answer without records, the first offset after those that retention
        removed at `at`. Raises `Unexplained`, and `errors.LogTruncated` if the queue ends at `at`
        or before."""
        if answer.code == codes.PULL_OFFSET_MOVED and at < answer.min_offset:
            return answer.min_offset
        if answer.code == codes.PULL_RETRY or (
            answer.code == codes.PULL_NOTHING and at < answer.max_offset
        ):
            left = yield from self._removed_until(address, at, answer)
            return (yield from self.hole(at, answer, left))
        if at >= answer.max_offset:
            yield from self._end(address, at, answer)
        # An operator reset the group's offset: the pull after it is answered so, once.
        raise Unexplained(f"the broker moves offset {at}: {answer.remark}")

    def hole(self, at: int, answer: PullAnswer, found: int | None) -> Conversation[int]:
        """Handle an answer whose first record is `found`, beyond `at`, or that has none, while
        retention removes files. Return the same as `judge`, once the minimum explains the hole."""
        now = yield Now()
        if self._eroding_since is None:
            self._eroding_since = now
        if answer.min_offset > at:
            return answer.min_offset
        if now - self._eroding_since >= _EROSION_MS and found is not None:
            return found
        raise Unexplained(
            f"nothing at offset {at}, although the queue reports "
            f"[{answer.min_offset}, {answer.max_offset}): {answer.remark}"
        )

    def stranger(
        self, address: Address, at: int, answer: PullAnswer, error: errors.ProtocolViolation
    ) -> Conversation[int]:
        """Return the same as `judge` for an answer whose records break the protocol. Raises `error`
        unless retention caused it."""
        queue = self._range.queue
        info = yield from self._cluster.runtime_info(address, queue.broker)
        if not is_present_log_start(answer.body, queue, info.log_start):
            raise error
        return (yield from self.hole(at, answer, at + 1 if info.has_stale_minima else None))

    def _removed_until(
        self, address: Address, at: int, answer: PullAnswer
    ) -> Conversation[int | None]:
        """Return the offset up to which a 4.x broker found all records removed while it reports no
        other minimum for a while: it never will, before the queue has a record again."""
        now, since = (yield Now()), self._eroding_since
        waited = since is not None and now - since >= _EROSION_MS
        if not waited or answer.remark != REMOVING or answer.next_offset <= at:
            return None
        info = yield from self._cluster.runtime_info(address, self._range.queue.broker)
        return min(answer.next_offset, answer.max_offset) if info.has_stale_minima else None

    def _end(self, address: Address, at: int, answer: PullAnswer) -> Conversation[None]:
        """Confirm that the queue ends before the range. A broker that has just started may still be
        building its index; the log is too short if a second answer, with nothing left to index,
        agrees."""
        info = yield from self._cluster.runtime_info(address, self._range.queue.broker)
        # Records that other producers send meanwhile may always wait to be indexed.
        log_end = self._log_end = info.log_end if self._log_end is None else self._log_end
        if info.indexed_bytes >= log_end:
            if self._end_asked_at == at:
                raise truncated(self._range, at, answer.max_offset)
            self._end_asked_at = at
        raise Unexplained(
            f"the queue ends at {answer.max_offset}, with {info.dispatch_behind_bytes} bytes to "
            f"be indexed: {answer.remark}"
        )
