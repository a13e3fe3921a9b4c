"""Connection to one master or broker on an event loop, shared by any number of its tasks.

Replies may arrive in any order and are matched by serial number; duplicates and replies that no
task awaits are dropped. Every wait has a deadline. No exception of asyncio or the socket leaves
this module except cancellation. `blocking` is its counterpart, with the same method names.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING, Any, cast

from tubemq_client import errors
from tubemq_client._io.connection_state import Exchange
from tubemq_client._io.replies import LATE_GRACE_S
from tubemq_client._io.sockets import in_order, keep_alive
from tubemq_client._io.tls import late, make_context, refused
from tubemq_client._wire.codec import TUBEMQ
from tubemq_client.model import address_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tubemq_client._io.codec import Codec, Decoder
    from tubemq_client.model import Address, ClientSettings, TlsSettings

__all__ = ["AsyncConnection", "connect"]


async def connect(
    address: Address,
    settings: ClientSettings,
    codec: Codec = TUBEMQ,
    *,
    avoid: str | None = None,
    kind: Callable[[str, Any], AsyncConnection] | None = None,
) -> AsyncConnection:
    """Open a TCP connection within `connect_timeout_ms`, with TLS if configured.

    Of the hosts that a name resolves to, `avoid` is tried last. `kind` creates the connection from
    a name and a decoder. Raises `errors.ConnectError`, or its subclass `errors.TlsError`.
    """
    name = address_text(address)
    try:
        async with asyncio.timeout(settings.connect_timeout_ms / 1000):
            connection = await _open(address, settings, codec, avoid, kind or AsyncConnection)
    except TimeoutError as error:
        raise errors.ConnectError(
            f"cannot connect to {name}: no answer within {settings.connect_timeout_ms} ms "
            f"(option connect_timeout_ms)"
        ) from error
    except (OSError, OverflowError, ValueError) as error:  # an invalid host name or port
        raise errors.ConnectError(f"cannot connect to {name}: {_reason(error)}") from error
    if settings.tls is not None:
        try:
            await connection.secure(address, settings.tls)
        except BaseException:
            connection.abandon()
            raise
    return connection


async def _open(
    address: Address,
    settings: ClientSettings,
    codec: Codec,
    avoid: str | None,
    kind: Callable[[str, Any], AsyncConnection],
) -> AsyncConnection:
    loop, name = asyncio.get_running_loop(), address_text(address)
    ends = [address]
    if avoid is not None:
        ends = in_order(await loop.getaddrinfo(*address, type=socket.SOCK_STREAM), avoid)
    failure: OSError = OSError("the name has no address")
    for end in ends:
        try:
            _, connection = await loop.create_connection(
                lambda: kind(name, codec.decoder(settings.max_frame_bytes)), *end
            )
        except OSError as error:
            failure = error
        else:
            connection.patience_s = settings.rpc_timeout_ms / 1000
            return connection
    raise failure


def _reason(error: Exception) -> object:
    """Return the system's text for an error; asyncio puts its own, longer one in `strerror`."""
    number = getattr(error, "errno", None)
    return os.strerror(number) if number is not None and number > 0 else error


