"""Windows of a genuine Kafka: transactions, compaction, retention, topics made anew."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tubemq_client.errors import DataLoss, LogReplaced, LogTruncated, UnknownTopic
from tubemq_provider.windows.errors import WindowNotReady


@pytest.fixture
def lake(kafka: Any, topics: Any, tmp_path: Path) -> Any:
    from lake import Lake

    return lambda topic: Lake(kafka.address, topic, tmp_path / "lake")


def until(condition: Any, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.5)


def test_all_that_a_record_has_is_a_column(topics: Any, lake: Any) -> None:
    topic = topics.create()
    headers = [("a", b"\xff"), ("a", None), ("b", b"2")]
    topics.send(topic, ["x"], key="k", headers=headers, timestamp=1_700_000_000_123)
    topics.producer.produce(topic, None, key="k", partition=1)
    topics.producer.flush()
    mine = lake(topic)

    mine.run()

    first, tombstone = sorted(mine.rows(), key=lambda row: row["partition"])
    when = first.pop("timestamp")
    assert when == datetime.fromtimestamp(1_700_000_000, UTC) + timedelta(milliseconds=123)
    assert first == {
        "topic": topic,
        "partition": "0",
        "offset": 0,
        "timestamp_type": "CreateTime",
        "key": b"k",
        "headers": [
            {"key": "a", "value": b"\xff"},
            {"key": "a", "value": None},
            {"key": "b", "value": b"2"},
        ],
        "value": b"x",
    }
    assert (tombstone["value"], tombstone["headers"]) == (None, [])


def test_aborted_records_are_not_read_and_markers_are_no_losses(topics: Any, lake: Any) -> None:
    topic = topics.create()
    mine = lake(topic)
    topics.transaction(topic, ["a", "b"])
    topics.transaction(topic, ["no"] * 3, commit=False)
    first = mine.run()
    topics.transaction(topic, ["no"], commit=False)
    second = mine.run()
    topics.send(topic, ["c"], partition=1)
    mine.run()

    assert (first.total, first.ranges["0"], second.total) == (2, (0, 7), 0)
    assert mine.values() == ["a", "b", "c"]


def test_a_window_ends_below_an_open_transaction(topics: Any, lake: Any) -> None:
    topic = topics.create()
    mine = lake(topic)
    topics.send(topic, ["a"])
    producer = topics.open_transaction(topic, ["b"])
    topics.send(topic, ["c"])

    assert mine.run().ranges["0"] == (0, 1)
    past = datetime.now(UTC) + timedelta(seconds=1)
    time.sleep(3.2)
    with mine.source() as source, pytest.raises(WindowNotReady, match="a transaction is open"):
        source.offsets_at(past)
    producer.commit_transaction(30)
    mine.run()
    assert mine.values() == ["a", "b", "c"]
    with mine.source() as source:
        assert source.offsets_at(past)["0"] == 3  # the marker is the first entry of a later time


def test_windows_of_time_tile_by_kafkas_own_offsets(topics: Any, lake: Any) -> None:
    topic = topics.create()
    mine = lake(topic)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for minute in range(6):
        at = int((start + timedelta(minutes=minute)).timestamp() * 1000)
        topics.send(topic, [str(minute)], partition=minute % 2, timestamp=at)
    hours = [start, start + timedelta(minutes=3), start + timedelta(minutes=30)]

    totals = [
        mine.run(mode="time", start=one.isoformat(), end=two.isoformat(), **RESOLVER).total
        for one, two in pairwise(hours)
    ]

    assert (totals, mine.values()) == ([3, 3], list("012345"))
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    with pytest.raises(WindowNotReady, match="not final before"):
        mine.run(mode="time", start=hours[-1].isoformat(), end=later, **RESOLVER)


RESOLVER = {"resolver": "offsets_for_times"}


def test_what_compaction_removed_is_no_loss(topics: Any, lake: Any) -> None:
    topic = topics.create(
        cleanup_policy="compact",
        segment_ms="100",
        min_cleanable_dirty_ratio="0.01",
        max_compaction_lag_ms="200",
    )
    for number in range(5):
        topics.send(topic, [f"{key}{number}" for key in "ab"], key="k" * (number + 1))
        topics.send(topic, [str(number)], key="same")
        time.sleep(0.15)
    mine = lake(topic)

    def offsets() -> list[int]:
        with mine.source() as source:
            range_ = source.space.ranges(topic, "0", 0, 15)
            return [record.offset for record in source.probe()(range_)]

    topics.send(topic, ["last"], key="last")
    until(lambda: len(offsets()) < 12)
    result = mine.run()

    assert (result.ranges["0"], result.gaps) == ((0, 16), {})
    assert result.total <= 12
    assert mine.values()[-1] == "last"


def test_a_recreated_topic_is_noticed(topics: Any, lake: Any) -> None:
    topic = topics.create(partitions=1)
    mine = lake(topic)
    topics.send(topic, ["a"])
    mine.run()
    topics.delete(topic)
    until(lambda: _created(topics, topic))
    with pytest.raises(LogTruncated, match="the log ends at 0"):
        mine.run()
    topics.send(topic, ["new"] * 3)
    with pytest.raises(LogReplaced, match="it was recreated"):
        mine.run()
    assert mine.run(epoch="two").total == 3


def _created(topics: Any, topic: str) -> bool:
    try:
        topics.create(topic, partitions=1)
    except Exception:  # noqa: BLE001 - it is being deleted
        return False
    return True


def test_what_retention_removed_is_a_loss_or_a_noted_gap(topics: Any, lake: Any) -> None:
    from confluent_kafka import TopicPartition

    topic = topics.create(partitions=1)
    mine = lake(topic)
    topics.send(topic, ["a", "b"])
    mine.run()
    topics.send(topic, ["c", "d", "e"])
    for each in topics.admin.delete_records([TopicPartition(topic, 0, 4)]).values():
        each.result(30)

    with pytest.raises(DataLoss):
        mine.run()
    with mine.source() as source:
        plan = SimpleNamespace(topic=topic, group="lake")
        policies = SimpleNamespace(gap_policy="fail")
        with (
            source.open_reader(plan, policies) as reader,
            pytest.raises(DataLoss, match="removed the offsets 2 to 4"),
        ):
            list(reader.read(source.space.ranges(topic, "0", 2, 5)))
    result = mine.run(gap_policy="skip")
    assert mine.values() == ["a", "b", "e"]
    assert result.total == 1


def test_added_partitions_are_read_from_their_beginning(topics: Any, lake: Any) -> None:
    topic = topics.create(partitions=1)
    mine = lake(topic)
    topics.send(topic, ["a"])
    mine.run()
    topics.grow(topic, 3)

    topics.producer = topics.new_producer()  # the old one asks for partitions every five minutes
    topics.send(topic, ["b"], partition=2)
    mine.run()
    assert mine.values() == ["a", "b"]


def test_a_topic_that_is_not_there_is_named(lake: Any) -> None:
    with pytest.raises(UnknownTopic, match="topic 'nothing-here'"):
        lake("nothing-here").run()


def test_progress_is_shown_to_kafkas_own_tools(kafka: Any, topics: Any, lake: Any) -> None:
    topic = topics.create(partitions=1)
    topics.send(topic, ["a", "b"])
    lake(topic).run(commit_to_broker=True)

    shown = kafka.run(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", kafka.address, "--describe", "--group", "lake"),
    )
    line = next(line.split() for line in shown.splitlines() if topic in line)
    assert line[3:6] == ["2", "2", "0"]


def test_a_boundary_that_retention_has_passed_is_no_silent_one(topics: Any, lake: Any) -> None:
    from confluent_kafka import TopicPartition

    topic = topics.create(partitions=1)
    mine = lake(topic)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    topics.send(topic, ["a", "b"], timestamp=int(start.timestamp() * 1000))
    for each in topics.admin.delete_records([TopicPartition(topic, 0, 2)]).values():
        each.result(30)
    window = {"start": start.isoformat(), "end": (start + timedelta(hours=1)).isoformat()}

    with pytest.raises(DataLoss):
        mine.run(mode="time", **window, **RESOLVER)
    assert mine.run(mode="time", gap_policy="skip", **window, **RESOLVER).total == 0
