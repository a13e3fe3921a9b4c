"""A TubeMQ that serves at almost no cost: the speed of a reader without a broker as bottleneck.

The embedded server in a separate process, which caches each reply to a fetch as the bytes it has
sent: the first pass over a topic builds them, later ones only send them. Positions move as usual,
so that readers see no difference.
"""

# ruff: noqa: SLF001 - it reaches into the embedded server, which has no such switch

from __future__ import annotations

from collections.abc import Iterable
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from tubemq_client.model import INDEX_ENTRY_BYTES

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from tubemq_client.model import Address

__all__ = ["ReplayingTubeMQ"]

_START_S: Final = 60
_SERIAL: Final = slice(4, 8)
"""Position of the serial in a frame (docs/protocol/wire.md)."""


class ReplayingTubeMQ:
    """One broker with `topics` of one partition each, as a context manager."""

    def __init__(self, topics: Iterable[str]) -> None:
        context = get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(list(topics), theirs), daemon=True)
        self.master_address: Address

    def __enter__(self) -> Self:
        self._process.start()
        if not self._ours.poll(_START_S):
            self._process.kill()
            raise SystemExit(f"the replaying server has not started within {_START_S} s")
        self.master_address = self._ours.recv()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()


class _CachedReply(NamedTuple):
    """Frame of a reply, and the distance by which it moves its reader."""

    frame: bytes
    advance: int


def _serve(topics: list[str], theirs: Connection) -> None:
    from tubemq_client.embedded import EmbeddedTubeMQ
    from tubemq_client.embedded.options import TopicSpec

    _cache_replies()
    with EmbeddedTubeMQ(topics=[TopicSpec(topic) for topic in topics], http=False) as mq:
        theirs.send(mq.master_address)
        theirs.poll(None)


def _cache_replies() -> None:
    """Replace the functions that build and encode a fetch's reply, in this process."""
    from tubemq_client._wire import envelope, methods
    from tubemq_client.embedded.broker_rpc import BrokerRpc

    build, encode = BrokerRpc._fetch, envelope.encode_response
    cache: dict[tuple[int, int, bool], _CachedReply] = {}

    def fetch(service: Any, key: Any, lease: Any, store: Any, mode: Any, start: int) -> Any:
        cache_key = (key.partition_id, start, lease.warmed)
        cached = cache.get(cache_key)
        if cached is None:
            reply = build(service, key, lease, store, mode, start)
            if reply.messages:  # of one partition without filters: what was scanned is here
                frame = encode(0, methods.GET_MESSAGES.id, reply)
                cache[cache_key] = _CachedReply(frame, len(reply.messages) * INDEX_ENTRY_BYTES)
            return reply
        service._broker.positions.record_fetch(key, mode, cached.advance, delivered=True)
        lease.warmed = True
        return cached

    def encoded(serial: int, method_id: int, response_message: Any) -> bytes:
        if not isinstance(response_message, _CachedReply):
            return encode(serial, method_id, response_message)
        number, frame = serial.to_bytes(4, "big", signed=True), memoryview(response_message.frame)
        return b"".join((frame[: _SERIAL.start], number, frame[_SERIAL.stop :]))

    BrokerRpc._fetch = fetch  # type: ignore[assignment, method-assign]
    envelope.encode_response = encoded
