"""A member of a group whose partitions the master deals out (RPC 4, 5, 6, and 15, 16 at brokers).

The master gives one order at a time in a heartbeat's reply: take these partitions, or give those
back. It gives each once and leaves the whole group alone until the order is acknowledged, so it is
carried out beside the heartbeats (`rebalance`) and acknowledged by one that is due at once, with a
list of what is really held. `docs/protocol/balance.md` has the protocol.

Three conversations run side by side for as long as the member lives: `master_heartbeat_if_due`,
`broker_heartbeats_if_due` and `rebalance`; fetching is `balance_fetch`. A shell runs each again
when its wait is over or when it is called through `Calls`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tubemq_client import _pb, errors
from tubemq_client._core.balance_orders import BoundStart, Order, Rebalance
from tubemq_client._core.effects import Deliver, Now, Sleep, WallNow
from tubemq_client._core.group import GroupSession
from tubemq_client._wire import methods, strings
from tubemq_client.model import BrokerNode, Partition

if TYPE_CHECKING:
    from tubemq_client._core.effects import Conversation

__all__ = ["BalancedSession"]

_TAKE = frozenset((1, 10))
"""CONNECT and ONLY_CONNECT, which an order is called that comes without a give-back
(`docs/protocol/balance.md#orders`)."""

_GIVE_BACK = frozenset((2, 20))
"""DISCONNECT and ONLY_DISCONNECT (`docs/protocol/balance.md#orders`)."""

_DONE = 2
"""The status of an order that was carried out (`docs/protocol/balance.md#orders`)."""

_NOT_REACHED = (errors.NetworkError, errors.RemoteException)


@dataclass(slots=True)
class BalancedSession(GroupSession):
    """State of one member; `bound` has its whole group start from offsets of the user's choice."""

    bound: BoundStart | None = None
    _not_allocated: bool = True
    _order: Order | None = None
    _done: Order | None = None
    _first_order: bool = True
    _forgotten: bool = False
    _session_ms: int = 0

    # -- the group ------------------------------------------------------------------------------

    def _join(self) -> Conversation[None]:
        """RPC 4, naming what is held: brokers go on granting it to a member the master forgot."""
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
            self._session_ms = self._session_ms or self.bound.session_start_ms or (yield WallNow())
            request.sessionTime = self._session_ms
            request.sessionKey = self.bound.session_key
            request.totalCount = self.bound.source_count
            request.requiredPartition = strings.format_required_partition(self.bound.offsets)
            request.notAllocated = self._not_allocated
            request.selectBig = self.bound.select_big
        self.flow.fill(request)
        reply = yield from self.master.call(methods.REGISTER_CONSUMER, request)
        _check(reply, f"registering group {self.group!r} for {', '.join(sorted(self.topics))}")
        # Orders of a former registration are nobody's now; acknowledging one would remove another.
        self._order = self._done = None
        self._not_allocated = reply.notAllocated
        self._reported = frozenset(self.table.held)
        self._learn(reply)

    def heartbeat_master(self) -> Conversation[bool]:
        """RPC 5; tells whether there is something to tell the master already."""
        done = self._done
        held = frozenset(self.table.held)
        self._beats += 1
        report = self._order is None and (
            done is not None
            or held != self._reported
            or self._beats >= self.consumer.report_every_beats
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
            self._reported, self._beats = held, 0
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
            if error.fatal and not self.master.may_pass(error, (yield Now())):
                self.fail(error)
            raise

    def _receive_order(self, reply: Any) -> None:
        was_fresh, self._not_allocated = self._not_allocated, reply.notAllocated
        if reply.HasField("event") and reply.event.rebalanceId > 0:
            event = reply.event
            # A faster member may have ended the group's beginning since our last heartbeat, but
            # an order that comes with the news was given before.
            fresh = was_fresh and self._first_order
            self._first_order = False
            self._order = Order(event.rebalanceId, event.opType, tuple(event.subscribeInfo), fresh)
            self.calls.rebalance()

    def _learn(self, reply: Any) -> None:
        self.master.learn(reply)
        self.flow.learn(reply)

    # -- orders -----------------------------------------------------------------------------------

    def _rebalance(self) -> Conversation[None]:
        """Carry out the order that is waiting, if any."""
        order = self._order
        if order is None:
            return
        try:
            places = [strings.parse_subscribe_info(text) for text in order.texts]
        except errors.ProtocolViolation as error:  # done as far as we can: the report tells
            self._note("master", error)
            places = []
        if order.operation in _GIVE_BACK:
            yield from self._give_back(
                [place.partition for place in places], self.consumer.rebalance_confirm_wait_ms
            )
        elif order.operation in _TAKE:
            yield from self._take({p.partition: p.broker for p in places}, fresh=order.fresh)
        if self._order is order:
            self._order = None
            self._done = order
            self._at_master.hurry()
            self.calls.beat()

    def _take(self, places: dict[Partition, BrokerNode], *, fresh: bool) -> Conversation[None]:
        """Register at brokers. What cannot be had within `register_attempts` is left to the
        master, which learns from the report and deals it out again."""
        left = [p for p in places if p not in self.table.held and p.topic in self.topics]
        for attempt in range(self.settings.register_attempts):
            if attempt:
                yield Sleep(self.settings.register_pause_ms)
            tried = yield from self._take_round(left, places, fresh=fresh)
            gained = sorted(partition for partition in tried if partition in self.table.held)
            if gained:
                yield Deliver(Rebalance("assigned", gained))
                self.table.admit(gained)
            if not left or self.closing:
                break

    def _take_round(
        self, left: list[Partition], places: dict[Partition, BrokerNode], *, fresh: bool
    ) -> Conversation[list[Partition]]:
        """Try each partition of `left` once, and a broker that is not reached only once; what is
        settled, had or refused for good, leaves the list."""
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
