"""Reading a range through the broker's tag filter: less traffic, and less proof.

The broker's answer gives the next offset but no proof of the records in between, so the read is
exact only while retention removes nothing. The reader checks that answers stay within `[asked,
next)`, that `next` grows, and that the queue's minimum has not passed the offsets read. It compares
tags again, because brokers compare hashes. One pull is in flight at a time.

Source: `docs/rocketmq-protocol/exact-ranges.md#what-an-answer-means`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from rocketmq_client import errors
from rocketmq_client._core.batch import DecodePolicy, RecordBatch
from rocketmq_client._core.pull_errors import REMOVING, PullErrors, Unexplained
from rocketmq_client._core.pulling import PullAnswer, by_tags, pull_request
from rocketmq_client._core.read_policy import (
    BREAKS,
    ReadPolicy,
    ReadStats,
    StallTimer,
    lost,
)
from rocketmq_client._wire import codes
from rocketmq_client._wire.records import RecordColumns, scan
from tubemq_client._core.effects import Call, Deliver

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_client._core.cluster import Cluster
    from rocketmq_client._wire.commands import Command
    from rocketmq_client.model import Address, QueueRange
    from tubemq_client._core.effects import Conversation

__all__ = ["FilteredRead"]

_MOST: Final = 1_000


class FilteredRead:
    """One attempt to deliver the records of a range that have one of the policy's tags."""

    def __init__(
        self,
        range_: QueueRange,
        cluster: Cluster,
        find_address: Callable[[bool], Conversation[Address]],
        *,
        group: str,
        decode: DecodePolicy,
        policy: ReadPolicy,
        stats: ReadStats,
    ) -> None:
        self._range = range_
        self._cluster = cluster
        self._find_address = find_address
        self._group = group
        self._decode = decode
        self._policy = policy
        self._stats = stats
        self._is_decoding = False
        self._at = range_.start
        self._patience = StallTimer(range_, policy.deadline_ms)
        self._refusals = PullErrors(range_, cluster)
        tags = sorted(tag.decode() for tag in decode.tags)
        self._subscription = by_tags(range_.queue.topic, tags)

    def conversation(self) -> Conversation[None]:
        """Deliver `RecordBatch` values in offset order."""
        yield from self._patience.renew()
        fresh = False
        while self._at < self._range.end:
            try:
                address = yield from self._find_address(fresh)
                answer = yield from self._ask(address)
                yield from self._take(address, answer)
                fresh = False
            except BREAKS as error:
                if self._is_decoding:
                    raise
                self._stats.restarts += 1
                yield from self._patience.pause(self._at, error)
                fresh = not isinstance(error, Unexplained)
                if fresh:
                    self._refusals.forget()

    def _ask(self, address: Address) -> Conversation[PullAnswer]:
        request = pull_request(
            self._cluster,
            self._range.queue,
            self._group,
            self._at,
            min(_MOST, self._range.end - self._at),
            subscription=self._subscription,
        )
        self._stats.fetches += 1
        answer = yield Call(address, codes.PULL_MESSAGE, request)
        return PullAnswer.of(cast("Command", answer))

    def _take(self, address: Address, answer: PullAnswer) -> Conversation[None]:
        if self._at < answer.min_offset:
            self._lose(answer.min_offset)
            return
        if answer.code == codes.SUCCESS:
            columns = yield from self._scanned(address, answer)
            if columns is not None:
                yield from self._deliver(answer, columns)
            return
        self._stats.empty_fetches += 1
        if self._nothing_matched(answer):
            self._at = min(answer.next_offset, self._range.end)
            self._refusals.forget()
            yield from self._patience.renew()
            return
        self._lose((yield from self._refusals.judge(address, self._at, answer)))

    def _lose(self, available: int) -> None:
        self._at = lost(self._range, self._policy, self._stats, self._at, available)

    def _scanned(self, address: Address, answer: PullAnswer) -> Conversation[RecordColumns | None]:
        """Return the records of an answer, or None if retention caused the answer."""
        queue = self._range.queue
        try:
            count = min(_MOST, self._range.end - self._at)
            columns = scan(answer.body, queue.topic, queue.queue_id, count)
        except errors.ProtocolViolation as error:
            self._lose((yield from self._refusals.stranger(address, self._at, answer, error)))
            return None
        first = columns.offsets[0] if columns.offsets else self._at
        if first > self._at and columns.offsets[-1] >= answer.next_offset:
            self._lose((yield from self._refusals.hole(self._at, answer, first)))
            return None
        return columns

    def _nothing_matched(self, answer: PullAnswer) -> bool:
        """Return True if the broker scanned records and none had the tags: the next offset of any
        other answer proves nothing."""
        looked = answer.code == codes.PULL_RETRY and answer.remark != REMOVING
        return looked and self._at < answer.next_offset <= answer.max_offset

    def _deliver(self, answer: PullAnswer, columns: RecordColumns) -> Conversation[None]:
        queue = self._range.queue
        following = max(answer.next_offset, self._at)
        self._check(columns, following)
        if following == self._at:
            raise errors.BrokerFailure(answer.code, "no progress", where=str(queue))
        if columns.cut:  # the rest of the answer is requested again
            following = columns.offsets[-1] + 1
        end = min(following, self._range.end)
        inside = [i for i, offset in enumerate(columns.offsets) if offset < end]
        if len(inside) < len(columns):
            columns = scan(answer.body, queue.topic, queue.queue_id, len(inside))
        # Calls the user's `quarantine`; its errors must not restart this read.
        self._is_decoding = True
        self._decode.apply(queue, columns)
        self._is_decoding = False
        batch = RecordBatch(queue, self._at, end, columns)
        self._at = end
        self._refusals.forget()
        self._stats.count(batch, self._decode)
        if len(batch):
            yield Deliver(batch)
        yield from self._patience.renew()

    def _check(self, columns: RecordColumns, following: int) -> None:
        offsets = columns.offsets
        if offsets and not (self._at <= offsets[0] and offsets[-1] < following):
            raise errors.ProtocolViolation(
                f"{self._range.queue}: asked for offset {self._at}, the broker sent "
                f"{offsets[0]} to {offsets[-1]} and continues at {following}"
            )
        if offsets != sorted(set(offsets)):
            raise errors.ProtocolViolation(f"{self._range.queue}: offsets do not increase")
