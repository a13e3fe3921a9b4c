"""A genuine broker whose retention removes data before its index, and readers that come too late.

The broker has segments of 2 MiB and deletes them after half a minute; it still lists records that
it no longer has, and silently skips them. Takes about three minutes. `retention.py` runs random
windows of this kind by hand.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.system.real.cluster import require_genuine
from tests.system.real.pipeline import Pipeline, wait_for
from tests.system.real.retention import BROKER, Receipts, produce, read_window, replies, topic
from tools.devkit.tubemq.genuine import GenuineTubeMQ
from tubemq_client import ClientSettings, OffsetRange, Partition, Producer, RangeReader
from tubemq_client.config import ClientConfig
from tubemq_client.embedded import EmbeddedTubeMQ
from tubemq_client.embedded import TopicSpec as EmbeddedTopic
from tubemq_client.errors import DataLoss
from tubemq_client.model import GapPolicy
from tubemq_provider.sinks.read import read_windows
from tubemq_provider.windows.policies import Policies

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(600)]

FIRST = 1070
CURSOR, ALONE, SHARED = "r_cursor", "r_alone", "r_shared"


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GenuineTubeMQ]:
    """Start a separate cluster: the sizes of segments are the broker's."""
    artifacts, java = require_genuine()
    with GenuineTubeMQ(
        tmp_path_factory.mktemp("short"),
        topics=[topic(CURSOR), topic(ALONE), topic(SHARED, 3)],
        artifacts=artifacts,
        java=java,
        broker_options=BROKER,
    ) as cluster:
        cluster.wait_accepting()
        yield cluster


def data_min(cluster: GenuineTubeMQ, name: str) -> int:
    (found,) = cluster.query_broker("admin_query_pubinfo", topicName=name)["dataSet"]
    return max(int(row["dataMin"]) for row in found["offsetInfo"])


def test_records_that_retention_removed_before_their_index_are_never_left_out_in_silence(
    short: GenuineTubeMQ, tmp_path: Path
) -> None:
    settings = ClientSettings(masters=(short.master_address,))
    chance, receipts = random.Random(1), Receipts()
    pipeline = Pipeline(settings, tmp_path, CURSOR)
    pipeline.produce(FIRST)
    assert pipeline.cursor_window().total == FIRST
    for name in (CURSOR, ALONE, SHARED):
        produce(settings, name, receipts, chance, 2800, 4000)
    # Of the cursor's topic the records before the position have to go as well.
    wait_for(lambda: all(data_min(short, name) > 4_000_000 for name in (CURSOR, ALONE, SHARED)))

    look_at_replies(short, settings, receipts)
    look_at_ranges(settings, receipts)
    look_at_the_cursor(pipeline, receipts)
    with pytest.raises(DataLoss):  # a group that begins now
        Pipeline(settings, tmp_path / "new", CURSOR).cursor_window()


def look_at_replies(short: GenuineTubeMQ, settings: ClientSettings, receipts: Receipts) -> None:
    """Compare with the embedded server: records without data whose entries remain."""
    partition = Partition(1, ALONE, 0)
    rows = sorted(receipts.rows[partition])
    end = 28 * len(rows)
    with RangeReader(settings, group="look") as reader:
        readable = reader.readable_from(OffsetRange(partition, 0, end))
    with EmbeddedTubeMQ(topics=[EmbeddedTopic(ALONE)]) as mq:
        twin = ClientConfig(masters=mq.masters).settings()
        with Producer(twin) as producer:
            producer.partitions(ALONE)
            for _, mark, stream in rows:
                producer.send(ALONE, mark.ljust(4000, b"."), stream_id=stream)
        store = mq.broker(1).store(ALONE)
        store.flush()
        store.expire_data_to(readable)
        ask = f"http://{mq.broker(1).web}/broker.htm?method=admin_query_pubinfo&topicName={ALONE}"
        with urlopen(ask) as answer:
            told = json.load(answer)["dataSet"]
        assert told == short.query_broker("admin_query_pubinfo", topicName=ALONE)["dataSet"]
        for start in (0, readable - 28 * 400, readable - 28, readable, readable + 28):
            assert replies(twin, partition, start, 5) == replies(settings, partition, start, 5)


def look_at_ranges(settings: ClientSettings, receipts: Receipts) -> None:
    """Readers of stores of one partition and of three, filtered or not, with both policies."""
    answers = set()
    for partition, rows in receipts.rows.items():
        if partition.topic != CURSOR:
            range_ = OffsetRange(partition, 0, max(at for at, _, _ in rows) + 28)
            for filters, policy in product(((), ("a",)), ("fail", "skip")):
                answers.add(read_window(settings, receipts, range_, filters=filters, policy=policy))
    assert answers == {"DataLoss", "gap"}


def look_at_the_cursor(pipeline: Pipeline, receipts: Receipts) -> None:
    """Run the cursor: it detects no other log, and reads the rest with the gap recorded."""
    with pytest.raises(DataLoss, match=r"retention has removed data of topic 'r_cursor'") as caught:
        pipeline.cursor_window()
    assert "epoch" not in str(caught.value)
    result = pipeline.cursor_window(policies=Policies(gap_policy=GapPolicy.SKIP))
    ((low, high),) = result.gaps["1:0"]
    partition = Partition(1, CURSOR, 0)
    kept = [mark for at, mark, _ in receipts.rows[partition] if not low <= at < high]
    lake = read_windows(pipeline.root / "cursor").to_table(columns=["value"])["value"].to_pylist()
    assert sorted(body[:16] for body in lake[FIRST:]) == sorted(kept)
    assert low == FIRST * 28
    assert 0 < len(kept) < 2800
    with RangeReader(pipeline.settings, group="look") as reader:
        assert reader.readable_from(OffsetRange(partition, 0, high + 28)) == high
