"""Client that is a member of groups: its connections to brokers, and its last heartbeat.

Brokers tie membership, notices, locks and expiry to a connection, so after the first heartbeat all
requests of this client use a separate connection to each broker. A broken one is reopened by
repeating the heartbeat. Nothing outlives the client's connection to the node.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from rocketmq_client import errors
from rocketmq_client._wire.commands import Command
from rocketmq_client._wire.json_text import read_json
from rocketmq_client.model import Address
from rocketmq_snode.upstream import BoundConnection, Upstream

__all__ = ["Member"]

_SAME_HEARTBEAT_S = 1.0
_SERIALS = 0x7FFFFFFF


class Member:
    """Upstream half of one client connection. `push` sends the client a request, `notify` the frame
    of a notice that members changed, under its broker and group."""

    def __init__(
        self,
        upstream: Upstream,
        push: Callable[[Command], None],
        notify: Callable[[tuple[str, str], bytes], None],
        *,
        timeout_ms: int,
        retry_ms: int,
    ) -> None:
        self._upstream = upstream
        self._push = push
        self._notify = notify
        self._timeout_ms = timeout_ms
        self._retry_s = retry_ms / 1000
        self.pulls = 0
        """Pulls in flight; `held`: those of them that brokers may hold."""
        self.held = 0
        self._bound: dict[str, BoundConnection] = {}
        self._asked: dict[int, tuple[BoundConnection, int]] = {}
        self._numbers = itertools.count(1)
        self._heartbeat: Command | None = None
        self._last: tuple[float, bytes, Command] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._beating = asyncio.Lock()

    @property
    def bound(self) -> int:
        """Number of the member's connections to brokers."""
        return len(self._bound)

    def connection_to(self, broker: str) -> BoundConnection | None:
        """Return the member's connection to a broker, None before a heartbeat."""
        return self._bound.get(broker)

    def described(self) -> dict[str, object]:
        """Return the client's id, groups, language and version as its last heartbeat gives them,
        for operators; empty before it."""
        beat = self._heartbeat
        if beat is None:
            return {}
        try:
            body = read_json(beat.body, "a heartbeat")
        except errors.ProtocolViolation:
            return {"language": beat.language, "version": beat.version}
        names = {
            kind: sorted(
                str(item.get("groupName")) for item in body.get(key) or () if isinstance(item, dict)
            )
            for kind, key in (
                ("consumer_groups", "consumerDataSet"),
                ("producer_groups", "producerDataSet"),
            )
        }
        return {
            "client_id": body.get("clientID"),
            **names,
            "language": beat.language,
            "version": beat.version,
        }

    async def heartbeat(self, request: Command) -> Command:
        """Send the heartbeat to every master; return the first answer. Equal heartbeats within a
        second are sent once. Raises the last failure if no broker answered."""
        async with self._beating:
            return await self._heartbeat_once(request)

    async def _heartbeat_once(self, request: Command) -> Command:
        now = asyncio.get_running_loop().time()
        if self._last and now - self._last[0] < _SAME_HEARTBEAT_S and self._last[1] == request.body:
            return self._last[2]._replace(opaque=request.opaque)
        self._heartbeat = request
        if not self._upstream.masters():
            await self._upstream.discover()
        answers = await asyncio.gather(
            *(self._beat(name, at, request) for name, at in self._upstream.masters().items()),
            return_exceptions=True,
        )
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep(), name="snode-member")
        good = [answer for answer in answers if isinstance(answer, Command)]
        if not good:
            failures = [item for item in answers if isinstance(item, errors.RocketMQError)]
            raise failures[0] if failures else errors.ConnectError("no broker is available")
        self._last = (now, request.body, good[0])
        return good[0]

    async def unregister(self, request: Command) -> Command:
        """Unregister at every broker that knows the client. The last heartbeat is no longer
        repeated: it names the group that was left. The next one registers the others."""
        async with self._beating:
            return await self._unregister_once(request)

    async def _unregister_once(self, request: Command) -> Command:
        self._last = self._heartbeat = None
        for name in [name for name, bound in self._bound.items() if not bound.usable]:
            self._bound.pop(name).abandon()  # a heartbeat may be in flight on it
        masters = self._upstream.masters()
        answer: Command | None = None
        for name, bound in list(self._bound.items()):
            if name in masters and bound.usable:
                try:
                    answer = await bound.ask(masters[name], request, self._timeout_ms)
                except errors.NetworkError:
                    continue  # the broker removes the member with the connection
        return answer or Command(0, request.opaque, {}, flag=1)

    async def answered(self, reply: Command) -> None:
        """Forward the client's answer to a request of a broker."""
        bound, number = self._asked.pop(reply.opaque, (None, 0))
        if bound is not None:
            await bound.answer(reply._replace(opaque=number))

    def abandon(self) -> None:
        """Close the connections when the client has disconnected, so that brokers remove it."""
        if self._keeper is not None:
            self._keeper.cancel()
        for bound in self._bound.values():
            bound.abandon()
        self._bound.clear()

    async def _beat(self, broker: str, address: Address, request: Command) -> Command | None:
        bound = self._bound.get(broker)
        if bound is None:
            bound = self._bound[broker] = self._open()
        return await bound.ask(address, request, self._timeout_ms)

    def _open(self) -> BoundConnection:
        def relay(request: Command) -> None:
            number = next(self._numbers) & _SERIALS
            if not request.is_one_way:
                self._asked[number] = (bound, request.opaque)
                while len(self._asked) > 1_000:  # a client that never answers
                    self._asked.pop(next(iter(self._asked)))
            self._push(request._replace(opaque=number, binary=False))

        bound = BoundConnection(self._upstream, relay, self._notify)
        return bound

    async def _keep(self) -> None:
        """Repeat the last heartbeat after a connection broke or the master moved, until the broker
        answers."""
        while True:
            await asyncio.sleep(self._retry_s)
            masters = self._upstream.masters()
            for name in list(self._bound):
                bound = self._bound.get(name)
                if bound is None or self._heartbeat is None or name not in masters:
                    continue
                if bound.line_to(masters[name]) is not None:
                    continue
                try:
                    await self._beat(name, masters[name], self._heartbeat)
                except errors.RocketMQError:
                    continue  # the next turn tries again
