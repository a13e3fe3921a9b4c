"""The range reader under slow and rare faults, on a clock that only the test advances.

`SlowStore` answers the reader's requests from one log and makes each fetch, and each batch in the
user's hands, take a given time; periodically it loses the connection. Deliveries of real servers,
and their ends, are tested in `tests/system/behaviour`.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from tubemq_client import _pb, errors
from tubemq_client._core.batch import DecodePolicy, MessageBatch
from tubemq_client._core.effects import Await, Call, Deliver, Now, Post, Sleep, Ticket
from tubemq_client._core.identity import ClientIds, ReaderPool
from tubemq_client._core.range_read import RangeRead
from tubemq_client._core.read_stats import ReadPolicy, ReadStats
from tubemq_client._wire import methods
from tubemq_client.model import BrokerNode, OffsetRange, Partition

PARTITION = Partition(1, "slow", 0)
BATCH = 10


@dataclass
class SlowStore:
    """Log of `entries` index entries, every `stride`-th of which is the partition's.

    Every `break_every`-th fetch loses the connection, and so do the first `lookup_breaks` look-ups
    of the remaining log. With `crash_at`, the broker dies when it is first asked for an end record,
    loses all entries from there on and, after its restart, has given their offsets to other
    records; if `unnoticed`, the reader's connection was reopened before it asked.
    """

    entries: int
    fetch_ms: int = 0
    user_ms: int = 0
    break_every: int = 0
    lookup_breaks: int = 0
    stride: int = 1
    crash_at: int | None = None
    crashed: bool = False
    unnoticed: bool = False
    leased: set[str] = field(default_factory=set)
    now: int = 0
    position: int = 0
    in_flight: int = 0
    fetches: int = 0
    probes: int = 0
    message_ids: list[int] = field(default_factory=list)

    def drive(self, read: RangeRead) -> list[int]:
        """Run the conversation to its end; return the ids of all delivered records."""
        conversation = read.conversation()
        answer: Any = None
        failure: errors.TubeMQError | None = None
        for _ in range(100_000):
            try:
                effect = conversation.throw(failure) if failure else conversation.send(answer)
            except StopIteration:
                return self.message_ids
            answer = failure = None
            try:
                answer = self._perform(effect)
            except errors.TubeMQError as error:
                failure = error
        raise AssertionError("the conversation does not end")

    def _perform(self, effect: Any) -> Any:
        match effect:
            case Now():
                return self.now
            case Sleep(ms):
                self.now += ms
            case Deliver(batch):
                self._take(batch)
            case Post(address, method, request):
                return Ticket(address, method, request)
            case Await(ticket):
                return ticket.method.response.FromString(
                    self._fetch(ticket.handle).SerializeToString()
                )
            case Call(_, methods.COMMIT_OFFSET, _):
                self._confirm()
                return _pb.CommitOffsetResponseB2C(
                    success=True, errCode=200, currOffset=self.position, maxOffset=self._maximum
                )
            case Call(_, _, request):
                return self._register(request)
        return None

    @property
    def _maximum(self) -> int:
        return self.entries * 28

    def _take(self, batch: MessageBatch) -> None:
        self.now += self.user_ms
        self.message_ids += [message.message_id for message in batch.messages()]

    def _register(self, request: Any) -> Any:
        if request.opType != methods.OP_REGISTER:
            is_leased = request.clientId in self.leased
            self.leased.discard(request.clientId)
            return _pb.RegisterResponseB2C(
                success=is_leased, errCode=200 if is_leased else 411, errMsg=""
            )
        if ".p" in request.groupName and self.lookup_breaks:
            self.lookup_breaks -= 1
            raise errors.ConnectionLost("lost while looking what is there")
        if ".p" in request.groupName and self.crash_at is not None and not self.crashed:
            self.crashed = True
            self.leased.clear()
            if not self.unnoticed:
                raise errors.ConnectionLost("the broker was killed")
        self.leased.add(request.clientId)
        self.position = request.currOffset
        self.in_flight = 0
        return _pb.RegisterResponseB2C(
            success=True, errCode=200, currOffset=self.position, maxOffset=self._maximum
        )

    def _fetch(self, request: Any) -> Any:
        self.now += self.fetch_ms
        self.fetches += 1
        self.probes += ".p" in request.groupName
        if self.break_every and self.fetches % self.break_every == 0:
            raise errors.ConnectionLost("lost while fetching")
        if request.lastPackConsumed:
            self._confirm()
        first = self.position // 28
        entries = range(first, min(first + BATCH, self.entries))
        self.in_flight = len(entries)
        reply = _pb.GetMessageResponseB2C(success=True, errCode=200, currOffset=self.position)
        for number in (n for n in entries if n % self.stride == 0):
            reply.messages.add(messageId=self._id(number), checkSum=0, flag=0, payLoadData=b"")
        return reply

    def _id(self, number: int) -> int:
        lost = self.crashed and self.crash_at is not None and number >= self.crash_at
        return number + 1_000_000 if lost else number

    def _confirm(self) -> None:
        self.position += 28 * self.in_flight
        self.in_flight = 0


@dataclass
class HastyStore(SlowStore):
    """Broker that ignores the order of a connection.

    Of two fetches in flight together it serves the later one first, in a `share` of the cases.
    """

    share: float = 0.3
    chance: random.Random = field(default_factory=random.Random)
    posted: list[Any] = field(default_factory=list)
    served: dict[int, Any] = field(default_factory=dict)
    swaps: int = 0

    def _perform(self, effect: Any) -> Any:
        match effect:
            case Post(address, method, request):
                self.posted.append(request)
                return Ticket(address, method, request)
            case Await(ticket):
                if id(ticket.handle) not in self.served:
                    self._serve(ticket.handle)
                reply = self.served.pop(id(ticket.handle))
                return ticket.method.response.FromString(reply.SerializeToString())
            case Call(_, method, _) if method is not methods.REGISTER_PARTITION:
                assert not self.posted, "a position is asked for while fetches are on their way"
        return super()._perform(effect)

    def _serve(self, request: Any) -> None:
        self.posted.remove(request)
        if self.posted and self.chance.random() < self.share:
            self.swaps += 1
            overtaking = self.posted.pop(0)
            self.served[id(overtaking)] = self._fetch(overtaking)
        self.served[id(request)] = self._fetch(request)

    def _register(self, request: Any) -> Any:
        # Fetches of the client id before find no registration.
        self.posted.clear()
        self.served.clear()
        return super()._register(request)


def reading(store: SlowStore, *, deadline_ms: int, entries: int | None = None) -> RangeRead:
    """Return a read of the first `entries` index entries, by default of all."""
    return RangeRead(
        OffsetRange(PARTITION, 0, (entries or store.entries) * 28),
        BrokerNode(1, "127.0.0.1", 8123),
        pool=ReaderPool("patience"),
        ids=ClientIds("127.0.0.1", 1, 1, itertools.count()),
        decode=DecodePolicy(),
        policy=ReadPolicy(deadline_ms=deadline_ms),
        stats=ReadStats(),
    )


def test_a_break_late_in_a_long_read_is_cured() -> None:
    """The deadline counts from the last progress, not from the start of the read."""
    store = SlowStore(entries=1_000, fetch_ms=500, break_every=40)
    assert store.drive(reading(store, deadline_ms=5_000)) == list(range(1_000))
    assert store.now > 5_000


def test_the_time_a_user_takes_for_a_batch_is_not_the_broker_s() -> None:
    store = SlowStore(entries=100, user_ms=60_000, break_every=3)
    assert store.drive(reading(store, deadline_ms=5_000)) == list(range(100))


def test_a_read_without_progress_fails_after_its_deadline() -> None:
    store = SlowStore(entries=100, fetch_ms=100, break_every=1)
    with pytest.raises(errors.RangeStalled, match="lost while fetching"):
        store.drive(reading(store, deadline_ms=5_000))
    assert store.now < 10_000


def test_a_broker_that_never_delivers_ends_the_read() -> None:
    class Hollow(SlowStore):
        def _fetch(self, request: Any) -> Any:
            reply = super()._fetch(request)
            self.in_flight = 0
            del reply.messages[:]
            return reply

    store = Hollow(entries=100)
    with pytest.raises(errors.RangeStalled):
        store.drive(reading(store, deadline_ms=5_000))
    assert store.now < 10_000


def test_a_break_while_the_log_is_checked_at_the_end_is_cured() -> None:
    """Batches with other partitions' records between end with a check of the remaining log."""
    store = SlowStore(entries=100, stride=2, lookup_breaks=2)
    assert store.drive(reading(store, deadline_ms=5_000)) == list(range(0, 100, 2))


