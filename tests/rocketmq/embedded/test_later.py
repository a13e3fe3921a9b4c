"""Delays, timers, halves of transactions at an embedded broker: no record comes before its time."""

from __future__ import annotations

import time

import pytest

from rocketmq_client import Metadata, Producer, PullConsumer, Queue, errors
from tests.kit.servers import embedded_rocketmq

rocketmq = embedded_rocketmq(1)

QUEUE = Queue("broker-a", "orders", 0)


def send(rocketmq, *given: dict[str, str]) -> list[int]:
    """Send records with these properties; return the offsets of their receipts."""
    with Producer(rocketmq.settings) as producer:
        return [producer.send("orders", b"x", properties=one).offset for one in given]


def end(rocketmq) -> int:
    with Metadata(rocketmq.settings) as metadata:
        return metadata.ends("orders")[QUEUE].max_offset


def first(rocketmq) -> dict[str, str]:
    """Return the properties of the first record, from a held pull."""
    with PullConsumer(rocketmq.settings, group="g") as consumer:
        (message,) = consumer.pull(QUEUE, 0, wait_ms=10_000).messages
    return message.properties


def soon(ms: int = 200) -> str:
    return str(time.time_ns() // 1_000_000 + ms)


def test_receipts_of_delayed_records_are_of_other_topics(rocketmq) -> None:
    properties = [{"DELAY": "1"}, {"DELAY": "1"}, {"DELAY": "99"}, {"TIMER_DELAY_SEC": "60"}]
    offsets = send(rocketmq, *properties, {"TIMER_DELAY_MS": "60000"}, {"TRAN_MSG": "true"})
    assert (offsets, end(rocketmq)) == ([0, 1, 0, 0, 1, 0], 0)
    with Metadata(rocketmq.settings) as metadata, pytest.raises(errors.UnknownTopic):
        metadata.topic("SCHEDULE_TOPIC_XXXX")


def test_a_delayed_record_is_delivered_when_due_with_its_original_topic(rocketmq) -> None:
    at = soon()
    send(rocketmq, {"TIMER_DELIVER_MS": at})
    assert end(rocketmq) == 0

    properties = first(rocketmq)

    assert time.time_ns() // 1_000_000 >= int(at)
    assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("orders", "0")


def test_records_due_while_the_broker_is_down_are_delivered_when_it_is_back(rocketmq) -> None:
    send(rocketmq, {"TIMER_DELIVER_MS": soon(150)})
    rocketmq.kill_broker()
    rocketmq.start_broker()
    assert "TIMER_DELIVER_MS" in first(rocketmq)


def test_properties_without_a_delay_deliver_at_once(rocketmq) -> None:
    properties = [{"DELAY": "0"}, {"TIMER_DELIVER_MS": soon(-10)}, {"TRAN_MSG": "false"}]
    assert send(rocketmq, *properties) == [0, 1, 2]


def test_invalid_times_are_refused(rocketmq) -> None:
    with pytest.raises(errors.BrokerFailure, match="NumberFormat"):
        send(rocketmq, {"DELAY": "x"})
    with pytest.raises(errors.IllegalRequest, match="max delay"):
        send(rocketmq, {"TIMER_DELAY_SEC": "9999999"})
