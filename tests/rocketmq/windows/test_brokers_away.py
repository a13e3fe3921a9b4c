"""Windows of a topic whose brokers are away for a while, in part or all of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from rocketmq_client import Admin, Metadata, PullConsumer, Queue, errors
from tests.rocketmq.windows.child import GROUP
from tests.rocketmq.windows.topics import ALL
from tubemq_provider.sources.rocketmq.reading import QueueReader
from tubemq_provider.sources.rocketmq.space import SPACE
from tubemq_provider.windows.errors import WindowNotReady

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def restarting(rocketmq, topic) -> Iterator[None]:
    """Stop both brokers, and remove them from name servers; the topic was read before."""
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


@pytest.fixture
def unreachable(rocketmq, topic) -> tuple[datetime, datetime]:
    """Keep `broker-b` in the route without accepting connections, as after a crash of its host.
    Return the instants before and after the records sent earlier."""
    start = datetime.now(UTC)
    topic.produce(20)
    end = datetime.now(UTC)
    topic.run()
    topic.produce(20)
    rocketmq._thread.wait(lambda: rocketmq._close("broker-b"))
    return start, end


@pytest.mark.usefixtures("unreachable")
def test_a_broker_that_does_not_answer_delays_only_its_queues(rocketmq, topic) -> None:
    result = topic.run()
    late = {key for key, _ in topic.receipts.keys() - topic.rows().keys()}
    rocketmq.start_broker("broker-b")

    assert result.total == 10
    assert late == set(result.absent) == {"broker-b:0", "broker-b:1"}
    topic.catch_up()
    topic.check()


@pytest.mark.parametrize("left", [True, False])
def test_progress_is_shown_at_the_brokers_that_answer(rocketmq, topic, *, left: bool) -> None:
    topic.produce(20)
    topic.run()
    topic.produce(20)
    if left:
        rocketmq.kill_broker("broker-a")
    else:
        rocketmq._thread.wait(lambda: rocketmq._close("broker-a"))
    result = topic.run()

    with PullConsumer(rocketmq.settings, group=GROUP) as consumer:
        ends = {key: consumer.committed(Queue.from_key("orders", key)) for key in ALL[2:]}
    assert result.total == 10
    assert sum(ends.values()) == 20
    (warning,) = [text for text in result.warnings if "group offsets" in text]
    assert "leave out broker-a:0 and 1 more" in warning


def test_a_window_of_time_waits_for_a_broker_that_does_not_answer(topic, unreachable) -> None:
    time.sleep(3.2)
    with pytest.raises(WindowNotReady, match=r"broker-b:0: ConnectError"):
        topic.run(between=unreachable, tags=("other",), policies={"on_other_scope": "start_anew"})


@pytest.mark.usefixtures("unreachable")
def test_a_group_that_begins_waits_for_a_broker_that_does_not_answer(topic) -> None:
    with pytest.raises(WindowNotReady, match="needs every broker"):
        topic.run(tags=("other",), policies={"on_other_scope": "start_anew"})


@pytest.mark.usefixtures("restarting")
def test_a_topic_whose_brokers_all_restart_is_awaited(topic) -> None:
    with pytest.raises(WindowNotReady, match="no broker of topic 'orders' is registered now"):
        topic.run("later")


def test_an_unknown_topic_is_an_error_where_a_group_begins(topic) -> None:
    topic.topic = "oders"
    with pytest.raises(errors.UnknownTopic):
        topic.run()
    now = datetime.now(UTC)
    with pytest.raises(errors.UnknownTopic):
        topic.run(between=(now - timedelta(hours=1), now))


def test_a_window_that_was_planned_waits_for_brokers_that_restart(rocketmq, topic) -> None:
    topic.produce(20)
    topic.run_killed("first")
    for broker in rocketmq.broker_names:
        rocketmq.kill_broker(broker)
    with pytest.raises(WindowNotReady, match="registered"):
        topic.run("first")
    for broker in rocketmq.broker_names:
        rocketmq.start_broker(broker)
    assert topic.run("first").total == 20


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


def test_a_queue_removed_from_its_topic_is_not_an_unavailable_broker(rocketmq, topic) -> None:
    topic.produce(4)
    queue = SPACE.partition("orders", "broker-a:1")
    with Admin(rocketmq.settings) as admin, QueueReader(rocketmq.settings, "g") as reader:
        admin.create_topic("orders", queues=1)
        with pytest.raises(errors.ConnectError, match=r"fewer queues .*queueId.1. is illegal"):
            list(reader.read(SPACE.range(queue, 0, 1)))
        admin.create_topic("orders", queues=2)
        assert sum(map(len, reader.read(SPACE.range(queue, 0, 1)))) == 1


def test_a_topic_that_is_made_write_only_is_waited_for(rocketmq, topic) -> None:
    """A planned or running window fails with a retriable error; the next one leaves the queues to
    later ones."""
    topic.produce(20)
    queue = SPACE.partition("orders", "broker-a:1")
    with Admin(rocketmq.settings) as admin, QueueReader(rocketmq.settings, "g") as reader:
        admin.create_topic("orders", queues=2, perm=2, broker="broker-a")
        with pytest.raises(errors.ConnectError, match="made write-only") as caught:
            list(reader.read(SPACE.range(queue, 0, 5)))
        result = topic.run()
        admin.create_topic("orders", queues=2, perm=6, broker="broker-a")

    assert caught.value.retriable
    assert (result.total, topic.run().total) == (10, 10)
    topic.check()


def test_a_topic_that_is_made_write_only_while_a_window_is_planned_is_away(
    rocketmq, topic, monkeypatch
) -> None:
    topic.produce(20)
    topic.run()
    rocketmq.hold_flush(broker="broker-a")  # so that records are pulled for the stable end
    topic.produce(20)
    looked = Metadata.topic

    def look(client, name):
        ends = looked(client, name)
        with Admin(rocketmq.settings) as admin:
            admin.create_topic("orders", queues=2, perm=2, broker="broker-a")
        return ends

    with monkeypatch.context() as patched:
        patched.setattr(Metadata, "topic", look)
        result = topic.run()
    assert result.total == 10
    assert set(result.absent) == {"broker-a:0", "broker-a:1"}
    assert "pulling message is forbidden" in result.absent["broker-a:0"]


def test_a_topic_of_which_no_queue_can_be_read_is_waited_for(rocketmq, topic) -> None:
    """One broker is write-only, the other one away; a boundary of time would have no queues."""
    start = datetime.now(UTC)
    topic.produce(20)
    end = datetime.now(UTC)
    time.sleep(3.2)
    with Admin(rocketmq.settings) as admin:
        admin.create_topic("orders", queues=2, perm=2, broker="broker-a")
        rocketmq.kill_broker("broker-b")
        for between in (None, (start, end)):
            with pytest.raises(errors.UnknownTopic, match="no queue that can be read now"):
                topic.run(between=between)
        rocketmq.start_broker("broker-b")
        admin.create_topic("orders", queues=2, perm=6, broker="broker-a")
        topic.run("first")
        topic.produce(20)
        admin.create_topic("orders", queues=2, perm=2)
        with pytest.raises(WindowNotReady, match="none that lets it be read"):
            topic.run("second")
        admin.create_topic("orders", queues=2, perm=6)
    assert topic.run("second").total == 20
    topic.check()


def test_a_window_of_time_next_to_another_waits_for_brokers_that_restart(rocketmq, topic) -> None:
    start = datetime.now(UTC)
    topic.produce(20)
    end = datetime.now(UTC)
    time.sleep(3.2)
    topic.run(between=(start, end))
    for broker in rocketmq.broker_names:
        rocketmq.kill_broker(broker)
    with pytest.raises(WindowNotReady, match="registered"):
        topic.run(between=(end, end + timedelta(milliseconds=1)))
