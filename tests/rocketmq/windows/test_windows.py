"""Windows of RocketMQ's queues: every receipt once in the sink, with crashes of any part.

On the embedded server and, with `-m real`, on genuine ones of both lines.
"""

from __future__ import annotations

import os
import random
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from types import SimpleNamespace

import pytest

from rocketmq_client import (
    Admin,
    Metadata,
    Producer,
    PullConsumer,
    QueueEnds,
    QueueRange,
)
from rocketmq_snode import SnodeSettings
from tests.provider.windows.run.test_kill_points import POINTS
from tests.rocketmq.sites import Site
from tests.rocketmq.windows.child import GROUP
from tests.rocketmq.windows.topics import ALL, Topic
from tests.snode.conftest import Node
from tools.devkit.patience import PATIENCE
from tubemq_client.errors import ConfigError, CorruptRecord, DataLoss, LogReplaced, LogTruncated
from tubemq_provider.sinks.read import published_windows
from tubemq_provider.sources.registry import config_of, open_source
from tubemq_provider.sources.rocketmq.space import SPACE
from tubemq_provider.windows.errors import WindowNotReady

pytestmark = pytest.mark.timeout(240)

WINDOWS = int(os.environ.get("ROCKETMQ_WINDOWS", "30"))
"""Random windows of a run against a live producer; two hundred by hand."""
KILLED_AT = POINTS if os.environ.get("SCENARIOS_OVER") == "all" else POINTS[::5]
"""Points at which a run is killed; those of the other source."""


def test_random_windows_equal_the_receipts_over_a_killed_broker(site: Site, tmp_path) -> None:
    topic = Topic(site.settings, site.topic(queues=4), tmp_path)
    ended, chance = threading.Event(), random.Random(16)

    def produce() -> None:
        while not ended.is_set():
            topic.produce(20)
            time.sleep(0.02)

    writing = threading.Thread(target=produce)
    writing.start()
    done = 0
    deadline = time.monotonic() + 150 * PATIENCE
    while done < WINDOWS:
        assert time.monotonic() < deadline
        if done == WINDOWS // 2:
            site.cluster.kill_broker()
            site.cluster.start_broker()
            done += 1
        result = topic.run(max_records=chance.randint(1, 200))
        done += bool(result.total)
        if not result.total:
            time.sleep(0.1)
    ended.set()
    writing.join(60)
    topic.catch_up()
    topic.check()


def test_windows_through_a_node_equal_the_receipts(site: Site, tmp_path) -> None:
    """Only the node is reachable: its routes contain no other address."""
    options = SnodeSettings((site.settings.name_servers[0],), listen=("127.0.0.1", 0))
    with Node(options) as node:
        topic = Topic(node.settings, site.topic(queues=2), tmp_path)
        for count in (20, 30):
            topic.produce(count)
            topic.catch_up()
        topic.check()


def test_windows_of_tags_equal_filtering(site: Site, tmp_path) -> None:
    topic = Topic(site.settings, site.topic(queues=2), tmp_path)
    topic.produce(30, "kept")
    receipts = dict(topic.receipts)
    topic.produce(30, "left")
    with Producer(site.settings) as producer:  # a hash that "kept" does not share
        producer.send(topic.topic, b"none")
    deadline = time.monotonic() + 60 * PATIENCE
    while topic.rows().items() != receipts.items():
        assert time.monotonic() < deadline
        topic.run(tags=("kept",))
        time.sleep(0.2)


def test_a_text_in_the_place_of_filters_is_one_tag(rocketmq, topic) -> None:
    for tags in ("paid", "p", None):
        topic.produce(8, tags)
    arguments = {"identity": "main", "topic": "orders", "group": "lake"}
    with open_source("rocketmq", rocketmq.settings, filters="paid", **arguments) as source:
        read = source.probe()
        found = [m.tags for end in source.ends("latest").values() for m in read(range_of(end))]

    assert found == ["paid"] * 8


def range_of(end: QueueEnds) -> QueueRange:
    return QueueRange(end.queue, end.min_offset, end.latest_offset)


def test_windows_of_time_hold_what_was_stored_in_them(site: Site, tmp_path) -> None:
    topic = Topic(site.settings, site.topic(queues=2), tmp_path)
    for _ in range(6):
        topic.produce(10)
        time.sleep(0.15)
    with PullConsumer(site.settings, group="look") as consumer:
        records = [
            message
            for queue in consumer.queues(topic.topic)
            for message in consumer.pull(queue, 0).messages
        ]
    times = sorted(record.store_ms for record in records)
    edges = [times[0], times[20], times[45], times[-1] + 1]
    instants = [datetime.fromtimestamp(edge / 1000, UTC) for edge in edges]
    time.sleep(4)  # the brokers' clocks have whole seconds, and the grace is two
    for start, end in [(1, 2), (0, 1), (2, 3)]:
        between = (instants[start], instants[end])
        result = _when_ready(lambda between=between: topic.run(between=between))
        expected = [r for r in records if edges[start] <= r.store_ms < edges[end]]
        assert result.total == len(expected)
    assert topic.rows() == topic.receipts


