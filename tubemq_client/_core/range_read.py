"""The exact range reader: every record of `[start, end)` once, none outside it.

A reply states only where a batch *starts*, a batch may reach beyond `end`, and records of other
partitions lie between. `docs/protocol/exact-ranges.md` has the rules with their reasons; in short:

* A batch is held back until the next start, or a commit reply, states where it ended. So the resume
  point is always known exactly, and no record has to be recognised after a break.
* Two fetches are in flight at a time: a broker serves those of one connection in order. If it ever
  does not, starts arrive out of order; until that is excluded a start is not used.
* A batch that ends beyond `end` is cut at the *end record*: the first at or after `end`, found by
  a second registration **after** the batch was received. Looking it up after the read makes it
  correct while producers run: the look-up sees everything that the batch holds. It is valid if
  the lease outlives it: a broker that crashed meanwhile gives lost offsets to other records.
* "Nothing to read" (404) is not the end: it may have moved the position. The end is reached when
  the position has reached it.
* Brokers skip records that retention has removed without reporting it. A batch with one record per
  entry proves that none is missing. Where batches have fewer, because partitions share the
  store or because of filters, the broker is asked what it still has (`retention`): once after the
  last batch, or, where gaps are recorded, before some batches are delivered, so that a gap
  ends at the first record that was read.
* Any break (lost lease, lost connection, odd reply) starts over at the resume point under a *new*
  client id, because a stale fetch of the old id could otherwise move the new position.

This module decides; it does no I/O (see `effects.py`).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tubemq_client import errors
from tubemq_client._core.batch import DecodePolicy, MessageBatch, RawBatch
from tubemq_client._core.effects import Await, Deliver, Now, Sleep
from tubemq_client._core.event_log import range_read_waits
from tubemq_client._core.range_end import (
    FoundRecord,
    RecordIdentity,
    find_end_record,
    find_record,
    is_in_first_batch,
)
from tubemq_client._core.read_stats import Gap, ReadPolicy, ReadStats
from tubemq_client._core.registration import Registration
from tubemq_client._core.retention import FinishedRange, SharedRetentionChecks, first_readable
from tubemq_client._core.security import Access
from tubemq_client._wire.fetching import size_if_delivering, whole
from tubemq_client._wire.native import find
from tubemq_client.model import INDEX_ENTRY_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubemq_client._core.effects import Conversation, Ticket
    from tubemq_client._core.identity import ClientIds, ReaderPool
    from tubemq_client._core.master import TopicMetadata
    from tubemq_client.model import BrokerNode, OffsetRange, Partition

__all__ = ["Gap", "RangeRead", "ReadPolicy", "ReadStats", "broker_of"]

T = TypeVar("T")

_PAUSE_MS = 100
_PAUSE_LIMIT_MS = 2_000
_TOLD_EVERY_MS = 10_000
"""Time without progress after which the log says why, and again for each as long."""
_GUESS_MARGIN = 1.5

_IN_FLIGHT = 2
"""Fetches in flight: the broker works on one while the other, and the reply to the one before,
cross the network. More gained nothing (`docs/protocol/exact-ranges.md`)."""

_UNPROVEN = 16
"""Upper bound of batches that wait, where gaps are recorded, for the proof that no record is
missing."""

_BREAKS = (
    errors.NotRegistered,
    errors.PartitionTaken,
    errors.DataMoved,
    errors.RateLimited,
    errors.ServerFailure,
    errors.ServiceUnavailable,
    errors.NetworkError,
    errors.RemoteException,
)
"""Errors that starting over at the resume point may cure; all others are raised."""


class _GapRecorded(Exception):
    """Signal that a gap was recorded; reading continues behind it under a new registration."""


class _Held(NamedTuple):
    """Batch that is held back until its end is known.

    Its start is certain once the first `certain_after` fetches of the lease are answered: those
    sent before it arrived, one of which might have been served in its place. The next batch is
    estimated to start at `next_start`.
    """

    raw: RawBatch
    certain_after: int
    next_start: int


def broker_of(range_: OffsetRange, topic: TopicMetadata) -> BrokerNode:
    """Return the broker that holds the range.

    Raises `errors.ConfigError` if the topic has no such broker or partition: a broker would only
    answer with the same failure again and again.
    """
    broker_id = range_.partition.broker_id
    broker = topic.brokers.get(broker_id)
    if broker is None:
        broker_list = ", ".join(map(str, topic.brokers.values())) or "none"
        raise errors.ConfigError(
            f"no broker has id {broker_id} (range {range_}); known: {broker_list}", subject="range"
        )
    topic.select([range_.partition])
    return broker


class RangeRead:
    """One attempt to deliver one `OffsetRange`: run `conversation()`, then `release()`."""

    def __init__(
        self,
        range_: OffsetRange,
        broker: BrokerNode,
        *,
        pool: ReaderPool,
        ids: ClientIds,
        decode: DecodePolicy,
        policy: ReadPolicy,
        stats: ReadStats,
        access: Access | None = None,
        proofs: SharedRetentionChecks | None = None,
    ) -> None:
        self._range = range_
        self._broker = broker
        self._pool = pool
        self._ids = ids
        self._decode = decode
        self._policy = policy
        self._stats = stats
        self._access = access or Access()
        self._filters = tuple(sorted(decode.filters))
        self._slot = pool.first_slot(range_)
        self._lease: Registration | None = None
        self._held: deque[_Held] = deque()
        self._answered = 0
        self._resume_at = range_.start
        self._all_exact = True
        self._intact_from = range_.start
        self._unproven: list[tuple[MessageBatch, int]] = []
        self._proofs = proofs or SharedRetentionChecks()
        self._records = 0
        self._is_proven = range_.start >= range_.end
        self._progress_at = 0
        self._pause_ms = _PAUSE_MS
        self._told_ms = 0
        self._leased_at = range_.start
        self._reach_per_byte = 0.0
        self._is_counting = False

    def conversation(self) -> Conversation[None]:
        """Deliver every batch; return when the position has reached `end`."""
        self._progress_at = yield Now()
        while self._resume_at < self._range.end or not self._is_proven:
            try:
                if self._resume_at < self._range.end:
                    self._lease = lease = yield from self._acquire()
                    if self._resume_at < self._range.end:
                        yield from self._read(lease)
                yield from self._prove_range()
            except _GapRecorded:
                self._held.clear()
                yield from self.release()
            except _BREAKS as error:
                if self._is_counting or isinstance(error, errors.TlsError):
                    raise  # waiting does not repair a certificate
                self._held.clear()
                self._stats.restarts += 1
                yield from self.release()
                yield from self._pause(error)
        yield from self.release()

    def readable_from(self) -> Conversation[int]:
        """Return the offset at which the broker's records of the range begin (`first_readable`)."""
        self._progress_at = yield Now()
        start, end = self._range.start, self._range.end
        while True:
            try:
                return (yield from first_readable(self._find, self._range.partition, start, end))
            except _BREAKS as error:
                if isinstance(error, errors.TlsError):
                    raise
                yield from self._pause(error)

    def has_record(self, record: RecordIdentity) -> Conversation[bool]:
        """Return whether one fetch at the start of the range has the record.

        False is no proof: it may be further on, or the broker could not be asked.
        """

        def ask(group: str) -> Conversation[bool]:
            return is_in_first_batch(self._registration(group), self._range.start, record)

        try:
            return (yield from self._in_free_group(ask))
        except errors.TubeMQError:
            return False

    def release(self) -> Conversation[None]:
        """Give the partition back; if the broker cannot be reached, the lease expires there."""
        lease, self._lease = self._lease, None
        if lease is not None:
            yield from lease.give_back()

    # -- taking the partition -----------------------------------------------------------------

    def _acquire(self) -> Conversation[Registration]:
        """Register at the resume point in the first free slot of the pool."""
        while True:
            for _ in range(self._pool.size):
                lease = self._registration(self._pool.reader(self._slot))
                try:
                    registered = yield from lease.register(self._resume_at)
                except errors.PartitionOccupied as error:
                    self._slot += 1
                    occupied = error
                else:
                    self._lease = lease
                    self._check_start(registered.current, registered.max_offset)
                    return lease
            yield from self._pause(occupied)

    def _registration(self, group: str, unfiltered: Partition | None = None) -> Registration:
        return Registration(
            self._broker,
            unfiltered or self._range.partition,
            group,
            self._ids.consumer(group, "Range"),
            filters=() if unfiltered else self._filters,
            access=self._access,
        )

    def _check_start(self, current: int, max_offset: int) -> None:
        if max_offset < self._range.end:
            raise self._truncated(f"the log ends at {max_offset}")
        if current > self._resume_at:
            self._lost(current)
        elif current < self._resume_at:
            raise self._truncated(f"the broker put the reader back to {current}")

    # -- reading ------------------------------------------------------------------------------

    def _read(self, lease: Registration) -> Conversation[None]:
        """Fetch until the position reaches `end`.

        The next fetches are sent before a batch is delivered, and usually before it is parsed, so
        decoding and the broker's work overlap.
        """
        expected: int | None = self._resume_at
        tickets: deque[Ticket] = deque()
        self._answered = 0
        self._leased_at = self._resume_at
        last_start = -1
        yield from self._fetch(lease, tickets)
        while tickets and self._resume_at < self._range.end:
            answer = yield Await(tickets.popleft())
            self._answered += 1
            certain_after = self._answered + len(tickets)
            size = size_if_delivering(answer)
            yield from self._fetch_ahead(lease, tickets, size)
            reply = whole(answer)
            has_messages = bool(reply.messages)
            if reply.success and reply.errCode == errors.SUCCESS:
                self._hold(reply, expected, certain_after, size)
                expected = None
                if not tickets and self._goes_on(
                    reply.currOffset, last_start, has_messages=has_messages
                ):
                    yield from self._fetch(lease, tickets)
                last_start = reply.currOffset
                yield from self._deliver_certain()
            elif reply.errCode == errors.NOT_FOUND:
                self._stats.empty_fetches += 1
            else:
                # This reply may hide records that were scanned already: only a new registration is
                # safe.
                raise lease.refusal(reply, "fetch")
            if not tickets and self._resume_at < self._range.end:
                before = self._resume_at
                expected = yield from self._settle(lease)
                if not has_messages and expected == before:
                    self._give_up_if_truncated(reply)
                    yield from self._pause(errors.for_code(errors.NOT_FOUND, reply.errMsg))
                if self._resume_at < self._range.end:
                    yield from self._fetch(lease, tickets)

    def _goes_on(self, start: int, last_start: int, *, has_messages: bool) -> bool:
        """Return whether to fetch after a batch at `start`; else a commit tells the position.

        A batch at the last entry leaves nothing to fetch, and an empty one where the last began did
        not move the position.
        """
        last_entry = self._range.end - INDEX_ENTRY_BYTES
        moves = has_messages or start > last_start
        return moves and start < last_entry and self._floor() < self._range.end

    def _fetch(self, lease: Registration, tickets: deque[Ticket]) -> Conversation[None]:
        self._stats.fetches += 1
        consumed = self._answered + len(tickets) > 0  # all but the first of a lease
        tickets.append((yield from lease.post_fetch(consumed=consumed, unparsed=True)))

    def _fetch_ahead(
        self, lease: Registration, tickets: deque[Ticket], size: int
    ) -> Conversation[None]:
        """Send the next fetches before a reply of `size` bytes is parsed, which takes a while.

        Only one until something was delivered, so that every lease makes progress.

        The offsets that the reply and the fetches in flight cover are estimated from its size and
        the batch before. Too low an estimate costs fetches beyond `end`, whose replies state the
        position as well as a commit does.
        """
        limit = _IN_FLIGHT if self._resume_at > self._leased_at else 1
        reach = _GUESS_MARGIN * size * self._reach_per_byte
        start = self._held[-1].next_start if self._held else self._resume_at
        while reach and len(tickets) < limit:
            if start + reach * (len(tickets) + 1) >= self._range.end:
                break
            yield from self._fetch(lease, tickets)

    def _hold(self, reply: Any, expected: int | None, certain_after: int, size: int) -> None:
        """Check where the batch of `reply` starts, and hold it back."""
        start = reply.currOffset
        self._check_continuity(start, expected)
        reach = INDEX_ENTRY_BYTES * len(reply.messages)
        if self._held:
            reach = max(reach, start - self._held[-1].raw.start)
        if size:
            self._reach_per_byte = reach / size
        raw = RawBatch(start, reply.messages)
        self._held.append(_Held(raw, certain_after, start + reach))

    def _floor(self) -> int:
        """Return the least position that can follow the delivered and the held batches."""
        if not self._held:
            return self._resume_at
        last = self._held[-1].raw
        return last.start + INDEX_ENTRY_BYTES * len(last.messages)

    def _deliver_certain(self) -> Conversation[None]:
        """Deliver the held batches whose end is certain: the start of the next one."""
        while len(self._held) > 1 and self._held[1].certain_after <= self._answered:
            ready = self._held.popleft().raw
            yield from self._advance_to(ready, self._held[0].raw.start)

    def _settle(self, lease: Registration) -> Conversation[int]:
        """Commit to learn the position, and deliver the held batches.

        No fetch is in flight, so every start is certain.
        """
        position = (yield from lease.commit()).current
        if position < self._floor():
            raise self._truncated(f"the broker put the reader back to {position}")
        yield from self._deliver_certain()
        ready = self._held.popleft().raw if self._held else None
        yield from self._advance_to(ready, position)
        return position

    def _advance_to(self, ready: RawBatch | None, position: int) -> Conversation[None]:
        """Record that the position is `position`; deliver `ready`, which ended at or before it."""
        moved = position > self._resume_at
        if ready is None:
            self._all_exact = self._all_exact and not moved
        else:
            yield from self._deliver(ready, position)
        if moved:
            self._resume_at = position
            # Measured after the delivery: the user's time with a batch is not the broker's.
            self._progress_at = yield Now()
            self._told_ms = 0
            self._pause_ms = _PAUSE_MS

    def _deliver(self, raw: RawBatch, end: int) -> Conversation[None]:
        count = len(raw.messages)
        exact = not self._filters and end - raw.start == INDEX_ENTRY_BYTES * count
        self._all_exact = self._all_exact and exact
        if end > self._range.end:
            if exact:
                count = max(0, (self._range.end - raw.start) // INDEX_ENTRY_BYTES)
            elif raw.start >= self._range.end:
                count = 0
            else:
                count = yield from self._cut(raw, end)
            end = self._range.end
        batch = MessageBatch(
            self._range.partition, raw, end=end, count=count, exact=exact, policy=self._decode
        )
        self._records += count
        if self._all_exact:
            self._intact_from = end
        elif self._policy.gap_policy == "skip":
            self._unproven.append((batch, count))
            self._resume_at = max(self._resume_at, end)
            if len(self._unproven) >= _UNPROVEN:
                yield from self._prove()
            return
        yield from self._deliver_batch(batch, count)

    def _deliver_batch(self, batch: MessageBatch, count: int) -> Conversation[None]:
        if count:
            # Decoding calls the user's `quarantine`, whose errors must not restart this read.
            self._is_counting = True
            self._stats.count(batch, self._decode)
            self._is_counting = False
        # A delivered batch must never be read again, whatever happens while the user has it.
        self._resume_at = max(self._resume_at, batch.end or 0)
        if count:
            yield Deliver(batch)

    def _prove_range(self) -> Conversation[None]:
        """Prove that nothing of the range is missing, now that it was read.

        Proves the same of other ranges that share the proof. Raises as `_prove` does.
        """
        if self._policy.gap_policy == "skip":
            yield from self._prove()
        else:
            unproven_from = self._range.end if self._all_exact else self._intact_from
            read = FinishedRange(self._range, unproven_from, self._records)
            doubted = self._proofs.to_prove(read, filtered=bool(self._filters))
            readable_from = self._range.start
            if doubted:
                start = min(read_range.doubt for read_range in doubted)
                end = max(read_range.range.end for read_range in doubted)
                readable_from = yield from first_readable(
                    self._find, self._range.partition, start, end
                )
            self._proofs.asked(self._range.partition)
            for read_range in doubted:
                if read_range.doubt < readable_from:
                    self._lost(readable_from, start=read_range.doubt, of=read_range.range)
        self._is_proven = True

    def _prove(self) -> Conversation[None]:
        """Prove that retention had not passed the records read since `_intact_from`; deliver them.

        Raises `errors.DataLoss`, or `_GapRecorded` where gaps are recorded.
        """
        if self._all_exact:
            return
        start, end = self._intact_from, self._range.end
        readable_from = yield from first_readable(self._find, self._range.partition, start, end)
        if readable_from > start:
            self._lost(readable_from, start=start)
            raise _GapRecorded
        self._intact_from, self._all_exact = self._resume_at, True
        ready, self._unproven = self._unproven, []
        for batch, count in ready:
            yield from self._deliver_batch(batch, count)

    def _cut(self, raw: RawBatch, upto: int) -> Conversation[int]:
        """Return the number of records of the batch before `end`: those before the end record."""
        self._stats.fence_probes += 1
        end_record = yield from self._end_record(upto)
        yield from self._give_back_alive()
        index = None if end_record is None else find(raw.messages, *end_record)
        return len(raw.messages) if index is None else index

    def _end_record(self, upto: int) -> Conversation[RecordIdentity | None]:
        """Return the first record at or after the end of the range, searched up to `upto`."""

        def ask(group: str) -> Conversation[RecordIdentity | None]:
            return find_end_record(self._registration(group), self._range.end, upto)

        try:
            return (yield from self._in_free_group(ask))
        except errors.DataLoss as error:  # the next register reports the gap
            raise errors.DataMoved(301, str(error), where=f"end of {self._range}") from error

    def _find(
        self, partition: Partition, offset: int, upto: int
    ) -> Conversation[FoundRecord | None]:
        """Return the first record of a partition of the store at or after `offset`, unfiltered."""

        def ask(group: str) -> Conversation[FoundRecord | None]:
            return find_record(self._registration(group, partition), offset, upto)

        return self._in_free_group(ask)

    def _in_free_group(self, ask: Callable[[str], Conversation[T]]) -> Conversation[T]:
        """Ask in the first free slot of the pool, once; any failure means reading the batch again.

        Waiting with a batch in hand would not be safe. If the broker dies meanwhile, records that
        were not on its disk are lost, their offsets go to others, and the lost records would be
        delivered as the range's.
        """
        occupied: errors.TubeMQError | None = None
        for step in range(self._pool.size):
            try:
                return (yield from ask(self._pool.probe(self._slot + step)))
            except errors.PartitionOccupied as error:
                occupied = error
        raise errors.ServiceUnavailable(
            503, f"all {self._pool.size} probe groups are busy", where=f"end of {self._range}"
        ) from occupied

    def _give_back_alive(self) -> Conversation[None]:
        """Give the partition back, which succeeds only if the lease outlived the look-up.

        A restarted broker has no leases. Its crash may not have been noticed: the reply that states
        where the batch ended had already arrived, and a new connection was opened since.
        """
        if self._lease is not None:
            yield from self._lease.unregister()
            self._lease = None

    # -- what can go wrong --------------------------------------------------------------------

    def _check_continuity(self, start: int, expected: int | None) -> None:
        floor = self._floor()
        if start < floor:
            raise errors.ConnectionLost(
                f"{self._range}: the broker went back to {start} after {floor}"
            )
        if expected is not None and start > expected:
            self._lost(start)

    def _lost(
        self, available: int, *, start: int | None = None, of: OffsetRange | None = None
    ) -> None:
        start = self._resume_at if start is None else start
        if self._policy.gap_policy != "skip":
            range_ = of or self._range
            raise errors.DataLoss(
                f"retention has removed offsets [{start}, {min(available, range_.end)}) of "
                f"partition {range_.partition.key} of topic {range_.partition.topic!r}: "
                f"the broker has no record before {available} any more. Set gap_policy='skip' "
                f"(Spark: failOnDataLoss=false) to continue and record the gap",
                start=start,
                available=available,
            )
        if not self._all_exact:  # no proof is possible: part of the waiting batches may be missing
            start = self._intact_from
            self._unproven.clear()
        end, key, gaps = (
            min(available, self._range.end),
            self._range.partition.key,
            self._stats.gaps,
        )
        if (
            gaps
            and (gaps[-1].partition, gaps[-1].end) == (key, start)
            and start > self._range.start
        ):
            start = gaps.pop().start
        gaps.append(Gap(key, start, end))
        self._intact_from, self._all_exact = end, True
        self._resume_at = end

    def _give_up_if_truncated(self, reply: Any) -> None:
        if "reached maxOffset" in reply.errMsg:
            raise self._truncated(f"nothing can be read beyond {self._resume_at}")

    def _truncated(self, why: str) -> errors.LogTruncated:
        return errors.LogTruncated(
            f"the log of partition {self._range.partition.key} of topic "
            f"{self._range.partition.topic!r} is shorter than the planned range "
            f"[{self._range.start}, {self._range.end}): {why}. Either nothing was ever "
            f"written up to its end, or the broker lost records in a crash or the topic was "
            f"rebuilt: plan the window again (on_offset_regression)"
        )

    def _pause(self, error: errors.TubeMQError) -> Conversation[None]:
        """Wait, longer each time; raise `RangeStalled` after `deadline_ms` without progress."""
        now = yield Now()
        waited = now - self._progress_at
        if waited >= self._policy.deadline_ms:
            raise errors.RangeStalled(
                f"no progress at offset {self._resume_at} of range {self._range} for {waited} ms "
                f"(deadline_ms={self._policy.deadline_ms}); last problem: {error}"
            ) from error
        if waited >= self._told_ms + _TOLD_EVERY_MS:
            self._told_ms = waited
            range_read_waits(self._range, self._resume_at, waited, self._policy.deadline_ms, error)
        yield Sleep(self._pause_ms)
        self._pause_ms = min(self._pause_ms * 2, _PAUSE_LIMIT_MS)
