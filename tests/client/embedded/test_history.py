"""The record that brokers keep of their groups, read as any other topic."""

from __future__ import annotations

import json

import pytest

from tests.kit.servers import embedded_tubemq
from tubemq_client import Metadata, OffsetRange, Partition, Record
from tubemq_client.embedded import EmbeddedTubeMQ, Switches, TopicSpec
from tubemq_client.errors import ConfigError, TubeMQError
from tubemq_client.model import ClientSettings, Message
from tubemq_client.sync import AssignedConsumer, Producer, RangeReader
from tubemq_client.testing.clock import ManualClock

pytestmark = pytest.mark.timeout(60)

HISTORY = "__offset_history__"
MINUTE = 60_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


mq = embedded_tubemq(
    [TopicSpec("orders", stores=2, partitions=2)],
    by_clock=True,
    switches=Switches(
        flush_interval_ms=0, lease_ms=9 * MINUTE, lease_scan_ms=None, history_period_ms=MINUTE
    ),
)


def scan(mq: EmbeddedTubeMQ, clock: ManualClock) -> None:
    clock.advance(MINUTE)
    mq.tick()


def read(settings: ClientSettings, group: str) -> list[Message]:
    """Return the records of the history about `group`, in order."""
    found = []
    with Metadata(settings) as metadata, RangeReader(settings, group="auditor") as reader:
        for partition, ends in metadata.ends(HISTORY, "auditor").items():
            whole = OffsetRange(partition, ends.min_offset, ends.max_offset)
            for batch in reader.read(whole):
                found += [m for m in batch.messages() if m.attributes["$groupName$"] == group]
    return found


def test_every_scan_tells_where_the_stores_of_a_groups_topics_end(
    mq: EmbeddedTubeMQ, clock: ManualClock, settings: ClientSettings
) -> None:
    partition = Partition(1, "orders", 10001)
    with Producer(settings) as producer, AssignedConsumer(settings, "g1", {"orders": ()}) as reader:
        list(producer.send_many("orders", [Record(b"x", partition=partition)] * 3))
        reader.assign(partition, 28)
        scan(mq, clock)
        reader.release(partition)
        list(producer.send_many("orders", [Record(b"x", partition=partition)] * 2))
        scan(mq, clock)
    first, second = (json.loads(message.body) for message in read(settings, "g1"))
    assert (first["ver"], first["bId"], first["on"], second["on"]) == (3, 1, 1, 0)
    assert second["dt"] - first["dt"] == MINUTE
    (record,) = second["records"]
    (store,) = record["offsets"]
    assert (record["topic"], store["storeId"]) == ("orders", 1)
    assert (store["iMin"], store["iMax"]) == (0, 5 * 28)
    assert store["parts"] == [{"partId": 1, "iCfm": 28, "iFlt": 0}]
    assert first["records"][0]["offsets"][0]["iMax"] == 3 * 28
    assert len(first["clients"]) == 1


def test_nothing_is_written_between_scans(
    mq: EmbeddedTubeMQ, clock: ManualClock, settings: ClientSettings
) -> None:
    with Metadata(settings) as metadata:
        metadata.ends("orders", "g1")
        clock.advance(MINUTE - 1)
        mq.tick()
        assert read(settings, "g1.e") == []
        clock.advance(1)
        mq.tick()
        mq.tick()
    assert len(read(settings, "g1.e")) == 1


def test_producers_are_refused(settings: ClientSettings) -> None:
    with Producer(settings) as producer, pytest.raises(TubeMQError, match=HISTORY):
        list(producer.send_many(HISTORY, [Record(b"x")]))


def test_without_the_switch_there_is_no_such_topic() -> None:
    with EmbeddedTubeMQ(http=False) as server:
        assert server.topics() == []
    with pytest.raises(ConfigError, match="history_period_ms"):
        Switches(history_period_ms=0)
