"""Heartbeats of a group member to its brokers (RPC 16): requests by broker, and their answers.

Shared by the member that the master balances (`balance`) and the one that assigns itself
(`assigned`); those modules decide when to send, and handle lost partitions. All requests are sent
before the first answer is awaited, so a slow broker does not cost the leases at the others.

Source: `docs/protocol/balance.md#heartbeats`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tubemq_client import _pb, errors
from tubemq_client._core.effects import Await, Now, Post
from tubemq_client._wire import methods, strings

if TYPE_CHECKING:
    from tubemq_client._core.balance_partitions import HeldPartition
    from tubemq_client._core.effects import Conversation, Ticket
    from tubemq_client._core.flow_control import FlowControl
    from tubemq_client._core.master import MasterSession
    from tubemq_client._core.registration import Registration
    from tubemq_client.model import BrokerNode, Partition

__all__ = ["BrokerHeartbeats"]


class _Leases(NamedTuple):
    """Leases that one heartbeat keeps: partitions of one broker, held under one client id."""

    broker: BrokerNode
    client_id: str
    held: dict[Partition, tuple[HeldPartition, Registration]]


@dataclass(slots=True)
class BrokerHeartbeats:
    """Heartbeats to all brokers of one member of `group`, every `period_ms`.

    `on_lost` receives partitions that a broker no longer grants; `last_errors` has the last error
    by broker.
    """

    master: MasterSession
    group: str
    flow: FlowControl
    period_ms: int
    on_lost: Callable[[HeldPartition, errors.TubeMQError], None]
    last_errors: dict[str, errors.TubeMQError]
    _away: dict[BrokerNode, int] = field(default_factory=dict)
    """Time of the last failed attempt to reach each broker."""

    def beat(self, held: Iterable[HeldPartition]) -> Conversation[int]:
        """Ask every broker of `held`; return the number of brokers that answered.

        A broker that does not answer keeps its partitions, as it may be back before their leases
        end.
        """
        posted = yield from self._post(held)
        reached = set()
        for leases, ticket in posted:
            try:
                reply = yield Await(ticket)
                reached.add(leases.broker)
                self._handle_reply(leases, reply)
            except errors.TubeMQError as error:
                self.last_errors[f"broker {leases.broker}"] = error
        return len(reached)

    def _post(self, held: Iterable[HeldPartition]) -> Conversation[list[tuple[_Leases, Ticket]]]:
        started = yield Now()
        posted = []
        groups = sorted(_grouped(held), key=lambda leases: self._away.get(leases.broker, -1))
        unreached: set[BrokerNode] = set()
        for leases in groups:
            broker = leases.broker
            if broker in unreached:
                continue
            # Connecting takes seconds: brokers that answer come first, and in time again.
            if broker in self._away and (yield Now()) - started > self.period_ms // 2:
                break
            try:
                ticket = yield Post(broker.address, methods.HEARTBEAT_BROKER, self._request(leases))
            except errors.TubeMQError as error:
                self._away[broker] = yield Now()
                unreached.add(broker)
                self.last_errors[f"broker {broker}"] = error
            else:
                self._away.pop(broker, None)
                posted.append((leases, ticket))
        return posted

    def _request(self, leases: _Leases) -> Any:
        return _pb.HeartBeatRequestC2B(
            clientId=leases.client_id,
            groupName=self.group,
            readStatus=0,
            qryPriorityId=self.flow.priority,
            partitionInfo=[
                strings.format_partition_info(leases.broker, partition) for partition in leases.held
            ],
            authInfo=self.master.broker_auth(),
        )

    def _handle_reply(self, leases: _Leases, reply: Any) -> None:
        where = f"heartbeat to broker {leases.broker}"
        if not reply.success:
            refusal = errors.for_code(reply.errCode, reply.errMsg, where=where)
            self.last_errors[f"broker {leases.broker}"] = refusal
            if isinstance(refusal, errors.AuthenticationFailed):
                for held, _ in leases.held.values():
                    self.on_lost(held, refusal)
            return
        self.last_errors.pop(f"broker {leases.broker}", None)
        for held, refusal in self._lost(reply, leases, where):
            self.on_lost(held, refusal)

    def _lost(
        self, reply: Any, leases: _Leases, where: str
    ) -> Iterator[tuple[HeldPartition, errors.ServerError]]:
        """Yield each partition that the broker no longer grants, with its refusal.

        Skips partitions that were registered since the request, or are being renewed; an unreadable
        entry does not hide the others.
        """
        if not reply.hasPartFailure:
            return
        for text in reply.failureInfo:
            try:
                failure = strings.parse_failure_info(text)
            except errors.ProtocolViolation as error:
                self.last_errors[f"broker {leases.broker}"] = error
                continue
            held, lease = leases.held.get(failure.partition, (None, None))
            if held is not None and held.lease is lease and not held.renewing:
                yield held, errors.for_code(failure.code, text, where=where)


def _grouped(held: Iterable[HeldPartition]) -> list[_Leases]:
    leases_by_client: dict[tuple[BrokerNode, str], _Leases] = {}
    for item in held:
        lease = item.lease
        key = lease.broker, lease.client_id
        leases = leases_by_client.setdefault(key, _Leases(*key, {}))
        leases.held[item.partition] = (item, lease)
    return list(leases_by_client.values())
