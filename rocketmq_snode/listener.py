"""A listening port that counts connections from the moment they are accepted.

asyncio's server counts a connection only after its TLS handshake, and logs each failed accept with
a traceback. This listener closes a connection that is not admitted at once, and without descriptors
it waits a moment and logs one line.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress

from rocketmq_client.model import Address

__all__ = ["Listener", "ThrottledLog"]

_LOG = logging.getLogger(__name__)
_BACKLOG = 128
_ACCEPTS = 32
"""Connections accepted at a time, before other events of the loop."""
_HANDSHAKE_S = 10.0
_PAUSE_S = 0.2
_SELDOM_S = 10.0
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_GONE = frozenset({errno.ECONNABORTED, errno.EINTR, errno.EPROTO, errno.EPERM})


class ThrottledLog:
    """Log lines that an attacker can cause: one per ten seconds, with the number left out."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._said: dict[str, tuple[float, int]] = {}

    def say(self, level: int, message: str, *values: object, **extra: object) -> None:
        """Log `message`, at most once per ten seconds."""
        now = asyncio.get_running_loop().time()
        last, left_out = self._said.get(message, (-_SELDOM_S, 0))
        if now - last < _SELDOM_S:
            self._said[message] = (last, left_out + 1)
            return
        self._said[message] = (now, 0)
        details = {"left_out": left_out} if left_out else {}
        self._logger.log(level, message, *values, extra=extra | details)


class Listener:
    """Accepts connections at one address and hands them to protocols from `make`.

    `admits` returns True if there is room for one more. With `spare`, one descriptor is reserved
    for a connection when the process has no other left.
    """

    def __init__(
        self,
        make: Callable[[], asyncio.BaseProtocol],
        *,
        admits: Callable[[], bool] = lambda: True,
        tls: ssl.SSLContext | None = None,
        spare: bool = False,
    ) -> None:
        self._make = make
        self._admits = admits
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._seldom = ThrottledLog(_LOG)
        self._sockets: list[socket.socket] = []
        self._opening: set[asyncio.Task[None]] = set()
        self._spare = _descriptor() if spare else None
        self._closed = False

    @property
    def address(self) -> Address:
        """Listening address."""
        address: Address = self._sockets[0].getsockname()[:2]
        return address

    @property
    def opening(self) -> int:
        """Accepted connections without a protocol: their handshake is not finished."""
        return len(self._opening)

    async def listen(self, address: Address, *, reuse_port: bool = False) -> None:
        """Listen at every address of the host. Raises `OSError`."""
        host, port = address
        infos = await self._loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        try:
            for family, place in dict.fromkeys((info[0], info[4]) for info in infos):
                sock = socket.create_server(
                    place[:2], family=family, backlog=_BACKLOG, reuse_port=reuse_port
                )
                self._sockets.append(sock)
                sock.setblocking(False)  # noqa: FBT003 - its only parameter
                self._loop.add_reader(sock, self._accept, sock)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Accept no more. Accepted connections stay open."""
        self._closed = True
        for sock in self._sockets:
            self._loop.remove_reader(sock)
            sock.close()
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTS):
            try:
                sock, _peer = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _GONE:
                    continue
                if self._spare is not None and error.errno == errno.EMFILE:
                    os.close(self._spare)
                    self._spare = None
                    continue
                self._wait(listening, error)
                return
            if self._admits():
                task = self._loop.create_task(self._open(sock), name="snode-accept")
                self._opening.add(task)
                task.add_done_callback(self._opening.discard)
            else:
                sock.close()

    def _wait(self, listening: socket.socket, error: OSError) -> None:
        self._seldom.say(logging.WARNING, "no connection can be accepted: %s", error.strerror)
        if error.errno in _EXHAUSTED:
            self._loop.remove_reader(listening)
            self._loop.call_later(_PAUSE_S, self._again, listening)

    def _again(self, listening: socket.socket) -> None:
        if not self._closed:
            self._loop.add_reader(listening, self._accept, listening)

    def renew_spare(self) -> None:
        """Reserve the spare descriptor again, once one is free."""
        if self._spare is None and not self._closed:
            with suppress(OSError):
                self._spare = _descriptor()

    async def _open(self, sock: socket.socket) -> None:
        sock.setblocking(False)  # noqa: FBT003 - its only parameter
        try:
            await self._loop.connect_accepted_socket(
                self._make,
                sock,
                ssl=self._tls,
                ssl_handshake_timeout=_HANDSHAKE_S if self._tls else None,
            )
        except (OSError, ssl.SSLError) as error:
            sock.close()
            self._seldom.say(logging.INFO, "a client's handshake failed: %s", error)


def _descriptor() -> int:
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
