"""Sending: choice of the queue, encoding, and retries.

A record that was certainly not stored (no connection, a refusal for load) is sent again, to another
broker if there is one. A broker that stops leaves the route at once, so a try may find no queue to
send to; that counts as a failed try. A record that may have been stored (no answer, or code 1,
which service nodes also use for that) is not sent again, unless the producer asks for
at-least-once. The answers 10, 11 and 12 mean stored. `docs/rocketmq-protocol/wire.md` has the
header's one-letter names.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from rocketmq_client import errors
from rocketmq_client._core import trace
from rocketmq_client._core.addresses import on_route
from rocketmq_client._core.ends import require_address
from rocketmq_client._core.outgoing import (
    MOST_IN_A_BATCH,
    check_in_batch,
    check_record,
    delay_properties,
    property_text,
)
from rocketmq_client._core.pulling import number
from rocketmq_client._core.sending_limits import SlowBrokers
from rocketmq_client._wire import codes
from rocketmq_client._wire.batches import BatchElement, encode_batch
from rocketmq_client._wire.compression import MAX_BODY_BYTES, compress, compression_flags
from rocketmq_client._wire.properties import (
    CLUSTER,
    CORRELATION_ID,
    DELAY,
    MESSAGE_TYPE,
    REPLY_TO_CLIENT,
    TTL,
    WAIT,
    encode_properties,
    tag_hash,
)
from rocketmq_client.model import Queue, SendReceipt
from tubemq_client._core.effects import Call, Now, Post, Sleep, WallClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rocketmq_client._core.cluster import Cluster
    from rocketmq_client._wire.bodies import TopicRoute
    from rocketmq_client._wire.codes import Method
    from rocketmq_client._wire.commands import Command
    from rocketmq_client.model import Message, OutgoingMessage, ProducerSettings
    from tubemq_client._core.effects import Conversation

__all__ = ["Place", "Sending"]

_LEVELS: Final = 18
_DELIVER_AT: Final = "TIMER_DELIVER_MS"
_PREPARED: Final = 4
"""Flag of a half record."""

_NOT_STORED = (errors.ConnectError, errors.Busy, errors.NotLeader)
_UNKNOWN = (errors.ConnectionLost, errors.RpcTimeout, errors.BrokerFailure)
_ELSEWHERE = (errors.UnknownTopic, errors.TopicForbids)
"""Not stored either: the broker no longer has the queue, or no longer accepts writes to it."""
_NOT_SENT = (errors.UnknownTopic, errors.ConfigError, errors.ConnectError)
"""Errors of a send without a receipt that did not leave the client: no such queue, or no connection
to its address."""
_NOWHERE = (errors.UnknownTopic, errors.ConfigError, errors.NetworkError, *_NOT_STORED, *_UNKNOWN)
"""Errors of a queue look-up while the topic's brokers, or the name servers, are not available."""


class Place(NamedTuple):
    """Place and time of a delivery, beside a queue by itself: the queue of a key, or later."""

    order_key: str | None = None
    delay_level: int | None = None
    deliver_at_ms: int | None = None

    def properties(self, message: OutgoingMessage, queue: Queue | None) -> dict[str, str]:
        """Return the properties that delay the record. Raises `errors.ConfigError` with all
        problems."""
        problems = []
        if self.order_key is not None and queue is not None:
            problems.append("queue, order_key: give one of them")
        if self.delay_level is not None and self.deliver_at_ms is not None:
            problems.append("delay_level, deliver_at_ms: give one of them")
        if self.delay_level is not None and not 1 <= self.delay_level <= _LEVELS:
            problems.append(f"delay_level is {self.delay_level}; 1 to {_LEVELS} is allowed")
        if self.deliver_at_ms is not None and self.deliver_at_ms < 0:
            problems.append(f"deliver_at_ms is {self.deliver_at_ms}; a time since the epoch")
        delayed = self.delay_level is not None or self.deliver_at_ms is not None
        if delayed and delay_properties(message):
            problems.append("the properties of the record delay it too")
        if problems:
            raise errors.ConfigError(problems, subject="record")
        if self.delay_level is not None:
            return {DELAY: str(self.delay_level)}
        return {} if self.deliver_at_ms is None else {_DELIVER_AT: str(self.deliver_at_ms)}


_ANYWHERE: Final = Place()


@dataclass(slots=True)
class _Outgoing:
    """Send before its queue is chosen."""

    method: Method
    topic: str
    body: bytes
    properties: str
    sys_flag: int
    flag: int
    message_ids: list[str]


