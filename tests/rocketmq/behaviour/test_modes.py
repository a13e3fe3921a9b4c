"""Members that consume in order under locks, and members that broadcast."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rocketmq_client import ConsumerSettings, Queue, errors
from rocketmq_client.embedded import EmbeddedRocketMQ
from rocketmq_client.embedded.groups import Groups
from tests.rocketmq.behaviour.test_groups import own, read, send, until
from tests.rocketmq.shells import Shell
from tests.rocketmq.sites import Site

ORDERED = ConsumerSettings(consume_from="first", commit_ms=100, lock_ms=200, ordered=True)


def test_a_locked_queue_moves_only_when_its_open_batch_is_settled(shell: Shell, site: Site) -> None:
    topic = site.topic(2)
    queues = [Queue("broker-a", topic, number) for number in range(2)]
    with shell.Producer(site.settings) as producer:
        for number in range(20):
            producer.send(topic, b"%d" % number, queue=queues[number % 2])
    few = replace(ORDERED, batch_records=3)
    with shell.Consumer(site.settings, topic, {topic: ()}, consumer=few) as one:
        open_batches = [one.receive(20_000), one.receive(20_000)]
        assert {batch.queue for batch in open_batches} == set(queues)
        with shell.Consumer(site.settings, topic, {topic: ()}, consumer=few) as two:
            assert two.receive(2_500) is None, "both queues are locked and have an open batch"
            assert not own(two)
            for batch in open_batches:
                one.confirm(batch)
            until(lambda: (len(own(one)), len(own(two))) == (1, 1), 10)
            (moved,) = own(two)
            [settled] = [batch for batch in open_batches if batch.queue == moved]
            after = settled.next_offset * 2 + moved.queue_id
            assert read(two, 10 - settled.next_offset) == list(range(after, 20, 2))
        until(lambda: len(own(one)) == 2, 10)
        assert one.stats.stale_batches == one.stats.lost_locks == two.stats.lost_locks == 0


def test_a_queue_whose_lock_is_lost_stops_and_its_position_is_not_committed(shell: Shell) -> None:
    with EmbeddedRocketMQ(topics={"orders": 1}) as mq:
        send(shell, mq.settings, "orders", range(3))
        queue = Queue("broker-a", "orders", 0)
        rare = replace(ORDERED, commit_ms=60_000)
        with (
            shell.Consumer(mq.settings, "g", {"orders": ()}, consumer=rare) as consumer,
            shell.Metadata(mq.settings) as metadata,
        ):
            batch = consumer.receive(20_000)
            mq.do(lambda broker: give_lock(broker.groups, queue, consumer.client_id, "other"))
            until(lambda: consumer.stats.lost_locks == 1)
            assert own(consumer) == []
            with pytest.raises(errors.StaleBatch):
                consumer.confirm(batch)
            assert metadata.group_offsets("orders", "g") in ({queue: None}, {queue: 0})
            mq.do(lambda broker: broker.groups.unlock("g", "other", [queue]))
            assert read(consumer, 3) == [0, 1, 2], "the next lock begins at the committed offset"


def give_lock(groups: Groups, queue: Queue, owner: str, other: str) -> None:
    groups.unlock("g", owner, [queue])
    groups.lock("g", other, [queue], time.monotonic())


def test_every_broadcasting_member_reads_everything_and_goes_on_from_its_file(
    shell: Shell, site: Site, tmp_path: Path
) -> None:
    topic = site.topic(3)
    send(shell, site.settings, topic, range(12))
    files = [str(tmp_path / "deep" / name) for name in ("one.json", "two.json")]
    settings = [
        ConsumerSettings(
            consume_from="first", commit_ms=100, mode="broadcasting", offsets_file=file
        )
        for file in files
    ]
    with (
        shell.Consumer(site.settings, topic, {topic: ()}, consumer=settings[0]) as one,
        shell.Consumer(site.settings, topic, {topic: ()}, consumer=settings[1]) as two,
    ):
        assert sorted(read(one, 12)) == sorted(read(two, 12)) == list(range(12))
        assert one.assignment == two.assignment == [Queue("broker-a", topic, n) for n in range(3)]
        with pytest.raises(errors.ConfigError, match="another consumer has it"):
            shell.Consumer(site.settings, topic, {topic: ()}, consumer=settings[0]).__enter__()
    send(shell, site.settings, topic, range(12, 15))
    with shell.Consumer(site.settings, topic, {topic: ()}, consumer=settings[0]) as again:
        assert sorted(read(again, 3)) == [12, 13, 14]
        batchless = again.receive(300)
    assert batchless is None
    document = json.loads(Path(files[0]).read_text())
    assert sum(document["offsets"][topic].values()) == 15
    assert sum(json.loads(Path(files[1]).read_text())["offsets"][topic].values()) == 12
    with shell.Metadata(site.settings) as metadata:
        committed = metadata.group_offsets(topic, topic)
    assert not any(committed.values()), "brokers keep no offsets of broadcasting members"


def test_a_broadcasting_member_refuses_what_it_cannot_do(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    settings = ConsumerSettings(consume_from="first", mode="broadcasting", offsets_file=str(path))
    with EmbeddedRocketMQ(topics={"orders": 1}) as mq:
        send(shell, mq.settings, "orders", [1])
        with shell.Consumer(mq.settings, "g", {"orders": ()}, consumer=settings) as consumer:
            batch = consumer.receive(20_000)
            with pytest.raises(errors.ConfigError, match="cannot send records back; reject"):
                consumer.send_back(batch)
        for content, problem in (("{", "not a file of offsets"), ("[]", "not a file of offsets")):
            path.write_text(content)
            with pytest.raises(errors.ConfigError, match=problem):
                shell.Consumer(mq.settings, "g", {"orders": ()}, consumer=settings).__enter__()
        path.write_text('{"version": 1, "group": "h", "offsets": {}}')
        with pytest.raises(errors.ConfigError, match="belongs to group 'h'"):
            shell.Consumer(mq.settings, "g", {"orders": ()}, consumer=settings).__enter__()


def test_modes_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(errors.ConfigError, match=r"set offsets_file[\s\S]*leave it out"):
        ConsumerSettings(mode="broadcasting", ordered=True)
    with pytest.raises(errors.ConfigError, match="offsets_file is for mode='broadcasting'"):
        ConsumerSettings(offsets_file="x")
    with pytest.raises(errors.ConfigError, match="mode is 'all'"):
        ConsumerSettings(mode="all")  # type: ignore[arg-type]
