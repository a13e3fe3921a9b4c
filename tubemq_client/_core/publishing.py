"""The producer's side of the protocol: register, learn routes, choose a partition, send.

RPC 1, 2, 3 at the master and 13 at brokers. Routes arrive with heartbeats only (a register answers
with brokers, not topics), and a topic without routes is one the master does not accept for
publishing yet. Records are acknowledged from the broker's memory; a crash may lose them.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tubemq_client import _pb, errors
from tubemq_client._core.effects import Await, Deliver, Post, Sleep
from tubemq_client._core.registration import UNDEFINED
from tubemq_client._wire import methods, strings
from tubemq_client._wire.payload import encode_payload
from tubemq_client.model import Partition, SendReceipt

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tubemq_client._core.effects import Conversation, Ticket
    from tubemq_client._core.master import MasterSession
    from tubemq_client.model import BrokerNode

__all__ = ["Encoded", "ProducerSession", "Record"]

_MIB = 2**20
_LARGEST_LIMIT = 20 * _MIB
_OVERFLOW_RETRIES = 60
_OVERFLOW_PAUSE_MS = 50


class Record(NamedTuple):
    """One record to send. `stream_id` is TubeMQ's message type, the thing consumers filter by;
    `msg_time` is `yyyyMMddHHmm`; `partition` None lets the producer choose."""

    body: bytes
    attributes: Mapping[str, str] | None = None
    stream_id: str | None = None
    msg_time: str | None = None
    partition: Partition | None = None


class Encoded(NamedTuple):
    """A record ready for the wire, so that a retry sends the same bytes to the same place."""

    partition: Partition
    broker: BrokerNode
    request: Any


@dataclass(slots=True)
class ProducerSession:
    """Routes and identity of one producer."""

    master: MasterSession
    client_id: str
    brokers: dict[int, BrokerNode] = field(default_factory=dict)
    broker_checksum: int = -1
    topics: set[str] = field(default_factory=set)
    routes: dict[str, list[Partition]] = field(default_factory=dict)
    limits: dict[str, int | None] = field(default_factory=dict)
    default_limit: int = _MIB
    """Bytes of an encoded record, for topics without a limit of their own."""
    _turn: itertools.count[int] = field(default_factory=itertools.count)

    def register(self) -> Conversation[None]:
        request = _pb.RegisterRequestP2M(
            clientId=self.client_id,
            topicList=sorted(self.topics),
            brokerCheckSum=self.broker_checksum,
            hostName=self.master.host,
            appdConfig=_pb.ApprovedClientConfig(configId=UNDEFINED),
        )
        reply = yield from self.master.call(methods.REGISTER_PRODUCER, request)
        self._check(reply, "registering a producer")
        self._learn(reply)

    def heartbeat(self) -> Conversation[None]:
        """Refresh routes; registers again when the master has forgotten this producer."""
        for attempt in (1, 2):
            request = _pb.HeartRequestP2M(
                clientId=self.client_id,
                brokerCheckSum=self.broker_checksum,
                hostName=self.master.host,
                topicList=sorted(self.topics),
            )
            reply = yield from self.master.call(methods.HEARTBEAT_PRODUCER, request)
            try:
                self._check(reply, "producer heartbeat")
            except errors.NotRegistered:
                if attempt == 2:
                    raise
                yield from self.register()
            else:
                break
        self._learn(reply)
        self._learn_routes(reply.topicInfos)

    def close(self) -> Conversation[None]:
        request = _pb.CloseRequestP2M(clientId=self.client_id)
        yield from self.master.call(methods.CLOSE_PRODUCER, request)

    # -- sending ------------------------------------------------------------------------------

    def encode(self, topic: str, record: Record, sent_address: int) -> Encoded:
        """Choose the partition and build the request. Raises `errors.ConfigError` for a record
        that no broker would take, `errors.UnknownTopic` for a topic without routes."""
        partition = self._choose(topic, record.partition)
        if not record.body:
            raise errors.ConfigError("body is empty", subject="record")
        data, flag = encode_payload(
            record.body, record.attributes, stream_id=record.stream_id, msg_time=record.msg_time
        )
        limit = self.limits.get(topic) or self.default_limit
        if len(data) > limit:
            raise errors.ConfigError(
                f"record of {len(data)} bytes exceeds the limit of topic {topic!r}, {limit} bytes",
                subject="record",
            )
        request = _pb.SendMessageRequestP2B(
            clientId=self.client_id,
            topicName=topic,
            partitionId=partition.partition_id,
            data=data,
            flag=flag,
            checkSum=-1,
            sentAddr=sent_address,
            authInfo=self.master.broker_auth(),
        )
        if record.stream_id is not None:
            request.msgType = record.stream_id
        if record.msg_time is not None:
            request.msgTime = record.msg_time
        return Encoded(partition, self.brokers[partition.broker_id], request)

    def send_one(self, topic: str, record: Record, sent_address: int) -> Conversation[SendReceipt]:
        """Send one record and wait for its receipt."""
        encoded = self.encode(topic, record, sent_address)
        return (yield from self.receive(encoded, (yield from self.post(encoded))))

    def send_all(
        self, topic: str, records: Iterable[Record], sent_address: int, in_flight: int
    ) -> Conversation[None]:
        """Send every record with up to `in_flight` unanswered; delivers receipts in order."""
        flights: deque[tuple[Encoded, Ticket]] = deque()
        for record in records:
            encoded = self.encode(topic, record, sent_address)
            flights.append((encoded, (yield from self.post(encoded))))
            if len(flights) >= in_flight:
                yield Deliver((yield from self.receive(*flights.popleft())))
        while flights:
            yield Deliver((yield from self.receive(*flights.popleft())))

    def post(self, encoded: Encoded) -> Conversation[Ticket]:
        ticket: Ticket = yield Post(encoded.broker.address, methods.SEND_MESSAGE, encoded.request)
        return ticket

    def receive(self, encoded: Encoded, ticket: Ticket) -> Conversation[SendReceipt]:
        """The receipt of a posted record. A refusal for overflow (419: not stored) is sent again;
        every other failure is raised, because whether the record was stored is then unknown or
        final, and sending it again could duplicate it."""
        for _ in range(_OVERFLOW_RETRIES):
            reply = yield Await(ticket)
            if reply.success and reply.errCode == errors.SUCCESS:
                message_id = (
                    reply.messageId if reply.HasField("messageId") else int(reply.errMsg or 0)
                )
                return SendReceipt(
                    encoded.partition, reply.appendOffset, message_id, reply.appendTime
                )
            error = errors.for_code(
                reply.errCode, reply.errMsg, where=f"send to partition {encoded.partition}"
            )
            if not isinstance(error, errors.Overflow):
                raise error
            yield Sleep(_OVERFLOW_PAUSE_MS)
            ticket = yield from self.post(encoded)
        raise error

    # -- routes -------------------------------------------------------------------------------

    def _choose(self, topic: str, wanted: Partition | None) -> Partition:
        routes = self.routes.get(topic)
        if not routes:
            raise errors.UnknownTopic(
                431,
                f"topic {topic!r} has no partition that accepts records; it is unknown to the "
                "master, or was just created (a genuine master takes up to a minute)",
            )
        if wanted is None:
            return routes[next(self._turn) % len(routes)]
        if wanted not in routes:
            known = ", ".join(p.key for p in routes)
            raise errors.ConfigError(
                f"partition {wanted.key} of topic {topic!r} is not writable; writable: {known}",
                subject="record",
            )
        return wanted

    def _learn(self, reply: Any) -> None:
        self.master.learn(reply)
        if reply.brokerInfos:
            self.brokers = self.master.parse_brokers(reply.brokerInfos)
        self.broker_checksum = reply.brokerCheckSum
        if reply.HasField("appdConfig") and reply.appdConfig.HasField("maxMsgSize"):
            announced = reply.appdConfig.maxMsgSize
            self.default_limit = min(max(announced, _MIB), _LARGEST_LIMIT)

    def _learn_routes(self, infos: Any) -> None:
        """Replace all routes: every heartbeat carries the full list.

        In one step, since records may be on their way to routes in another thread.
        """
        found: dict[str, list[Partition]] = {}
        limits: dict[str, int | None] = {}
        for text in infos:
            routes = strings.parse_topic_info(text)
            known = [p for p in routes.partitions() if p.broker_id in self.brokers]
            found[routes.topic] = sorted(known)
            limits[routes.topic] = routes.max_message_bytes
        self.routes, self.limits = found, limits

    def _check(self, reply: Any, what: str) -> None:
        if not reply.success:
            raise errors.for_code(reply.errCode, reply.errMsg, where=f"master, {what}")
