"""Processes forked while clients are open: the child can neither use nor harm them."""

from __future__ import annotations

import asyncio
import os
import signal
import warnings
from collections.abc import Callable
from concurrent.futures import wait
from dataclasses import replace
from typing import Any

import pytest

from rocketmq_client import ClientSettings as RocketMQSettings
from rocketmq_client import Metadata as RocketMQMetadata
from tests.kit.servers import client_settings, embedded_tubemq
from tubemq_client import (
    AssignedConsumer,
    ClientSettings,
    Metadata,
    OffsetRange,
    Partition,
    Producer,
    RangeReader,
    Record,
    Session,
    aio,
)
from tubemq_client.admin import AdminClient
from tubemq_client.embedded import EmbeddedTubeMQ, TopicSpec
from tubemq_client.errors import RpcTimeout

pytestmark = [
    pytest.mark.timeout(30),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here"),
]

TOPIC = "orders"
PARTITION = Partition(1, TOPIC, 0)
REFUSED = "ClosedError: this client was made before process"

mq = embedded_tubemq([TopicSpec(TOPIC, 1)], scope="module", http=True)
settings = client_settings()


def in_child(work: Callable[[], object]) -> str:
    """Run `work` in a forked process for at most ten seconds; return its result or error."""
    come, go = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads
        child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(10)
        try:
            text = repr(work())
        except BaseException as error:  # noqa: BLE001 - reported to the parent
            text = f"{type(error).__name__}: {error}"
        os.write(go, text.encode())
        os._exit(0)
    os.close(go)
    with os.fdopen(come) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text or "killed: it hung"


def leave(client: Any) -> Callable[[], object]:
    """Close it in the child, as leaving a context does."""
    return lambda: client.__exit__(None, None, None)


def test_a_producer_is_the_parents(settings: ClientSettings) -> None:
    with Producer(settings) as producer:
        producer.send(TOPIC, b"before")
        attempts: list[Callable[[], object]] = [
            lambda: producer.send(TOPIC, b"in the child"),
            lambda: producer.send_async(TOPIC, Record(b"in the child")),
            lambda: producer.publish(TOPIC),
            lambda: producer.flush(timeout_ms=100),
            lambda: list(producer.send_many(TOPIC, [Record(b"in the child")])),
            lambda: producer.stats,
        ]
        for attempt in attempts:
            assert in_child(attempt).startswith(REFUSED)
        assert in_child(leave(producer)) == "None"
        assert producer.send(TOPIC, b"after").partition == PARTITION
        assert {stats.opened for stats in producer.connections.values()} == {1}


def test_a_child_that_leaves_the_context_takes_nothing_from_the_parent(
    mq: EmbeddedTubeMQ, settings: ClientSettings
) -> None:
    with Producer(settings) as producer:
        producer.send(TOPIC, b"for the group")
    with AssignedConsumer(settings, "billing", {TOPIC: ()}) as consumer:
        consumer.assign(PARTITION)
        first = consumer.pull(PARTITION)
        assert first is not None

        assert in_child(lambda: consumer.pull(PARTITION)).startswith(REFUSED)
        assert in_child(lambda: consumer.confirm(first)).startswith(REFUSED)
        assert in_child(lambda: consumer.run(print)).startswith(REFUSED)
        assert in_child(leave(consumer)) == "None"
        assert consumer.confirm(first) > first.start
        assert consumer.assignment == [PARTITION]


@pytest.mark.parametrize("parallel", [1, 2])
def test_a_running_read_continues_in_the_parent_only(
    settings: ClientSettings, parallel: int
) -> None:
    with Producer(settings) as producer:
        producer.send_all(TOPIC, [Record(bytes(2_000)) for _ in range(2_000)])
    with Metadata(settings) as metadata:
        end = metadata.ends(TOPIC, "lake", stable=False)[PARTITION].max_offset
    with RangeReader(settings, group="lake") as reader:
        batches = reader.read(OffsetRange(PARTITION, 0, end), parallel=parallel)
        count = len(next(batches))
        assert in_child(lambda: next(batches)).startswith(REFUSED)
        assert in_child(leave(reader)) == "None"
        count += sum(map(len, batches))
        assert count == reader.stats.records >= 2_000
        assert reader.stats.restarts == 0


def test_a_session_and_what_it_shares_are_the_parents(settings: ClientSettings) -> None:
    with Session(settings) as session, Metadata(session) as metadata:
        metadata.topic(TOPIC)
        assert in_child(lambda: Metadata(session).topic(TOPIC)).startswith(REFUSED)
        assert in_child(leave(session)) == "None"
        assert list(metadata.topic(TOPIC).partitions) == [PARTITION]


def test_clients_of_rocketmq_are_the_parents() -> None:
    with RocketMQMetadata(RocketMQSettings((("127.0.0.1", 9),))) as metadata:
        assert in_child(lambda: metadata.topic(TOPIC)).startswith(REFUSED)
        assert in_child(leave(metadata)) == "None"


def test_a_child_may_create_clients(settings: ClientSettings) -> None:
    def send() -> object:
        with Producer(settings) as producer:
            return producer.send(TOPIC, b"of the child").partition

    with Producer(settings) as producer:
        producer.send(TOPIC, b"of the parent")
        assert in_child(send) == repr(PARTITION)


async def in_a_loop_of_the_child(producer: aio.Producer) -> None:
    await producer.close()
    await producer.send(TOPIC, b"in the child")


def test_clients_on_a_loop_are_the_parents(settings: ClientSettings) -> None:
    async def main() -> None:
        async with aio.Producer(settings) as producer:
            await producer.send(TOPIC, b"before")
            refusal = await asyncio.to_thread(
                in_child, lambda: asyncio.run(in_a_loop_of_the_child(producer))
            )
            assert refusal.startswith(REFUSED)
            assert (await producer.send(TOPIC, b"after")).partition == PARTITION
            assert {stats.opened for stats in producer.connections.values()} == {1}

    asyncio.run(main())


def test_a_child_does_not_wait_for_receipts_of_the_parent(
    mq: EmbeddedTubeMQ, settings: ClientSettings
) -> None:
    with Producer(replace(settings, rpc_timeout_ms=300)) as producer:
        done = producer.send_async(TOPIC, Record(b"done"))
        assert done.result(10).partition == PARTITION
        mq.broker(1).silence(13)
        waiting = producer.send_async(TOPIC, Record(b"without an answer"))
        try:
            assert in_child(lambda: waiting.result(20)).startswith(REFUSED)
            assert in_child(lambda: wait([waiting], 20)).startswith(REFUSED)
            assert in_child(lambda: done.result(20).partition) == repr(PARTITION)
        finally:
            mq.broker(1).silence()
        assert isinstance(waiting.exception(20), RpcTimeout)


def test_administration_is_the_parents(mq: EmbeddedTubeMQ) -> None:
    with AdminClient(mq.master_web or "") as admin:
        assert admin.topic(TOPIC).name == TOPIC
        assert in_child(lambda: admin.topic(TOPIC)).startswith(REFUSED)
        assert in_child(leave(admin)) == "None"
        assert admin.topic(TOPIC).name == TOPIC
