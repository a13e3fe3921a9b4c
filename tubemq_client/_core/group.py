"""Base of a group member: the partitions it holds, the heartbeats that keep them, and leaving.

The two kinds of member get partitions from the master (`balance`) or choose them (`assigned`). Both
fetch with one engine (`balance_fetch`) on one table of partitions. Three conversations run side by
side while the member is open: `master_heartbeat_if_due`, `broker_heartbeats_if_due` and
`rebalance`; the driver runs each again when its wait is over or when it is called through
`SessionCallbacks`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tubemq_client import errors
from tubemq_client._core import event_log, retry
from tubemq_client._core.balance_fetch import GroupFetch
from tubemq_client._core.balance_orders import Rebalance, SessionCallbacks
from tubemq_client._core.balance_partitions import HeldPartition, PartitionState, PartitionTable
from tubemq_client._core.batch import DecodePolicies
from tubemq_client._core.broker_heartbeats import BrokerHeartbeats
from tubemq_client._core.effects import Deliver, Now, Sleep
from tubemq_client._core.fencing import ClientEpochs, may_be_served_late
from tubemq_client._core.flow_control import FlowControl, Pace
from tubemq_client._core.heartbeat_schedule import HeartbeatSchedule
from tubemq_client._core.registration import Registered, Registration
from tubemq_client.model import (
    BrokerNode,
    ClientSettings,
    ConsumerSettings,
    CorruptRecords,
    Partition,
)

if TYPE_CHECKING:
    from tubemq_client._core.effects import Conversation
    from tubemq_client._core.master import MasterSession

__all__ = ["READ_STATUS", "GroupSession", "LastErrors"]

READ_STATUS = {"earliest": 0, "latest": 1, "always_latest": 2}
"""Start of a group without a stored position, as brokers number it
(`docs/protocol/balance.md#taking`)."""

_SLICE_MS = 50
_UNREGISTER_TRIES = 2


class LastErrors(dict[str, errors.TubeMQError]):
    """Last errors by partition, broker or "master": they show an operator why a member is slow.

    A stored error is a copy: its class, message and data, without traceback, cause and context. A
    traceback would pin the frames and the lost connection's buffers for the member's life.
    """

    def __setitem__(self, where: str, error: errors.TubeMQError) -> None:
        super().__setitem__(where, copy.copy(error))


@dataclass(slots=True)
class GroupSession:
    """State of one member. `topics` maps topic names to their filter items."""

    master: MasterSession
    group: str
    client_id: str
    topics: dict[str, tuple[str, ...]]
    settings: ClientSettings = field(default_factory=lambda: ClientSettings(()))
    consumer: ConsumerSettings = field(default_factory=ConsumerSettings)
    corrupt_records: str = "fail"
    calls: SessionCallbacks = field(default_factory=SessionCallbacks)
    flow: FlowControl = field(default_factory=FlowControl)
    last_errors: LastErrors = field(default_factory=LastErrors)
    failure: BaseException | None = None
    closing: bool = False
    rebalance_wait_ms: int | None = None
    """Time until `rebalance` has work without being called; None: never."""
    table: PartitionTable = field(init=False)
    fetching: GroupFetch = field(init=False)
    _met: set[Partition] = field(default_factory=set)
    _lost: list[Partition] = field(default_factory=list)
    _reported: frozenset[Partition] = frozenset()
    _heartbeats_since_report: int = 0
    _names: ClientEpochs = field(init=False)
    _broker_heartbeats: BrokerHeartbeats = field(init=False)
    _at_master: HeartbeatSchedule = field(init=False)
    _at_brokers: HeartbeatSchedule = field(init=False)

    def __post_init__(self) -> None:
        self.table = PartitionTable(self.calls.ready)
        self._names = ClientEpochs(self.client_id)
        self.fetching = GroupFetch(
            self.table,
            self._names,
            DecodePolicies(self.topics, CorruptRecords(self.corrupt_records)),
            self.consumer,
            self.flow,
            self._lose,
            self._note,
        )
        self._at_master = HeartbeatSchedule.of(self.settings)
        # Brokers are many: one that is down must not slow the heartbeats that keep the other
        # leases.
        period = self.settings.heartbeat_period_ms
        self._at_brokers = HeartbeatSchedule(period, period)
        self._broker_heartbeats = BrokerHeartbeats(
            self.master, self.group, self.flow, period, self._lose, self.last_errors
        )

    # -- implemented by the two kinds of member ---------------------------------------------------

    def _join(self) -> Conversation[None]:
        """Register with the master."""
        raise NotImplementedError

    def heartbeat_master(self) -> Conversation[bool]:
        """Send a heartbeat to the master; return whether the next is due at once."""
        raise NotImplementedError

    def _rebalance(self) -> Conversation[None]:
        """Take and give back partitions, delivering `Rebalance` values."""
        raise NotImplementedError

    # -- the group --------------------------------------------------------------------------------

    def open(self) -> Conversation[None]:
        """Join the group.

        Errors that a user must correct (`errors.UnknownTopic`, `errors.GroupInconsistent`,
        `errors.NotAuthorized`, …) are raised at once, others after `register_attempts`.
        """
        yield from retry.register(self.master, self.settings, self._join)
        event_log.joined(self.group, self.client_id, self.topics)

    def master_heartbeat_if_due(self) -> Conversation[int]:
        """Send a heartbeat to the master if it is due; return the time to the next in ms.

        Rolls back overdue batches.
        """
        now = yield Now()
        self.fetching.expire(now)
        if self._at_master.due(now):
            if late_ms := self._at_master.late_ms(now):
                event_log.heartbeat_is_late(self.group, "the master", late_ms)
            try:
                news = yield from self.heartbeat_master()
            except errors.TubeMQError as error:
                self._note("master", error)
                event_log.heartbeat_failed(self.group, error)
                self._at_master.failed((yield Now()))
            else:
                if self.last_errors.pop("master", None) is not None:
                    event_log.heartbeats_again(self.group)
                if not news:
                    self._at_master.succeeded((yield Now()))
        wait: int = self._at_master.wait_ms((yield Now()))
        return min(wait, max(1, self.consumer.confirm_timeout_ms // 4))

    def broker_heartbeats_if_due(self) -> Conversation[int]:
        """Send RPC 16 to every broker with held partitions if due; return the ms to the next.

        A broker that does not answer keeps its partitions: it may be back before leases end.
        """
        if self._at_brokers.due((yield Now())):
            if late_ms := self._at_brokers.late_ms((yield Now())):
                event_log.heartbeat_is_late(self.group, "brokers", late_ms)
            self._at_brokers.succeeded((yield Now()))
            yield from self.heartbeat_brokers()
        return self._at_brokers.wait_ms((yield Now()))

    def heartbeat_brokers(self) -> Conversation[int]:
        """Send RPC 16 to every broker with held partitions, and drop partitions that are lost.

        Returns the number of brokers that answered.
        """
        return (yield from self._broker_heartbeats.beat(list(self.table.held.values())))

    def rebalance(self) -> Conversation[None]:
        """Perform pending changes of partitions, delivering `Rebalance` values.

        Resumed after the user has received each value.
        """
        if self._lost:
            lost, self._lost = self._lost, []
            yield Deliver(Rebalance("lost", lost))
        if not self.closing:
            yield from self._rebalance()

    def close(self) -> Conversation[None]:
        """Give everything back, rolling back unconfirmed batches, and leave the group.

        Partitions that cannot be given back within `close_wait_ms` are freed when leases end.
        """
        self.closing = True
        yield from self.fetching.give_up()
        deadline = (yield Now()) + self.consumer.close_wait_ms
        unreached: set[BrokerNode] = set()
        for held in list(self.table.held.values()):
            self.table.remove(held.partition)
            broker = held.lease.broker
            late = (yield Now()) >= deadline
            if not late and broker not in unreached and not (yield from self._unregister(held)):
                unreached.add(broker)
        yield from self.master.close_consumer(self.client_id, self.group)
        event_log.left(self.group, self.client_id)

    def fail(self, error: BaseException) -> None:
        """End the membership: every later call raises `error`."""
        if self.failure is None:
            event_log.ended(self.group, error)
        self.failure = self.failure or error
        self.calls.ready()

    # -- partitions -------------------------------------------------------------------------------

    def _register(
        self, partition: Partition, broker: BrokerNode, offset: int | None, read_status: int | None
    ) -> Conversation[Registered]:
        """Take a partition at its broker, at `offset` or at the group's position.

        Without `read_status` the position of the settings is used, for the first time only. The
        partition stays withheld.
        """
        lease = Registration(
            broker,
            partition,
            self.group,
            self._names.of(partition),
            filters=self.topics[partition.topic],
            priority=self.flow.priority,
            access=self.master.access,
        )
        if read_status is None:
            # Only the first success uses up the position: a retry must not start elsewhere.
            first = partition not in self._met
            read_status = READ_STATUS[self.consumer.consume_position] if first else 0
        try:
            # A start position for groups without one would override the offset.
            registered = yield from lease.register(
                offset, read_status=0 if offset is not None else read_status
            )
        except errors.TubeMQError as error:
            if may_be_served_late(error):
                self._names.suspect(partition)
            raise
        self._met.add(partition)
        self._names.taken(partition)
        held = HeldPartition(lease, Pace(self.flow, filtered=bool(lease.filters)))
        held.learn_registered(registered, (yield Now()))
        self.last_errors.pop(str(partition), None)
        self.table.add(held)
        event_log.took(self.group, partition, broker, registered.current)
        return registered

    def _give_back(self, partitions: Iterable[Partition], wait_ms: int) -> Conversation[None]:
        """Stop fetching, wait for confirmations of delivered batches, unregister."""
        held_partitions = sorted(p for p in partitions if p in self.table.held)
        if not held_partitions:
            return
        self.table.exclude(held_partitions)
        event_log.releases_partitions(self.group, held_partitions)
        yield Deliver(Rebalance("revoked", held_partitions))
        deadline = (yield Now()) + wait_ms
        while self.table.busy(held_partitions) and (yield Now()) < deadline and not self.closing:
            yield Sleep(_SLICE_MS)
        for partition in held_partitions:
            held = self.table.held.get(partition)
            if held is not None and self.table.remove(partition, held):
                yield from self._unregister(held)

    def _unregister(self, held: HeldPartition) -> Conversation[bool]:
        """Unregister a partition, sending its local confirmation.

        False if the broker is unreachable. An unconfirmed batch is rolled back, unless the user
        chose otherwise.
        """
        is_delivered = (
            held.use is PartitionState.DELIVERED and not self.consumer.rollback_on_rebalance
        )
        consumed = held.consumed or (is_delivered and not self.closing)
        for _ in range(_UNREGISTER_TRIES):
            try:
                yield from held.lease.unregister(consumed=consumed)
            except errors.ServerError:
                return True  # it is no longer ours, as intended
            except errors.TubeMQError as error:
                if may_be_served_late(error):
                    self._names.suspect(held.partition)
                self._note(f"broker {held.lease.broker}", error)  # the lease ends by itself
            else:
                return True
        return False

    def _lose(self, held: HeldPartition, error: errors.TubeMQError) -> None:
        if self.table.remove(held.partition, held):
            self._note(str(held.partition), error)
            event_log.lost(self.group, held.partition, error)
            self._lost.append(held.partition)
            self._at_master.make_due()  # the master assigns it again once it knows
            self.calls.rebalance()
            self.calls.beat()

    def _note(self, where: str, error: errors.TubeMQError) -> None:
        self.last_errors[where] = error
