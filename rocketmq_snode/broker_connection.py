"""Connection to a broker on which frames are forwarded without decoding.

It is a connection of `tubemq_client._io` (TLS, deadlines, and calls that wait for their answer work
the same) which also carries *relayed* requests: written together with all others of the same turn
of the event loop, answered through the client's connection, without a task or a timer each. Only
`expire`, which the server calls periodically, checks their deadlines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, cast

from rocketmq_client import errors
from rocketmq_client._wire import codes
from rocketmq_client._wire.commands import ONE_WAY, Command
from rocketmq_snode.frames import FrameCutter, command_of, read_answer, read_head, renumbered
from rocketmq_snode.routing import PULLS
from tubemq_client._io.asyncio_connection import AsyncConnection

__all__ = ["LINES", "BrokerConnection", "Load", "Relayed", "WriteBatch"]

_SERIALS: Final = 0x7FFFFFFF
_HIGH_WATER_BYTES: Final = 1 << 20
_MEMBERS_CHANGED: Final = codes.NOTIFY_CONSUMER_IDS_CHANGED.code


class ReplyTarget(Protocol):
    """Target of answers: a client's connection."""

    def answered(self, relayed: Relayed, code: int, frame: bytes) -> None:
        """Take the answer, with the client's number."""

    def unanswered(self, relayed: Relayed, error: errors.RocketMQError) -> None:
        """Take the reason why there is no answer."""

    def hold(self, line: BrokerConnection) -> None:
        """Stop sending until `release`: the connection is full."""

    def release(self, line: BrokerConnection) -> None:
        """Continue sending: the connection is no longer full."""


class Relayed(NamedTuple):
    """Request in flight. Times are on the loop's clock, seconds."""

    asker: ReplyTarget
    code: int
    opaque: int
    topic: str | None
    began: float
    deadline: float
    may_wait: bool = False
    group: str | None = None


class Flushable(Protocol):
    def flush(self) -> None:
        """Write collected frames."""


class WriteBatch:
    """Frames collected in one turn of the event loop; `end` writes them, one write per socket."""

    __slots__ = ("_touched",)

    def __init__(self) -> None:
        self._touched: list[Flushable] = []

    def touch(self, written: Flushable) -> None:
        """Add a connection with collected frames."""
        self._touched.append(written)

    def end(self) -> None:
        """Write all collected frames."""
        while self._touched:
            self._touched.pop().flush()


@dataclass(slots=True)
class Load:
    """Pulls in flight to one broker over all connections."""

    pulls: int = 0


