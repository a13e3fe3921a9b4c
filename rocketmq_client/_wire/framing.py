"""Frames: the outermost layer of every byte that crosses a RocketMQ connection.

A frame is a length and that number of bytes: a mark and a length for the header, the header, the
body. All integers are big-endian. Feed the decoder chunks of any size from the transport and take
commands out. It holds at most one unfinished frame of `max_frame_bytes`, and one chunk.

Source: `docs/rocketmq-protocol/wire.md#frame`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from rocketmq_client import errors
from rocketmq_client._wire.commands import BINARY, Command, decode_command

__all__ = ["DEFAULT_MAX_FRAME_BYTES", "CommandDecoder", "Reply", "ReplyDecoder"]

DEFAULT_MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
"""Both server lines close a connection that announces more (`NettyDecoder.java`)."""

_UNPAIRED: Final = -1


class CommandDecoder:
    """Cuts a stream into commands. A broken stream stays broken: close the connection."""

    __slots__ = ("_buffer", "_commands", "_failure", "_max_frame_bytes")

    def __init__(self, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._buffer = bytearray()
        self._commands: deque[Command] = deque()
        self._failure: str | None = None

    def __repr__(self) -> str:
        state = f"failed: {self._failure}" if self._failure else f"ready={len(self._commands)}"
        return f"<{type(self).__name__} {state} pending={len(self._buffer)}>"

    @property
    def mid_frame(self) -> bool:
        """True while bytes of an unfinished frame have arrived."""
        return bool(self._buffer)

    def receive_data(self, data: bytes | bytearray | memoryview) -> None:
        """Take the next chunk of the stream. Ignored once the stream has been found broken."""
        if self._failure is not None:
            return
        self._buffer += data
        try:
            self._parse()
        except errors.ProtocolViolation as violation:
            self._failure = str(violation)
            self._buffer.clear()

    def next_command(self) -> Command | None:
        """Return the next whole command, or None when more data is needed.

        Raises `ProtocolViolation` when the stream is broken and all earlier commands have been
        taken.
        """
        if self._commands:
            return self._commands.popleft()
        if self._failure is not None:
            raise errors.ProtocolViolation(self._failure)
        return None

    def _parse(self) -> None:
        buffer, pos, end = self._buffer, 0, len(self._buffer)
        while end - pos >= 4:
            stop = pos + 4 + self._length(pos)
            if end - pos > 4 and buffer[pos + 4] > BINARY:
                raise errors.ProtocolViolation(
                    f"unknown form of header {buffer[pos + 4]}; is this a RocketMQ port?"
                )
            if stop > end:
                break
            with memoryview(buffer) as whole, whole[pos + 4 : stop] as frame:
                self._commands.append(decode_command(frame))
            pos = stop
        del buffer[:pos]

    def _length(self, pos: int) -> int:
        length = int.from_bytes(self._buffer[pos : pos + 4], "big", signed=True)
        if not 4 <= length <= self._max_frame_bytes:
            raise errors.ProtocolViolation(
                f"a frame announces {length} bytes; 4 to {self._max_frame_bytes} are accepted; "
                "is this a RocketMQ port, and is it TLS or plain as configured?"
            )
        return length


class Reply(NamedTuple):
    """Answer as connections handle it: `serial` pairs it with its request."""

    serial: int
    payload: Command


class ReplyDecoder(CommandDecoder):
    """Client's decoder: answers in any order. Requests of the server (notices to members of a
    group, checks of transactions) are not answers: they get a serial without a waiting call, and
    go to `on_request`."""

    __slots__ = ("_on_request",)

    def __init__(
        self,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
        on_request: Callable[[Command], object] | None = None,
    ) -> None:
        super().__init__(max_frame_bytes)
        self._on_request = on_request

    def next_frame(self) -> Reply | None:
        """Return the next answer or request of the peer, or None when more data is needed."""
        command = self.next_command()
        if command is None:
            return None
        if self._on_request is not None and not command.is_answer:
            self._on_request(command)
        return Reply(command.opaque if command.is_answer else _UNPAIRED, command)
