"""A cancelled request may still be in flight: it must not overtake the next one.

A real broker works on the requests of one connection at the same time, so an abandoned fetch may be
served after the next one, and then it changes which batch a confirmation confirms.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.kit.servers import client_settings, embedded_tubemq
from tubemq_client import ClientSettings, MessageBatch, Partition, ReceivedBatch
from tubemq_client._core.balance_partitions import PartitionState
from tubemq_client._io import asyncio_connection, asyncio_pool
from tubemq_client._wire import methods
from tubemq_client._wire.envelope import decode_request
from tubemq_client._wire.framing import Frame, FrameDecoder, encode_frame
from tubemq_client.aio import AssignedConsumer, Consumer, Producer
from tubemq_client.embedded import Switches

pytestmark = pytest.mark.timeout(60)

TOPIC = "orders"
PARTITION = Partition(1, TOPIC, 0)
PATIENCE_MS = 10_000
GIVE_UP_AT_ONCE_S = 0.3


mq = embedded_tubemq([TOPIC], switches=Switches(balance_period_ms=50))
settings = client_settings(heartbeat_period_ms=100)


class Delay:
    """Proxy that delays the next request of a method to a server, and lets others overtake it."""

    def __init__(self) -> None:
        self.method: int | None = None
        self.held, self.go, self.answered = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._serial = -1

    @asynccontextmanager
    async def before(self, target: Any) -> AsyncIterator[Any]:
        """Return the address of a proxy before `target`."""
        tasks: set[asyncio.Task[None]] = set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            server_reader, back = await asyncio.open_connection(*target)
            pair = (self._forth(reader, back), self._back(server_reader, writer))
            tasks.update(asyncio.create_task(work) for work in pair)

        relay = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with relay:
            yield relay.sockets[0].getsockname()[:2]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _forth(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        late: list[asyncio.Task[None]] = []
        async for frame in _frames(reader):
            if decode_request(frame.payload).method_id == self.method:
                self.method, self._serial = None, frame.serial
                late.append(asyncio.create_task(self._later(frame, writer)))
                self.held.set()
            else:
                writer.write(encode_frame(frame.serial, frame.payload))
        writer.close()

    async def _later(self, frame: Frame, writer: asyncio.StreamWriter) -> None:
        await self.go.wait()
        writer.write(encode_frame(frame.serial, frame.payload))

    async def _back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for frame in _frames(reader):
            writer.write(encode_frame(frame.serial, frame.payload))
            if frame.serial == self._serial:
                self.answered.set()
        writer.close()


async def _frames(reader: asyncio.StreamReader) -> AsyncIterator[Frame]:
    decoder = FrameDecoder()
    while data := await reader.read(65_536):
        decoder.receive_data(data)
        while (frame := decoder.next_frame()) is not None:
            yield frame


@asynccontextmanager
async def member(
    settings: ClientSettings, delay: Delay, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Consumer]:
    """Return a member whose broker is behind `delay`, holding the partition."""
    connect = asyncio_connection.connect
    async with Consumer(settings, "overtaken", {TOPIC: ()}) as first:
        assert await first.partitions_ready(PATIENCE_MS)
        broker = first._consumer.table.held[PARTITION].lease.broker.address
    async with delay.before(broker) as way:

        async def detour(address: Any, *how: Any) -> Any:
            return await connect(way if address == broker else address, *how)

        monkeypatch.setattr(asyncio_pool, "connect", detour)
        async with Consumer(settings, "overtaken", {TOPIC: ()}) as consumer:
            assert await consumer.partitions_ready(PATIENCE_MS)
            yield consumer


@asynccontextmanager
async def assigned(
    settings: ClientSettings, delay: Delay, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[AssignedConsumer]:
    """Return a member that chose the partition itself; its broker is behind `delay`."""
    connect = asyncio_connection.connect
    async with AssignedConsumer(settings, "chosen", {TOPIC: ()}) as first:
        await first.assign(PARTITION)
        broker = first._consumer.held[PARTITION].lease.broker.address
    async with delay.before(broker) as way:

        async def detour(address: Any, *how: Any) -> Any:
            return await connect(way if address == broker else address, *how)

        monkeypatch.setattr(asyncio_pool, "connect", detour)
        async with AssignedConsumer(settings, "chosen", {TOPIC: ()}) as consumer:
            await consumer.assign(PARTITION)
            yield consumer


MEMBERS = pytest.mark.parametrize("enter", [member, assigned])


async def send(settings: ClientSettings, body: bytes) -> None:
    async with Producer(settings) as producer:
        await producer.send(TOPIC, body, partition=PARTITION)


def bodies(batch: ReceivedBatch | MessageBatch | None) -> list[bytes]:
    assert batch is not None
    return [message.body for message in batch.messages()]


@MEMBERS
def test_a_cancelled_fetch_does_not_change_what_the_next_batch_confirms(
    settings: ClientSettings, monkeypatch: pytest.MonkeyPatch, enter: Any
) -> None:
    async def scenario() -> list[bytes]:
        delay = Delay()
        async with enter(settings, delay, monkeypatch) as consumer:
            await send(settings, b"a")
            delay.method = methods.GET_MESSAGES.id
            first = asyncio.create_task(consumer.receive(PATIENCE_MS))
            await delay.held.wait()
            first.cancel()
            second = asyncio.create_task(consumer.receive(PATIENCE_MS))
            await asyncio.wait([second], timeout=GIVE_UP_AT_ONCE_S)
            await send(settings, b"b")
            delay.go.set()
            await delay.answered.wait()
            batch = await second
            received = bodies(batch)
            assert batch is not None
            await consumer.confirm(batch)
            if len(received) < 2:
                received += bodies(await consumer.receive(2_000))
        return received

    assert asyncio.run(scenario()) == [b"a", b"b"]


@MEMBERS
def test_a_cancelled_confirmation_does_not_confirm_the_next_batch(
    settings: ClientSettings, monkeypatch: pytest.MonkeyPatch, enter: Any
) -> None:
    async def scenario() -> list[bytes]:
        delay = Delay()
        async with enter(settings, delay, monkeypatch) as consumer:
            await send(settings, b"a")
            batch = await consumer.receive(PATIENCE_MS)
            assert batch is not None
            await send(settings, b"b")
            delay.method = methods.COMMIT_OFFSET.id
            confirming = asyncio.create_task(consumer.confirm(batch))
            await delay.held.wait()
            confirming.cancel()
            second = asyncio.create_task(consumer.receive(PATIENCE_MS))
            await asyncio.wait([second], timeout=GIVE_UP_AT_ONCE_S)
            delay.go.set()
            await delay.answered.wait()
            batch = await second
            assert batch is not None
            await consumer.reject(batch)
            return bodies(await consumer.receive(2_000))

    assert asyncio.run(scenario()) == [b"b"]


def test_a_cancelled_queued_pull_does_not_void_the_next_batch(
    settings: ClientSettings,
) -> None:
    """It waits for a confirmation in flight, and would void another caller's later batch."""

    async def main() -> None:
        async with Producer(settings) as producer:
            await producer.send(TOPIC, b"one")
        async with AssignedConsumer(settings, "patient", {TOPIC: ()}) as consumer:
            await consumer.assign(PARTITION)
            batch = await consumer.pull(PARTITION)
            assert batch is not None
            held = consumer._consumer.table.held[PARTITION]
            held.use = PartitionState.CONFIRMING
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await consumer.pull(PARTITION)
            held.use = PartitionState.DELIVERED
            await asyncio.gather(*consumer._driver._shielded_tasks)
            assert await consumer.confirm(batch) > batch.start

    asyncio.run(main())
