"""Membership in a group: heartbeats, allocation of queues, locks, pulls, commits.

Members make each other known with heartbeats to all masters of their topics; each then computes
which queues it holds from the broker's list of members, so members of all languages work together.
A broker tells the members of its connections when that list changes. Java members also subscribe to
``%RETRY%<group>``, where records that a member sent back arrive, and divide its queues among all
members: every member must read its share. Ordered members hold a queue only while the broker has
locked it for them. In broadcasting mode each member holds all queues, and keeps its positions
itself.

The shells run `round` again and again in one thread or task, and `pulling` in one per broker.

Source: `docs/rocketmq-protocol/wire.md#groups`.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal, cast

from rocketmq_client import errors
from rocketmq_client._core.allocation import allocation_named
from rocketmq_client._core.ends import queue_ends
from rocketmq_client._core.groups import (
    check_subscription,
    commit_offset_at,
    committed_offset,
    lock_queues,
    members,
    send_back,
    unlock_queues,
    unregister,
)
from rocketmq_client._core.held_queues import HeldQueue, HeldQueues, lock_is_over
from rocketmq_client._core.pull_errors import REMOVING
from rocketmq_client._core.pulling import (
    PullAnswer,
    by_tags,
    messages_of,
    pull_request,
    tags_to_keep,
)
from rocketmq_client._core.times import boundary_at
from rocketmq_client._wire import codes
from rocketmq_client._wire.admin_bodies import parse_moved
from rocketmq_client._wire.bodies import RETRY_PREFIX, Subscription, heartbeat_body
from rocketmq_client.model import ConsumerStats, tag_names
from tubemq_client._core.effects import Await, AwaitAny, Now, Post, Sleep, WallClock

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from rocketmq_client._core.cluster import Cluster
    from rocketmq_client._wire.bodies import TopicRoute
    from rocketmq_client._wire.commands import Command
    from rocketmq_client.model import Address, ConsumerSettings, Message, Queue, ReceivedBatch
    from tubemq_client._core.effects import Conversation, Ticket

__all__ = ["RETRY_PAUSE_S", "Membership", "OnError"]

OnError = Literal["stop", "send_back", "retry"]

RETRY_PAUSE_S: Final = 1.0
"""Pause before a batch whose handler failed comes again, as Java's ordered members have it."""

_PAUSE_MS: Final = 1_000
"""Pause after a failure of a broker."""

_LOCK_PERIOD_MS: Final = 20_000
"""Time between renewals of locks, as Java's members have it."""

_LISTEN_MS: Final = 100
"""Time after which a puller looks for queues that have become ready."""

_ODD_MS: Final = 5_000
"""Time for which a broker's odd answer must last; one that has just started gives such answers."""

_EARLY_MS: Final = 100
"""A held pull that ends sooner without a record was not held: the next one waits as long."""

