"""Requests that are sent and answered together, and those that may wait for more of them."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence

import pytest

from tests.connections.peer import Peer, echo
from tubemq_client import ClientSettings, errors
from tubemq_client._io import blocking
from tubemq_client._wire.framing import Frame, encode_frame

pytestmark = pytest.mark.timeout(30)

SETTINGS = ClientSettings(())


def frames(serials: Sequence[int]) -> bytes:
    return b"".join(encode_frame(serial, b"%d" % serial) for serial in serials)


def in_s(seconds: float) -> float:
    return time.monotonic() + seconds


def test_what_may_wait_is_sent_though_nobody_asks_for_it() -> None:
    heard: queue.Queue[bytes] = queue.Queue()

    def listen(frame: Frame) -> list[bytes]:
        heard.put(frame.payload)
        return echo(frame)

    with Peer(listen) as peer:
        connection = blocking.connect(peer.address, SETTINGS)
        for _ in range(3):  # the thread that sends has to be there for the second time too
            (serial,) = connection.post_all(frames, 1, 5.0, soon=True)
            assert heard.get(timeout=20) == b"%d" % serial
            assert connection.wait_all([serial], in_s(5)) == [b"%d" % serial]
        connection.close()


def test_what_may_wait_goes_before_what_may_not() -> None:
    with Peer() as peer:
        connection = blocking.connect(peer.address, SETTINGS)
        serials: list[int] = []
        for n in range(200):
            serials += connection.post_all(frames, 1 + n % 3, 5.0, soon=n % 7 > 0)
        assert connection.wait_all(serials, in_s(10)) == [b"%d" % serial for serial in serials]
        assert connection.in_flight == 0
        connection.close()


def test_who_waits_learns_that_it_could_not_be_sent() -> None:
    with Peer(lambda _: [b""]) as peer:
        connection = blocking.connect(peer.address, SETTINGS)
        serials = connection.post_all(frames, 3, 5.0)
        found = connection.wait_all(serials, in_s(10))
        assert {type(each) for each in found} == {errors.ConnectionLost}
        with pytest.raises(errors.ConnectionLost):
            connection.post_all(frames, 1, 5.0, soon=True)
        connection.close()


def test_the_thread_that_sends_ends_with_the_connection() -> None:
    with Peer() as peer:
        connection = blocking.connect(peer.address, SETTINGS)
        connection.post_all(frames, 1, 5.0, soon=True)
        (sender,) = [each for each in threading.enumerate() if each.name == "tubemq-send"]
        connection.close()
        sender.join(20)
        assert not sender.is_alive()
