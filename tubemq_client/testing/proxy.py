"""A loopback TCP proxy that misbehaves on request: cuts, splits, stalls, garbles, swallows.

Put it between a client and a broker to show that nothing is lost or doubled when the network is
bad. It copies bytes, and knows frames only to double them. Faults apply to what the *server* sends,
because that is where records are; both directions end when one is cut. `cut()` ends what is open,
wherever it is, and `swallow()` has it lead nowhere, both ways. Threads are daemons and end with
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
    """What to do to the server's bytes; change it at any time.

    `cut_after`: close the connection after this many bytes of it (counted per connection).
    `split`: forward in pieces of at most this many bytes. `stall`: forward nothing. `garble_at`:
    flip every bit of the byte at this position of a connection. `twice`: send every frame twice
    (set it before a connection is opened).
    """

    cut_after: int | None = None
    split: int | None = None
    stall: bool = False
    garble_at: int | None = None
    twice: bool = False


class FaultProxy:
    """Listens on a loopback address, by default on a free port, and forwards to `target`; a context
    manager."""

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
        self._holes: set[socket.socket] = set()
        self._server = socket.create_server(listen)
        self._server.settimeout(_POLL_S)
        self._acceptor = threading.Thread(target=self._accept, daemon=True)

    @property
    def address(self) -> Address:
        """Where clients connect to."""
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
        """End every connection now, in both directions; returns how many there were."""
        with self._lock:
            ends = list(self._open)
            self.cuts += len(ends) // 2
        for end in ends:
            _shut_down(end)
        return len(ends) // 2

    def swallow(self) -> int:
        """Drop whatever comes on the connections that are open now, in both directions and without
        a word, as a firewall does that forgot them; returns how many there are."""
        with self._lock:
            self._holes |= self._open
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
                if source in self._holes:
                    continue
                if faulty and self.faults.twice:
                    data = _doubled(frames, data)
                if not self._pass_on(drain, data, position, faulty=faulty):
                    break
                position += len(data)
        except OSError:
            pass  # the other direction closed both ends
        finally:
            with self._lock:
                self._open -= {source, drain}
                self._holes -= {source, drain}
            _close(source)
            _close(drain)

    def _pass_on(self, drain: socket.socket, data: bytes, position: int, *, faulty: bool) -> bool:
        """Forward `data` with the faults of now; False once the connection is to be cut."""
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
        """All of it, however long the other end takes nothing."""
        left = memoryview(data)
        while left:
            try:
                left = left[drain.send(left) :]
            except TimeoutError:
                if self._stopping.is_set():
                    raise


def _doubled(frames: FrameDecoder, data: bytes) -> bytes:
    """The frames that `data` completes, each of them twice."""
    frames.receive_data(data)
    found = iter(frames.next_frame, None)
    return b"".join(encode_frame(frame.serial, frame.payload) * 2 for frame in found)


def _close(sock: socket.socket) -> None:
    _shut_down(sock)
    sock.close()


def _shut_down(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it is closed already
