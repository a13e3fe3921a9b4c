"""A blocking connection to one master or broker, shared by any number of threads.

Replies may come in any order and are matched by serial number. There is no reader thread: whichever
waiting thread finds nobody reading becomes the reader and hands other threads their replies, so a
single-threaded reader pays nothing for it. Replies nobody waits for any more are dropped.

The socket itself never blocks: a timeout set on it would be shared by the thread that sends and the
thread that reads, so each waits with `poll` and a deadline of its own. `asyncio_connection` is the
twin, with the same method names.
"""

from __future__ import annotations

import itertools
import select
import socket
import threading
import time
from itertools import islice
from typing import TYPE_CHECKING, NoReturn

from tubemq_client import errors
from tubemq_client._core.connections import ConnectionRules
from tubemq_client._io.replies import LATE_GRACE_S
from tubemq_client._io.sockets import in_order, keep_alive
from tubemq_client._io.tls import (
    TlsSocket,
    is_tls_error,
    no_answer,
    refused_later,
    secure,
)
from tubemq_client._wire.codec import TUBEMQ
from tubemq_client.model import address_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tubemq_client._io.codec import Codec, Decoder
    from tubemq_client.model import Address, ClientSettings

__all__ = ["BlockingConnection", "connect"]

_RECEIVE_BYTES = 512 * 1024
_SERIAL_MASK = 0x7FFFFFFF

_HELD_S = 0.002
_HELD_BYTES = 64 * 1024
"""Requests that may wait for more do so no longer than that, and until there are so many bytes."""


def connect(
    address: Address,
    settings: ClientSettings,
    codec: Codec = TUBEMQ,
    *,
    avoid: str | None = None,
) -> BlockingConnection:
    """Open a TCP connection within `connect_timeout_ms`, and make it TLS if asked to. Of the hosts
    that a name leads to, `avoid` is tried last.

    Raises `errors.ConnectError`, or its subclass `errors.TlsError`."""
    try:
        sock = _open(address, settings.connect_timeout_ms / 1000, avoid)
    except (OSError, UnicodeError) as error:  # the latter for a host that is no host name
        reason = getattr(error, "strerror", None) or error
        raise errors.ConnectError(f"cannot connect to {address_text(address)}: {reason}") from error
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        keep_alive(sock)
        host = str(sock.getpeername()[0])
        channel = secure(sock, address, settings.tls) if settings.tls else sock
    except OSError as error:  # the peer has gone again
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
    failure: OSError = OSError("the name leads nowhere")
    for end in in_order(socket.getaddrinfo(*address, type=socket.SOCK_STREAM), avoid):
        try:
            return socket.create_connection(end, timeout_s)
        except OSError as error:
            failure = error
    raise failure


