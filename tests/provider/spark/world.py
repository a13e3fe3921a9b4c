"""Small TubeMQ cluster with known records, for every test that reads."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field

from tubemq_client import ClientSettings, OffsetRange, Partition, Producer, Record
from tubemq_client.config import ClientConfig
from tubemq_client.embedded import EmbeddedTubeMQ
from tubemq_client.model import Credentials, TlsSettings
from tubemq_provider.windows.plan import WindowPlan, WindowScope

TOPIC = "demo"
GROUP = "etl"
USER = Credentials("etl", "s3cret-word")


@dataclass
class World:
    """Cluster of two brokers and the receipts of everything produced to it."""

    mq: EmbeddedTubeMQ
    bodies: dict[Partition, list[tuple[int, bytes]]] = field(default_factory=dict)

    @property
    def masters(self) -> str:
        return self.mq.masters

    @property
    def settings(self) -> ClientSettings:
        return ClientConfig.parse({"masters": self.mq.masters}).settings()

    @property
    def options(self) -> dict[str, str]:
        return {"masters": self.masters, "topic": TOPIC, "group": GROUP}

    def produce(self, count: int, topic: str = TOPIC, size: int = 20) -> None:
        """Send `count` records, round robin over partitions, and make them stable."""
        before = sum(map(len, self.bodies.values()))
        records = [
            Record(
                b"%06d" % number + random.Random(number).randbytes(size),
                {"n": str(number % 3)},
                ("alpha", "beta")[number % 2],
                "202611210815",
            )
            for number in range(before, before + count)
        ]
        self._send(topic, records)

    def produce_objects(self, count: int, bad: int) -> None:
        """Send `count` JSON objects, every `bad`th with an invalid id, as `produce` does."""
        values = [
            {"id": number if number % bad else "x", "name": f"n{number}"} for number in range(count)
        ]
        self._send(TOPIC, [Record(json.dumps(value).encode()) for value in values])

    def send(self, records: list[Record]) -> None:
        """Send records as `produce` does."""
        self._send(TOPIC, records)

    def _send(self, topic: str, records: list[Record]) -> None:
        with Producer(self.settings) as producer:
            partitions = sorted(producer.partitions(topic))
            placed = [
                record._replace(partition=partitions[number % len(partitions)])
                for number, record in enumerate(records)
            ]
            sent = producer.send_many(topic, placed, in_flight=32)
            for record, receipt in zip(records, sent, strict=True):
                found = self.bodies.setdefault(receipt.partition, [])
                found.append((receipt.offset, record.body))
        for broker_id in self.mq.broker_ids:
            self.mq.broker(broker_id).flush()

    def end(self, key: str, topic: str = TOPIC) -> int:
        partition = Partition.from_key(topic, key)
        return self.mq.broker(partition.broker_id).store(topic, partition.store_id).ends.stable

    def whole(self, topic: str = TOPIC) -> dict[str, tuple[int, int]]:
        """Return the range of everything, by partition key."""
        found = sorted(p for p in self.bodies if p.topic == topic)
        return {p.key: (0, self.end(p.key, topic)) for p in found}

    def plan(self, ranges: dict[str, tuple[int, int]], filters: tuple[str, ...] = ()) -> WindowPlan:
        scope = WindowScope(
            cluster="local", topic=TOPIC, group=GROUP, filters=filters, epoch="1", sink="test"
        )
        return WindowPlan.explicit(scope, ranges)

    def expected(self, ranges: dict[str, tuple[int, int]], topic: str = TOPIC) -> list[bytes]:
        """Return the bodies that the receipts place inside `ranges`, sorted."""
        found = []
        for key, (start, end) in ranges.items():
            range_ = OffsetRange(Partition.from_key(topic, key), start, end)
            found += [b for o, b in self.bodies[range_.partition] if start <= o < end]
        return sorted(found)


class SecuredWorld(World):
    """World that only its user sees, over mutual TLS."""

    tls: TlsSettings

    @property
    def settings(self) -> ClientSettings:
        masters = ClientConfig.parse({"masters": self.mq.tls_masters}).masters
        return ClientSettings(masters=masters, auth=USER, tls=self.tls)
