"""Fetching and confirming what a group member holds: RPC 17 and 18 around the partition table.

Conversations run side by side, in threads or tasks; each moves one partition and works on the table
only between two effects. A fetch that fails leaves its partition waiting for as long as the code
asks (`flow_control.reply_delay_ms`); one that says the partition is lost hands it to `on_lost`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tubemq_client import errors
from tubemq_client._core.balance_partitions import HeldPartition, PartitionTable, Use
from tubemq_client._core.batch import DecodePolicies, MessageBatch, RawBatch
from tubemq_client._core.effects import Await, Now, Sleep, WallNow
from tubemq_client._core.flow_control import Fetched, FlowControl, reply_delay_ms
from tubemq_client._core.renewal import LeaseNames, may_be_served_late, renew
from tubemq_client._wire.fetching import whole
from tubemq_client._wire.native import payload_bytes
from tubemq_client.model import ConsumerSettings

if TYPE_CHECKING:
    from tubemq_client._core.effects import Conversation
    from tubemq_client._core.registration import Registered
    from tubemq_client.model import BrokerNode

__all__ = ["GroupFetch", "Idle", "ReceivedBatch"]

_LOST = (errors.NotRegistered, errors.PartitionTaken, errors.AuthenticationFailed)
_ANY_LAG = 1 << 62
_COMMIT_TRIES = 3
_COMMIT_PAUSE_MS = 100

_LONGEST_REST_MS = 10_000
"""How long a broker that does not answer is left alone, after several attempts."""


class ReceivedBatch(MessageBatch):
    """A batch that the group's position moves past when it is confirmed.

    `end` is unknown (None) until then. `token` says which delivery of its partition this is.
    """

    __slots__ = ("token",)

    token: int


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing to fetch for `wait_ms`; None: until something changes."""

    wait_ms: int | None


