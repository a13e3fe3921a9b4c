"""Topic with known records, and windows of it: shared by tests of windows."""

from __future__ import annotations

import time
from pathlib import Path

from rocketmq_client import Producer, ProducerSettings, errors
from tests.rocketmq.windows.child import run_killed, run_window
from tools.devkit.patience import PATIENCE
from tubemq_provider.sinks.read import published_windows, read_windows
from tubemq_provider.windows.verify import chain_problems

__all__ = ["ALL", "Topic"]

PLANNED = ("plan", "task plan stored", 1)
"""Point at which a killed run leaves nothing but its plan."""
ALL = ("broker-a:0", "broker-a:1", "broker-b:0", "broker-b:1")
"""Two queues at each of two brokers."""


class Topic:
    """Topic with known records, and windows of it."""

    def __init__(self, settings, topic: str, root: Path) -> None:
        self.settings, self.topic, self.root = settings, topic, root
        self.receipts: dict[tuple[str, int], bytes] = {}
        self.sent = self.runs = 0

    def produce(self, count: int, tags: str | None = None) -> None:
        options = ProducerSettings(retries=20)
        with Producer(self.settings, producer=options) as producer:
            for _ in range(count):
                self.sent += 1
                body = b"%d" % self.sent
                try:
                    receipt = producer.send(self.topic, body, tags=tags)
                except errors.RocketMQError:
                    continue  # it may have been stored
                self.receipts[receipt.queue.key, receipt.offset] = body

    def run(self, task: str | None = None, **options):
        self.runs += 1
        name_server = self.settings.name_servers[0]
        task = task or f"task-{self.runs}"
        options = {"auth": self.settings.auth, **options}
        return run_window(name_server, self.topic, str(self.root), task, **options)

    def run_killed(self, task: str, point=PLANNED, **options) -> None:
        """Kill a run at a point; by default nothing is left of it but its plan."""
        name_server = self.settings.name_servers[0]
        run_killed(name_server, self.topic, str(self.root), task, point, **options)

    def catch_up(self) -> None:
        """Run windows until all acknowledged records are on disk and in the sink."""
        deadline = time.monotonic() + 60 * PATIENCE
        while not self.receipts.keys() <= self.rows().keys():
            assert time.monotonic() < deadline, "the stable end does not come"
            self.run()
            time.sleep(0.2)

    def rows(self) -> dict[tuple[str, int], bytes]:
        """Return every record in the sink; none twice."""
        if not (self.root / "lake").exists():
            return {}
        table = read_windows(self.root / "lake").to_table().to_pylist()
        records = {(row["partition"], row["offset"]): row["value"] for row in table}
        assert len(records) == len(table), "a record came twice"
        return records

    def check(self) -> None:
        records = self.rows()
        assert self.receipts.items() <= records.items()
        plans = [marker.plan for marker in published_windows(self.root / "lake")]
        assert chain_problems(plans) == []
        for key in {key for key, _ in records}:
            offsets = sorted(offset for name, offset in records if name == key)
            assert offsets == list(range(len(offsets))), "every offset, from the first on"