def _when_ready(run):
    deadline = time.monotonic() + 30 * PATIENCE
    while True:
        try:
            return run()
        except WindowNotReady:
            assert time.monotonic() < deadline
            time.sleep(0.5)


def test_an_instant_that_is_not_over_is_not_ready(rocketmq, topic) -> None:
    topic.produce(3)
    now = datetime.now(UTC)
    with pytest.raises(WindowNotReady, match="not final yet"):
        topic.run(between=(now - timedelta(hours=1), now + timedelta(seconds=1)))


def test_a_cleared_task_reads_and_writes_nothing_again(topic) -> None:
    topic.produce(20)
    first = topic.run("a")
    topic.produce(5)
    topic.run("b")
    again = topic.run("a")
    assert again.replayed
    assert (again.window_id, again.records) == (first.window_id, first.records)
    topic.check()


def test_a_window_ends_at_what_is_on_disk_and_a_dead_host_costs_nothing(rocketmq, topic) -> None:
    topic.produce(12)
    rocketmq.hold_flush(broker="broker-a")
    receipts = dict(topic.receipts)
    topic.produce(12)
    topic.run()
    here = {key: body for key, body in topic.rows().items() if key[0].startswith("broker-a")}
    assert here.items() <= receipts.items()
    rocketmq.lose_unflushed("broker-a")
    lost = {key for key in topic.receipts.keys() - receipts.keys() if key[0].startswith("broker-a")}
    assert lost
    for key in lost:
        del topic.receipts[key]
    rocketmq.hold_flush(held=False, broker="broker-a")
    topic.produce(12)  # takes the lost records' offsets
    topic.catch_up()
    topic.check()


def test_a_boundary_is_not_fixed_beyond_records_lost_with_a_host(
    rocketmq, topic, monkeypatch
) -> None:
    """Reused offsets belong to records stored later."""

    def produce(hours: int, count: int) -> None:
        with monkeypatch.context() as patched:  # so long ago, by the brokers' clocks
            clock = SimpleNamespace(time_ns=lambda: time.time_ns() - hours * 3600 * 10**9)
            patched.setattr("rocketmq_client.embedded.storage.time", clock)
            topic.produce(count)

    now = datetime.now(UTC)
    first, second = ((now - timedelta(hours=h + 2), now - timedelta(hours=h)) for h in (4, 2))
    for broker in rocketmq.broker_names:
        rocketmq.hold_flush(broker=broker)
    produce(5, 12)
    with pytest.raises(WindowNotReady, match=r"on disk:\s+- partition broker-a:0: it is at 3"):
        topic.run("first", between=first)
    for broker in rocketmq.broker_names:
        rocketmq.lose_unflushed(broker)
        rocketmq.hold_flush(held=False, broker=broker)
    topic.receipts.clear()
    produce(3, 20)
    assert [topic.run("first", between=first).total, topic.run(between=second).total] == [0, 20]
    assert topic.rows() == topic.receipts


def test_a_boundary_is_not_fixed_while_the_flushed_position_is_unknown(
    rocketmq, topic, monkeypatch
) -> None:
    """The broker answers about the boundary, and dies before it reports its flushed position."""
    looked, looks = Metadata.boundary_at, count(1)

    def boundary_at(*words, **options):
        boundary = looked(*words, **options)
        if next(looks) == 2:  # the look for the window's end
            rocketmq._thread.wait(lambda: rocketmq._close("broker-b"))
        return boundary

    start = datetime.now(UTC)
    rocketmq.hold_flush(broker="broker-b")
    topic.produce(20)
    end = datetime.now(UTC)
    time.sleep(3.2)
    with monkeypatch.context() as patched:
        patched.setattr(Metadata, "boundary_at", boundary_at)
        with pytest.raises(WindowNotReady, match=r"(?s)cannot be told yet.*broker-b:0: Conn"):
            topic.run("first", between=(start, end))
    rocketmq.lose_unflushed("broker-b")
    rocketmq.hold_flush(held=False, broker="broker-b")
    rocketmq.start_broker("broker-b")
    topic.receipts = {key: body for key, body in topic.receipts.items() if "a:" in key[0]}
    topic.produce(20)  # at the offsets of what was lost
    assert topic.run("first", between=(start, end)).total == 10


