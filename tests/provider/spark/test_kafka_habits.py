"""Batch reads as jobs on Kafka use them: several topics, patterns, times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tests.provider.spark.world import World
from tubemq_client import Partition, Producer, Record
from tubemq_client.admin import AdminClient
from tubemq_client.embedded import EmbeddedTubeMQ, Switches, TopicSpec
from tubemq_client.errors import ConfigError, ConnectError, UnknownTopic

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from tests.provider.spark.test_source import bodies, read
from tubemq_provider.spark.session import freeze
from tubemq_provider.spark.source import TubeMQDataSource

pytestmark = pytest.mark.timeout(60)

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def ms(minutes: float) -> str:
    return str(int((NOON + timedelta(minutes=minutes)).timestamp() * 1000))


@pytest.fixture(scope="module")
def three() -> Iterator[World]:
    """Create topics with different numbers of partitions; `timed` has 20 records a minute from noon
    on in 1:0, nothing in 1:1, and one record without a time in 1:0 first."""
    topics = [
        TopicSpec("orders", stores=1, partitions=2),
        TopicSpec("orders_eu", stores=1, partitions=1),
        TopicSpec("timed", stores=2, partitions=1),
    ]
    with EmbeddedTubeMQ(brokers=1, topics=topics) as mq:
        world = World(mq)
        world.produce(30, "orders")
        world.produce(20, "orders_eu")
        partition = Partition.from_key("timed", "1:0")
        records = [Record(b"untimed", partition=partition)]
        for number in range(200):
            minute = NOON + timedelta(minutes=number // 20)
            text = f"{minute:%Y%m%d%H%M}"
            records.append(Record(b"%03d" % number, None, "s", text, partition))
        with Producer(world.settings) as producer:
            list(producer.send_many("timed", records))
        mq.broker(1).flush()
        yield world


def options(world: World, **given: str) -> dict[str, str]:
    return {"masters": world.masters, "group": "etl", **given}


def numbers(world: World, **given: str) -> list[int]:
    found = read(options(world, topic="timed", **given))
    return [int(body) for body in bodies(found) if body != b"untimed"]


def test_several_topics_are_read_and_frozen_together(three: World) -> None:
    given = options(three, subscribe="orders,orders_eu")
    table = read(given)
    wanted = sorted(
        three.expected(three.whole("orders"), "orders")
        + three.expected(three.whole("orders_eu"), "orders_eu")
    )
    assert bodies(table) == wanted
    assert set(table.column("topic").to_pylist()) == {"orders", "orders_eu"}
    frozen = freeze(given)
    assert "subscribe" not in frozen
    assert bodies(read(frozen)) == wanted
    assert freeze(frozen) == frozen


def test_a_pattern_means_the_topics_that_there_are(three: World) -> None:
    given = options(three, subscribePattern="orders.*", admin=f"http://{three.mq.master_web}")
    assert read(given).num_rows == 50
    with pytest.raises(UnknownTopic, match="none of 3 topics matches 'nothing'"):
        read({**given, "subscribePattern": "nothing"})


def test_partitions_of_several_topics_are_assigned(three: World) -> None:
    keys = {"orders": ["1:1"], "orders_eu": ["1:0"]}
    start = {"orders": {"1:1": -2}, "orders_eu": {"1:0": 280}}
    given = {"assign": json.dumps(keys), "startingOffsets": json.dumps(start)}
    wanted = three.expected({"1:1": (0, three.end("1:1", "orders"))}, "orders")
    wanted += three.expected({"1:0": (280, three.end("1:0", "orders_eu"))}, "orders_eu")
    assert bodies(read(options(three, **given))) == sorted(wanted)
    with pytest.raises(ConfigError, match="topic 'orders' has no partition 1:9; it has 1:0, 1:1"):
        read(options(three, assign='{"orders": ["1:9"], "orders_eu": ["1:0"]}'))


def test_times_choose_the_records_of_whole_minutes(three: World) -> None:
    quiet = {"startingOffsetsByTimestampStrategy": "latest"}
    given = {"startingTimestamp": ms(3), "endingTimestamp": ms(5), **quiet}
    assert numbers(three, **given) == list(range(60, 100))
    # Neighbours share a boundary, wherever in a minute it is.
    first = numbers(three, startingTimestamp=ms(3), endingTimestamp=ms(4.5), **quiet)
    second = numbers(three, startingTimestamp=ms(4.5), endingTimestamp=ms(5), **quiet)
    assert first + second == list(range(60, 100))
    assert numbers(three, endingTimestamp=ms(1)) == list(range(20))
    assert numbers(three, endingTimestamp=ms(999)) == list(range(200))


def test_times_are_given_for_each_partition_too(three: World) -> None:
    given = {"partitions": "1:0", "startingOffsetsByTimestamp": f'{{"timed": {{"1:0": {ms(9)}}}}}'}
    assert numbers(three, **given) == list(range(180, 200))


def test_a_partition_without_a_record_as_late_is_named(three: World) -> None:
    with pytest.raises(ConfigError) as caught:
        numbers(three, startingTimestamp=ms(10))
    assert [problem.split(" has")[0] for problem in caught.value.problems] == [
        "startingTimestamp: partition 1:0 of topic 'timed'",
        "startingTimestamp: partition 1:10000 of topic 'timed'",
    ]
    assert "startingOffsetsByTimestampStrategy=latest" in str(caught.value)
    late = {"startingOffsetsByTimestampStrategy": "latest"}
    assert numbers(three, startingTimestamp=ms(10), **late) == []


def test_the_same_where_another_partition_has_the_end_of_their_store() -> None:
    topics = [TopicSpec("demo", stores=1, partitions=2)]
    with EmbeddedTubeMQ(brokers=1, topics=topics, http=False) as mq:
        world = World(mq)
        short, long = (Partition.from_key("demo", key) for key in ("1:0", "1:1"))
        minutes = [(short, number) for number in range(5)] + [
            (long, number) for number in range(20)
        ]
        records = [
            Record(
                b"%s %d" % (place.key.encode(), number),
                msg_time=f"{NOON + timedelta(minutes=number):%Y%m%d%H%M}",
                partition=place,
            )
            for place, number in minutes
        ]
        with Producer(world.settings) as producer:
            list(producer.send_many("demo", [*records, Record(b"untimed", partition=short)]))
        mq.broker(1).flush()
        with pytest.raises(ConfigError, match="partition 1:0 of topic 'demo' has no record at"):
            read({**world.options, "startingTimestamp": ms(10)})
        late = {"startingOffsetsByTimestampStrategy": "latest", "startingTimestamp": ms(10)}
        found = bodies(read({**world.options, **late}))
        assert sorted(found) == sorted(b"1:1 %d" % number for number in range(10, 20))
        # What ends at a time and what begins there are all there is, each record once.
        before = bodies(read({**world.options, "endingTimestamp": ms(3)}))
        after = bodies(read({**world.options, "startingTimestamp": ms(3)}))
        assert sorted(before + after) == sorted([r.body for r in records] + [b"untimed"])


def test_times_are_found_in_memory_too_where_a_read_ends_there() -> None:
    by_hand = Switches(flush_interval_ms=None, unflushed_records=None)
    topics = [TopicSpec("demo", partitions=1)]
    with EmbeddedTubeMQ(brokers=1, topics=topics, http=False, switches=by_hand) as mq:
        world = World(mq)
        world.produce(5)
        with Producer(world.settings) as producer:
            producer.send("demo", b"late", msg_time=f"{NOON + timedelta(minutes=50):%Y%m%d%H%M}")
        given = {**world.options, "startingTimestamp": ms(40)}
        with pytest.raises(ConfigError, match="no record at"):
            read(given)
        assert bodies(read({**given, "endingOffsets": "latest"})) == [b"late"]


def test_a_time_that_retention_may_have_cut_is_an_error_unless_allowed() -> None:
    with EmbeddedTubeMQ(brokers=1, topics=[TopicSpec("demo", partitions=1)], http=False) as mq:
        world = World(mq)
        world.produce(100)
        mq.broker(1).expire_to("demo", 28 * 50)
        given = {**world.options, "startingTimestamp": "946684800000"}
        with pytest.raises(ConfigError, match="retention may have removed records"):
            read(given)
        assert read({**given, "failOnDataLoss": "false"}).num_rows == 50


def test_records_without_any_time_are_an_error() -> None:
    with EmbeddedTubeMQ(brokers=1, topics=[TopicSpec("demo", partitions=1)], http=False) as mq:
        world = World(mq)
        with Producer(world.settings) as producer:
            producer.send("demo", b"when?")
        mq.broker(1).flush()
        with pytest.raises(ConfigError, match="carry no message time; give offsets"):
            read({**world.options, "startingTimestamp": "946684800000"})


def test_attributes_are_left_out_on_request(three: World) -> None:
    given = options(three, topic="orders", includeHeaders="false")
    assert "attributes" not in TubeMQDataSource(given).schema()


def test_a_topic_without_reachable_brokers_is_left_out_if_allowed() -> None:
    with EmbeddedTubeMQ(brokers=2, topics=[TopicSpec("demo", partitions=1)]) as mq:
        world = World(mq)
        with AdminClient(f"http://{mq.master_web}", token="abc") as admin:
            admin.create_topic("second", broker_ids=[2])
        world.produce(20)
        mq.broker(2).stop()
        given = options(world, subscribe="demo,second", planRetries="0")
        with pytest.raises(ConnectError, match=r"(?s)2:0 of topic 'second'.*unreachable"):
            read(given)
        frozen = freeze({**given, "unreachablePartitions": "skip"})
        assert set(read(frozen).column("partition").to_pylist()) == {"1:0"}
        alone = options(world, topic="second", unreachablePartitions="skip", planRetries="0")
        with pytest.raises(ConnectError, match="no broker of the partitions to read answers"):
            read(alone)
