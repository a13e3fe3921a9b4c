"""Fetch and confirm the partitions of a group member: RPC 17 and 18 around the partition table.

One engine for groups that the master balances and for those that assign partitions themselves.
Conversations run side by side, in threads or tasks; each moves one partition and changes the table
only between two effects. A failed fetch makes its partition wait for the time that the code
prescribes (`flow_control.reply_delay_ms`); a code that means a lost partition calls `on_lost`. A
broker that does not answer is avoided for a while (`breaker`), and the receiving call does not wait
for it (`slow_fetches`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tubemq_client import errors
from tubemq_client._core import event_log
from tubemq_client._core.balance_partitions import HeldPartition, PartitionState, PartitionTable
from tubemq_client._core.batch import DecodePolicies, MessageBatch, RawBatch
from tubemq_client._core.breaker import FetchBreaker
from tubemq_client._core.effects import Await, Now, Reach, Sleep, WallClock
from tubemq_client._core.fencing import ClientEpochs, may_be_served_late, renew
from tubemq_client._core.flow_control import Fetched, FlowControl, reply_delay_ms
from tubemq_client._core.slow_fetches import POLL_MS, Attempt, Attempts, with_timeout
from tubemq_client._wire.fetching import whole
from tubemq_client._wire.native import payload_bytes
from tubemq_client.model import BrokerNode, ConsumerSettings, ConsumerStats, Delivery

if TYPE_CHECKING:
    from tubemq_client._core.effects import Conversation
    from tubemq_client._core.registration import Registered
    from tubemq_client.model import ConnectionStats, Partition

__all__ = ["GroupFetch", "Idle", "ReceivedBatch"]

_LOST = (errors.NotRegistered, errors.PartitionTaken, errors.AuthenticationFailed)
_ANY_LAG = 1 << 62
_COMMIT_TRIES = 3
_COMMIT_PAUSE_MS = 100

_PATIENCE_MS = 100
"""Time that the receiving call waits for one broker before it asks others meanwhile."""

_ATTEMPT_MS = 1_000
"""Timeout of a confirmation at a broker that did not answer the request before."""

_CONNECTING_MS = 20
"""Interval of checks if a connection that is being opened is ready."""

_EMPTY_PULLS = 100
"""Upper bound of repeated pulls while a broker only passes records of other partitions, or filtered
ones."""

_EXPIRY_MS = 100
"""Interval of checks for batches that were not confirmed in time."""


class ReceivedBatch(MessageBatch):
    """Batch whose confirmation moves the group's position past it.

    `end` is None until then. `token` numbers the deliveries of its partition; `confirm` and
    `reject` need `delivery` only. `broker` is the one that served it.
    """

    __slots__ = ("broker", "token")

    token: int
    broker: BrokerNode

    @property
    def delivery(self) -> Delivery:
        """Handle that confirms the batch without its records; it can be stored or passed on."""
        return Delivery(self.partition, self.token)


@dataclass(slots=True)
class FetchStats:
    """Counts since the member was created, on which no decision depends; see `ConsumerStats`."""

    fetches: int = 0
    batches: int = 0
    records: int = 0
    empty: int = 0
    limited: int = 0
    refused: int = 0
    unanswered: int = 0

    def note(self, code: int) -> None:
        """Count a fetch that was answered with `code` and no records."""
        if code == errors.NOT_FOUND:
            self.empty += 1
        elif code == errors.SPEED_LIMIT:
            self.limited += 1
        else:
            self.refused += 1

    def view(
        self, breaker: FetchBreaker, now: int, connections: dict[str, ConnectionStats]
    ) -> ConsumerStats:
        """Return the counts of now, and the brokers that are avoided at `now` (monotonic ms)."""
        return ConsumerStats(
            self.fetches,
            self.batches,
            self.records,
            self.empty,
            self.limited,
            self.refused,
            self.unanswered,
            breaker.left_alone(now),
            connections,
        )


@dataclass(frozen=True, slots=True)
class Idle:
    """Result of a fetch without a batch: no fetch for `wait_ms`, or until a change (None).

    `error` is the failure of the fetch, if any; `moved`: the broker has passed records of other
    partitions, or filtered ones.
    """

    wait_ms: int | None
    error: errors.TubeMQError | None = field(default=None, compare=False)
    moved: bool = field(default=False, compare=False)


@dataclass(slots=True)
class GroupFetch:
    """Fetch engine of a member.

    `on_lost` receives partitions that brokers took away, with the refusal; `on_failure` receives
    all other errors.
    """

    table: PartitionTable
    names: ClientEpochs
    decode: DecodePolicies
    settings: ConsumerSettings
    flow: FlowControl
    on_lost: Callable[[HeldPartition, errors.TubeMQError], None]
    on_failure: Callable[[str, errors.TubeMQError], None]
    breaker: FetchBreaker = field(default_factory=FetchBreaker)
    stats: FetchStats = field(default_factory=FetchStats)
    _attempts: Attempts[ReceivedBatch | Idle] = field(init=False)
    _expire_at: int = 0

    def __post_init__(self) -> None:
        self._attempts = Attempts(self.breaker)
        self.table.opens_at = self.breaker.opens_at

    def fetch(self) -> Conversation[ReceivedBatch | Idle]:
        """Send one request to the partition whose turn it is, or take an outstanding answer.

        The batch of an abandoned fetch is delivered by the next fetch. Running the fetch to its end
        and calling `put_back` saves a lease renewal.
        """
        now = began = yield Now()
        while (outstanding := self._attempts.due(began)) is not None:
            result = yield from self._attempts.run_attempt(outstanding, 0)
            if isinstance(result, ReceivedBatch):
                return result
            now = yield Now()
        self.expire(now)
        held = self.table.take(now)
        if held is None:
            return Idle(self._wait_ms(now))
        patience_ms = 0 if self.breaker.is_suspect(held.lease.broker) else _PATIENCE_MS
        attempt = Attempt(held, self._fetch_conversation(held, held.token, in_turn=True))
        result = yield from self._attempts.run_attempt(attempt, patience_ms)
        return Idle(0) if result is None else result

    def pull(
        self, partition: Partition, is_wanted: Callable[[], bool] = lambda: True
    ) -> Conversation[ReceivedBatch | None]:
        """Return one batch of this partition, or None when there is nothing to read now.

        Also returns None, without asking the broker, while a flow rule requires a wait and while
        the partition is paused, frozen or about to be given back. Otherwise a batch of the
        partition that is still unconfirmed becomes stale, unless the broker refuses. Raises the
        failure of the request; for a broker that failed several times in a row the last one,
        without asking. Sends no further request once `is_wanted` returns False: that would make a
        batch stale that another caller has received since.
        """
        result: ReceivedBatch | Idle | None = None
        for _ in range(_EMPTY_PULLS):
            result = yield from self._pull_once(partition, is_wanted)
            if not (isinstance(result, Idle) and result.moved and is_wanted()):
                break
        if isinstance(result, Idle) and result.error is not None:
            raise result.error
        return result if isinstance(result, ReceivedBatch) else None

    def _pull_once(
        self, partition: Partition, is_wanted: Callable[[], bool]
    ) -> Conversation[ReceivedBatch | Idle | None]:
        held = self._holding(partition)
        attempt, delivered_token = self._attempts.of(held), None
        while attempt is None and held.use in (PartitionState.FETCHING, PartitionState.CONFIRMING):
            yield Sleep(POLL_MS)  # another caller's request is under way, and has a timeout
            if not is_wanted():
                return None
            held = self._holding(partition)  # the object of a lost partition never changes again
            attempt = self._attempts.of(held)
        now = yield Now()
        if attempt is None:
            if self.breaker.is_open(held.lease.broker, now) and held.failure is not None:
                raise held.failure
            delivered_token = held.token if held.use is PartitionState.DELIVERED else None
            if not self.table.take_this(held, now):
                return None
            attempt = Attempt(held, self._fetch_conversation(held, held.token, in_turn=False))
        result = yield from self._attempts.run_attempt(attempt, None)
        if (
            isinstance(result, Idle)
            and delivered_token is not None
            and not self.names.must_renew(held)
        ):
            self.table.return_unread(held, delivered_token)
        return result

    def next_pull_ms(self, partition: Partition, now: int) -> int:
        """Return the time to wait, in milliseconds, before pulling again after an empty pull."""
        held = self.table.held.get(partition)
        wait = self.settings.not_found_wait_ms
        return max(wait, held.ruled_until - now) if held is not None else wait

    def expire(self, now: int) -> None:
        """Roll back batches that were not confirmed in time; checks every 100 ms at most."""
        if now < self._expire_at:
            return
        self._expire_at = now + _EXPIRY_MS
        timeout_ms = self.settings.confirm_timeout_ms
        for partition in self.table.expire(now, timeout_ms):
            self.on_failure(str(partition), _overdue(partition, timeout_ms))

    def give_up(self) -> Conversation[None]:
        """End the fetches that are under way in the background: the member leaves."""
        yield from self._attempts.give_up()

    def confirm(self, batch: ReceivedBatch | Delivery, *, consumed: bool) -> Conversation[int]:
        """Confirm or reject a batch; return the group's position, the next offset to be read.

        Returns -1 when confirmations are local, because the position is not known yet.
        """
        held = self.table.confirm(batch.partition, batch.token, consumed=consumed)
        token = held.token
        if consumed and self.settings.confirm_locally:
            self.table.release(held, token, consumed=True)
            return -1
        try:
            registered = yield from self._send_confirmation(held, consumed=consumed)
        except _LOST as error:
            self.on_lost(held, error)
            raise
        except BaseException as error:
            # Repeated before the next fetch; if the broker has already applied it, nothing changes.
            if may_be_served_late(error):
                self.names.doubt(held.partition)
            self.table.release(held, token, consumed=consumed)
            raise
        now = yield Now()
        held.learn_registered(registered, now)
        # The cause of a rejection probably persists for a moment.
        pause = 0 if consumed else self.settings.not_found_wait_ms
        self.table.release(held, token, ready_at=now + pause)
        return registered.current

    def put_back(self, found: ReceivedBatch | Idle | None) -> None:
        """Put back the batch of a fetch that no caller received: it is fetched again."""
        if isinstance(found, ReceivedBatch):
            held = self.table.held.get(found.partition)
            if held is not None:
                self.table.release(held, found.token)

    def abandon(self, batch: ReceivedBatch) -> Conversation[None]:
        """Reject a batch where no caller can receive an error: the broker rolls it back in time."""
        try:
            yield from self.confirm(batch, consumed=False)
        except errors.TubeMQError as error:
            self.on_failure(str(batch.partition), error)

    def flush(self) -> Conversation[None]:
        """Send local confirmations to brokers now instead of with the next fetch."""
        for held in list(self.table.held.values()):
            if held.consumed and self.table.claim(held):
                token = held.token
                try:
                    yield from self._send_confirmation(held, consumed=True)
                except _LOST as error:
                    self.on_lost(held, error)
                except errors.TubeMQError as error:
                    if may_be_served_late(error):
                        self.names.doubt(held.partition)
                    self.on_failure(str(held.partition), error)
                    self.table.release(held, token, consumed=True)
                else:
                    self.table.release(held, token)

    # -- one fetch --------------------------------------------------------------------------------

    def _fetch_conversation(
        self, held: HeldPartition, token: int, *, in_turn: bool
    ) -> Conversation[ReceivedBatch | Idle]:
        try:
            if in_turn and (connecting := (yield from self._reach(held, token))) is not None:
                return connecting
            return (yield from self._ask(held, token))
        except (
            BaseException
        ):  # cancelled, or unexpected; a request that was sent may be served late
            self.names.doubt(held.partition)
            raise
        finally:
            if held.token == token and held.use is PartitionState.FETCHING:
                self.table.release(held, token, consumed=held.consumed)

    def _reach(self, held: HeldPartition, token: int) -> Conversation[Idle | None]:
        """Return None once there is a connection. Opening one to a dead host takes seconds."""
        broker = held.lease.broker
        try:
            if (yield Reach(broker.address)):
                return None
        except errors.ConnectError as error:
            return (yield from self._avoid_broker(held, token, error, consumed=held.consumed))
        self.breaker.defer_until(broker, (yield Now()) + _CONNECTING_MS)
        self.table.release(held, token, consumed=held.consumed)
        return Idle(0)

    def _ask(self, held: HeldPartition, token: int) -> Conversation[ReceivedBatch | Idle]:
        if self.names.must_renew(held):
            blocked = yield from self._renew(held, token)
            if blocked is not None:
                return blocked
        consumed = held.consumed
        try:
            # The group's own limit for any lag replaces what the broker would enforce.
            escape = self.flow.group.limit(_ANY_LAG, (yield WallClock())) is not None
            ticket = yield from held.lease.post_fetch(
                consumed=consumed, escape_limit=escape, unparsed=True
            )
            held.consumed = False
            self.stats.fetches += 1
            reply = whole((yield Await(ticket)))
        except (errors.NetworkError, errors.RemoteException) as error:
            # `consumed` is not sent again: if the broker has received it, that would skip an unseen
            # batch.
            maybe_received = may_be_served_late(error)
            if maybe_received:
                self.names.doubt(held.partition)
            return (
                yield from self._avoid_broker(
                    held, token, error, consumed=consumed and not maybe_received
                )
            )
        return (yield from self._handle_reply(held, token, reply))

    def _handle_reply(
        self, held: HeldPartition, token: int, reply: Any
    ) -> Conversation[ReceivedBatch | Idle]:
        self._answered(held)
        now = yield Now()
        code = reply.errCode
        if reply.success and code == errors.SUCCESS:
            return (yield from self._accept(held, token, reply))
        refusal = errors.for_code(code, reply.errMsg, where=f"fetch of {held.lease.where}")
        if isinstance(refusal, _LOST):
            self.on_lost(held, refusal)
            return Idle(0, refusal)
        quiet = code in (errors.NOT_FOUND, errors.SPEED_LIMIT)
        self.stats.note(code)
        if code != errors.NOT_FOUND:
            self.on_failure(str(held.partition), refusal)
        delay = yield from self._delay(held, reply, size=0)
        held.ruled_until = now + delay if code != errors.NOT_FOUND or held.pace.ruled else 0
        self.table.release(held, token, ready_at=now + delay)
        return Idle(0, None if quiet else refusal)

    def _renew(self, held: HeldPartition, token: int) -> Conversation[Idle | None]:
        """Renew the lease after an abandoned request; None if the partition may be fetched now."""
        failure: errors.TubeMQError | None = None
        try:
            yield from renew(held, self.names, lambda: self.table.held.get(held.partition) is held)
        except (*_LOST, errors.PartitionOccupied) as error:
            self.on_lost(held, error)
            failure = error
        except (errors.NetworkError, errors.RemoteException, errors.ServerError) as error:
            return (yield from self._avoid_broker(held, token, error, consumed=held.consumed))
        self._answered(held)
        if not held.renewing and self.table.held.get(held.partition) is held:
            return None
        return Idle(0, failure)

    def _avoid_broker(
        self, held: HeldPartition, token: int, error: errors.TubeMQError, *, consumed: bool
    ) -> Conversation[Idle]:
        """Avoid a broker that does not answer for a while, for all of its partitions."""
        self.on_failure(str(held.partition), error)
        self.table.release(held, token, consumed=consumed)
        self.stats.unanswered += 1
        self._unanswered(held, error, (yield Now()))
        return Idle(0, error)

    def _unanswered(self, held: HeldPartition, error: errors.TubeMQError, now: int) -> None:
        held.failure = error
        if not self.breaker.is_suspect(held.lease.broker):
            event_log.broker_avoided(held.lease.broker, error)
        self.breaker.failed(held.lease.broker, now)

    def _answered(self, held: HeldPartition) -> None:
        if self.breaker.answered(held.lease.broker):
            event_log.broker_is_back(held.lease.broker)
        held.failure = None

    def _wait_ms(self, now: int) -> int | None:
        wait = self.table.wait_ms(now)
        if not self._attempts:
            return wait
        return POLL_MS if wait is None else min(wait, POLL_MS)

    def _holding(self, partition: Partition) -> HeldPartition:
        try:
            return self.table.held[partition]
        except KeyError:
            raise errors.ConfigError(
                f"partition {partition} is not assigned to this consumer", subject="assignment"
            ) from None

    def _accept(
        self, held: HeldPartition, token: int, reply: Any
    ) -> Conversation[ReceivedBatch | Idle]:
        now = yield Now()
        size = payload_bytes(reply.messages) if self._counts_bytes else 0
        held.ready_at = held.ruled_until = now + (yield from self._delay(held, reply, size=size))
        held.learn(reply.currOffset, reply.maxOffset, now)
        if not reply.messages:
            # A filtered range without a match: the broker has already moved the position past it.
            self.stats.note(errors.NOT_FOUND)
            self.table.release(held, token)
            return Idle(0, moved=True)
        if not self.table.delivered(held, token, now):
            self.table.release(held, token)  # it is being moved away: the next owner reads it
            return Idle(0)
        raw = RawBatch(reply.currOffset, reply.messages)
        batch = ReceivedBatch(
            held.partition,
            raw,
            end=None,
            count=len(raw.messages),
            exact=False,
            policy=self.decode[held.partition.topic],
        )
        batch.token, batch.broker = token, held.lease.broker
        self.stats.batches += 1
        self.stats.records += len(raw.messages)
        return batch

    def _delay(self, held: HeldPartition, reply: Any, *, size: int) -> Conversation[int]:
        not_found_ms = self.settings.not_found_wait_ms
        # Like upstream's clients, wait as after "nothing to read" if a limit names no time.
        limit_ms = reply.minLimitTime if reply.minLimitTime > 0 else not_found_ms
        otherwise = reply_delay_ms(reply.errCode, limit_ms, not_found_ms=not_found_ms)
        fetched = Fetched(
            reply.errCode,
            size=size,
            lag_bytes=reply.currDataDlt if reply.HasField("currDataDlt") else -1,
            exempt=reply.escFlowCtrl,
            slow=reply.requireSlow,
            otherwise_ms=otherwise,
        )
        return held.pace.delay_ms(fetched, (yield Now()), (yield WallClock()))

    @property
    def _counts_bytes(self) -> bool:
        return bool(self.flow.default.limits or self.flow.group.limits)

    def _send_confirmation(
        self, held: HeldPartition, *, consumed: bool
    ) -> Conversation[Registered]:
        """Send a confirmation (RPC 18).

        A broker that failed several times in a row receives it after the pause, with the
        partition's next fetch; one that failed last has a short timeout.
        """
        broker, now = held.lease.broker, -1
        try:
            if not self.breaker.is_suspect(broker):
                registered = yield from self._commit(held, consumed=consumed)
            elif not self.breaker.is_avoided(broker, now := (yield Now())) and (
                yield Reach(broker.address)
            ):
                commit = held.lease.commit(consumed=consumed)
                registered = yield from with_timeout(commit, _ATTEMPT_MS)
            else:
                raise _broker_avoided(held, consumed=consumed)
        except errors.NetworkError as error:
            later = yield Now()
            if not self.breaker.is_avoided(broker, later if now < 0 else now):
                self._unanswered(held, error, later)
            raise
        except errors.ServerError:
            self._answered(held)
            raise
        self._answered(held)
        return registered

    def _commit(self, held: HeldPartition, *, consumed: bool) -> Conversation[Registered]:
        """Send RPC 18, again when a connection breaks: harmless until the next fetch."""
        for _ in range(_COMMIT_TRIES - 1):
            try:
                return (yield from held.lease.commit(consumed=consumed))
            except (errors.ConnectError, errors.ConnectionLost) as error:
                if may_be_served_late(error):
                    self.names.doubt(held.partition)
                yield Sleep(_COMMIT_PAUSE_MS)
        return (yield from held.lease.commit(consumed=consumed))


def _broker_avoided(held: HeldPartition, *, consumed: bool) -> errors.ConnectError:
    if_confirmed = "its confirmation is kept, and told with its next fetch"
    fate = if_confirmed if consumed else "it comes again"
    return errors.ConnectError(
        f"broker {held.lease.broker} does not answer and is left alone for a while "
        f"(stats.left_alone); the batch of partition {held.partition}: {fate}"
    )


def _overdue(partition: Partition, timeout_ms: int) -> errors.TubeMQError:
    return errors.StaleBatch(
        f"the batch of partition {partition} was not confirmed within {timeout_ms} ms (option "
        f"confirm_timeout_ms) and was rolled back"
    )
