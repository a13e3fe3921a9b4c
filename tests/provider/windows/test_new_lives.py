"""Logs that take another's place: recreated topics, disks lost or restored, on an embedded cluster.

Offsets begin again and grow past every position that was taken before, so nothing but the records
themselves tells one life of a log from another. Real reader, real files; what must be in the sink
is known from the send receipts.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.kit.engines import inline_engine
from tests.kit.forked import CONTEXT
from tests.provider.windows.cluster_child import TOPIC, run_window
from tests.provider.windows.run.test_kill_points import CHILD_TIMEOUT
from tests.provider.windows.run.test_on_a_cluster import Cluster
from tubemq_client.admin import AdminClient
from tubemq_client.embedded import EmbeddedTubeMQ, Switches, TopicSpec
from tubemq_client.errors import LogRegression, LogReplaced, LogTruncated, TubeMQError
from tubemq_client.sync import Metadata, RangeReader
from tubemq_provider.engines.inline import InlineEngine
from tubemq_provider.offsets.file import FileOffsetStore
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.sinks.read import published_windows
from tubemq_provider.windows.plan import WindowScope
from tubemq_provider.windows.planning.standalone_planner import TimePlanner
from tubemq_provider.windows.run.kinds import window_run

pytestmark = pytest.mark.timeout(120)

PARTS = [(broker, store) for broker in (1, 2) for store in (0, 1)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    switches = Switches(flush_interval_ms=None, unflushed_records=None)
    topics = [TopicSpec(TOPIC, stores=2, partitions=2)]
    with EmbeddedTubeMQ(brokers=2, topics=topics, switches=switches, http=False) as server:
        yield Cluster(server, tmp_path)


def cut(cluster: Cluster, *stores: tuple[int, int], at: int = 0) -> set[bytes]:
    """Recreate the logs at `at` entries; return the bodies that they lose."""
    for broker, store in stores:
        cluster.server.broker(broker).store(TOPIC, store).truncate_to(28 * at)
    return {
        body
        for body, receipt in cluster.receipts.items()
        if (receipt.partition.broker_id, receipt.partition.store_id) in stores
        and receipt.offset >= 28 * at
    }


def test_a_topic_made_anew_is_noticed_though_its_log_has_grown_past_the_position(
    cluster: Cluster,
) -> None:
    cluster.produce(60)
    cluster.run()
    cut(cluster, *PARTS)
    cluster.produce(200)
    for _ in range(2):
        with pytest.raises(LogReplaced) as caught:
            cluster.run()
    for word in (TOPIC, "1:0", "2:10000", "on_offset_regression", "offsets epoch test/orders/g1"):
        assert word in str(caught.value)
    assert len(published_windows(cluster.root / "lake")) == 1


def test_a_new_life_is_read_from_its_beginning_where_a_policy_says_so(cluster: Cluster) -> None:
    cluster.produce(60)
    cluster.run()
    cut(cluster, *PARTS)
    cluster.produce(200)
    assert cluster.run(on_offset_regression="reset_to_start").total == 200
    cluster.produce(10)
    assert cluster.run().total == 10  # the next window knows the new life by its own records
    rows = cluster.bodies()
    assert sorted(rows) == sorted(cluster.receipts)


def test_a_new_life_is_an_epoch_of_its_own_as_the_advice_says(cluster: Cluster) -> None:
    cluster.produce(60)
    cluster.run()
    cut(cluster, *PARTS)
    cluster.produce(200)
    with pytest.raises(LogReplaced, match="epoch='<name>'"):
        cluster.run()
    assert cluster.run(epoch="second").total == 200
    cluster.produce(10)
    assert cluster.run(epoch="second").total == 10
    assert sorted(cluster.bodies()) == sorted(cluster.receipts)


def test_one_broker_with_another_disk_is_noticed(cluster: Cluster) -> None:
    cluster.produce(60)
    cluster.run()
    cut(cluster, (2, 0))
    cluster.produce(200)
    with pytest.raises(LogReplaced) as caught:
        cluster.run()
    assert "2:0" in str(caught.value)
    assert "2:1" in str(caught.value)  # shares its log
    assert "2:10000" not in str(caught.value)
    assert "1:0" not in str(caught.value)


def test_a_disk_restored_from_a_backup_is_noticed(cluster: Cluster) -> None:
    """It has the beginning of the old log, and other records where the position stands."""
    cluster.produce(80)
    cluster.run()
    lost = cut(cluster, *PARTS, at=15)
    assert len(lost) == 20
    cluster.produce(200)
    with pytest.raises(LogReplaced):
        cluster.run()


def test_a_log_that_ends_before_the_position_says_what_to_do(cluster: Cluster) -> None:
    cluster.produce(60)
    cluster.run()
    cut(cluster, *PARTS)
    cluster.produce(8)
    with pytest.raises(LogTruncated, match="offsets epoch test/orders/g1"):
        cluster.run()


@pytest.mark.parametrize("seen", [0, 60], ids=["first window", "later window"])
def test_a_plan_of_another_life_is_not_read(cluster: Cluster, seen: int) -> None:
    """Killed between plan and read; meanwhile the topic is recreated."""
    if seen:
        cluster.produce(seen)
        cluster.run("first")
    cluster.produce(60)
    child = CONTEXT.Process(
        target=run_window,
        args=(cluster.server.masters, str(cluster.root), "second"),
        kwargs={"kill_at": ("ingest", "staging ready", 1)},
    )
    child.start()
    child.join(CHILD_TIMEOUT)
    assert child.exitcode == -signal.SIGKILL
    cut(cluster, *PARTS)
    cluster.produce(400)
    for task in ("second", "third"):
        with pytest.raises(LogReplaced):
            cluster.run(task)
    assert cluster.run("second", on_offset_regression="reset_to_start").total == 400


def test_a_topic_made_anew_while_it_is_read_is_noticed_before_anything_is_published(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The read finds all the offsets it wants; they are another life's."""
    cluster.produce(60)
    cluster.run()
    cluster.produce(20)
    ingest = InlineEngine.ingest

    def replaced_meanwhile(self: InlineEngine, *args: Any) -> Any:
        cut(cluster, *PARTS)
        cluster.produce(400)
        return ingest(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(InlineEngine, "ingest", replaced_meanwhile)
        with pytest.raises(LogReplaced):
            cluster.run()
    assert len(published_windows(cluster.root / "lake")) == 1


def test_documents_without_anchors_are_read_and_the_next_window_adds_them(
    cluster: Cluster,
) -> None:
    """Documents of an earlier release: neither cursor, event, plan nor marker has any."""
    cluster.produce(60)
    cluster.run()
    documents = [path for path in cluster.root.rglob("*.json") if path.is_file()]
    assert any('"last"' in path.read_text() for path in documents)
    for path in documents:
        path.write_text(json.dumps(_without(json.loads(path.read_text()))))
    cluster.produce(10)
    assert cluster.run().total == 10
    cut(cluster, *PARTS)
    cluster.produce(400)
    with pytest.raises(LogRegression):
        cluster.run()


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        gone = {"before", "upto", "last"}
        return {key: _without(found) for key, found in value.items() if key not in gone}
    return [_without(item) for item in value] if isinstance(value, list) else value


def time_window(cluster: Cluster, first: int, last: int, instants: dict[int, int]) -> Any:
    """Run a window whose resolver looks at the log: each hour ends where it says, in entries."""
    sink = ParquetSink(cluster.root / "times")
    scope = WindowScope("test", TOPIC, "g1", sink.identity)
    noon = datetime(2026, 11, 21, 12, tzinfo=UTC)

    class Looking:
        name, exact = "looking", False

        def offsets_at(self, instant: datetime) -> dict[str, int]:
            with Metadata(cluster.settings) as metadata:
                ends = metadata.ends(TOPIC, "g1")
            entry = instants[(instant - noon) // timedelta(hours=1)]
            return {p.key: min(entry * 28, found.max_offset) for p, found in ends.items()}

    with (
        Metadata(cluster.settings) as metadata,
        RangeReader(cluster.settings, group="g1") as witness,
    ):
        planner = TimePlanner(
            scope,
            noon + timedelta(hours=first),
            noon + timedelta(hours=last),
            Looking(),
            lambda: metadata.ends(TOPIC, "g1"),
            sink.boundaries,
            witness=witness,
        )
        store = FileOffsetStore(cluster.root / "offsets", task=f"{first}-{last}")
        engine = inline_engine(cluster.settings, policies=planner.policies)
        return window_run(planner, store, sink, engine, attempt="1").run()


@pytest.mark.parametrize("grown", [8, 400], ids=["shorter", "grown past"])
def test_a_window_of_time_over_a_topic_made_anew_is_not_empty_and_green(
    cluster: Cluster, grown: int
) -> None:
    hours = {0: 0, 1: 16, 2: 100}
    cluster.produce(60)
    assert time_window(cluster, 0, 1, hours).total == 60
    cut(cluster, *PARTS)
    cluster.produce(grown)
    for _ in range(2):
        with pytest.raises(LogRegression, match="offsets epoch"):
            time_window(cluster, 1, 2, hours)


def test_a_topic_deleted_and_created_by_the_projects_own_client_is_noticed(tmp_path: Path) -> None:
    switches = Switches(flush_interval_ms=None, unflushed_records=None)
    topic = TopicSpec(TOPIC, partitions=2)
    with EmbeddedTubeMQ(brokers=2, topics=[topic], switches=switches) as server:
        cluster = Cluster(server, tmp_path)
        cluster.produce(60)
        assert cluster.run().total == 60
        with AdminClient(server.master_web, token="abc") as admin:
            admin.delete_topic(TOPIC, remove_data=True)
            for _ in range(100):
                if not admin.topics([TOPIC]):
                    break
                time.sleep(0.1)
            admin.create_topic(TOPIC)
        for _ in range(100):
            try:
                cluster.produce(200)
            except TubeMQError:
                time.sleep(0.1)  # not announced yet
            else:
                break
        with pytest.raises(LogReplaced):
            cluster.run()
        assert cluster.run(epoch="second").total >= 200