@dataclass(slots=True)
class Sending:
    """Sends of one producer. `next_id` makes unique message ids."""

    cluster: Cluster
    settings: ProducerSettings
    group: str
    next_id: Callable[[], str]
    _turns: dict[str, int] = field(default_factory=dict)
    _slow: SlowBrokers = field(default_factory=SlowBrokers)

    def send(
        self, topic: str, message: OutgoingMessage, queue: Queue | None, place: Place = _ANYWHERE
    ) -> Conversation[SendReceipt]:
        """Send one record and wait for its receipt. Raises `errors.ConfigError` for a `place` that
        does not fit the record or the broker."""
        properties = place.properties(message, queue)
        if place.order_key is not None:
            queue = yield from self._queue_of(topic, place.order_key)
        if place.deliver_at_ms is not None:
            yield from self._check_timer(topic, queue)
        if properties:
            message = message._replace(properties={**(message.properties or {}), **properties})
        outgoing = self._single(topic, message)
        if not self.settings.trace:
            return (yield from self._send(outgoing, queue))[0]
        began = yield WallClock()
        try:
            [receipt] = yield from self._send(outgoing, queue)
        except errors.RocketMQError:
            yield from self._trace(topic, message, outgoing, None, began)
            raise
        yield from self._trace(topic, message, outgoing, receipt, began)
        return receipt

    def _trace(
        self,
        topic: str,
        message: OutgoingMessage,
        outgoing: _Outgoing,
        receipt: SendReceipt | None,
        began: int,
    ) -> Conversation[None]:
        """Send how a send ended, without waiting; what prevents that is no error of the send."""
        address = None
        if receipt is not None:
            address = (yield from self.cluster.route(topic)).address(receipt.queue.broker)
        record = trace.sent(
            self.group,
            topic,
            message,
            outgoing.message_ids[0],
            receipt.offset_id if receipt else "",
            address,
            began_ms=began,
            took_ms=(yield WallClock()) - began,
            delayed=bool(delay_properties(message)),
        )
        with suppress(errors.RocketMQError):
            yield from self.send_one_way(trace.TRACE_TOPIC, record, None)

    def _queue_of(self, topic: str, key: str) -> Conversation[Queue]:
        """Return the queue of a key, the same as Java's producers choose."""
        queues = (yield from self.cluster.route(topic)).writable()
        if not queues:
            raise errors.UnknownTopic(17, f"topic {topic!r} has no queue to write to now")
        return queues[abs(tag_hash(key)) % len(queues)]

    def _check_timer(self, topic: str, queue: Queue | None) -> Conversation[None]:
        """Raise `errors.ConfigError` if a broker that may get the record is of 4.x, which would
        deliver it at once."""
        masters = (yield from self.cluster.route(topic)).masters()
        for broker, address in masters.items():
            if queue is not None and queue.broker != broker:
                continue
            known = self.cluster.has_exact_minima(address, broker)
            if not (
                known or (yield from self.cluster.runtime_info(address, broker)).has_exact_minima
            ):
                raise errors.ConfigError(
                    f"deliver_at_ms: broker {broker!r} (4.x) has no timer and would deliver the "
                    "record at once; use delay_level",
                    subject="record",
                )

    def send_half(
        self, topic: str, message: OutgoingMessage, queue: Queue | None
    ) -> Conversation[SendReceipt]:
        """Send one half record of a transaction and wait for its receipt. One that may have been
        stored is never sent again: each half is asked about by itself."""
        if not message.body or delay_properties(message):
            raise errors.ConfigError(
                "a record of a transaction has a body, and no delay", subject="record"
            )
        properties = {**(message.properties or {}), "TRAN_MSG": "true", "PGROUP": self.group}
        outgoing = self._single(topic, message._replace(properties=properties))
        outgoing.sys_flag |= _PREPARED
        receipts = yield from self._send(outgoing, queue, retry_unknown=False)
        return receipts[0]

    def send_reply(self, request: Message, message: OutgoingMessage) -> Conversation[None]:
        """Send the reply to a request to the broker that stored it, which passes it on to the
        client that asked. Raises `errors.ConfigError` for a record that is no request."""
        asked = request.properties
        names = (CLUSTER, CORRELATION_ID, REPLY_TO_CLIENT)
        if lacking := [name for name in names if not asked.get(name)]:
            raise errors.ConfigError(
                f"the record is no request: it lacks {', '.join(lacking)}", subject="record"
            )
        if not message.body:
            raise errors.ConfigError("a reply has a body", subject="record")
        copied = {name: asked[name] for name in (*names[1:], TTL) if name in asked}
        properties = {**(message.properties or {}), MESSAGE_TYPE: "reply", **copied}
        topic = f"{asked[CLUSTER]}_REPLY_TOPIC"
        outgoing = self._single(topic, message._replace(properties=properties))
        broker = request.queue.broker
        address = require_address((yield from self.cluster.route(request.queue.topic)), broker)
        fields = yield from self._fields(outgoing, Queue(broker, topic, 0))
        yield Call(
            address, codes.SEND_REPLY_MESSAGE_V2, self.cluster.request(fields, outgoing.body)
        )

    def send_batch(
        self, topic: str, messages: Sequence[OutgoingMessage], queue: Queue | None
    ) -> Conversation[list[SendReceipt]]:
        """Send records together: they are stored one after another in one queue, all or none."""
        if not messages:
            return []
        return (yield from self._send(self._batch(topic, messages), queue))

    def in_batches(self, messages: Iterable[OutgoingMessage]) -> Iterator[list[OutgoingMessage]]:
        """Yield the records in batches that brokers take: each encoded batch is at most
        `max_message_bytes`. Raises `errors.ConfigError` for a record that is larger by itself."""
        batch: list[OutgoingMessage] = []
        size = 0
        for message in messages:
            check_in_batch(message)
            text = property_text(message, self.next_id(), MOST_IN_A_BATCH)
            element = BatchElement(message.flag, bytes(message.body), text.encode())
            grown = len(encode_batch([element]))
            if batch and size + grown > self.settings.max_message_bytes:
                yield batch
                batch, size = [], 0
            batch.append(message)
            size += grown
        if batch:
            yield batch

    def send_one_way(
        self, topic: str, message: OutgoingMessage, queue: Queue | None
    ) -> Conversation[None]:
        """Send one record without an answer: it may or may not be stored."""
        outgoing = self._single(topic, message)

        def post(route: TopicRoute) -> Conversation[None]:
            chosen = self._choose(route, queue, frozenset())
            yield from self._post(route, chosen, outgoing)

        yield from on_route(self.cluster, topic, post, _NOT_SENT)

    def _post(self, route: TopicRoute, chosen: Queue, outgoing: _Outgoing) -> Conversation[None]:
        fields = yield from self._fields(outgoing, chosen)
        address = route.brokers[chosen.broker].master
        assert address is not None, "writable queues have a master"
        request = self.cluster.request(fields, outgoing.body, one_way=True)
        yield Post(address, outgoing.method, request)

    def _single(self, topic: str, message: OutgoingMessage) -> _Outgoing:
        check_record(message)
        body = bytes(message.body)  # of a view of numbers, `len` is not the bytes
        if not body and not delay_properties(
            message
        ):  # 5.x brokers fail on a request without a body
            return self._batch(topic, [message])
        body, sys_flag = self._packed(body)
        message_id = self.next_id()
        properties = property_text(message, message_id)
        return _Outgoing(
            codes.SEND_MESSAGE_V2, topic, body, properties, sys_flag, message.flag, [message_id]
        )

    def _batch(self, topic: str, messages: Sequence[OutgoingMessage]) -> _Outgoing:
        ids = [self.next_id() for _ in messages]
        elements = []
        for message, message_id in zip(messages, ids, strict=True):
            check_in_batch(message)
            properties = property_text(message, message_id, MOST_IN_A_BATCH).encode()
            elements.append(BatchElement(message.flag, bytes(message.body), properties))
        body = encode_batch(elements)
        self._check_size(body)
        wait = encode_properties({WAIT: "true"})
        return _Outgoing(codes.SEND_BATCH_MESSAGE, topic, body, wait, 0, 0, ids)

    def _packed(self, body: bytes) -> tuple[bytes, int]:
        over = self.settings.compress_over_bytes
        sys_flag = 0
        if over is not None and len(body) > over:
            if len(body) > MAX_BODY_BYTES:
                raise errors.ConfigError(
                    f"a body of {len(body)} bytes would be compressed, and readers unpack no more "
                    f"than {MAX_BODY_BYTES}",
                    subject="record",
                )
            body = compress(body, self.settings.compression)
            sys_flag = compression_flags(self.settings.compression)
        self._check_size(body)
        return body, sys_flag

    def _check_size(self, body: bytes) -> None:
        if len(body) > self.settings.max_message_bytes:
            raise errors.ConfigError(
                f"a body of {len(body)} bytes is larger than max_message_bytes="
                f"{self.settings.max_message_bytes} (brokers: maxMessageSize)",
                subject="record",
            )

    def _send(
        self, outgoing: _Outgoing, queue: Queue | None, *, retry_unknown: bool = True
    ) -> Conversation[list[SendReceipt]]:
        retry_unknown = retry_unknown and self.settings.retry_unknown
        failed: set[str] = set()
        failure: errors.RocketMQError | None = None
        for retries_left in reversed(range(self.settings.retries + 1)):
            known_topic = self.cluster.knows(outgoing.topic)
            try:
                route = yield from self.cluster.route(outgoing.topic, fresh=failure is not None)
                now = (yield Now()) if self.settings.avoid_slow else None
                chosen = self._choose(route, queue, frozenset(failed), now)
            except _NOWHERE as error:
                if failure is None:
                    failure = _away(error, outgoing.topic, known=known_topic)
            else:
                try:
                    return (yield from self._send_to(route, chosen, outgoing, now))
                except _ELSEWHERE as error:
                    if not (yield from self._has_moved(route)):
                        raise
                    failure = error
                except (*_NOT_STORED, *_UNKNOWN) as error:
                    if now is not None:
                        self._slow.failed(chosen.broker, (yield Now()))
                    if not (isinstance(error, _NOT_STORED) or retry_unknown):
                        raise
                    failure = error
                    failed.add(chosen.broker)
            if retries_left:
                yield Sleep(self.settings.retry_pause_ms)
        assert failure is not None, "the last try returns, or has failed"
        raise failure

    def _has_moved(self, route: TopicRoute) -> Conversation[bool]:
        """Return True if the topic now has other queues to write to than the cached route."""
        try:
            now = yield from self.cluster.route(route.topic, fresh=True)
        except errors.RocketMQError:
            return False
        return now.writable() != route.writable()

    def _send_to(
        self, route: TopicRoute, queue: Queue, outgoing: _Outgoing, began: int | None
    ) -> Conversation[list[SendReceipt]]:
        address = route.brokers[queue.broker].master
        assert address is not None, "writable queues have a master"
        fields = yield from self._fields(outgoing, queue)
        request = self.cluster.request(fields, outgoing.body)
        answer = cast("Command", (yield Call(address, outgoing.method, request)))
        if began is not None:
            ended = yield Now()
            self._slow.answered(queue.broker, ended - began, ended)
        return _receipts(answer, queue, outgoing.message_ids)

    def _fields(self, outgoing: _Outgoing, queue: Queue) -> Conversation[dict[str, str]]:
        now = yield WallClock()
        batch = outgoing.method is codes.SEND_BATCH_MESSAGE
        return {
            "a": self.group,
            "b": outgoing.topic,
            "c": "TBW102",
            "d": "4",
            "e": str(queue.queue_id),
            "f": str(outgoing.sys_flag),
            "g": str(now),
            "h": str(outgoing.flag),
            "i": outgoing.properties,
            "j": "0",
            "k": "false",
            "m": "true" if batch else "false",
            "n": queue.broker,
        }

    def _choose(
        self,
        route: TopicRoute,
        queue: Queue | None,
        failed: frozenset[str],
        now: int | None = None,
    ) -> Queue:
        queues = route.writable()
        if queue is not None:
            if queue in queues:
                return queue
            raise errors.ConfigError(
                f"queue {queue.key} of topic {route.topic!r} is not writable now; writable: "
                f"{', '.join(candidate.key for candidate in queues) or 'none'}",
                subject="record",
            )
        if not queues:
            raise errors.UnknownTopic(17, f"topic {route.topic!r} has no queue to write to now")
        open_ = [candidate for candidate in queues if candidate.broker not in failed] or queues
        if now is not None:
            open_ = self._slow.open(open_, now) or open_
        turn = self._turns[route.topic] = self._turns.get(route.topic, -1) + 1
        return open_[turn % len(open_)]


def _away(error: errors.RocketMQError, topic: str, *, known: bool) -> errors.RocketMQError:
    """Return the error of a first look-up that found no queue. Raises `error` itself unless the
    topic was known before."""
    if not (known and isinstance(error, errors.UnknownTopic)):
        raise error
    failure = errors.ConnectError(
        f"no broker of topic {topic!r} that can be written is available now"
    )
    failure.__cause__ = error
    return failure


def _receipts(answer: Command, queue: Queue, message_ids: list[str]) -> list[SendReceipt]:
    status = codes.STORED[answer.code]
    first = number(answer, "queueOffset")
    stored = type(queue)(queue.broker, queue.topic, number(answer, "queueId"))
    offset_ids = answer.fields.get("msgId", "").split(",")
    offset_ids += [""] * (len(message_ids) - len(offset_ids))
    return [
        SendReceipt(stored, first + place, message_id, offset_id, status)
        for place, (message_id, offset_id) in enumerate(zip(message_ids, offset_ids, strict=False))
    ]
