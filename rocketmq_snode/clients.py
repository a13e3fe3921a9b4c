"""One client's connection to the node: requests, answers, and requests in flight.

A request that names a connected broker is forwarded within the turn of the event loop, without a
task; a task of `relay` handles all others (routes, heartbeats, brokers without a connection,
refusals). Invalid frames close the connection of their client only; a client that does not read its
answers, or whose broker accepts no more data, is not read from.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from rocketmq_client import errors
from rocketmq_client._wire.commands import ANSWER, ONE_WAY, Command, encode_command
from rocketmq_client.model import Address, address_text
from rocketmq_snode.access import Access, AccessDenied
from rocketmq_snode.broker_connection import BrokerConnection, Relayed
from rocketmq_snode.frames import MOST_DIGITS, FrameCutter, Head, command_of, read_head
from rocketmq_snode.limits import Limits
from rocketmq_snode.listener import ThrottledLog
from rocketmq_snode.members import Member
from rocketmq_snode.metrics import Metrics
from rocketmq_snode.relay import Relay, refusal, refusal_of, unanswered
from rocketmq_snode.request_resources import group_in, topic_in
from rocketmq_snode.routing import (
    FORWARDED,
    LITE_PULL,
    PULL,
    PULLS,
    answer_timeout_ms,
    broker_in,
    may_wait,
)
from rocketmq_snode.settings import SnodeSettings
from rocketmq_snode.upstream import Upstream

if TYPE_CHECKING:
    from rocketmq_client.errors import RocketMQError

__all__ = ["Client", "Shared"]

_LOG = logging.getLogger(__name__)
_HIGH_WATER_BYTES = 128 * 1024
_PULLS_AHEAD = 4
"""Limit of pulls in flight of a client that reads its answers; one at first, one more with each
answer."""
_FRAMES_AT_ONCE = 8
"""Limit of requests of one client handled at once; the next ones wait for those of other
clients."""
_BACKLOGS_PER_TURN = 8
"""Limit of clients with a backlog that are served in one turn of the event loop."""
_HELD_MORE = 4
"""Held pulls that each check of a client stops counting against its limit of pulls in flight."""
_BACKLOG = "backlog"
"""Reason to hold a client whose requests wait for a later turn."""
_INTRODUCTION_S = 10.0
"""Deadline of a client's first signed request, on nodes with users."""


@dataclass(slots=True)
class Shared:
    """State that all clients of a node share."""

    settings: SnodeSettings
    upstream: Upstream
    access: Access
    relay: Relay
    metrics: Metrics
    clients: set[Client]
    limits: Limits
    seldom: ThrottledLog
    backlogs: Backlogs
    connected: int = 0


class Backlogs:
    """Clients with more requests than are handled at once, served round robin."""

    def __init__(self) -> None:
        self._waiting: deque[Client] = deque()
        self._scheduled = False

    def add(self, client: Client) -> None:
        """Serve the client in a later turn."""
        self._waiting.append(client)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._serve)

    def _serve(self) -> None:
        for _ in range(min(len(self._waiting), _BACKLOGS_PER_TURN)):
            self._waiting.popleft().take_frames()
        self._scheduled = bool(self._waiting)
        if self._scheduled:
            asyncio.get_running_loop().call_soon(self._serve)


