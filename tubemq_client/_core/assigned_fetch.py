"""Fetching and confirming partitions that a member chose itself: RPC 17 and 18.

Exactly one batch per partition is out at a time; confirming it moves the group's stored position,
rejecting it makes the broker deliver it again. What the broker hands out later replaces what was
out, so every batch bears a token, and only the last one may be confirmed. `assigned` adds and
removes partitions; `balance_fetch` is the counterpart for groups that the master balances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tubemq_client import errors
from tubemq_client._core.balance_fetch import ReceivedBatch
from tubemq_client._core.balance_orders import Calls
from tubemq_client._core.balance_partitions import HeldPartition, Use
from tubemq_client._core.batch import DecodePolicies, RawBatch
from tubemq_client._core.effects import Await, Now, WallNow
from tubemq_client._core.flow_control import Fetched
from tubemq_client._core.registration import Registered
from tubemq_client._core.renewal import LeaseNames, may_be_served_late, renew
from tubemq_client._wire.fetching import whole
from tubemq_client._wire.native import payload_bytes
from tubemq_client.model import ConsumerSettings

if TYPE_CHECKING:
    from tubemq_client._core.effects import Conversation
    from tubemq_client.model import BrokerNode, Partition

__all__ = ["AssignedFetch"]

_LOST = (errors.NotRegistered, errors.PartitionTaken)
_PASSING = (errors.NetworkError, errors.RemoteException, errors.ServerError)
_AWAY = (errors.ConnectError, errors.RpcTimeout)


@dataclass(slots=True)
class AssignedFetch:
    """What `AssignedSession` fetches with, on the partitions `held`. `on_lost` hears of those that
    brokers took away, `trouble` keeps what else went wrong by partition."""

    held: dict[Partition, HeldPartition]
    names: LeaseNames
    decode: DecodePolicies
    settings: ConsumerSettings
    calls: Calls
    on_lost: Callable[[HeldPartition, errors.TubeMQError], None]
    trouble: dict[str, errors.TubeMQError]
    _turns: int = 0
    _tokens: int = 0

    def pull(self, partition: Partition) -> Conversation[ReceivedBatch | None]:
        """One batch, or None when there is nothing to read now, or a flow rule asks to wait, or the
        partition is about to be given back: then the broker is not asked. A lost partition is
        dropped from `held` and the refusal raised (`errors.NotRegistered`,
        `errors.PartitionTaken`).

        Cut short, or without an answer, it voids a batch that is out: it comes again."""
        held = self._holding(partition)
        if held.withheld or (yield Now()) < held.ready_at:
            return None
        self._turns += 1
        held.turn = self._turns
        use, held.use = held.use, Use.FETCHING
        try:
            reply = yield from self._ask(held)
            yield from self._keep_pace(held, reply)
            if reply.success and reply.errCode == errors.SUCCESS:
                use = Use.DELIVERED
                return self._accept(held, reply, (yield Now()))
        finally:
            held.use = use if held.token else Use.IDLE
        if reply.errCode in (errors.NOT_FOUND, errors.SPEED_LIMIT):
            return None
        error = errors.for_code(reply.errCode, reply.errMsg, where=f"fetch of {held.lease.where}")
        if isinstance(error, _LOST):
            self.on_lost(held, error)
        raise error

    def pull_next(self) -> Conversation[ReceivedBatch | None]:
        """One batch of any partition without one that is out, the one not asked for longest first.
        None if none has any now; what goes wrong with one is noted and the others are asked, but
        for those of a broker that does not answer: their turn comes first with the next call."""
        away: dict[BrokerNode, errors.TubeMQError] = {}
        idle = [held for held in self.held.values() if held.use is Use.IDLE]
        for held in sorted(idle, key=lambda held: held.turn):
            if self.held.get(held.partition) is not held:
                continue
            broker = held.lease.broker
            if broker in away:
                self.trouble[str(held.partition)] = away[broker]
                continue
            try:
                batch = yield from self.pull(held.partition)
            except _PASSING as error:
                self.trouble[str(held.partition)] = error
                if isinstance(error, _AWAY):
                    away[broker] = error
                continue
            if batch is not None:
                return batch
        return None

    def put_back(self, batch: ReceivedBatch | None) -> None:
        """Nobody waits for this batch any more: asked again, its partition gives the same one."""
        if batch is not None and batch.partition in self.held:
            self.held[batch.partition].use = Use.IDLE

    def next_try_ms(self, partition: Partition | None, now: int) -> int:
        """How long a caller who found nothing should wait before it pulls again."""
        held = self.held.get(partition) if partition is not None else None
        wait = self.settings.not_found_wait_ms
        return max(wait, held.ready_at - now) if held is not None else wait

    def settle(self, batch: ReceivedBatch, *, consumed: bool) -> Conversation[Registered]:
        """Commit (or roll back) `batch`; answers with the group's position. Raises
        `errors.StaleBatch` if it may not be what the broker would confirm."""
        held = self.held.get(batch.partition)
        if held is None or (consumed and held.token != batch.token):
            raise _stale(batch, gone=held is None)
        try:
            if held.token != batch.token and self.names.must_renew(held):
                found = yield from self._renew(held)
            else:
                with self._doubting(held):
                    found = yield from held.lease.commit(consumed=consumed)
        except _LOST as error:
            self.on_lost(held, error)
            raise
        held.use = Use.IDLE
        if not consumed:
            held.token = 0
        held.learn_registered(found, (yield Now()))
        if held.withheld:
            self.calls.beat()
        self.calls.ready()
        return found

    # -- one fetch --------------------------------------------------------------------------------

    def _ask(self, held: HeldPartition) -> Conversation[Any]:
        if self.names.must_renew(held):
            held.token = 0
            yield from self._renew(held)
        try:
            with self._doubting(held):
                ticket = yield from held.lease.post_fetch(consumed=False, unparsed=True)
                return whole((yield Await(ticket)))
        except BaseException as error:
            if may_be_served_late(error):  # what is out may be more than the user has
                held.token = 0
            raise

    def _renew(self, held: HeldPartition) -> Conversation[Registered]:
        """Get past a request that was given up."""
        try:
            return (
                yield from renew(held, self.names, lambda: self.held.get(held.partition) is held)
            )
        except (*_LOST, errors.PartitionOccupied) as error:
            self.on_lost(held, error)
            raise

    @contextmanager
    def _doubting(self, held: HeldPartition) -> Iterator[None]:
        """A request of the partition: is it one that may be served late?"""
        try:
            yield
        except BaseException as error:
            if may_be_served_late(error):
                self.names.doubt(held.partition)
            raise

    def _accept(self, held: HeldPartition, reply: Any, now: int) -> ReceivedBatch:
        self._tokens += 1
        held.token = self._tokens
        held.learn(reply.currOffset, reply.maxOffset, now)
        self.trouble.pop(str(held.partition), None)
        batch = ReceivedBatch(
            held.partition,
            RawBatch(reply.currOffset, reply.messages),
            end=None,
            count=len(reply.messages),
            exact=False,
            policy=self.decode[held.partition.topic],
        )
        batch.token = held.token
        return batch

    def _keep_pace(self, held: HeldPartition, reply: Any) -> Conversation[None]:
        """Note when the partition may be asked again. Without a rule that is at once: a caller who
        finds nothing decides how long to wait."""
        limit_ms = reply.minLimitTime if reply.errCode == errors.SPEED_LIMIT else 0
        fetched = Fetched(
            reply.errCode,
            payload_bytes(reply.messages),
            reply.currDataDlt if reply.HasField("currDataDlt") else -1,
            exempt=reply.escFlowCtrl,
            slow=reply.requireSlow,
            otherwise_ms=limit_ms,
        )
        now = yield Now()
        held.ready_at = now + held.pace.delay_ms(fetched, now, (yield WallNow()))

    # -- small things -----------------------------------------------------------------------------

    def _holding(self, partition: Partition) -> HeldPartition:
        try:
            return self.held[partition]
        except KeyError:
            raise errors.ConfigError(
                f"partition {partition} is not assigned to this consumer", subject="assignment"
            ) from None


def _stale(batch: ReceivedBatch, *, gone: bool) -> errors.StaleBatch:
    reason = "is no longer held" if gone else "was pulled again, or a pull of it was cut short"
    return errors.StaleBatch(
        f"the batch of partition {batch.partition} cannot be settled: it {reason}; records not "
        f"confirmed before are delivered again"
    )
