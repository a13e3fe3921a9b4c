"""Records in flight in the background of an event loop whose client is cancelled."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from tests.client.io.peer import Peer, silence
from tubemq_client import ClientSettings, Record
from tubemq_client._core.effects import AwaitAll, Conversation, Deliver, PostAll, Ticket
from tubemq_client._io.asyncio_driver import AsyncDriver
from tubemq_client._wire import methods
from tubemq_client.aio import Producer
from tubemq_client.embedded import EmbeddedTubeMQ, TopicSpec
from tubemq_client.model import Address

pytestmark = pytest.mark.timeout(60)

TOPIC = "orders"


@pytest.mark.parametrize("turns", range(6))
def test_no_future_stays_open_if_closing_is_cancelled(turns: int) -> None:
    """Close after `turns` of the loop: before the task exists, before it runs, while it sends."""

    async def send() -> None:
        producer = Producer(ClientSettings((server.master_address,)))
        await producer.publish(TOPIC)
        future = await producer.send_async(TOPIC, Record(b"x"))
        closing = asyncio.create_task(producer.close())
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await closing
        async with asyncio.timeout(20):
            await asyncio.wait([future])
            await producer.flush()
        if turns == 0:  # closing has not begun yet
            await producer.close()

    with EmbeddedTubeMQ(1, [TopicSpec(TOPIC)], http=False) as server:
        asyncio.run(send())


def test_a_producer_whose_closing_is_cancelled_stops_its_heartbeats() -> None:
    """It waits for a broker that does not answer, until the caller's timeout."""

    async def send() -> None:
        producer = Producer(ClientSettings((server.master_address,)))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1), producer:
                await producer.publish(TOPIC)
                server.broker(1).silence(methods.SEND_MESSAGE.id)
                await producer.send_async(TOPIC, Record(b"x"))
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left or not (await asyncio.wait(left, timeout=5))[1]

    with EmbeddedTubeMQ(1, [TopicSpec(TOPIC)], http=False) as server:
        asyncio.run(send())


@pytest.mark.parametrize("together", [1, 400])
def test_unanswered_records_end_with_their_deadline(together: int) -> None:
    """All of them share one deadline, in groups or one by one."""

    def conversation(address: Address) -> Conversation[None]:
        post = PostAll(address, methods.SEND_MESSAGE, [b"x"] * together)
        tickets: list[Ticket] = []
        while len(tickets) < 400 // together:
            tickets.append((yield post))
        yield Deliver((yield AwaitAll(tickets)))

    async def wait(address: Address) -> int:
        driver = AsyncDriver(ClientSettings((), rpc_timeout_ms=200))
        try:
            async with asyncio.timeout(10):
                async for outcomes in driver.stream(conversation(address)):
                    return len(outcomes)
        finally:
            await driver.close()
        return 0

    with Peer(silence) as peer:
        assert asyncio.run(wait(peer.address)) == 400
