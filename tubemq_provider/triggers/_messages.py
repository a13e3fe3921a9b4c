"""Records of a consumer group, confirmed batch by batch when their events are stored.

Driven by Airflow's "shared streams": they ask for records, and report which ones have become events
in the metadata database. A batch is confirmed at its broker when all of its records have; otherwise
it is rejected, and delivered again. Private to this room.
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
from tubemq_provider.triggers._firing import Backoff

if TYPE_CHECKING:
    from collections.abc import Hashable

    from tubemq_client import ClientSettings, Message, Partition
    from tubemq_client.aio import Consumer
    from tubemq_client.model import Delivery

    class _Producer:
        """Airflow's `SharedStreamProducer`, new in Airflow 3.3."""

else:
    try:
        from airflow.triggers.shared_stream import SharedStreamProducer as _Producer
    except ImportError:
        _Producer = object

_MOST_PENDING = 64
"""Limit of events that Airflow has yet to store; its queues hold a thousand."""
_CONFIRM_TIMEOUT_MS = 600_000
"""Twice the time after which Airflow gives up an event."""
_CLOSE_WAIT_MS = 2_000
_LOOK_MS = 30_000
"""Time without records after which the stream checks for errors."""


@dataclass(frozen=True, slots=True)
class Record:
    """Delivery of a payload, and the number of the group member that received it.

    `last` marks the last payload of the delivery. Members are counted.
    """

    delivery: Delivery
    last: bool
    member: int


@dataclass(eq=False)
class MessageStream(_Producer):
    """Stream of a group's records as payloads; survives outages, and ends only when closed.

    `payload` builds the content of an event; it must be quick. Use in one event loop.
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
        """Yield every record from the group's offsets. Errors are waited out, and logged once."""
        backoff = Backoff()
        while True:
            async with AsyncExitStack() as stack:
                try:
                    consumer = await self._join(stack)
                    while True:
                        for payload, record in await self._next(consumer, backoff):
                            await self._take_room()
                            yield payload, record
                except Exception as exc:  # noqa: BLE001 - a watcher survives any error
                    pause = backoff.failed()
                    self._say(backoff, exc)
                finally:
                    self._consumer = None
            await asyncio.sleep(pause)

    async def advance(self, batch: Sequence[Any]) -> None:
        """Take Airflow's report that the events of these records are stored or given up."""
        for item in batch:
            await self.acknowledge(item.broker_payload, clean=item.outcome.is_clean)

    def get_advance_lane(self, broker_payload: Record) -> Hashable:
        """Return the partition: partitions do not wait for each other."""
        return broker_payload.delivery.partition

    async def acknowledge(self, record: Record, *, clean: bool) -> None:
        """Take the result of one event: stored if `clean`.

        The last record of a delivery confirms or rejects it at the broker; if that fails, the batch
        is delivered again. Records of an earlier member are ignored, and delivered again: each
        member counts its deliveries from one.
        """
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
            self.log.info("topic %s: records are delivered again: %s", self.topic, exc)

    async def _join(self, stack: AsyncExitStack) -> Consumer:
        """Join the group, on the connections that this loop shares."""
        hook = TubeMQAsyncHook(self.conn_id)
        await hook.expect_cluster(self.cluster)
        self._settings = await hook.settings()
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
        # Records that an earlier member did not confirm are delivered again.
        self._consumer, self._pending, self._member = consumer, 0, self._member + 1
        self._spoiled.clear()
        return consumer

    async def _next(
        self, consumer: Consumer, backoff: Backoff
    ) -> list[tuple[dict[str, Any], Record]]:
        """Return the records of the next batch; none if none arrived for a while."""
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
        """Check for errors after a while without records.

        The member recovers from outages by itself; if the connection was edited, raise the error,
        so that the stream joins again.
        """
        last_errors = consumer.last_errors
        error = last_errors.get("master")
        if error is None and not consumer.assignment:
            error = next(iter(last_errors.values()), None)
        if error is None:
            return
        backoff.failed()
        self._say(backoff, error)
        if await self._leads_elsewhere():
            raise error

    async def _leads_elsewhere(self) -> bool:
        with suppress(Exception):  # without the API server, assume that nothing changed
            hook = TubeMQAsyncHook(self.conn_id)
            return bool(await hook.settings() != self._settings)
        return False

    async def _take_room(self) -> None:
        while self._pending >= _MOST_PENDING:
            self._room.clear()
            await self._room.wait()
        self._pending += 1

    def _say(self, backoff: Backoff, exc: Exception) -> None:
        if backoff.failures == 1:
            self.log.warning("topic %s: no records, waiting: %s", self.topic, exc)
