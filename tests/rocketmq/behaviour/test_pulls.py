"""Pulls for users: filters, long polls, ends, offsets and members of a group, topics."""

from __future__ import annotations

import threading
import time

import pytest

from rocketmq_client import OutgoingMessage, Queue, QueueRange, Subscription, errors
from rocketmq_client.embedded import EmbeddedRocketMQ
from tests.rocketmq.shells import Shell
from tests.rocketmq.sites import Site
from tools.devkit.patience import PATIENCE


def filled(shell: Shell, site: Site, tags: tuple[str | None, ...], **properties):
    topic = site.topic(1)
    with shell.Producer(site.settings) as producer:
        messages = [
            OutgoingMessage(b"%d" % n, tag, properties={"n": str(n), **properties})
            for n, tag in enumerate(tags)
        ]
        queue = producer.send_batch(topic, messages)[0].queue
    with shell.PullConsumer(site.settings, group="wait") as consumer:
        deadline = time.monotonic() + 60 * PATIENCE
        while consumer.pull(queue, len(tags) - 1).status != "found":
            assert time.monotonic() < deadline, "the index was not built"
    return queue


def test_tags_with_equal_hashes_are_distinguished(shell: Shell, site: Site) -> None:
    queue = filled(shell, site, ("Aa", "BB", None, "red", "Aa"))
    with shell.PullConsumer(site.settings, group="g") as consumer:
        one = consumer.pull(queue, 0, tags=["Aa"])
        two = consumer.pull(queue, 0, tags=["BB", "red"])
        none = consumer.pull(queue, 0, tags=["absent"])

    assert [message.offset for message in one.messages] == [0, 4]
    assert [message.offset for message in two.messages] == [1, 3]
    assert (none.status, none.messages) == ("filtered", ())
    assert none.next_offset == 5


def test_one_text_is_one_tag_and_one_key(shell: Shell, site: Site) -> None:
    queue = filled(shell, site, ("paid", "open", "paid"))
    with shell.PullConsumer(site.settings, group="g") as consumer:
        pulled = consumer.pull(queue, 0, tags="paid")
    assert [message.offset for message in pulled.messages] == [0, 2]
    for tag_filter in ("here", "broker"):
        with shell.RangeReader(
            site.settings, group="g", tags="paid", tag_filter=tag_filter
        ) as reader:
            read = [
                m.offset for batch in reader.read(QueueRange(queue, 0, 3)) for m in batch.messages()
            ]
        assert read == [0, 2]

    with shell.Producer(site.settings) as producer:
        producer.send(queue.topic, b"x", keys="4711", queue=queue)
        producer.send_batch(queue.topic, [OutgoingMessage(b"x", keys="4711")], queue=queue)
    with shell.RangeReader(site.settings, group="g") as reader:
        messages = [m for batch in reader.read(QueueRange(queue, 3, 5)) for m in batch.messages()]
    assert [message.keys for message in messages] == [("4711",), ("4711",)]


@pytest.mark.parametrize(
    "tags",
    ["*", ("paid", "*"), "paid || open", ("a||b",), "", ("a", ""), " paid", ("a\x02",), (1,)],
)
def test_a_text_that_cannot_be_a_tag_is_refused(shell: Shell, site: Site, tags) -> None:
    with pytest.raises(errors.ConfigError, match=r"no tag|no text"):
        shell.RangeReader(site.settings, group="g", tags=tags)
    topic = site.topic(1)
    with (
        shell.PullConsumer(site.settings, group="g") as consumer,
        pytest.raises(errors.ConfigError, match=r"no tag|no text"),
    ):
        consumer.pull(Queue("broker-a", topic, 0), 0, tags=tags)


@pytest.mark.parametrize("keys", ["a b", ("a", "b\tc"), ("",), ("a", "")])
def test_keys_that_would_come_back_as_others_are_refused(shell: Shell, site: Site, keys) -> None:
    topic = site.topic(1)
    with shell.Producer(site.settings) as producer:
        with pytest.raises(errors.ConfigError, match="without blanks"):
            producer.send(topic, b"x", keys=keys)
        assert producer.send(topic, b"x", keys=("a", "b")).offset == 0


def test_sql_expressions_filter_by_property(shell: Shell, site: Site) -> None:
    if not site.genuine:
        pytest.skip("the embedded server knows no SQL: it delivers everything")
    queue = filled(shell, site, ("a", "b", "a", "b"))
    with shell.PullConsumer(site.settings, group="g") as consumer:
        pulled = consumer.pull(queue, 0, sql="n > 1 AND TAGS = 'a'")
        with pytest.raises(errors.ConfigError, match="give one of them"):
            consumer.pull(queue, 0, sql="n > 1", tags=["a"])

    assert [message.offset for message in pulled.messages] == [2]


def test_a_long_poll_ends_with_the_first_record(shell: Shell, site: Site) -> None:
    topic = site.topic(1)
    with (
        shell.Producer(site.settings) as producer,
        shell.PullConsumer(site.settings, group="g") as consumer,
    ):
        (queue,) = consumer.queues(topic)
        later = threading.Timer(0.5, producer.send, (topic, b"late"))
        later.start()
        pulled = consumer.pull(queue, 0, wait_ms=15_000)
        later.join()

    assert [message.body for message in pulled.messages] == [b"late"]


def test_a_long_poll_without_records_ends(shell: Shell, site: Site) -> None:
    topic = site.topic(1)
    with shell.PullConsumer(site.settings, group="g") as consumer:
        (queue,) = consumer.queues(topic)
        pulled = consumer.pull(queue, 0, wait_ms=200)

    assert (pulled.status, pulled.messages, pulled.next_offset) == ("nothing", (), 0)


