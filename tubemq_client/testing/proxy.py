"""A loopback TCP proxy with faults on demand: cuts, splits, stalls, corrupts, swallows.

Put it between a client and a broker to show that no record is lost or duplicated on a bad network.
It copies bytes, and knows frames only to duplicate them. Faults apply to what the *server* sends,
because that is where records are; both directions end when one is cut. `cut()` ends all open
connections, and `swallow()` drops their bytes, both ways. Threads are daemons and end with
`stop()`.
"""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from tubemq_client._wire.framing import FrameDecoder, encode_frame

if TYPE_CHECKING:
    from types import TracebackType

    from tubemq_client.model import Address

__all__ = ["FaultProxy", "Faults"]

_CHUNK = 64 * 1024
_POLL_S = 0.2


@dataclass(slots=True)
class Faults:
    """Faults in the server's bytes; change them at any time.

    `cut_after`: close the connection after this many bytes (counted per connection). `split`:
    forward in chunks of at most this many bytes. `stall`: forward nothing. `garble_at`: flip every
    bit of the byte at this position of a connection. `twice`: send every frame twice (set it before
    a connection is opened).
    """

    cut_after: int | None = None
    split: int | None = None
    stall: bool = False
    garble_at: int | None = None
    twice: bool = False


class FaultProxy:
    """Proxy that listens on a loopback address, by default on a free port, and forwards to
    `target`; a context manager."""

    def __init__(
        self,
        target: Address,
        faults: Faults | None = None,
        *,
        listen: Address = ("127.0.0.1", 0),
    ) -> None:
        self.faults = faults or Faults()
        self.connections = 0
        self.cuts = 0
        self._target = target
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._swallowed: set[socket.socket] = set()
        self._server = socket.create_server(listen)
        self._server.settimeout(_POLL_S)
        self._acceptor = threading.Thread(target=self._accept, daemon=True)

    @property
    def address(self) -> Address:
        """Address for clients to connect to."""
        host, port = self._server.getsockname()[:2]
        return (host, port)

    def __enter__(self) -> Self:
        self._acceptor.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def cut(self) -> int:
        """End every connection now, in both directions; return their number."""
        with self._lock:
            ends = list(self._open)
            self.cuts += len(ends) // 2
        for end in ends:
            _shut_down(end)
        return len(ends) // 2

    def swallow(self) -> int:
        """Drop all bytes of the open connections silently, in both directions, as a firewall does
        that lost its state; return the number of connections."""
        with self._lock:
            self._swallowed |= self._open
            return len(self._open) // 2

    def stop(self) -> None:
        """Close everything."""
        self._stopping.set()
        self._acceptor.join(5)
        self._server.close()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                client, _ = self._server.accept()
            except TimeoutError:
                continue
            self.connections += 1
            try:
                server = socket.create_connection(self._target, 3)
            except OSError:
                client.close()
                continue
            # Before any forwarding: one direction that ends at once closes both ends.
            for end in (client, server):
                end.settimeout(_POLL_S)
            with self._lock:
                self._open |= {client, server}
            for source, drain, faulty in ((client, server, False), (server, client, True)):
                threading.Thread(
                    target=self._forward,
                    args=(source, drain),
                    kwargs={"faulty": faulty},
                    daemon=True,
                ).start()

    def _forward(self, source: socket.socket, drain: socket.socket, *, faulty: bool) -> None:
        position, frames = 0, FrameDecoder()
        try:
            while not self._stopping.is_set():
                try:
                    data = source.recv(_CHUNK)
                except TimeoutError:
                    continue
                while faulty and self.faults.stall and not self._stopping.wait(_POLL_S):
                    pass
                if not data:
                    break
                if source in self._swallowed:
                    continue
                if faulty and self.faults.twice:
                    data = _doubled(frames, data)
                if not self._forward_with_faults(drain, data, position, faulty=faulty):
                    break
                position += len(data)
        except OSError:
            pass  # the other direction closed both ends
        finally:
            with self._lock:
                self._open -= {source, drain}
                self._swallowed -= {source, drain}
            _close(source)
            _close(drain)

    def _forward_with_faults(
        self, drain: socket.socket, data: bytes, position: int, *, faulty: bool
    ) -> bool:
        """Forward `data` with the current faults; return False once the connection must be cut."""
        if not faulty:
            self._send(drain, data)
            return True
        faults = self.faults
        if faults.garble_at is not None and 0 <= faults.garble_at - position < len(data):
            garbled = bytearray(data)
            garbled[faults.garble_at - position] ^= 0xFF
            data = bytes(garbled)
        cut = faults.cut_after is not None and position + len(data) >= faults.cut_after
        if cut and faults.cut_after is not None:
            data = data[: faults.cut_after - position]
        step = faults.split or len(data) or 1
        for start in range(0, len(data), step):
            self._send(drain, data[start : start + step])
        self.cuts += cut
        return not cut

    def _send(self, drain: socket.socket, data: bytes) -> None:
        """Send all of it, however long the peer does not read."""
        left = memoryview(data)
        while left:
            try:
                left = left[drain.send(left) :]
            except TimeoutError:
                if self._stopping.is_set():
                    raise


def _doubled(frames: FrameDecoder, data: bytes) -> bytes:
    """Return the frames that `data` completes, each of them twice."""
    frames.receive_data(data)
    complete = iter(frames.next_frame, None)
    return b"".join(encode_frame(frame.serial, frame.payload) * 2 for frame in complete)


def _close(sock: socket.socket) -> None:
    _shut_down(sock)
    sock.close()


def _shut_down(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # already closed
