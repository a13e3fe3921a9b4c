"""Cluster metadata of a producer: brokers, routes, limits, and the next partition.

RPC 1, 2 and 3 at the master. Routes arrive with heartbeats only (a register answers with brokers,
not topics), and a topic without routes is one the master does not accept for publishing yet.
`sending` sends records along the routes.

Source: `docs/protocol/wire.md#strings-inside-fields-strings` (topic info).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tubemq_client import _pb, errors
from tubemq_client._core import retry
from tubemq_client._core.effects import Now
from tubemq_client._core.limits import check_topic
from tubemq_client._core.registration import UNDEFINED
from tubemq_client._core.routing import Router, SendBreaker, partition_for_key
from tubemq_client._core.send_stats import SendStats
from tubemq_client._wire import methods, strings
from tubemq_client._wire.payload import checksum
from tubemq_client.model import Partition, ProducerSettings

if TYPE_CHECKING:
    from tubemq_client._core.effects import Conversation
    from tubemq_client._core.master import MasterSession
    from tubemq_client._core.send_batch import Record
    from tubemq_client._wire.sending import SendTemplate
    from tubemq_client.model import Address, BrokerNode, ClientSettings

__all__ = ["RouteSession"]

_MIB = 2**20
_LARGEST_LIMIT = 20 * _MIB

_WARMING_UP = 201
"""Code of a master that does not know its brokers yet: success, without routes
(`docs/protocol/errors.md`)."""


@dataclass(slots=True)
class RouteSession:
    """Routes and identity of one producer."""

    master: MasterSession
    client_id: str
    settings: ProducerSettings = field(default_factory=ProducerSettings)
    router: Router | None = None
    brokers: dict[int, BrokerNode] = field(default_factory=dict)
    broker_checksum: int = -1
    config_id: int = UNDEFINED
    topics: set[str] = field(default_factory=set)
    routes: dict[str, list[Partition]] = field(default_factory=dict)
    limits: dict[str, int | None] = field(default_factory=dict)
    default_limit: int = _MIB
    """Bytes of an encoded record, for topics without their own limit."""
    breaker: SendBreaker = field(init=False)
    stats: SendStats = field(default_factory=SendStats)
    _turns: dict[str, itertools.count[int]] = field(default_factory=dict)
    _templates: dict[tuple[int, int, int], tuple[Partition, SendTemplate]] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        self.breaker = SendBreaker(self.settings)

    def join(self, settings: ClientSettings) -> Conversation[None]:
        """Register, up to `register_attempts` times.

        An error that a user must correct is raised at once.
        """
        yield from retry.register(self.master, settings, self.register)

    def register(self) -> Conversation[None]:
        request = _pb.RegisterRequestP2M(
            clientId=self.client_id,
            topicList=sorted(self.topics),
            brokerCheckSum=self.broker_checksum,
            hostName=self.master.host,
            appdConfig=_pb.ApprovedClientConfig(configId=self.config_id),
        )
        reply = yield from self.master.call(methods.REGISTER_PRODUCER, request)
        self._check(reply, "registering a producer")
        self._learn(reply)

    def heartbeat(self) -> Conversation[None]:
        """Refresh routes; register again when the master has forgotten this producer."""
        for attempt in (1, 2):
            request = _pb.HeartRequestP2M(
                clientId=self.client_id,
                brokerCheckSum=self.broker_checksum,
                hostName=self.master.host,
                topicList=sorted(self.topics),
                appdConfig=_pb.ApprovedClientConfig(configId=self.config_id),
            )
            reply = yield from self.master.call(methods.HEARTBEAT_PRODUCER, request)
            try:
                self._check(reply, "producer heartbeat")
            except errors.NotRegistered:
                if attempt == 2:
                    raise
                yield from self.master.notice_switch()
                yield from self.register()
            else:
                break
        now = yield Now()
        self.breaker.judge(now)
        self._learn(reply)
        if reply.errCode != _WARMING_UP:
            self._learn_routes(reply.topicInfos, is_switching=self.master.is_switching(now))

    def announce(self, topic: str) -> Conversation[None]:
        """Announce `topic` and learn its routes, repeating during a switch of masters."""
        check_topic(topic)
        self.topics.add(topic)
        yield from self.master.retry_during_switch(
            self.heartbeat, lambda _: bool(self.routes.get(topic))
        )

    def close(self) -> Conversation[None]:
        request = _pb.CloseRequestP2M(clientId=self.client_id)
        yield from self.master.call(methods.CLOSE_PRODUCER, request)

    def _address(self, broker_id: int) -> Address:
        node = self.brokers.get(broker_id)
        if node is None:
            raise errors.ConnectError(f"broker {broker_id} has left the cluster")
        return node.address

    def _choose(self, topic: str, record: Record, now: int) -> Partition:
        routes = self.routes.get(topic)
        if not routes:
            raise errors.UnknownTopic(
                431,
                f"topic {topic!r} has no partition that accepts records; it is unknown to the "
                "master, or was just created (a genuine master takes up to a minute)",
            )
        requested = record.partition
        if requested is not None:
            if requested in routes:
                return routes[routes.index(requested)]
            if not isinstance(requested, Partition):
                problem = f"partition is {requested!r}, not a Partition such as {routes[0]!r}"
                raise errors.ConfigError(problem, subject="record")
            keys = ", ".join(p.key for p in routes)
            raise errors.ConfigError(
                f"partition {requested.key} of topic {topic!r} is not writable; writable: {keys}",
                subject="record",
            )
        if record.key is not None:
            if not isinstance(record.key, str | bytes):
                problem = f"key is {record.key!r}, neither text nor bytes"
                raise errors.ConfigError(problem, subject="record")
            return partition_for_key(record.key, routes)
        return self._pick(
            topic, record, self.breaker.open(routes, now) if self.breaker.any else routes
        )

    def _pick(self, topic: str, record: Record, partitions: Sequence[Partition]) -> Partition:
        if self.router is not None:
            try:
                chosen = self.router(topic, record, partitions)
            except Exception as error:  # maybe no caller waits
                problem = f"the router failed: {error!r}"
                raise errors.ConfigError(problem, subject="record") from error
            if chosen not in partitions:
                raise errors.ConfigError(
                    f"the router chose {chosen!r}, which is none of the partitions it was given",
                    subject="record",
                )
            return partitions[partitions.index(chosen)]
        turn = self._turns.get(topic)
        if turn is None:
            # Each producer starts at another partition, without a random number.
            turn = self._turns[topic] = itertools.count(checksum(self.client_id.encode()))
        return partitions[next(turn) % len(partitions)]

    def _learn(self, reply: Any) -> None:
        if reply.brokerInfos:
            self.brokers = self.master.parse_brokers(reply.brokerInfos)
        self.broker_checksum = reply.brokerCheckSum
        self._templates.clear()  # they hold the tokens of the last reply
        if reply.HasField("appdConfig"):
            self.config_id = reply.appdConfig.configId
            if reply.appdConfig.HasField("maxMsgSize"):
                announced = reply.appdConfig.maxMsgSize
                self.default_limit = min(max(announced, _MIB), _LARGEST_LIMIT)

    def _learn_routes(self, infos: Sequence[str], *, is_switching: bool) -> None:
        """Replace all routes: every heartbeat carries the full list.

        Replaced in one step, since another thread may be sending records along the routes. A master
        that has just become active knows few routes for some seconds: missing ones are kept then.
        """
        routes_by_topic = dict(self.routes) if is_switching else {}
        limits = dict(self.limits) if is_switching else {}
        for text in infos:
            routes = strings.parse_topic_info(text)
            reachable = [p for p in routes.partitions() if p.broker_id in self.brokers]
            routes_by_topic[routes.topic] = sorted(reachable)
            limits[routes.topic] = routes.max_message_bytes
        self.routes, self.limits = routes_by_topic, limits

    def _check(self, reply: Any, what: str) -> None:
        if not reply.success:
            raise errors.for_code(reply.errCode, reply.errMsg, where=f"master, {what}")
