"""Faults of the embedded server, and the reader's reactions."""

from __future__ import annotations

import gc
import socket
import threading
import time
from array import array

import pytest

from rocketmq_client import (
    Admin,
    Credentials,
    Metadata,
    OutgoingMessage,
    Producer,
    ProducerSettings,
    PullConsumer,
    QueueRange,
    RangeReader,
    Session,
    errors,
)
from rocketmq_client.embedded import EmbeddedRocketMQ
from rocketmq_client.embedded.storage import NewRecord
from rocketmq_client.model import ClientSettings, TlsSettings
from tests.kit.certificates import make_certificates
from tests.kit.servers import embedded_rocketmq
from tests.snode.raw import eventually

rocketmq = embedded_rocketmq(1)


def fill(rocketmq, count=300):
    with Producer(rocketmq.settings) as producer:
        messages = [OutgoingMessage(b"%d" % n) for n in range(count)]
        return producer.send_batch("orders", messages)[0].queue


def bodies(rocketmq, queue, start, end, **options):
    with RangeReader(rocketmq.settings, group="g", **options) as reader:
        delivered = [
            m.body for batch in reader.read(QueueRange(queue, start, end)) for m in batch.messages()
        ]
    return delivered, reader.stats


def test_topics_are_not_created_or_removed_without_a_broker(rocketmq) -> None:
    rocketmq.kill_broker()
    with Admin(rocketmq.settings) as admin:
        for change in (admin.create_topic, admin.delete_topic):
            with pytest.raises(errors.ConnectError, match="no broker"):
                change("orders")
        rocketmq.start_broker()
        admin.create_topic("new")
        admin.delete_topic("orders")
        assert admin.topics() == ["new"]


def test_reported_retention_is_a_loss_or_a_gap(rocketmq) -> None:
    queue = fill(rocketmq)
    rocketmq.remove_until(queue, 100)

    with pytest.raises(errors.DataLoss):
        bodies(rocketmq, queue, 0, 300)
    delivered, stats = bodies(rocketmq, queue, 0, 300, gap_policy="skip")

    assert delivered == [b"%d" % n for n in range(100, 300)]
    assert [(gap.start, gap.end) for gap in stats.gaps] == [(0, 100)]


def test_a_damaged_record_is_found_by_its_checksum(rocketmq) -> None:
    queue = fill(rocketmq)
    rocketmq.damage(queue, 150)

    with pytest.raises(errors.CorruptRecord, match="offset 150"):
        bodies(rocketmq, queue, 0, 300)
    delivered, stats = bodies(rocketmq, queue, 0, 300, corrupt_records="drop")

    assert len(delivered) == 299
    assert stats.corrupt == 1


def test_stable_ends_survive_the_death_of_the_host(rocketmq) -> None:
    queue = fill(rocketmq, 100)
    rocketmq.hold_flush()
    fill(rocketmq, 50)
    with Metadata(rocketmq.settings) as metadata:
        stable, latest = (
            metadata.ends("orders", stable=kind)[queue].max_offset for kind in (True, False)
        )
        rocketmq.kill_broker()
        rocketmq.lose_unflushed()
        rocketmq.start_broker()
        rocketmq.hold_flush(held=False)
        after = metadata.ends("orders", stable=False)[queue]

    assert 95 <= stable <= 100, "what is unflushed is told with two or three digits only"
    assert latest == 150
    assert after.latest_offset == 100
    with pytest.raises(errors.LogTruncated):
        bodies(rocketmq, queue, 0, 150, deadline_ms=3_000)


def test_batch_topics_are_refused_when_they_are_planned(rocketmq) -> None:
    with Admin(rocketmq.settings) as admin, Metadata(rocketmq.settings) as metadata:
        admin.create_topic("batches", attributes={"queue.type": "BatchCQ"})
        admin.create_topic("compact", attributes={"cleanup.policy": "COMPACTION"})
        for topic in ("batches", "compact"):
            with pytest.raises(errors.UnsupportedTopic, match="kind"):
                metadata.topic(topic)
        assert metadata.topic("orders").readable()


