"""Loopback server with scripted answers, frame by frame, that counts its connections."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable
from typing import Self

from tubemq_client._wire.framing import Frame, FrameDecoder, encode_frame
from tubemq_client.model import Address

Answer = Callable[[Frame], Iterable[bytes]]


def echo(frame: Frame) -> list[bytes]:
    return [encode_frame(frame.serial, frame.payload)]


def silence(_: Frame) -> list[bytes]:
    return []


class Peer:
    """Server whose `answer` returns the parts to send for a frame; an empty part closes.

    A `deaf` peer accepts connections and never reads from them.
    """

    def __init__(self, answer: Answer = echo, port: int = 0, *, deaf: bool = False) -> None:
        self.answer = answer
        self._deaf = deaf
        self.visits = 0
        self.gone = threading.Semaphore(0)
        """Released whenever a connection has ended."""
        self._server = socket.create_server(("127.0.0.1", port))
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def address(self) -> Address:
        host, port = self._server.getsockname()[:2]
        return (host, port)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(5)
        self.hang_up()

    def hang_up(self) -> None:
        """Close every connection; clients may connect again."""
        open_, self._open = self._open, []
        for sock in open_:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has disconnected

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._server.accept()
            except OSError:
                return
            self.visits += 1
            self._open.append(sock)
            if self._deaf:
                continue
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        decoder = FrameDecoder()
        try:
            while data := sock.recv(65_536):
                decoder.receive_data(data)
                while (frame := decoder.next_frame()) is not None:
                    for piece in self.answer(frame):
                        if not piece:
                            return
                        sock.sendall(piece)
        except OSError:
            pass  # the client disconnected in mid-reply
        finally:
            sock.close()
            self.gone.release()