class BlockingConnection:
    """Frames over one socket. Safe to share between threads.

    `host` is the IP address it leads to. `retired`: it is not to be given out any more, because it
    answers nothing or leads to the wrong host; requests that are under way may still be answered.
    """

    def __init__(self, sock: socket.socket | TlsSocket, name: str, decoder: Decoder) -> None:
        self.name = name
        self._sock = sock
        self._sock.settimeout(0)
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(sock, select.POLLIN)
        self._writable.register(sock, select.POLLOUT)
        self._decoder = decoder
        self._buffer = memoryview(bytearray(_RECEIVE_BYTES))
        self._serials = itertools.count(1)
        self._send_lock = threading.Lock()
        self._changed = threading.Condition()
        self._reading = False
        self._wanted: set[int] = set()
        self._replies: dict[int, bytes] = {}
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._holding, self._ended = threading.Event(), threading.Event()
        self._sender: threading.Thread | None = None
        self._failure: errors.TubeMQError | None = None
        self._heard = False
        self.host, self.patience_s = "", float("inf")
        self.retired = False
        self.used_at = self.received_at = time.monotonic()

    def __repr__(self) -> str:
        state = "failed" if self._failure else "open"
        return f"<BlockingConnection {self.name} {state}, {len(self._wanted)} in flight>"

    @property
    def usable(self) -> bool:
        return self._failure is None

    @property
    def in_flight(self) -> int:
        """Requests whose reply nobody has taken or given up."""
        return len(self._wanted)

    def hung_up(self) -> bool:
        """Whether the peer has closed a connection that nobody uses at the moment."""
        with self._changed:
            if self._reading:
                return False
            self._reading = True
        try:
            self._take_what_came()
        except errors.TubeMQError:
            return True
        finally:
            self._stop_reading()
        return False

    def post(self, encode: Callable[[int], bytes], timeout_s: float) -> int:
        """Send the frame that `encode` makes for a fresh serial number, and return that number.

        Takes up to `timeout_s` while the peer does not take what was sent before.
        """
        self.used_at = time.monotonic()
        serial = next(self._serials) & _SERIAL_MASK
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
        """Like `post`, for `count` requests whose frames `encode` makes for so many serial numbers,
        with as few system calls as the peer allows. When it fails, some may have been sent.

        With `soon` they wait for more, until somebody waits for a reply, but some milliseconds at
        most: a thread of the connection, which only such calls start, sends them then. If that
        fails, whoever waits for a reply learns of it.
        """
        self.used_at = time.monotonic()
        serials = [serial & _SERIAL_MASK for serial in islice(self._serials, count)]
        try:
            self._put(encode(serials), serials, timeout_s, hold=soon)
        except errors.ConnectError as error:  # TLS's word for it, which says that nothing was sent
            raise errors.ConnectionLost(*error.args) from error
        return serials

    def wait(self, serial: int, deadline: float, until: float | None = None) -> bytes | None:
        """The reply payload for `serial`. `deadline` is on the clock of `time.monotonic`. If there
        is none at `until`, an earlier time, the answer is None and it may be waited for again.

        Raises `errors.RpcTimeout`, `errors.ConnectionLost` or `errors.ProtocolViolation`.
        """
        if until is not None and until < deadline:
            try:
                return self._until(serial, until, keep=True)
            except errors.RpcTimeout:
                return None
        return self._until(serial, max(deadline, time.monotonic() + LATE_GRACE_S))

    def _until(self, serial: int, deadline: float, *, keep: bool = False) -> bytes:
        if self._held:
            self._flush(max(1.0, deadline - time.monotonic()))
        while True:
            with self._changed:
                while self._reading and serial not in self._replies and self._failure is None:
                    if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                        raise self._timed_out(serial, deadline, keep=keep)
                if serial in self._replies:
                    self._wanted.discard(serial)
                    return self._replies.pop(serial)
                self._raise_failure()
                self._reading = True
            try:
                self._read_some(serial, deadline, keep=keep)
            finally:
                self._stop_reading()

    def wait_all(self, serials: Sequence[int], deadline: float) -> list[bytes | errors.TubeMQError]:
        """For each of `serials` the payload, or the error, that `wait` would come to. The caller
        adds the grace to `deadline`: once for all that it waits for."""
        found: list[bytes | errors.TubeMQError] = []
        while len(found) < len(serials):
            self._take_in_order(serials, found)
            if len(found) < len(serials):
                try:
                    found.append(self._until(serials[len(found)], deadline))
                except errors.TubeMQError as error:
                    found.append(error)
        return found

    def _take_in_order(
        self, serials: Sequence[int], found: list[bytes | errors.TubeMQError]
    ) -> None:
        """Add the replies that are there already to `found`, as far as none is missing."""
        with self._changed:
            for serial in islice(serials, len(found), None):
                payload = self._replies.pop(serial, None)
                if payload is None:
                    return
                self._wanted.discard(serial)
                found.append(payload)

    def forget(self, serial: int) -> None:
        """Nobody will wait for this reply any more; drop it when it comes."""
        with self._changed:
            self._wanted.discard(serial)
            self._replies.pop(serial, None)

    def close(self) -> None:
        with self._changed:
            if self._failure is None:
                self._failure = errors.ConnectionLost(f"{self.name}: closed")
            self._changed.notify_all()
        self._close_socket()

    def _put(
        self, frames: bytes, serials: Iterable[int], timeout_s: float, *, hold: bool = False
    ) -> None:
        with self._changed:
            self._raise_failure()
            self._wanted.update(serials)
        with self._send_lock:
            self._held.append(frames)
            self._held_bytes += len(frames)
            hold = hold and self._held_bytes < _HELD_BYTES
            if not hold:  # under the same lock: if it fails, the last frame was not sent
                self._send_held(timeout_s)
        if hold and not self._holding.is_set():
            self._promise_to_send(timeout_s)

    def _flush(self, timeout_s: float) -> None:
        with self._send_lock:
            if self._held:
                self._send_held(timeout_s)

    def _send_held(self, timeout_s: float) -> None:
        """Send what was held back, in one piece. Whoever calls it has the lock, and keeps it until
        a failure is known: nothing may follow half a frame."""
        frames, self._held, self._held_bytes = b"".join(self._held), [], 0
        try:
            self._send(memoryview(frames), time.monotonic() + timeout_s)
        except OSError as error:
            self._hear_last_words()
            self._fail(self._lost("sending", error), error)

    def _promise_to_send(self, timeout_s: float) -> None:
        with self._send_lock:
            if self._sender is None:
                self._sender = threading.Thread(
                    target=self._keep_sending, args=(timeout_s,), name="tubemq-send", daemon=True
                )
                self._sender.start()
            self._holding.set()

    def _keep_sending(self, timeout_s: float) -> None:
        while self._failure is None:
            self._holding.wait()
            self._ended.wait(_HELD_S)
            self._holding.clear()
            try:
                self._flush(timeout_s)
            except errors.TubeMQError:
                return  # all who wait for replies are told

    def _send(self, data: memoryview, deadline: float) -> None:
        """Send all of it or raise an `OSError`: half a frame makes the connection useless."""
        while data:
            try:
                data = data[self._sock.send(data) :]
            except BlockingIOError:
                if not self._writable.poll(_ms_until(deadline)):
                    raise TimeoutError("the peer takes no more requests") from None

    def _read_some(self, serial: int, deadline: float, *, keep: bool) -> None:
        # A caller may come late for a reply that arrived in time (it waited for the next record to
        # send, say): what has arrived by now counts, only waiting ends with the deadline.
        if not (self._is_decrypted() or self._readable.poll(_ms_until(deadline))):
            raise self._timed_out(serial, deadline, keep=keep)
        self._take_what_came()

    def _is_decrypted(self) -> bool:
        """Whether TLS has taken more from the socket than the buffer had room for."""
        return isinstance(self._sock, TlsSocket) and self._sock.pending() > 0

    def _stop_reading(self) -> None:
        with self._changed:
            self._reading = False
            self._changed.notify_all()

    def _take_what_came(self) -> None:
        """Hand out the replies that have arrived; only whoever set `_reading` may call it."""
        try:
            count = self._sock.recv_into(self._buffer)
        except BlockingIOError:
            return  # a false alarm, which the kernel and TLS are allowed to give
        except OSError as error:
            self._fail(self._lost("receiving", error), error)
        if count == 0:
            self._fail(errors.ConnectionLost(f"{self.name}: closed by the peer{self._hint()}"))
        self._heard = True
        self.used_at = self.received_at = time.monotonic()
        try:
            self._decoder.receive_data(self._buffer[:count])
            frames = list(iter(self._decoder.next_frame, None))
        except errors.ProtocolViolation as error:
            self._fail(errors.ProtocolViolation(f"{self.name}: {error}"), error)
        with self._changed:
            for frame in frames:
                if frame.serial in self._wanted:
                    self._replies[frame.serial] = frame.payload

    def _hear_last_words(self) -> None:
        """A peer that ended TLS said why, but sending learns only that the connection is gone."""
        if isinstance(self._sock, TlsSocket):
            self.hung_up()

    def _lost(self, doing: str, error: OSError) -> errors.NetworkError:
        if is_tls_error(error):
            return refused_later(self.name, error)
        return errors.ConnectionLost(f"{self.name}: {doing} failed: {error}{self._hint()}")

    def _hint(self) -> str:
        return "" if self._heard else no_answer(secured=isinstance(self._sock, TlsSocket))

    def _timed_out(self, serial: int, deadline: float, *, keep: bool) -> errors.RpcTimeout:
        if not keep:
            self.forget(serial)
        if not keep and ConnectionRules.is_mute(self.received_at, deadline, self.patience_s):
            self.retired = True
        return errors.RpcTimeout(f"{self.name}: no answer within the deadline")

    def _fail(self, failure: errors.TubeMQError, cause: BaseException | None = None) -> NoReturn:
        """Close and raise; the first failure is the one that everybody hears of."""
        with self._changed:
            if self._failure is None:
                self._failure = failure
                self._failure.__cause__ = cause
            first = self._failure
            self._changed.notify_all()
        self._close_socket()
        raise _copy(first)

    def _close_socket(self) -> None:
        self._ended.set()
        self._holding.set()
        try:
            self._sock.shutdown(socket.SHUT_RDWR)  # wakes a thread that reads; closing does not
        except OSError:
            pass  # it was not connected any more
        self._sock.close()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise _copy(self._failure)


def _ms_until(deadline: float) -> float:
    return max(0.0, (deadline - time.monotonic()) * 1000)


def _copy(failure: errors.TubeMQError) -> errors.TubeMQError:
    """One for each who learns of it: tracebacks of threads must not pile up on one object."""
    copy = type(failure)(*failure.args)
    copy.__cause__ = failure.__cause__
    return copy