class BrokerConnection(AsyncConnection):
    """Frames over one transport, in both directions. `on_request` gets requests of the server, and
    `on_end` the connection itself when it is closed."""

    def __init__(
        self,
        name: str,
        decoder: Any,
        turn: WriteBatch,
        load: Load,
        on_end: Callable[[BrokerConnection], None],
    ) -> None:
        super().__init__(name, decoder)
        self.turn, self._load, self._on_end = turn, load, on_end
        self.pulls = 0
        self.on_request: Callable[[Command], None] | None = None
        self.on_notice: Callable[[tuple[str, str], bytes], None] | None = None
        self._cutter = cast("FrameCutter", decoder)
        self._relayed: dict[int, Relayed] = {}
        self._out: list[bytes] = []
        self._soonest = float("inf")
        self._waiting: list[ReplyTarget] = []
        self._backlog, self._shrank_at = 0, 0.0

    @property
    def in_flight(self) -> int:
        """Requests without an answer."""
        return len(self._replies) + len(self._relayed)

    def _count_pulls(self, more: int) -> None:
        """Add `more` to the relayed pulls in flight."""
        self.pulls += more
        self._load.pulls += more

    def relay(
        self, raw: bytes, at: int, to: int, asker: ReplyTarget, relayed: Relayed | None
    ) -> None:
        """Forward a request of `asker` at the end of the turn; `relayed` is None for a one-way
        request."""
        serial = next(self._serials) & _SERIALS
        if relayed is not None:
            self._relayed[serial] = relayed
            self._count_pulls(relayed.code in PULLS)
            self._soonest = min(self._soonest, relayed.deadline)
        if not self._writable.is_set():
            self._waiting.append(asker)
            asker.hold(self)
        if not self._out:
            self.turn.touch(self)
        self._out.append(renumbered(raw, at, to, serial))

    def flush(self) -> None:
        """Write the frames of this turn."""
        frames, self._out = self._out, []
        if self._transport is not None and self._failure is None:
            self.used_at = self._loop.time()
            self._transport.write(b"".join(frames))

    def expire(self, now: float, patience_s: float) -> None:
        """Expire relayed requests after their deadline, and close a full connection whose broker
        has read nothing for `patience_s`: clients held by it also need other brokers."""
        if self._stuck_for(now) > patience_s:
            self._fail(errors.ConnectionLost(f"{self.name} does not read requests"))
        if now < self._soonest:
            return
        late = [serial for serial, one in self._relayed.items() if one.deadline <= now]
        for serial in late:
            one = self._relayed.pop(serial)
            self._count_pulls(-(one.code in PULLS))
            self._judge(one.deadline)
            one.asker.unanswered(one, errors.RpcTimeout(f"{self.name} did not answer in time"))
        left = self._relayed.values()
        self._soonest = min((one.deadline for one in left), default=float("inf"))

    def _stuck_for(self, now: float) -> float:
        """Return the seconds for which a full write buffer has not become smaller; 0 for others."""
        if self._transport is None or self._writable.is_set():
            self._backlog = 0
            return 0.0
        size = self._transport.get_write_buffer_size()
        if size < self._backlog or not self._backlog:
            self._shrank_at = now
        self._backlog = size
        return now - self._shrank_at

    # -- what the event loop calls --------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        cast("asyncio.Transport", transport).set_write_buffer_limits(high=_HIGH_WATER_BYTES)

    def data_received(self, data: bytes) -> None:
        self.used_at = self.received_at = self._loop.time()
        self._heard = True
        try:
            for raw in self._cutter.cut(data):
                self._take(raw)
            if self._cutter.failure is not None:
                raise self._cutter.failure
        except errors.ProtocolViolation as error:
            self._fail(errors.ProtocolViolation(f"{self.name}: {error}"), error)
        self.turn.end()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._release()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._on_end(self)

    def _take(self, raw: bytes) -> None:
        answer = read_answer(raw)
        if answer is not None:
            relayed = self._relayed.pop(answer.opaque, None)
            if relayed is not None:
                self._count_pulls(-(relayed.code in PULLS))
                frame = renumbered(raw, answer.at, answer.to, relayed.opaque)
                relayed.asker.answered(relayed, answer.code, frame)
                return
        if self.on_notice is not None and self._pass_notice(raw):
            return
        command = command_of(raw)
        if command.is_answer:
            reply = cast("asyncio.Future[Any] | None", self._replies.get(command.opaque))
            if reply is not None and not reply.done():
                reply.set_result(command)
        elif self.on_request is not None:
            self.on_request(command)

    def _pass_notice(self, raw: bytes) -> bool:
        """Forward a notice without decoding it: N members that join cause N² of them."""
        head = read_head(raw)
        if head is None or head.code != _MEMBERS_CHANGED or not head.flag & ONE_WAY:
            return False
        group = head.fields.get("consumerGroup")
        if type(group) is not str or self.on_notice is None:
            return False
        self.on_notice((self.name, group), raw)
        return True

    def _fail(self, failure: errors.RocketMQError, cause: BaseException | None = None) -> None:
        super()._fail(failure, cause)
        relayed, self._relayed = self._relayed, {}
        self._count_pulls(-sum(one.code in PULLS for one in relayed.values()))
        for one in relayed.values():
            one.asker.unanswered(one, failure)
        self._release()
        if relayed:
            self.turn.end()

    def _release(self) -> None:
        waiting, self._waiting = self._waiting, []
        for asker in waiting:
            asker.release(self)


class _Lines:
    """Codec with which `tubemq_client._io` opens connections: only a decoder. Calls encode by
    themselves."""

    decoder = FrameCutter

    def encode(self, *_: Any) -> bytes:
        raise NotImplementedError

    encode_all = decode = timeout_ms = encode


LINES: Final[Any] = _Lines()
