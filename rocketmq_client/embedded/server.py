"""`EmbeddedRocketMQ`: sockets and a thread around the embedded name server and brokers.

One daemon thread with an event loop owns all state of a server; tests reach a broker through `do`.
Binds to 127.0.0.1, on free ports by default.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from rocketmq_client._wire.commands import Command, encode_command
from rocketmq_client._wire.framing import CommandDecoder
from rocketmq_client.embedded.broker import EmbeddedBroker, Topic
from rocketmq_client.embedded.name_server import NameServer
from rocketmq_client.errors import ProtocolViolation
from rocketmq_client.model import Address, ClientSettings, Credentials, Queue
from tubemq_client.embedded.loop_thread import LoopThread

__all__ = ["EmbeddedRocketMQ"]

T = TypeVar("T")

_HOST = "127.0.0.1"
_READ_BYTES = 256 * 1024
_REBIND_TRIES = 40
_REBIND_PAUSE_S = 0.05

Handler = Callable[[Command, "_Channel"], Awaitable[Command]]
_Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class EmbeddedRocketMQ:
    """A name server and `brokers` brokers `broker-a`, `broker-b`, … Use as a context manager.

    `topics` are created on every broker: name → queues. `credentials` makes brokers verify
    signatures. `tls` is a pair of PEM files, certificate and key: every port then speaks TLS only.
    """

    def __init__(
        self,
        *,
        topics: Mapping[str, int] | None = None,
        brokers: int = 1,
        name_server_port: int = 0,
        credentials: Credentials | None = None,
        tls: tuple[str, str] | None = None,
    ) -> None:
        names = [f"broker-{chr(ord('a') + number)}" for number in range(brokers)]
        self._brokers = {name: EmbeddedBroker(name, credentials) for name in names}
        for broker in self._brokers.values():
            broker.topics = {name: Topic(queues) for name, queues in (topics or {}).items()}
        self._name_server = NameServer("DefaultCluster", self._brokers)
        self._thread = LoopThread("embedded-rocketmq")
        self._servers: dict[str, asyncio.Server] = {}
        self._channels: dict[str, set[_Channel]] = {}
        self._ports: dict[str, int] = {"": name_server_port}
        self._tls = tls

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "running" if self._thread.running else "stopped"
        return f"<EmbeddedRocketMQ {state} brokers={', '.join(self._brokers)}>"

    @property
    def name_server(self) -> Address:
        """Address of the name server."""
        return (_HOST, self._ports[""])

    @property
    def settings(self) -> ClientSettings:
        """Settings that reach the name server, without credentials and TLS."""
        return ClientSettings((self.name_server,))

    @property
    def broker_names(self) -> list[str]:
        """Names of all brokers, running or not."""
        return list(self._brokers)

    def start(self) -> None:
        """Listen; safe to call once."""
        self._thread.start()
        self._thread.wait(lambda: self._listen("", self._ask_name_server))
        for name in self._brokers:
            self.start_broker(name)

    def stop(self) -> None:
        """Close every socket and end the thread; safe to call twice."""
        if self._thread.running:
            for name in list(self._servers):
                self._thread.wait(partial(self._close, name))
            self._thread.stop()

    def start_broker(self, name: str = "broker-a") -> None:
        """Start the broker, after a stop with the same address and log."""
        broker = self._brokers[name]
        self._thread.wait(lambda: self._listen(name, broker.handle))
        self._thread.do(lambda: broker.begin((_HOST, self._ports[name])))

    def kill_broker(self, name: str = "broker-a") -> None:
        """Cut its connections at once; it forgets members and keeps the log."""
        self._thread.do(self._brokers[name].end)
        self._thread.wait(lambda: self._close(name))

    def do(self, work: Callable[[EmbeddedBroker], T], broker: str = "broker-a") -> T:
        """Return the result of `work` on a broker, called on the server's thread."""
        return self._thread.do(lambda: work(self._brokers[broker]))

    def hold_flush(self, *, held: bool = True, broker: str = "broker-a") -> None:
        """Hold or release flushes: while held, no further record counts as flushed; a release
        flushes all."""

        def change(target: EmbeddedBroker) -> None:
            storage = target.storage
            storage.hold_flush = held
            storage.flushed = storage.flushed if held else storage.position

        self.do(change, broker)

    def lose_unflushed(self, broker: str = "broker-a") -> None:
        """Lose the log's unflushed end, as when the broker's host crashes. Restart the broker
        around it."""
        self.do(lambda target: target.storage.lose_unflushed(), broker)

    def remove_until(self, queue: Queue, offset: int, *, said: bool = True) -> None:
        """Remove records below `offset`, like retention. Without `said` the broker keeps reporting
        the old minimum, as a genuine one does for a while."""
        self.do(
            lambda target: target.storage.remove_until(
                queue.topic, queue.queue_id, offset, said=said
            ),
            queue.broker,
        )

    def damage(self, queue: Queue, offset: int) -> None:
        """Flip a byte in the body of a stored record."""
        self.do(
            lambda target: target.storage.damage(queue.topic, queue.queue_id, offset),
            queue.broker,
        )

    # -- on the loop ----------------------------------------------------------------------------

    async def _ask_name_server(self, request: Command, _channel: _Channel) -> Command:
        return self._name_server.handle(request)

    async def _listen(self, name: str, handler: Handler) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            channel = _Channel(writer)
            self._channels.setdefault(name, set()).add(channel)
            try:
                await channel.serve(reader, handler)
            finally:
                self._channels[name].discard(channel)
                if name:
                    self._brokers[name].groups.leave(channel)

        tries = _REBIND_TRIES if name in self._ports else 1
        server = await self._start(serve, self._ports.get(name, 0), tries)
        self._servers[name] = server
        self._ports[name] = server.sockets[0].getsockname()[1]

    async def _start(self, serve: _Serve, port: int, tries: int) -> asyncio.Server:
        """Start a server; retries, because a port left a moment ago may have been given to a
        connection."""
        while True:
            try:
                return await asyncio.start_server(
                    serve, _HOST, port, ssl=self._context(), limit=_READ_BYTES
                )
            except OSError:
                tries -= 1
                if not tries:
                    raise
            await asyncio.sleep(_REBIND_PAUSE_S)

    async def _close(self, name: str) -> None:
        server = self._servers.pop(name, None)
        if server is not None:
            server.close()
        for channel in list(self._channels.get(name, ())):
            channel.abort()
        await asyncio.sleep(0)

    def _context(self) -> ssl.SSLContext | None:
        if self._tls is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*self._tls)
        return context


class _Channel:
    """Connection of a client: requests are answered when they are done, in any order."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._tasks: set[asyncio.Task[None]] = set()
        host, port = writer.get_extra_info("peername")[:2]
        self.peer: Address = (str(host), int(port))

    def push(self, command: Command) -> None:
        """Send a request of the server."""
        if not self._writer.is_closing():
            self._writer.write(encode_command(command))

    def abort(self) -> None:
        """Cut the connection."""
        self._writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, handler: Handler) -> None:
        decoder = CommandDecoder()
        try:
            while data := await reader.read(_READ_BYTES):
                decoder.receive_data(data)
                while (request := decoder.next_command()) is not None:
                    self._begin(handler, request)
                await self._writer.drain()
        except (ProtocolViolation, OSError):
            pass  # like a genuine server: close the connection without an answer
        finally:
            for task in list(self._tasks):
                task.cancel()
            self.abort()

    def _begin(self, handler: Handler, request: Command) -> None:
        if request.is_answer:
            return
        task = asyncio.create_task(self._answer(handler, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, handler: Handler, request: Command) -> None:
        reply = await handler(request, self)
        if not request.is_one_way and not self._writer.is_closing():
            with contextlib.suppress(OSError):
                self._writer.write(encode_command(reply))
