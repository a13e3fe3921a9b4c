"""Random world in which anything may happen before an answer, and its true records.

Two embedded brokers under a clock that the world moves. Records are stored, flushed or not, and
removed by retention; brokers die, with or without their host's memory, leave the route and come
back; queues are added and closed to readers or writers. `truth` has all records that were on disk
at any time.
"""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Self

import pytest

from rocketmq_client.embedded import EmbeddedRocketMQ
from rocketmq_client.embedded.broker import EmbeddedBroker
from rocketmq_client.embedded.storage import Entry, NewRecord

__all__ = ["EPOCH", "World"]

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_SOON, _OFTEN, _LOST = 0.2, 0.12, 0.01
_MOST_QUEUES = 4
_EVENTS = {
    "produce": 10,
    "wait": 2,
    "hold_flush": 4,
    "flush": 3,
    "die": 1,
    "lose_host": 4,
    "leave_route": 1,
    "come_back": 6,
    "expire": 1,
    "add_queue": 1,
    "set_perm": 3,
    "be_busy": 1,
    "nothing": 1,
}


class World:
    """Use as a context manager; `quiet` until `restless` is set."""

    def __init__(self, seed: int, patched: pytest.MonkeyPatch) -> None:
        self.chance = random.Random(seed)
        self.restless = False
        self.past_ms = 0
        self.events: list[tuple[str, str]] = []  # the log that explains a failure
        self.truth: dict[str, dict[int, Entry]] = defaultdict(dict)
        self.expired: dict[str, set[int]] = defaultdict(set)
        self.mq = EmbeddedRocketMQ(topics={"orders": 2}, brokers=2)
        self._dead: set[str] = set()
        self._sent = 0
        clock = SimpleNamespace(time_ns=lambda: self.now_ms * 1_000_000)
        for module in ("broker", "storage"):
            patched.setattr(f"rocketmq_client.embedded.{module}.time", clock)
        for name, broker in self.mq._brokers.items():
            patched.setattr(broker, "handle", self._watched(name, broker))
            self.produce(broker)
        self._route = self.mq._name_server.handle
        patched.setattr(self.mq._name_server, "handle", self._find)

    def __enter__(self) -> Self:
        self.mq.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.mq.stop()

    @property
    def now_ms(self) -> int:
        return round(EPOCH.timestamp() * 1000) + self.past_ms

    @property
    def now(self) -> datetime:
        return EPOCH + timedelta(milliseconds=self.past_ms)

    def heal(self) -> None:
        """Restore everything on disk and inject no further faults."""
        self.restless = False
        self.mq._thread.do(self._heal)

    def look(self) -> None:
        """Add all present records to the truth."""
        for name, broker in self.mq._brokers.items():
            for (_, number), index in broker.storage.queues.items():
                self.truth[f"{name}:{number}"].update(index.from_offset(0))

    # -- on the server's thread -------------------------------------------------------------------

    def _watched(self, name: str, broker: EmbeddedBroker):
        answered = broker.handle

        async def handle(request, channel):
            self._tick()
            if name in self._dead or (self.restless and self.chance.random() < _LOST):
                channel.abort()
            return await answered(request, channel)

        return handle

    def _find(self, request):
        """Answer a route request. A read that waits for a broker asks for nothing else."""
        self._tick()
        for name in sorted(self._dead):
            if self.chance.random() < _SOON:
                self.come_back(self.mq._brokers[name])
        return self._route(request)

    def _tick(self) -> None:
        self.past_ms += self.chance.choice([0, 0, 1, 5, 50])
        if self.restless and self.chance.random() < _OFTEN:
            name = self.chance.choice(self.mq.broker_names)
            (event,) = self.chance.choices(list(_EVENTS), list(_EVENTS.values()))
            self.events.append((event, name))
            getattr(self, event)(self.mq._brokers[name])

    def produce(self, broker: EmbeddedBroker) -> None:
        topic = broker.topics["orders"]
        for _ in range(self.chance.choice([1, 1, 3, 20]) if topic.perm & 2 else 0):
            self._sent += 1
            body = b"%d" % self._sent + bytes(self.chance.choice([0, 10, 300]))
            record = NewRecord(body, b"", 0, 0, self.now_ms, ("127.0.0.1", 1))
            broker.storage.append("orders", self.chance.randrange(topic.queues), record)

    def wait(self, _broker: EmbeddedBroker) -> None:
        self.past_ms += self.chance.choice([100, 1_000, 5_000])

    def hold_flush(self, broker: EmbeddedBroker) -> None:
        broker.storage.hold_flush = True

    def flush(self, broker: EmbeddedBroker) -> None:
        broker.storage.hold_flush = False
        broker.storage.flushed = broker.storage.position

    def die(self, broker: EmbeddedBroker) -> None:
        """Kill a broker; it may stay in the route for a while."""
        self._dead.add(broker.name)
        broker.running = self.chance.random() < 0.5

    def lose_host(self, broker: EmbeddedBroker) -> None:
        self.die(broker)
        self.look()
        broker.storage.lose_unflushed()
        for (_, number), index in broker.storage.queues.items():
            records = self.truth[f"{broker.name}:{number}"]
            for offset in [offset for offset in records if offset >= index.end]:
                del records[offset]

    def leave_route(self, broker: EmbeddedBroker) -> None:
        broker.running = False

    def come_back(self, broker: EmbeddedBroker) -> None:
        self._dead.discard(broker.name)
        broker.running, broker.busy = True, False

    def expire(self, broker: EmbeddedBroker) -> None:
        """Remove up to a third of the records on disk, in the order of the log, like retention."""
        self.look()
        storage = broker.storage
        removed_end = (
            storage.log_start + self.chance.randint(0, storage.flushed - storage.log_start) // 3
        )
        for (topic, number), index in storage.queues.items():
            gone = sum(entry.physical_offset < removed_end for entry in index.entries)
            places = range(index.first, index.first + gone)
            self.expired[f"{broker.name}:{number}"].update(places)
            storage.remove_until(topic, number, places.stop)

    def add_queue(self, broker: EmbeddedBroker) -> None:
        topic = broker.topics["orders"]
        topic.queues = min(_MOST_QUEUES, topic.queues + 1)

    def set_perm(self, broker: EmbeddedBroker) -> None:
        broker.topics["orders"].perm = self.chance.choice([2, 4, 6, 6])

    def be_busy(self, broker: EmbeddedBroker) -> None:
        broker.busy = True

    def nothing(self, broker: EmbeddedBroker) -> None:
        """Do nothing."""

    def _heal(self) -> None:
        for broker in self.mq._brokers.values():
            self.come_back(broker)
            self.flush(broker)
            broker.topics["orders"].perm, broker.topics["orders"].queues = 6, _MOST_QUEUES
        self.past_ms += 10_000
        self.look()
