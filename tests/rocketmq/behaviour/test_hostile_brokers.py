"""Members, requesters and transactional producers of brokers that are slow, silent, or send what no
broker should."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Thread

import pytest

from rocketmq_client import ConsumerSettings, errors
from rocketmq_client._core import requests as core_requests
from rocketmq_client._core import transactions as core_transactions
from rocketmq_client._wire.commands import Command, encode_command
from rocketmq_client.embedded import EmbeddedRocketMQ
from rocketmq_client.embedded.replies import answer
from tests.rocketmq.behaviour.between import Change, as_it_is, hop_before
from tests.rocketmq.behaviour.test_groups import own, read, send, until
from tests.rocketmq.behaviour.test_transactions import opened
from tests.rocketmq.shells import Shell

FIRST = ConsumerSettings(consume_from="first", commit_ms=100, hold_ms=300)
ASKERS = "rocketmq_client_requester"
SELDOM = replace(FIRST, heartbeat_ms=60_000, rebalance_ms=3_600_000)


@pytest.fixture(autouse=True)
def seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no heartbeat by time hide that one is missing."""
    for module in (core_requests, core_transactions):
        monkeypatch.setattr(module, "_HEARTBEAT_MS", 600_000)


def channels(mq: EmbeddedRocketMQ, group: str) -> set[object]:
    """Return the connections over which producers of the group are known."""
    return mq.do(lambda broker: set(broker.groups._producers[group]))


def test_a_member_introduces_itself_on_every_new_connection(shell: Shell) -> None:
    """Also one that has nothing under way, as all its queues are paused."""
    with (
        EmbeddedRocketMQ(topics={"orders": 2}) as mq,
        hop_before(mq) as hop,
        shell.Consumer(mq.settings, "g", {"orders": ()}, consumer=SELDOM) as consumer,
    ):
        until(lambda: len(own(consumer)) == 2)
        consumer.pause(consumer.assignment)
        time.sleep(1.5)
        before = consumer.stats.heartbeats
        hop.cut()
        until(lambda: consumer.stats.heartbeats > before, 5)
        until(lambda: mq.do(lambda broker: broker.groups.members("g")) == [consumer.client_id], 5)


def test_a_transactional_producer_is_asked_over_a_new_connection(shell: Shell) -> None:
    with (
        EmbeddedRocketMQ(topics={"orders": 1}) as mq,
        hop_before(mq) as hop,
        opened(shell, mq.settings, "g", "orders", lambda _: "commit"),
    ):
        time.sleep(1.5)
        before = channels(mq, "g")
        hop.cut()
        until(lambda: len(channels(mq, "g") - before) == 1, 5)


def test_a_reply_arrives_although_the_connection_broke_while_it_was_awaited(shell: Shell) -> None:
    with (
        EmbeddedRocketMQ(topics={"ask": 1}) as mq,
        hop_before(mq) as hop,
        shell.Requester(mq.settings) as asker,
        shell.Producer(mq.settings) as producer,
        shell.Consumer(mq.settings, "g", {"ask": ()}, consumer=FIRST) as consumer,
        ThreadPoolExecutor(1) as pool,
    ):
        coming = pool.submit(asker.request, "ask", b"ab", timeout_ms=60_000)
        batch = consumer.receive(20_000)
        time.sleep(1.5)
        before = channels(mq, ASKERS)
        hop.cut()
        until(lambda: len(channels(mq, ASKERS) - before) == 1, 5)
        producer.reply(batch.messages[0], b"cd")
        assert coming.result(20).body == b"cd"


def pulled(command: Command) -> bool:
    """Return True for an answer with records."""
    return command.is_answer and command.code == 0 and "nextBeginOffset" in command.fields


class Sometimes:
    """Change of every third answer with records."""

    def __init__(self, change: Change) -> None:
        self.seen, self._change = 0, change

    def __call__(self, command: Command) -> bytes | None:
        self.seen += pulled(command)
        return (
            self._change(command) if pulled(command) and self.seen % 3 == 1 else as_it_is(command)
        )


