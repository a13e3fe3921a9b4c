"""Client-balance consumer: it chooses partitions itself and keeps their leases.

The master (RPC 20-22, 6) knows that the group exists; the brokers (RPC 15, 16) decide which member
holds a partition. Next to the user's calls, `rebalance` gives back partitions that may no longer be
read, and takes the member's share of the group after `keep_share`; members compute shares without
talking to each other. `docs/protocol/client-balance.md` has the protocol, `group` the state and
conversations that all members share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tubemq_client import errors
from tubemq_client._core.assigned_view import RefusalBackoff, TopicView, checked_offset, node_of
from tubemq_client._core.balance_orders import Rebalance
from tubemq_client._core.balance_partitions import HeldPartition, PartitionState
from tubemq_client._core.effects import Deliver, Now, Sleep, WallClock
from tubemq_client._core.fencing import may_be_served_late
from tubemq_client._core.group import READ_STATUS, GroupSession
from tubemq_client._core.master import KnownMetadata
from tubemq_client._core.registration import UNDEFINED, Registered, Registration
from tubemq_client._wire import strings

if TYPE_CHECKING:
    from tubemq_client._core.effects import Conversation
    from tubemq_client.model import BrokerNode, Partition

__all__ = ["READ_STATUS", "AssignedSession"]

_ASSIGN_TRIES = 2
_REPORT_FACTOR = 10
"""Ratio of the report period for unchanged partitions to that of server-balanced members."""

_SLICE_MS = 50
_AGAIN_MS = 1_000
"""Pause after which `keep_share` retries what it did not get."""

_LOST = (errors.NotRegistered, errors.PartitionTaken)
_REFUSED = (errors.PartitionOccupied, errors.AuthenticationFailed)
_PASSING = (
    errors.PartitionOccupied,
    errors.NetworkError,
    errors.RemoteException,
    errors.ServerFailure,
    errors.ServiceUnavailable,
)
_NOT_REACHED = (errors.NetworkError, errors.RemoteException)

Offsets = Callable[["Partition"], "int | None"]
"""Function that returns the offset at which a partition begins; None: the group's position."""


