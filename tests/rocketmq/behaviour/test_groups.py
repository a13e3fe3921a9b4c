"""Members of a group: shares of queues, offsets, filters, limits, and what happens when members or
brokers come and go."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from rocketmq_client import (
    ConsumerSettings,
    Metadata,
    OutgoingMessage,
    Queue,
    Subscription,
    allocate_fixed,
    errors,
)
from rocketmq_client._wire.bodies import lock_body, parse_locked
from rocketmq_client._wire.commands import Command
from rocketmq_client.embedded import EmbeddedRocketMQ
from rocketmq_client.local_offsets import LocalOffsets
from tests.rocketmq.shells import Shell
from tests.rocketmq.sites import Site
from tests.snode.raw import Raw
from tools.devkit.patience import PATIENCE

FIRST = ConsumerSettings(consume_from="first", commit_ms=100)


def until(true: Callable[[], object], patience_s: float = 30) -> None:
    deadline = time.monotonic() + patience_s * PATIENCE
    while not true():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)


def send(shell: Shell, settings, topic: str, bodies, **options) -> None:
    with shell.Producer(settings) as producer:
        for body in bodies:
            producer.send(topic, b"%d" % body, **options)


def own(consumer) -> list[Queue]:
    """Queues of topics, without those of records that were sent back."""
    return [queue for queue in consumer.assignment if not queue.topic.startswith("%RETRY%")]


def read(consumer, count: int, patience_s: float = 30) -> list[int]:
    """Confirm batches until `count` records have come; return their numbers."""
    bodies: list[int] = []
    deadline = time.monotonic() + patience_s * PATIENCE
    while len(bodies) < count:
        assert time.monotonic() < deadline, f"{len(bodies)} of {count} records came"
        batch = consumer.receive(200)
        if batch is not None:
            bodies += [int(message.body) for message in batch.messages]
            consumer.confirm(batch)
    return bodies


def test_a_group_goes_on_where_its_last_member_stopped(shell: Shell, site: Site) -> None:
    topic = site.topic(4)
    send(shell, site.settings, topic, range(20))
    with shell.Consumer(site.settings, topic, {topic: ()}, consumer=FIRST) as one:
        before = read(one, 20)
        left_open = one.receive(100)
    send(shell, site.settings, topic, range(20, 30))
    with (
        shell.Consumer(site.settings, topic, {topic: ()}, consumer=FIRST) as two,
        shell.Metadata(site.settings) as metadata,
    ):
        after = read(two, 10)
        two.commit()
        committed = metadata.group_offsets(topic, topic)

    assert sorted(before) == list(range(20))
    assert left_open is None
    assert sorted(after) == list(range(20, 30))
    assert sum(committed.values()) == 30
    assert two.stats.records == 10


def test_records_come_in_the_order_of_their_queue_and_one_batch_at_a_time(
    shell: Shell, site: Site
) -> None:
    topic = site.topic(1)
    send(shell, site.settings, topic, range(10))
    settings = ConsumerSettings(consume_from="first", batch_records=4)
    with shell.Consumer(site.settings, topic, {topic: ()}, consumer=settings) as consumer:
        until(lambda: consumer.assignment)
        seen = [[int(m.body) for m in batch.messages] for batch in consumer.batches(2_000)]
        assert [number for batch in seen for number in batch] == list(range(10))
        assert max(map(len, seen)) == 4
        send(shell, site.settings, topic, range(10, 20))
        first = consumer.receive(5_000)
        assert consumer.receive(300) is None, "the queue has an open batch"
        assert consumer.confirm(first) == first.next_offset
        with pytest.raises(errors.StaleBatch, match="confirmed or rejected before"):
            consumer.confirm(first)


def test_members_divide_the_queues_as_they_come_and_go(shell: Shell, site: Site) -> None:
    topic = site.topic(6)
    with shell.Consumer(site.settings, topic, {topic: ()}, consumer=FIRST) as one:
        until(lambda: len(own(one)) == 6)
        with shell.Consumer(site.settings, topic, {topic: ()}, consumer=FIRST) as two:
            until(lambda: (len(own(one)), len(own(two))) == (3, 3))
            assert not set(own(one)) & set(own(two))
            send(shell, site.settings, topic, range(60))
            mine, others = read(one, 30), read(two, 30)
            with shell.PullConsumer(site.settings, group=topic) as looker:
                assert looker.members(topic) == sorted([one.client_id, two.client_id])
        started = time.monotonic()
        until(lambda: len(own(one)) == 6)
        took = time.monotonic() - started
        assert one.receive(500) is None, "what the other member confirmed does not come again"

    assert sorted(mine + others) == list(range(60))
    assert took < 2 * PATIENCE


def test_a_batch_of_a_queue_that_was_taken_away_comes_to_its_next_member(
    shell: Shell, site: Site
) -> None:
    topic = site.topic(2)
    queues = [Queue("broker-a", topic, number) for number in range(2)]
    with shell.Producer(site.settings) as producer:
        for queue in queues:
            producer.send(topic, b"%d" % queue.queue_id, queue=queue)
    with shell.Consumer(site.settings, topic, {topic: ()}, consumer=FIRST) as one:
        open_batches = [one.receive(20_000), one.receive(20_000)]
        with shell.Consumer(site.settings, topic, {topic: ()}, consumer=FIRST) as two:
            until(lambda: (len(own(one)), len(own(two))) == (1, 1))
            (taken,) = own(two)
            [stale] = [batch for batch in open_batches if batch.queue == taken]
            [kept] = [batch for batch in open_batches if batch.queue != taken]
            with pytest.raises(errors.StaleBatch):
                one.confirm(stale)
            assert one.confirm(kept) == 1
            assert read(two, 1) == [taken.queue_id]


def test_a_record_that_was_sent_back_comes_again_and_then_is_a_dead_letter(
    shell: Shell, site: Site
) -> None:
    topic = site.topic(1)
    send(shell, site.settings, topic, range(3))
    settings = replace(FIRST, max_retries=1)
    with (
        shell.Consumer(site.settings, topic, {topic: ()}, consumer=settings) as consumer,
        shell.Metadata(site.settings) as metadata,
    ):
        batch = receive_all(consumer, 3)
        with pytest.raises(errors.ConfigError, match="delay_level is 19"):
            consumer.send_back(batch, delay_level=19)
        stranger = batch.messages[0]._replace(offset=99)
        with pytest.raises(errors.ConfigError, match="sent back are not in the batch"):
            consumer.send_back(batch, [stranger])
        assert consumer.send_back(batch, batch.messages[1:2], delay_level=1) == 3
        with pytest.raises(errors.StaleBatch):
            consumer.send_back(batch)

        again = consumer.receive(30_000 * PATIENCE)
        [message] = again.messages
        assert again.queue.topic == f"%RETRY%{topic}"
        assert (int(message.body), message.reconsume_times) == (1, 1)
        assert message.properties["RETRY_TOPIC"] == topic
        assert message.message_id == batch.messages[1].message_id

        consumer.send_back(again, delay_level=1)
        until(lambda: dead_letters(metadata, topic) == 1)
        assert consumer.receive(2_000) is None
        assert (consumer.stats.sent_back, consumer.stats.stale_batches) == (2, 0)


def receive_all(consumer, count: int):
    """Return one batch of `count` records; put smaller ones back until all have been pulled."""
    deadline = time.monotonic() + 30 * PATIENCE
    while time.monotonic() < deadline:
        batch = consumer.receive(1_000)
        if batch is not None and len(batch.messages) == count:
            return batch
        if batch is not None:
            consumer.reject(batch)
    pytest.fail(f"no batch of {count} records came")


def dead_letters(metadata, group: str) -> int:
    try:
        ends = metadata.ends(f"%DLQ%{group}", stable=False)
    except errors.UnknownTopic:
        return 0
    return sum(end.latest_offset for end in ends.values())


def test_a_loop_may_send_its_batch_back_itself(shell: Shell, site: Site) -> None:
    topic = site.topic(1)
    send(shell, site.settings, topic, range(2))
    settings = replace(FIRST, batch_records=1)
    seen: list[tuple[int, int]] = []
    with shell.Consumer(site.settings, topic, {topic: ()}, consumer=settings) as consumer:
        for batch in consumer.batches(30_000):
            [message] = batch.messages
            seen.append((int(message.body), message.reconsume_times))
            if seen[-1] == (0, 0):
                consumer.send_back(batch, delay_level=1)
            if len(seen) == 3:
                break
        assert consumer.stats.stale_batches == 0
    assert sorted(seen) == [(0, 0), (0, 1), (1, 0)]


def test_where_a_queue_begins_without_a_committed_offset(shell: Shell, site: Site) -> None:
    topic = site.topic(1)
    send(shell, site.settings, topic, range(3))
    time.sleep(1.1)
    instant = time.time_ns() // 1_000_000
    time.sleep(0.1)
    send(shell, site.settings, topic, range(3, 6))
    time.sleep(1)  # 5.x has built its index
    start = ConsumerSettings(consume_from=instant)
    with shell.Consumer(site.settings, f"{topic}-time", {topic: ()}, consumer=start) as by_time:
        # A 4.x broker reports offset 0 for a queue that still has its first record.
        expected = list(range(6)) if site.name == "4.9.7" else [3, 4, 5]
        assert read(by_time, len(expected)) == expected
    with shell.Consumer(site.settings, f"{topic}-first", {topic: ()}, consumer=FIRST) as first:
        assert read(first, 6) == list(range(6))
    if not site.genuine:
        with shell.Consumer(site.settings, f"{topic}-last", {topic: ()}) as last:
            until(lambda: last.stats.commits)  # lest a successor begin later
            send(shell, site.settings, topic, [6])
            assert read(last, 1) == [6]


def test_tags_with_equal_hashes_are_distinguished(shell: Shell, site: Site) -> None:
    topic = site.topic(1)
    with shell.Producer(site.settings) as producer:
        producer.send_batch(
            topic, [OutgoingMessage(b"%d" % n, tag) for n, tag in enumerate(["Aa", "BB"] * 5)]
        )
    with shell.Consumer(site.settings, topic, {topic: "Aa"}, consumer=FIRST) as consumer:
        assert read(consumer, 5) == [0, 2, 4, 6, 8]
        until(lambda: not consumer.stats.failed_pulls and consumer.stats.commits)
    with shell.Metadata(site.settings) as metadata:
        assert metadata.group_offsets(topic, topic) == {Queue("broker-a", topic, 0): 10}


def test_a_rejected_batch_and_a_loop_that_is_left_come_again(shell: Shell, site: Site) -> None:
    topic = site.topic(1)
    send(shell, site.settings, topic, range(3))
    with shell.Consumer(site.settings, topic, {topic: ()}, consumer=FIRST) as consumer:
        until(lambda: consumer.stats.pulls > 1)
        batch = consumer.receive(20_000)
        consumer.reject(batch)
        loop = consumer.batches(20_000)
        again = next(loop)
        loop.close()
        assert again.messages[0].offset == batch.messages[0].offset == 0
        assert read(consumer, 3) == [0, 1, 2]


def test_unconfirmed_records_limit_what_is_pulled(shell: Shell, site: Site) -> None:
    topic = site.topic(1)
    send(shell, site.settings, topic, range(40))
    few = ConsumerSettings(consume_from="first", queue_records=5, pull_records=5, batch_records=100)
    small = ConsumerSettings(consume_from="first", queue_bytes=1, pull_records=5, batch_records=100)
    for name, settings in (("count", few), ("bytes", small)):
        group = f"{topic}-{name}"
        with shell.Consumer(site.settings, group, {topic: ()}, consumer=settings) as consumer:
            until(lambda: own(consumer))
            time.sleep(1)
            batch = consumer.receive(20_000)
            assert len(batch.messages) == 5, name
            assert consumer.receive(300) is None
            consumer.confirm(batch)
            assert read(consumer, 35) == list(range(5, 40))


def test_a_paused_queue_is_held_and_gives_nothing(shell: Shell, site: Site) -> None:
    topic = site.topic(1)
    with shell.Consumer(site.settings, topic, {topic: ()}, consumer=FIRST) as consumer:
        until(lambda: own(consumer))
        consumer.pause(own(consumer))
        send(shell, site.settings, topic, [1])
        assert consumer.receive(500) is None
        assert len(own(consumer)) == 1
        consumer.resume()
        assert read(consumer, 1) == [1]


def test_records_that_were_sent_back_are_read_too(shell: Shell, site: Site) -> None:
    """Java members of a group leave a share of these queues to every member."""
    topic = site.topic(1)
    with shell.Consumer(site.settings, topic, {topic: "red"}, consumer=FIRST) as consumer:
        until(lambda: len(consumer.assignment) == 2)
        send(shell, site.settings, f"%RETRY%{topic}", [7])
        batch = consumer.receive(20_000)
        assert batch.queue.topic == f"%RETRY%{topic}"
        assert [message.body for message in batch.messages] == [b"7"]


@pytest.mark.parametrize("allocation", ["circle", "hash", "fixed"])
def test_strategies(shell: Shell, allocation: str) -> None:
    queues = [Queue("broker-a", "orders", number) for number in range(8)]
    with EmbeddedRocketMQ(topics={"orders": 8}) as mq:
        ways = [
            allocate_fixed(part) if allocation == "fixed" else allocation
            for part in (queues[:5], queues[5:])
        ]
        settings = [ConsumerSettings(allocation=way) for way in ways]
        with (
            shell.Consumer(mq.settings, "g", {"orders": ()}, consumer=settings[0]) as one,
            shell.Consumer(mq.settings, "g", {"orders": ()}, consumer=settings[1]) as two,
        ):
            # By hash one of two may have all: the names of members are random.
            shared = allocation == "hash"
            until(lambda: (own(two) or shared) and sorted(own(one) + own(two)) == queues)
            if allocation == "fixed":
                assert (own(one), own(two)) == (queues[:5], queues[5:])
            if allocation == "circle":
                assert {tuple(own(one)), tuple(own(two))} == {
                    tuple(queues[::2]),
                    tuple(queues[1::2]),
                }


def test_a_member_whose_connection_breaks_is_replaced_and_comes_back(shell: Shell) -> None:
    soon = replace(FIRST, rebalance_ms=300)
    with EmbeddedRocketMQ(topics={"orders": 4}, brokers=2) as mq:
        settings = replace(mq.settings, route_period_ms=200)
        consumer = shell.Consumer(settings, "g", {"orders": ()}, consumer=soon)
        with consumer:
            _lose_and_find_a_broker(shell, mq, consumer)


def _lose_and_find_a_broker(shell: Shell, mq: EmbeddedRocketMQ, consumer) -> None:
    until(lambda: len(own(consumer)) == 8)
    send(shell, mq.settings, "orders", range(40))
    read(consumer, 40)
    consumer.commit()
    mq.kill_broker("broker-b")
    until(lambda: consumer.stats.failed_pulls)
    send(shell, mq.settings, "orders", range(40, 44))
    assert sorted(read(consumer, 4)) == [40, 41, 42, 43]
    mq.start_broker("broker-b")
    until(lambda: len(own(consumer)) == 8, 60)
    with shell.Producer(mq.settings) as producer:
        producer.send("orders", b"44", queue=Queue("broker-b", "orders", 0))
    assert read(consumer, 1) == [44]


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_records_that_retention_removed_first_are_never_passed_over_in_silence(
    shell: Shell, policy
) -> None:
    queue = Queue("broker-a", "orders", 0)
    with EmbeddedRocketMQ(topics={"orders": 1}) as mq:
        send(shell, mq.settings, "orders", range(10))
        with shell.PullConsumer(mq.settings, group="g") as setter:
            setter.commit(queue, 2)
        mq.remove_until(queue, 6)
        settings = ConsumerSettings(gap_policy=policy)
        with shell.Consumer(mq.settings, "g", {"orders": ()}, consumer=settings) as consumer:
            if policy == "skip":
                assert read(consumer, 4) == [6, 7, 8, 9]
                assert consumer.stats.lost == [(queue, 2, 6)]
            else:
                with pytest.raises(errors.DataLoss, match=r"\[2, 6\) .* gap_policy='skip'"):
                    consumer.receive(20_000)


def test_what_cannot_be_started_is_refused_at_once(shell: Shell) -> None:
    with EmbeddedRocketMQ(topics={"orders": 1}) as mq:
        with pytest.raises(errors.UnknownTopic):
            shell.Consumer(mq.settings, "g", {"absent": ()}).__enter__()
        with pytest.raises(errors.ConfigError, match=r"group is empty[\s\S]*topics: give"):
            shell.Consumer(mq.settings, " ", {})
        with pytest.raises(errors.ConfigError, match="give none to read everything"):
            shell.Consumer(mq.settings, "g", {"orders": "*"})
        consumer = shell.Consumer(mq.settings, "g", {"orders": ()})
        with consumer, pytest.raises(errors.ConfigError, match="started once"):
            consumer.start()
        with pytest.raises(errors.ClosedError):
            consumer.receive(10)
        consumer.close()


def test_all_problems_of_settings_are_listed() -> None:
    with pytest.raises(errors.ConfigError) as caught:
        ConsumerSettings(
            consume_from="middle",  # type: ignore[arg-type]
            allocation="best",  # type: ignore[arg-type]
            pull_records=0,
            gap_policy="hide",  # type: ignore[arg-type]
        )
    for name in ("consume_from", "allocation", "pull_records", "gap_policy"):
        assert name in str(caught.value)


ORDERED = replace(FIRST, ordered=True, batch_records=5, rebalance_ms=500)


def numbers(batch) -> list[int]:
    return [int(message.body) for message in batch.messages]


def test_an_ordered_queue_stays_until_its_open_batch_is_settled(shell: Shell, site: Site) -> None:
    topic = site.topic(2)
    send(shell, site.settings, topic, range(40))
    with shell.Consumer(site.settings, topic, {topic: ()}, consumer=ORDERED) as one:
        until(lambda: len(own(one)) == 2)
        opened = [one.receive(5_000), one.receive(5_000)]
        assert one.receive(200) is None, "both queues have an open batch"
        with shell.Consumer(site.settings, topic, {topic: ()}, consumer=ORDERED) as two:
            assert two.receive(2_000) is None, "both queues are being handled"
            positions = {batch.queue: one.confirm(batch) for batch in opened}
            until(lambda: len(own(two)) == 1)
            batch = two.receive(15_000)
            assert batch.messages[0].offset == positions[batch.queue]
            two.confirm(batch)
            assert len(read(two, 10)) >= 10
            assert len(read(one, 15)) == 15
        until(lambda: len(own(one)) == 2)
    assert (one.stats.lost_locks, two.stats.lost_locks) == (0, 0)


def test_a_queue_that_another_member_has_locked_is_not_read(shell: Shell, site: Site) -> None:
    topic = site.topic(1)
    send(shell, site.settings, topic, range(5))
    with shell.PullConsumer(site.settings, group=topic) as stranger:
        (queue,) = stranger.queues(topic)
        with Raw(stranger_address(site, topic)) as broker:
            body = lock_body(topic, "another-member", [queue])
            locked = broker.ask(Command(41, 1, {"bname": queue.broker}, body))
            assert parse_locked(locked.body) == {queue}
            with shell.Consumer(site.settings, topic, {topic: ()}, consumer=ORDERED) as one:
                assert one.receive(1_500) is None
                assert own(one) == []
                assert broker.ask(Command(42, 2, {"bname": queue.broker}, body)).code == 0
                assert numbers(one.receive(15_000)) == list(range(5))


def stranger_address(site: Site, topic: str):
    """Return the address of the broker that has the topic."""
    with Metadata(site.settings) as metadata:
        (address,) = metadata.topic(topic).masters().values()
    return address


def test_every_broadcasting_member_gets_every_record(shell: Shell, site: Site, tmp_path) -> None:
    topic = site.topic(3)
    send(shell, site.settings, topic, range(12))

    def member(name: str):
        settings = replace(FIRST, mode="broadcasting", offsets_file=tmp_path / name)
        return shell.Consumer(site.settings, topic, {topic: ()}, consumer=settings)

    with member("one") as one, member("two") as two:
        assert sorted(read(one, 12)) == sorted(read(two, 12)) == list(range(12))
        assert len(one.assignment) == len(two.assignment) == 3
        with (
            pytest.raises(errors.ConfigError, match="another member uses it"),
            member("one"),
        ):
            pass
        send(shell, site.settings, topic, [12])
        left_open = one.receive(10_000)
        assert numbers(left_open) == [12]
        with pytest.raises(errors.ConfigError, match="broadcasting"):
            one.send_back(left_open)
    send(shell, site.settings, topic, [13])
    with member("one") as again:
        assert sorted(read(again, 2)) == [12, 13], "what was confirmed is not repeated"


def test_a_handler_gets_every_batch_and_its_failures_lose_none(shell: Shell, site: Site) -> None:
    topic = site.topic(2)
    send(shell, site.settings, topic, range(20))
    seen: list[int] = []

    with shell.Consumer(site.settings, topic, {topic: ()}, consumer=FIRST) as consumer:

        def handle(batch) -> None:
            fails = 7 in numbers(batch) and 7 not in seen
            seen.extend(numbers(batch))
            if fails:
                raise ValueError("not now")
            if set(seen) >= set(range(20)) and seen.count(7) == 2:
                threading.Thread(target=consumer.stop).start()

        consumer.run(handle, workers=2, on_error="retry")
        assert consumer.stats.failed_batches == 1
        with pytest.raises(errors.ConfigError, match="workers is 0"):
            consumer.run(handle, workers=0)

    with shell.Consumer(site.settings, topic, {topic: ()}, consumer=FIRST) as consumer:
        send(shell, site.settings, topic, [20])

        def refuse(_) -> None:
            raise ValueError("never")

        with pytest.raises(ValueError, match="never"):
            consumer.run(refuse)
        assert read(consumer, 1) == [20], "what failed was rejected"


def test_an_ordered_member_repeats_what_failed_before_anything_else(
    shell: Shell, site: Site
) -> None:
    topic = site.topic(1)
    send(shell, site.settings, topic, range(10))
    seen: list[list[int]] = []
    settings = replace(ORDERED, batch_records=4)
    with shell.Consumer(site.settings, topic, {topic: ()}, consumer=settings) as consumer:

        def handle(batch) -> None:
            seen.append(numbers(batch))
            if len(seen) == 2:
                raise ValueError("not now")
            if 9 in seen[-1]:
                threading.Thread(target=consumer.stop).start()

        with pytest.raises(errors.ConfigError, match="later records of the queue"):
            consumer.run(handle, on_error="send_back")
        consumer.run(handle, workers=3, on_error="retry")
    repeated = seen[1]
    assert seen[2] == repeated
    assert [number for batch in [seen[0], *seen[2:]] for number in batch] == list(range(10))


def test_a_record_whose_handler_fails_comes_back_from_the_broker(shell: Shell, site: Site) -> None:
    topic = site.topic(1)
    send(shell, site.settings, topic, [1])
    seen: list[int] = []
    settings = replace(FIRST, max_retries=3)
    with shell.Consumer(site.settings, topic, {topic: ()}, consumer=settings) as consumer:

        def handle(batch) -> None:
            seen.extend(message.reconsume_times for message in batch.messages)
            if len(seen) == 1:
                raise ValueError("not now")
            threading.Thread(target=consumer.stop).start()

        consumer.run(handle, on_error="send_back")
        assert consumer.stats.sent_back == 1
    assert seen == [0, 1]


def test_closing_lets_handlers_finish_their_batch(shell: Shell) -> None:
    """So that no other member gets records of an ordered queue while they are handled."""
    began, seen = threading.Event(), []
    ordered = ConsumerSettings(consume_from="first", ordered=True)

    def handle(batch) -> object:
        began.set()
        if shell.name == "sync":
            time.sleep(0.5)
            return seen.append(batch.next_offset)
        return later(batch)

    async def later(batch) -> None:
        await asyncio.sleep(0.5)
        seen.append(batch.next_offset)

    with EmbeddedRocketMQ(topics={"orders": 1}) as mq:
        send(shell, mq.settings, "orders", [1])
        with shell.Consumer(mq.settings, "g", {"orders": ()}, consumer=ordered) as consumer:
            running = threading.Thread(target=consumer.run, args=(handle,))
            running.start()
            assert began.wait(30)
            consumer.close()
            assert seen == [1]
            assert mq.do(lambda broker: broker.groups.offsets["g", "orders", 0]) == 1
            running.join(10)


def test_a_file_of_positions_belongs_to_one_group(tmp_path) -> None:
    path = tmp_path / "positions"
    queue = Queue("broker-a", "orders", 1)
    mine = LocalOffsets(path, "lake")
    assert mine.load() == {}
    mine.save(lambda: {queue: 7})
    mine.close()
    assert loaded(path, "lake") == {queue: 7}
    with pytest.raises(errors.ConfigError, match="positions of group 'lake'"):
        loaded(path, "other")
    for text in (
        "{}",
        "no JSON",
        '{"group": "lake", "offsets": {"t": {"b:0": -1}}}',
        "[]",
        "",
        "[" * 100_000,
    ):
        path.write_text(text)
        with pytest.raises(errors.ConfigError, match="not a file of positions"):
            loaded(path, "lake")


def loaded(path: Path, group: str) -> dict[Queue, int]:
    with closing(LocalOffsets(path, group)) as offsets:
        return offsets.load()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"mode": "broadcasting", "ordered": True}, "ordered has no effect"),
        ({"offsets_file": "/x"}, "offsets_file has no effect"),
        ({"mode": "all"}, "mode is 'all'"),
    ],
)
def test_options_of_members_without_effect_are_refused(options, problem: str) -> None:
    with pytest.raises(errors.ConfigError, match=problem):
        ConsumerSettings(**options)


def test_an_sql_expression_filters_for_a_group(shell: Shell, site: Site) -> None:
    if not site.genuine:
        pytest.skip("the embedded server knows no SQL: it delivers everything")
    topic = site.topic(2)
    for number in range(6):
        send(shell, site.settings, topic, [number], properties={"n": str(number)})
    only = Subscription(topic, "n > 3", "SQL92")
    with shell.Consumer(site.settings, topic, {topic: only}, consumer=FIRST) as consumer:
        assert sorted(read(consumer, 2)) == [4, 5]
        assert consumer.receive(300) is None
    broken = Subscription(topic, "n >>> 3", "SQL92")
    consumer = shell.Consumer(site.settings, f"{topic}-broken", {topic: broken}, consumer=FIRST)
    with pytest.raises(errors.IllegalRequest):
        consumer.start()


def test_a_subscription_of_another_topic_is_refused(shell: Shell) -> None:
    with EmbeddedRocketMQ() as mq, pytest.raises(errors.ConfigError, match="is no subscription"):
        shell.Consumer(mq.settings, "g", {"orders": Subscription("others", "n > 1", "SQL92")})
