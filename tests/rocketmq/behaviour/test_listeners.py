"""Listeners that a member calls with its batches: what succeeds, fails, and ends them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from rocketmq_client import ConsumerSettings, ReceivedBatch, errors
from rocketmq_client.embedded import EmbeddedRocketMQ
from tests.rocketmq.behaviour.test_groups import FIRST, send, until
from tests.rocketmq.shells import Shell
from tests.rocketmq.sites import Site
from tools.devkit.patience import PATIENCE


class Failure(Exception):
    pass


@contextmanager
def running(
    shell: Shell, consumer, listener: Callable[[ReceivedBatch], None], **options
) -> Iterator[list[BaseException]]:
    """Run a listener in the background until the block ends; yield the error that ended it."""
    ended: list[BaseException] = []

    async def on_loop(batch: ReceivedBatch) -> None:
        listener(batch)

    def work() -> None:
        try:
            consumer.run(on_loop if shell.name == "aio" else listener, **options)
        except BaseException as error:  # noqa: BLE001 - handed to the test
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield ended
    finally:
        consumer.close()
        thread.join(20 * PATIENCE)
        assert not thread.is_alive()


def test_a_failed_batch_is_sent_back_and_the_others_go_on(shell: Shell, site: Site) -> None:
    topic = site.topic(4)
    send(shell, site.settings, topic, range(20))
    seen: list[tuple[int, int]] = []

    def listener(batch: ReceivedBatch) -> None:
        [message] = batch.messages
        seen.append((int(message.body), message.reconsume_times))
        if seen[-1] == (7, 0):
            raise Failure

    one = replace(FIRST, batch_records=1)
    with shell.Consumer(site.settings, topic, {topic: ()}, consumer=one) as consumer:
        with running(shell, consumer, listener, delay_level=1) as ended:
            until(lambda: len(seen) == 21)
        assert ended == []
        assert (consumer.stats.failed_batches, consumer.stats.sent_back) == (1, 1)
    with shell.Metadata(site.settings) as metadata:
        assert sum(metadata.group_offsets(topic, topic).values()) == 20
    assert sorted(seen) == sorted([*((number, 0) for number in range(20)), (7, 1)])


def test_a_queue_in_order_waits_for_its_failed_batch(shell: Shell) -> None:
    ordered = ConsumerSettings(
        consume_from="first", ordered=True, batch_records=1, retry_pause_ms=300
    )
    seen: list[int] = []

    def listener(batch: ReceivedBatch) -> None:
        seen.append(int(batch.messages[0].body))
        if seen.count(3) in {1, 2} and seen[-1] == 3:
            raise Failure

    with EmbeddedRocketMQ(topics={"orders": 1}) as mq:
        send(shell, mq.settings, "orders", range(6))
        with (
            shell.Consumer(mq.settings, "g", {"orders": ()}, consumer=ordered) as consumer,
            running(shell, consumer, listener),
        ):
            until(lambda: len(seen) == 8)
        assert seen == [0, 1, 2, 3, 3, 3, 4, 5]
        assert (consumer.stats.failed_batches, consumer.stats.sent_back) == (2, 0)


def test_the_error_that_ends_a_membership_ends_its_listeners(shell: Shell) -> None:
    with EmbeddedRocketMQ(topics={"orders": 1}) as mq:
        send(shell, mq.settings, "orders", range(4))
        with shell.PullConsumer(mq.settings, group="g") as setter:
            [queue] = setter.queues("orders")
            setter.commit(queue, 1)
        mq.remove_until(queue, 3)
        with shell.Consumer(mq.settings, "g", {"orders": ()}) as consumer:
            with running(shell, consumer, lambda batch: None) as ended:
                until(lambda: ended)
            with pytest.raises(errors.DataLoss):
                raise ended[0]
