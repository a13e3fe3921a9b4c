"""The blocking producer and the client-balance consumer, against the embedded server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tubemq_client import AssignedConsumer, ClientSettings, Partition, Producer, Record, errors
from tubemq_client.config import ClientConfig
from tubemq_client.embedded import EmbeddedTubeMQ, Switches, TopicSpec

PARTITION = Partition(1, "orders", 0)


@pytest.fixture
def server() -> Iterator[EmbeddedTubeMQ]:
    topics = [TopicSpec("orders", 1, 3), TopicSpec("other")]
    with EmbeddedTubeMQ(1, topics, http=False, switches=Switches(lease_ms=1_500)) as server:
        yield server


@pytest.fixture
def settings(server: EmbeddedTubeMQ) -> ClientSettings:
    options = {"masters": server.masters, "heartbeat_period_ms": 1_000, "rpc_timeout_ms": 2_000}
    return ClientConfig.parse(options).settings()


def send(settings: ClientSettings, *bodies: bytes, partition: Partition = PARTITION) -> list[int]:
    with Producer(settings) as producer:
        records = [Record(body, partition=partition) for body in bodies]
        return [receipt.offset for receipt in producer.send_many("orders", records)]


# -- producing ------------------------------------------------------------------------------------


def test_receipts_come_in_the_order_of_records_with_their_offsets(
    server: EmbeddedTubeMQ, settings: ClientSettings
) -> None:
    assert send(settings, *(b"%d" % n for n in range(200))) == [28 * n for n in range(200)]


def test_records_without_a_partition_go_round(
    server: EmbeddedTubeMQ, settings: ClientSettings
) -> None:
    with Producer(settings) as producer:
        used = [producer.send("orders", b"x").partition.partition_id for _ in range(6)]
    assert sorted(used) == [0, 0, 1, 1, 2, 2]


def test_an_overflow_is_sent_again_and_stored_once(
    server: EmbeddedTubeMQ, settings: ClientSettings
) -> None:
    server.broker(1).overflow_every(5)
    offsets = send(settings, *(b"%d" % n for n in range(40)))
    assert sorted(offsets) == [28 * n for n in range(40)]


def test_a_topic_without_routes_is_named(server: EmbeddedTubeMQ, settings: ClientSettings) -> None:
    with Producer(settings) as producer, pytest.raises(errors.UnknownTopic, match="nowhere"):
        producer.send("nowhere", b"x")


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (Record(b""), "body is empty"),
        (Record(b"x", partition=Partition(1, "orders", 9)), "1:0, 1:1, 1:2"),
        (Record(bytes(2 * 2**20)), "exceeds the limit"),
    ],
)
def test_a_record_no_broker_would_take_is_refused_before_it_is_sent(
    server: EmbeddedTubeMQ, settings: ClientSettings, record: Record, words: str
) -> None:
    with Producer(settings) as producer, pytest.raises(errors.ConfigError, match=words):
        list(producer.send_many("orders", [record]))


def test_a_forgotten_producer_registers_again_by_itself(
    server: EmbeddedTubeMQ, settings: ClientSettings
) -> None:
    with Producer(settings) as producer:
        producer.publish("orders")
        server.forget_members()
        assert producer.publish("other") == [Partition(1, "other", 0)]


def test_a_write_stop_is_raised_not_retried(
    server: EmbeddedTubeMQ, settings: ClientSettings
) -> None:
    with Producer(settings) as producer:
        producer.publish("orders")
        server.broker(1).stop_writing()
        with pytest.raises(errors.ServiceUnavailable):
            producer.send("orders", b"x")


# -- consuming ------------------------------------------------------------------------------------


def bodies(consumer: AssignedConsumer) -> list[bytes]:
    batch = consumer.pull(PARTITION)
    return [] if batch is None else [m.body for m in batch.messages()]


def test_a_batch_comes_back_until_it_is_confirmed(
    server: EmbeddedTubeMQ, settings: ClientSettings
) -> None:
    send(settings, b"a", b"b", b"c")
    with AssignedConsumer(settings, "group_a", {"orders": ()}) as consumer:
        assert consumer.assign(PARTITION) == 0
        assert bodies(consumer) == bodies(consumer) == [b"a", b"b", b"c"]
        batch = consumer.pull(PARTITION)
        assert batch is not None
        assert consumer.reject(batch) == 0
        batch = consumer.pull(PARTITION)
        assert batch is not None
        assert consumer.confirm(batch) == 84
        assert consumer.pull(PARTITION) is None


def test_the_group_goes_on_where_it_was_confirmed_or_where_it_is_told(
    server: EmbeddedTubeMQ, settings: ClientSettings
) -> None:
    send(settings, b"a", b"b", b"c")
    with AssignedConsumer(settings, "group_a", {"orders": ()}) as consumer:
        consumer.assign(PARTITION)
        batch = consumer.pull(PARTITION)
        assert batch is not None
        consumer.confirm(batch)
    send(settings, b"d")
    with AssignedConsumer(settings, "group_a", {"orders": ()}) as consumer:
        assert consumer.assign(PARTITION) == 84
        assert bodies(consumer) == [b"d"]
    with AssignedConsumer(settings, "group_a", {"orders": ()}) as consumer:
        assert consumer.assign(PARTITION, 28) == 28
        assert bodies(consumer) == [b"b", b"c", b"d"]


def test_a_new_group_may_start_at_the_latest(
    server: EmbeddedTubeMQ, settings: ClientSettings
) -> None:
    send(settings, b"old")
    with AssignedConsumer(settings, "group_new", {"orders": ()}) as consumer:
        assert consumer.assign(PARTITION, position="latest") == 28


def test_a_partition_held_by_another_member_is_refused(
    server: EmbeddedTubeMQ, settings: ClientSettings
) -> None:
    with (
        AssignedConsumer(settings, "group_a", {"orders": ()}) as first,
        AssignedConsumer(settings, "group_a", {"orders": ()}) as second,
    ):
        first.assign(PARTITION)
        with pytest.raises(errors.PartitionOccupied):
            second.assign(PARTITION)
        first.release(PARTITION)
        second.assign(PARTITION)
        assert (first.assignment, second.assignment) == ([], [PARTITION])


def test_heartbeats_keep_a_quiet_partition(
    server: EmbeddedTubeMQ, settings: ClientSettings
) -> None:
    import time

    send(settings, b"a")
    with AssignedConsumer(settings, "group_a", {"orders": ()}) as consumer:
        consumer.assign(PARTITION)
        time.sleep(3)  # twice the lease
        assert bodies(consumer) == [b"a"]


def test_a_lost_partition_leaves_the_assignment(
    server: EmbeddedTubeMQ, settings: ClientSettings
) -> None:
    with AssignedConsumer(settings, "group_a", {"orders": ()}) as consumer:
        consumer.assign(PARTITION)
        server.broker(1).steal_lease("group_a", "orders", 0)
        with pytest.raises(errors.PartitionTaken):
            consumer.pull(PARTITION)
        assert consumer.assignment == []


def test_members_of_a_group_must_agree_on_topics(
    server: EmbeddedTubeMQ, settings: ClientSettings
) -> None:
    with (
        AssignedConsumer(settings, "group_a", {"orders": ()}),
        pytest.raises(errors.GroupInconsistent),
    ):
        AssignedConsumer(settings, "group_a", {"other": ()}).__enter__()


def test_filters_belong_to_their_topic(server: EmbeddedTubeMQ, settings: ClientSettings) -> None:
    """A filter on one topic must not hide records of another one."""
    other = Partition(1, "other", 0)
    with Producer(settings) as producer:
        producer.send("orders", b"red", stream_id="red", partition=PARTITION)
        producer.send("orders", b"blue", stream_id="blue", partition=PARTITION)
        producer.send("other", b"plain")
    server.broker(1).flush()
    wanted = {"orders": ("red",), "other": ()}
    with AssignedConsumer(settings, "group_f", wanted) as consumer:
        consumer.assign(PARTITION)
        consumer.assign(other)
        batch = consumer.pull(other)
        assert batch is not None
        assert [m.body for m in batch.messages()] == [b"plain"]
        assert bodies(consumer) == [b"red"]


def test_partitions_say_whether_they_can_be_subscribed(
    server: EmbeddedTubeMQ, settings: ClientSettings
) -> None:
    with AssignedConsumer(settings, "group_a", {"orders": ()}) as consumer:
        assert consumer.partitions() == {Partition(1, "orders", n): True for n in range(3)}
