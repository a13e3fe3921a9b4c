"""Group member whose partitions the master assigns (RPC 4, 5, 6, and 15, 16 at brokers).

The master gives one order at a time in a heartbeat's reply: take these partitions, or give those
back. It sends each once and changes nothing in the whole group until the order is acknowledged, so
`rebalance` performs it next to the heartbeats, and a heartbeat that is due at once acknowledges it
with a list of the partitions really held. `docs/protocol/balance.md` has the protocol.

Three conversations run side by side while the member is open: `master_heartbeat_if_due`,
`broker_heartbeats_if_due` and `rebalance`; fetching is `balance_fetch`. The driver runs each again
when its wait is over or when it is called through `SessionCallbacks`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tubemq_client import _pb, errors
from tubemq_client._core.balance_orders import BalanceOrder, BoundStart, Rebalance
from tubemq_client._core.effects import Deliver, Now, Sleep, WallClock
from tubemq_client._core.group import GroupSession
from tubemq_client._wire import methods, strings
from tubemq_client.model import BrokerNode, Partition

if TYPE_CHECKING:
    from tubemq_client._core.effects import Conversation

__all__ = ["BalancedSession"]

_TAKE = frozenset((1, 10))
"""CONNECT and ONLY_CONNECT, the types of an order to take partitions
(`docs/protocol/balance.md#orders`)."""

_GIVE_BACK = frozenset((2, 20))
"""DISCONNECT and ONLY_DISCONNECT (`docs/protocol/balance.md#orders`)."""

_DONE = 2
"""Status of an order that was performed (`docs/protocol/balance.md#orders`)."""

_NOT_REACHED = (errors.NetworkError, errors.RemoteException)


@dataclass(slots=True)
class BalancedSession(GroupSession):
    """State of one member.

    With `bound` its whole group starts from offsets of the user's choice.
    """

    bound: BoundStart | None = None
    _not_allocated: bool = True
    _order: BalanceOrder | None = None
    _done: BalanceOrder | None = None
    _first_order: bool = True
    _forgotten: bool = False
    _session_ms: int = 0

    # -- the group ------------------------------------------------------------------------------

    def _join(self) -> Conversation[None]:
        """Send RPC 4 with held partitions, which brokers grant to a member the master forgot."""
        request = _pb.RegisterRequestC2M(
            clientId=self.client_id,
            groupName=self.group,
            hostName=self.master.host,
            topicList=sorted(self.topics),
            topicCondition=[
                strings.format_topic_condition(topic, items)
                for topic, items in sorted(self.topics.items())
                if items
            ],
            subscribeInfo=self._held_texts(),
            requireBound=self.bound is not None,
        )
        if self.bound is not None:
            self._session_ms = (
                self._session_ms or self.bound.session_start_ms or (yield WallClock())
            )
            request.sessionTime = self._session_ms
            request.sessionKey = self.bound.session_key
            request.totalCount = self.bound.source_count
            request.requiredPartition = strings.format_required_partition(self.bound.offsets)
            request.notAllocated = self._not_allocated
            request.selectBig = self.bound.select_big
        self.flow.fill(request)
        reply = yield from self.master.call(methods.REGISTER_CONSUMER, request)
        _check(reply, f"registering group {self.group!r} for {', '.join(sorted(self.topics))}")
        # Orders of an earlier registration are void; acknowledging one would remove another.
        self._order = self._done = None
        self._not_allocated = reply.notAllocated
        self._reported = frozenset(self.table.held)
        self._learn(reply)

    def heartbeat_master(self) -> Conversation[bool]:
        """Send RPC 5; return whether the next heartbeat is due at once."""
        done = self._done
        held = frozenset(self.table.held)
        self._heartbeats_since_report += 1
        report = self._order is None and (
            done is not None
            or held != self._reported
            or self._heartbeats_since_report >= self.consumer.report_every_beats
        )
        request = _pb.HeartRequestC2M(
            clientId=self.client_id, groupName=self.group, reportSubscribeInfo=report
        )
        if report:
            request.subscribeInfo.extend(self._held_texts())
        if done is not None:
            event = _pb.EventProto(
                rebalanceId=done.rebalance_id, opType=done.operation, status=_DONE
            )
            event.subscribeInfo.extend(done.texts)
            request.event.CopyFrom(event)
        self.flow.fill(request)
        reply = yield from self.master.call(methods.HEARTBEAT_CONSUMER, request)
        try:
            _check(reply, f"heartbeat of group {self.group!r}")
        except errors.NotRegistered:
            at_once, self._forgotten = not self._forgotten, True
            if at_once:
                yield from self.master.notice_switch()
            yield from self._register_again()
            return at_once
        self._forgotten = False
        if report:
            self._reported, self._heartbeats_since_report = held, 0
        if self._done is done:
            self._done = None
        self._learn(reply)
        self._receive_order(reply)
        changed = self._order is None and frozenset(self.table.held) != self._reported
        return changed or self._done is not None

    def _register_again(self) -> Conversation[None]:
        try:
            yield from self._join()
        except errors.TubeMQError as error:
            if error.fatal and not self.master.may_be_switch(error, (yield Now())):
                self.fail(error)
            raise

    def _receive_order(self, reply: Any) -> None:
        was_fresh, self._not_allocated = self._not_allocated, reply.notAllocated
        if reply.HasField("event") and reply.event.rebalanceId > 0:
            event = reply.event
            # A faster member may have ended the group's start since our last heartbeat, but an
            # order in the reply that reports it was given before.
            fresh = was_fresh and self._first_order
            self._first_order = False
            self._order = BalanceOrder(
                event.rebalanceId, event.opType, tuple(event.subscribeInfo), fresh
            )
            self.calls.rebalance()

    def _learn(self, reply: Any) -> None:
        self.master.learn(reply)
        self.flow.learn(reply)

    # -- orders -----------------------------------------------------------------------------------

    def _rebalance(self) -> Conversation[None]:
        """Perform the pending order, if any."""
        order = self._order
        if order is None:
            return
        try:
            subscriptions = [strings.parse_subscribe_info(text) for text in order.texts]
        except errors.ProtocolViolation as error:  # done as far as possible: the report shows it
            self._note("master", error)
            subscriptions = []
        if order.operation in _GIVE_BACK:
            yield from self._give_back(
                [each.partition for each in subscriptions], self.consumer.rebalance_confirm_wait_ms
            )
        elif order.operation in _TAKE:
            yield from self._take({p.partition: p.broker for p in subscriptions}, fresh=order.fresh)
        if self._order is order:
            self._order = None
            self._done = order
            self._at_master.make_due()
            self.calls.beat()

    def _take(self, brokers: dict[Partition, BrokerNode], *, fresh: bool) -> Conversation[None]:
        """Register at brokers.

        Partitions that cannot be taken within `register_attempts` are left to the master, which
        learns of them from the report and assigns them again.
        """
        remaining = [p for p in brokers if p not in self.table.held and p.topic in self.topics]
        for attempt in range(self.settings.register_attempts):
            if attempt:
                yield Sleep(self.settings.register_pause_ms)
            tried = yield from self._take_round(remaining, brokers, fresh=fresh)
            gained = sorted(partition for partition in tried if partition in self.table.held)
            if gained:
                yield Deliver(Rebalance("assigned", gained))
                self.table.admit(gained)
            if not remaining or self.closing:
                break

    def _take_round(
        self, left: list[Partition], places: dict[Partition, BrokerNode], *, fresh: bool
    ) -> Conversation[list[Partition]]:
        """Try each partition of `left` once, and a broker that is not reached only once.

        Partitions that are taken, or refused for good, leave the list.
        """
        gained: list[Partition] = []
        unreached: set[BrokerNode] = set()
        for partition in list(left):
            broker = places[partition]
            if self.closing or broker in unreached:
                continue
            try:
                yield from self._take_one(partition, broker, fresh=fresh)
            except errors.TubeMQError as error:
                self._note(str(partition), error)
                if isinstance(error, _NOT_REACHED):
                    unreached.add(broker)
                if error.fatal:
                    left.remove(partition)
            else:
                left.remove(partition)
                gained.append(partition)
        return gained

    def _take_one(
        self, partition: Partition, broker: BrokerNode, *, fresh: bool
    ) -> Conversation[None]:
        offset = None
        if self.bound is not None and fresh and partition not in self._met:
            offset = self.bound.offsets.get(partition)
        yield from self._register(partition, broker, offset, None)

    # -- small things -----------------------------------------------------------------------------

    def _held_texts(self) -> list[str]:
        return [
            strings.format_subscribe_info(
                strings.SubscribeInfo(self.client_id, self.group, held.lease.broker, partition)
            )
            for partition, held in sorted(self.table.held.items())
        ]


def _check(reply: Any, what: str) -> None:
    if not reply.success or reply.errCode != errors.SUCCESS:
        raise errors.for_code(reply.errCode, reply.errMsg, where=f"master, {what}")
