"""Threads that send for a producer, and other threads that close it at the same time."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import pytest

from tubemq_client import ClientSettings, Partition, Producer, Record, SendReceipt
from tubemq_client._core.send_batch import InFlightRecord
from tubemq_client._io.background_sender import _BrokerSender

pytestmark = pytest.mark.timeout(30)


def test_a_sender_that_is_stopped_while_it_goes_to_sleep_ends() -> None:
    class StoppedBefore(threading.Event):
        def clear(self) -> None:
            sender.stop()
            super().clear()

    nowhere: Any = None
    record = InFlightRecord("orders", Record(b"x"), 0, Partition(1, "orders", 0), b"", 0, 0)
    receipt: Future[SendReceipt] = Future()
    sender = _BrokerSender("tubemq-producer-1", nowhere, nowhere, lambda *_: None)
    awake, sender._wake = sender._wake, StoppedBefore()
    sender._queue.append((record, receipt))
    awake.set()
    assert isinstance(receipt.exception(3), AttributeError), "there is no driver"
    sender._thread.join(3)
    assert not sender._thread.is_alive(), "who closes the producer waits for it"


def test_a_producer_is_closed_while_another_thread_starts_its_heartbeat() -> None:
    producer = Producer(ClientSettings((("127.0.0.1", 9),)))
    producer._heartbeat = threading.Thread()
    producer.close()