class Client(asyncio.Protocol):
    """Accepted connection. `port_broker` is the broker of the virtual port, if it is one."""

    def __init__(self, shared: Shared, port_broker: str | None) -> None:
        self._shared = shared
        self._port_broker = port_broker
        self._loop = asyncio.get_running_loop()
        shared.connected += 1
        self.slot = shared.connected
        settings = shared.settings
        self._cutter = FrameCutter(settings.max_frame_bytes)
        self.introduced = False
        if shared.access.signs:
            self._cutter.admits = shared.access.names_user
        self.unfinished = self.queued = 0
        self.unfinished_since = 0.0
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._answers_out = 0
        self._backlog: deque[bytes] = deque()
        self._backlog_bytes = 0
        self._notices: dict[tuple[str, str], bytes] = {}
        self._hold_reasons: set[object] = set()
        self._relayed = 0
        self._parked: deque[tuple[Head, bytes]] = deque()
        self._long_held = 0
        self._pulls_ahead = 1
        self.peer: Address = ("", 0)
        self.requests = 0
        self.tasks: set[asyncio.Task[None]] = set()
        self.began = self.heard_at = self._loop.time()
        self.member = Member(
            shared.upstream,
            self._push,
            self._notify,
            timeout_ms=settings.upstream_timeout_ms,
            retry_ms=settings.heartbeat_retry_ms,
        )

    @property
    def in_flight(self) -> int:
        """Requests without an answer."""
        return len(self.tasks) + self._relayed + len(self._parked)

    def abandon(self) -> None:
        """Cut the connection."""
        if self._transport is not None:
            self._transport.abort()

    def cut_off(self, why: str) -> None:
        """Cut the connection of a client that exceeds a limit."""
        if self not in self._shared.clients:
            return
        self._shared.metrics.add("cut_off")
        peer = address_text(self.peer)
        self._shared.seldom.say(logging.INFO, "a client is cut off: %s", why, client=peer)
        self.abandon()
        self._forget()

    def check(self, now: float) -> None:
        """Cut off a client that is idle, does not finish a frame, or signs no request."""
        settings = self._shared.settings
        before = self.queued
        self._report_queued()
        if self.queued < before:
            self.heard_at = now  # it reads answers
        if not self.queued:
            self._long_held += _HELD_MORE
            self._send_parked()
            self._write_notices()
        stuck = self.unfinished and not self._hold_reasons
        introduction_s = min(_INTRODUCTION_S, settings.idle_ms / 1000)
        if now - self.heard_at > settings.idle_ms / 1000 and not self.in_flight:
            self.abandon()
        elif stuck and now - self.unfinished_since > settings.frame_timeout_ms / 1000:
            self.cut_off("its frame is not complete in time (frame_timeout_ms)")
        elif (
            self._shared.access.signs and not self.introduced and now - self.began > introduction_s
        ):
            self.cut_off("it has not signed a request")

    # -- what the event loop calls --------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)
        _limit_unsent_bytes(transport.get_extra_info("socket"))
        self.peer = (transport.get_extra_info("peername") or self.peer)[:2]
        self._shared.clients.add(self)

    def data_received(self, data: bytes) -> None:
        self.heard_at = now = self._loop.time()
        frames = self._cutter.cut(data)
        if frames or not self.unfinished:
            self.unfinished_since = now
        waits = bool(self._backlog)
        self._backlog.extend(frames)
        self._backlog_bytes += sum(map(len, frames))
        if not waits:
            self.take_frames()

    def take_frames(self) -> None:
        """Handle requests that have arrived, at most `_FRAMES_AT_ONCE`; the rest in later turns."""
        if self not in self._shared.clients:
            return
        now, backlog = self._loop.time(), self._backlog
        try:
            for _ in range(min(len(backlog), _FRAMES_AT_ONCE)):
                raw = backlog.popleft()
                self._backlog_bytes -= len(raw)
                self._take(raw, now)
            waiting_bytes = self._cutter.pending + self._backlog_bytes
            self._shared.limits.hold_unfinished(self, waiting_bytes)
            if self._cutter.failure is not None and not backlog:
                raise self._cutter.failure
        except errors.ProtocolViolation as error:
            self._shared.metrics.add("violations")
            self.cut_off(str(error))
        if backlog:
            self.hold(_BACKLOG)
            self._shared.backlogs.add(self)
        elif _BACKLOG in self._hold_reasons:
            self.release(_BACKLOG)
        self._shared.upstream.turn.end()

    def pause_writing(self) -> None:
        self.hold(self)

    def resume_writing(self) -> None:
        self._report_queued()
        self.release(self)
        self._send_parked()
        self._shared.upstream.turn.end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._forget()
        self.member.abandon()
        for task in list(self.tasks):
            task.cancel()
        details = {"client": address_text(self.peer), "requests": self.requests}
        if exc:
            details["reason"] = str(exc)
        if self.requests:
            _LOG.info("a client has disconnected", extra=details)
        else:
            self._shared.seldom.say(
                logging.INFO, "a client has disconnected without a request", **details
            )

    # -- what lines call ------------------------------------------------------------------------

    def answered(self, relayed: Relayed, code: int, frame: bytes) -> None:
        """Forward an answer."""
        self._relayed -= 1
        self.member.pulls -= relayed.code in PULLS
        self.member.held -= relayed.may_wait
        now = self._loop.time()
        self._shared.metrics.answered(relayed.code, code, len(frame), now - relayed.began)
        if relayed.topic is not None:
            self._shared.metrics.moved(relayed.topic, "out", len(frame))
        if relayed.group is not None:
            self._shared.metrics.moved_for(relayed.group, "out", len(frame))
        self._write(frame)
        self._answers_out += 1

    def unanswered(self, relayed: Relayed, error: RocketMQError) -> None:
        """Answer a request that its broker did not answer."""
        request = Command(relayed.code, relayed.opaque, {})
        self._relayed -= 1
        self.member.pulls -= relayed.code in PULLS
        self.member.held -= relayed.may_wait
        self._pulls_ahead = 1
        answer = unanswered(request, error)
        frame = encode_command(answer)
        seconds = self._loop.time() - relayed.began
        self._shared.metrics.answered(relayed.code, answer.code, len(frame), seconds)
        self._write(frame)

    def hold(self, reason: object) -> None:
        """Stop reading until `release`."""
        if not self._hold_reasons and self._transport is not None:
            self._transport.pause_reading()
        self._hold_reasons.add(reason)

    def release(self, reason: object) -> None:
        """Read again, unless another reason remains."""
        self._hold_reasons.discard(reason)
        self.unfinished_since = self._loop.time()
        if not self._hold_reasons and self._transport is not None:
            self._transport.resume_reading()

    def flush(self) -> None:
        """Write the frames of this turn, then send parked pulls if the client reads its answers:
        the write tells whether its buffer is full."""
        frames, self._out = self._out, []
        answers, self._answers_out = self._answers_out, 0
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(frames))
            self._report_queued()
            if self not in self._hold_reasons:
                self._pulls_ahead = min(_PULLS_AHEAD, self._pulls_ahead + answers)
                self._send_parked()

    def _report_queued(self) -> None:
        """Report the size of the client's write buffer to the limits."""
        if self._transport is not None and not self._transport.is_closing():
            self._shared.limits.hold_queued(self, self._transport.get_write_buffer_size())

    def _forget(self) -> None:
        """Stop counting the client, though its socket may take a moment to close."""
        self._shared.limits.forget(self)
        self._cutter.end()
        self._parked.clear()
        self._backlog.clear()
        self._backlog_bytes = 0
        self._notices.clear()
        self._shared.clients.discard(self)

    # -- requests -------------------------------------------------------------------------------

    def _take(self, raw: bytes, now: float) -> None:
        if not self._shared.access.signs:
            self.introduced = True
            head = read_head(raw)
            if head is None or not self._park(head, raw):
                self._send_on(head, raw, now)
            return
        command = command_of(raw)
        try:
            admitted = command if command.is_answer else self._shared.access.admit(command)
        except AccessDenied as error:
            self._count(command.code, len(raw))
            self._say(command, refusal_of(command, error), now)
            return
        if not command.is_answer:
            self.introduced, self._cutter.admits = True, None
        raw = encode_command(admitted._replace(binary=False))
        head = read_head(raw)
        if head is None or not self._park(head, raw):
            self._send_on(head, raw, now)

    def _send_on(self, head: Head | None, raw: bytes, now: float) -> None:
        if head is None or not self._forward(head, raw, now):
            self._take_command(command_of(raw), len(raw))

    def _park(self, head: Head, raw: bytes) -> bool:
        """Park a pull while answers to earlier pulls are in flight: a client that does not read
        must not make brokers send more. Pulls that brokers may hold soon stop counting: a client of
        many queues has many."""
        if head.code not in PULLS or self._may_pull():
            return False
        if self.in_flight >= self._shared.settings.max_in_flight_per_client:
            return False  # answered "busy"
        self._parked.append((head, raw))
        return True

    def _may_pull(self) -> bool:
        return (
            self not in self._hold_reasons
            and self.member.pulls - self._long_held < self._pulls_ahead
        )

    def _send_parked(self) -> None:
        """Send parked pulls, up to the client's limit."""
        self._long_held = min(self._long_held, self.member.held)
        while self._parked and self._may_pull():
            head, raw = self._parked.popleft()
            self._send_on(head, raw, self._loop.time())

    def _forward(self, head: Head, raw: bytes, now: float) -> bool:
        """Forward the request within the turn; return False if it needs a task."""
        shared, code = self._shared, head.code
        # A frame that grows too large for brokers would close a connection shared by many clients.
        grown, settings = len(raw) + MOST_DIGITS, shared.settings
        is_full = self.in_flight >= settings.max_in_flight_per_client
        if (
            code not in FORWARDED
            or head.flag & ANSWER
            or is_full
            or grown > settings.max_frame_bytes
        ):
            return False
        broker = broker_in(code, head.fields) or self._port_broker
        line = self._line(broker, now, code) if type(broker) is str else None
        topic = topic_in(code, head.fields)
        if line is None or (shared.access.lists and not self._served(code, head.fields)):
            return False
        if code == LITE_PULL:
            refuses = shared.upstream.without_lite.get(line.name)
            if refuses is None:
                return False
            if refuses:  # older brokers know the same request as code 11
                raw = encode_command(command_of(raw)._replace(code=PULL))
                again = read_head(raw)
                if again is None:
                    return False
                head = again
        self._count(code, len(raw))
        if code in PULLS and not shared.upstream.admits_pull(
            line.name, self.member.pulls, len(shared.clients)
        ):
            request = Command(code, head.opaque, {}, flag=head.flag)
            self._say(
                request, refusal(request, 2, "too many pulls are in flight to this broker"), now
            )
            return True
        relayed = None
        if not head.flag & ONE_WAY:
            wait = answer_timeout_ms(code, head.fields, shared.settings.upstream_timeout_ms) / 1000
            topic_label = (
                shared.metrics.moved(topic, "in", len(raw)) if type(topic) is str else None
            )
            group = group_in(code, head.fields)
            group_label = (
                shared.metrics.moved_for(group, "in", len(raw)) if type(group) is str else None
            )
            held = may_wait(code, head.fields)
            relayed = Relayed(
                self, code, head.opaque, topic_label, now, now + wait, held, group_label
            )
            self._relayed += 1
            self.member.pulls += code in PULLS
            self.member.held += held
        line.relay(raw, head.at, head.to, self, relayed)
        return True

    def _line(self, broker: str, now: float, code: int) -> BrokerConnection | None:
        bound = self.member.connection_to(broker)
        if bound is None:
            upstream = self._shared.upstream
            return upstream.ready_line(broker, self.slot, now, pulls=code in PULLS)
        return bound.line_to(self._shared.upstream.master(broker))

    def _served(self, code: int, fields: dict[str, Any]) -> bool:
        """Return True if allow-lists admit the request; `relay` answers the others."""
        if not all(isinstance(value, str | None) for value in fields.values()):
            return False
        try:
            self._shared.access.authorize(code, fields)
        except AccessDenied:
            return False
        return True

    def _take_command(self, request: Command, size: int) -> None:
        if request.is_answer:
            self._begin(self.member.answered(request))
            return
        self._count(request.code, size)
        if self.in_flight < self._shared.settings.max_in_flight_per_client:
            self._count_pull(request.code, request.fields, 1)
            self._begin(self._answer(request))
        else:
            busy = refusal(request, 2, f"{self.in_flight} requests are in flight")
            self._say(request, busy, self._loop.time())

    def _begin(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work, name="snode-request")
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _answer(self, request: Command) -> None:
        began = self._loop.time()
        try:
            answer = await self._shared.relay.answer(
                request, self.member, self._port_broker, self.slot
            )
        finally:
            self._count_pull(request.code, request.fields, -1)
        if answer is not None:
            self._say(request, answer, began)
            self._shared.upstream.turn.end()

    def _count_pull(self, code: int, fields: dict[str, str], more: int) -> None:
        if code in PULLS:
            self.member.pulls += more
            self.member.held += more if may_wait(code, fields) else 0

    def _count(self, code: int, size: int) -> None:
        self.requests += 1
        self._shared.metrics.asked(code, size)

    def _say(self, request: Command, answer: Command, began: float) -> None:
        if request.is_one_way:
            return
        frame = encode_command(answer)
        seconds = self._loop.time() - began
        self._shared.metrics.answered(request.code, answer.code, len(frame), seconds)
        self._write(frame)

    def _push(self, command: Command) -> None:
        """Send the member a request of a broker."""
        self._write(encode_command(command))
        self.flush()

    def _notify(self, broker_and_group: tuple[str, str], frame: bytes) -> None:
        """Keep a notice that members of a group changed until the next `check`. It carries only the
        group, so the last one replaces those before it."""
        self._notices[broker_and_group] = frame

    def _write_notices(self) -> None:
        for frame in self._notices.values():
            self._write(frame)
        self._notices.clear()

    def _write(self, frame: bytes) -> None:
        if self._transport is None:
            return
        if not self._out:
            self._shared.upstream.turn.touch(self)
        self._out.append(frame)


def _limit_unsent_bytes(sock: socket.socket | None) -> None:
    """Keep only as much unsent data in the kernel's buffer as the network can take soon, not the
    megabytes that fit: a client that does not read is noticed earlier."""
    option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
    if sock is not None and option is not None:
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, option, _HIGH_WATER_BYTES)
