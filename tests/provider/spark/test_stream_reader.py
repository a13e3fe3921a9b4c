"""A stream's reader under Spark's calls: over restarts, and over unreachable brokers."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from tests.provider.spark.world import GROUP, TOPIC, World
from tubemq_client.embedded import EmbeddedTubeMQ, TopicSpec
from tubemq_client.errors import ConnectError, DataLoss

pytest.importorskip("pyspark.sql.streaming.datasource")
pytest.importorskip("pyarrow")

from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from tubemq_provider.spark.options import parse_options
from tubemq_provider.spark.stream import TubeMQStreamReader

pytestmark = pytest.mark.timeout(60)

SCHEMA = StructType([StructField("partition", StringType()), StructField("value", BinaryType())])


def reader(world: World, **given: str) -> TubeMQStreamReader:
    """Create one as Spark does in each run of a query."""
    options = {"masters": world.masters, "group": GROUP, "planRetries": "0", **given}
    if "subscribePattern" not in given:
        options["topic"] = TOPIC
    parsed = parse_options({"startingOffsets": "earliest", **options}, streaming=True)
    return TubeMQStreamReader(parsed, parsed.settings(), SCHEMA)


def kept(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document as it comes out of a checkpoint."""
    return dict(json.loads(json.dumps(document)))


def ranges(made: TubeMQStreamReader, start: dict[str, Any], end: dict[str, Any]) -> dict[str, Any]:
    splits = [item.split.range for item in made.partitions(kept(start), kept(end))]  # type: ignore[attr-defined]
    return {range_.partition.key: (range_.start, range_.end) for range_ in splits}


def test_a_first_batch_that_is_tried_again_begins_where_it_began(world: World) -> None:
    world.produce(40)
    before = reader(world)
    begin = before.initialOffset()
    end = before.latestOffset(begin, ReadAllAvailable())
    planned = ranges(before, begin, end)
    assert planned == world.whole()

    after = reader(world, startingOffsets="latest")  # which Spark ignores if it has a plan
    assert after.initialOffset() != begin
    assert ranges(after, after.initialOffset(), end) == planned
    assert after.latestOffset(kept(end), ReadAllAvailable()) == end  # nothing new: no batch


def test_reports_of_a_batch_stay_when_the_next_one_reports(world: World, tmp_path: Path) -> None:
    stream = reader(world, reportDir=str(tmp_path))
    at, reported = stream.initialOffset(), 0
    for _ in range(2):
        world.produce(8)
        start, at = at, stream.latestOffset(at, ReadAllAvailable())
        splits = stream.partitions(kept(start), kept(at))
        rows = sum(batch.num_rows for split in splits for batch in stream.read(split))
        again = [batch for split in splits for batch in stream.read(split)]  # as Spark may
        assert again
        reported += rows
    found = [json.loads(path.read_text()) for path in tmp_path.rglob("*.json")]
    assert sum(report["records"] for report in found) == reported == 16


@pytest.mark.parametrize("expire", ["expire_to", "expire_data_to"])
def test_retention_before_a_retried_first_batch_is_reported(world: World, expire: str) -> None:
    world.produce(40)
    before = reader(world)
    begin = before.initialOffset()
    end = before.latestOffset(begin, ReadAllAvailable())
    getattr(world.mq.broker(1).store(TOPIC), expire)(28 * 10)
    after = reader(world)
    first, *_ = after.partitions(kept(after.initialOffset()), kept(end))
    with pytest.raises(DataLoss):
        list(after.read(first))


@pytest.mark.parametrize("expire", ["expire_to", "expire_data_to"])
def test_retention_before_a_joined_partition_is_first_read_is_reported(
    world: World, expire: str
) -> None:
    """A partition joins at the end of one batch, and is read by the next: from where it joined."""
    world.produce(40)
    stream = reader(world)
    others = {key: start for key, (start, _) in world.whole().items() if key != "1:0"}
    held = {"v": 1, "offsets": {TOPIC: others}}
    joined = stream.latestOffset(held, ReadAllAvailable())
    assert joined["offsets"][TOPIC]["1:0"] == 0
    assert "1:0" not in ranges(stream, held, joined)
    world.produce(8)
    getattr(world.mq.broker(1).store(TOPIC), expire)(28 * 10)
    end = stream.latestOffset(kept(joined), ReadAllAvailable())
    assert ranges(stream, joined, end)["1:0"][0] == 0
    first, *_ = stream.partitions(kept(joined), kept(end))
    with pytest.raises(DataLoss):
        list(stream.read(first))
    skipping = reader(world, failOnDataLoss="false")
    rows = sum(batch.num_rows for batch in skipping.read(first))
    assert 0 < rows < 48


def test_a_partition_missing_from_a_planned_batch_is_data_loss_unless_tolerated(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.produce(40)
    start = {"v": 1, "offsets": {TOPIC: {"1:0": 0, "1:7": 0, "9:0": 0}}}
    end = {"v": 1, "offsets": {TOPIC: {"1:0": 140, "1:7": 140, "9:0": 140}}}
    with pytest.raises(DataLoss, match="partition 1:7 of topic 'demo' is gone"):
        reader(world).partitions(start, end)
    caplog.set_level(logging.WARNING, logger="tubemq_provider")
    assert ranges(reader(world, failOnDataLoss="false"), start, end) == {"1:0": (0, 140)}
    assert "partition 9:0 of topic 'demo' is gone" in caplog.text
    assert "set failOnDataLoss" not in caplog.text


def test_an_unreachable_broker_blocks_only_its_own_partitions() -> None:
    topics = [TopicSpec(TOPIC, partitions=1)]
    with EmbeddedTubeMQ(brokers=2, topics=topics) as mq:
        world = World(mq)
        world.produce(40)
        mq.broker(2).stop()
        stream = reader(world)
        held = {"v": 1, "offsets": {TOPIC: {"1:0": 0}}}
        found = stream.latestOffset(held, ReadAllAvailable())
        assert set(found["offsets"][TOPIC]) == {"1:0"}  # 2:0 is added by a later batch
        held["offsets"][TOPIC]["2:0"] = 0  # type: ignore[index]
        with pytest.raises(ConnectError, match="partition 2:0 of topic 'demo'"):
            stream.latestOffset(held, ReadAllAvailable())
        with pytest.raises(ConnectError, match="partition 2:0"):
            stream.prepareForTriggerAvailableNow()  # all current records
