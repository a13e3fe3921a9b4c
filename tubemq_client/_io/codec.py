"""Interface by which connections and drivers speak a protocol.

Sockets, threads, deadlines and pairing of replies are the same for every request-reply protocol;
how bytes become frames, and requests bytes, is not. A client package passes its codec to its
drivers and pools. Without one they speak TubeMQ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

__all__ = ["Codec", "Decoder"]


class Decoder(Protocol):
    """Decoder that splits received bytes into frames; one per connection.

    `next_frame` returns a value with `serial`, the number of the request it answers, and `payload`,
    which only the codec's `decode` reads; None when more bytes are needed. A frame that answers no
    request has a negative serial and is dropped. Raises `errors.ProtocolViolation` for a broken
    stream.
    """

    def receive_data(self, data: bytes | bytearray | memoryview, /) -> None: ...

    def next_frame(self) -> Any: ...


class Codec(Protocol):
    """Protocol of request and reply.

    Without connection state, so a process may share one object.
    """

    def decoder(self, max_frame_bytes: int, /) -> Decoder: ...

    def encode(self, serial: int, method: Any, request: Any, timeout_ms: int, /) -> bytes:
        """Return the bytes of one request."""
        ...

    def encode_all(
        self, serials: Sequence[int], method: Any, requests: Sequence[Any], timeout_ms: int, /
    ) -> bytes:
        """Return the concatenated bytes of several requests."""
        ...

    def decode(self, payload: Any, method: Any, where: str, /) -> Any:
        """Return the reply for a conversation; raise the `TubeMQError` that it stands for."""
        ...

    def timeout_ms(self, request: Any, usual_ms: int, /) -> int:
        """Return the timeout of `request`; `usual_ms` is the option `rpc_timeout_ms`."""
        ...
