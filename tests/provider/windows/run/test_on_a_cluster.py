"""Whole windows from an embedded cluster into Parquet: two brokers, crashes, retention, kills.

Real reader, real files, no Airflow. What must be in the sink is known from the send receipts.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.kit.forked import CONTEXT
from tests.provider.windows.cluster_child import TOPIC, run_window
from tests.provider.windows.kill_child import Point
from tests.provider.windows.run.test_kill_points import CHILD_TIMEOUT, POINTS
from tubemq_client import Partition, ReachableEnds, Record, SendReceipt
from tubemq_client.aio import Metadata as AsyncMetadata
from tubemq_client.config import ClientConfig
from tubemq_client.embedded import EmbeddedTubeMQ, Switches, TopicSpec
from tubemq_client.errors import ConnectError, DataLoss
from tubemq_client.sync import Metadata, Producer
from tubemq_provider.sinks.read import published_windows, read_windows
from tubemq_provider.windows.errors import WindowNotReady
from tubemq_provider.windows.run.result import WindowResult
from tubemq_provider.windows.verify import chain_problems

pytestmark = pytest.mark.timeout(120)


class Cluster:
    """Two brokers with equal partition ids; flushed by hand, so that the stable end is known."""

    def __init__(self, server: EmbeddedTubeMQ, root: Path) -> None:
        self.server = server
        self.root = root
        self.settings = ClientConfig.parse({"masters": server.masters}).settings()
        self.receipts: dict[bytes, SendReceipt] = {}
        self.sent = 0
        self.runs = 0

    def produce(self, count: int, *, flush: bool = True) -> None:
        with Producer(self.settings) as producer:
            partitions: list[Partition] = producer.partitions(TOPIC)
            first, self.sent = self.sent, self.sent + count
            records = [
                Record(f"record {number}".encode(), partition=partitions[number % len(partitions)])
                for number in range(first, self.sent)
            ]
            for record, receipt in zip(records, producer.send_many(TOPIC, records), strict=True):
                self.receipts[record.body] = receipt
        if flush:
            self.flush()

    def flush(self) -> None:
        for broker in (1, 2):
            self.server.broker(broker).flush()

    def run(self, task: str | None = None, *, epoch: str = "", **policies: str) -> WindowResult:
        self.runs += 1
        task, masters = task or f"task-{self.runs}", self.server.masters
        return run_window(masters, str(self.root), task, policies=policies, epoch=epoch)

    def bodies(self) -> list[bytes]:
        """Every record in the sink."""
        table = read_windows(self.root / "lake").to_table().to_pylist()
        return [row["value"] for row in table]

    def check(self, bodies: Iterable[bytes]) -> None:
        """Check that the sink holds `bodies`, each in the window and partition of its receipt."""
        table = read_windows(self.root / "lake").to_table().to_pylist()
        assert Counter(row["value"] for row in table) == Counter(list(bodies))
        plans = {m.plan.window_id: m.plan for m in published_windows(self.root / "lake")}
        assert chain_problems(plans.values()) == []
        for row in table:
            receipt = self.receipts[row["value"]]
            start, end = plans[row["window_id"]].ranges[row["partition"]]
            assert row["partition"] == receipt.partition.key
            assert start <= receipt.offset < end


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    switches = Switches(flush_interval_ms=None, unflushed_records=None)
    topics = [TopicSpec(TOPIC, stores=2, partitions=2)]
    with EmbeddedTubeMQ(brokers=2, topics=topics, switches=switches, http=False) as server:
        yield Cluster(server, tmp_path)


def test_two_brokers_with_equal_partition_ids(cluster: Cluster) -> None:
    for count in (50, 1, 0, 17):
        cluster.produce(count)
        cluster.run()
    cluster.run()
    cluster.check(cluster.receipts)
    keys = {key for m in published_windows(cluster.root / "lake") for key in m.plan.ranges}
    assert keys == {f"{broker}:{part}" for broker in (1, 2) for part in (0, 1, 10000, 10001)}


def test_a_cleared_task_reads_and_writes_nothing_again(cluster: Cluster) -> None:
    cluster.produce(20)
    first = cluster.run("a")
    cluster.produce(5)
    cluster.run("b")
    again = cluster.run("a")
    assert again.replayed
    assert (again.window_id, again.hash, again.records) == (
        first.window_id,
        first.hash,
        first.records,
    )
    cluster.check(cluster.receipts)


def test_a_window_ends_at_what_is_on_disk(cluster: Cluster) -> None:
    cluster.produce(10)
    kept = list(cluster.receipts)
    cluster.produce(10, flush=False)
    cluster.run()
    cluster.check(kept)


def test_a_broker_that_loses_records_and_reuses_offsets_costs_and_repeats_none(
    cluster: Cluster,
) -> None:
    for _ in range(3):
        cluster.produce(16)
        cluster.produce(8, flush=False)
        cluster.run()
        unflushed = list(cluster.receipts)[-8:]
        lost = cluster.server.broker(1).crash()
        assert lost == 4
        cluster.server.broker(1).restart()
        for body in unflushed:
            if cluster.receipts[body].partition.broker_id == 1:
                del cluster.receipts[body]
        cluster.flush()
        cluster.produce(12)  # takes the lost records' offsets
        cluster.run()
    cluster.check(cluster.receipts)


BOTH_EXPIRE = pytest.mark.parametrize("expire", ["expire_to", "expire_data_to"])
"""Retention takes data and index, or only data: a broker then passes over what it still lists."""


@BOTH_EXPIRE
def test_retention_past_the_position_is_a_clear_error_or_a_recorded_gap(
    cluster: Cluster, expire: str
) -> None:
    cluster.produce(16)
    cluster.run()
    cluster.produce(16)
    getattr(cluster.server.broker(2).store(TOPIC, 0), expire)(28 * 6)
    with pytest.raises(DataLoss) as caught:
        cluster.run()
    for word in (TOPIC, "2:0", "2:1", "[112, 168)", "gap_policy='skip'"):
        assert word in str(caught.value)
    result = cluster.run(gap_policy="skip")
    assert result.gaps == {"2:0": [[112, 168]], "2:1": [[112, 168]]}
    gone = {
        body
        for body, receipt in cluster.receipts.items()
        if receipt.partition.key in {"2:0", "2:1"} and 112 <= receipt.offset < 168
    }
    cluster.check(body for body in cluster.receipts if body not in gone)


@BOTH_EXPIRE
def test_a_first_window_over_records_that_are_gone_is_loss_unless_it_may_be(
    cluster: Cluster, expire: str
) -> None:
    """Offsets where the group begins; a broker lists entries whose data is gone as the earliest."""
    cluster.produce(24)
    getattr(cluster.server.broker(1).store(TOPIC, 0), expire)(28 * 4)
    if expire == "expire_data_to":
        with pytest.raises(DataLoss, match=r"1:0: offsets \[0, 112\) are gone"):
            cluster.run()
    result = cluster.run(gap_policy="skip")
    gaps = {"1:0": [[0, 112]], "1:1": [[0, 112]]} if expire == "expire_data_to" else {}
    assert result.gaps == gaps
    kept = [
        body
        for body, receipt in cluster.receipts.items()
        if receipt.partition.key not in {"1:0", "1:1"} or receipt.offset >= 112
    ]
    cluster.check(kept)


@BOTH_EXPIRE
def test_retention_that_passes_a_planned_window_is_recorded_as_a_gap(
    cluster: Cluster, expire: str
) -> None:
    """Between plan and read, the reader meets the gap, with the real class for it."""
    cluster.produce(16)
    cluster.run()
    cluster.produce(32)
    child = CONTEXT.Process(
        target=run_window,
        args=(cluster.server.masters, str(cluster.root), "second"),
        kwargs={"kill_at": next(point for point in POINTS if point[0] == "ingest")},
    )
    child.start()
    child.join(CHILD_TIMEOUT)
    getattr(cluster.server.broker(2).store(TOPIC, 0), expire)(28 * 12)
    with pytest.raises(DataLoss, match="gap_policy='skip'"):
        cluster.run("second")
    result = cluster.run("second", gap_policy="skip")
    assert result.gaps == {"2:0": [[112, 336]], "2:1": [[112, 336]]}
    kept = [
        body
        for body, receipt in cluster.receipts.items()
        if receipt.partition.key not in {"2:0", "2:1"} or not 112 <= receipt.offset < 336
    ]
    cluster.check(kept)
    cluster.produce(8)
    cluster.run("third")
    cluster.check([*kept, *list(cluster.receipts)[-8:]])


def test_a_dead_broker_delays_its_own_partitions_only(cluster: Cluster) -> None:
    cluster.produce(16)
    cluster.run()
    cluster.produce(16)
    cluster.server.broker(2).stop()
    first = cluster.run()
    assert {key for key, (start, end) in first.ranges.items() if start < end} == {
        "1:0",
        "1:1",
        "1:10000",
        "1:10001",
    }
    assert set(first.absent) == {"2:0", "2:1", "2:10000", "2:10001"}
    assert all("ConnectError" in reason for reason in first.absent.values())
    assert "they keep their place" in first.warnings[0]
    assert set(cluster.run().absent) == set(first.absent)  # also where nothing is left to read
    cluster.server.broker(2).restart()
    cluster.produce(4)
    last = cluster.run()
    assert last.absent == {}
    cluster.check(cluster.receipts)


def test_both_shells_tell_which_partitions_are_away(cluster: Cluster) -> None:
    async def look() -> ReachableEnds:
        async with AsyncMetadata(cluster.settings) as metadata:
            return await metadata.reachable_ends(TOPIC, "g")

    cluster.produce(16)
    with Metadata(cluster.settings) as metadata:
        assert metadata.reachable_ends(TOPIC, "g") == metadata.ends(TOPIC, "g")
        cluster.server.broker(2).stop()
        found = metadata.reachable_ends(TOPIC, "g")
        assert {p.broker_id for p in found} == {1}
        assert {p.broker_id for p in found.away} == {2}
        assert "away={Partition" in repr(found)
        again = asyncio.run(look())
        assert (again, again.away.keys()) == (found, found.away.keys())
        cluster.server.broker(1).stop()
        with pytest.raises(ConnectError):
            metadata.reachable_ends(TOPIC, "g")


def test_a_plan_made_before_its_broker_died_goes_on_without_it(cluster: Cluster) -> None:
    cluster.produce(16)
    cluster.run()
    cluster.produce(16)
    child = CONTEXT.Process(
        target=run_window,
        args=(cluster.server.masters, str(cluster.root), "a"),
        kwargs={"kill_at": ("plan", "end", 1)},
    )
    child.start()
    child.join(CHILD_TIMEOUT)
    assert child.exitcode == -signal.SIGKILL
    cluster.server.broker(2).stop()
    assert cluster.run("a").total == 8
    cluster.server.broker(2).restart()
    cluster.run()
    cluster.check(cluster.receipts)


def test_a_first_window_waits_for_every_broker(cluster: Cluster) -> None:
    """An unknown partition would join later at its beginning, not where the group begins."""
    cluster.produce(16)
    cluster.server.broker(2).stop()
    with pytest.raises(WindowNotReady, match=r"offsets retire test/.* --broker 2"):
        cluster.run()
    cluster.server.broker(2).restart()
    cluster.run()
    cluster.check(cluster.receipts)


@pytest.mark.parametrize(
    "point",
    [point for point in POINTS if point[0] in {"ingest", "publish", "advance"}][::2],
    ids=lambda point: "-".join(map(str, point)),
)
def test_killed_while_it_works_on_a_cluster(point: Point, cluster: Cluster) -> None:
    cluster.produce(24)
    cluster.run("first")
    cluster.produce(40)
    child = CONTEXT.Process(
        target=run_window,
        args=(cluster.server.masters, str(cluster.root), "second"),
        kwargs={"kill_at": point},
    )
    child.start()
    child.join(CHILD_TIMEOUT)
    assert child.exitcode == -signal.SIGKILL
    cluster.run("second")
    cluster.check(cluster.receipts)
    assert len(published_windows(cluster.root / "lake")) == 2
