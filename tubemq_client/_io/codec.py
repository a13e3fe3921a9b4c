"""What a protocol hands to connections and drivers so that they can speak it.

Sockets, threads, deadlines and pairing of replies are the same for every protocol of request and
reply; how bytes become frames, and requests bytes, is not. A client package gives its codec to its
drivers and pools. Without one they speak TubeMQ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

__all__ = ["Codec", "Decoder"]


class Decoder(Protocol):
    """Cuts what a connection receives into frames; one per connection.

    `next_frame` gives a value with `serial`, the number of the request it answers, and `payload`,
    which only the codec's `decode` looks into; None when more bytes are needed. A frame that
    answers nothing has a negative serial and is dropped. Raises `errors.ProtocolViolation` for a
    broken stream.
    """

    def receive_data(self, data: bytes | bytearray | memoryview, /) -> None: ...

    def next_frame(self) -> Any: ...


class Codec(Protocol):
    """A protocol. Holds no state of any connection, so all of a process may share one."""

    def decoder(self, max_frame_bytes: int, /) -> Decoder: ...

    def encode(self, serial: int, method: Any, request: Any, timeout_ms: int, /) -> bytes:
        """The bytes of one request."""
        ...

    def encode_all(
        self, serials: Sequence[int], method: Any, requests: Sequence[Any], timeout_ms: int, /
    ) -> bytes:
        """The bytes of several requests, end to end."""
        ...

    def decode(self, payload: Any, method: Any, where: str, /) -> Any:
        """What a conversation is told of a reply. Raises the `TubeMQError` it stands for."""
        ...

    def timeout_ms(self, request: Any, usual_ms: int, /) -> int:
        """How long the reply to `request` may take, given the option `rpc_timeout_ms`."""
        ...
