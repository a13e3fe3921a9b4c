"""Codec of RocketMQ's protocol for connections and drivers: requests in, answers out.

Implements `tubemq_client._io.codec`. Requests are written with JSON headers, which every server
answers in standard JSON; the binary form gains nothing measurable.

Source: `docs/rocketmq-protocol/wire.md#frame`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from rocketmq_client import errors
from rocketmq_client._wire.codes import SUCCESS, Method
from rocketmq_client._wire.commands import ANSWER, ONE_WAY, Command, encode_command
from rocketmq_client._wire.framing import ReplyDecoder

__all__ = ["ROCKETMQ", "Request", "RocketMQCodec"]


class Request(NamedTuple):
    """Request of a conversation: header fields (text), a body, and the time for which the server
    may hold it (`wait_ms`). A one-way request is never answered: do not wait for it. With
    `answer_to` it is the answer "done" to the server's request of that number, and never answered
    either."""

    fields: dict[str, str]
    body: bytes = b""
    wait_ms: int = 0
    one_way: bool = False
    answer_to: int | None = None


class RocketMQCodec:
    """Codec; requests of servers are passed to `on_request`, by the thread that reads. `on_connect`
    is called for each new connection: a server knows a client by its connection."""

    def __init__(
        self,
        on_request: Callable[[Command], object] | None = None,
        on_connect: Callable[[], object] | None = None,
    ) -> None:
        self._on_request, self._on_connect = on_request, on_connect

    def decoder(self, max_frame_bytes: int) -> ReplyDecoder:
        """Return the decoder of a new connection."""
        if self._on_connect is not None:
            self._on_connect()
        return ReplyDecoder(max_frame_bytes, self._on_request)

    @staticmethod
    def encode(serial: int, method: Method, request: Request, _timeout_ms: int) -> bytes:
        if request.answer_to is not None:
            return encode_command(Command(SUCCESS, request.answer_to, {}, flag=ANSWER))
        flag = ONE_WAY if request.one_way else 0
        return encode_command(Command(method.code, serial, request.fields, request.body, flag))

    @classmethod
    def encode_all(
        cls, serials: Sequence[int], method: Method, requests: Sequence[Request], timeout_ms: int
    ) -> bytes:
        pairs = zip(serials, requests, strict=True)
        return b"".join(cls.encode(serial, method, item, timeout_ms) for serial, item in pairs)

    @staticmethod
    def decode(answer: Command, method: Method, where: str) -> Command:
        """Return the answer unchanged. Raises the `ServerError` of a code that is a refusal."""
        if answer.code not in method.answers:
            raise errors.for_code(answer.code, answer.remark or "", where=where)
        return answer

    @staticmethod
    def timeout_ms(request: Any, usual_ms: int) -> int:
        """Return the usual timeout plus the time for which the server may hold the request."""
        return usual_ms + int(request.wait_ms)


ROCKETMQ: Final = RocketMQCodec()
"""Codec of drivers and pools that ignore the requests of servers."""
