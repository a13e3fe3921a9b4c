"""A client-balance consumer: it chooses partitions itself and keeps them alive.

The master (RPC 20–22, 6) knows that the group exists; the brokers (RPC 15–18) arbitrate who holds a
partition. Exactly one batch per partition is out at a time; confirming it moves the group's stored
position, rejecting it makes the broker deliver it again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tubemq_client import _pb, errors
from tubemq_client._core.batch import DecodePolicy, MessageBatch, RawBatch
from tubemq_client._core.effects import Await, Call, Now, WallNow
from tubemq_client._core.flow_control import Fetched, FlowControl, Pace
from tubemq_client._core.registration import UNDEFINED, Registered, Registration
from tubemq_client._wire import methods, strings

if TYPE_CHECKING:
    from tubemq_client._core.effects import Conversation
    from tubemq_client._core.master import MasterSession
    from tubemq_client.model import BrokerNode, Partition

__all__ = ["READ_STATUS", "AssignedSession"]

READ_STATUS = {"earliest": 0, "latest": 1, "always_latest": 2}
"""Where a group without a stored position starts, as brokers number it."""

NOT_FOUND_WAIT_MS = 400
"""How long a waiting pull leaves a partition alone that had nothing to read."""


@dataclass(slots=True)
class AssignedSession:
    """Registrations of one consumer. `topics` maps topic names to their filter items."""

    master: MasterSession
    group: str
    client_id: str
    topics: dict[str, tuple[str, ...]]
    corrupt_records: str = "fail"
    priority: int = UNDEFINED
    partitions: dict[Partition, bool] = field(default_factory=dict)
    held: dict[Partition, Registration] = field(default_factory=dict)
    flow: FlowControl = field(default_factory=FlowControl)
    not_before: dict[Partition, int] = field(default_factory=dict)
    """When flow rules allow the next fetch, ms of the monotonic clock."""
    _paces: dict[Partition, Pace] = field(default_factory=dict)
    _reported: frozenset[Partition] = frozenset()
    _decode: dict[str, DecodePolicy] = field(default_factory=dict)

    def open(self) -> Conversation[None]:
        yield from self._register()
        yield from self.refresh()

    def _register(self) -> Conversation[None]:
        yield from self.master.register_consumer(
            self.client_id, self.group, self.topics, flow=self.flow
        )

    def refresh(self) -> Conversation[dict[Partition, bool]]:
        """Ask the master for partitions and which may be subscribed."""
        found = yield from self.master.partition_meta(self.client_id, self.group)
        self.partitions = {p: ready for per in found.values() for p, ready in per.items()}
        return dict(self.partitions)

    def assign(
        self, partition: Partition, offset: int | None, read_status: int
    ) -> Conversation[Registered]:
        """Take a partition at `offset`, or where the group stands. Raises
        `errors.PartitionOccupied` while another client of the group holds it."""
        if partition not in self.partitions:
            known = ", ".join(str(p) for p in sorted(self.partitions)) or "none"
            raise errors.ConfigError(
                f"unknown partition {partition}; known: {known}", subject="assignment"
            )
        lease = Registration(
            self.master.brokers[partition.broker_id],
            partition,
            self.group,
            self.client_id,
            filters=self.topics[partition.topic],
            priority=self.priority,
            access=self.master.access,
        )
        found = yield from lease.register(offset, read_status=read_status)
        self.held[partition] = lease
        return found

    def pull(self, partition: Partition) -> Conversation[MessageBatch | None]:
        """One batch, or None when there is nothing to read now, or a flow rule asks to wait: then
        the broker is not asked. A lost partition is dropped from `held` and the refusal raised
        (`errors.NotRegistered`, `errors.PartitionTaken`)."""
        lease = self._lease(partition)
        if (yield Now()) < self.not_before.get(partition, 0):
            return None
        reply = yield Await((yield from lease.post_fetch(consumed=False)))
        yield from self._keep_pace(partition, reply)
        if reply.success and reply.errCode == errors.SUCCESS:
            raw = RawBatch(reply.currOffset, reply.messages)
            return MessageBatch(
                partition,
                raw,
                end=None,
                count=len(raw.messages),
                exact=False,
                policy=self._policy(partition.topic),
            )
        if reply.errCode in (errors.NOT_FOUND, errors.SPEED_LIMIT):
            return None
        error = errors.for_code(reply.errCode, reply.errMsg, where=f"fetch of {lease.where}")
        if isinstance(error, errors.NotRegistered | errors.PartitionTaken):
            self.held.pop(partition, None)
        raise error

    def next_try_ms(self, partition: Partition, now: int) -> int:
        """How long a caller who found nothing should wait before it pulls again."""
        return max(NOT_FOUND_WAIT_MS, self.not_before.get(partition, 0) - now)

    def _keep_pace(self, partition: Partition, reply: Any) -> Conversation[None]:
        """Note when the partition may be asked again. Without a rule that is at once: a caller who
        finds nothing decides how long to wait."""
        pace = self._paces.get(partition)
        if pace is None:
            filtered = bool(self.topics[partition.topic])
            pace = self._paces[partition] = Pace(self.flow, filtered=filtered)
        limit_ms = reply.minLimitTime if reply.errCode == errors.SPEED_LIMIT else 0
        fetched = Fetched(
            reply.errCode,
            sum(len(message.payLoadData) for message in reply.messages),
            reply.currDataDlt if reply.HasField("currDataDlt") else -1,
            exempt=reply.escFlowCtrl,
            slow=reply.requireSlow,
            otherwise_ms=limit_ms,
        )
        now = yield Now()
        self.not_before[partition] = now + pace.delay_ms(fetched, now, (yield WallNow()))

    def confirm(self, partition: Partition, *, consumed: bool) -> Conversation[Registered]:
        """Commit (or roll back) the batch in flight; answers with the group's position."""
        return (yield from self._lease(partition).commit(consumed=consumed))

    def release(self, partition: Partition, *, consumed: bool) -> Conversation[None]:
        lease = self.held.pop(partition, None)
        self.not_before.pop(partition, None)
        self._paces.pop(partition, None)
        if lease is not None:
            yield from lease.unregister(consumed=consumed)

    def heartbeat(self) -> Conversation[None]:
        """Beat to brokers and master. Whoever is away does not cost what the others hold: it is an
        error only if nobody answers."""
        reached = yield from self.heartbeat_brokers()
        try:
            yield from self.heartbeat_master()
        except (errors.NetworkError, errors.RemoteException):
            if not reached:
                raise

    def heartbeat_master(self) -> Conversation[None]:
        """RPC 21, reporting held partitions when they changed; re-registers when forgotten."""
        held = frozenset(self.held)
        try:
            yield from self.master.heartbeat_consumer(
                self.client_id,
                self.group,
                sorted(held),
                report=held != self._reported,
                flow=self.flow,
            )
        except errors.NotRegistered:
            yield from self._register()
            held = frozenset()
        self._reported = held

    def heartbeat_brokers(self) -> Conversation[int]:
        """RPC 16 to every broker with held partitions; drops those it says are lost. Returns how
        many answered: one that does not may be back before its leases end."""
        reached = 0
        by_broker: dict[BrokerNode, list[Partition]] = {}
        for partition, lease in self.held.items():
            by_broker.setdefault(lease.broker, []).append(partition)
        for broker, partitions in by_broker.items():
            request = _pb.HeartBeatRequestC2B(
                clientId=self.client_id,
                groupName=self.group,
                readStatus=0,
                qryPriorityId=self.priority,
                partitionInfo=[strings.format_partition_info(broker, p) for p in partitions],
                authInfo=self.master.broker_auth(),
            )
            try:
                reply = yield Call(broker.address, methods.HEARTBEAT_BROKER, request)
            except (errors.NetworkError, errors.RemoteException):
                continue
            reached += 1
            if reply.success and reply.hasPartFailure:
                for text in reply.failureInfo:
                    self.held.pop(strings.parse_failure_info(text).partition, None)
        return reached

    def close(self) -> Conversation[None]:
        """Give everything back, rolling back what was not confirmed, and leave the group."""
        for partition in list(self.held):
            try:
                yield from self.release(partition, consumed=False)
            except (errors.ServerError, errors.NetworkError, errors.RemoteException):
                continue  # the lease expires by itself
        yield from self.master.close_consumer(self.client_id, self.group)

    def _policy(self, topic: str) -> DecodePolicy:
        policy = self._decode.get(topic)
        if policy is None:
            filters = frozenset(self.topics[topic])
            policy = self._decode[topic] = DecodePolicy(self.corrupt_records, None, filters)
        return policy

    def _lease(self, partition: Partition) -> Registration:
        try:
            return self.held[partition]
        except KeyError:
            raise errors.ConfigError(
                f"partition {partition} is not assigned to this consumer", subject="assignment"
            ) from None