class AsyncConnection(Exchange, asyncio.Protocol):
    """Frames over one transport. Belongs to the loop on which it was created."""

    def __init__(self, name: str, decoder: Decoder) -> None:
        self._loop = asyncio.get_running_loop()
        super().__init__(name, decoder, self._loop.time())
        self._transport: asyncio.Transport | None = None
        self._replies: dict[int, asyncio.Future[bytes]] = {}
        self._writable = asyncio.Event()
        self._gone = asyncio.Event()

    @property
    def in_flight(self) -> int:
        return len(self._replies)

    async def secure(self, address: Address, settings: TlsSettings) -> None:
        """Perform the handshake, before the first request. Raises `errors.TlsError`."""
        assert self._transport is not None, "just connected"
        try:
            secured = await self._loop.start_tls(
                self._transport,
                self,
                make_context(settings),
                server_hostname=settings.server_hostname or address[0],
                ssl_handshake_timeout=settings.handshake_timeout_ms / 1000,
            )
        except ConnectionAbortedError as error:  # asyncio's error for a slow handshake
            raise late(address, settings) from error
        except OSError as error:
            raise refused(address, error) from error
        if secured is None:
            raise errors.TlsError(f"no TLS with {self.name}: closed during the handshake")
        self._transport, self._secured = secured, True

    def abandon(self) -> None:
        """Close at once, without waiting for the socket; calls in flight fail."""
        self._fail(errors.ConnectionLost(f"{self.name}: closed"))

    async def post(self, encode: Callable[[int], bytes], timeout_s: float) -> int:
        """Send the frame that `encode` makes for a new serial number, and return that number.

        Waits up to `timeout_s` while the peer does not accept earlier data.
        """
        if not self._writable.is_set():
            await self._until_writable(timeout_s)
        serial = self._next_serial()
        self._write(encode(serial), (serial,))
        return serial

    async def post_all(
        self, encode: Callable[[Sequence[int]], bytes], count: int, timeout_s: float
    ) -> Sequence[int]:
        """Send `count` requests at once.

        `encode` makes their frames for `count` new serial numbers.
        """
        if not self._writable.is_set():
            await self._until_writable(timeout_s)
        serials = self._next_serials(count)
        self._write(encode(serials), serials)
        return serials

    def _write(self, frames: bytes, serials: Sequence[int]) -> None:
        self._raise_failure()
        assert self._transport is not None, "a connection is used after it is connected"
        self.used_at = self._loop.time()
        make = self._loop.create_future
        for serial in serials:
            self._replies[serial] = make()
        self._transport.write(frames)
        self._count_sent(len(serials), len(frames))

    async def wait(self, serial: int, deadline: float, until: float | None = None) -> bytes | None:
        """Return the reply payload for `serial`; `deadline` is a time of the loop's clock.

        Returns None if there is no reply at `until`, an earlier time; the caller may wait again.
        Raises `errors.RpcTimeout`, `errors.ConnectionLost` or `errors.ProtocolViolation`.
        """
        if until is not None and until < deadline:
            reply = self._replies[serial]
            if not reply.done() and not await self._comes(reply, until):
                return None
        return await self._until(serial, max(deadline, self._loop.time() + LATE_GRACE_S))

    async def _comes(self, reply: asyncio.Future[bytes], until: float) -> bool:
        """Return whether there is a reply at that time, without taking it."""
        if until <= self._loop.time():
            await asyncio.sleep(0)  # lets the loop process data that has arrived
        else:
            await asyncio.wait([reply], timeout=until - self._loop.time())
        return reply.done()

    async def _until(self, serial: int, deadline: float) -> bytes:
        reply = self._replies[serial]
        try:
            if reply.done():
                return reply.result()
            async with asyncio.timeout_at(deadline):
                return await reply
        except TimeoutError:
            self._judge(deadline)
            raise self._timed_out() from None
        finally:
            self.forget(serial)

    async def wait_all(
        self, serials: Sequence[int], deadline: float
    ) -> list[bytes | errors.TubeMQError]:
        """Return for each of `serials` the payload, or the error that `wait` would raise.

        The caller adds the grace to `deadline`: once for all its tickets.
        """
        outcomes: list[bytes | errors.TubeMQError] = []
        for serial in serials:
            reply = self._replies[serial]
            try:
                if reply.done():
                    del self._replies[serial]
                    outcomes.append(reply.result())
                else:
                    outcomes.append(await self._until(serial, deadline))
            except errors.TubeMQError as error:
                outcomes.append(error)
        return outcomes

    def has(self, serial: int) -> bool:
        """Return whether `wait` for this serial number returns or raises at once."""
        return self._failure is not None or self._replies[serial].done()

    async def wait_any(self, serials: Sequence[int], until: float) -> None:
        """Wait until one of `serials` is answered, the connection ends, or the time is `until`."""
        replies = [self._replies[serial] for serial in serials]
        left_s = max(0.0, until - self._loop.time())
        if replies:
            await asyncio.wait(replies, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(left_s)

    def forget(self, serial: int) -> None:
        """Drop the reply when it arrives: no task waits for it any more."""
        self._replies.pop(serial, None)

    async def close(self) -> None:
        """Close at once; calls in flight fail. Returns when the socket is closed."""
        self.abandon()
        await self._gone.wait()

    async def _until_writable(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._writable.wait()
        except TimeoutError:
            self._judge(self._loop.time())
            raise errors.RpcTimeout(
                f"{self.name}: the peer takes no more requests ({self.in_flight} in flight)"
            ) from None

    def _fail(self, failure: errors.TubeMQError, cause: BaseException | None = None) -> None:
        self._note_failure(failure, cause)
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(self._own_failure())
                reply.exception()  # marks it as retrieved: not every reply is awaited
        self._writable.set()  # wakes tasks that wait to send, which then raise
        if self._transport is None:
            self._gone.set()
        else:
            self._transport.abort()

    # -- callbacks of the event loop ------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._writable.set()
        self.socket, peer = map(transport.get_extra_info, ("socket", "peername"))
        if self.socket is not None and peer is not None:
            keep_alive(self.socket)
            self.host = str(peer[0])

    def data_received(self, data: bytes) -> None:
        frames, violation = self._frames(data, self._loop.time())
        for frame in frames:
            reply = self._replies.get(frame.serial)
            if reply is not None and not reply.done():
                reply.set_result(frame.payload)
        if violation is not None:
            self._fail(violation, violation.__cause__)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        why = f"receiving or sending failed: {exc}" if exc else "closed by the peer"
        self._fail(self._lost(why, exc), exc)
