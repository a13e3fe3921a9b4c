"""Asyncio producer: single records, batches, one-way.

`_core.sending` decides about retries. `sync.producer` is the sync version.
"""

from __future__ import annotations

import itertools
import secrets
from typing import TYPE_CHECKING

from rocketmq_client._core.sending import Place, Sending
from rocketmq_client.aio._base import AsyncClient
from rocketmq_client.model import OutgoingMessage, ProducerSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

    from rocketmq_client.model import ClientSettings, Queue, SendReceipt

__all__ = ["Producer"]


class Producer(AsyncClient):
    """Sends records. Shared by any tasks of a loop.

    A receipt says that the broker has the record, by default in its page cache: it survives a crash
    of the broker's process, not of its host.
    """

    def __init__(
        self,
        settings: ClientSettings,
        *,
        group: str = "rocketmq_client_producer",
        producer: ProducerSettings | None = None,
    ) -> None:
        super().__init__(settings)
        prefix, numbers = secrets.token_hex(12).upper(), itertools.count(1)
        self._sending = Sending(
            self._cluster,
            producer or ProducerSettings(),
            group,
            lambda: f"{prefix}{next(numbers) & 0xFFFFFFFF:08X}",
        )

    async def send(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str | None = None,
        keys: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        queue: Queue | None = None,
        order_key: str | None = None,
        delay_level: int | None = None,
        deliver_at_ms: int | None = None,
    ) -> SendReceipt:
        """Send one record, to `queue` or to the topic's queues in turn. The application defines
        `flag`.

        Records of one `order_key` go to one queue while the topic keeps its queues, the one that
        Java's producers choose by hash. A `delay_level` of 1 to 18 delivers the record after that
        level's time (1 s to 2 h with default options), `deliver_at_ms` at a time since the epoch,
        by the timer of 5.x brokers. Raises `errors.UnknownTopic`, `errors.ConfigError` (too large,
        not writable, no timer), and `errors.NetworkError` if the record may have been stored.
        """
        place = Place(order_key, delay_level, deliver_at_ms)
        words = (keys,) if isinstance(keys, str) else tuple(keys)
        message = OutgoingMessage(body, tags, words, dict(properties or {}), flag)
        return await self._driver.run(self._sending.send(topic, message, queue, place))

    async def send_batch(
        self, topic: str, messages: Sequence[OutgoingMessage], *, queue: Queue | None = None
    ) -> list[SendReceipt]:
        """Send records together: all are stored one after another in one queue, or none is."""
        return await self._driver.run(self._sending.send_batch(topic, messages, queue))

    async def send_many(
        self, topic: str, messages: Iterable[OutgoingMessage], *, queue: Queue | None = None
    ) -> AsyncIterator[list[SendReceipt]]:
        """Send any number of records in batches that brokers take (`max_message_bytes`); yield the
        receipts of each batch when it is stored. A batch is stored as a whole or not at all."""
        for batch in self._sending.in_batches(messages):
            yield await self._driver.run(self._sending.send_batch(topic, batch, queue))

    async def send_one_way(
        self, topic: str, message: OutgoingMessage, *, queue: Queue | None = None
    ) -> None:
        """Send one record without a receipt: a loss is not reported."""
        await self._driver.run(self._sending.send_one_way(topic, message, queue))
