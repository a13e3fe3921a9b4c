"""Windows of RocketMQ's queues: every receipt once in the sink, whatever dies meanwhile.

On the embedded server and, with `-m real`, on genuine ones of both lines.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from rocketmq_client import (
    Admin,
    Metadata,
    Producer,
    ProducerSettings,
    PullConsumer,
    errors,
)
from rocketmq_client.snode import SnodeSettings
from tests.kit.servers import embedded_rocketmq
from tests.provider.windows.run.test_kill_points import CHILD_TIMEOUT, CONTEXT, POINTS
from tests.rocketmq.sites import Site
from tests.rocketmq.snode.conftest import Node
from tests.rocketmq.windows.child import GROUP, run_window
from tubemq_client.errors import ConfigError, DataLoss, LogReplaced, LogTruncated
from tubemq_provider.sinks.read import published_windows, read_windows
from tubemq_provider.sources.registry import config_of, open_source
from tubemq_provider.sources.rocketmq.reading import QueueReader
from tubemq_provider.sources.rocketmq.space import SPACE
from tubemq_provider.windows.errors import WindowNotReady
from tubemq_provider.windows.verify import chain_problems

pytestmark = pytest.mark.timeout(240)

WINDOWS = int(os.environ.get("ROCKETMQ_WINDOWS", "30"))
"""Random windows of a run against a live producer; two hundred by hand."""
KILLED_AT = POINTS if os.environ.get("SCENARIOS_OVER") == "all" else POINTS[::5]
"""Where a run is killed; the points are those of the other source."""


class Topic:
    """A topic, what was sent to it, and windows of it."""

    def __init__(self, settings, topic: str, root: Path) -> None:
        self.settings, self.topic, self.root = settings, topic, root
        self.receipts: dict[tuple[str, int], bytes] = {}
        self.sent = self.runs = 0

    def produce(self, count: int, tags: str | None = None) -> None:
        options = ProducerSettings(retries=20)
        with Producer(self.settings, producer=options) as producer:
            for _ in range(count):
                self.sent += 1
                body = b"%d" % self.sent
                try:
                    receipt = producer.send(self.topic, body, tags=tags)
                except errors.RocketMQError:
                    continue  # it is unknown whether it was stored
                self.receipts[receipt.queue.key, receipt.offset] = body

    def run(self, task: str | None = None, **options):
        self.runs += 1
        name_server = self.settings.name_servers[0]
        task = task or f"task-{self.runs}"
        options = {"auth": self.settings.auth, **options}
        return run_window(name_server, self.topic, str(self.root), task, **options)

    def catch_up(self) -> None:
        """Until what was acknowledged is on disk and in the sink."""
        deadline = time.monotonic() + 60
        while not self.receipts.keys() <= self.rows().keys():
            assert time.monotonic() < deadline, "the stable end does not come"
            self.run()
            time.sleep(0.2)

    def rows(self) -> dict[tuple[str, int], bytes]:
        """Every record in the sink, which has none twice."""
        if not (self.root / "lake").exists():
            return {}
        table = read_windows(self.root / "lake").to_table().to_pylist()
        found = {(row["partition"], row["offset"]): row["value"] for row in table}
        assert len(found) == len(table), "a record came twice"
        return found

    def check(self) -> None:
        found = self.rows()
        assert self.receipts.items() <= found.items()
        plans = [marker.plan for marker in published_windows(self.root / "lake")]
        assert chain_problems(plans) == []
        for key in {key for key, _ in found}:
            offsets = sorted(offset for name, offset in found if name == key)
            assert offsets == list(range(len(offsets))), "every offset, from the first on"


rocketmq = embedded_rocketmq(2, brokers=2)


@pytest.fixture
def topic(rocketmq, tmp_path) -> Topic:
    return Topic(rocketmq.settings, "orders", tmp_path)


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
    deadline = time.monotonic() + 150
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
    """Nothing but the node is reached: its routes name nothing else."""
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
    kept = dict(topic.receipts)
    topic.produce(30, "left")
    with Producer(site.settings) as producer:  # a hash that "kept" does not share
        producer.send(topic.topic, b"none")
    deadline = time.monotonic() + 60
    while topic.rows().items() != kept.items():
        assert time.monotonic() < deadline
        topic.run(tags=("kept",))
        time.sleep(0.2)


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


@pytest.fixture
def hours(rocketmq, topic) -> list[datetime]:
    """Instants before, between and behind three times ten records in each of two queues; the
    brokers' clocks are past all of them."""
    found = [datetime.now(UTC)]
    for _ in range(3):
        time.sleep(0.02)
        topic.produce(40)
        time.sleep(0.02)
        found.append(datetime.now(UTC))
    time.sleep(3.2)
    return found


