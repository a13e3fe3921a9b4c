"""Cancelling an asyncio client anywhere, and running many calls on one loop.

Scenarios that both APIs share are in `tests/system/behaviour`. After any cancellation the loop must
be empty, and servers must hold no lease that no client uses.
"""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Coroutine
from contextlib import aclosing
from typing import Any

import pytest

from tests.client.io.peer import Peer, echo, silence
from tests.kit.servers import client_settings, embedded_tubemq
from tests.system.behaviour.windows import Feeder, Ledger
from tools.devkit.patience import PATIENCE
from tubemq_client import ClientSettings, OffsetRange, Partition, Record, errors
from tubemq_client._core.effects import Call, Conversation, Deliver, Sleep
from tubemq_client._io.asyncio_connection import connect
from tubemq_client._io.asyncio_driver import AsyncDriver
from tubemq_client._wire.framing import encode_frame
from tubemq_client._wire.methods import (
    CLOSE_PRODUCER,
    GET_MESSAGES,
    REGISTER_CONSUMER_V2,
    REGISTER_PARTITION,
)
from tubemq_client.aio import AssignedConsumer, Metadata, Producer, RangeReader
from tubemq_client.embedded import EmbeddedTubeMQ, ReadLimits, Switches, TopicSpec

pytestmark = pytest.mark.timeout(60)

TOPIC = "orders"
PARTITION = Partition(1, TOPIC, 0)
SMALL_READS = ReadLimits(first_fetch_bytes=4_000, fetch_bytes=4_000, memory_scan=(30, 50))


mq = embedded_tubemq([TopicSpec(TOPIC, 1, 3)], switches=Switches(reads=SMALL_READS))
settings = client_settings(rpc_timeout_ms=1_000)


