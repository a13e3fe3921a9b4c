"""Membership in a group: heartbeats, allocation of queues, pulls, commits.

Members make each other known with heartbeats to all masters of their topics; each then computes
which queues it holds from the broker's list of members, so members of all languages work together.
A broker tells the members of its connections when that list changes. Java members also subscribe to
``%RETRY%<group>``, where records that a member sent back arrive, and divide its queues among all
members: every member must read its share.

A member that consumes in order locks a queue before it looks up where to begin, and counts on the
lock for a while after each renewal; a queue with an open batch is given up once that is settled. A
broadcasting member shares nothing: it holds all queues and keeps its offsets itself.

The shells run `round` again and again in one thread or task, and `pulling` in one per broker.

Source: `docs/rocketmq-protocol/wire.md#groups`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_client import errors
from rocketmq_client._core.allocation import allocation_named
from rocketmq_client._core.ends import queue_ends
from rocketmq_client._core.groups import (
    commit_offset,
    committed_offset,
    members,
    send_back,
    unregister,
)
from rocketmq_client._core.held_queues import HeldQueue, HeldQueues
from rocketmq_client._core.local_offsets import LocalOffsets
from rocketmq_client._core.pull_errors import REMOVING
from rocketmq_client._core.pulling import (
    PullAnswer,
    by_tags,
    messages_of,
    pull_request,
    tags_to_keep,
)
from rocketmq_client._core.queue_locks import LOCK_LASTS_MS, lock, unlock
from rocketmq_client._core.times import boundary_at
from rocketmq_client._wire import codes
from rocketmq_client._wire.bodies import RETRY_PREFIX, Subscription, heartbeat_body
from rocketmq_client.model import ConsumerStats, tag_names
from tubemq_client._core.effects import Await, AwaitAny, Now, Post, Sleep, WallClock

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from rocketmq_client._core.cluster import Cluster
    from rocketmq_client._wire.bodies import TopicRoute
    from rocketmq_client._wire.commands import Command
    from rocketmq_client.model import Address, ConsumerSettings, Message, Queue, ReceivedBatch
    from tubemq_client._core.effects import Conversation, Ticket

__all__ = ["Membership"]

_PAUSE_MS: Final = 1_000
"""Pause after a failure of a broker."""

_LISTEN_MS: Final = 100
"""Time after which a puller looks for queues that have become ready."""

_ODD_MS: Final = 5_000
"""Time for which a broker's odd answer must last; one that has just started gives such answers."""

_EARLY_MS: Final = 100
"""A held pull that ends sooner without a record was not held: the next one waits as long."""

_CONSUME_FROM: Final = {"first": "CONSUME_FROM_FIRST_OFFSET", "last": "CONSUME_FROM_LAST_OFFSET"}