def test_a_stable_end_that_falls_back_a_little_is_no_loss(rocketmq, topic, monkeypatch) -> None:
    topic.produce(20)
    topic.run()
    rocketmq.hold_flush(broker="broker-a")
    monkeypatch.setattr("tubemq_provider.sources.rocketmq.source.RocketMQSource.ends", _coarse_ends)
    result = topic.run()

    assert result.total == 0


def _coarse_ends(source, which="stable"):
    """Report ends like a broker with much unflushed data: a lower bound below the earlier stable
    end."""
    with Metadata(source.settings()) as metadata:
        found = metadata.ends(source.topic, stable=False)
    return {queue: _lower(ends) for queue, ends in found.items()}


def _lower(ends):
    return replace(ends, max_offset=max(ends.min_offset, ends.max_offset - 3), stable=True)


def test_records_lost_to_retention_are_an_error_or_a_recorded_gap(rocketmq, topic) -> None:
    topic.produce(20)
    topic.run()
    topic.produce(20)
    key = next(key for key, _ in topic.receipts)
    position = max(offset for name, offset in topic.rows() if name == key) + 1
    rocketmq.remove_until(SPACE.partition("orders", key), position + 3)
    with pytest.raises(DataLoss, match=f"{key}: offsets .{position}, {position + 3}. are gone"):
        topic.run()
    result = topic.run(policies={"gap_policy": "skip"})
    assert result.gaps[key] == [[position, position + 3]]
    assert len(topic.rows()) == len(topic.receipts) - 3


@pytest.mark.parametrize("policy", ["drop", "quarantine"])
def test_a_damaged_record_where_a_window_begins_or_ends_follows_the_policy(
    policy, rocketmq, topic
) -> None:
    topic.produce(20)
    for key, offset in zip(ALL, (0, 4, 0, 4), strict=True):
        rocketmq.damage(SPACE.partition("orders", key), offset)
    with pytest.raises(CorruptRecord):
        topic.run("a")
    results = [topic.run("a", policies={"corrupt_records": policy})]
    topic.produce(4)
    results.append(topic.run("b", policies={"corrupt_records": policy}))

    assert [result.total for result in results] == [16, 4]


def test_a_recreated_topic_is_another_log(rocketmq, topic) -> None:
    topic.produce(20)
    topic.run()
    with Admin(rocketmq.settings) as admin:
        admin.delete_topic("orders")
        admin.create_topic("orders", queues=2)
    topic.produce(10)
    with pytest.raises(LogTruncated):
        topic.run()
    topic.produce(60)
    with pytest.raises(LogReplaced):
        topic.run()


def test_progress_is_shown_at_the_brokers(rocketmq, topic) -> None:
    topic.produce(20)
    topic.run()
    with PullConsumer(rocketmq.settings, group=GROUP) as consumer:
        for queue in consumer.queues("orders"):
            count = sum(key == queue.key for key, _ in topic.receipts)
            assert consumer.committed(queue) == count


@pytest.mark.parametrize("point", KILLED_AT, ids=lambda point: "-".join(map(str, point)))
def test_killed_at(point, rocketmq, topic) -> None:
    topic.produce(10)
    topic.run("first")
    topic.produce(40)
    topic.run_killed("second", point)
    topic.run("second")
    topic.check()
    assert len(list(published_windows(topic.root / "lake"))) == 2


def test_options_are_checked_and_secrets_are_not_shown() -> None:
    with pytest.raises(ConfigError, match="name_servers"):
        config_of("rocketmq").parse({})
    auth = {"access_key": "reader01", "secret_key": "the-secret"}
    settings = config_of("rocketmq").parse({"name_servers": "ns1:9876", "auth": auth}).settings()
    assert "the-secret" not in repr(settings)
    source = open_source("rocketmq", settings, identity="a", topic="orders", group="g")
    with pytest.raises(ConfigError, match="its own is store_time"):
        source.resolver("history", {})


def test_keys_are_brokers_and_numbers() -> None:
    keys = ["broker-b:0", "broker-a:10", "broker-a:9", "b:c:1"]
    assert SPACE.ordered(keys) == ["b:c:1", "broker-a:9", "broker-a:10", "broker-b:0"]
    assert SPACE.peer_of("b:c:1") == "b:c"
    assert [SPACE.is_key(key) for key in ("broker-a:0", "broker-a:00", "a", ":1", 3)] == [
        *(True, False, False, False, False)
    ]
