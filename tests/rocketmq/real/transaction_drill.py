"""Drill of transactions: half records that are committed, rolled back or forgotten, by producers
that are killed, at a broker that is killed; then exactly the committed ones are readable.

``python -m tools.devkit.isolation -- python -m tests.rocketmq.real.transaction_drill --count 1000``
starts a genuine cluster; ``--line 4.9.7`` chooses the servers. The fate of a record follows from
its number, which any producer of the group tells a broker that asks.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from rocketmq_client import (
    ClientSettings,
    Message,
    Metadata,
    QueueRange,
    RangeReader,
    TransactionalProducer,
    errors,
)
from rocketmq_client._wire.bodies import parse_address
from rocketmq_client.model import Decision, address_text
from tests.rocketmq.sites import Site, site_of

PATIENCE_S = 240.0
FORGOTTEN_MS = 5_000
"""Time before its death of which a 5.x broker forgets which halves ended
(`transactionOpBatchInterval`, 3 s, and what writing takes)."""


def fate(number: int) -> Decision:
    """Return how the application ends the transaction of this record."""
    return random.Random(number).choice(["commit", "rollback"])


def check(message: Message) -> Decision:
    """Answer a broker that asks."""
    return fate(int(message.body))


def produce(server: str, topic: str, first: int, count: int) -> None:
    """Begin transactions and end two of three; report each half that the broker has."""
    settings = ClientSettings((parse_address(server),), rpc_timeout_ms=5_000, route_period_ms=1_000)
    with TransactionalProducer(settings, topic, [topic], check) as producer:
        for number in range(first, count):
            print("TRIED", number, flush=True)
            try:
                half = producer.begin(topic, b"%d" % number)
            except errors.RocketMQError:
                time.sleep(0.5)
                continue
            print("BEGAN", number, flush=True)
            if number % 3 == 0:
                continue  # the broker has to ask
            end = producer.commit if fate(number) == "commit" else producer.rollback
            try:
                end(half)
            except errors.RocketMQError:
                time.sleep(0.5)
        print("DONE", count, flush=True)


class Drill:
    """One drill on a running cluster."""

    def __init__(self, site: Site, count: int) -> None:
        self.site, self.count = site, count
        self.topic = site.topic(4)
        self.tried: set[int] = set()
        self.began: set[int] = set()
        self.kills: Counter[str] = Counter()
        self.broker_kills_ms: list[float] = []
        self.stored_ms: dict[int, list[int]] = {}
        self._chance = random.Random(32)

    def producer(self) -> subprocess.Popen[str]:
        """Start a producer that continues after the last one."""
        server = address_text(self.site.settings.name_servers[0])
        words = [server, self.topic, str(max(self.tried, default=-1) + 1), str(self.count)]
        module = "tests.rocketmq.real.transaction_drill"
        command = [sys.executable, "-m", module, "--produce", *words]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self._read, args=(process,), daemon=True).start()
        return process

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            word, number = line.split()
            if word in {"TRIED", "BEGAN"}:
                (self.tried if word == "TRIED" else self.began).add(int(number))

    def readable(self) -> Counter[int]:
        """Return the numbers of all records that readers see."""
        found: Counter[int] = Counter()
        stored: dict[int, list[int]] = {}
        settings = self.site.settings
        with Metadata(settings) as metadata, RangeReader(settings, group="drill") as reader:
            for queue, ends in metadata.ends(self.topic, stable=False).items():
                for batch in reader.read(QueueRange(queue, ends.min_offset, ends.max_offset)):
                    for message in batch.messages():
                        found[int(message.body)] += 1
                        stored.setdefault(int(message.body), []).append(message.store_ms)
        self.stored_ms = stored
        return found

    def forgotten(self, number: int) -> bool:
        """Return True for a record that was committed first in the seconds before a kill of the
        broker, which then forgot that its half had ended."""
        first = min(self.stored_ms[number])
        return any(0 <= kill - first <= FORGOTTEN_MS for kill in self.broker_kills_ms)

    def run(self) -> bool:
        """Send and kill until all records were tried, then wait for what was committed."""
        process = self.producer()
        broker_kills = [self.count // 3, 2 * self.count // 3]
        next_kill = time.monotonic() + self._chance.uniform(3, 8)
        while len(self.tried) < self.count or process.poll() is None:
            time.sleep(0.1)
            if broker_kills and len(self.tried) > broker_kills[0]:
                broker_kills.pop(0)
                self.broker_kills_ms.append(time.time() * 1000)
                self.site.cluster.kill_broker()
                time.sleep(2)
                self.site.cluster.start_broker()
                self.kills["broker"] += 1
            if process.poll() is not None or time.monotonic() > next_kill:
                self.kills["producer"] += process.poll() is None
                process.kill()
                process.wait()
                time.sleep(0.2)
                next_kill = time.monotonic() + self._chance.uniform(5, 12)
                if len(self.tried) < self.count:
                    process = self.producer()
        wanted = {number for number in self.began if fate(number) == "commit"}
        settings, began = self.site.settings, time.monotonic()
        with TransactionalProducer(settings, self.topic, [self.topic], check):
            found = self.readable()
            while wanted - found.keys() and time.monotonic() - began < PATIENCE_S:
                time.sleep(2)
                found = self.readable()
            time.sleep(15)  # what must not come would come now
            found = self.readable()
        wrong = [number for number in found if fate(number) != "commit"]
        twice = [number for number, times in found.items() if times > 1]
        lost = sorted(wanted - found.keys())
        print(
            f"{self.site.name}: {len(self.tried)} tried, {len(self.began)} halves acknowledged, "
            f"kills {dict(self.kills)}; {len(wanted)} to be readable, {len(found)} are; "
            f"lost {lost[:9]}, rolled back but readable {wrong[:9]}, twice {twice[:9]}, of these "
            f"committed in the seconds before a kill of the broker: "
            f"{sum(map(self.forgotten, twice))}"
        )
        return not (lost or wrong or twice)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument("--line", choices=["4.9.7", "5.5.0"], default="5.5.0")
    parser.add_argument("--produce", nargs=4, help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.produce:
        server, topic, first, count = words.produce
        produce(server, topic, int(first), int(count))
        return 0
    with tempfile.TemporaryDirectory() as folder, site_of(words.line, Path(folder)) as site:
        return 0 if Drill(site, words.count).run() else 1


if __name__ == "__main__":
    raise SystemExit(main())
