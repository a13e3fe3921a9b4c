"""Cancelled calls of a balanced group's member leave no state and no lease behind."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Literal

import pytest

from tests.kit.servers import client_settings, embedded_tubemq
from tubemq_client import ClientSettings, ConsumerSettings, Partition, ReceivedBatch, errors
from tubemq_client._wire.methods import GET_MESSAGES
from tubemq_client.aio import AssignedConsumer, Consumer, Producer
from tubemq_client.embedded import EmbeddedTubeMQ, Switches, TopicSpec

TOPIC = "orders"
PATIENCE_MS = 10_000


mq = embedded_tubemq(
    [TopicSpec(TOPIC, 1, 2)], switches=Switches(unflushed_records=1, balance_period_ms=50)
)
settings = client_settings(heartbeat_period_ms=100)


async def send(settings: ClientSettings, *bodies: bytes) -> None:
    async with Producer(settings) as producer:
        for body in bodies:
            await producer.send(TOPIC, body, partition=Partition(1, TOPIC, 0))


def test_a_receive_that_is_cancelled_anywhere_loses_nothing(settings: ClientSettings) -> None:
    async def scenario() -> list[bytes]:
        random = Random(7)
        received: list[bytes] = []
        async with Consumer(settings, "cancelled", {TOPIC: ()}) as consumer:
            assert await consumer.partitions_ready(PATIENCE_MS)
            await send(settings, b"a", b"b", b"c")
            for _ in range(60):
                task = asyncio.create_task(consumer.receive(PATIENCE_MS))
                for _ in range(random.randrange(12)):
                    await asyncio.sleep(0)
                task.cancel()
                result = (await asyncio.gather(task, return_exceptions=True))[0]
                if isinstance(result, ReceivedBatch):
                    await consumer.reject(result)
            while len(received) < 3:
                batch = await consumer.receive(PATIENCE_MS)
                assert batch is not None
                received += [message.body for message in batch.messages()]
                await consumer.confirm(batch)
        return received

    assert asyncio.run(scenario()) == [b"a", b"b", b"c"]


def test_a_cancelled_run_rejects_what_its_handlers_had(settings: ClientSettings) -> None:
    async def scenario() -> None:
        busy = asyncio.Event()

        async def handle(batch: ReceivedBatch) -> None:
            busy.set()
            await asyncio.sleep(PATIENCE_MS)

        async with Consumer(settings, "cancelled", {TOPIC: ()}) as consumer:
            await send(settings, b"a")
            run = asyncio.create_task(consumer.run(handle, workers=2))
            await asyncio.wait_for(busy.wait(), 10)
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
            batch = await consumer.receive(PATIENCE_MS)
            assert batch is not None
            assert [message.body for message in batch.messages()] == [b"a"]
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(scenario())


async def awaits_what_is_cancelled() -> None:
    """Await a task that is cancelled, like a connection pool whose library cancels a call."""
    inner = asyncio.create_task(asyncio.sleep(PATIENCE_MS))
    inner.cancel()
    await inner


@pytest.mark.parametrize("on_error", ["stop", "retry"])
def test_a_handler_whose_own_task_is_cancelled_has_failed(
    settings: ClientSettings, on_error: Literal["stop", "retry"]
) -> None:
    async def scenario() -> None:
        seen: list[ReceivedBatch] = []

        async def handle(batch: ReceivedBatch) -> None:
            seen.append(batch)
            if len(seen) == 1:
                await awaits_what_is_cancelled()
            await consumer.stop()

        async with Consumer(settings, f"inner_{on_error}", {TOPIC: ()}) as consumer:
            await send(settings, b"a")
            run = asyncio.wait_for(consumer.run(handle, on_error=on_error), 10)
            if on_error == "retry":
                await run
                assert len(seen) == 2, "the batch came again"
                return
            with pytest.raises(errors.LocalError, match="cancelled"):
                await run
            assert await consumer.receive(PATIENCE_MS), "the batch is there again"

    asyncio.run(scenario())


def test_a_listener_whose_own_task_is_cancelled_is_reported(settings: ClientSettings) -> None:
    async def scenario() -> None:
        async def listen(_: list[Partition]) -> None:
            await awaits_what_is_cancelled()

        async with Consumer(settings, "inner", {TOPIC: ()}, on_assigned=listen) as consumer:
            with pytest.raises(errors.LocalError, match="cancelled"):
                await consumer.receive(PATIENCE_MS)

    asyncio.run(scenario())


def test_closing_ends_a_run_when_its_handlers_are_done(settings: ClientSettings) -> None:
    async def scenario() -> None:
        busy, go_on, done = asyncio.Event(), asyncio.Event(), []

        async def handle(batch: ReceivedBatch) -> None:
            busy.set()
            await go_on.wait()
            done.append(batch)

        consumer = Consumer(settings, "closed", {TOPIC: ()})
        async with consumer:
            await send(settings, b"a")
            run = asyncio.create_task(consumer.run(handle))
            await asyncio.wait_for(busy.wait(), 10)
            closing = asyncio.create_task(consumer.close())
            await asyncio.sleep(0)
            go_on.set()
            await asyncio.gather(run, closing)
        assert len(done) == 1
        async with Consumer(settings, "closed", {TOPIC: ()}) as successor:
            assert await successor.partitions_ready(PATIENCE_MS)
            assert await successor.receive(500) is None  # it was confirmed
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(scenario())


def test_closing_ends_slow_handlers_without_cancelling_the_caller(
    settings: ClientSettings,
) -> None:
    async def scenario() -> None:
        busy, cut_off = asyncio.Event(), asyncio.Event()

        async def handle(batch: ReceivedBatch) -> None:
            busy.set()
            try:
                await asyncio.sleep(PATIENCE_MS)
            finally:
                cut_off.set()

        impatient = ConsumerSettings(close_wait_ms=100)
        async with Consumer(settings, "cut", {TOPIC: ()}, consumer=impatient) as consumer:
            await send(settings, b"a")
            run = asyncio.create_task(consumer.run(handle, workers=2))
            await asyncio.wait_for(busy.wait(), 10)
            await consumer.close()
            await run
        assert cut_off.is_set()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(scenario())


def test_a_close_cancelled_during_a_pull_still_leaves_the_group() -> None:
    partition = Partition(1, TOPIC, 0)

    async def scenario(server: EmbeddedTubeMQ) -> None:
        settings = ClientSettings((server.master_address,))
        async with AssignedConsumer(settings, "left", {TOPIC: ()}) as consumer:
            await consumer.assign(partition)
            server.broker(1).silence(GET_MESSAGES.id)
            pull = asyncio.create_task(consumer.pull(partition))
            await asyncio.sleep(0)  # its request is in flight, and no answer will arrive
            close = asyncio.create_task(consumer.close())
            await asyncio.wait(consumer._running)
            for _ in range(10):
                await asyncio.sleep(0)
            assert not close.done()
            close.cancel()
            await asyncio.wait([close, pull])
        assert close.cancelled()
        assert isinstance(pull.exception(), errors.ClosedError)

    with EmbeddedTubeMQ(1, [TopicSpec(TOPIC)], http=False) as server:
        asyncio.run(scenario(server))
        assert not server.broker(1).revoke_lease("left", TOPIC, 0), "nothing is held any more"
