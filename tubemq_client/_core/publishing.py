"""The producer's side of the protocol: register, learn routes, choose a partition, send.

RPC 1, 2, 3 at the master and 13 at brokers. Routes arrive with heartbeats only (a register answers
with brokers, not topics), and a topic without routes is one the master does not accept for
publishing yet. Records are acknowledged from the broker's memory; a crash may lose them.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tubemq_client import _pb, errors
from tubemq_client._core.effects import Await, AwaitAll, Deliver, Now, Post, PostAll, Sleep
from tubemq_client._core.flights import Flight, Record, fate_unknown, pieces
from tubemq_client._core.record_size import judge_size
from tubemq_client._core.registration import UNDEFINED
from tubemq_client._core.routing import Detours, Router, partition_for_key
from tubemq_client._core.send_stats import SendStats
from tubemq_client._wire import methods, strings
from tubemq_client._wire.payload import checksum, encode_payload
from tubemq_client._wire.sending import SendTemplate
from tubemq_client.model import Partition, ProducerSettings, SendReceipt

if TYPE_CHECKING:
    from tubemq_client._core.effects import Conversation
    from tubemq_client._core.master import MasterSession
    from tubemq_client.model import Address, BrokerNode, ClientSettings

__all__ = ["Flight", "ProducerSession", "Record"]

_MIB = 2**20
_LARGEST_LIMIT = 20 * _MIB

_GROUPS = 4
"""A window of records is put on the wire in so many groups, so that some are always under way."""

_UNKNOWN_RETRIES = 3

_UNKNOWN = (errors.NetworkError, errors.RemoteException, errors.ProtocolViolation)
"""Instead of a reply: whether the record was stored is not known."""

_NOT_STORED = (errors.Overflow, errors.ServiceUnavailable, errors.Forbidden)
"""Refusals of a broker that mean the record was certainly not stored."""


@dataclass(slots=True)
class ProducerSession:
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
    """Bytes of an encoded record, for topics without a limit of their own."""
    detours: Detours = field(init=False)
    stats: SendStats = field(default_factory=SendStats)
    _turns: dict[str, itertools.count[int]] = field(default_factory=dict)
    _templates: dict[tuple[Partition, int, int], SendTemplate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.detours = Detours(self.settings)

    def join(self, settings: ClientSettings) -> Conversation[None]:
        """Register, up to `register_attempts` times. What a person must mend is raised at once."""
        for attempts_left in reversed(range(settings.register_attempts)):
            try:
                return (yield from self.register())
            except errors.TubeMQError as error:
                if error.fatal or not error.retriable or not attempts_left:
                    raise
                yield Sleep(settings.register_pause_ms)
        return None

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
        """Refresh routes; registers again when the master has forgotten this producer."""
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
        self.detours.judge(now)
        self._learn(reply)
        self._learn_routes(reply.topicInfos, settling=self.master.settling(now))

    def announce(self, topic: str) -> Conversation[None]:
        """Publish `topic` and learn its routes, for which it outlasts a switch of masters."""
        self.topics.add(topic)
        yield from self.master.outlast(self.heartbeat, lambda _: bool(self.routes.get(topic)))

    def close(self) -> Conversation[None]:
        request = _pb.CloseRequestP2M(clientId=self.client_id)
        yield from self.master.call(methods.CLOSE_PRODUCER, request)

    # -- sending ------------------------------------------------------------------------------

    def send_one(self, topic: str, record: Record, sent_address: int) -> Conversation[SendReceipt]:
        """Send one record and wait for its receipt."""
        flight = self.encode(topic, record, sent_address, (yield Now()))
        return (yield from self.send_flight(flight))

    def send_all(
        self, topic: str, records: Iterable[Record], sent_address: int, in_flight: int
    ) -> Conversation[None]:
        """Send every record with up to `in_flight` unanswered; delivers receipts in order.

        A list or tuple is put on the wire in groups, a system call each; from other iterables
        records are taken one by one, as their next one may be long in coming. Raises the first
        failure when its turn comes.
        """
        yield from self._window(topic, records, sent_address, in_flight, self._deliver)

    def send_each(
        self, topic: str, records: Iterable[Record], sent_address: int, in_flight: int
    ) -> Conversation[None]:
        """Like `send_all`, but goes on after failures: delivers a receipt or an error for each,
        beside the size of its body."""
        yield from self._window(topic, records, sent_address, in_flight, self._settle)

    def settle(self, flights: Sequence[Flight]) -> Conversation[None]:
        """Deliver a receipt or an error for each record on its way, like `send_each`."""
        yield from self._land(flights, self._settle)

    def _window(
        self,
        topic: str,
        records: Iterable[Record],
        sent_address: int,
        in_flight: int,
        land: Callable[[Flight], Conversation[None]],
    ) -> Conversation[None]:
        flights: deque[Flight] = deque()
        group = max(1, in_flight // _GROUPS) if isinstance(records, list | tuple) else 1
        for chunk in _chunks(records, group):
            now = yield Now()
            begun = [self._encoded(topic, record, sent_address, now) for record in chunk]
            yield from self.post_all(begun)
            flights += begun
            while len(flights) > in_flight - group:
                yield from self._land([flights.popleft() for _ in range(len(chunk))], land)
        while flights:
            count = min(group, len(flights))
            yield from self._land([flights.popleft() for _ in range(count)], land)

    def _land(
        self, flights: Sequence[Flight], land: Callable[[Flight], Conversation[None]]
    ) -> Conversation[None]:
        """Take the replies for all of these, then `land` each."""
        for flight in (yield from self._gathered(flights)):
            yield from land(flight)

    def _gathered(self, flights: Sequence[Flight]) -> Conversation[Sequence[Flight]]:
        posted = [flight for flight in flights if flight.ticket is not None]
        replies = yield AwaitAll([flight.ticket for flight in posted if flight.ticket])
        now = yield Now()
        for flight, reply in zip(posted, replies, strict=True):
            flight.reply, flight.ticket = reply, None
            flight.receipt = self._receipt(flight, reply, now)
        return flights

    def _deliver(self, flight: Flight) -> Conversation[None]:
        yield Deliver(flight.receipt or (yield from self.finish(flight)))

    def _settle(self, flight: Flight) -> Conversation[None]:
        try:
            outcome: SendReceipt | errors.TubeMQError = flight.receipt or (
                yield from self.finish(flight)
            )
        except errors.TubeMQError as error:
            outcome = error
        yield Deliver((outcome, len(flight.record.body)))

    def send_flight(self, flight: Flight) -> Conversation[SendReceipt]:
        """Put an encoded record on its way and wait for its receipt."""
        yield from self._post_kept(flight)
        return (yield from self.finish(flight))

    def encode(self, topic: str, record: Record, sent_address: int, now: int) -> Flight:
        """The record's bytes and where they are to go; sends nothing.

        Raises `errors.ConfigError` for a record that no broker would take, `errors.UnknownTopic`
        for a topic without routes.
        """
        if not record.body:
            raise errors.ConfigError("body is empty", subject="record")
        try:
            data, flag = encode_payload(
                record.body, record.attributes, stream_id=record.stream_id, msg_time=record.msg_time
            )
        except ValueError as error:
            raise errors.ConfigError(str(error).split("; "), subject="record") from None
        partition = self._choose(topic, record, now)
        limit = self.limits.get(topic) or self.default_limit
        if len(data) > min(limit, self.default_limit):
            judge_size(topic, len(data), limit, self.default_limit, self.settings.large_records)
        return Flight(topic, record, sent_address, partition, data, flag, now)

    def finish(self, flight: Flight) -> Conversation[SendReceipt]:
        """The receipt of a record on its way.

        What was certainly not stored (a refusal for overflow or by a broker that cannot write, a
        connection that broke too early) is sent again, elsewhere if the record may go elsewhere.
        An unknown outcome (no answer, connection lost) is raised, because sending again could
        store the record twice; `retry_unknown` asks for that all the same.
        """
        try:
            if flight.failure is not None:
                raise flight.failure
            while True:
                failure = yield from self._outcome(flight)
                if isinstance(failure, SendReceipt):
                    return failure
                yield from self._again(flight, failure)
        except errors.TubeMQError as error:
            self.stats.failure(error)
            raise

    def _encoded(self, topic: str, record: Record, sent_address: int, now: int) -> Flight:
        """Like `encode`, but what is wrong with a record is told when its turn comes."""
        try:
            return self.encode(topic, record, sent_address, now)
        except errors.TubeMQError as error:
            nowhere = Partition(-1, topic, -1)
            return Flight(topic, record, sent_address, nowhere, b"", 0, now, failure=error)

    def post_all(self, flights: Sequence[Flight]) -> Conversation[None]:
        """Put records on their way, those of one broker together. Failures are kept in the
        flights, for `finish` to raise."""
        by_broker: dict[int, list[Flight]] = {}
        for flight in flights:
            if flight.failure is None:
                by_broker.setdefault(flight.partition.broker_id, []).append(flight)
        for broker_id, all_of_it in by_broker.items():
            for group in pieces(all_of_it):
                if len(group) == 1:
                    yield from self._post_kept(group[0])
                else:
                    yield from self._post_group(broker_id, group)

    def _post_group(self, broker_id: int, group: list[Flight]) -> Conversation[None]:
        requests = [self._request(flight) for flight in group]
        try:
            address = self._address(broker_id)
            tickets = yield PostAll(address, methods.SEND_MESSAGE, requests)
        except errors.ConnectError:  # one by one then, each elsewhere if need be
            for flight in group:
                yield from self._post_kept(flight)
        except _UNKNOWN as error:
            for flight in group:
                flight.reply = error  # it may have got there: judged like no answer
        except errors.TubeMQError as error:
            for flight in group:
                flight.failure = fate_unknown(error, flight.partition)
        else:
            for flight, ticket in zip(group, tickets, strict=True):
                flight.ticket = ticket

    def _post_kept(self, flight: Flight) -> Conversation[None]:
        try:
            yield from self._post(flight)
        except errors.TubeMQError as error:
            flight.failure = error

    def _post(self, flight: Flight) -> Conversation[None]:
        """Put a record on the wire. What fails here was not sent, so it may go elsewhere."""
        while True:
            try:
                address = self._address(flight.partition.broker_id)
                flight.ticket = yield Post(address, methods.SEND_MESSAGE, self._request(flight))
            except errors.NetworkError as error:
                now = yield Now()
                self.detours.unreachable(flight.partition, now, len(self.brokers))
                self.detours.failed(flight.partition, now)
                self._elsewhere(flight, now, error)
            else:
                return

    def _outcome(self, flight: Flight) -> Conversation[SendReceipt | errors.TubeMQError]:
        """The receipt, or a failure after which the record may be sent again."""
        try:
            reply, flight.reply = flight.reply, None
            if reply is None:
                assert flight.ticket is not None, "a flight has begun"
                reply = yield Await(flight.ticket)
            elif isinstance(reply, errors.TubeMQError):
                raise reply
        except _UNKNOWN as error:
            self.detours.failed(flight.partition, (yield Now()))
            if self.settings.retry_unknown and flight.again < _UNKNOWN_RETRIES:
                return error
            raise fate_unknown(error, flight.partition) from error
        receipt = self._receipt(flight, reply, (yield Now()))
        if receipt is not None:
            return receipt
        where = f"send to partition {flight.partition}"
        failure = errors.for_code(reply.errCode, reply.errMsg, where=where)
        if not isinstance(failure, _NOT_STORED):
            access, shown = self.master.access, flight.visit_token
            if not (yield from access.may_pass_now(reply, self.client_id, shown)):
                raise failure
        return failure

    def _receipt(self, flight: Flight, reply: Any, now: int) -> SendReceipt | None:
        """The receipt in a reply, None if it is none."""
        if isinstance(reply, errors.TubeMQError) or reply.errCode != errors.SUCCESS:
            return None
        partition = flight.partition
        self.detours.stored(partition)
        self.stats.receipt(len(flight.data), now - flight.since)
        message_id = reply.messageId or int(reply.errMsg or 0)
        return SendReceipt(partition, reply.appendOffset, message_id, reply.appendTime)

    def _again(self, flight: Flight, failure: errors.TubeMQError) -> Conversation[None]:
        """Send a record again after `failure`. Raises it once there is no place or no try left."""
        flight.again += 1
        now = yield Now()
        if isinstance(failure, errors.ServiceUnavailable):
            self.detours.unavailable(flight.partition, now)
            self._elsewhere(flight, now, failure)
        elif isinstance(failure, errors.Forbidden):
            self.detours.failed(flight.partition, now)
            self._elsewhere(flight, now, failure)
        elif isinstance(failure, errors.Overflow):
            full = self.detours.is_full(flight.partition, now)
            retries = self.settings.overflow_retries
            if flight.again > (min(1, retries) if full else retries):
                raise failure
            yield Sleep(0 if full else self.settings.overflow_pause_ms)
            if flight.free:
                flight.partition = self._choose(flight.topic, flight.record, now)
        self.stats.resent(failure)
        try:
            yield from self._post(flight)
        except errors.NetworkError as error:
            if not isinstance(failure, _UNKNOWN):
                raise
            flight.reply = error  # this copy was not sent, the one before may be stored

    def _elsewhere(self, flight: Flight, now: int, failure: errors.TubeMQError) -> None:
        """Give the record to a broker that has not refused it. Raises `failure` if there is none,
        or if the record belongs where it is."""
        flight.tried.add(flight.partition.broker_id)
        routes = self.routes.get(flight.topic, ())
        left = self.detours.open(routes, now, flight.tried) if flight.free else ()
        if not left:
            raise failure
        flight.partition = self._pick(flight.topic, flight.record, left)

    def _address(self, broker_id: int) -> Address:
        node = self.brokers.get(broker_id)
        if node is None:
            raise errors.ConnectError(f"broker {broker_id} has left the cluster")
        return node.address

    def _request(self, flight: Flight) -> bytes:
        partition = flight.partition
        flight.visit_token = self.master.visit_token
        key = (partition, flight.sent_address, flight.visit_token)
        template = self._templates.get(key)
        if template is None:
            template = self._templates[key] = SendTemplate(
                self.client_id,
                partition.topic,
                partition.partition_id,
                flight.sent_address,
                self.master.broker_auth(),
                verify=self.settings.verify_checksum,
            )
        record = flight.record
        return template.request(flight.data, flight.flag, record.stream_id, record.msg_time)

    # -- routes -------------------------------------------------------------------------------

    def _choose(self, topic: str, record: Record, now: int) -> Partition:
        routes = self.routes.get(topic)
        if not routes:
            raise errors.UnknownTopic(
                431,
                f"topic {topic!r} has no partition that accepts records; it is unknown to the "
                "master, or was just created (a genuine master takes up to a minute)",
            )
        wanted = record.partition
        if wanted is not None:
            if wanted in routes:
                return wanted
            known = ", ".join(p.key for p in routes)
            raise errors.ConfigError(
                f"partition {wanted.key} of topic {topic!r} is not writable; writable: {known}",
                subject="record",
            )
        if record.key is not None:
            return partition_for_key(record.key, routes)
        return self._pick(
            topic, record, self.detours.open(routes, now) if self.detours.any else routes
        )

    def _pick(self, topic: str, record: Record, partitions: Sequence[Partition]) -> Partition:
        if self.router is not None:
            try:
                chosen = self.router(topic, record, partitions)
            except Exception as error:  # it may be called where no caller waits to be told
                problem = f"the router failed: {error!r}"
                raise errors.ConfigError(problem, subject="record") from error
            if chosen not in partitions:
                raise errors.ConfigError(
                    f"the router chose {chosen!r}, which is none of the partitions it was given",
                    subject="record",
                )
            return chosen
        turn = self._turns.get(topic)
        if turn is None:
            # Not the same first partition for every producer, and no chance needed for it.
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

    def _learn_routes(self, infos: Sequence[str], *, settling: bool) -> None:
        """Replace all routes: every heartbeat carries the full list.

        In one step, since records may be on their way to routes in another thread. A master that
        has just become active knows few routes for some seconds: what is missing is kept then.
        """
        found = dict(self.routes) if settling else {}
        limits = dict(self.limits) if settling else {}
        for text in infos:
            routes = strings.parse_topic_info(text)
            known = [p for p in routes.partitions() if p.broker_id in self.brokers]
            found[routes.topic] = sorted(known)
            limits[routes.topic] = routes.max_message_bytes
        self.routes, self.limits = found, limits

    def _check(self, reply: Any, what: str) -> None:
        if not reply.success:
            raise errors.for_code(reply.errCode, reply.errMsg, where=f"master, {what}")


def _chunks(records: Iterable[Record], size: int) -> Iterator[Sequence[Record]]:
    if isinstance(records, list | tuple):
        for start in range(0, len(records), size):
            yield records[start : start + size]
    else:
        for record in records:
            yield (record,)
