"""Records come back as they were sent: single, in batches, one-way, compressed, with properties."""

from __future__ import annotations

import random
import time

import pytest

from rocketmq_client import OutgoingMessage, ProducerSettings, Queue, QueueRange, errors
from rocketmq_client.embedded import EmbeddedRocketMQ
from tests.rocketmq.behaviour.test_groups import until
from tests.rocketmq.shells import Shell
from tests.rocketmq.sites import Site


def read_all(shell, site, queue, end, start=0, **options):
    with shell.RangeReader(site.settings, group="readers", **options) as reader:
        batches = list(reader.read(QueueRange(queue, start, end)))
    return [message for batch in batches for message in batch.messages()]


def test_a_record_comes_back_with_all_its_properties(shell: Shell, site: Site) -> None:
    topic = site.topic(1)
    with shell.Producer(site.settings) as producer:
        receipt = producer.send(
            topic, b"body", tags="red", keys=("k1", "k2"), properties={"colour": "röt", "n": " "}
        )

    (message,) = read_all(shell, site, receipt.queue, 1)

    assert (message.body, message.tags, message.keys) == (b"body", "red", ("k1", "k2"))
    assert (message.properties["colour"], message.properties["n"]) == ("röt", " ")
    assert (message.queue, message.offset) == (receipt.queue, receipt.offset) == (receipt.queue, 0)
    assert message.message_id == receipt.message_id
    assert message.offset_id == receipt.offset_id
    assert abs(message.store_ms - time.time() * 1000) < 60_000
    assert message.store_host[1] == site.cluster.settings.name_servers[0][1] or message.store_host


def test_a_batch_gets_consecutive_offsets_in_one_queue(shell: Shell, site: Site) -> None:
    topic = site.topic()
    messages = [OutgoingMessage(b"%d" % n, tags=f"t{n}", flag=n) for n in range(70)]
    with shell.Producer(site.settings) as producer:
        receipts = producer.send_batch(topic, messages)

    queue = receipts[0].queue
    found = read_all(shell, site, queue, 70)

    assert [receipt.offset for receipt in receipts] == list(range(70))
    assert {receipt.queue for receipt in receipts} == {queue}
    assert [(m.body, m.tags, m.flag) for m in found] == [(m.body, m.tags, m.flag) for m in messages]
    assert [m.offset_id for m in found] == [r.offset_id for r in receipts]
    assert [m.message_id for m in found] == [r.message_id for r in receipts]


def test_records_with_nothing_in_them_and_with_all_that_fits_come_back(
    shell: Shell, site: Site
) -> None:
    topic = site.topic(1)
    most = {"n": "é" * 15_800}
    full, empty = OutgoingMessage(b"x", properties=most), OutgoingMessage(b"")
    with shell.Producer(site.settings) as producer:
        receipts = [producer.send(topic, b"", tags="t"), producer.send(topic, b"")]
        receipts += producer.send_batch(topic, [full, empty, full])
        receipts.append(producer.send(topic, b"after"))

    messages = read_all(shell, site, receipts[0].queue, 6)

    assert [receipt.offset for receipt in receipts] == list(range(6))
    assert [message.body for message in messages] == [b"", b"", b"x", b"", b"x", b"after"]
    assert messages[0].tags == "t"
    assert messages[4].properties["n"] == most["n"]


@pytest.mark.parametrize("method", ["zlib", "lz4", "zstd"])
def test_large_bodies_travel_compressed(shell: Shell, site: Site, method) -> None:
    topic = site.topic(1)
    body = b"abc" * 20_000
    options = ProducerSettings(compression=method)
    with shell.Producer(site.settings, producer=options) as producer:
        receipt = producer.send(topic, body)

    (message,) = read_all(shell, site, receipt.queue, 1)

    assert message.body == body
    assert message.sys_flag & 1


def test_a_one_way_record_arrives(shell: Shell, site: Site) -> None:
    topic = site.topic(1)
    with (
        shell.Producer(site.settings) as producer,
        shell.PullConsumer(site.settings, group="g") as consumer,
    ):
        producer.send_one_way(topic, OutgoingMessage(b"quick"))
        (queue,) = consumer.queues(topic)
        pulled = consumer.pull(queue, 0, wait_ms=5_000)

    assert [message.body for message in pulled.messages] == [b"quick"]