@pytest.fixture
def filled(settings: ClientSettings) -> OffsetRange:
    ledger = Ledger()
    Feeder(settings, TOPIC, ledger, 1).produce(600, [PARTITION])
    return OffsetRange(PARTITION, 0, ledger.stable_end_of(PARTITION))


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run it on a separate loop; no task may be left there, and nothing may be left unclosed."""

    async def main() -> Any:
        async with asyncio.timeout(30):
            result = await work
        await asyncio.sleep(0.01)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        result = asyncio.run(main())
        gc.collect()
    assert [str(w.message) for w in caught if "transport" in str(w.message)] == []
    return result


async def read_all(settings: ClientSettings, range_: OffsetRange) -> int:
    """Read the range with a pool of one group, where a lease left behind answers 410."""
    async with RangeReader(settings, group="pool", pool_size=1, deadline_ms=15_000) as reader:
        return sum([len(batch) async for batch in reader.read(range_)])


def test_a_cancelled_close_still_closes_its_sockets(
    settings: ClientSettings,
) -> None:
    async def scenario() -> None:
        metadata = Metadata(settings)
        assert len((await metadata.topic(TOPIC)).partitions) == 3
        closing = asyncio.create_task(metadata.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        assert closing.cancelled()

    run(scenario())


# -- readers --------------------------------------------------------------------------------------


def test_a_cancelled_read_gives_the_partition_back(
    settings: ClientSettings, filled: OffsetRange
) -> None:
    async def scenario() -> int:
        started = asyncio.Event()

        async def read_slowly() -> None:
            async with RangeReader(settings, group="pool", pool_size=1) as reader:
                async for _ in reader.read(filled):
                    started.set()
                    await asyncio.sleep(3_600)

        task = asyncio.create_task(read_slowly())
        await started.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        return await read_all(settings, filled)

    assert run(scenario()) == 600


def test_a_read_that_times_out_in_the_middle_of_a_fetch_gives_the_partition_back(
    mq: EmbeddedTubeMQ, settings: ClientSettings, filled: OffsetRange
) -> None:
    async def stall() -> None:
        async with RangeReader(settings, group="pool", pool_size=1) as reader:
            async for _ in reader.read(filled):
                mq.broker(1).silence(GET_MESSAGES.id)

    async def scenario() -> int:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(stall(), 0.5)
        mq.broker(1).silence()
        return await read_all(settings, filled)

    assert run(scenario()) == 600


def test_breaking_out_gives_the_partition_back_when_the_reader_is_left(
    settings: ClientSettings, filled: OffsetRange
) -> None:
    async def scenario() -> int:
        async with RangeReader(settings, group="pool", pool_size=1) as reader:
            batches = reader.read(filled)
            async for _ in batches:
                break
        return await read_all(settings, filled)

    assert run(scenario()) == 600


def test_closing_the_iterator_gives_the_partition_back_at_once(
    settings: ClientSettings, filled: OffsetRange
) -> None:
    async def scenario() -> int:
        async with RangeReader(settings, group="pool", pool_size=1) as reader:
            async with aclosing(reader.read(filled)) as batches:
                await anext(batches)
            return await read_all(settings, filled)

    assert run(scenario()) == 600


def test_one_reader_reads_several_ranges_at_once(
    settings: ClientSettings, filled: OffsetRange
) -> None:
    cuts = [filled.end * n // 6 // 28 * 28 for n in range(7)]

    async def scenario() -> tuple[int, int]:
        async with RangeReader(settings, group="pool") as reader:

            async def read(start: int, end: int) -> int:
                range_ = OffsetRange(PARTITION, start, end)
                return sum([len(batch) async for batch in reader.read(range_)])

            counts = await asyncio.gather(*map(read, cuts, cuts[1:]))
            return sum(counts), reader.stats.records

    assert run(scenario()) == (600, 600)


# -- producers and consumers ----------------------------------------------------------------------


def test_many_tasks_send_at_once_over_one_connection(settings: ClientSettings) -> None:
    async def scenario() -> list[int]:
        async with Producer(settings) as producer:
            sends = [producer.send(TOPIC, b"%d" % n) for n in range(300)]
            return sorted(receipt.offset for receipt in await asyncio.gather(*sends))

    assert run(scenario()) == [28 * n for n in range(300)]


def test_a_cancelled_pull_loses_nothing(
    mq: EmbeddedTubeMQ, settings: ClientSettings, filled: OffsetRange
) -> None:
    async def scenario() -> list[int]:
        starts = []
        async with AssignedConsumer(settings, "group", {TOPIC: ()}) as consumer:
            await consumer.assign(PARTITION)
            for delay in (0.0, 0.0005, 0.001, 0.002, 0.005):
                try:
                    async with asyncio.timeout(delay):
                        await consumer.pull(PARTITION)
                except TimeoutError:
                    pass
                batch = await consumer.pull(PARTITION)
                assert batch is not None
                starts.append(batch.start)
        return starts

    assert run(scenario()) == [0] * 5


def test_a_cancelled_consumer_leaves_its_group_in_order(
    mq: EmbeddedTubeMQ, settings: ClientSettings
) -> None:
    async def scenario() -> list[Partition]:
        assigned = asyncio.Event()

        async def consume() -> None:
            async with AssignedConsumer(settings, "group", {TOPIC: ()}) as consumer:
                await consumer.assign(PARTITION)
                assigned.set()
                await asyncio.sleep(3_600)

        task = asyncio.create_task(consume())
        await assigned.wait()
        task.cancel()
        await asyncio.wait([task])
        async with AssignedConsumer(settings, "group", {TOPIC: ()}) as consumer:
            await consumer.assign(PARTITION)
            return consumer.assignment

    assert run(scenario()) == [PARTITION]


def test_entering_that_fails_or_is_cancelled_leaves_nothing_open(
    mq: EmbeddedTubeMQ, settings: ClientSettings
) -> None:
    async def scenario() -> None:
        with pytest.raises(errors.UnknownTopic):
            await AssignedConsumer(settings, "group", {"nowhere": ()}).__aenter__()
        mq.silence_master(REGISTER_CONSUMER_V2.id)
        entering = AssignedConsumer(settings, "group", {TOPIC: ()}).__aenter__()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(entering, 0.2)

    run(scenario())


def test_a_client_may_be_made_before_there_is_a_loop(settings: ClientSettings) -> None:
    metadata, producer = Metadata(settings), Producer(settings)

    async def scenario() -> int:
        async with metadata, producer:
            await producer.send(TOPIC, b"x")
            return len((await metadata.topic(TOPIC)).partitions)

    assert run(scenario()) == 3


def test_a_waiting_call_delays_no_other(mq: EmbeddedTubeMQ, settings: ClientSettings) -> None:
    mq.broker(1).silence(REGISTER_PARTITION.id)

    async def scenario() -> int:
        async with Metadata(settings) as metadata, Producer(settings) as producer:
            slow = asyncio.create_task(metadata.ends(TOPIC, "slow"))
            records = [Record(b"%d" % n) for n in range(100)]
            sent = [receipt async for receipt in producer.send_many(TOPIC, records)]
            assert not slow.done()
            with pytest.raises(errors.RpcTimeout):
                await slow
            return len(sent)

    assert run(scenario()) == 100


# -- the driver and its connections ---------------------------------------------------------------

PLAIN = ClientSettings(masters=(), rpc_timeout_ms=60_000, connect_timeout_ms=5_000)


def test_a_second_cancellation_ends_the_final_requests_too(settings: ClientSettings) -> None:
    """Final requests have a separate time limit; an impatient caller cancels again."""

    def deliver() -> Conversation[None]:
        yield Deliver(1)
        yield Sleep(600_000)

    def goodbye() -> Conversation[None]:
        yield Call(peer.address, CLOSE_PRODUCER, CLOSE_PRODUCER.request(clientId="x"))

    async def scenario() -> None:
        driver = AsyncDriver(PLAIN)

        async def work() -> None:
            try:
                async for _ in driver.stream(deliver(), goodbye()):
                    pass
            finally:
                await driver.close()

        task = asyncio.create_task(work())
        for _ in range(3):  # from the stream, its release, and the close
            await asyncio.sleep(0.1)
            task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    with Peer(silence) as peer:
        run(scenario())
        assert peer.gone.acquire(timeout=20 * PATIENCE)


def test_a_cancelled_connect_does_not_fail_other_callers() -> None:
    async def scenario() -> int:
        driver = AsyncDriver(PLAIN)

        def ask() -> Conversation[Any]:
            return (yield Call(peer.address, CLOSE_PRODUCER, CLOSE_PRODUCER.request(clientId="x")))

        first, *others = [asyncio.create_task(driver.run(ask())) for _ in range(5)]
        await asyncio.sleep(0)
        first.cancel()
        results = await asyncio.gather(*others, return_exceptions=True)
        await driver.close()
        # The peer echoes requests, which are no valid replies: they did arrive.
        return sum(isinstance(result, errors.TubeMQError) for result in results)

    with Peer(echo) as peer:
        assert run(scenario()) == 4
        assert peer.visits <= 2


def test_a_reply_to_a_cancelled_wait_is_dropped() -> None:
    async def scenario() -> list[bytes]:
        connection = await connect(peer.address, PLAIN)
        deadline = asyncio.get_running_loop().time() + 5

        async def ask(payload: bytes) -> bytes:
            serial = await connection.post(lambda serial: encode_frame(serial, payload), 5.0)
            return await connection.wait(serial, deadline)

        for _ in range(20):
            task = asyncio.create_task(ask(b"dropped"))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
        replies = [await ask(b"%d" % n) for n in range(20)]
        assert connection.in_flight == 0
        await connection.close()
        return replies

    with Peer() as peer:
        assert run(scenario()) == [b"%d" % n for n in range(20)]


def test_a_peer_that_reads_nothing_stops_the_sender_within_its_time() -> None:
    async def scenario() -> None:
        connection = await connect(peer.address, PLAIN)
        payload = bytes(4_000_000)

        async def send() -> None:
            for _ in range(50):
                await connection.post(lambda serial: encode_frame(serial, payload), 0.2)

        with pytest.raises(errors.RpcTimeout, match="takes no more"):
            await send()
        await connection.close()

    with Peer(silence, deaf=True) as peer:
        run(scenario())
