"""Received data equals sent data, in chunks of any size."""

from __future__ import annotations

import socket

import pytest

from tubemq_client._io.sockets import SocketReader


@pytest.mark.parametrize("secured", [False, True])
def test_received_data_is_in_order_and_owned_unless_a_view(secured: bool) -> None:
    receiver, sender = socket.socketpair()
    with receiver, sender:
        receiver.settimeout(0)
        intake = SocketReader(receiver, secured=secured)
        with pytest.raises(BlockingIOError):
            intake.take()
        chunks: list[tuple[bytes, bytes | memoryview]] = []
        taken = b""
        for size in (10, 100_000, 70_000, 5, 100_000, 100_000, 3, 1):
            sent = bytes([size % 251]) * size
            sender.sendall(sent)
            data = intake.take()
            assert data == sent
            taken += data
            if isinstance(data, bytes):
                chunks.append((sent, data))
        assert all(sent == data for sent, data in chunks)
        assert bool(chunks) != secured, "much after much is not copied, but where TLS gives pieces"
        with pytest.raises(BlockingIOError):
            intake.take()
        sender.shutdown(socket.SHUT_WR)
        assert not intake.take()
        assert not intake.take()
