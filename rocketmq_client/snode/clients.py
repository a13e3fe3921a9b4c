"""One client's connection to the node: frames in, answers out, and what is under way between.

What names a broker that is connected goes on within the turn, without a task; everything else
(routes, heartbeats, brokers to be connected to, refusals) is a task that `relay` answers. A client
whose bytes are no frames loses its connection and nobody else's; one that does not read its
answers, or whose broker takes no more, is not read from.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from rocketmq_client import errors
from rocketmq_client._wire.commands import ANSWER, ONE_WAY, Command, encode_command
from rocketmq_client.model import Address, address_text
from rocketmq_client.snode.access import Access, NotAdmitted
from rocketmq_client.snode.frames import MOST_DIGITS, FrameCutter, Head, command_of, read_head
from rocketmq_client.snode.lines import Line, Relayed
from rocketmq_client.snode.members import Member
from rocketmq_client.snode.metrics import Metrics
from rocketmq_client.snode.named import topic_in
from rocketmq_client.snode.relay import Relay, refusal, refusal_of, unanswered
from rocketmq_client.snode.routing import (
    LITE_PULL,
    PASSED_ON,
    PULL,
    broker_in,
    patience_of,
)
from rocketmq_client.snode.settings import SnodeSettings
from rocketmq_client.snode.upstream import Upstream

if TYPE_CHECKING:
    from rocketmq_client.errors import RocketMQError

__all__ = ["Client", "Shared"]

_LOG = logging.getLogger(__name__)
_HIGH_WATER_BYTES = 512 * 1024


@dataclass(slots=True)
class Shared:
    """What all clients of a node share."""

    settings: SnodeSettings
    upstream: Upstream
    access: Access
    relay: Relay
    metrics: Metrics
    clients: set[Client]
    connected: int = 0


class Client(asyncio.Protocol):
    """A connection that was accepted. `port_broker` is the broker that its port stands for."""

    def __init__(self, shared: Shared, port_broker: str | None) -> None:
        self._shared = shared
        self._port_broker = port_broker
        self._loop = asyncio.get_running_loop()
        shared.connected += 1
        self.slot = shared.connected
        settings = shared.settings
        self._cutter = FrameCutter(settings.max_frame_bytes)
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._held_by: set[object] = set()
        self._relayed = 0
        self.peer: Address = ("", 0)
        self.requests = 0
        self.tasks: set[asyncio.Task[None]] = set()
        self.heard_at = self._loop.time()
        self.member = Member(
            shared.upstream,
            self._push,
            timeout_ms=settings.upstream_timeout_ms,
            retry_ms=settings.heartbeat_retry_ms,
        )

    @property
    def in_flight(self) -> int:
        """Requests that are not answered."""
        return len(self.tasks) + self._relayed

    def abandon(self) -> None:
        """Cut the connection."""
        if self._transport is not None:
            self._transport.abort()

    # -- what the event loop calls --------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)
        self.peer = (transport.get_extra_info("peername") or self.peer)[:2]
        self._shared.clients.add(self)

    def data_received(self, data: bytes) -> None:
        self.heard_at = now = self._loop.time()
        try:
            for raw in self._cutter.cut(data):
                self._take(raw, now)
            if self._cutter.failure is not None:
                raise self._cutter.failure
        except errors.ProtocolViolation as error:
            self._shared.metrics.add("violations")
            _LOG.info("a client is cut off: %s", error, extra={"client": address_text(self.peer)})
            self.abandon()
        self._shared.upstream.turn.end()

    def pause_writing(self) -> None:
        self.hold(self)

    def resume_writing(self) -> None:
        self.release(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._shared.clients.discard(self)
        self.member.abandon()
        for task in list(self.tasks):
            task.cancel()
        said = {"client": address_text(self.peer), "requests": self.requests}
        _LOG.info("a client is gone", extra=said | ({"reason": str(exc)} if exc else {}))

    # -- what lines call ------------------------------------------------------------------------

    def answered(self, relayed: Relayed, code: int, frame: bytes) -> None:
        """An answer to pass on."""
        self._relayed -= 1
        now = self._loop.time()
        self._shared.metrics.answered(relayed.code, code, len(frame), now - relayed.began)
        if relayed.topic is not None:
            self._shared.metrics.moved(relayed.topic, "out", len(frame))
        self._write(frame)

    def unanswered(self, relayed: Relayed, error: RocketMQError) -> None:
        """There is no answer to pass on: the node gives one."""
        asked = Command(relayed.code, relayed.opaque, {})
        self._relayed -= 1
        answer = unanswered(asked, error)
        frame = encode_command(answer)
        spent = self._loop.time() - relayed.began
        self._shared.metrics.answered(relayed.code, answer.code, len(frame), spent)
        self._write(frame)

    def hold(self, reason: object) -> None:
        """Read no more until `release`."""
        if not self._held_by and self._transport is not None:
            self._transport.pause_reading()
        self._held_by.add(reason)

    def release(self, reason: object) -> None:
        """Read again, if nothing else is in the way."""
        self._held_by.discard(reason)
        if not self._held_by and self._transport is not None:
            self._transport.resume_reading()

    def flush(self) -> None:
        """Write what the turn has put together."""
        frames, self._out = self._out, []
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(frames))

    # -- requests -------------------------------------------------------------------------------

    def _take(self, raw: bytes, now: float) -> None:
        if not self._shared.access.signs:
            head = read_head(raw)
            if head is not None and self._passed_on(head, raw, now):
                return
            self._take_command(command_of(raw), len(raw))
            return
        command = command_of(raw)
        try:
            admitted = command if command.is_answer else self._shared.access.admit(command)
        except NotAdmitted as error:
            self._count(command.code, len(raw))
            self._say(command, refusal_of(command, error), now)
            return
        raw = encode_command(admitted._replace(binary=False))
        head = read_head(raw)
        if head is None or not self._passed_on(head, raw, now):
            self._take_command(admitted, len(raw))

    def _passed_on(self, head: Head, raw: bytes, now: float) -> bool:
        """Whether it could go on within the turn."""
        shared, code = self._shared, head.code
        if code not in PASSED_ON or head.flag & ANSWER:
            return False
        # A frame that grows too large for brokers would cost everybody the line.
        grown, settings = len(raw) + MOST_DIGITS, shared.settings
        if self.in_flight >= settings.max_in_flight_per_client or grown > settings.max_frame_bytes:
            return False
        broker = broker_in(code, head.fields) or self._port_broker
        line = self._line(broker, now) if type(broker) is str else None
        topic = topic_in(code, head.fields)
        if line is None or (shared.access.lists and not self._served(code, head.fields)):
            return False
        if code == LITE_PULL:
            refuses = shared.upstream.without_lite.get(line.name)
            if refuses is None:
                return False
            if refuses:  # by number 11 the same request means the same to an older broker
                raw = encode_command(command_of(raw)._replace(code=PULL))
                again = read_head(raw)
                if again is None:
                    return False
                head = again
        self._count(code, len(raw))
        relayed = None
        if not head.flag & ONE_WAY:
            wait = patience_of(code, head.fields, shared.settings.upstream_timeout_ms) / 1000
            known = shared.metrics.moved(topic, "in", len(raw)) if type(topic) is str else None
            relayed = Relayed(self, code, head.opaque, known, now, now + wait)
            self._relayed += 1
        line.relay(raw, head.at, head.to, self, relayed)
        return True

    def _line(self, broker: str, now: float) -> Line | None:
        bound = self.member.connection_to(broker)
        if bound is None:
            return self._shared.upstream.ready_line(broker, self.slot, now)
        return bound.line_to(self._shared.upstream.master(broker))

    def _served(self, code: int, fields: dict[str, Any]) -> bool:
        """Whether allow-lists let it pass; what they refuse is refused by `relay`."""
        if not all(isinstance(value, str | None) for value in fields.values()):
            return False
        try:
            self._shared.access.judge(code, fields)
        except NotAdmitted:
            return False
        return True

    def _take_command(self, request: Command, size: int) -> None:
        if request.is_answer:
            self._begin(self.member.answered(request))
            return
        self._count(request.code, size)
        if self.in_flight < self._shared.settings.max_in_flight_per_client:
            self._begin(self._answer(request))
        else:
            busy = refusal(request, 2, f"{self.in_flight} requests are unanswered")
            self._say(request, busy, self._loop.time())

    def _begin(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work, name="snode-request")
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _answer(self, request: Command) -> None:
        began = self._loop.time()
        answer = await self._shared.relay.answer(request, self.member, self._port_broker, self.slot)
        if answer is not None:
            self._say(request, answer, began)
            self.flush()

    def _count(self, code: int, size: int) -> None:
        self.requests += 1
        self._shared.metrics.asked(code, size)

    def _say(self, request: Command, answer: Command, began: float) -> None:
        if request.is_one_way:
            return
        frame = encode_command(answer)
        spent = self._loop.time() - began
        self._shared.metrics.answered(request.code, answer.code, len(frame), spent)
        self._write(frame)

    def _push(self, command: Command) -> None:
        """A request of a broker, for the member."""
        self._write(encode_command(command))
        self.flush()

    def _write(self, frame: bytes) -> None:
        if self._transport is None:
            return
        if not self._out:
            self._shared.upstream.turn.touch(self)
        self._out.append(frame)
