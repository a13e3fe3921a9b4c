"""Transactions: readers see exactly what was committed, by any process and at any time.

`TRANSACTIONS=1000` makes the drill larger.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import nullcontext

import pytest

from rocketmq_client import ConsumerSettings, errors
from rocketmq_client.embedded import EmbeddedRocketMQ
from tests.rocketmq.behaviour.test_groups import read, until
from tests.rocketmq.shells import Shell
from tests.rocketmq.sites import Site

COUNT = int(os.environ.get("TRANSACTIONS", "30"))
FIRST = ConsumerSettings(consume_from="first")


def opened(shell: Shell, settings, group: str, topic: str, check: Callable[[int], str | None]):
    """Return a producer whose brokers ask `check` with the number in a record's body."""

    def answer(message):
        return check(int(message.body))

    async def answer_later(message):
        return answer(message)

    listener = answer_later if shell.name == "aio" else answer
    return shell.TransactionalProducer(settings, group, [topic], listener)


def soon(site: Site) -> None:
    """Let the broker ask soon; genuine ones were started so."""
    if isinstance(site.cluster, EmbeddedRocketMQ):
        site.cluster.do(lambda broker: broker.options.update(transactionCheckInterval="300"))


def test_exactly_what_was_committed_is_readable(shell: Shell, site: Site) -> None:
    soon(site)
    topic = site.topic(4)
    chosen = random.Random(32)
    fates = {n: chosen.choice(["commit", "rollback", "silent"]) for n in range(COUNT)}
    later = {n: chosen.choice(["commit", "rollback"]) for n in range(COUNT)}
    asked: set[int] = set()

    def check(number: int) -> str | None:
        if number not in asked:
            asked.add(number)
            return None if number % 5 == 0 and not site.genuine else later[number]
        return later[number]

    with opened(shell, site.settings, topic, topic, check) as producer:
        for number, fate in fates.items():
            half = producer.begin(topic, b"%d" % number, keys=str(number))
            if fate != "silent":
                getattr(producer, fate)(half)
        ends = {n: later[n] if fate == "silent" else fate for n, fate in fates.items()}
        committed = [n for n, end in ends.items() if end == "commit"]
        silent = {n for n, fate in fates.items() if fate == "silent"}
        with shell.Consumer(site.settings, topic, {topic: ()}, consumer=FIRST) as consumer:
            assert sorted(read(consumer, len(committed), 90)) == committed
            until(lambda: silent <= asked, 90)
            assert consumer.receive(1_000) is None
        assert asked == silent, "what was ended is not asked about"


def test_another_producer_of_the_group_answers_for_one_that_is_gone(
    shell: Shell, site: Site
) -> None:
    soon(site)
    topic = site.topic(1)
    with opened(shell, site.settings, topic, topic, lambda number: None) as gone:
        gone.begin(topic, b"1")
        gone.begin(topic, b"2")
    with (
        opened(shell, site.settings, topic, topic, lambda n: "commit" if n == 2 else "rollback"),
        shell.Consumer(site.settings, topic, {topic: ()}, consumer=FIRST) as consumer,
    ):
        assert read(consumer, 1, 90) == [2]
        assert consumer.receive(1_000) is None


def test_a_transaction_ends_once(shell: Shell) -> None:
    with EmbeddedRocketMQ(topics={"orders": 1, "others": 1}) as mq:
        with opened(shell, mq.settings, "g", "orders", lambda number: None) as producer:
            half = producer.begin("orders", b"1")
            producer.commit(half)
            for end in (producer.commit, producer.rollback):
                with pytest.raises(errors.ConfigError, match="is not open: commit"):
                    end(half)
            with pytest.raises(errors.ConfigError, match="'others' is not among orders"):
                producer.begin("others", b"1")
            with pytest.raises(errors.ConfigError, match="has a body, and no delay"):
                producer.begin("orders", b"1", properties={"DELAY": "1"})
        with shell.Metadata(mq.settings) as metadata:
            [end] = metadata.ends("orders").values()
            assert end.latest_offset == 1


@pytest.mark.soak
def test_a_broker_that_did_not_hear_the_end_gets_it_when_it_asks(shell: Shell) -> None:
    def never(number: int) -> str:
        pytest.fail("the producer knows the answer")

    with EmbeddedRocketMQ(topics={"orders": 1}) as mq:
        mq.do(lambda broker: broker.options.update(transactionCheckInterval="300"))
        with opened(shell, mq.settings, "g", "orders", never) as producer:
            half = producer.begin("orders", b"1")
            mq.kill_broker()
            with pytest.raises(errors.NetworkError):
                producer.commit(half)
            mq.start_broker()
            with shell.Consumer(mq.settings, "g", {"orders": ()}, consumer=FIRST) as consumer:
                assert read(consumer, 1, 60) == [1]


@pytest.mark.parametrize("answers", ["the same producer", "another"])
def test_a_commit_that_the_broker_forgot_in_a_crash_is_not_stored_twice(
    shell: Shell, answers: str
) -> None:
    with EmbeddedRocketMQ(topics={"orders": 1}) as mq:
        mq.do(lambda broker: broker.options.update(transactionCheckInterval="300"))
        asked = []

        def check(number: int) -> str:
            asked.append(number)
            return "commit"

        first = opened(shell, mq.settings, "g", "orders", check)
        with first:
            first.commit(first.begin("orders", b"1"))
            open_half = first.begin("orders", b"2")
            mq.kill_broker()
            with pytest.raises(errors.NetworkError):
                first.commit(open_half)
            if answers == "another":
                first.close()
            mq.start_broker()
            last = (
                first if answers != "another" else opened(shell, mq.settings, "g", "orders", check)
            )
            with (
                last if answers == "another" else nullcontext(),
                shell.Consumer(mq.settings, "g", {"orders": ()}, consumer=FIRST) as consumer,
            ):
                assert read(consumer, 2, 60) == [1, 2]
                assert consumer.receive(1_000) is None
        assert sorted(set(asked)) == ([1, 2] if answers == "another" else [])
