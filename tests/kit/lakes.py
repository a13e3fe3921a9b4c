"""Both ends of an end-to-end test: a TubeMQ whose records are known, and a lake."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rocketmq_client import Admin
from rocketmq_client import Producer as RocketMQProducer
from rocketmq_client.embedded import EmbeddedRocketMQ
from rocketmq_client.model import Queue
from tubemq_client import Partition, Record
from tubemq_client.config import ClientConfig
from tubemq_client.embedded import EmbeddedTubeMQ, TopicSpec
from tubemq_client.sync import Producer
from tubemq_provider.sinks.read import published_windows, read_windows

TOPIC = "orders"
SECRET = "hush-hush"


@dataclass(frozen=True)
class Lake:
    """A directory of published windows, as a reader sees it."""

    root: Path

    @property
    def staging(self) -> Path:
        """Directory in which tries work, hidden from readers."""
        return self.root.with_name(f".{self.root.name}.tubemq-staging")

    def records(self) -> Counter[tuple[str, bytes]]:
        """Count each (partition, body) in the lake."""
        table = read_windows(self.root).to_table(columns=["partition", "value"]).to_pydict()
        return Counter(zip(table["partition"], table["value"], strict=True))

    def windows(self) -> list[str]:
        """Ids of the published windows."""
        return [marker.plan.window_id for marker in published_windows(self.root)]


class Cluster:
    """An embedded TubeMQ with one topic per test, and what was ever sent to it."""

    source = "tubemq"
    keys = ("1:0", "1:1", "2:0", "2:1")
    entry = 28

    def __init__(self, server: EmbeddedTubeMQ) -> None:
        self.server = server
        self.settings = ClientConfig.parse({"masters": server.masters}).settings()
        self.sent: dict[str, Counter[tuple[str, bytes]]] = {}

    def add_topic(self, topic: str) -> None:
        self.server.add_topic(TopicSpec(topic, stores=1, partitions=2))
        self.sent[topic] = Counter()

    def add_partition(self, topic: str, body: bytes) -> str:
        """Give broker 1 one more, with a record in it; its key."""
        self.server.add_topic(TopicSpec(topic, stores=1, partitions=3))
        added = Partition(1, topic, 2)
        with Producer(self.settings) as producer:
            list(producer.send_many(topic, [Record(body, partition=added)]))
        self.sent[topic][added.key, body] += 1
        return added.key

    def produce(self, topic: str, bodies: Iterable[str]) -> dict[str, int]:
        """Spread records over all partitions and flush; ends by partition key, from receipts."""
        with Producer(self.settings) as producer:
            partitions: list[Partition] = producer.partitions(topic)
            records = [
                Record(body.encode(), partition=partitions[i % len(partitions)])
                for i, body in enumerate(bodies)
            ]
            receipts = list(producer.send_many(topic, records))
        for record, receipt in zip(records, receipts, strict=True):
            self.sent[topic][receipt.partition.key, record.body] += 1
        for broker_id in (1, 2):
            self.server.broker(broker_id).store(topic, 0).flush()
        ends = {r.partition.key: r.offset + 28 for r in receipts}
        return {p.key: ends.get(p.key, 0) for p in partitions}


class RocketMQCluster:
    """An embedded RocketMQ of as many partitions as `Cluster`, with the same questions."""

    source = "rocketmq"
    keys = ("broker-a:0", "broker-a:1", "broker-b:0", "broker-b:1")
    entry = 1

    def __init__(self, server: EmbeddedRocketMQ) -> None:
        self.server = server
        self.settings = server.settings
        self.sent: dict[str, Counter[tuple[str, bytes]]] = {}

    def add_topic(self, topic: str) -> None:
        """Two queues on each broker."""
        self._make(topic, queues=2)
        self.sent[topic] = Counter()

    def add_partition(self, topic: str, body: bytes) -> str:
        """Give each broker one more queue, and one of them a record; its key."""
        self._make(topic, queues=3)
        with RocketMQProducer(self.settings) as producer:
            added = Queue("broker-a", topic, 2)
            producer.send(topic, body, queue=added)
        self.sent[topic][added.key, body] += 1
        return added.key

    def produce(self, topic: str, bodies: Iterable[str]) -> dict[str, int]:
        """Spread records over all queues, whose flushed ends follow at once; ends by key."""
        ends = dict.fromkeys(self.keys, 0)
        with RocketMQProducer(self.settings) as producer:
            queues = [Queue.from_key(topic, key) for key in self.keys]
            for i, body in enumerate(bodies):
                receipt = producer.send(topic, body.encode(), queue=queues[i % len(queues)])
                self.sent[topic][receipt.queue.key, body.encode()] += 1
                ends[receipt.queue.key] = receipt.offset + 1
        return ends

    def _make(self, topic: str, queues: int) -> None:
        with Admin(self.settings) as admin:
            admin.create_topic(topic, queues=queues)
