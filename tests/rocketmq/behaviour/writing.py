"""Writers of scenarios: they keep the receipts of their records, and can run in the background."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from types import TracebackType
from typing import Self

from rocketmq_client import ClientSettings, OutgoingMessage, Producer, Queue, errors

TAGS = (None, "red", "Aa", "BB")
"""The last two have equal hashes."""

Written = dict[Queue, dict[int, tuple[bytes, str | None]]]


class Writer:
    """Sends single records and batches of random sizes to all queues of a topic. `written` has the
    acknowledged records by queue and offset. As a context manager it writes until the end;
    meanwhile `acknowledged` returns a copy."""

    def __init__(self, settings: ClientSettings, topic: str, seed: int) -> None:
        self.written: Written = defaultdict(dict)
        self.failures = 0
        self._producer = Producer(settings)
        self._topic = topic
        self._random = random.Random(seed)
        self._number = 0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep_writing, daemon=True)

    def write(self, records: int) -> None:
        """Write at least this number of records. Only once: it closes the producer."""
        with self._producer:
            while self._number < records:
                self._write_some()

    def acknowledged(self, queue: Queue) -> dict[int, tuple[bytes, str | None]]:
        """Return the records acknowledged so far of a queue, by offset."""
        with self._lock:
            return dict(self.written[queue])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join(60)
        self._producer.close()

    def _keep_writing(self) -> None:
        # The more there is, the longer each window takes to read: a busy machine would never end.
        while not self._ended.wait(0.005 + self._number / 50_000):
            self._write_some()

    def _write_some(self) -> None:
        count = self._random.choice((1, 1, 5, 40))
        messages = [self._message() for _ in range(count)]
        try:
            if count == 1:
                body, tags = messages[0].body, messages[0].tags
                receipts = [self._producer.send(self._topic, body, tags=tags)]
            else:
                receipts = self._producer.send_batch(self._topic, messages)
        except errors.RocketMQError:
            self.failures += 1
            self._ended.wait(0.2)
            return
        with self._lock:
            for message, receipt in zip(messages, receipts, strict=True):
                acknowledged = self.written[receipt.queue]
                assert receipt.offset not in acknowledged, "an offset was given twice"
                acknowledged[receipt.offset] = (message.body, message.tags)

    def _message(self) -> OutgoingMessage:
        self._number += 1
        size = self._random.choice((0, 20, 200, 6_000 if self._number % 50 == 0 else 50))
        body = b"%08d" % self._number + bytes(self._random.randrange(256) for _ in range(size))
        return OutgoingMessage(body, self._random.choice(TAGS))