_AWAY: Final = (errors.NetworkError, errors.ServerError, errors.ProtocolViolation)
"""Failures of one broker; the others are served."""

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
        self._subscriptions = _subscriptions(group, topics, broadcasting=settings.broadcasting)
        self._allocate = allocation_named(settings.allocation)
        self._wake, self._ready = wake, ready
        self._version = 0
        self._beat_at: dict[Address, int] = {}
        self._rebalance_at = self._commit_at = self._lock_at = 0
        self._connected, self._introduced_at = False, 0
        self.positions: dict[Queue, int] = {}
        """Positions of a broadcasting member, which no broker keeps; `moved` if they changed since
        the shell has stored them."""
        self.moved = False
        self._resets: deque[dict[Queue, int]] = deque()
        self._failure: BaseException | None = None

    # -- called by the shells -------------------------------------------------------------------

    def notice(self, request: Command) -> None:
        """Take a request of a broker, in the thread that reads: a notice that the group has
        changed, or an operator's reset at a 4.x broker. Others are ignored."""
        fields = request.fields
        if (
            request.code == codes.NOTIFY_CONSUMER_IDS_CHANGED.code
            and fields.get("consumerGroup") == self.group
        ):
            self._rebalance_soon()
        elif (
            request.code == codes.RESET_CONSUMER_CLIENT_OFFSET.code
            and fields.get("group") == self.group
        ):
            with suppress(errors.ProtocolViolation):
                self._resets.append(parse_moved(request.body))
                self._wake()

    def connected(self) -> None:
        """Note a new connection, over which this member has to introduce itself: a broker may have
        forgotten it with the old one."""
        self._connected = True
        self._wake()

    def fail(self, error: BaseException) -> None:
        """End the membership with an error, which every later `take` raises."""
        self._failure = self._failure or error
        self._ready()

    def take(self, now: int) -> ReceivedBatch | None:
        """Return the next batch at `now` (ms, monotonic), None without one. Raises
        `errors.ClosedError`, and the error that ended the membership."""
        if self.closing:
            raise errors.ClosedError("the consumer is closed")
        batch = self.held.take(now)
        if batch is not None:
            self.stats.batches += 1
            self.stats.records += len(batch.messages)
            self.stats.bytes += self.held.get(batch.queue).delivered_bytes
        elif self._failure is not None:
            raise self._failure
        return batch

    def check_run(self, workers: int, on_error: OnError) -> None:
        """Raise `errors.ConfigError` for arguments of `run` that are wrong for this member."""
        problems = []
        if workers < 1:
            problems.append(f"workers is {workers}; at least 1 is allowed")
        if on_error not in ("stop", "send_back", "retry"):
            problems.append(f"on_error is {on_error!r}; 'stop', 'send_back' or 'retry' is allowed")
        if on_error == "send_back" and (self.settings.ordered or self.settings.broadcasting):
            problems.append(
                "on_error='send_back' is for clustering members that are not ordered: later "
                "records of the queue would come first, and a broadcast one to a single member; "
                "choose 'retry'"
            )
        if problems:
            raise errors.ConfigError(problems, subject="run")

    def open(self) -> Conversation[None]:
        """Check that the topics exist and that their brokers take the expressions, before the first
        round. Raises `errors.UnknownTopic` and `errors.IllegalRequest`."""
        self._version = yield WallClock()
        for item in self._subscriptions:
            if item.topic.startswith(RETRY_PREFIX):
                continue
            route = yield from self._cluster.route(item.topic)
            if item.kind != "TAG":
                for broker, address in sorted(route.masters().items()):
                    yield from check_subscription(
                        self._cluster, address, broker, self.group, self.client_id, item
                    )

    def round(self) -> Conversation[int]:
        """Do what is due: heartbeats, allocation, commits. Return the time until more is due."""
        now = yield Now()
        while self._resets:
            yield from self._obey_reset(self._resets.popleft())
        allocate = now >= self._rebalance_at
        routes: dict[str, TopicRoute | None] = {}
        if allocate:
            self._rebalance_at = now + self.settings.rebalance_ms
            routes = yield from self._find_routes()
        if self._connected:  # a peer that closes every connection is not asked in a tight loop
            self._connected = False
            self._introduced_at = max(now, self._introduced_at + _PAUSE_MS)
            due = self._introduced_at
            self._beat_at = {address: min(at, due) for address, at in self._beat_at.items()}
        yield from self._send_heartbeats(now)
        if self.settings.ordered and now >= self._lock_at:
            yield from self._renew_locks(now)
        if allocate:
            yield from self._rebalance(routes)
        if now >= self._commit_at:
            self._commit_at = now + self.settings.commit_ms
            yield from self.commit()
        due = min(self._rebalance_at, self._commit_at, *self._beat_at.values())
        if self.settings.ordered:
            due = min(due, self._lock_at)
        now = yield Now()
        return max(0, int(due - now))

    def commit(self) -> Conversation[None]:
        """Commit what is confirmed."""
        yield from self._commit(self.held.uncommitted())

    def send_back(
        self, batch: ReceivedBatch, messages: Sequence[Message] | None, delay_level: int
    ) -> Conversation[int]:
        """Send records of the batch back, then confirm the batch; return the queue's position.
        Raises `errors.StaleBatch`."""
        if self.settings.broadcasting:
            raise errors.ConfigError(
                "a broadcasting member cannot send records back: they would come to one member",
                subject="consumer",
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
        return self.held.confirm(batch)

    def leave(self) -> Conversation[None]:
        """Commit what is confirmed and leave the group, at the end."""
        yield from self.commit()
        if self.settings.ordered:
            yield from self._unlock(list(self.held))
        yield from unregister(self._cluster, sorted(self.addresses), self.client_id, self.group)

    def _obey_reset(self, offsets: Mapping[Queue, int]) -> Conversation[None]:
        """Continue at these offsets and commit them; the answer to a pull in flight is dropped."""
        moved = [held for held in self.held if held.queue in offsets]
        for held in moved:
            held.jump(offsets[held.queue])
            held.in_flight = False
        yield from self._commit(moved)
        self._ready()

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
            except _AWAY:
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
            consume_from=_CONSUME_FROM.get(str(start), "CONSUME_FROM_TIMESTAMP"),
            mode="BROADCASTING" if self.settings.broadcasting else "CLUSTERING",
        )
        for address in [address for address, due in self._beat_at.items() if due <= now]:
            try:
                yield from self._cluster.call(address, codes.HEART_BEAT, {}, body)
            except errors.NoPermission as error:
                self.fail(error)
            except _AWAY:
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
            if self.settings.broadcasting:
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
            except _AWAY:
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
        yield from self._give_up([held for held in mine if held.queue not in share])
        found: dict[Queue, Address] = {}
        for queue in share:
            address = route.address(queue.broker)
            if address is None:
                continue
            if queue in self.held:
                held = self.held.get(queue)
                held.address, held.revoked = address, False
            else:
                found[queue] = address
        locked_at = None
        if self.settings.ordered and found:
            locked_at = yield Now()
            locked = yield from self._lock(found)
            if len(locked) < len(found):  # its last holder has not released it yet
                self._rebalance_at = min(self._rebalance_at, locked_at + _PAUSE_MS)
            found = {queue: at for queue, at in found.items() if queue in locked}
        for queue, address in found.items():
            try:
                start, committed = yield from self._start_of(route, queue)
            except _AWAY as error:
                if error.fatal and not isinstance(error, errors.UnknownTopic):
                    raise
                self._rebalance_at = min(self._rebalance_at, (yield Now()) + _PAUSE_MS)
                continue
            held = HeldQueue(queue, address, item, start, committed, start, locked_at=locked_at)
            if committed is None:
                yield from self._commit([held])
            self.held.hold(held)

    def _give_up(self, given_up: Sequence[HeldQueue]) -> Conversation[None]:
        """Commit and drop queues. An ordered member keeps a queue, and its lock, until its open
        batch is settled: the next one must not begin before."""
        for held in given_up:
            held.revoked = True
        if self.settings.ordered and any(held.delivered for held in given_up):
            self._rebalance_at = min(self._rebalance_at, (yield Now()) + _PAUSE_MS)
            given_up = [held for held in given_up if held.delivered is None]
        yield from self._commit(self.held.uncommitted([held.queue for held in given_up]))
        if self.settings.ordered:
            yield from self._unlock(given_up)
        for held in given_up:
            self.held.drop(held.queue)

    def _lock(self, queues: Mapping[Queue, Address]) -> Conversation[set[Queue]]:
        """Return those of the queues that their brokers have locked for this member."""
        locked: set[Queue] = set()
        for (address, _), group in _by_broker(queues).items():
            try:
                locked |= yield from lock_queues(
                    self._cluster, address, self.group, self.client_id, group
                )
            except _AWAY as error:
                if error.fatal:
                    raise
        return locked

    def _unlock(self, held_queues: Sequence[HeldQueue]) -> Conversation[None]:
        addresses = {held.queue: held.address for held in held_queues}
        for (address, _), group in _by_broker(addresses).items():
            yield from unlock_queues(self._cluster, address, self.group, self.client_id, group)

    def _renew_locks(self, now: int) -> Conversation[None]:
        """Renew the locks of all queues. A queue that another member has locked is dropped without
        a commit, and one whose lock could not be renewed for `LOCK_MS`."""
        self._lock_at = now + _LOCK_PERIOD_MS
        addresses = {held.queue: held.address for held in self.held}
        for (address, _), group in _by_broker(addresses).items():
            try:
                locked = yield from lock_queues(
                    self._cluster, address, self.group, self.client_id, group
                )
            except _AWAY:
                self._lock_at = min(self._lock_at, now + _PAUSE_MS)
                continue
            for queue in group:
                held = self.held.get(queue)
                if queue in locked:
                    held.locked_at = now
                else:
                    self._drop_unlocked(held)
        now = yield Now()
        for held in self.held:
            if lock_is_over(held, now):
                self._drop_unlocked(held)

    def _drop_unlocked(self, held: HeldQueue) -> None:
        held.revoked = True
        self.held.drop(held.queue)
        self.stats.lost_locks += 1
        self._rebalance_at = 0

    def _start_of(self, route: TopicRoute, queue: Queue) -> Conversation[tuple[int, int | None]]:
        """Return the offset to begin at, and the committed one. Without one the queue begins as
        `consume_from` says; that is committed before the first pull, lest a successor begin later.
        So is 0, which a 4.x broker also reports for none. Records that were sent back are never
        left out."""
        if self.settings.broadcasting:
            committed = self.positions.get(queue)
        else:
            committed = yield from committed_offset(self._cluster, route, queue, self.group)
        if committed is not None:
            return committed, committed or None
        looked = yield from queue_ends(self._cluster, route, [queue], self.group, stable=False)
        ends, start = looked[queue], self.settings.consume_from
        if start == "first" or queue.topic.startswith(RETRY_PREFIX):
            return ends.min_offset, None
        if start == "last":
            return ends.latest_offset, None
        boundary = yield from boundary_at(self._cluster, route, ends, int(start), self.group)
        return boundary.offset, None

    def _commit(self, queues: Sequence[HeldQueue]) -> Conversation[None]:
        """Commit positions, also of queues that have left the route; what fails is tried again at
        the next time. A broker that cannot be reached is asked once."""
        if self.settings.broadcasting:
            for held in queues:
                self.positions[held.queue] = held.committed = held.position
                self.moved = True
            return
        away: set[Address] = set()
        for held in queues:
            if held.address in away:
                continue
            position = held.position
            try:
                yield from commit_offset_at(
                    self._cluster, held.address, held.queue, self.group, position
                )
            except _AWAY:
                away.add(held.address)
                self.stats.failed_commits += 1
            else:
                held.committed = position
                self.stats.commits += 1

    # -- pulls ----------------------------------------------------------------------------------

    def pulling(self, address: Address) -> Conversation[None]:
        """Keep a pull in flight for each held queue of a broker that has room, and listen to the
        broker, as long as it is one of the topics' brokers."""
        flights: dict[int, tuple[Ticket, HeldQueue, int, int]] = {}
        while address in self.addresses and not self.closing:
            try:
                yield from self._pull_and_listen(address, flights)
            except (errors.NetworkError, errors.ProtocolViolation):
                self._cut_off(address)
                yield Sleep(_PAUSE_MS)

    def _pull_and_listen(
        self, address: Address, flights: dict[int, tuple[Ticket, HeldQueue, int, int]]
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
            flights[id(ticket.handle)] = ticket, held, now, held.next_offset
            self.stats.pulls += 1
        tickets = [ticket for ticket, *_ in flights.values()]
        ready = yield AwaitAny(address, tickets, _LISTEN_MS)
        now = yield Now()
        for ticket in ready:
            _, held, since, asked = flights.pop(id(ticket.handle))
            held.in_flight = False
            try:
                answer = PullAnswer.of((yield from _reply(ticket)))
                if held.revoked or held.next_offset != asked:
                    continue  # given up, or reset meanwhile
                self._take_answer(held, answer, since, now)
            except errors.RocketMQError as error:
                self.stats.failed_pulls += 1
                held.pull_at = now + _PAUSE_MS
                self._pull_failed(held, error, now)
            else:
                if held.next_offset != asked or answer.code != codes.PULL_OFFSET_MOVED:
                    held.odd_since = None

    def _cut_off(self, address: Address) -> None:
        """Ask for new routes and introduce this member again: the broker may have forgotten it."""
        for item in self._subscriptions:
            self._cluster.forget_route(item.topic)
        self._beat_at[address] = 0
        self._rebalance_soon()

    def _pull_failed(self, held: HeldQueue, error: errors.RocketMQError, now: int) -> None:
        """Ask again, on another connection where this one is of no use; end the membership with
        what stays wrong."""
        odd = isinstance(error, errors.ProtocolViolation)
        if odd and held.odd_since is not None and now - held.odd_since >= _ODD_MS:
            self.fail(error)
        elif odd:
            held.odd_since = held.odd_since or now
            self._cut_off(held.address)
        elif isinstance(error, errors.NetworkError | errors.UnknownTopic | errors.NotLeader):
            self._cut_off(held.address)
        elif not error.retriable:
            self.fail(error)

    def _take_answer(self, held: HeldQueue, answer: PullAnswer, since: int, now: int) -> None:
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
            held.add(mine if tags is None else [m for m in mine if m.tags in tags], end)
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
                "records in a crash, or the topic was recreated. Set gap_policy='skip' to continue "
                f"at {start}, or commit another offset"
            )
        raise errors.DataLoss(
            f"retention has removed offsets [{start}, {end}) of {where}, which group "
            f"{self.group!r} has not consumed. Set gap_policy='skip' to continue at {end} and "
            "record the gap",
            start=start,
            available=end,
        )


