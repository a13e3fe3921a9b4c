"""A connection to one master or broker on an event loop, shared by any number of its tasks.

Replies may come in any order and are matched by serial number; those that nobody waits for any
more, or that come twice, are dropped. Every wait has a deadline. Nothing of asyncio's or the
socket's own exceptions gets past this module except cancellation. `blocking` is its twin, with the
same method names.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING, Any, cast

from tubemq_client import errors
from tubemq_client._io.exchange import Exchange
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
    """Open a TCP connection within `connect_timeout_ms`, and make it TLS if asked to. Of the hosts
    that a name leads to, `avoid` is tried last. `kind` makes it, of a name and a decoder.

    Raises `errors.ConnectError`, or its subclass `errors.TlsError`."""
    name = address_text(address)
    try:
        async with asyncio.timeout(settings.connect_timeout_ms / 1000):
            connection = await _open(address, settings, codec, avoid, kind or AsyncConnection)
    except TimeoutError as error:
        raise errors.ConnectError(
            f"cannot connect to {name}: no answer within {settings.connect_timeout_ms} ms "
            f"(option connect_timeout_ms)"
        ) from error
    except (OSError, OverflowError, ValueError) as error:  # what is no host name, or no port
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
    failure: OSError = OSError("the name leads nowhere")
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
    """The system's words for it. asyncio puts its own, longer ones in `strerror`."""
    number = getattr(error, "errno", None)
    return os.strerror(number) if number is not None and number > 0 else error


class AsyncConnection(Exchange, asyncio.Protocol):
    """Frames over one transport. Belongs to the loop it was made on."""

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
        """Shake hands, before the first request. Raises `errors.TlsError`."""
        assert self._transport is not None, "just connected"
        try:
            secured = await self._loop.start_tls(
                self._transport,
                self,
                make_context(settings),
                server_hostname=settings.server_hostname or address[0],
                ssl_handshake_timeout=settings.handshake_timeout_ms / 1000,
            )
        except ConnectionAbortedError as error:  # asyncio's word for a handshake that takes long
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
        """Send the frame that `encode` makes for a fresh serial number, and return that number.

        Waits up to `timeout_s` while the peer does not take what was sent before.
        """
        if not self._writable.is_set():
            await self._until_writable(timeout_s)
        serial = self._next_serial()
        self._write(encode(serial), (serial,))
        return serial

    async def post_all(
        self, encode: Callable[[Sequence[int]], bytes], count: int, timeout_s: float
    ) -> Sequence[int]:
        """Like `post`, for `count` requests whose frames `encode` makes for `count` serial numbers,
        in one piece."""
        if not self._writable.is_set():
            await self._until_writable(timeout_s)
        serials = self._next_serials(count)
        self._write(encode(serials), serials)
        return serials

    def _write(self, frames: bytes, serials: Sequence[int]) -> None:
        self._raise_failure()
        assert self._transport is not None, "a connection is handed out when it is connected"
        self.used_at = self._loop.time()
        make = self._loop.create_future
        for serial in serials:
            self._replies[serial] = make()
        self._transport.write(frames)
        self._count_sent(len(serials), len(frames))

    async def wait(self, serial: int, deadline: float, until: float | None = None) -> bytes | None:
        """The reply payload for `serial`. `deadline` is on the clock of the loop. If there is none
        at `until`, an earlier time, the answer is None and the reply may be waited for again.

        Raises `errors.RpcTimeout`, `errors.ConnectionLost` or `errors.ProtocolViolation`.
        """
        if until is not None and until < deadline:
            reply = self._replies[serial]
            if not reply.done() and not await self._comes(reply, until):
                return None
        return await self._until(serial, max(deadline, self._loop.time() + LATE_GRACE_S))

    async def _comes(self, reply: asyncio.Future[bytes], until: float) -> bool:
        """Whether there is a reply at that time; it stays where it is."""
        if until <= self._loop.time():
            await asyncio.sleep(0)  # what has arrived is handed out by the loop
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
        """For each of `serials` the payload, or the error, that `wait` would come to. The caller
        adds the grace to `deadline`: once for all that it waits for."""
        found: list[bytes | errors.TubeMQError] = []
        for serial in serials:
            reply = self._replies[serial]
            try:
                if reply.done():
                    del self._replies[serial]
                    found.append(reply.result())
                else:
                    found.append(await self._until(serial, deadline))
            except errors.TubeMQError as error:
                found.append(error)
        return found

    def forget(self, serial: int) -> None:
        """Nobody will wait for this reply any more; drop it when it comes."""
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
                reply.exception()  # it counts as seen: not every reply is waited for
        self._writable.set()  # wakes tasks that want to send, to learn of the failure
        if self._transport is None:
            self._gone.set()
        else:
            self._transport.abort()

    # -- what the event loop calls --------------------------------------------------------------

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
