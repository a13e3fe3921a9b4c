"""The proxy that misbehaves on request, and only then."""

from __future__ import annotations

import socket
import threading

from tubemq_client.testing.proxy import FaultProxy

_BYTES = 32 << 20


def test_a_reader_that_takes_its_time_is_not_cut() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def send() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(bytes(_BYTES))

        threading.Thread(target=send, daemon=True).start()
        host, port = server.getsockname()
        with FaultProxy((host, port)) as proxy, socket.create_connection(proxy.address) as reader:
            reader.settimeout(10)
            threading.Event().wait(0.5)
            count = 0
            while piece := reader.recv(1 << 20):
                count += len(piece)
    assert count == _BYTES
    assert proxy.cuts == 0
