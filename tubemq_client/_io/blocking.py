"""Blocking connection to one master or broker, shared by any number of threads.

Replies may arrive in any order and are matched by serial number. There is no reader thread: a
waiting thread becomes the reader if no other thread is reading, and passes other threads their
replies, so a single-threaded caller pays nothing. Replies that no thread awaits are dropped.

The socket itself never blocks: a timeout set on it would be shared by the thread that sends and the
thread that reads, so each waits with `poll` and a separate deadline. `asyncio_connection` is the
counterpart, with the same method names.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from typing import TYPE_CHECKING, NoReturn

from tubemq_client import errors
from tubemq_client._io.connection_state import DeferredFrames, Exchange
from tubemq_client._io.replies import LATE_GRACE_S, Replies
from tubemq_client._io.sockets import SocketReader, in_order, keep_alive
from tubemq_client._io.tls import TlsSocket, secure
from tubemq_client._wire.codec import TUBEMQ
from tubemq_client.model import address_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tubemq_client._io.codec import Codec, Decoder
    from tubemq_client.model import Address, ClientSettings

__all__ = ["BlockingConnection", "connect"]

_HELD_S = 0.002
_HELD_BYTES = 64 * 1024
"""Limits of the delay of requests that may be sent with others: seconds, and bytes held back."""


def connect(
    address: Address,
    settings: ClientSettings,
    codec: Codec = TUBEMQ,
    *,
    avoid: str | None = None,
) -> BlockingConnection:
    """Open a TCP connection within `connect_timeout_ms`, with TLS if configured.

    Of the hosts that a name resolves to, `avoid` is tried last. Raises `errors.ConnectError`, or
    its subclass `errors.TlsError`.
    """
    try:
        sock = _open(address, settings.connect_timeout_ms / 1000, avoid)
    except (OSError, OverflowError, ValueError) as error:  # an invalid host name or port
        reason = getattr(error, "strerror", None) or error
        raise errors.ConnectError(f"cannot connect to {address_text(address)}: {reason}") from error
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        keep_alive(sock)
        host = str(sock.getpeername()[0])
        channel = secure(sock, address, settings.tls) if settings.tls else sock
    except OSError as error:  # the peer has disconnected again
        sock.close()
        raise errors.ConnectError(f"cannot connect to {address_text(address)}: {error}") from error
    except BaseException:
        sock.close()
        raise
    decoder = codec.decoder(settings.max_frame_bytes)
    connection = BlockingConnection(channel, address_text(address), decoder)
    connection.host, connection.patience_s = host, settings.rpc_timeout_ms / 1000
    return connection


def _open(address: Address, timeout_s: float, avoid: str | None) -> socket.socket:
    if avoid is None:
        return socket.create_connection(address, timeout_s)
    failure: OSError = OSError("the name has no address")
    for end in in_order(socket.getaddrinfo(*address, type=socket.SOCK_STREAM), avoid):
        try:
            return socket.create_connection(end, timeout_s)
        except OSError as error:
            failure = error
    raise failure


class BlockingConnection(Exchange):
    """Frames over one socket, which threads may share."""

    def __init__(self, sock: socket.socket | TlsSocket, name: str, decoder: Decoder) -> None:
        super().__init__(name, decoder, time.monotonic())
        self._sock = self.socket = sock
        self._secured = isinstance(sock, TlsSocket)
        self._sock.settimeout(0)
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(sock, select.POLLIN)
        self._writable.register(sock, select.POLLOUT)
        self._intake = SocketReader(sock, secured=self._secured)
        self._send_lock = threading.Lock()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._reading = False
        self._replies = Replies()
        self._held = DeferredFrames()
        self._holding, self._ended = threading.Event(), threading.Event()
        self._sender: threading.Thread | None = None

    @property
    def in_flight(self) -> int:
        return len(self._replies)

    def hung_up(self) -> bool:
        """Return whether the peer has closed a connection that is not in use."""
        with self._lock:
            if self._reading:
                return False
            self._reading = True
        try:
            self._read_available()
        except errors.TubeMQError:
            return True
        finally:
            self._stop_reading()
        return False

    def post(self, encode: Callable[[int], bytes], timeout_s: float) -> int:
        """Send the frame that `encode` makes for a new serial number, and return that number.

        Waits up to `timeout_s` while the peer does not accept earlier data.
        """
        self.used_at = time.monotonic()
        serial = self._next_serial()
        self._put(encode(serial), (serial,), timeout_s)
        return serial

    def post_all(
        self,
        encode: Callable[[Sequence[int]], bytes],
        count: int,
        timeout_s: float,
        *,
        soon: bool = False,
    ) -> Sequence[int]:
        """Send `count` requests, whose frames `encode` makes for `count` new serial numbers.

        Uses as few system calls as the peer allows. When it fails, some may have been sent. With
        `soon` they are delayed until a caller waits for a reply, but some milliseconds at most: a
        thread of the connection, which only such calls start, sends them then. If that fails,
        callers that wait for a reply get the error.
        """
        self.used_at = time.monotonic()
        serials = self._next_serials(count)
        try:
            self._put(encode(serials), serials, timeout_s, hold=soon)
        except errors.ConnectError as error:  # of TLS; callers would take it for "not sent"
            raise errors.ConnectionLost(*error.args) from error
        return serials

    def wait(self, serial: int, deadline: float, until: float | None = None) -> bytes | None:
        """Return the reply payload for `serial`; `deadline` is a time of `time.monotonic`.

        Returns None if there is no reply at `until`, an earlier time; the caller may wait again.
        Raises `errors.RpcTimeout`, `errors.ConnectionLost` or `errors.ProtocolViolation`.
        """
        if until is not None and until < deadline:
            try:
                return self._until(serial, until, keep=True)
            except errors.RpcTimeout:
                return None
        return self._until(serial, max(deadline, time.monotonic() + LATE_GRACE_S))

    def _until(self, serial: int, deadline: float, *, keep: bool = False) -> bytes:
        if self._held.size:
            self._flush(max(1.0, deadline - time.monotonic()))
        while True:
            with self._lock:
                while self._reading and serial not in self._replies and self._failure is None:
                    if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                        raise self._given_up(serial, deadline, keep=keep)
                payload: bytes | None = self._replies.take(serial)
                if payload is not None:
                    return payload
                self._raise_failure()
                self._reading = True
            try:
                self._read_some(serial, deadline, keep=keep)
            finally:
                self._stop_reading()

    def wait_all(self, serials: Sequence[int], deadline: float) -> list[bytes | errors.TubeMQError]:
        """Return for each of `serials` the payload, or the error that `wait` would raise.

        The caller adds the grace to `deadline`: once for all its tickets.
        """
        outcomes: list[bytes | errors.TubeMQError] = []
        while len(outcomes) < len(serials):
            with self._lock:
                self._replies.take_in_order(serials, outcomes)
            if len(outcomes) < len(serials):
                try:
                    outcomes.append(self._until(serials[len(outcomes)], deadline))
                except errors.TubeMQError as error:
                    outcomes.append(error)
        return outcomes

    def has(self, serial: int) -> bool:
        """Return whether `wait` for this serial number returns or raises at once."""
        return self._failure is not None or serial in self._replies

    def wait_any(self, serials: Sequence[int], until: float) -> None:
        """Read until one of `serials` is answered, the connection ends, or the time is `until`."""
        while True:
            with self._lock:
                if any(map(self.has, serials)) or time.monotonic() >= until:
                    return
                if self._reading:
                    self._changed.wait(max(0.0, until - time.monotonic()))
                    continue
                self._reading = True
            try:
                if self._is_decrypted() or self._readable.poll(_ms_until(until)):
                    self._read_available()
            except errors.TubeMQError:
                return  # callers that wait for replies get the error
            finally:
                self._stop_reading()

    def forget(self, serial: int) -> None:
        """Drop the reply when it arrives: no thread waits for it any more."""
        with self._lock:
            self._replies.forget(serial)

    def close(self) -> None:
        self._end(errors.ConnectionLost(f"{self.name}: closed"))

    def _put(
        self, frames: bytes, serials: Sequence[int], timeout_s: float, *, hold: bool = False
    ) -> None:
        with self._lock:
            self._raise_failure()
            self._replies.want(serials)
        with self._send_lock:
            self._count_sent(len(serials), len(frames))
            if hold or self._held.size:
                self._held.add(frames)
                hold = hold and self._held.size < _HELD_BYTES
                frames = frames if hold else self._held.take()
            if not hold:  # under the same lock: if it fails, the last frame was not sent
                self._send_or_fail(frames, timeout_s)
        if hold and not self._holding.is_set():
            self._schedule_flush(timeout_s)

    def _flush(self, timeout_s: float) -> None:
        with self._send_lock:
            if self._held.size:
                self._send_or_fail(self._held.take(), timeout_s)

    def _send_or_fail(self, frames: bytes, timeout_s: float) -> None:
        """Send frames in one write.

        The caller holds the lock until a failure is recorded: nothing may follow half a frame.
        """
        try:
            self._send(frames, time.monotonic() + timeout_s)
        except OSError as error:
            self._read_final_error()
            self._fail(self._lost(f"sending failed: {error}", error), error)

    def _schedule_flush(self, timeout_s: float) -> None:
        with self._send_lock:
            if self._sender is None:
                self._sender = threading.Thread(
                    target=self._flush_loop, args=(timeout_s,), name="tubemq-send", daemon=True
                )
                self._sender.start()
            self._holding.set()

    def _flush_loop(self, timeout_s: float) -> None:
        while self._failure is None:
            self._holding.wait()
            self._ended.wait(_HELD_S)
            self._holding.clear()
            try:
                self._flush(timeout_s)
            except errors.TubeMQError:
                return  # callers that wait for replies get the error

    def _send(self, data: bytes, deadline: float) -> None:
        """Send all data or raise an `OSError`: half a frame makes the connection useless."""
        sent = 0
        while sent < len(data):
            try:
                sent += self._sock.send(memoryview(data)[sent:] if sent else data)
            except BlockingIOError:
                if not self._writable.poll(_ms_until(deadline)):
                    raise TimeoutError("the peer takes no more requests") from None

    def _read_some(self, serial: int, deadline: float, *, keep: bool) -> None:
        # A caller may be late for a reply that arrived in time (it was waiting for the next record
        # to send, for example): data that has arrived is used, only waiting ends with the deadline.
        if not (self._is_decrypted() or self._readable.poll(_ms_until(deadline))):
            raise self._given_up(serial, deadline, keep=keep)
        self._read_available()

    def _is_decrypted(self) -> bool:
        """Return whether TLS has read more from the socket than the buffer had room for."""
        return isinstance(self._sock, TlsSocket) and self._sock.pending() > 0

    def _stop_reading(self) -> None:
        with self._lock:
            self._reading = False
            self._changed.notify_all()

    def _read_available(self) -> None:
        """Pass on the replies that have arrived.

        Only the thread that set `_reading` may call this.
        """
        try:
            data = self._intake.take()
        except BlockingIOError:
            return  # a false alarm, which the kernel and TLS are allowed to give
        except OSError as error:
            self._fail(self._lost(f"receiving failed: {error}", error), error)
        if not data:
            self._fail(self._lost("closed by the peer", None))
        frames, violation = self._frames(data, time.monotonic())
        with self._lock:
            self._replies.put(frames)
        if violation is not None:
            self._fail(violation, violation.__cause__)

    def _read_final_error(self) -> None:
        """Read TLS's reason for an end: sending learns only that the connection is lost."""
        if self._secured:
            self.hung_up()

    def _given_up(self, serial: int, deadline: float, *, keep: bool) -> errors.RpcTimeout:
        if not keep:
            self.forget(serial)
            self._judge(deadline)
        return self._timed_out()

    def _fail(self, failure: errors.TubeMQError, cause: BaseException | None = None) -> NoReturn:
        """Close the connection and raise."""
        self._end(failure, cause)
        raise self._own_failure()

    def _end(self, failure: errors.TubeMQError, cause: BaseException | None = None) -> None:
        with self._lock:
            self._note_failure(failure, cause)
            self._changed.notify_all()
        self._close_socket()

    def _close_socket(self) -> None:
        self._ended.set()
        self._holding.set()
        try:
            self._sock.shutdown(socket.SHUT_RDWR)  # wakes a reading thread; closing does not
        except OSError:
            pass  # it was not connected any more
        self._sock.close()


def _ms_until(deadline: float) -> float:
    return max(0.0, (deadline - time.monotonic()) * 1000)
