"""The exact range reader: every record of `[start, end)` once, none outside it.

In a queue of an ordinary topic every offset is exactly one record, so the reader requires dense
offsets from the requested one, and ignores the next offset of an answer: while retention removes
files, genuine brokers answer with records far ahead, with positions far behind, or with "nothing"
in mid-queue (`docs/rocketmq-protocol/exact-ranges.md` has the table that `_judge_hole` and
`pull_errors` follow).

Since offsets are dense, the pulls of a range are known beforehand: several are in flight, answers
are taken in order, and the rest of a short answer is requested first. After a failure the read
restarts at the next undelivered offset, with a fresh route. Nothing is committed and nothing has to
be released. Decides only; does no I/O.

Source: `docs/rocketmq-protocol/exact-ranges.md#what-an-answer-means`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from rocketmq_client import errors
from rocketmq_client._core.batch import DecodePolicy, RecordBatch
from rocketmq_client._core.pull_errors import PullErrors, Unexplained
from rocketmq_client._core.pulling import PullAnswer, pull_request
from rocketmq_client._core.read_policy import (
    BREAKS,
    ReadPolicy,
    ReadStats,
    StallTimer,
    lost,
)
from rocketmq_client._wire import codes
from rocketmq_client._wire.records import RecordColumns, scan
from tubemq_client._core.effects import Await, AwaitAll, Deliver, Post

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_client._core.cluster import Cluster
    from rocketmq_client.model import Address, QueueRange
    from tubemq_client._core.effects import Conversation, Ticket

__all__ = ["RangeRead"]

_BATCH_RECORDS: Final = 4_096
_BATCH_BYTES: Final = 1024 * 1024
"""Small answers are combined into one batch up to either limit."""

_HELD_BYTES: Final = 4 * 1024 * 1024
"""Limit of answer bytes that a batch references when few of their records are delivered (a filter
by tag)."""

_MOST_RECORDS: Final = 1_000
_FULL_ANSWERS: Final = 32


class _PullSize:
    """Pull size of one read, learned from its answers.

    A broker limits an answer to a number of records and of bytes that no request reports (32 and
    256 KiB by default, fewer from cold storage). Pulls in flight together must not overlap and
    should not leave remainders, so each asks for as many records as the last ones returned, and now
    and then for more (`docs/rocketmq-protocol/exact-ranges.md#pulls-on-their-way`).
    """

    def __init__(self) -> None:
        self._count = 0
        self._full = 0

    def __repr__(self) -> str:
        return f"<_PullSize {self._count or 'unknown'}>"

    def ahead(self, policy: ReadPolicy) -> int:
        """Return the number of pulls that may be in flight: one until the size of answers is
        known."""
        return policy.in_flight if self._count else 1

    def next(self) -> int:
        """Return the number of records to ask for; after many full answers more, to find a higher
        limit."""
        if self._count and self._full >= _FULL_ANSWERS:
            self._full = 0
            return min(self._count * 2, _MOST_RECORDS)
        return self._count or _MOST_RECORDS

    def learn(self, asked: int, given: int) -> None:
        """Record the size of an answer with records."""
        if given < asked or given > self._count:
            self._count = given
            self._full = 0
        else:
            self._full += 1


class _Flight(NamedTuple):
    start: int
    asked: int
    ticket: Ticket


class RangeRead:
    """One attempt to deliver one `QueueRange`. Drive `conversation()`.

    `find_address` returns the broker's address, and looks it up again on request. Tags of `decode`
    are compared here, after density is proved.
    """

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
        self._queue = range_.queue
        self._cluster = cluster
        self._find_address = find_address
        self._group = group
        self._decode = decode
        self._policy = policy
        self._stats = stats
        self._is_decoding = False
        self._at = range_.start
        self._held = RecordColumns()
        self._held_from = range_.start
        self._body_bytes = 0
        self._held_bytes = 0
        self._flights: deque[_Flight] = deque()
        self._stride = _PullSize()
        self._patience = StallTimer(range_, policy.deadline_ms)
        self._refusals = PullErrors(range_, cluster)
        self._fresh = False

    def conversation(self) -> Conversation[None]:
        """Deliver `RecordBatch` values that tile the range."""
        yield from self._patience.renew()
        while self._at < self._range.end:
            try:
                address = yield from self._find_address(self._fresh)
                yield from self._read_on(address)
            except BREAKS as error:
                if self._is_decoding:
                    raise
                self._stats.restarts += 1
                yield from self._drain()
                yield from self._patience.pause(self._at, error)
                self._fresh = not isinstance(error, Unexplained)
                if self._fresh:
                    self._refusals.forget()
        yield from self._deliver()

    def _read_on(self, address: Address) -> Conversation[None]:
        while self._at < self._range.end:
            yield from self._fill(address)
            flight = self._flights.popleft()
            taken = yield from self._take(address, flight)
            while taken < flight.asked and self._at < self._range.end:
                if self._at != flight.start + taken:  # a gap was skipped: restart after it
                    yield from self._drain()
                    break
                rest = yield from self._post(address, self._at, flight.asked - taken)
                taken += yield from self._take(address, rest)

    def _fill(self, address: Address) -> Conversation[None]:
        last = self._flights[-1] if self._flights else None
        at = last.start + last.asked if last else self._at
        while at < self._range.end and len(self._flights) < self._stride.ahead(self._policy):
            count = min(self._stride.next(), self._range.end - at)
            self._flights.append((yield from self._post(address, at, count)))
            at += count

    def _post(self, address: Address, start: int, count: int) -> Conversation[_Flight]:
        request = pull_request(self._cluster, self._queue, self._group, start, count)
        ticket = yield Post(address, codes.PULL_MESSAGE, request)
        self._stats.fetches += 1
        return _Flight(start, count, ticket)

    def _drain(self) -> Conversation[None]:
        """Wait for pulls in flight, so that no answer stays behind unread."""
        tickets = [flight.ticket for flight in self._flights]
        self._flights.clear()
        if tickets:
            yield AwaitAll(tickets)

    def _take(self, address: Address, flight: _Flight) -> Conversation[int]:
        """Take the records of an answer; return their number, 0 after a skipped gap."""
        answer = PullAnswer.of((yield Await(flight.ticket)))
        if answer.code != codes.SUCCESS:
            self._stats.empty_fetches += 1
            yield from self._skip((yield from self._refusals.judge(address, self._at, answer)))
            return 0
        try:
            columns = scan(answer.body, self._queue.topic, self._queue.queue_id, flight.asked)
        except errors.ProtocolViolation as error:
            yield from self._skip(
                (yield from self._refusals.stranger(address, self._at, answer, error))
            )
            return 0
        count = _dense(columns, flight.start)
        if count == 0:
            yield from self._judge_hole(answer, columns)
            return 0
        if count < len(columns):  # a hole later in the answer: the next pull begins at it
            columns = scan(answer.body, self._queue.topic, self._queue.queue_id, count)
        self._stride.learn(flight.asked, count)
        yield from self._hold(columns, count)
        return count

    def _hold(self, columns: RecordColumns, count: int) -> Conversation[None]:
        self._at += count
        self._refusals.forget()
        self._fresh = False
        yield from self._patience.renew()
        # Calls the user's `quarantine`; its errors must not restart this read.
        self._is_decoding = True
        self._decode.apply(self._queue, columns)
        self._is_decoding = False
        self._held.extend(columns)
        self._body_bytes += sum(map(len, columns.bodies))
        self._held_bytes += columns.held_bytes
        full = len(self._held) >= _BATCH_RECORDS or self._body_bytes >= _BATCH_BYTES
        if full or self._held_bytes >= _HELD_BYTES:
            yield from self._deliver()

    def _deliver(self) -> Conversation[None]:
        if self._held_from == self._at:
            return
        batch = RecordBatch(self._queue, self._held_from, self._at, self._held)
        self._held, self._held_from = RecordColumns(), self._at
        self._body_bytes = self._held_bytes = 0
        self._stats.count(batch, self._decode)
        if len(batch):
            yield Deliver(batch)
            yield from self._patience.renew()

    # -- answers that are no dense records -------------------------------------------------------

    def _judge_hole(self, answer: PullAnswer, columns: RecordColumns) -> Conversation[None]:
        if not columns.offsets:
            raise Unexplained("the broker found records and sent none")
        first = columns.offsets[0]
        if first < self._at:
            raise errors.ProtocolViolation(
                f"{self._queue}: asked for offset {self._at}, the broker sent {first}; batch "
                "queues (queue.type=BatchCQ) do that"
            )
        yield from self._skip((yield from self._refusals.hole(self._at, answer, first)))

    def _skip(self, available: int) -> Conversation[None]:
        end = lost(self._range, self._policy, self._stats, self._at, available)
        yield from self._deliver()
        self._at = self._held_from = end
        self._refusals.forget()


def _dense(columns: RecordColumns, start: int) -> int:
    """Return the number of records with consecutive offsets from `start`."""
    offsets = columns.offsets
    if offsets == list(range(start, start + len(offsets))):
        return len(offsets)
    return next((i for i, offset in enumerate(offsets) if offset != start + i), len(offsets))
