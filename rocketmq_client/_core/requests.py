"""Requests with a reply: a record that names its sender, and the reply that a broker passes on.

A request is an ordinary record with the sender's client id and a correlation id. Its consumer
sends the reply to the broker, which looks for a producer of that client id among those whose
heartbeats it has, and pushes the reply (326) over that connection. It waits for the client's
answer. Nothing is delivered later: a client that is gone or slow misses its reply.

Source: `docs/rocketmq-protocol/wire.md#requests-with-a-reply`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from rocketmq_client import errors
from rocketmq_client._core.groups import heartbeat, unregister_producer
from rocketmq_client._wire import codes
from rocketmq_client._wire.bodies import parse_address
from rocketmq_client._wire.codec import Request
from rocketmq_client._wire.compression import decompress
from rocketmq_client._wire.properties import (
    CORRELATION_ID,
    KEYS,
    REPLY_TO_CLIENT,
    TAGS,
    TTL,
    UNIQ_KEY,
    decode_properties,
)
from rocketmq_client.model import Reply
from tubemq_client._core.effects import AwaitAny, Now, Post, Sleep

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_client._core.cluster import Cluster
    from rocketmq_client._core.sending import Sending
    from rocketmq_client._wire.commands import Command
    from rocketmq_client.model import Address, OutgoingMessage, Queue
    from tubemq_client._core.effects import Conversation

__all__ = ["Requests", "no_reply"]

_HEARTBEAT_MS: Final = 30_000
_FRESH_MS: Final = 1_000
"""Age of a heartbeat that a request trusts: the broker may have restarted since an older one."""

_LISTEN_MS: Final = 1_000
_PAUSE_MS: Final = 1_000


class Requests:
    """Requests of one producer. `wake` is called when `round` has something to do."""

    def __init__(
        self, cluster: Cluster, sending: Sending, client_id: str, wake: Callable[[], object]
    ) -> None:
        self._cluster, self._sending, self._client_id = cluster, sending, client_id
        self._wake = wake
        self._waiting: dict[str, Callable[[Reply], object]] = {}
        self._passed_on: deque[tuple[str, int]] = deque()
        self._connected = False
        self._heard: dict[Address, int] = {}

    @property
    def addresses(self) -> set[Address]:
        """Brokers that may pass on replies: their connections have to be read."""
        return set(self._heard)

    def notice(self, request: Command) -> None:
        """Take a request of a broker, in the thread that reads. Others than replies are ignored,
        and replies that no caller waits for."""
        if request.code != codes.PUSH_REPLY_MESSAGE_TO_CLIENT.code:
            return
        self._passed_on.append((request.fields.get("storeHost", ""), request.opaque))
        self._wake()
        text = request.fields.get("properties", "")
        properties = decode_properties(text.encode(errors="replace"))
        taken = self._waiting.pop(properties.get(CORRELATION_ID, ""), None)
        if taken is not None and (reply := _reply(request, properties)) is not None:
            taken(reply)

    def connected(self) -> None:
        """Note a new connection, over which this client has to introduce itself: a broker that
        has forgotten it cannot pass on replies."""
        self._connected = True
        self._wake()

    def expect(self, name: str, taken: Callable[[Reply], object]) -> None:
        """Call `taken` with the reply to the request of this correlation id, in the thread that
        reads."""
        self._waiting[name] = taken

    def forget(self, name: str) -> None:
        """Drop a reply that comes later."""
        self._waiting.pop(name, None)

    def send(
        self,
        name: str,
        topic: str,
        message: OutgoingMessage,
        queue: Queue | None,
        timeout_ms: int,
    ) -> Conversation[None]:
        """Send a request, after making this client known to the brokers that may pass on its
        reply. One that may have been stored is sent again only with `retry_unknown`."""
        route = yield from self._cluster.route(topic)
        found = set(route.masters().values())
        for cluster in {data.cluster for data in route.brokers.values() if data.cluster}:
            try:
                replies = yield from self._cluster.route(f"{cluster}_REPLY_TOPIC")
            except (errors.NetworkError, errors.ServerError):
                continue
            found.update(replies.masters().values())
        yield from self._introduce(found, _FRESH_MS)
        properties = {
            **(message.properties or {}),
            CORRELATION_ID: name,
            REPLY_TO_CLIENT: self._client_id,
            TTL: str(timeout_ms),
        }
        yield from self._sending.send(topic, message._replace(properties=properties), queue)

    def round(self) -> Conversation[int]:
        """Tell brokers that their replies arrived, and send heartbeats that are due; return the
        time until more is due."""
        yield from self._answer_brokers()
        yield from self._introduce(set(self._heard), _HEARTBEAT_MS)
        return _PAUSE_MS if 0 in self._heard.values() else _HEARTBEAT_MS // 3

    def listen(self, address: Address) -> Conversation[None]:
        """Read what a broker pushes, for a while."""
        try:
            yield AwaitAny(address, (), _LISTEN_MS)
        except errors.NetworkError:
            self._heard[address] = 0
            yield Sleep(_PAUSE_MS)

    def leave(self) -> Conversation[None]:
        """Answer brokers for the last time, and take this producer out of their lists."""
        yield from self._answer_brokers()
        yield from unregister_producer(
            self._cluster, sorted(self._heard), self._client_id, self._sending.group
        )

    def _answer_brokers(self) -> Conversation[None]:
        while self._passed_on:
            store_host, number = self._passed_on.popleft()
            for address in self._passed_on_by(store_host):
                answer = Request({}, one_way=True, answer_to=number)
                try:
                    yield Post(address, codes.PUSH_REPLY_MESSAGE_TO_CLIENT, answer)
                except errors.NetworkError:
                    self._heard[address] = 0

    def _introduce(self, addresses: set[Address], fresh_ms: int) -> Conversation[None]:
        """Send heartbeats to brokers that have not heard this client for `fresh_ms`. One that does
        not answer is tried again later: others may store the request."""
        now = yield Now()
        if self._connected:
            self._connected = False
            self._heard = dict.fromkeys(self._heard, 0)
        for address in sorted(addresses):
            if (heard := self._heard.get(address)) and now - heard < fresh_ms:
                continue
            groups = [self._sending.group]
            self._heard.setdefault(address, 0)
            try:
                yield from heartbeat(self._cluster, [address], self._client_id, producers=groups)
                self._heard[address] = max(1, now)
            except (errors.NetworkError, errors.Busy):
                self._heard[address] = 0

    def _passed_on_by(self, store_host: str) -> list[Address]:
        """Return the broker at this address; if a service node is in between, all that it may be.
        A number that a server does not know is dropped there."""
        try:
            address = parse_address(store_host)
        except errors.ProtocolViolation:
            return sorted(self._heard)
        return [address] if address in self._heard else sorted(self._heard)


def no_reply(topic: str, timeout_ms: int) -> errors.NoReply:
    """Return the error of a request without a reply in time."""
    return errors.NoReply(
        f"no reply to the request in topic {topic!r} within timeout_ms={timeout_ms}; the record is "
        "stored, and may still be consumed"
    )


def _reply(request: Command, properties: dict[str, str]) -> Reply | None:
    """Return the reply that a broker passes on, None for one that cannot be read."""
    fields = request.fields
    try:
        body = decompress(request.body, int(fields.get("sysFlag", "0")))
        born, stored = int(fields["bornTimestamp"]), int(fields["storeTimestamp"])
    except (KeyError, ValueError, errors.RocketMQError):
        return None
    return Reply(
        body,
        properties,
        properties.get(TAGS),
        tuple(filter(None, properties.get(KEYS, "").split(" "))),
        properties.get(UNIQ_KEY),
        born,
        stored,
    )
