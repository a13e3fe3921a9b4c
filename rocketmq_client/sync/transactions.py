"""Sync producer of transactions.

`_core.transactions` decides; here is the thread that sends heartbeats and answers brokers.
`aio.transactions` is the asyncio version.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
from typing import TYPE_CHECKING, Self, TypeVar

from rocketmq_client import errors
from rocketmq_client._core.outgoing import outgoing
from rocketmq_client._core.transactions import Transactions
from rocketmq_client._wire.codec import RocketMQCodec
from rocketmq_client.sync.producer import Producer
from tubemq_client._io.driver import BlockingDriver
from tubemq_client._io.thread_sync import Notifier, serialized

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rocketmq_client.model import (
        ClientSettings,
        Decision,
        HalfRecord,
        Message,
        ProducerSettings,
        Queue,
    )
    from tubemq_client._core.effects import Conversation

__all__ = ["TransactionalProducer"]

T = TypeVar("T")
_LOG = logging.getLogger(__name__)


class TransactionalProducer(Producer):
    """Sends records that no reader sees until they are committed.

    `begin` sends a half record to one of `topics`; `commit` or `rollback` ends it. A broker that
    hears neither, because this process died or the request was lost, asks any producer of `group`:
    `check` gets the record and returns "commit", "rollback", or None to be asked again. It must
    decide from what the application has stored, because another process may have begun the
    transaction. Entering the context makes the producer known to the brokers. It has its own
    connections even with a session.
    """

    def __init__(
        self,
        settings: ClientSettings,
        group: str,
        topics: Sequence[str],
        check: Callable[[Message], Decision | None],
        *,
        producer: ProducerSettings | None = None,
    ) -> None:
        super().__init__(settings, group=group, producer=producer)
        self._due = Notifier()
        self._transactions = Transactions(
            self._cluster,
            self._sending,
            f"{os.getpid()}@{secrets.token_hex(6)}",
            topics,
            self._due.notify,
        )
        codec = RocketMQCodec(self._transactions.notice, self._transactions.connected)
        self._driver = BlockingDriver(settings.network(), None, codec)
        self._check = check
        self._closing = False
        self._lock = threading.RLock()
        self._keeper: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def start(self) -> None:
        """Make the producer known to the brokers, once. Raises `errors.UnknownTopic`, and
        `errors.ConfigError` the second time."""
        if self._keeper is not None or self._closing:
            raise errors.ConfigError("a producer is started once", subject="producer")
        try:
            self._run(self._transactions.round())
        except BaseException:
            self._driver.close()
            raise
        self._keeper = threading.Thread(
            target=self._keep, name="rocketmq-transactions", daemon=True
        )
        self._keeper.start()

    def begin(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str | None = None,
        keys: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        queue: Queue | None = None,
    ) -> HalfRecord:
        """Send a half record, as `send` sends one. After an error the broker may have it, and asks
        `check` about it."""
        message = outgoing(body, tags, keys, properties, flag)
        return self._run(self._transactions.begin(topic, message, queue))

    def commit(self, half: HalfRecord) -> None:
        """Let readers see the record. After a network error the broker may not know; it asks, and
        gets this answer."""
        self._run(self._transactions.end(half, "commit"))

    def rollback(self, half: HalfRecord) -> None:
        """Drop the record. After a network error the broker may not know; it asks, and gets this
        answer."""
        self._run(self._transactions.end(half, "rollback"))

    def close(self) -> None:
        """Stop answering brokers, which ask other producers of the group about open halves; close
        all connections. Safe to call twice."""
        self._closing = True
        self._due.notify()
        super().close()
        if self._keeper is not None:
            self._keeper.join(10)

    def _run(self, conversation: Conversation[T]) -> T:
        return self._driver.run(serialized(conversation, self._lock))

    def _keep(self) -> None:
        while not self._closing:
            seen, wait_ms = self._due.count, 1_000
            try:
                wait_ms = self._run(self._transactions.round())
                self._answer()
            except errors.ClosedError:
                return
            except errors.RocketMQError:
                _LOG.exception("transactions of group %s: a broker failed", self._sending.group)
            self._due.wait(seen, wait_ms / 1000)

    def _answer(self) -> None:
        while (check := self._transactions.next_check()) is not None:
            decision = self._transactions.known_end(check)
            if decision is None:
                try:
                    decision = self._check(check.message)
                except Exception:  # noqa: BLE001 - the application's own
                    _LOG.exception("the check of a transaction failed")
            self._run(self._transactions.answer(check, decision))