class Membership:
    """One member of one group. `wake` is called when `round` has something to do, `ready` when
    there may be a batch."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        client_id: str,
        topics: Mapping[str, str | Sequence[str]],
        settings: ConsumerSettings,
        *,
        wake: Callable[[], object],
        ready: Callable[[], object],
    ) -> None:
        self.group = group
        self.client_id = client_id
        self.settings = settings
        self.held = HeldQueues(settings)
        self.stats = ConsumerStats()
        self.addresses: set[Address] = set()
        self.closing = False
        self._cluster = cluster
        self._broadcasting = settings.mode == "broadcasting"
        self._subscriptions = _subscriptions(group, topics, sent_back=not self._broadcasting)
        self._allocate = allocation_named(settings.allocation)
        self._wake, self._ready = wake, ready
        self._version = 0
        self._beat_at: dict[Address, int] = {}
        self._rebalance_at = self._commit_at = self._lock_at = 0
        self._offsets: LocalOffsets | None = None
        self._failure: BaseException | None = None

    # -- called by the shells -------------------------------------------------------------------

    def notice(self, request: Command) -> None:
        """Take a request of a broker, in the thread that reads: a notice that the group has
        changed. Others are ignored."""
        if (
            request.code == codes.NOTIFY_CONSUMER_IDS_CHANGED.code
            and request.fields.get("consumerGroup") == self.group
        ):
            self._rebalance_soon()

    def fail(self, error: BaseException) -> None:
        """End the membership with an error, which every later `take` raises."""
        self._failure = self._failure or error
        self._ready()

    def keep_offsets(self, content: bytes, write: Callable[[bytes], object]) -> None:
        """Keep offsets in a file of this content instead of at the brokers. Raises
        `errors.ConfigError`."""
        self._offsets = LocalOffsets(self.group, content, write)

    def take(self, now: int) -> ReceivedBatch | None:
        """Return the next batch, None without one. Raises `errors.ClosedError`, and the error that
        ended the membership."""
        if self.closing:
            raise errors.ClosedError("the consumer is closed")
        batch = self.held.take(now)
        if batch is not None:
            self.stats.batches += 1
            self.stats.records += len(batch.messages)
            self.stats.bytes += sum(len(message.body) for message in batch.messages)
        elif self._failure is not None:
            raise self._failure
        return batch

    def confirm(self, batch: ReceivedBatch) -> int:
        """Move the position past the batch and return it. Raises `errors.StaleBatch`."""
        held = self.held.require_open(batch)
        position = self.held.confirm(batch)
        self._settled(held)
        return position

    def reject(self, batch: ReceivedBatch, deliver_at: int = 0) -> None:
        """Put the batch back, to be delivered no sooner than at a time. Raises
        `errors.StaleBatch`."""
        held = self.held.require_open(batch)
        self.held.reject(batch, deliver_at)
        self._settled(held)

    def _settled(self, held: HeldQueue) -> None:
        self._ready()
        if held.revoked:  # it was only waiting for this
            self._rebalance_soon()

    def open(self) -> Conversation[None]:
        """Check that the topics exist, before the first round. Raises `errors.UnknownTopic`."""
        self._version = yield WallClock()
        for item in self._subscriptions:
            if not item.topic.startswith(RETRY_PREFIX):
                yield from self._cluster.route(item.topic)

    def round(self) -> Conversation[int]:
        """Do what is due: heartbeats, allocation, commits. Return the time until more is due."""
        now = yield Now()
        if self.settings.ordered and now >= self._lock_at:
            self._lock_at = now + self.settings.lock_ms
            yield from self._renew_locks(now)
        allocate = now >= self._rebalance_at
        routes: dict[str, TopicRoute | None] = {}
        if allocate:
            self._rebalance_at = now + self.settings.rebalance_ms
            routes = yield from self._find_routes()
        yield from self._send_heartbeats(now)
        if allocate:
            yield from self._rebalance(routes)
        if now >= self._commit_at:
            self._commit_at = now + self.settings.commit_ms
            yield from self.commit()
        locks = [self._lock_at] if self.settings.ordered else []
        due = min(self._rebalance_at, self._commit_at, *locks, *self._beat_at.values())
        now = yield Now()
        return max(0, int(due - now))

    def commit(self) -> Conversation[None]:
        """Commit what is confirmed."""
        yield from self._commit(self.held.uncommitted())

    def retry(self, batch: ReceivedBatch, delay_level: int) -> Conversation[None]:
        """Deliver a batch again whose listener failed: from the broker; from memory, after a pause,
        if its queue must wait for it or the broker cannot take it. Raises `errors.StaleBatch`."""
        self.stats.failed_batches += 1
        if not (self.settings.ordered or self._broadcasting):
            try:
                yield from self.send_back(batch, None, delay_level)
            except (errors.NetworkError, errors.ServerError):
                pass  # some may come twice
            else:
                return
        self.reject(batch, (yield Now()) + self.settings.retry_pause_ms)

    def send_back(
        self, batch: ReceivedBatch, messages: Sequence[Message] | None, delay_level: int
    ) -> Conversation[int]:
        """Send records of the batch back, then confirm the batch; return the queue's position.
        Raises `errors.StaleBatch`."""
        if self._broadcasting:
            raise errors.ConfigError(
                "a broadcasting member cannot send records back; reject the batch", subject="mode"
            )
        chosen = batch.messages if messages is None else messages
        if strangers := [message for message in chosen if message not in batch.messages]:
            raise errors.ConfigError(
                f"{len(strangers)} of the records that are sent back are not in the batch",
                subject="consumer",
            )
        self.held.require_open(batch)
        route = yield from self._cluster.route(batch.queue.topic)
        for message in chosen:
            yield from send_back(
                self._cluster,
                route,
                self.group,
                message,
                delay_level=delay_level,
                max_retries=self.settings.max_retries,
            )
            self.stats.sent_back += 1
        return self.confirm(batch)

    def leave(self) -> Conversation[None]:
        """Commit what is confirmed and leave the group, at the end."""
        yield from self.commit()
        if self.settings.ordered:
            yield from self._unlock(list(self.held))
        yield from unregister(self._cluster, sorted(self.addresses), self.client_id, self.group)

    # -- allocation -----------------------------------------------------------------------------

    def _rebalance_soon(self) -> None:
        self._rebalance_at = 0
        self._wake()

    def _find_routes(self) -> Conversation[dict[str, TopicRoute | None]]:
        """Return the route of each topic, None while none is known; find the brokers of them."""
        routes: dict[str, TopicRoute | None] = {}
        for item in self._subscriptions:
            try:
                routes[item.topic] = yield from self._cluster.route(item.topic)
            except (errors.NetworkError, errors.ServerError):
                routes[item.topic] = None
        found = {
            address for route in routes.values() if route for address in route.masters().values()
        }
        if found:
            self.addresses = found
            self._beat_at = {address: self._beat_at.get(address, 0) for address in found}
        return routes

    def _send_heartbeats(self, now: int) -> Conversation[None]:
        start = self.settings.consume_from
        body = heartbeat_body(
            self.client_id,
            (),
            {self.group: self._subscriptions},
            self._version,
            kind="CONSUME_PASSIVELY",
            mode=self.settings.mode.upper(),
            consume_from=_CONSUME_FROM.get(str(start), "CONSUME_FROM_TIMESTAMP"),
        )
        for address in [address for address, due in self._beat_at.items() if due <= now]:
            try:
                yield from self._cluster.call(address, codes.HEART_BEAT, {}, body)
            except errors.NoPermission as error:
                self.fail(error)
            except (errors.NetworkError, errors.ServerError):
                self._beat_at[address] = now + _PAUSE_MS
            else:
                self.stats.heartbeats += 1
                self._beat_at[address] = now + self.settings.heartbeat_ms

    def _rebalance(self, routes: Mapping[str, TopicRoute | None]) -> Conversation[None]:
        """Give up and take queues. A topic without a route, or whose members no broker tells, keeps
        its queues."""
        for item in self._subscriptions:
            route = routes.get(item.topic)
            if route is None:
                continue
            if self._broadcasting:
                yield from self._hold(item, route, route.readable())
                continue
            names = yield from self._members(route)
            if names is None:
                self._rebalance_at = min(self._rebalance_at, (yield Now()) + _PAUSE_MS)
                continue
            found = route.readable()
            share = set(self._allocate(self.client_id, names, found)) if names else set()
            yield from self._hold(item, route, [queue for queue in found if queue in share])
        self.stats.rebalances += 1

    def _members(self, route: TopicRoute) -> Conversation[list[str] | None]:
        """Return the group's members, empty if this one is not among them; None if no broker
        answers. All members ask the same broker first: they should see the same list."""
        for _, address in sorted(route.masters().items()):
            try:
                names = yield from members(self._cluster, address, self.group)
            except (errors.NetworkError, errors.ServerError):
                continue
            if self.client_id in names:
                return names
            self._beat_at[address] = 0  # it has forgotten this member
            self._rebalance_at = min(self._rebalance_at, (yield Now()) + _PAUSE_MS)
            return []
        return None

    def _hold(
        self, item: Subscription, route: TopicRoute, share: Collection[Queue]
    ) -> Conversation[None]:
        """Hold exactly `share` of a topic's queues."""
        mine = [held for held in self.held if held.queue.topic == item.topic]
        for held in mine:
            held.revoked = held.queue not in share
        given_up = [held for held in mine if held.revoked]
        if self.settings.ordered:  # the next member waits for the lock
            given_up = [held for held in given_up if held.delivered is None]
        yield from self._commit(self.held.uncommitted([held.queue for held in given_up]))
        for held in given_up:
            self.held.drop(held.queue)
        locked_until = None
        if self.settings.ordered:
            yield from self._unlock(given_up)
            locked_until = (yield Now()) + LOCK_LASTS_MS
            new = [queue for queue in share if queue not in self.held]
            locked = yield from self._lock_new(route, new)
            share = [queue for queue in share if queue in self.held or queue in locked]
        for queue in share:
            address = route.address(queue.broker)
            if address is None:
                continue
            if queue in self.held:
                self.held.get(queue).address = address
                continue
            try:
                start, committed = yield from self._start_of(route, queue)
            except (errors.NetworkError, errors.ServerError) as error:
                if error.fatal and not isinstance(error, errors.UnknownTopic):
                    raise
                self._rebalance_at = min(self._rebalance_at, (yield Now()) + _PAUSE_MS)
                continue
            self.held.hold(
                HeldQueue(queue, address, item, start, committed, start, locked_until=locked_until)
            )

    def _start_of(self, route: TopicRoute, queue: Queue) -> Conversation[tuple[int, int | None]]:
        """Return the offset to begin at, and the committed one. Without one the queue begins as
        `consume_from` says; that is committed, lest a successor begin later. Records that were sent
        back are never left out."""
        if self._offsets is not None:
            committed = self._offsets.get(queue)
        else:
            committed = yield from committed_offset(self._cluster, route, queue, self.group)
        if committed is not None:
            return committed, committed
        looked = yield from queue_ends(self._cluster, route, [queue], self.group, stable=False)
        ends, start = looked[queue], self.settings.consume_from
        if start == "first" or queue.topic.startswith(RETRY_PREFIX):
            return ends.min_offset, None
        if start == "last":
            return ends.latest_offset, None
        boundary = yield from boundary_at(self._cluster, route, ends, int(start), self.group)
        return boundary.offset, None

    def _commit(self, queues: Sequence[HeldQueue]) -> Conversation[None]:
        """Commit positions; what fails is tried again at the next time. A broker that cannot be
        reached is asked once."""
        if self._offsets is not None:
            self._store(self._offsets, queues)
            return
        away: set[Address] = set()
        now = yield Now()
        for held in queues:
            if held.address in away or not held.has_lock(now):
                continue
            position = held.position
            try:
                route = yield from self._cluster.route(held.queue.topic)
                yield from commit_offset(self._cluster, route, held.queue, self.group, position)
            except (errors.NetworkError, errors.ServerError, errors.ConfigError):
                away.add(held.address)
                self.stats.failed_commits += 1
            else:
                held.committed = position
                self.stats.commits += 1

    def _store(self, offsets: LocalOffsets, queues: Sequence[HeldQueue]) -> None:
        positions = [(held, held.position) for held in queues]
        if not positions:
            return
        try:
            offsets.store((held.queue, position) for held, position in positions)
        except OSError as error:
            self.stats.failed_commits += 1
            self.fail(
                errors.ConfigError(f"offsets cannot be stored: {error}", subject="offsets_file")
            )
            return
        for held, position in positions:
            held.committed = position
        self.stats.commits += len(positions)

    # -- locks ----------------------------------------------------------------------------------

    def _lock_new(self, route: TopicRoute, queues: Sequence[Queue]) -> Conversation[set[Queue]]:
        """Return those of the queues that this member has locked; it soon tries the others
        again."""
        locked: set[Queue] = set()
        for name, address in sorted(route.masters().items()):
            mine = [queue for queue in queues if queue.broker == name]
            if not mine:
                continue
            try:
                locked |= yield from lock(self._cluster, address, self.group, self.client_id, mine)
            except (errors.NetworkError, errors.ServerError) as error:
                if error.fatal:
                    raise
        if not locked.issuperset(queues):
            self._rebalance_at = min(self._rebalance_at, (yield Now()) + _PAUSE_MS)
        return locked

    def _renew_locks(self, now: int) -> Conversation[None]:
        """Renew the locks of held queues. A queue that another member has locked, or whose lock no
        broker renewed in time, is given up without a commit."""
        for address, mine in _by_address(self.held).items():
            sent_at = yield Now()
            try:
                kept = yield from lock(
                    self._cluster,
                    address,
                    self.group,
                    self.client_id,
                    [held.queue for held in mine],
                )
            except (errors.NetworkError, errors.ServerError):
                self._lock_at = now + _PAUSE_MS
                lost = [held for held in mine if not held.has_lock(sent_at)]
            else:
                lost = [held for held in mine if held.queue not in kept]
                for held in mine:
                    held.locked_until = sent_at + LOCK_LASTS_MS
            for held in lost:
                self.held.drop(held.queue)
                self.stats.lost_locks += 1
                self._rebalance_at = 0

    def _unlock(self, queues: Iterable[HeldQueue]) -> Conversation[None]:
        for address, mine in _by_address(queues).items():
            chosen = [held.queue for held in mine]
            yield from unlock(self._cluster, address, self.group, self.client_id, chosen)

    # -- pulls ----------------------------------------------------------------------------------

    def pulling(self, address: Address) -> Conversation[None]:
        """Keep a pull in flight for each held queue of a broker that has room, and listen to the
        broker, as long as it is one of the topics' brokers."""
        flights: dict[int, tuple[Ticket, HeldQueue, int]] = {}
        while address in self.addresses and not self.closing:
            try:
                yield from self._pull_and_listen(address, flights)
            except errors.NetworkError:
                self._cut_off(address)
                yield Sleep(_PAUSE_MS)

    def _pull_and_listen(
        self, address: Address, flights: dict[int, tuple[Ticket, HeldQueue, int]]
    ) -> Conversation[None]:
        now = yield Now()
        for held in self.held.to_pull(address, now):
            request = pull_request(
                self._cluster,
                held.queue,
                self.group,
                held.next_offset,
                self.settings.pull_records,
                subscription=held.subscription,
                wait_ms=self.settings.hold_ms,
            )
            ticket = yield Post(address, codes.PULL_MESSAGE, request)
            held.in_flight = True
            flights[id(ticket.handle)] = ticket, held, now
            self.stats.pulls += 1
        tickets = [ticket for ticket, _, _ in flights.values()]
        for ticket in (yield AwaitAny(address, tickets, _LISTEN_MS)):
            _, held, since = flights.pop(id(ticket.handle))
            held.in_flight = False
            asked = held.next_offset
            try:
                answer = PullAnswer.of((yield Await(ticket)))
                if held.revoked:
                    continue
                yield from self._take_answer(held, answer, since)
            except errors.RocketMQError as error:
                self.stats.failed_pulls += 1
                held.pull_at = (yield Now()) + _PAUSE_MS
                self._pull_failed(address, error)
            if held.next_offset != asked:
                held.odd_since = None

    def _cut_off(self, address: Address) -> None:
        """Ask for new routes and introduce this member again: the broker may have forgotten it."""
        for item in self._subscriptions:
            self._cluster.forget_route(item.topic)
        self._beat_at[address] = 0
        self._rebalance_soon()

    def _pull_failed(self, address: Address, error: errors.RocketMQError) -> None:
        if isinstance(error, errors.NetworkError | errors.UnknownTopic | errors.NotLeader):
            self._cut_off(address)
        elif not error.retriable:
            self.fail(error)

    def _take_answer(self, held: HeldQueue, answer: PullAnswer, since: int) -> Conversation[None]:
        now = yield Now()
        at, following = held.next_offset, answer.next_offset
        if answer.code == codes.SUCCESS:
            found, rest_at = messages_of(held.queue, answer.body, self.settings.pull_records)
            end = following if rest_at is None else rest_at
            # A broker may answer with another record in place of one that it has just removed.
            mine = [message for message in found if at <= message.offset < end]
            if end <= at or (found and not mine):
                held.pull_at = now + _EARLY_MS
                return
            tags = tags_to_keep(held.subscription)
            held.add((m for m in mine if tags is None or m.tags in tags), end)
            self._ready()
        elif answer.code == codes.PULL_OFFSET_MOVED:
            self._moved(held, answer, now)
        elif answer.code == codes.PULL_RETRY and following > at:
            if answer.remark == REMOVING:
                self._lose(held, at, following)
            held.add((), following)
        elif now - since < _EARLY_MS:
            held.pull_at = now + _EARLY_MS

    def _moved(self, held: HeldQueue, answer: PullAnswer, now: int) -> None:
        """Follow a position that the broker refuses. Inside the queue that is an operator's reset
        of the group; before it retention has removed records; beyond it the log has lost some, if
        the broker keeps saying so."""
        at = held.next_offset
        if answer.min_offset <= at <= answer.max_offset:
            held.jump(answer.next_offset)
        elif at < answer.min_offset:
            self._lose(held, at, answer.min_offset)
            held.add((), answer.min_offset)
        elif held.odd_since is None or now - held.odd_since < _ODD_MS:
            held.odd_since = held.odd_since or now
            held.pull_at = now + _PAUSE_MS
        else:
            self._lose(held, answer.max_offset, at)
            held.jump(answer.max_offset)

    def _lose(self, held: HeldQueue, start: int, end: int) -> None:
        """Record offsets that are gone. Raises `errors.DataLoss` or, at the log's end,
        `errors.LogTruncated` unless `gap_policy` is "skip"."""
        if self.settings.gap_policy == "skip":
            self.stats.lost.append((held.queue, start, end))
            return
        where = f"queue {held.queue.key} of topic {held.queue.topic!r}"
        if end == held.next_offset:
            raise errors.LogTruncated(
                f"{where} ends at {start}, and group {self.group!r} is at {end}: the broker lost "
                "records in a crash, or the topic was recreated. Set gap_policy='skip' to go on at "
                f"{start}, or commit another offset"
            )
        raise errors.DataLoss(
            f"retention has removed offsets [{start}, {end}) of {where}, which group "
            f"{self.group!r} has not consumed. Set gap_policy='skip' to go on at {end} and record "
            "the gap",
            start=start,
            available=end,
        )


def _by_address(queues: Iterable[HeldQueue]) -> dict[Address, list[HeldQueue]]:
    found: dict[Address, list[HeldQueue]] = {}
    for held in queues:
        found.setdefault(held.address, []).append(held)
    return found


def _subscriptions(
    group: str, topics: Mapping[str, str | Sequence[str]], *, sent_back: bool
) -> tuple[Subscription, ...]:
    """Return the subscriptions, among them that of the records that were `sent_back`. Raises
    `errors.ConfigError`."""
    problems = [] if group.strip() else ["group is empty"]
    if not topics:
        problems.append("topics: give at least one, as {topic: tags}; no tags stand for all")
    if problems:
        raise errors.ConfigError(problems, subject="consumer")
    wanted = [by_tags(topic, tag_names(tags)) for topic, tags in topics.items()]
    return (*wanted, Subscription(RETRY_PREFIX + group)) if sent_back else tuple(wanted)