def test_a_request_to_a_busy_broker_is_retried(rocketmq) -> None:
    queue = fill(rocketmq)
    with Producer(rocketmq.settings, producer=ProducerSettings(retries=0)) as producer:
        rocketmq.do(lambda broker: setattr(broker, "busy", True))
        with pytest.raises(errors.Busy):
            producer.send("orders", b"x")
        with pytest.raises(errors.RangeStalled, match="busy"):
            bodies(rocketmq, queue, 0, 300, deadline_ms=1_500)
        rocketmq.do(lambda broker: setattr(broker, "busy", False))
        assert len(bodies(rocketmq, queue, 0, 300)[0]) == 300


def test_a_send_goes_to_the_broker_that_is_left() -> None:
    with (
        EmbeddedRocketMQ(topics={"orders": 2}, brokers=2) as rocketmq,
        Producer(rocketmq.settings) as producer,
    ):
        before = {producer.send("orders", b"x").queue.broker for _ in range(4)}
        rocketmq.kill_broker("broker-a")
        time.sleep(0.2)  # at once it would be unknown whether the record was stored
        after = {producer.send("orders", b"x").queue.broker for _ in range(4)}

    assert before == {"broker-a", "broker-b"}
    assert after == {"broker-b"}


def test_only_signed_requests_are_accepted() -> None:
    right = Credentials("reader01", "12345678")
    with EmbeddedRocketMQ(topics={"orders": 1}, credentials=right) as rocketmq:
        for wrong in (None, Credentials("reader01", "87654321"), Credentials("other", "12345678")):
            settings = ClientSettings((rocketmq.name_server,), auth=wrong)
            with Producer(settings) as producer, pytest.raises(errors.NoPermission):
                producer.send("orders", b"x")
        settings = ClientSettings((rocketmq.name_server,), auth=right)
        with Producer(settings) as producer:
            receipt = producer.send("orders", b"x")
        with RangeReader(settings, group="g") as reader:
            (batch,) = reader.read(QueueRange(receipt.queue, 0, 1))
    assert batch.columns.bodies == [b"x"]


def test_everything_travels_over_tls(tmp_path) -> None:
    certificates = make_certificates(tmp_path)
    with EmbeddedRocketMQ(
        topics={"orders": 1}, tls=(certificates.server.cert, certificates.server.key)
    ) as rocketmq:
        settings = ClientSettings((rocketmq.name_server,), tls=TlsSettings(ca_file=certificates.ca))
        with Producer(settings) as producer:
            receipt = producer.send("orders", b"secret")
        with RangeReader(settings, group="g") as reader:
            (batch,) = reader.read(QueueRange(receipt.queue, 0, 1))
        with Producer(rocketmq.settings) as plain, pytest.raises(errors.NetworkError):
            plain.send("orders", b"x")
    assert batch.columns.bodies == [b"secret"]


def test_a_session_shares_connections(rocketmq) -> None:
    queue = fill(rocketmq)
    with Session(rocketmq.settings) as session:
        for _ in range(3):
            with PullConsumer(session, group="g") as consumer:
                assert consumer.pull(queue, 0).status == "found"
        channels = rocketmq.do(lambda _: sum(map(len, rocketmq._channels.values())))
    assert channels == 2


def test_a_client_without_signature_is_cut_off_and_others_are_served(rocketmq) -> None:
    queue = fill(rocketmq)
    address = rocketmq.do(lambda broker: broker.address)
    with socket.create_connection(address, 5) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert stranger.recv(100) == b""
    assert len(bodies(rocketmq, queue, 0, 300)[0]) == 300


