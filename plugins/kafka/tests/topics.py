"""Topics, records and transactions of a genuine broker."""

from __future__ import annotations

import time
import uuid
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic


class Topics:
    """What a test does at a broker beside the plug-in."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.admin = AdminClient({"bootstrap.servers": address, "log_level": "2"})
        self.producer = self.new_producer()

    def new_producer(self, **options: Any) -> Producer:
        own = {name.replace("_", "."): value for name, value in options.items()}
        return Producer(
            {"bootstrap.servers": self.address, "log_level": "2", "linger.ms": 5, **own}
        )

    def create(self, name: str = "", partitions: int = 2, **config: str) -> str:
        name = name or f"t{uuid.uuid4().hex[:8]}"
        config = {"retention_ms": "-1", **config}
        own = {key.replace("_", "."): value for key, value in config.items()}
        new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=own)
        for each in self.admin.create_topics([new]).values():
            each.result(30)
        self.await_partitions(name, partitions)
        return name

    def await_partitions(self, name: str, partitions: int) -> None:
        """Wait until brokers answer for all of them: a change is accepted before it is known."""
        deadline = time.monotonic() + 30
        while True:
            found = self.admin.list_topics(name, timeout=10).topics[name]
            if found.error is None and len(found.partitions) == partitions:
                return
            assert time.monotonic() < deadline, found
            time.sleep(0.1)

    def delete(self, name: str) -> None:
        for each in self.admin.delete_topics([name]).values():
            each.result(30)

    def grow(self, name: str, partitions: int) -> None:
        for each in self.admin.create_partitions([NewPartitions(name, partitions)]).values():
            each.result(30)
        self.await_partitions(name, partitions)

    def send(self, topic: str, values: list[str], partition: int = 0, **more: Any) -> None:
        for value in values:
            self.producer.produce(topic, value, partition=partition, **more)
        assert self.producer.flush(30) == 0

    def transaction(self, topic: str, values: list[str], partition: int = 0, **how: Any) -> None:
        """Send `values` in one transaction; abort it with ``commit=False``."""
        producer = self.open_transaction(topic, values, partition)
        (producer.commit_transaction if how.get("commit", True) else producer.abort_transaction)(30)

    def open_transaction(self, topic: str, values: list[str], partition: int = 0) -> Producer:
        producer = self.new_producer(transactional_id=uuid.uuid4().hex)
        producer.init_transactions(30)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=partition)
        assert producer.flush(30) == 0
        return producer