def _remove(rocketmq, offset: int, *queues: str) -> None:
    for key in queues:
        rocketmq.remove_until(SPACE.partition("orders", key), offset)


PLANNED = ("plan", "task plan stored", 1)
ALL = ("broker-a:0", "broker-a:1", "broker-b:0", "broker-b:1")


@pytest.mark.parametrize("removed", [7, 10, 17, 30])
def test_a_window_of_time_that_retention_has_reached_is_not_begun(
    removed, rocketmq, topic, hours
) -> None:
    """Some, all and more than what was stored in the first hour is gone, or all there was."""
    _remove(rocketmq, removed, *ALL)
    with pytest.raises(DataLoss, match=rf"broker-a:0: what is left begins at {removed}"):
        topic.run(between=(hours[0], hours[1]))
    assert topic.rows() == {}
    assert not list((topic.root / "lake").glob("_boundaries/*")), "nothing was fixed"


def test_a_window_of_time_behind_what_retention_took_is_whole(rocketmq, topic, hours) -> None:
    _remove(rocketmq, 7, *ALL)
    assert topic.run(between=(hours[1], hours[2])).total == 40
    with pytest.raises(DataLoss, match=r"somewhere in .0, 7."):
        topic.run(between=(hours[0], hours[1]))


def test_what_retention_took_of_windows_of_time_is_a_gap_once(rocketmq, topic, hours) -> None:
    """The first window may have lost all from the queues' beginning; the others begin where it
    ended, and what is gone of them is told exactly."""
    _remove(rocketmq, 17, *ALL)
    skip = {"gap_policy": "skip"}
    results = [topic.run(between=pair, policies=skip) for pair in pairwise(hours)]

    assert [result.gaps for result in results] == [{key: [[0, 17]] for key in ALL}, {}, {}]
    assert [result.total for result in results] == [0, 12, 40]


def test_what_retention_took_behind_a_fixed_boundary_is_exact(rocketmq, topic, hours) -> None:
    topic.run(between=(hours[0], hours[1]))
    _remove(rocketmq, 13, *ALL)
    with pytest.raises(DataLoss, match=r"broker-b:1: offsets .10, 13. are gone"):
        topic.run(between=(hours[1], hours[2]))
    result = topic.run(between=(hours[1], hours[2]), policies={"gap_policy": "skip"})

    assert result.gaps == {key: [[10, 13]] for key in ALL}
    assert result.total == 28


def test_a_boundary_that_is_fixed_is_taken_though_retention_has_reached_it(
    rocketmq, topic, hours
) -> None:
    topic.run(between=(hours[0], hours[1]))
    _remove(rocketmq, 10, *ALL)
    assert topic.run(between=(hours[1], hours[2])).total == 40


def test_a_plan_that_is_stored_stands_though_retention_has_reached_it(
    rocketmq, topic, hours
) -> None:
    words = (rocketmq.name_server, "orders", str(topic.root), "first", PLANNED)
    child = CONTEXT.Process(target=run_window, args=words, kwargs={"between": (hours[0], hours[1])})
    child.start()
    child.join(CHILD_TIMEOUT)
    assert child.exitcode == -signal.SIGKILL
    _remove(rocketmq, 7, *ALL)
    with pytest.raises(DataLoss, match=r"offsets .0, 7. of queue"):
        topic.run("first", between=(hours[0], hours[1]))
    result = topic.run("first", between=(hours[0], hours[1]), policies={"gap_policy": "skip"})

    assert result.total == 12
    assert result.gaps == {key: [[0, 7]] for key in ALL}


def test_a_quiet_queue_whose_records_are_long_gone_holds_nothing_up(rocketmq, topic, hours) -> None:
    """The log of its broker goes back behind the instant, and all that is gone is older still."""
    _remove(rocketmq, 3, *ALL)
    for broker in ("broker-a", "broker-b"):
        rocketmq.do(lambda target: _empty(target.storage.index("orders", 0)), broker)
    assert topic.run(between=(hours[1], hours[2])).total == 20


def _empty(index) -> None:
    """As if the queue had had its last record before those that retention has removed."""
    index.first = index.said_first = index.end
    index.entries.clear()


