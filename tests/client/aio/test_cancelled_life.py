"""A member cancelled at every wait: from joining through confirming to leaving.

The task is cancelled at its n-th wait, for every possible n. Afterwards the loop is empty, a
successor gets the partition at once, and it receives every unconfirmed record and no confirmed one.
"""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from tests.kit.servers import embedded_tubemq
from tubemq_client import ClientSettings, Partition
from tubemq_client.aio import AssignedConsumer, Consumer, Producer
from tubemq_client.embedded import EmbeddedTubeMQ, ReadLimits, Switches

pytestmark = pytest.mark.timeout(300)

TOPIC = "orders"
PARTITION = Partition(1, TOPIC, 0)
SENT = [b"%02d" % n for n in range(12)]
PATIENCE_MS = 10_000
MOST_WAITS = 200
GONE_S = 10


class CancelledAt:
    """Awaitable that cancels its task at the n-th wait of `work`, for each of `numbers`."""

    def __init__(self, work: Coroutine[Any, Any, None], *numbers: int) -> None:
        self._work = work
        self._numbers = numbers
        self._count = 0

    def __await__(self) -> Generator[Any, Any, None]:
        task = asyncio.current_task()
        assert task is not None
        waiting = self._work.__await__()
        answer: Callable[[], Any] = lambda: waiting.send(None)  # noqa: E731
        while True:
            try:
                what = answer()
            except StopIteration:
                return
            self._count += 1
            if self._count in self._numbers:
                asyncio.get_running_loop().call_soon(task.cancel)
            try:
                yield what
            except BaseException as error:  # noqa: BLE001 - passed on
                failure = error
                answer = lambda: waiting.throw(failure)  # noqa: B023, E731
            else:
                answer = lambda: waiting.send(None)  # noqa: E731


mq = embedded_tubemq(
    [TOPIC],
    scope="module",
    switches=Switches(
        balance_period_ms=20,
        unflushed_records=1,
        reads=ReadLimits(
            first_fetch_bytes=150, fetch_bytes=150, memory_scan=(4, 4), file_scan=(4, 4)
        ),
    ),
)


@pytest.fixture(scope="module")
def settings(mq: EmbeddedTubeMQ) -> ClientSettings:
    """Return settings of a cluster that has the sent records."""
    client_settings = ClientSettings((mq.master_address,), heartbeat_period_ms=50)
    asyncio.run(send(client_settings))
    return client_settings


async def send(settings: ClientSettings) -> None:
    async with Producer(settings) as producer:
        for body in SENT:
            await producer.send(TOPIC, body, partition=PARTITION)


@asynccontextmanager
async def assigned(settings: ClientSettings, group: str) -> AsyncIterator[Any]:
    async with AssignedConsumer(settings, group, {TOPIC: ()}) as consumer:
        await consumer.assign(PARTITION)
        yield consumer


@asynccontextmanager
async def balanced(settings: ClientSettings, group: str) -> AsyncIterator[Any]:
    async with Consumer(settings, group, {TOPIC: ()}) as consumer:
        assert await consumer.partitions_ready(PATIENCE_MS)
        yield consumer


class Life:
    """Records that one member has confirmed, and those it may have confirmed."""

    def __init__(self) -> None:
        self.confirmed: list[bytes] = []
        self.unsure: list[bytes] = []
        self.over = False

    async def live(self, enter: Any, settings: ClientSettings, group: str) -> None:
        async with enter(settings, group) as consumer:
            for rejects in (False, True, False):
                batch = await consumer.receive(PATIENCE_MS)
                if rejects:
                    await consumer.reject(batch)
                    batch = await consumer.receive(PATIENCE_MS)
                self.unsure = [message.body for message in batch.messages()]
                await consumer.confirm(batch)
                self.confirmed += self.unsure
                self.unsure = []
        self.over = True


async def rest(enter: Any, settings: ClientSettings, group: str) -> list[bytes]:
    received: list[bytes] = []
    async with enter(settings, group) as consumer:
        while len(received) < len(SENT):
            batch = await consumer.receive(PATIENCE_MS if SENT[-1] not in received else 0)
            if batch is None:
                break
            received += [message.body for message in batch.messages()]
            await consumer.confirm(batch)
            if received[-1] == SENT[-1]:
                break
    return received


async def cancelled_life(enter: Any, settings: ClientSettings, group: str, n: int) -> bool:
    """Run a member, cancelled at its `n`-th wait; return whether it had ended before."""
    life = Life()

    async def live() -> None:
        await CancelledAt(life.live(enter, settings, group), n)

    task = asyncio.create_task(live())
    await asyncio.wait([task])
    assert life.over or task.cancelled(), (n, task.exception())
    assert asyncio.all_tasks() == {asyncio.current_task()}, n
    async with asyncio.timeout(GONE_S):  # less than a lease: no lease may be left
        received = await rest(enter, settings, group)
    left = SENT[len(life.confirmed) :]
    assert received in (left, left[len(life.unsure) :]), (n, life.confirmed, life.unsure)
    return not task.cancelled()


def live_and_be_cancelled(enter: Any, settings: ClientSettings, waits: range) -> int:
    for n in waits:
        name = f"{enter.__name__}-{n}"
        if asyncio.run(cancelled_life(enter, settings, name, n)):
            return n
    raise AssertionError("the life does not end")


async def impatient_life(enter: Any, settings: ClientSettings, group: str, *waits: int) -> bool:
    """Run a member that is cancelled several times; return whether it had ended before.

    Leases may be left behind.
    """
    life = Life()

    async def live() -> None:
        await CancelledAt(life.live(enter, settings, group), *waits)

    task = asyncio.create_task(live())
    await asyncio.wait([task])
    assert life.over or task.cancelled(), (waits, task.exception())
    await asyncio.sleep(0.01)  # for the loop to close interrupted connections
    assert asyncio.all_tasks() == {asyncio.current_task()}, waits
    return not task.cancelled()


@contextmanager
def nothing_left_open() -> Iterator[None]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        yield
        gc.collect()
    assert [str(warning.message) for warning in caught] == []


@pytest.mark.parametrize("enter", [assigned, balanced])
def test_a_second_cancellation_while_leaving_ends_the_member(
    settings: ClientSettings, enter: Any
) -> None:
    with nothing_left_open():
        for again in (1, 3):
            for n in range(1, MOST_WAITS):
                group = f"{enter.__name__}-{n}-{again}"
                waits = range(n, n + again + 1)
                if asyncio.run(impatient_life(enter, settings, group, *waits)):
                    break


@pytest.mark.parametrize("enter", [assigned, balanced])
def test_a_member_may_be_cancelled_anywhere(settings: ClientSettings, enter: Any) -> None:
    waits = range(1, MOST_WAITS)
    with nothing_left_open():
        assert live_and_be_cancelled(enter, settings, waits) > 10