def test_records_spread_over_the_queues_in_turn(shell: Shell, site: Site) -> None:
    topic = site.topic(4)
    with shell.Producer(site.settings) as producer:
        queues = [producer.send(topic, b"x").queue.queue_id for _ in range(8)]

    assert sorted(queues) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_failed_send_reports_the_reason(shell: Shell, site: Site) -> None:
    topic = site.topic(1)
    with shell.Producer(site.settings) as producer, shell.Metadata(site.settings) as metadata:
        (queue,) = metadata.topic(topic).readable()
        with pytest.raises(errors.UnknownTopic):
            producer.send("no-such-topic", b"x")
        with pytest.raises(errors.ConfigError, match="not writable now; writable: broker-a:0"):
            producer.send(topic, b"x", queue=type(queue)("broker-a", topic, 9))
        with pytest.raises(errors.ConfigError, match="max_message_bytes"):
            producer.send(topic, random.randbytes(5_000_000), queue=queue)
        with pytest.raises(errors.ConfigError, match="separator"):
            producer.send(topic, b"x", properties={"a\x01": "b"})
        with pytest.raises(errors.ConfigError, match="TAGS"):
            producer.send(topic, b"x", properties={"TAGS": "b"})
        with pytest.raises(errors.IllegalRequest, match="code 13"):  # with what brokers add
            producer.send(topic, b"x", properties={"n": "v" * 32_710})


def test_records_are_sent_in_the_background_within_bounds(shell: Shell, site: Site) -> None:
    topic = site.topic(2)
    bounds = ProducerSettings(max_in_flight=8, max_in_flight_bytes=4_000)
    with shell.Producer(site.settings, producer=bounds) as producer:
        pending = [producer.send_async(topic, b"%d" % n, keys=str(n)) for n in range(60)]
        assert producer.flush(60_000)
        assert all(future.done() for future in pending)
        receipts = [future.result() for future in pending]
        wrong = producer.send_async(topic, b"x", delay_level=99)
        producer.flush()
    with pytest.raises(errors.ConfigError, match="delay_level is 99"):
        wrong.result()
    queues = {receipt.queue for receipt in receipts}
    ends = {queue: max(r.offset for r in receipts if r.queue == queue) + 1 for queue in queues}
    found = [
        message for queue, end in ends.items() for message in read_all(shell, site, queue, end)
    ]
    assert sorted(int(m.body) for m in found) == list(range(60))
    assert {m.message_id: int(m.body) for m in found} == {
        receipt.message_id: n for n, receipt in enumerate(receipts)
    }


def test_a_record_that_finds_no_room_in_time_is_not_sent_and_closing_waits(shell: Shell) -> None:
    with EmbeddedRocketMQ(topics={"orders": 1}) as mq:
        bounds = ProducerSettings(max_in_flight=1, retries=100, retry_pause_ms=100)
        with shell.Producer(mq.settings, producer=bounds) as producer:
            producer.send("orders", b"0")
            mq.do(lambda broker: setattr(broker, "busy", True))
            future = producer.send_async("orders", b"1")
            with pytest.raises(errors.TooManyInFlight, match=r"1 records .* raise max_in_flight"):
                producer.send_async("orders", b"2", timeout_ms=50)
            assert not producer.flush(50)
            mq.do(lambda broker: setattr(broker, "busy", False))
        assert future.result().offset == 1
        with shell.Metadata(mq.settings) as metadata:
            assert [end.latest_offset for end in metadata.ends("orders").values()] == [2]


def test_sends_are_traced_for_javas_tools(shell: Shell) -> None:
    with EmbeddedRocketMQ(topics={"orders": 1, "RMQ_SYS_TRACE_TOPIC": 1}) as mq:
        with shell.Producer(mq.settings, producer=ProducerSettings(trace=True)) as producer:
            receipt = producer.send("orders", b"body", tags="red", keys=("k1", "k2"))
            with pytest.raises(errors.ConfigError):
                producer.send("orders", b"x", queue=Queue("broker-a", "orders", 9))
        with shell.Metadata(mq.settings) as metadata:
            until(lambda: metadata.ends("RMQ_SYS_TRACE_TOPIC"), 30)
            [queue] = metadata.ends("RMQ_SYS_TRACE_TOPIC")
            until(lambda: metadata.ends("RMQ_SYS_TRACE_TOPIC")[queue].latest_offset == 2, 30)
        with shell.RangeReader(mq.settings, group="readers") as reader:
            [batch] = reader.read(QueueRange(queue, 0, 2))
            done, failed = batch.messages()
    fields = done.body.decode().removesuffix("\x02").split("\x01")
    assert [fields[0], *fields[3:8]] == [
        *("Pub", "rocketmq_client_producer", "orders", receipt.message_id, "red", "k1 k2")
    ]
    assert fields[9] == "4"
    assert fields[11:] == ["0", receipt.offset_id, "true"]
    assert done.keys == (receipt.message_id, "k1", "k2")
    assert failed.body.decode().endswith("\x01false\x02")