def test_ends_of_queues(shell: Shell, site: Site) -> None:
    queue = filled(shell, site, ("a", "b", "c"))
    with shell.Metadata(site.settings) as metadata:
        latest = metadata.ends(queue.topic, stable=False)[queue]
        deadline = time.monotonic() + 60 * PATIENCE
        while (stable := metadata.ends(queue.topic)[queue]).max_offset < 3:
            assert time.monotonic() < deadline, "three records were not flushed in 60 s"
        with pytest.raises(errors.ConfigError, match="broker-a:7 is not a queue"):
            metadata.ends(queue.topic, [type(queue)("broker-a", queue.topic, 7)])
        with pytest.raises(errors.UnknownTopic):
            metadata.topic("no-such-topic")

    assert (latest.min_offset, latest.max_offset, latest.latest_offset) == (0, 3, 3)
    assert (stable.min_offset, stable.max_offset, stable.stable) == (0, 3, True)


def test_offsets_at_an_instant(shell: Shell, site: Site) -> None:
    topic = site.topic(1)
    with shell.Producer(site.settings) as producer, shell.Metadata(site.settings) as metadata:
        queue = producer.send(topic, b"0").queue
        time.sleep(0.05)
        instant = time.time_ns() // 1_000_000
        time.sleep(0.05)
        for number in range(3):
            producer.send(topic, b"%d" % number)
        with pytest.raises(errors.TimeNotFinal, match="its clock is"):
            metadata.offset_at(topic, instant + 60_000)
        time.sleep(1.2)

        assert metadata.offset_at(topic, instant, grace_ms=0) == {queue: 1}
        assert metadata.offset_at(topic, instant - 60_000, grace_ms=0) == {queue: 0}
        assert metadata.search_offset(queue, 0) == 0
        assert abs(metadata.clock_ms(topic, "broker-a") - time.time() * 1000) < 5_000


def test_offsets_of_a_group(shell: Shell, site: Site) -> None:
    queue = filled(shell, site, ("a", "b"))
    group = f"group-{queue.topic}"
    with (
        shell.PullConsumer(site.settings, group=group) as consumer,
        shell.Metadata(site.settings) as metadata,
    ):
        before = consumer.committed(queue)
        consumer.commit(queue, 2)  # of a group that no broker knows yet

        assert before in {None, 0}
        assert consumer.committed(queue) == 2
        assert metadata.group_offsets(queue.topic, group) == {queue: 2}


def test_members_of_a_group(shell: Shell, site: Site) -> None:
    topic = site.topic(1)
    group = f"group-{topic}"
    subscriptions = [Subscription(topic, "a || b")]
    with (
        shell.PullConsumer(site.settings, group=group) as one,
        shell.PullConsumer(site.settings, group=group) as two,
    ):
        one.join(subscriptions)
        two.join(subscriptions)
        both = one.members(topic)
        two.leave(subscriptions)
        left = one.members(topic)

        assert both == sorted([one.client_id, two.client_id])
        assert left == [one.client_id]


def test_topics_come_and_go(shell: Shell, site: Site) -> None:
    topic = site.topic(2)
    with shell.Admin(site.settings) as admin, shell.Metadata(site.settings) as metadata:
        listed = admin.topics()
        admin.create_topic(topic, queues=5)
        wider = metadata.topic(topic).readable()
        admin.delete_topic(topic)

        assert topic in listed
        assert not any(name.startswith(("TBW102", "broker-", "RMQ_SYS")) for name in listed)
        assert [queue.queue_id for queue in wider] == [0, 1, 2, 3, 4]
        assert topic not in admin.topics()
        assert admin.broker_config("broker-a")["brokerName"] == "broker-a"
        with pytest.raises(errors.ConfigError, match="known: broker-a"):
            admin.runtime_info("broker-z")


def test_a_broker_that_comes_back_is_found_at_once(shell: Shell) -> None:
    """The cached route stays valid for half a minute."""
    queue = Queue("broker-b", "orders", 0)
    with (
        EmbeddedRocketMQ(topics={"orders": 1}, brokers=2) as mq,
        shell.PullConsumer(mq.settings, group="g") as consumer,
        shell.Producer(mq.settings) as producer,
    ):
        mq.kill_broker("broker-b")
        producer.send("orders", b"a")
        assert consumer.queues("orders") == [Queue("broker-a", "orders", 0)]
        with pytest.raises(errors.ConnectError, match="'broker-b' is not in the route"):
            consumer.pull(queue, 0)
        mq.start_broker("broker-b")
        producer.send_one_way("orders", OutgoingMessage(b"b"), queue=queue)
        assert [m.body for m in consumer.pull(queue, 0, wait_ms=5_000).messages] == [b"b"]
        consumer.commit(queue, 1)
        assert consumer.committed(queue) == 1


def test_a_queue_that_is_added_is_committed_at_once(shell: Shell) -> None:
    with (
        EmbeddedRocketMQ(topics={"orders": 1}) as mq,
        shell.PullConsumer(mq.settings, group="g") as consumer,
        shell.Admin(mq.settings) as admin,
    ):
        assert len(consumer.queues("orders")) == 1
        admin.create_topic("orders", queues=2)
        added = Queue("broker-a", "orders", 1)
        consumer.commit(added, 3)
        assert consumer.committed(added) == 3
        with pytest.raises(errors.ConfigError, match="broker-a:2 is not a queue"):
            consumer.commit(Queue("broker-a", "orders", 2), 3)
