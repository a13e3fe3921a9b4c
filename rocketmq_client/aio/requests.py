"""Asyncio producer of requests with a reply.

`_core.requests` decides; here are the tasks that send heartbeats and read what brokers push.
`sync.requests` is the sync version.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

from rocketmq_client import errors
from rocketmq_client._core.outgoing import outgoing
from rocketmq_client._core.requests import Requests, no_reply
from rocketmq_client._wire.codec import RocketMQCodec
from rocketmq_client.aio.producer import Producer
from rocketmq_client.model import Reply
from tubemq_client._io.asyncio_driver import AsyncDriver
from tubemq_client._io.asyncio_sync import Notifier

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rocketmq_client.model import Address, ClientSettings, ProducerSettings, Queue

__all__ = ["Requester"]

_LOG = logging.getLogger(__name__)


class Requester(Producer):
    """Sends records that ask for a reply, and waits for it; any number of tasks may ask.

    The consumer of such a record sends the reply with `Producer.reply`, or a Java client with its
    own means. A reply reaches only a client that waits for it: it is not stored for later. It has
    its own connections even with a session.
    """

    def __init__(
        self,
        settings: ClientSettings,
        *,
        group: str = "rocketmq_client_requester",
        producer: ProducerSettings | None = None,
    ) -> None:
        super().__init__(settings, group=group, producer=producer)
        self._due = Notifier()
        self._requests = Requests(
            self._cluster,
            self._sending,
            f"{os.getpid()}@{secrets.token_hex(6)}",
            self._due.notify,
        )
        codec = RocketMQCodec(self._requests.notice, self._requests.connected)
        self._driver = AsyncDriver(settings.network(), None, codec)
        self._closing = False
        self._tasks: dict[Address | None, asyncio.Task[None]] = {}

    async def request(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str | None = None,
        keys: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        queue: Queue | None = None,
        timeout_ms: int = 3_000,
    ) -> Reply:
        """Send a record, as `send` sends one, and return the reply to it. Raises `errors.NoReply`
        if none arrives within `timeout_ms`, and what `send` raises."""
        message = outgoing(body, tags, keys, properties, flag)
        name, loop = secrets.token_hex(16), asyncio.get_running_loop()
        coming: asyncio.Future[Reply] = loop.create_future()

        def take(reply: Reply) -> None:
            if not coming.done():
                coming.set_result(reply)

        over = loop.time() + timeout_ms / 1000
        self._requests.expect(name, take)
        try:
            await self._driver.run(self._requests.send(name, topic, message, queue, timeout_ms))
            self._listen_to_all()
            async with asyncio.timeout_at(over):
                return await coming
        except TimeoutError as error:
            raise no_reply(topic, timeout_ms) from error
        finally:
            self._requests.forget(name)

    async def close(self) -> None:
        """Leave the producer group and close all connections; requests that wait get no reply. Safe
        to call twice."""
        first, self._closing = not self._closing, True
        if first and self._tasks:
            with suppress(errors.RocketMQError):
                await self._driver.run(self._requests.leave())
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await super().close()

    def _listen_to_all(self) -> None:
        """Start a task for each broker that may push, and one that answers brokers."""
        for address in (None, *self._requests.addresses):
            if address not in self._tasks and not self._closing:
                work = self._keep() if address is None else self._listen(address)
                self._tasks[address] = asyncio.create_task(work, name="rocketmq-requests")

    async def _keep(self) -> None:
        while not self._closing:
            seen, wait_ms = self._due.count, 1_000
            try:
                wait_ms = await self._driver.run(self._requests.round())
            except errors.ClosedError:
                return
            except errors.RocketMQError:
                _LOG.exception("requests of group %s: a broker failed", self._sending.group)
            await self._due.wait(seen, wait_ms / 1000)

    async def _listen(self, address: Address) -> None:
        with suppress(errors.ClosedError):
            while not self._closing:
                await self._driver.run(self._requests.listen(address))