def test_the_check_at_the_end_gives_up_after_the_deadline_too() -> None:
    store = SlowStore(entries=100, stride=2, lookup_breaks=1_000)
    with pytest.raises(errors.RangeStalled, match="looking what is there"):
        store.drive(reading(store, deadline_ms=5_000))


@pytest.mark.parametrize("unnoticed", [False, True])
def test_a_crash_between_a_batch_and_its_end_record_delivers_no_lost_record(
    unnoticed: bool,
) -> None:
    """The batch overshoots the range by records that were not on disk.

    They are gone when the end record is looked up, so it is not in the batch: that does not mean
    that the whole batch belongs to the range.
    """
    store = SlowStore(entries=100, stride=2, crash_at=45, unnoticed=unnoticed)
    assert store.drive(reading(store, deadline_ms=5_000, entries=45)) == list(range(0, 45, 2))
    assert store.crashed


@pytest.mark.parametrize("end", [55, 60, 100])
def test_fetching_ahead_beyond_the_end_costs_one_fetch_only(end: int) -> None:
    """The number of a batch's records is estimated from its size; other partitions disturb that."""
    store = SlowStore(entries=100, stride=5)
    assert store.drive(reading(store, deadline_ms=5_000, entries=end)) == list(range(0, end, 5))
    assert store.fetches - store.probes <= -(-end // BATCH) + 1
    fence, first_entry_is_there = int(end % BATCH > 0), 3
    assert store.probes == fence + first_entry_is_there


def test_a_delivered_range_awaits_no_further_reply() -> None:
    """A fetch beyond the end is still in flight, as records became rarer than estimated.

    The read does not depend on its outcome.
    """

    class Thinning(SlowStore):
        def _fetch(self, request: Any) -> Any:
            reply = super()._fetch(request)
            if reply.currOffset >= 28 * 60:
                del reply.messages[1:]
                self.in_flight = 80
            return reply

    store = Thinning(entries=600)
    unanswered = 0
    steps: list[Any] = []
    perform = store._perform

    def watch(effect: Any) -> Any:
        nonlocal unanswered
        steps.append(effect)
        unanswered += isinstance(effect, Post) - isinstance(effect, Await)
        return perform(effect)

    store._perform = watch  # type: ignore[method-assign]
    store.drive(reading(store, deadline_ms=5_000, entries=120))
    assert store.message_ids == list(range(61))
    assert unanswered == 1
    delivered = max(n for n, step in enumerate(steps) if isinstance(step, Deliver))
    awaited = [step.ticket.handle for step in steps[delivered:] if isinstance(step, Await)]
    assert all(".p" in request.groupName for request in awaited), "only what the log still has"


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("stride", [1, 3])
def test_fetches_served_out_of_order_cost_time_only(stride: int, seed: int) -> None:
    """Genuine brokers serve a connection's fetches in order.

    If one does not, starts reveal it before they are used.
    """
    store = HastyStore(entries=900, stride=stride, chance=random.Random(seed))
    assert store.drive(reading(store, deadline_ms=60_000)) == list(range(0, 900, stride))
    assert store.swaps


@pytest.mark.parametrize("break_every", [3, 4, 5, 7])
def test_two_fetches_in_flight_survive_any_break(break_every: int) -> None:
    store = SlowStore(entries=500, break_every=break_every)
    assert store.drive(reading(store, deadline_ms=5_000)) == list(range(500))


def test_two_fetches_are_in_flight_after_the_first_delivery() -> None:
    store = HastyStore(entries=200, share=0.0)
    waiting: list[int] = []
    perform = store._perform

    def watch(effect: Any) -> Any:
        if isinstance(effect, Await):
            waiting.append(len(store.posted))
        return perform(effect)

    store._perform = watch  # type: ignore[method-assign]
    store.drive(reading(store, deadline_ms=5_000))
    assert waiting[:2] == [1, 1]
    assert set(waiting[3:-2]) == {2}
    assert len(waiting) == 200 // BATCH
