"""Requests that are sent and answered together, and those that may be delayed for more."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.client.io.peer import Peer, echo
from tests.system.behaviour.sites import eventually
from tools.devkit.patience import PATIENCE
from tubemq_client import ClientSettings, errors
from tubemq_client._io import blocking
from tubemq_client._wire.framing import Frame, encode_frame

pytestmark = pytest.mark.timeout(60)

SETTINGS = ClientSettings(())


def frames(serials: Sequence[int]) -> bytes:
    return b"".join(encode_frame(serial, b"%d" % serial) for serial in serials)


class FairLock:
    """Lock of which the longest waiter is next, so that threads interleave wherever they can."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._taken = self._served = 0

    def __enter__(self) -> None:
        with self._changed:
            mine, self._taken = self._taken, self._taken + 1
            self._changed.wait_for(lambda: self._served == mine, 20)

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._served += 1
            self._changed.notify_all()

    def waiting(self, count: int) -> bool:
        """Return whether that number of threads holds or awaits it."""
        with self._changed:
            return self._taken - self._served == count


def in_s(seconds: float) -> float:
    return time.monotonic() + seconds


def test_deferred_requests_are_sent_without_a_waiting_caller() -> None:
    arrived: queue.Queue[bytes] = queue.Queue()

    def listen(frame: Frame) -> list[bytes]:
        arrived.put(frame.payload)
        return echo(frame)

    with Peer(listen) as peer:
        connection = blocking.connect(peer.address, SETTINGS)
        for _ in range(3):  # the sending thread must be there for the second time too
            (serial,) = connection.post_all(frames, 1, 20.0, soon=True)
            assert arrived.get(timeout=20 * PATIENCE) == b"%d" % serial
            assert connection.wait_all([serial], in_s(20)) == [b"%d" % serial]
        connection.close()


def test_deferred_requests_are_sent_before_later_ones() -> None:
    with Peer() as peer:
        connection = blocking.connect(peer.address, SETTINGS)
        serials: list[int] = []
        for n in range(200):
            serials += connection.post_all(frames, 1 + n % 3, 20.0, soon=n % 7 > 0)
        assert connection.wait_all(serials, in_s(20)) == [b"%d" % serial for serial in serials]
        assert connection.in_flight == 0
        connection.close()


def test_a_waiting_caller_gets_the_failure_of_sending() -> None:
    with Peer(lambda _: [b""]) as peer:
        connection = blocking.connect(peer.address, SETTINGS)
        serials = connection.post_all(frames, 3, 20.0)
        outcomes = connection.wait_all(serials, in_s(20))
        assert {type(each) for each in outcomes} == {errors.ConnectionLost}
        with pytest.raises(errors.ConnectionLost):
            connection.post_all(frames, 1, 20.0, soon=True)
        connection.close()


def test_the_thread_that_sends_ends_with_the_connection() -> None:
    with Peer() as peer:
        connection = blocking.connect(peer.address, SETTINGS)
        connection.post_all(frames, 1, 20.0, soon=True)
        (sender,) = [each for each in threading.enumerate() if each.name == "tubemq-send"]
        connection.close()
        sender.join(20)
        assert not sender.is_alive()


def test_a_failed_post_did_not_arrive() -> None:
    """The caller then sends it elsewhere: it must not have arrived together with others."""
    arrived: list[bytes] = []
    go_on = threading.Event()

    def listen(frame: Frame) -> list[bytes]:
        arrived.append(frame.payload[:1])
        go_on.wait(20)
        return [b""] if len(arrived) == 3 else []

    def post(name: bytes) -> bytes | None:
        size = 1 if name == b"0" else 6 * 2**20
        try:
            connection.post(lambda serial: encode_frame(serial, name * size), 20.0)
        except errors.NetworkError:
            return name
        return None

    with Peer(listen) as peer, ThreadPoolExecutor(4) as pool:
        connection = blocking.connect(peer.address, SETTINGS)
        connection._send_lock = lock = FairLock()  # type: ignore[assignment]
        post(b"0")
        eventually(lambda: arrived or None)
        futures = []
        for count, name in enumerate((b"1", b"2", b"3", b"4"), 1):
            futures.append(pool.submit(post, name))
            eventually(lambda count=count: lock.waiting(count) or None)
        go_on.set()
        failed = {future.result() for future in futures} - {None}
        connection.close()
    assert failed
    assert not failed & set(arrived)