def _reply(ticket: Ticket) -> Conversation[Command]:
    """Return the reply of a pull. A stream that breaks the protocol is a lost connection: it says
    nothing about this pull."""
    try:
        return cast("Command", (yield Await(ticket)))
    except errors.ProtocolViolation as error:
        raise errors.ConnectionLost(str(error)) from error


def _subscriptions(
    group: str, topics: Mapping[str, str | Sequence[str]], *, broadcasting: bool
) -> tuple[Subscription, ...]:
    """Return the subscriptions; in clustering mode the last is that of the records that were sent
    back. Raises `errors.ConfigError`."""
    problems = [] if group.strip() else ["group is empty"]
    if not topics:
        problems.append("topics: give at least one, as {topic: tags}; no tags stand for all")
    if problems:
        raise errors.ConfigError(problems, subject="consumer")
    wanted = tuple(_subscription(topic, tags) for topic, tags in topics.items())
    return wanted if broadcasting else (*wanted, Subscription(RETRY_PREFIX + group))


def _subscription(topic: str, tags: str | Sequence[str]) -> Subscription:
    """Return the subscription to records with one of these tags, or the given one."""
    if not isinstance(tags, Subscription):
        return by_tags(topic, tag_names(tags))
    if tags.topic != topic or tags.kind not in {"TAG", "SQL92"} or not tags.expression.strip():
        raise errors.ConfigError(
            f"{tags} is no subscription of topic {topic!r}: give the same topic, an expression, "
            "and the kind 'TAG' or 'SQL92'",
            subject="topics",
        )
    return tags


def _by_broker(queues: Mapping[Queue, Address]) -> dict[tuple[Address, str], list[Queue]]:
    """Group queues by the address and the name of their broker."""
    groups: dict[tuple[Address, str], list[Queue]] = {}
    for queue, address in queues.items():
        groups.setdefault((address, queue.broker), []).append(queue)
    return groups