def _when_ready(run):
    deadline = time.monotonic() + 30
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
    kept = dict(topic.receipts)
    topic.produce(12)
    topic.run()
    here = {key: body for key, body in topic.rows().items() if key[0].startswith("broker-a")}
    assert here.items() <= kept.items()
    rocketmq.lose_unflushed("broker-a")
    lost = {key for key in topic.receipts.keys() - kept.keys() if key[0].startswith("broker-a")}
    assert lost
    for key in lost:
        del topic.receipts[key]
    rocketmq.hold_flush(held=False, broker="broker-a")
    topic.produce(12)  # takes the lost records' offsets
    topic.catch_up()
    topic.check()


def test_a_stable_end_that_falls_back_a_little_is_no_loss(rocketmq, topic, monkeypatch) -> None:
    topic.produce(20)
    topic.run()
    rocketmq.hold_flush(broker="broker-a")
    monkeypatch.setattr("tubemq_provider.sources.rocketmq.source.RocketMQSource.ends", _coarse_ends)
    result = topic.run()

    assert result.total == 0


def _coarse_ends(source, which="stable"):
    """As a broker with much unflushed says it: a lower bound below what was stable before."""
    with Metadata(source.settings()) as metadata:
        found = metadata.ends(source.topic, stable=False)
    return {queue: _lower(ends) for queue, ends in found.items()}


def _lower(ends):
    return replace(ends, max_offset=max(ends.min_offset, ends.max_offset - 3), stable=True)


def test_what_retention_took_is_an_error_or_a_recorded_gap(rocketmq, topic) -> None:
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


@pytest.fixture
def restarting(rocketmq, topic) -> Iterator[None]:
    """Both brokers are away, and name servers have forgotten them; the topic was read before."""
    topic.produce(20)
    topic.run("first")
    topic.produce(20)
    for broker in rocketmq.broker_names:
        rocketmq.kill_broker(broker)
    yield
    for broker in rocketmq.broker_names:
        rocketmq.start_broker(broker)
    assert topic.run("later").total == 20
    topic.check()


@pytest.mark.usefixtures("restarting")
def test_a_topic_whose_brokers_all_restart_is_awaited(topic) -> None:
    with pytest.raises(WindowNotReady, match="no broker of topic 'orders' is registered now"):
        topic.run("later")


def test_a_topic_that_nobody_knows_is_an_error_where_a_group_begins(topic) -> None:
    topic.topic = "oders"
    with pytest.raises(errors.UnknownTopic):
        topic.run()
    now = datetime.now(UTC)
    with pytest.raises(errors.UnknownTopic):
        topic.run(between=(now - timedelta(hours=1), now))


def test_a_window_that_was_planned_waits_for_brokers_that_restart(rocketmq, topic) -> None:
    topic.produce(20)
    words = (rocketmq.name_server, "orders", str(topic.root), "first", PLANNED)
    child = CONTEXT.Process(target=run_window, args=words)
    child.start()
    child.join(CHILD_TIMEOUT)
    assert child.exitcode == -signal.SIGKILL
    for broker in rocketmq.broker_names:
        rocketmq.kill_broker(broker)
    with pytest.raises(WindowNotReady, match="registered"):
        topic.run("first")
    for broker in rocketmq.broker_names:
        rocketmq.start_broker(broker)
    assert topic.run("first").total == 20


def test_a_window_of_time_beside_another_waits_for_brokers_that_restart(
    rocketmq, topic, hours
) -> None:
    topic.run(between=(hours[0], hours[1]))
    for broker in rocketmq.broker_names:
        rocketmq.kill_broker(broker)
    with pytest.raises(WindowNotReady, match="registered"):
        topic.run(between=(hours[1], hours[2]))


def test_a_range_whose_brokers_restart_is_tried_again(rocketmq) -> None:
    for broker in rocketmq.broker_names:
        rocketmq.kill_broker(broker)
    queue = SPACE.partition("orders", "broker-a:0")
    with (
        QueueReader(rocketmq.settings, "g") as reader,
        pytest.raises(errors.ConnectError, match="registered now") as caught,
    ):
        list(reader.read(SPACE.range(queue, 0, 1)))
    assert caught.value.retriable
    assert not caught.value.fatal


def test_a_topic_that_was_made_anew_is_another_log(rocketmq, topic) -> None:
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
    words = (rocketmq.name_server, "orders", str(topic.root), "second", point)
    child = CONTEXT.Process(target=run_window, args=words)
    child.start()
    child.join(CHILD_TIMEOUT)
    assert child.exitcode == -signal.SIGKILL
    topic.run("second")
    topic.check()
    assert len(list(published_windows(topic.root / "lake"))) == 2


def test_what_a_user_may_say_is_checked_and_secrets_are_not_shown() -> None:
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
