"""A hop between a member and its broker that changes what the broker sends.

`change` gets each command of the broker, and returns the bytes that the client gets in its place,
None to cut the connection. Frames are copied whole; connections are threads that end with the hop.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rocketmq_client._wire.commands import Command, encode_command
from rocketmq_client._wire.framing import CommandDecoder
from rocketmq_client.embedded import EmbeddedRocketMQ
from rocketmq_client.model import Address

Change = Callable[[Command], bytes | None]


def as_it_is(command: Command) -> bytes:
    """Return the command unchanged."""
    return encode_command(command)


class Between:
    """Hop to `target`; set `change` at any time."""

    def __init__(self, target: Address) -> None:
        self.change: Change = as_it_is
        self._target = target
        self._open: set[socket.socket] = set()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address: Address = self._server.getsockname()[:2]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Close all connections."""
        for one in list(self._open):
            self._open.discard(one)
            _close(one)

    def stop(self) -> None:
        """Take no more connections, and close all."""
        _close(self._server)
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client = self._server.accept()[0]
            except OSError:
                return
            server = socket.create_connection(self._target, 10)
            server.settimeout(None)
            self._open |= {client, server}
            for work, ends in ((self._up, (client, server)), (self._down, (server, client))):
                threading.Thread(target=_until_closed, args=(work, *ends), daemon=True).start()

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        while data := client.recv(65_536):
            server.sendall(data)

    def _down(self, server: socket.socket, client: socket.socket) -> None:
        decoder = CommandDecoder()
        while data := server.recv(65_536):
            decoder.receive_data(data)
            while (command := decoder.next_command()) is not None:
                changed = self.change(command)
                if changed is None:
                    return
                client.sendall(changed)


def _until_closed(
    work: Callable[[socket.socket, socket.socket], None], one: socket.socket, two: socket.socket
) -> None:
    try:
        work(one, two)
    except OSError:
        pass
    finally:
        _close(one)
        _close(two)


def _close(one: socket.socket) -> None:
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    one.close()


@contextmanager
def hop_before(mq: EmbeddedRocketMQ) -> Iterator[Between]:
    """Let clients find the broker behind a hop."""
    hop = Between(mq.do(lambda broker: broker.address))
    mq.do(lambda broker: setattr(broker, "address", hop.address))
    try:
        yield hop
    finally:
        hop.stop()