def test_arrow_batches_hold_what_messages_hold(rocketmq) -> None:
    pa = pytest.importorskip("pyarrow")
    with Producer(rocketmq.settings) as producer:
        receipt = producer.send(
            "orders", b"body", tags="red", keys=["a", "b"], properties={"x": "y"}
        )
        producer.send("orders", b"bare")
    schema = pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.string()),
            ("offset", pa.int64()),
            ("store_time", pa.timestamp("us", "UTC")),
            ("born_time", pa.timestamp("us", "UTC")),
            ("message_id", pa.string()),
            ("tags", pa.string()),
            ("keys", pa.string()),
            ("reconsume_times", pa.int32()),
            ("flag", pa.int32()),
            ("properties", pa.map_(pa.string(), pa.string())),
            ("value", pa.binary()),
        ]
    )
    with RangeReader(rocketmq.settings, group="g") as reader:
        (batch,) = reader.read(QueueRange(receipt.queue, 0, 2))
        first, second = batch.to_arrow(schema).to_pylist()
        with pytest.raises(errors.ConfigError, match="unknown column 'nope'"):
            batch.to_arrow(pa.schema([("nope", pa.string())]))

    assert (first["topic"], first["partition"], first["offset"]) == ("orders", "broker-a:0", 0)
    assert (first["tags"], first["keys"], first["value"]) == ("red", "a b", b"body")
    assert first["message_id"] == receipt.message_id
    assert dict(first["properties"])["x"] == "y"
    assert "TAGS" not in dict(first["properties"])
    assert (second["tags"], second["keys"], second["value"]) == (None, None, b"bare")
    assert abs(first["store_time"].timestamp() - time.time()) < 60
    assert repr(batch) == "<RecordBatch orders@broker-a:0[0,2) of 2 records>"


def test_nothing_is_left_open(rocketmq) -> None:
    fill(rocketmq)
    gc.collect()
    eventually(lambda: rocketmq.do(lambda _: sum(map(len, rocketmq._channels.values()))) == 0)


def test_a_broker_waits_for_its_port_when_it_is_started_again(rocketmq) -> None:
    fill(rocketmq)
    port = rocketmq.do(lambda broker: broker.address)[1]
    rocketmq.kill_broker()
    taken = socket.create_server(("127.0.0.1", port))
    threading.Timer(0.2, taken.close).start()
    rocketmq.start_broker()

    assert rocketmq.do(lambda broker: broker.address)[1] == port


def test_other_name_servers_are_asked_next_to_one_that_has_just_started(rocketmq) -> None:
    fill(rocketmq)
    with EmbeddedRocketMQ() as young:
        settings = ClientSettings((young.name_server, rocketmq.name_server))
        with Metadata(settings) as metadata, RangeReader(settings, group="g") as reader:
            (queue,) = metadata.topic("orders").readable()
            assert sum(map(len, reader.read(QueueRange(queue, 0, 300)))) == 300
            with pytest.raises(errors.UnknownTopic, match="oders"):
                metadata.topic("oders")


def test_a_view_of_numbers_is_sent_whole(rocketmq) -> None:
    body = memoryview(array("I", [1, 2, 3]))
    with Producer(rocketmq.settings) as producer:
        queue = producer.send("orders", body).queue
        producer.send_batch("orders", [OutgoingMessage(body), OutgoingMessage(bytearray(b"x"))])

    assert bodies(rocketmq, queue, 0, 3)[0] == [bytes(body), bytes(body), b"x"]


def test_keys_are_what_blanks_separate_and_no_other_spaces(rocketmq) -> None:
    """Other producers may have sent such keys."""
    key = "order\u00a04711\u3000x"
    record = NewRecord(b"x", f"KEYS\x01{key}  b\x02".encode(), 0, 0, 0, ("127.0.0.1", 1))
    rocketmq.do(lambda broker: broker.storage.append("orders", 0, record))
    with PullConsumer(rocketmq.settings, group="g") as consumer:
        (message,) = consumer.pull(consumer.queues("orders")[0], 0).messages
    assert message.keys == (key, "b")


def test_tags_that_a_broker_would_trim_are_compared_in_the_client_only(rocketmq) -> None:
    tag = "\x00a\x08"
    with Producer(rocketmq.settings) as producer:
        queue = producer.send("orders", b"x", tags=tag).queue
    assert bodies(rocketmq, queue, 0, 1, tags=[tag])[0] == [b"x"]
    with pytest.raises(errors.ConfigError, match="compare tags here"):
        bodies(rocketmq, queue, 0, 1, tags=[tag], tag_filter="broker")
    with (
        PullConsumer(rocketmq.settings, group="g") as consumer,
        pytest.raises(errors.ConfigError, match="cuts control characters"),
    ):
        consumer.pull(queue, 0, tags=[tag])
