"""Requests with a reply: each asker gets its own, whoever answers, and none that comes too late."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from rocketmq_client import ConsumerSettings, ProducerSettings, errors
from rocketmq_client._wire.commands import Command
from rocketmq_client.embedded import EmbeddedRocketMQ
from tests.rocketmq.behaviour.test_groups import send
from tests.rocketmq.shells import Shell
from tests.rocketmq.sites import Site

FIRST = ConsumerSettings(consume_from="first", hold_ms=1_000)


@contextmanager
def replying(shell: Shell, settings, topic: str) -> Iterator[None]:
    """Reply to each request with its body turned round; not to "no"."""
    over = threading.Event()

    def reply() -> None:
        compressing = ProducerSettings(compress_over_bytes=100)
        with (
            shell.Consumer(settings, topic, {topic: ()}, consumer=FIRST) as consumer,
            shell.Producer(settings, producer=compressing) as producer,
        ):
            while not over.is_set():
                for message in batch.messages if (batch := consumer.receive(100)) else ():
                    if message.body != b"no":
                        producer.reply(
                            message, message.body[::-1], tags="t", keys="k", properties={"p": "q"}
                        )
                if batch:
                    consumer.confirm(batch)

    with ThreadPoolExecutor(1) as pool:
        work = pool.submit(reply)
        try:
            yield
        finally:
            over.set()
            work.result(60)


def test_every_request_gets_its_own_reply(shell: Shell, site: Site) -> None:
    topic = site.topic(4)
    with (
        replying(shell, site.settings, topic),
        shell.Requester(site.settings) as one,
        shell.Requester(site.settings) as two,
        ThreadPoolExecutor(8) as pool,
    ):

        def ask(number: int) -> bytes:
            asker = (one, two)[number % 2]
            return asker.request(topic, b"request %d" % number, timeout_ms=60_000).body

        bodies = list(pool.map(ask, range(24)))
        long = one.request(topic, b"ab" * 2_000, timeout_ms=60_000)

    assert bodies == [(b"request %d" % number)[::-1] for number in range(24)]
    assert long.body == b"ba" * 2_000
    assert (long.tags, long.keys, long.properties["p"]) == ("t", ("k",), "q")
    assert abs(long.store_ms - time.time() * 1000) < 60_000


def test_a_request_without_a_reply_ends_in_time_and_the_record_is_stored(shell: Shell) -> None:
    with EmbeddedRocketMQ(topics={"ask": 1}) as mq:
        with shell.Requester(mq.settings) as asker:
            began = time.monotonic()
            with pytest.raises(errors.NoReply, match="within timeout_ms=200; the record is stored"):
                asker.request("ask", b"1", timeout_ms=200)
            assert time.monotonic() - began < 20
        with (
            shell.Consumer(mq.settings, "g", {"ask": ()}, consumer=FIRST) as consumer,
            shell.Producer(mq.settings) as producer,
        ):
            batch = consumer.receive(20_000)
            with pytest.raises(errors.BrokerFailure, match="push reply message to"):
                producer.reply(batch.messages[0], b"late")


def test_a_requester_is_found_again_after_its_broker_restarted(shell: Shell) -> None:
    with (
        EmbeddedRocketMQ(topics={"ask": 1}) as mq,
        replying(shell, mq.settings, "ask"),
        shell.Requester(mq.settings) as asker,
    ):
        assert asker.request("ask", b"ab", timeout_ms=30_000).body == b"ba"
        mq.kill_broker()
        mq.start_broker()
        time.sleep(1.1)
        assert asker.request("ask", b"cd", timeout_ms=30_000).body == b"dc"


def test_only_requests_get_replies(shell: Shell) -> None:
    with EmbeddedRocketMQ(topics={"ask": 1}) as mq:
        send(shell, mq.settings, "ask", [1])
        with (
            shell.Consumer(mq.settings, "g", {"ask": ()}, consumer=FIRST) as consumer,
            shell.Producer(mq.settings) as producer,
        ):
            batch = consumer.receive(20_000)
            with pytest.raises(errors.ConfigError, match="lacks CORRELATION_ID, REPLY_TO_CLIENT"):
                producer.reply(batch.messages[0], b"x")


def test_a_requester_that_has_asked_nothing_closes(shell: Shell) -> None:
    with EmbeddedRocketMQ(topics={"ask": 1}) as mq, shell.Requester(mq.settings):
        pass


def test_hostile_replies_are_dropped(shell: Shell) -> None:
    """A broker's request with any fields disturbs neither the reader nor a waiting request."""
    with (
        EmbeddedRocketMQ(topics={"ask": 1}) as mq,
        replying(shell, mq.settings, "ask"),
        shell.Requester(mq.settings) as asker,
    ):
        assert asker.request("ask", b"ab", timeout_ms=30_000).body == b"ba"
        for fields in (
            {},
            {"properties": "CORRELATION_ID"},
            {"properties": "CORRELATION_ID\x01unknown\x02", "sysFlag": "x"},
            {"storeHost": "nowhere", "sysFlag": "1"},
        ):
            mq.do(lambda broker, fields=fields: _push_to_all(broker, fields))
        assert asker.request("ask", b"cd", timeout_ms=30_000).body == b"dc"


def _push_to_all(broker, fields: dict[str, str]) -> None:
    for _, push in list(broker.groups._clients.values()):
        push(Command(326, 9, fields, b"\x00x"))
