"""Records of a consumer group, one by one, confirmed batch by batch when their events are stored.

Airflow's "shared streams" drive it: they ask for records, and tell which have become events in the
metadata database. A batch all of whose records have is confirmed at its broker; one with a record
that has not is rejected, and comes again. Private to this room.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tubemq_client import errors
from tubemq_client.model import ConsumerSettings
from tubemq_provider.hooks.aio import TubeMQAsyncHook
from tubemq_provider.triggers._watch import Backoff

if TYPE_CHECKING:
    from collections.abc import Hashable

    from tubemq_client import ClientSettings, Message, Partition
    from tubemq_client.aio import Consumer
    from tubemq_client.model import Delivery

    class _Producer:
        """Airflow's `SharedStreamProducer`; before Airflow 3.3 there is none."""

else:
    try:
        from airflow.triggers.shared_stream import SharedStreamProducer as _Producer
    except ImportError:
        _Producer = object

__all__ = ["MessageStream", "Record"]

_MOST_PENDING = 64
"""Events that Airflow may have to store at a time; its queues hold a thousand."""
_CONFIRM_TIMEOUT_MS = 600_000
"""Twice what Airflow takes before it gives an event up."""
_CLOSE_WAIT_MS = 2_000
_LOOK_MS = 30_000
"""After so long without records it looks whether something is wrong."""


@dataclass(frozen=True, slots=True)
class Record:
    """Which delivery a payload is of, to which member of the group (they are counted), and whether
    it is the delivery's last one."""

    delivery: Delivery
    last: bool
    member: int


@dataclass(eq=False)
class MessageStream(_Producer):
    """Payloads of a group's records. Outlives brokers and masters; ends only when it is closed.

    `payload` makes what an event says; it must be quick. Use in one event loop.
    """

    conn_id: str
    cluster: str
    topic: str
    group: str
    filters: Sequence[str]
    begin: Literal["earliest", "latest"]
    corrupt_records: Literal["fail", "drop"]
    payload: Callable[[Partition, Message], dict[str, Any]]
    log: Any
    look_ms: int = _LOOK_MS
    _consumer: Consumer | None = field(default=None, init=False)
    _settings: ClientSettings | None = field(default=None, init=False)
    _member: int = field(default=0, init=False)
    _pending: int = field(default=0, init=False)
    _spoiled: set[Delivery] = field(default_factory=set, init=False)
    _room: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    async def open_stream(self) -> AsyncGenerator[tuple[dict[str, Any], Record], None]:
        """Every record from where the group is. Trouble is waited out, and said once."""
        backoff = Backoff()
        while True:
            async with AsyncExitStack() as stack:
                try:
                    consumer = await self._join(stack)
                    while True:
                        for payload, record in await self._next(consumer, backoff):
                            await self._take_room()
                            yield payload, record
                except Exception as exc:  # noqa: BLE001 - whatever it is, a watcher outlives it
                    pause = backoff.failed()
                    self._say(backoff, exc)
                finally:
                    self._consumer = None
            await asyncio.sleep(pause)

    async def advance(self, batch: Sequence[Any]) -> None:
        """Airflow has stored, or given up, the events of these records, in their order."""
        for item in batch:
            await self.settle(item.broker_payload, clean=item.outcome.is_clean)

    def get_advance_lane(self, broker_payload: Record) -> Hashable:
        """Partitions do not wait for each other."""
        return broker_payload.delivery.partition

    async def settle(self, record: Record, *, clean: bool) -> None:
        """The event of `record` is stored, or (not `clean`) is not. The last one of a delivery
        confirms or rejects it at the broker; if that fails, the batch comes again. So do those of
        a member before: each counts its deliveries from one, and may not settle another's."""
        if record.member != self._member:
            return
        self._pending -= 1
        self._room.set()
        if not clean:
            self._spoiled.add(record.delivery)
        if not record.last:
            return
        spoiled = record.delivery in self._spoiled
        self._spoiled.discard(record.delivery)
        consumer = self._consumer
        if consumer is None:
            return
        try:
            await (consumer.reject if spoiled else consumer.confirm)(record.delivery)
        except errors.TubeMQError as exc:
            self.log.info("topic %s: records come again, as %s", self.topic, exc)

    async def _join(self, stack: AsyncExitStack) -> Consumer:
        """Become a member of the group, on the connections that this loop shares."""
        hook = TubeMQAsyncHook(self.conn_id)
        await hook.expect_cluster(self.cluster)
        self._settings = (await hook.config()).settings()
        settings = ConsumerSettings(
            consume_position=self.begin,
            ready_wait_ms=self.look_ms,
            confirm_timeout_ms=_CONFIRM_TIMEOUT_MS,
            close_wait_ms=_CLOSE_WAIT_MS,
        )
        member = hook.member(
            self.group,
            {self.topic: self.filters},
            consumer=settings,
            corrupt_records=self.corrupt_records,
        )
        consumer = await stack.enter_async_context(member)
        await consumer.start()
        # What was not settled with the member before comes again.
        self._consumer, self._pending, self._member = consumer, 0, self._member + 1
        self._spoiled.clear()
        return consumer

    async def _next(
        self, consumer: Consumer, backoff: Backoff
    ) -> list[tuple[dict[str, Any], Record]]:
        """The records of the next batch; none if none came for a while."""
        batch = await consumer.receive()
        if batch is None:
            await self._judge(consumer, backoff)
            return []
        payloads = [self.payload(batch.partition, message) for message in batch.messages()]
        if backoff.worked():
            self.log.info("topic %s: reachable again", self.topic)
        if not payloads:
            await consumer.confirm(batch)
        last = len(payloads) - 1
        return [
            (payload, Record(batch.delivery, number == last, self._member))
            for number, payload in enumerate(payloads)
        ]

    async def _judge(self, consumer: Consumer, backoff: Backoff) -> None:
        """No record came for a while. The member outlives masters and brokers by itself; where the
        connection leads elsewhere by now, raises what is wrong, so that it joins anew."""
        found = consumer.last_errors
        wrong = found.get("master")
        if wrong is None and not consumer.assignment:
            wrong = next(iter(found.values()), None)
        if wrong is None:
            return
        backoff.failed()
        self._say(backoff, wrong)
        if await self._leads_elsewhere():
            raise wrong

    async def _leads_elsewhere(self) -> bool:
        with suppress(Exception):  # an API server that is away says nothing of the connection
            hook = TubeMQAsyncHook(self.conn_id)
            return (await hook.config()).settings() != self._settings
        return False

    async def _take_room(self) -> None:
        while self._pending >= _MOST_PENDING:
            self._room.clear()
            await self._room.wait()
        self._pending += 1

    def _say(self, backoff: Backoff, exc: Exception) -> None:
        if backoff.failures == 1:
            self.log.warning("topic %s: no records, waiting: %s", self.topic, exc)
