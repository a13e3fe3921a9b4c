"""A member of a group whose partitions the master deals out (RPC 4, 5, 6, and 15, 16 at brokers).

The master gives one order at a time in a heartbeat's reply: take these partitions, or give those
back. It gives each once and leaves the whole group alone until the order is acknowledged, so it is
carried out beside the heartbeats (`rebalance`) and acknowledged by one that is due at once, with a
list of what is really held. `docs/protocol/balance.md` has the protocol.

Three conversations run side by side for as long as the member lives: `beat_master`, `beat_brokers`
and `rebalance`; fetching is `balance_fetch`. A shell runs each again when its wait is over or when
it is called through `Calls`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tubemq_client import _pb, errors
from tubemq_client._core.assigned import READ_STATUS
from tubemq_client._core.balance_fetch import GroupFetch
from tubemq_client._core.balance_orders import BoundStart, Calls, Order, Rebalance
from tubemq_client._core.balance_partitions import HeldPartition, PartitionTable, Use
from tubemq_client._core.batch import DecodePolicies
from tubemq_client._core.broker_beats import BrokerBeats
from tubemq_client._core.effects import Deliver, Now, Sleep, WallNow
from tubemq_client._core.flow_control import FlowControl, Pace
from tubemq_client._core.leases import HeartbeatSchedule
from tubemq_client._core.registration import Registration
from tubemq_client._core.renewal import LeaseNames, may_be_served_late
from tubemq_client._core.trouble import Trouble
from tubemq_client._wire import methods, strings
from tubemq_client.model import BrokerNode, ClientSettings, ConsumerSettings, Partition

if TYPE_CHECKING:
    from tubemq_client._core.effects import Conversation
    from tubemq_client._core.master import MasterSession

__all__ = ["BalancedSession"]

_TAKE = frozenset((1, 10))
"""CONNECT and ONLY_CONNECT, which an order is called that comes without a give-back."""

_GIVE_BACK = frozenset((2, 20))
"""DISCONNECT and ONLY_DISCONNECT."""

_DONE = 2
_SLICE_MS = 50
_UNREGISTER_TRIES = 2

_NOT_REACHED = (errors.NetworkError, errors.RemoteException)


@dataclass(slots=True)
class BalancedSession:
    """State of one member. `topics` maps topic names to their filter items."""

    master: MasterSession
    group: str
    client_id: str
    topics: dict[str, tuple[str, ...]]
    settings: ClientSettings
    consumer: ConsumerSettings = field(default_factory=ConsumerSettings)
    bound: BoundStart | None = None
    corrupt_records: str = "fail"
    calls: Calls = field(default_factory=Calls)
    flow: FlowControl = field(default_factory=FlowControl)
    trouble: Trouble = field(default_factory=Trouble)
    failure: Exception | None = None
    closing: bool = False
    table: PartitionTable = field(init=False)
    fetching: GroupFetch = field(init=False)
    _not_allocated: bool = True
    _order: Order | None = None
    _done: Order | None = None
    _first_order: bool = True
    _met: set[Partition] = field(default_factory=set)
    _lost: list[Partition] = field(default_factory=list)
    _reported: frozenset[Partition] = frozenset()
    _beats: int = 0
    _forgotten: bool = False
    _session_ms: int = 0
    _names: LeaseNames = field(init=False)
    _beats_to_brokers: BrokerBeats = field(init=False)
    _at_master: HeartbeatSchedule = field(init=False)
    _at_brokers: HeartbeatSchedule = field(init=False)

    def __post_init__(self) -> None:
        self.table = PartitionTable(self.calls.ready)
        self._names = LeaseNames(self.client_id)
        self.fetching = GroupFetch(
            self.table,
            self._names,
            DecodePolicies(self.topics, self.corrupt_records),
            self.consumer,
            self.flow,
            self._lose,
            self._note,
        )
        self._at_master = HeartbeatSchedule.of(self.settings)
        # Brokers are many: one that is away must not slow down the beats that keep the others.
        period = self.settings.heartbeat_period_ms
        self._at_brokers = HeartbeatSchedule(period, period)
        self._beats_to_brokers = BrokerBeats(
            self.master, self.group, self.flow, period, self._lose, self.trouble
        )

    # -- the group ------------------------------------------------------------------------------

    def open(self) -> Conversation[None]:
        """Join the group. Raises what a person must mend (`errors.UnknownTopic`,
        `errors.GroupInconsistent`, `errors.NotAuthorized`, …) at once, the rest after
        `register_attempts`."""
        if self.bound is not None:
            self._session_ms = self.bound.session_start_ms or (yield WallNow())
        for attempt in range(1, self.settings.register_attempts + 1):
            try:
                return (yield from self._register())
            except errors.TubeMQError as error:
                hopeless = error.fatal or not error.retriable
                if hopeless and self.master.may_pass(error, (yield Now())):
                    hopeless = False
                if hopeless or attempt == self.settings.register_attempts:
                    raise
                yield Sleep(self.settings.register_pause_ms)
        return None

    def beat_master(self) -> Conversation[int]:
        """RPC 5 if it is due; returns the time to the next in ms. Rolls back overdue batches."""
        now = yield Now()
        for partition in self.table.expire(now, self.consumer.confirm_timeout_ms):
            self._note(str(partition), _overdue(partition, self.consumer.confirm_timeout_ms))
        if self._at_master.due(now):
            try:
                news = yield from self._heartbeat()
            except errors.TubeMQError as error:
                self._note("master", error)
                self._at_master.failed((yield Now()))
            else:
                self.trouble.pop("master", None)
                if not news:
                    self._at_master.succeeded((yield Now()))
        return self._at_master.wait_ms((yield Now()))

    def close(self) -> Conversation[None]:
        """Give everything back, rolling back what was not confirmed, and leave the group. What
        cannot be given back within `close_wait_ms` is freed when leases end."""
        self.closing = True
        deadline = (yield Now()) + self.consumer.close_wait_ms
        unreached: set[BrokerNode] = set()
        for held in list(self.table.held.values()):
            self.table.remove(held.partition)
            broker = held.lease.broker
            late = (yield Now()) >= deadline
            if not late and broker not in unreached and not (yield from self._unregister(held)):
                unreached.add(broker)
        request = _pb.CloseRequestC2M(clientId=self.client_id, groupName=self.group)
        yield from self.master.call(methods.CLOSE_CONSUMER, request)

    def _register(self) -> Conversation[None]:
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

    def _heartbeat(self) -> Conversation[bool]:
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
            yield from self._register()
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

    # -- brokers --------------------------------------------------------------------------------

    def beat_brokers(self) -> Conversation[int]:
        """RPC 16 to every broker with held partitions if due; returns the time to the next, ms.
        A broker that does not answer keeps its partitions: it may be back before leases end."""
        if not self._at_brokers.due((yield Now())):
            return self._at_brokers.wait_ms((yield Now()))
        self._at_brokers.succeeded((yield Now()))
        yield from self._beats_to_brokers.beat(list(self.table.held.values()))
        return self._at_brokers.wait_ms((yield Now()))

    def _lose(self, held: HeldPartition, error: errors.TubeMQError) -> None:
        if self.table.remove(held.partition, held):
            self._note(str(held.partition), error)
            self._lost.append(held.partition)
            self._at_master.hurry()  # the master deals it out again once it knows
            self.calls.rebalance()
            self.calls.beat()

    # -- orders -----------------------------------------------------------------------------------

    def rebalance(self) -> Conversation[None]:
        """Carry out the order that is waiting, if any, delivering `Rebalance` values; each is
        resumed when the user has heard of it."""
        if self._lost:
            lost, self._lost = self._lost, []
            yield Deliver(Rebalance("lost", lost))
        order = self._order
        if order is None or self.closing:
            return
        try:
            places = [strings.parse_subscribe_info(text) for text in order.texts]
        except errors.ProtocolViolation as error:  # done as far as we can: the report tells
            self._note("master", error)
            places = []
        if order.operation in _GIVE_BACK:
            yield from self._give_back([place.partition for place in places])
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
                yield from self._register_partition(partition, broker, fresh=fresh)
            except errors.TubeMQError as error:
                self._note(str(partition), error)
                if isinstance(error, _NOT_REACHED):
                    unreached.add(broker)
                if may_be_served_late(error):
                    self._names.suspect(partition)
                if error.fatal:
                    left.remove(partition)
            else:
                left.remove(partition)
                gained.append(partition)
        return gained

    def _register_partition(
        self, partition: Partition, broker: BrokerNode, *, fresh: bool
    ) -> Conversation[None]:
        lease = Registration(
            broker,
            partition,
            self.group,
            self._names.of(partition),
            filters=self.topics[partition.topic],
            priority=self.flow.priority,
            access=self.master.access,
        )
        first = partition not in self._met
        offset = None
        if self.bound is not None and fresh and first:
            offset = self.bound.offsets.get(partition)
        # Only the first success uses up the position: a retry must not start somewhere else.
        status = READ_STATUS[self.consumer.consume_position] if first else 0
        if offset is not None:
            status = 0
        found = yield from lease.register(offset, read_status=status)
        self._met.add(partition)
        self._names.taken(partition)
        held = HeldPartition(lease, Pace(self.flow, filtered=bool(self.topics[partition.topic])))
        held.learn_registered(found, (yield Now()))
        self.trouble.pop(str(partition), None)
        self.table.add(held)

    def _give_back(self, partitions: list[Partition]) -> Conversation[None]:
        """Stop fetching, let batches that are out be confirmed for a while, unregister."""
        mine = sorted(p for p in partitions if p in self.table.held)
        if not mine:
            return
        self.table.withhold(mine)
        yield Deliver(Rebalance("revoked", mine))
        deadline = (yield Now()) + self.consumer.rebalance_confirm_wait_ms
        while self.table.busy(mine) and (yield Now()) < deadline and not self.closing:
            yield Sleep(_SLICE_MS)
        for partition in mine:
            held = self.table.held.get(partition)
            if held is not None and self.table.remove(partition, held):
                yield from self._unregister(held)

    def _unregister(self, held: HeldPartition) -> Conversation[bool]:
        """What was confirmed but not told is told now; what was not confirmed is rolled back,
        unless the user chose otherwise. False if the broker is not to be reached."""
        out = held.use is Use.DELIVERED and not self.consumer.rollback_on_rebalance
        consumed = held.consumed or (out and not self.closing)
        for _ in range(_UNREGISTER_TRIES):
            try:
                yield from held.lease.unregister(consumed=consumed)
            except errors.ServerError:
                return True  # it is not ours any more, which is what was wanted
            except errors.TubeMQError as error:
                if may_be_served_late(error):
                    self._names.suspect(held.partition)
                self._note(f"broker {held.lease.broker}", error)  # the lease ends by itself
            else:
                return True
        return False

    # -- small things -----------------------------------------------------------------------------

    def fail(self, error: Exception) -> None:
        """Nothing can be received any more: whoever asks is told `error`."""
        self.failure = self.failure or error
        self.calls.ready()

    def _note(self, where: str, error: errors.TubeMQError) -> None:
        self.trouble[where] = error

    def _held_texts(self) -> list[str]:
        return [
            strings.format_subscribe_info(
                strings.SubscribeInfo(self.client_id, self.group, held.lease.broker, partition)
            )
            for partition, held in sorted(self.table.held.items())
        ]


def _overdue(partition: Partition, timeout_ms: int) -> errors.TubeMQError:
    return errors.StaleBatch(
        f"the batch of partition {partition} was not confirmed within {timeout_ms} ms (option "
        f"confirm_timeout_ms) and was rolled back"
    )


def _check(reply: Any, what: str) -> None:
    if not reply.success or reply.errCode != errors.SUCCESS:
        raise errors.for_code(reply.errCode, reply.errMsg, where=f"master, {what}")
