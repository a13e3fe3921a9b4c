"""A client-balance consumer: it chooses partitions itself and keeps them alive.

The master (RPC 20-22, 6) knows that the group exists; the brokers (RPC 15, 16) arbitrate who holds
a partition. What is held is fetched and confirmed by `assigned_fetch`. Two conversations run beside
the user's calls: `beat_master` and `beat_brokers`, of which the latter also does what cannot be
done at once, giving back partitions that may not be read any more and skipping to the ends on an
administrator's order. `docs/protocol/client-balance.md` has the protocol.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tubemq_client import errors
from tubemq_client._core.assigned_fetch import AssignedFetch
from tubemq_client._core.assigned_view import HoldOff, TopicView
from tubemq_client._core.balance_orders import Calls
from tubemq_client._core.balance_partitions import HeldPartition, Use
from tubemq_client._core.batch import DecodePolicies
from tubemq_client._core.broker_beats import BrokerBeats
from tubemq_client._core.effects import Now, Sleep, WallNow
from tubemq_client._core.flow_control import FlowControl, Pace
from tubemq_client._core.leases import HeartbeatSchedule
from tubemq_client._core.master import Known
from tubemq_client._core.registration import UNDEFINED, Registered, Registration
from tubemq_client._core.renewal import LeaseNames, may_be_served_late
from tubemq_client._core.trouble import Trouble
from tubemq_client._wire import strings
from tubemq_client.model import ClientSettings, ConsumerSettings

if TYPE_CHECKING:
    from tubemq_client._core.effects import Conversation
    from tubemq_client._core.master import MasterSession
    from tubemq_client.model import Partition

__all__ = ["READ_STATUS", "AssignedSession"]

READ_STATUS = {"earliest": 0, "latest": 1, "always_latest": 2}
"""Where a group without a stored position starts, as brokers number it."""

_ASSIGN_TRIES = 2
_REPORT_FACTOR = 10
"""Reports of unchanged partitions are this much rarer than those of server-balanced members."""

_LOST = (errors.NotRegistered, errors.PartitionTaken)
_REFUSED = (errors.PartitionOccupied, errors.AuthenticationFailed)
_PASSING = (
    errors.NetworkError,
    errors.RemoteException,
    errors.ServerFailure,
    errors.ServiceUnavailable,
)


@dataclass(slots=True)
class AssignedSession:
    """Registrations of one consumer. `topics` maps topic names to their filter items; `place` is
    the group's size and this member's number in it."""

    master: MasterSession
    group: str
    client_id: str
    topics: dict[str, tuple[str, ...]]
    corrupt_records: str = "fail"
    settings: ClientSettings = field(default_factory=lambda: ClientSettings(()))
    consumer: ConsumerSettings = field(default_factory=ConsumerSettings)
    place: tuple[int, int] = (UNDEFINED, UNDEFINED)
    calls: Calls = field(default_factory=Calls)
    view: TopicView = field(default_factory=TopicView)
    held: dict[Partition, HeldPartition] = field(default_factory=dict)
    flow: FlowControl = field(default_factory=FlowControl)
    trouble: Trouble = field(default_factory=Trouble)
    failure: Exception | None = None
    closing: bool = False
    _met: set[Partition] = field(default_factory=set)
    _hold_off: HoldOff = field(default_factory=HoldOff)
    _leave_at: dict[Partition, int] = field(default_factory=dict)
    _to_ends: set[Partition] = field(default_factory=set)
    _from_max_id: int = UNDEFINED
    _registered_ms: int | None = None
    _reported: frozenset[Partition] = frozenset()
    _beats: int = 0
    fetching: AssignedFetch = field(init=False)
    _names: LeaseNames = field(init=False)
    _beats_to_brokers: BrokerBeats = field(init=False)
    _at_master: HeartbeatSchedule = field(init=False)
    _at_brokers: HeartbeatSchedule = field(init=False)

    def __post_init__(self) -> None:
        self._at_master = HeartbeatSchedule.of(self.settings)
        # Brokers are many: one that is away must not slow down the beats that keep the others.
        period = self.settings.heartbeat_period_ms
        self._at_brokers = HeartbeatSchedule(period, period)
        self._beats_to_brokers = BrokerBeats(
            self.master, self.group, self.flow, period, self._lose, self.trouble
        )
        self._names = LeaseNames(self.client_id)
        self.fetching = AssignedFetch(
            self.held,
            self._names,
            DecodePolicies(self.topics, self.corrupt_records),
            self.consumer,
            self.calls,
            self._lose,
            self.trouble,
        )

    # -- the group ------------------------------------------------------------------------------

    def open(self) -> Conversation[None]:
        """Join the group. Raises what a person must mend (`errors.UnknownTopic`,
        `errors.GroupInconsistent`, …) at once, the rest after `register_attempts`."""
        for attempt in range(1, self.settings.register_attempts + 1):
            try:
                yield from self._register()
                yield from self.refresh(force=True)
            except errors.TubeMQError as error:
                hopeless = error.fatal or not error.retriable
                if hopeless and self.master.may_pass(error, (yield Now())):
                    hopeless = False
                if hopeless or attempt == self.settings.register_attempts:
                    raise
            else:
                break
            yield Sleep(self.settings.register_pause_ms)
        now = yield Now()
        self._at_master.succeeded(now)
        self._at_brokers.succeeded(now)

    def _register(self) -> Conversation[None]:
        reply = yield from self.master.register_consumer(
            self.client_id,
            self.group,
            self.topics,
            flow=self.flow,
            node=self.place,
            known=self._known(),
        )
        wall = yield WallNow()
        # An order given since the last registration was meant for us, too.
        since = wall if self._registered_ms is None else self._registered_ms
        self._heed(reply.opsTaskInfo, since)
        self._registered_ms = wall

    def refresh(self, *, force: bool = False) -> Conversation[dict[Partition, bool]]:
        """The partitions and which may be subscribed. Asks the master if that is older than
        `metadata_period_ms`, or if forced to."""
        now = yield Now()
        if force or not self.view.is_fresh(now, self.consumer.metadata_period_ms):
            self.view.asked_at = now
            meta_id, metas = yield from self.master.topic_meta(self.client_id, self.group)
            wall = yield WallNow()
            if self.view.learn(meta_id, metas, self.master.brokers, wall):
                self._withhold_unwanted((yield Now()))
        return dict(self.view.partitions)

    def _withhold_unwanted(self, now: int) -> None:
        """Read no more what is gone or not to be subscribed; given back when its batch is settled.
        A master that has just become active knows of no broker: that is no reason."""
        if self.master.settling(now):
            return
        for partition, held in self.held.items():
            held.withheld = not self.view.partitions.get(partition, False)
            if not held.withheld:
                self._leave_at.pop(partition, None)
            elif partition not in self._leave_at:
                self._leave_at[partition] = now + self.consumer.rebalance_confirm_wait_ms
                self.calls.beat()

    # -- holding partitions -----------------------------------------------------------------------

    def assign(
        self, partition: Partition, offset: int | None, read_status: int | None = None
    ) -> Conversation[Registered]:
        """Take a partition at `offset`, or where the group stands; one that is held stays as it is.

        Without `read_status` the settings' position counts the first time. Raises
        `errors.PartitionOccupied` while another client of the group holds it, for some seconds
        without asking again, and `errors.ServiceUnavailable` if it may not be subscribed.
        """
        if (held := self.held.get(partition)) is not None:
            known = held.offset
            return Registered(known.current, known.max_offset) if known else Registered(-1, -1)
        yield from self._check_assignable(partition)
        first = partition not in self._met
        if read_status is None:
            read_status = READ_STATUS[self.consumer.consume_position] if first else 0
        lease = Registration(
            self.master.brokers[partition.broker_id],
            partition,
            self.group,
            self._names.of(partition),
            filters=self.topics[partition.topic],
            priority=self.flow.priority,
            access=self.master.access,
        )
        found = yield from self._register_at_broker(lease, offset, read_status)
        self._met.add(partition)
        self._hold_off.forget(partition)
        held = HeldPartition(lease, Pace(self.flow, filtered=bool(lease.filters)))
        held.learn_registered(found, (yield Now()))
        self.held[partition] = held
        self.calls.ready()
        return found

    def _check_assignable(self, partition: Partition) -> Conversation[None]:
        if not self.view.partitions.get(partition, False):
            yield from self.refresh()
        if partition not in self.view.partitions:
            known = ", ".join(str(p) for p in sorted(self.view.partitions)) or "none"
            raise errors.ConfigError(
                f"unknown partition {partition}; known: {known}", subject="assignment"
            )
        now = yield Now()
        if not self.view.partitions[partition] and not self.master.settling(now):
            raise errors.ServiceUnavailable(
                503,
                "the master says that it may not be subscribed now",
                where=f"partition {partition}",
            )
        self._hold_off.check(partition, now)

    def _register_at_broker(
        self, lease: Registration, offset: int | None, read_status: int
    ) -> Conversation[Registered]:
        for attempt in range(1, _ASSIGN_TRIES + 1):
            try:
                found = yield from lease.register(offset, read_status=read_status)
            except _REFUSED as error:
                self._hold_off.note(lease.partition, error, (yield Now()))
                raise
            except _PASSING as error:
                if may_be_served_late(error):
                    self._names.suspect(lease.partition)
                if attempt == _ASSIGN_TRIES:
                    raise
            else:
                self._names.taken(lease.partition)
                return found
            yield Sleep(self.settings.register_pause_ms)
        raise AssertionError("the last attempt returns or raises")

    def release(self, partition: Partition, *, consumed: bool) -> Conversation[None]:
        self._leave_at.pop(partition, None)
        self._to_ends.discard(partition)
        held = self.held.pop(partition, None)
        if held is None:
            return
        try:
            yield from held.lease.unregister(consumed=consumed)
        except BaseException as error:
            if may_be_served_late(error):
                self._names.suspect(partition)
            raise

    def close(self) -> Conversation[None]:
        """Give everything back, rolling back what was not confirmed, and leave the group. What
        cannot be given back within `close_wait_ms` is freed when leases end."""
        deadline = (yield Now()) + self.consumer.close_wait_ms
        for partition in list(self.held):
            if (yield Now()) >= deadline:
                break
            try:
                yield from self.release(partition, consumed=False)
            except (errors.ServerError, errors.NetworkError, errors.RemoteException):
                continue  # the lease expires by itself
        yield from self.master.close_consumer(self.client_id, self.group)

    # -- heartbeats -------------------------------------------------------------------------------

    def beat_master(self) -> Conversation[int]:
        """RPC 21 if it is due; returns the time to the next in ms."""
        if self._at_master.due((yield Now())):
            try:
                yield from self.heartbeat_master()
            except errors.TubeMQError as error:
                self.trouble["master"] = error
                self._at_master.failed((yield Now()))
            else:
                self.trouble.pop("master", None)
                self._at_master.succeeded((yield Now()))
        return self._at_master.wait_ms((yield Now()))

    def beat_brokers(self) -> Conversation[int]:
        """RPC 16 if it is due, and what was put off; returns the time to the next in ms."""
        if self._at_brokers.due((yield Now())):
            yield from self.heartbeat_brokers()
            self._at_brokers.succeeded((yield Now()))
        yield from self._skip_to_ends()
        yield from self._give_back()
        now = yield Now()
        wait: int = self._at_brokers.wait_ms(now)
        for at in self._leave_at.values():
            wait = min(wait, max(0, at - now))
        return wait

    def heartbeat_master(self) -> Conversation[None]:
        """RPC 21, reporting held partitions when they changed; re-registers when forgotten."""
        held = frozenset(self.held)
        self._beats += 1
        rare = self.consumer.report_every_beats * _REPORT_FACTOR
        report = held != self._reported or self._beats >= rare
        try:
            reply = yield from self.master.heartbeat_consumer(
                self.client_id,
                self.group,
                sorted(held),
                report=report,
                flow=self.flow,
                known=self._known(),
            )
        except errors.NotRegistered:
            # Brokers go on granting what is held; the next heartbeat tells the master of it.
            yield from self.master.notice_switch()
            yield from self._register()
            self._reported = frozenset()
            return
        if report:
            self._reported, self._beats = held, 0
        self._heed(reply.opsTaskInfo, self._registered_ms)
        if reply.HasField("topicMetaInfoId"):
            metas = [strings.parse_topic_meta(text) for text in reply.topicMetaInfoList]
            wall = yield WallNow()
            if self.view.learn(reply.topicMetaInfoId, metas, self.master.brokers, wall):
                self._withhold_unwanted((yield Now()))

    def heartbeat_brokers(self) -> Conversation[int]:
        """RPC 16 to every broker with held partitions; drops those it says are lost. Returns how
        many answered: one that does not may be back before its leases end."""
        return (yield from self._beats_to_brokers.beat(list(self.held.values())))

    # -- what was put off -------------------------------------------------------------------------

    def _give_back(self) -> Conversation[None]:
        """Unregister what was withheld, once its batch is settled or its time is over."""
        for partition, at in list(self._leave_at.items()):
            held = self.held.get(partition)
            if held is None:
                self._leave_at.pop(partition, None)
            elif held.use is Use.IDLE or (yield Now()) >= at:
                # A batch that is out is rolled back, unless the user chose otherwise.
                out = held.use is Use.DELIVERED
                consumed = out and not self.consumer.rollback_on_rebalance
                try:
                    yield from self.release(partition, consumed=consumed)
                except (errors.ServerError, errors.NetworkError, errors.RemoteException) as error:
                    self.trouble[str(partition)] = error  # the lease ends by itself

    def _heed(self, task: Any, since: int | None) -> None:
        """An administrator's order to skip to the newest data. Its id is its time (epoch ms)."""
        order = task.csmFrmMaxOffsetCtrlId if task.HasField("csmFrmMaxOffsetCtrlId") else -1
        if order >= 0 and order != self._from_max_id:
            self._from_max_id = order
            if since is not None and order > since:
                self._to_ends = set(self.held)
                self.calls.beat()

    def _skip_to_ends(self) -> Conversation[None]:
        """Register held partitions again, at their ends. What fails is tried with later beats."""
        for partition in sorted(self._to_ends):
            held = self.held.get(partition)
            if held is None:
                self._to_ends.discard(partition)
            if held is None or held.renewing:
                continue
            lease = held.lease
            try:
                found = yield from self._register_at_end(held, lease)
            except (*_LOST, *_REFUSED) as error:
                if held.lease is lease and not held.renewing:  # otherwise the renewal will tell
                    self._lose(held, error)
            except (errors.ServerError, errors.NetworkError, errors.RemoteException) as error:
                if may_be_served_late(error):
                    self._names.doubt(partition)
                self.trouble[str(partition)] = error
            else:
                self._to_ends.discard(partition)
                held.use, held.token = Use.IDLE, 0
                held.learn_registered(found, (yield Now()))

    def _register_at_end(
        self, held: HeldPartition, lease: Registration
    ) -> Conversation[Registered]:
        known = held.offset.max_offset if held.offset is not None else None
        found = yield from lease.register(known)
        if found.current < found.max_offset:  # what we knew of the end was old
            found = yield from lease.register(found.max_offset)
        return found

    # -- small things -----------------------------------------------------------------------------

    def fail(self, error: Exception) -> None:
        """Nobody keeps partitions any more: whoever asks is told `error`."""
        self.failure = self.failure or error
        self.calls.ready()

    def _known(self) -> Known:
        return Known(self.view.meta_id, self.view.learned_ms, self._from_max_id)

    def _lose(self, held: HeldPartition, error: errors.TubeMQError) -> None:
        if self.held.get(held.partition) is held:
            del self.held[held.partition]
            self.trouble[str(held.partition)] = error
            self._at_master.hurry()
            self.calls.beat()
