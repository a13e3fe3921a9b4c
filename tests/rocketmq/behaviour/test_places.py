"""Where and when a record is delivered: the queue of a key, later, and in batches that fit."""

from __future__ import annotations

import time

import pytest

from rocketmq_client import ConsumerSettings, OutgoingMessage, ProducerSettings, errors
from tests.rocketmq.behaviour.test_groups import read
from tests.rocketmq.shells import Shell
from tests.rocketmq.sites import Site

FIRST = ConsumerSettings(consume_from="first", hold_ms=200)


def test_records_of_a_key_have_one_queue_and_keep_their_order(shell: Shell, site: Site) -> None:
    topic = site.topic(4)
    with shell.Producer(site.settings) as producer:
        places = [producer.send(topic, b"%d" % n, order_key="order-4711") for n in range(5)]
        others = {producer.send(topic, b"x", order_key=f"k{n}").queue for n in range(12)}
        with pytest.raises(errors.ConfigError, match="queue, order_key: give one"):
            producer.send(topic, b"x", order_key="a", queue=places[0].queue)
    assert {receipt.queue.queue_id for receipt in places} == {2}, "as Java's selector by hash"
    assert [receipt.offset for receipt in places] == sorted(receipt.offset for receipt in places)
    assert len(others) > 1


def test_delayed_records_come_later(shell: Shell, site: Site) -> None:
    topic = site.topic(1)
    now = time.time_ns() // 1_000_000
    with shell.Producer(site.settings) as producer:
        producer.send(topic, b"1", delay_level=1)
        if site.name == "4.9.7":
            with pytest.raises(errors.ConfigError, match="has no timer"):
                producer.send(topic, b"2", deliver_at_ms=now + 2_000)
            producer.send(topic, b"2", delay_level=1)
        else:
            producer.send(topic, b"2", deliver_at_ms=now + 2_000)
        with pytest.raises(errors.ConfigError, match="give one of them"):
            producer.send(topic, b"3", delay_level=1, deliver_at_ms=now)
        with pytest.raises(errors.ConfigError, match="1 to 18 is allowed"):
            producer.send(topic, b"3", delay_level=19)
    with shell.Consumer(site.settings, topic, {topic: ()}, consumer=FIRST) as consumer:
        assert sorted(read(consumer, 2)) == [1, 2]
    assert time.time_ns() // 1_000_000 - now > 900


def test_any_number_of_records_is_sent_in_batches_that_fit(shell: Shell, site: Site) -> None:
    topic = site.topic(1)
    small = ProducerSettings(max_message_bytes=2_000)
    messages = [
        OutgoingMessage(b"%d" % number, properties={"n": "x" * 300}) for number in range(20)
    ]
    with shell.Producer(site.settings, producer=small) as producer:
        batches = list(producer.send_many(topic, iter(messages)))
        with pytest.raises(errors.ConfigError, match="is larger than max_message_bytes"):
            list(producer.send_many(topic, [OutgoingMessage(b"x" * 3_000)]))
    assert len(batches) > 2
    assert [receipt.offset for batch in batches for receipt in batch] == list(range(20))
