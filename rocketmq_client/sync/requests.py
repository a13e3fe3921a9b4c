"""Sync producer of requests with a reply.

`_core.requests` decides; here are the threads that send heartbeats and read what brokers push.
`aio.requests` is the asyncio version.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from rocketmq_client import errors
from rocketmq_client._core.outgoing import outgoing
from rocketmq_client._core.requests import Requests, no_reply
from rocketmq_client._wire.codec import RocketMQCodec
from rocketmq_client.sync.producer import Producer
from tubemq_client._io.driver import BlockingDriver
from tubemq_client._io.thread_sync import Notifier, serialized

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rocketmq_client.model import Address, ClientSettings, ProducerSettings, Queue, Reply
    from tubemq_client._core.effects import Conversation

__all__ = ["Requester"]

T = TypeVar("T")
_LOG = logging.getLogger(__name__)


class Requester(Producer):
    """Sends records that ask for a reply, and waits for it; any number of threads may ask.

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
        self._driver = BlockingDriver(settings.network(), None, codec)
        self._closing = False
        self._lock = threading.RLock()
        self._threads: dict[Address | None, threading.Thread] = {}

    def request(
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
        name, over = secrets.token_hex(16), time.monotonic() + timeout_ms / 1000
        coming: Future[Reply] = Future()
        self._requests.expect(name, coming.set_result)
        try:
            self._run(self._requests.send(name, topic, message, queue, timeout_ms))
            self._listen_to_all()
            return coming.result(max(0.0, over - time.monotonic()))
        except TimeoutError as error:
            raise no_reply(topic, timeout_ms) from error
        finally:
            self._requests.forget(name)

    def close(self) -> None:
        """Leave the producer group and close all connections; requests that wait get no reply. Safe
        to call twice."""
        with self._lock:
            first, self._closing = not self._closing, True
        if first and self._threads:
            with suppress(errors.RocketMQError):
                self._run(self._requests.leave())
        self._due.notify()
        super().close()
        for thread in list(self._threads.values()):
            thread.join(10)

    def _run(self, conversation: Conversation[T]) -> T:
        return self._driver.run(serialized(conversation, self._lock))

    def _listen_to_all(self) -> None:
        """Start a thread for each broker that may push, and one that answers brokers."""
        with self._lock:
            for address in (None, *self._requests.addresses):
                if address in self._threads or self._closing:
                    continue
                self._threads[address] = threading.Thread(
                    target=self._keep if address is None else self._listen,
                    args=() if address is None else (address,),
                    name="rocketmq-requests",
                    daemon=True,
                )
                self._threads[address].start()

    def _keep(self) -> None:
        while not self._closing:
            seen, wait_ms = self._due.count, 1_000
            try:
                wait_ms = self._run(self._requests.round())
            except errors.ClosedError:
                return
            except errors.RocketMQError:
                _LOG.exception("requests of group %s: a broker failed", self._sending.group)
            self._due.wait(seen, wait_ms / 1000)

    def _listen(self, address: Address) -> None:
        with suppress(errors.ClosedError):
            while not self._closing:
                self._driver.run(self._requests.listen(address))