CHANGES = {
    "twice": lambda command: as_it_is(command) * 2,
    "nothing, and cuts the connection": lambda _: None,
    "half a frame, and waits": lambda command: as_it_is(command)[:90],
    "a huge length": lambda _: b"\x7f\xff\xff\xff" + bytes(60),
    "a negative length": lambda _: b"\xff" * 64,
    "a header that is no JSON": lambda _: b"\0\0\0\x08\0\0\0\x04{{{{",
    "a body that is cut": lambda command: as_it_is(command._replace(body=command.body[:-9])),
    "no offsets": lambda command: as_it_is(command._replace(fields={})),
    "an answer to nothing": lambda command: (
        as_it_is(command._replace(opaque=987_654)) + as_it_is(command)
    ),
    "a notice of another group": lambda command: (
        encode_command(Command(40, 1, {"consumerGroup": "other"}, flag=2)) + as_it_is(command)
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_broker_should_not_send_costs_a_connection_and_no_record(
    shell: Shell, change: str
) -> None:
    few = replace(FIRST, pull_records=10, batch_records=10)
    with (
        EmbeddedRocketMQ(topics={"orders": 1}) as mq,
        hop_before(mq) as hop,
        shell.Consumer(
            replace(mq.settings, rpc_timeout_ms=1_000), "g", {"orders": ()}, consumer=few
        ) as consumer,
    ):
        send(shell, mq.settings, "orders", range(30))
        hop.change = Sometimes(CHANGES[change])
        until(lambda: own(consumer))
        assert read(consumer, 30) == list(range(30))
        send(shell, mq.settings, "orders", range(30, 60))
        assert read(consumer, 30) == list(range(30, 60))
        assert hop.change.seen >= 4, "two answers were changed"


def test_an_answer_that_stays_odd_ends_the_membership(shell: Shell) -> None:
    with (
        EmbeddedRocketMQ(topics={"orders": 1}) as mq,
        hop_before(mq) as hop,
        shell.Consumer(mq.settings, "g", {"orders": ()}, consumer=FIRST) as consumer,
    ):
        hop.change = lambda command: as_it_is(
            command._replace(body=command.body[:-9]) if pulled(command) else command
        )
        send(shell, mq.settings, "orders", range(3))
        with pytest.raises(errors.ProtocolViolation, match=r"beyond its answer|cut short"):
            consumer.receive(60_000)


def test_a_broker_that_answers_too_late_delays_records_and_repeats_none(shell: Shell) -> None:
    """Its answer to the first pull comes when that has been given up and asked again."""
    with EmbeddedRocketMQ(topics={"orders": 1}) as mq, hop_before(mq) as hop:
        send(shell, mq.settings, "orders", range(5))
        settings = replace(mq.settings, rpc_timeout_ms=500)
        late = iter([3.0])

        def slowly(command: Command) -> bytes:
            if pulled(command):
                time.sleep(next(late, 0))
            return as_it_is(command)

        hop.change = slowly
        with shell.Consumer(settings, "g", {"orders": ()}, consumer=FIRST) as consumer:
            assert read(consumer, 5) == [0, 1, 2, 3, 4]
            assert consumer.receive(1_000) is None


def test_a_queue_that_is_no_longer_in_the_route_keeps_its_position(shell: Shell) -> None:
    """Its topic was made smaller: the next member continues there when it is made larger again."""
    seldom = replace(FIRST, commit_ms=3_600_000, rebalance_ms=200)
    with EmbeddedRocketMQ(topics={"orders": 3}) as mq:
        settings = replace(mq.settings, route_period_ms=100)
        send(shell, settings, "orders", range(30))
        with shell.Consumer(settings, "g", {"orders": ()}, consumer=seldom) as consumer:
            read(consumer, 30)
            mq.do(lambda broker: setattr(broker.topics["orders"], "queues", 1))
            until(lambda: len(own(consumer)) == 1)
            until(lambda: mq.do(lambda broker: broker.groups.offsets["g", "orders", 2]) == 10, 5)
            mq.do(lambda broker: setattr(broker.topics["orders"], "queues", 3))
            until(lambda: len(own(consumer)) == 3)
            assert consumer.receive(300) is None


def test_records_that_cannot_be_sent_back_now_are_handled_again(shell: Shell) -> None:
    refusals = iter([2, 1])
    with EmbeddedRocketMQ(topics={"orders": 1}) as mq:
        take_back = mq.do(lambda broker: broker._handlers[36])

        def refuse(request: Command, channel) -> Command:
            code = next(refusals, 0)
            return answer(request, code, "busy") if code else take_back(request, channel)

        mq.do(lambda broker: broker._handlers.update({36: refuse}))
        send(shell, mq.settings, "orders", [1])
        seen: list[int] = []
        with shell.Consumer(mq.settings, "g", {"orders": ()}, consumer=FIRST) as consumer:

            def handle(batch) -> None:
                seen.extend(message.reconsume_times for message in batch.messages)
                if len(seen) == 3:
                    Thread(target=consumer.stop).start()
                raise ValueError("not now")

            consumer.run(handle, on_error="send_back")
            assert seen == [0, 0, 0]
            assert consumer.stats.sent_back == 1