@dataclass(slots=True)
class AssignedSession(GroupSession):
    """Registrations of one consumer; `place` is the group's size and this member's number in it."""

    place: tuple[int, int] = (UNDEFINED, UNDEFINED)
    view: TopicView = field(default_factory=TopicView)
    _offsets: Offsets | None = None
    _unwanted: set[Partition] = field(default_factory=set)
    _assigning: set[Partition] = field(default_factory=set)
    _hold_off: RefusalBackoff = field(default_factory=RefusalBackoff)
    _to_ends: set[Partition] = field(default_factory=set)
    _from_max_id: int = UNDEFINED
    _registered_ms: int | None = None

    @property
    def held(self) -> dict[Partition, HeldPartition]:
        """Partitions that are held now."""
        return self.table.held

    # -- the group ------------------------------------------------------------------------------

    def open(self) -> Conversation[None]:
        """Join the group; see `GroupSession.open`."""
        yield from GroupSession.open(self)
        now = yield Now()
        self._at_master.succeeded(now)
        self._at_brokers.succeeded(now)

    def _join(self) -> Conversation[None]:
        yield from self._register_at_master()
        yield from self.refresh(force=True)

    def _register_at_master(self) -> Conversation[None]:
        reply = yield from self.master.register_consumer(
            self.client_id,
            self.group,
            self.topics,
            flow=self.flow,
            node=self.place,
            known=self._known(),
        )
        wall = yield WallClock()
        # An order given since the last registration is meant for this member, too.
        since = wall if self._registered_ms is None else self._registered_ms
        self._apply_skip_order(reply.opsTaskInfo, since)
        self._registered_ms = wall
        self.view.meta_id = UNDEFINED  # the id belongs to another master

    def refresh(self, *, force: bool = False) -> Conversation[dict[Partition, bool]]:
        """Return the partitions, each with "may be subscribed now".

        Asks the master if the metadata is older than `metadata_period_ms` and no other call is
        asking, or if forced. Raises the failure; the next call asks again.
        """
        now = yield Now()
        due = not self.view.asking and not self.view.is_fresh(now, self.consumer.metadata_period_ms)
        if force or due:
            yield from self._ask_for_view(UNDEFINED if force else self.view.meta_id)
        return dict(self.view.partitions)

    def _ask_for_view(self, known_id: int) -> Conversation[None]:
        self.view.asking = True
        try:
            meta_id, metas = yield from self.master.topic_meta(self.client_id, self.group, known_id)
            self.view.asked_at = yield Now()
        finally:
            self.view.asking = False
        wall = yield WallClock()
        if self.view.learn(meta_id, metas, self.master.brokers, wall):
            self._withhold_unwanted((yield Now()))

    def _withhold_unwanted(self, now: int) -> None:
        """Stop reading partitions that are gone or must not be subscribed any more.

        They are given back when their batch is confirmed or rejected. A master that has just become
        active knows no broker; its view is ignored.
        """
        if self.master.is_switching(now):
            return
        unwanted = {p for p in self.table.held if not self.view.partitions.get(p, False)}
        self.table.admit(self._unwanted - unwanted)
        self.table.exclude(unwanted)
        self._unwanted = unwanted
        if unwanted or self._offsets is not None:
            self.calls.rebalance()

    def close(self) -> Conversation[None]:
        """Leave the group; see `GroupSession.close`.

        A partition that is being assigned is given back, too.
        """
        self.closing = True
        patience_ms = self.settings.rpc_timeout_ms + self.settings.connect_timeout_ms
        deadline = (yield Now()) + patience_ms
        while self._assigning and (yield Now()) < deadline:
            yield Sleep(_SLICE_MS)
        yield from GroupSession.close(self)

    # -- holding partitions -----------------------------------------------------------------------

    def assign(
        self, partition: Partition, offset: int | None, read_status: int | None = None
    ) -> Conversation[Registered]:
        """Take a partition at `offset`, or at the group's position; a held one does not change.

        Without `read_status` the position of the settings is used, for the first time only. Raises
        `errors.ConfigError` for an invalid offset, `errors.PartitionOccupied` while another client
        of the group holds the partition (repeated for some seconds without asking the broker), and
        `errors.ServiceUnavailable` if the partition may not be subscribed.
        """
        checked_offset(partition, offset)
        while partition in self._assigning:
            yield Sleep(_SLICE_MS)
        if (held := self.table.held.get(partition)) is not None:
            current_offset = held.offset
            return (
                Registered(current_offset.current, current_offset.max_offset)
                if current_offset
                else Registered(-1, -1)
            )
        self._assigning.add(partition)
        try:
            yield from self._check_assignable(partition)
            registered = yield from self._try_twice(partition, offset, read_status)
        finally:
            self._assigning.discard(partition)
        self.table.admit([partition])
        return registered

    def _check_assignable(self, partition: Partition) -> Conversation[None]:
        if not self.view.partitions.get(partition, False):
            yield from self.refresh()
        if partition not in self.view.partitions:
            partition_list = ", ".join(str(p) for p in sorted(self.view.partitions)) or "none"
            raise errors.ConfigError(
                f"unknown partition {partition}; known: {partition_list}", subject="assignment"
            )
        now = yield Now()
        if not self.view.partitions[partition] and not self.master.is_switching(now):
            raise errors.ServiceUnavailable(
                503,
                "the master says that it may not be subscribed now",
                where=f"partition {partition}",
            )
        self._hold_off.check(partition, now)

    def _try_twice(
        self, partition: Partition, offset: int | None, read_status: int | None
    ) -> Conversation[Registered]:
        """Register at most twice: a broker refuses the first attempt after an owner died."""
        broker = self.master.brokers[partition.broker_id]
        for attempts_left in reversed(range(_ASSIGN_TRIES)):
            try:
                registered = yield from self._register(partition, broker, offset, read_status)
            except errors.TubeMQError as error:
                if attempts_left and isinstance(error, _PASSING):
                    yield Sleep(self.settings.register_pause_ms)
                    continue
                if isinstance(error, errors.PartitionOccupied | errors.AuthenticationFailed):
                    self._hold_off.note(partition, error, (yield Now()))
                raise
            self._hold_off.forget(partition)
            return registered
        raise AssertionError("the last attempt returns or raises")

    def release(
        self, partition: Partition, *, consumed: bool = False, wait_ms: int = 0
    ) -> Conversation[None]:
        """Give a partition back after its batch is confirmed or rejected, or after `wait_ms`.

        Then the batch is rolled back, or confirmed if `consumed`.
        """
        held = self.table.held.get(partition)
        if held is None:
            return
        self.table.exclude([partition])
        deadline = (yield Now()) + wait_ms
        while self.table.busy([partition]) and (yield Now()) < deadline and not self.closing:
            yield Sleep(_SLICE_MS)
        self._to_ends.discard(partition)
        if not self.table.remove(partition, held):
            return
        try:
            yield from held.lease.unregister(consumed=consumed or held.consumed)
        except BaseException as error:
            if may_be_served_late(error):
                self._names.suspect(partition)
            raise

    # -- a share of the group ---------------------------------------------------------------------

    def beginning(self, offsets: Mapping[Partition, int]) -> Offsets:
        """Return a function for offsets that are used only the first time a partition is taken.

        Raises `errors.ConfigError` for an invalid offset.
        """
        for partition, offset in offsets.items():
            checked_offset(partition, offset)
        return lambda partition: None if partition in self._met else offsets.get(partition)

    def keep_share(self, offsets: Offsets) -> None:
        """Let `rebalance` keep this member's share of the group from now on."""
        self._offsets = offsets
        self.calls.rebalance()

    def _rebalance(self) -> Conversation[None]:
        self.rebalance_wait_ms = None
        yield from self._skip_to_ends()
        if self._unwanted:
            unwanted, self._unwanted = self._unwanted, set()
            yield from self._give_back(unwanted, self.consumer.rebalance_confirm_wait_ms)
        if self._offsets is not None:
            yield from self._keep_share(self._offsets)
        if self._to_ends:
            self.rebalance_wait_ms = _AGAIN_MS

    def _keep_share(self, offsets: Offsets) -> Conversation[None]:
        """Run one round: refresh the metadata, give back partitions of others, take missing ones.

        Masters or brokers that do not answer, and partitions that others hold, are retried soon.
        """
        self.rebalance_wait_ms = _AGAIN_MS
        try:
            yield from self.refresh()
        except errors.TubeMQError as error:
            self._note("master", error)
        others = [p for p in self.table.held if not self._is_mine(p)]
        # The user keeps the current batch as long as it may be confirmed.
        yield from self._give_back(others, self.consumer.confirm_timeout_ms)
        gained = yield from self._take_missing(offsets)
        if gained:
            yield Deliver(Rebalance("assigned", gained))
            self.table.admit(gained)
        if self.table.held.keys() >= set(self.view.share(self.place)):
            self.rebalance_wait_ms = self.consumer.metadata_period_ms

    def _take_missing(self, offsets: Offsets) -> Conversation[list[Partition]]:
        gained = []
        unreached: set[BrokerNode] = set()
        for partition in self.view.share(self.place):
            broker = self.master.brokers.get(partition.broker_id)
            taken = partition in self.table.held or partition in self._assigning
            if taken or self.closing or broker is None or broker in unreached:
                continue
            offset = checked_offset(partition, offsets(partition))
            self._assigning.add(partition)
            try:
                yield from self._register(partition, broker, offset, None)
                gained.append(partition)
            except errors.TubeMQError as error:
                self._note(str(partition), error)
                if isinstance(error, _NOT_REACHED):
                    unreached.add(broker)
            finally:
                self._assigning.discard(partition)
        return gained

    def _is_mine(self, partition: Partition) -> bool:
        source_count, node_id = self.place
        return source_count <= 0 or node_of(partition, source_count) == node_id

    # -- heartbeats -------------------------------------------------------------------------------

    def heartbeat_master(self) -> Conversation[bool]:
        """Send RPC 21 with held partitions if they changed; register again when forgotten."""
        held = frozenset(self.table.held)
        self._heartbeats_since_report += 1
        report_period = self.consumer.report_every_beats * _REPORT_FACTOR
        report = held != self._reported or self._heartbeats_since_report >= report_period
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
            # Brokers keep granting held partitions; the next heartbeat reports them to the master.
            yield from self.master.notice_switch()
            yield from self._register_at_master()
            self._reported = frozenset()
            return False
        if report:
            self._reported, self._heartbeats_since_report = held, 0
        self._apply_skip_order(reply.opsTaskInfo, self._registered_ms)
        if reply.HasField("topicMetaInfoId"):
            metas = [strings.parse_topic_meta(text) for text in reply.topicMetaInfoList]
            wall = yield WallClock()
            if self.view.learn(reply.topicMetaInfoId, metas, self.master.brokers, wall):
                self._withhold_unwanted((yield Now()))
        return False

    # -- what was put off -------------------------------------------------------------------------

    def _apply_skip_order(self, task: Any, since: int | None) -> None:
        """Apply an administrator's order to skip to the ends; its id is its time (epoch ms)."""
        order = task.csmFrmMaxOffsetCtrlId if task.HasField("csmFrmMaxOffsetCtrlId") else -1
        if order >= 0 and order != self._from_max_id:
            self._from_max_id = order
            if since is not None and order > since:
                self._to_ends = set(self.table.held)
                self.calls.rebalance()

    def _skip_to_ends(self) -> Conversation[None]:
        """Register held partitions again, at their ends.

        Failures are retried soon, for a broker that does not answer one partition at a time.
        Heartbeats must not wait for this: leases at the other brokers would end.
        """
        unreached: set[BrokerNode] = set()
        for partition in sorted(self._to_ends):
            held = self.table.held.get(partition)
            if held is None:
                self._to_ends.discard(partition)
            if held is None or held.renewing or self.closing or held.lease.broker in unreached:
                continue
            lease = held.lease
            try:
                registered = yield from self._register_at_end(held, lease)
            except (*_LOST, *_REFUSED) as error:
                if held.lease is lease and not held.renewing:  # otherwise the renewal reports it
                    self._lose(held, error)
            except (errors.ServerError, errors.NetworkError, errors.RemoteException) as error:
                if may_be_served_late(error):
                    self._names.doubt(partition)
                self.last_errors[str(partition)] = error
                if isinstance(error, _NOT_REACHED):
                    unreached.add(lease.broker)
            else:
                self._to_ends.discard(partition)
                held.use, held.token = PartitionState.IDLE, 0
                held.learn_registered(registered, (yield Now()))

    def _register_at_end(
        self, held: HeldPartition, lease: Registration
    ) -> Conversation[Registered]:
        last_end = held.offset.max_offset if held.offset is not None else None
        registered = yield from lease.register(last_end)
        if registered.current < registered.max_offset:  # the known end was outdated
            registered = yield from lease.register(registered.max_offset)
        return registered

    # -- small things -----------------------------------------------------------------------------

    def _known(self) -> KnownMetadata:
        return KnownMetadata(self.view.meta_id, self.view.learned_ms, self._from_max_id)