@dataclass(slots=True)
class GroupFetch:
    """What `BalancedSession` fetches with. `on_lost` hears of partitions that brokers took away,
    and of the refusal that said so; `on_trouble` of everything else that went wrong."""

    table: PartitionTable
    names: LeaseNames
    decode: DecodePolicies
    settings: ConsumerSettings
    flow: FlowControl
    on_lost: Callable[[HeldPartition, errors.TubeMQError], None]
    on_trouble: Callable[[str, errors.TubeMQError], None]
    _unanswered: dict[BrokerNode, int] = field(default_factory=dict)
    """Fetches in a row that a broker did not answer."""

    def fetch(self) -> Conversation[ReceivedBatch | Idle]:
        """One request to the partition whose turn it is. Abandoned halfway, its batch comes again
        with the next fetch. Where it can be run to its end and `put_back`, that saves a renewal."""
        held = self.table.take((yield Now()))
        if held is None:
            return Idle(self.table.wait_ms((yield Now())))
        token = held.token
        try:
            return (yield from self._ask(held, token))
        except BaseException:  # cancelled, or nobody's plan; what is sent may be served late
            self.names.doubt(held.partition)
            raise
        finally:
            if held.token == token and held.use is Use.FETCHING:
                self.table.release(held, token, consumed=held.consumed)

    def settle(self, batch: ReceivedBatch, *, consumed: bool) -> Conversation[int]:
        """Confirm or reject; returns the group's position, the next offset to be read (-1 when
        confirmations are local and so not known yet)."""
        held = self.table.settle(batch.partition, batch.token)
        token = held.token
        if consumed and self.settings.confirm_locally:
            self.table.release(held, token, consumed=True)
            return -1
        try:
            found = yield from self._commit(held, consumed=consumed)
        except _LOST as error:
            self.on_lost(held, error)
            raise
        except BaseException as error:
            # Told again before the next fetch, which changes nothing if the broker has heard it.
            if may_be_served_late(error):
                self.names.doubt(held.partition)
            self.table.release(held, token, consumed=consumed)
            raise
        now = yield Now()
        held.learn_registered(found, now)
        # What was rejected is likely to be rejected again: leave the cause time to pass.
        pause = 0 if consumed else self.settings.not_found_wait_ms
        self.table.release(held, token, ready_at=now + pause)
        return found.current

    def put_back(self, found: ReceivedBatch | Idle) -> None:
        """What a fetch brought was never given to anybody: fetch it again."""
        if isinstance(found, ReceivedBatch):
            held = self.table.held.get(found.partition)
            if held is not None:
                self.table.release(held, found.token)

    def abandon(self, batch: ReceivedBatch) -> Conversation[None]:
        """Reject, where nobody can be told if that fails: the broker does it in time."""
        try:
            yield from self.settle(batch, consumed=False)
        except errors.TubeMQError as error:
            self.on_trouble(str(batch.partition), error)

    def flush(self) -> Conversation[None]:
        """Tell brokers of local confirmations now instead of with the next fetch."""
        for held in list(self.table.held.values()):
            if held.consumed and self.table.claim(held):
                token = held.token
                try:
                    yield from self._commit(held, consumed=True)
                except _LOST as error:
                    self.on_lost(held, error)
                except errors.TubeMQError as error:
                    if may_be_served_late(error):
                        self.names.doubt(held.partition)
                    self.on_trouble(str(held.partition), error)
                    self.table.release(held, token, consumed=True)
                else:
                    self.table.release(held, token)

    # -- one fetch --------------------------------------------------------------------------------

    def _ask(self, held: HeldPartition, token: int) -> Conversation[ReceivedBatch | Idle]:
        if self.names.must_renew(held) and not (yield from self._renew(held, token)):
            return Idle(0)
        consumed = held.consumed
        try:
            # The group's own limit for any lag replaces what the broker would enforce.
            escape = self.flow.group.limit(_ANY_LAG, (yield WallNow())) is not None
            ticket = yield from held.lease.post_fetch(
                consumed=consumed, escape_limit=escape, unparsed=True
            )
            reply = whole((yield Await(ticket)))
        except (errors.NetworkError, errors.RemoteException) as error:
            # Not `consumed` again: if the broker has heard it, that would skip a batch never seen.
            heard = may_be_served_late(error)
            if heard:
                self.names.doubt(held.partition)
            yield from self._leave_alone(held, token, error, consumed=consumed and not heard)
            return Idle(0)
        except BaseException:
            held.consumed = False
            raise
        held.consumed = False
        self._unanswered.pop(held.lease.broker, None)
        now = yield Now()
        code = reply.errCode
        if reply.success and code == errors.SUCCESS:
            return (yield from self._accept(held, token, reply))
        refusal = errors.for_code(code, reply.errMsg, where=f"fetch of {held.lease.where}")
        if isinstance(refusal, _LOST):
            self.on_lost(held, refusal)
            return Idle(0)
        if code != errors.NOT_FOUND:
            self.on_trouble(str(held.partition), refusal)
        delay = yield from self._delay(held, reply, size=0)
        self.table.release(held, token, ready_at=now + delay)
        return Idle(0)

    def _renew(self, held: HeldPartition, token: int) -> Conversation[bool]:
        """Get past a request that was given up; tells whether the partition may be fetched now."""
        try:
            yield from renew(held, self.names, lambda: self.table.held.get(held.partition) is held)
        except (*_LOST, errors.PartitionOccupied) as error:
            self.on_lost(held, error)
        except (errors.NetworkError, errors.RemoteException, errors.ServerError) as error:
            yield from self._leave_alone(held, token, error, consumed=held.consumed)
        return not held.renewing and self.table.held.get(held.partition) is held

    def _leave_alone(
        self, held: HeldPartition, token: int, error: errors.TubeMQError, *, consumed: bool
    ) -> Conversation[None]:
        self.on_trouble(str(held.partition), error)
        self.table.release(held, token, consumed=consumed)
        self._rest(held.lease.broker, (yield Now()))

    def _rest(self, broker: BrokerNode, now: int) -> None:
        """Leave a broker that does not answer alone for a while. An attempt costs seconds in which
        whoever receives does not hear of others, so it is not made for each of its partitions."""
        count = self._unanswered[broker] = self._unanswered.get(broker, 0) + 1
        pause = min(reply_delay_ms(500) << min(count - 1, 16), _LONGEST_REST_MS)
        for held in self.table.held.values():
            if held.lease.broker == broker:
                held.ready_at = max(held.ready_at, now + pause)

    def _accept(
        self, held: HeldPartition, token: int, reply: Any
    ) -> Conversation[ReceivedBatch | Idle]:
        now = yield Now()
        size = payload_bytes(reply.messages) if self._counts_bytes else 0
        held.ready_at = now + (yield from self._delay(held, reply, size=size))
        held.learn(reply.currOffset, reply.maxOffset, now)
        if not reply.messages:
            # A filtered range without a match: the broker has moved past it by itself.
            self.table.release(held, token)
            return Idle(0)
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
        batch.token = token
        return batch

    def _delay(self, held: HeldPartition, reply: Any, *, size: int) -> Conversation[int]:
        limit_ms = max(0, reply.minLimitTime)
        otherwise = reply_delay_ms(
            reply.errCode, limit_ms, not_found_ms=self.settings.not_found_wait_ms
        )
        fetched = Fetched(
            reply.errCode,
            size=size,
            lag_bytes=reply.currDataDlt if reply.HasField("currDataDlt") else -1,
            exempt=reply.escFlowCtrl,
            slow=reply.requireSlow,
            otherwise_ms=otherwise,
        )
        return held.pace.delay_ms(fetched, (yield Now()), (yield WallNow()))

    @property
    def _counts_bytes(self) -> bool:
        return bool(self.flow.default.limits or self.flow.group.limits)

    def _commit(self, held: HeldPartition, *, consumed: bool) -> Conversation[Registered]:
        """RPC 18, again when a connection breaks: until the next fetch a repetition is harmless."""
        for _ in range(_COMMIT_TRIES - 1):
            try:
                return (yield from held.lease.commit(consumed=consumed))
            except (errors.ConnectError, errors.ConnectionLost) as error:
                if may_be_served_late(error):
                    self.names.doubt(held.partition)
                yield Sleep(_COMMIT_PAUSE_MS)
        return (yield from held.lease.commit(consumed=consumed))
