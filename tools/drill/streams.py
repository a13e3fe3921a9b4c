"""A streaming job on a cluster while driver and executors are killed.

Run as `python -m tools.drill.streams`.

An embedded TubeMQ, a standalone Spark cluster of two worker processes, and a job that reads a topic
into files or a Delta table, one small batch after the other, while records keep arriving. Driver
(all of its processes at once) or an executor get SIGKILL in random order; an ended driver is
started again from its checkpoint. At the end the job reads the rest, and the table must hold each
acknowledged record once, in the partition of its receipt. Exit code 0 if it does, and there were
the requested numbers of kills and batches.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tools.devkit.patience import PATIENCE
from tools.devkit.processes import start_with_order
from tools.devkit.spark import QUICK_JAVA, SparkCluster
from tubemq_client import ClientSettings, Producer, Record
from tubemq_client.config import ClientConfig
from tubemq_client.embedded import EmbeddedTubeMQ, TopicSpec
from tubemq_provider.engines.java import find_java

__all__ = ["DrillResult", "Feed", "StreamDrill", "main"]

TOPIC: Final = "drill"
TICK_S: Final = 0.05
LAST_RUN_S: Final = 180


@dataclass(slots=True)
class Feed:
    """Records with receipts, produced a few at a time until there are enough."""

    server: EmbeddedTubeMQ
    per_tick: int = 20
    sent: Counter[tuple[str, bytes]] = field(default_factory=Counter)

    @property
    def settings(self) -> ClientSettings:
        """Client settings of the server."""
        return ClientConfig.parse({"masters": self.server.masters}).settings()

    def tick(self, producer: Producer) -> None:
        """Send some more records and make them stable."""
        before = self.sent.total()
        bodies = [b"%09d" % number for number in range(before, before + self.per_tick)]
        records = [Record(body) for body in bodies]
        receipts = producer.send_many(TOPIC, records, in_flight=32)
        for body, receipt in zip(bodies, receipts, strict=True):
            self.sent[receipt.partition.key, body] += 1
        for broker_id in self.server.broker_ids:
            self.server.broker(broker_id).flush()


@dataclass(frozen=True, slots=True)
class DrillResult:
    """Findings of a drill."""

    sink: str
    batches: int
    kills: Counter[str]
    ended_alone: int
    records: int
    lost: int
    doubled: int
    foreign: int

    @property
    def clean(self) -> bool:
        """True if the content equals the receipts."""
        return not (self.lost or self.doubled or self.foreign)

    def report(self) -> str:
        """Return one paragraph of text."""
        kills = ", ".join(f"{victim} {count}" for victim, count in sorted(self.kills.items()))
        return (
            f"{self.sink}: {self.batches} micro-batches, {self.kills.total()} kills ({kills}), "
            f"{self.ended_alone} drivers that ended by themselves; {self.records} records with "
            f"receipts: {self.lost} lost, {self.doubled} doubled, {self.foreign} never sent"
        )


class StreamDrill:
    """A drill of one sink, in one folder, with one seed."""

    def __init__(
        self, cluster: SparkCluster, feed: Feed, folder: Path, *, sink: str, seed: str = "1"
    ) -> None:
        self._cluster = cluster
        self._feed = feed
        self._folder = folder
        self._sink = sink
        self._chance = random.Random(f"{seed}-{sink}")  # noqa: S311 - a drill, no secret
        self._driver: subprocess.Popen[str] | None = None
        self._kills: Counter[str] = Counter()
        self._ended_alone = 0

    def play(self, *, kills: int, batches: int, limit_s: float) -> DrillResult:
        """Kill and continue until the requested numbers of kills and batches, or for `limit_s`
        seconds; then read the rest and audit."""
        (self._folder / "tmp").mkdir(parents=True, exist_ok=True)
        victims = [("driver", "executor")[number % 2] for number in range(kills)]
        self._chance.shuffle(victims)
        deadline = time.monotonic() + limit_s * PATIENCE
        try:
            with Producer(self._feed.settings) as producer:
                for number, victim in enumerate(victims, 1):
                    # At least one more, so that each kill hits a job that works again.
                    goal = max(batches * number // (kills + 1), self.batches() + 1)
                    if not self._until(producer, goal, deadline):
                        break
                    self._kill(victim)
                self._until(producer, batches, deadline)
            self._end_driver()
            return self._judge()
        finally:
            self._end_driver()

    def batches(self) -> int:
        """Return the number of micro-batches that the checkpoint has committed."""
        done = (self._folder / "checkpoint" / "commits").glob("[0-9]*")
        return max((int(path.name) + 1 for path in done if path.name.isdigit()), default=0)

    def _until(self, producer: Producer, batches: int, deadline: float) -> bool:
        """Produce, and keep a driver running, until `batches` are done; return False if
        time is up."""
        while self.batches() < batches:
            if time.monotonic() > deadline:
                return False
            if self._driver is None or self._driver.poll() is not None:
                self._ended_alone += self._driver is not None
                self._driver = self._start(last=False)
            self._feed.tick(producer)
            threading.Event().wait(TICK_S)
        return True

    def _kill(self, victim: str) -> None:
        """Kill after a random moment, so that every step of a batch is hit eventually."""
        threading.Event().wait(self._chance.random())
        executors = self._cluster.executors()
        if victim == "executor" and executors:
            os.kill(self._chance.choice(executors), signal.SIGKILL)
        else:
            victim = "driver"
            self._end_driver()
        self._kills[victim] += 1

    def _end_driver(self) -> None:
        """Kill the driver, its JVM and its Python processes at once."""
        if self._driver is not None:
            if self._driver.poll() is None:
                os.killpg(self._driver.pid, signal.SIGKILL)
            self._driver.wait(30)
            self._driver = None

    def _start(self, *, last: bool) -> subprocess.Popen[str]:
        order = {
            "folder": str(self._folder),
            "master": self._cluster.master_url,
            "sink": self._sink,
            "conf": _CONF,
            "last": last,
            "options": {
                "masters": self._feed.server.masters,
                "topic": TOPIC,
                "group": "drill",
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": "2000",
            },
        }
        tmp = str(self._folder / "tmp")
        return start_with_order(
            [sys.executable, "-m", "tools.drill.stream_driver"],
            order,
            log=self._folder / "driver.log",
            environment={"TMPDIR": tmp, "SPARK_LOCAL_IP": "127.0.0.1"},
        )

    def _judge(self) -> DrillResult:
        import pyarrow.parquet as pq

        self._driver = self._start(last=True)
        if self._driver.wait(LAST_RUN_S):
            raise RuntimeError(f"the last run failed\n{self._log()}")
        table = pq.read_table(self._folder / "content.parquet").to_pydict()
        written = Counter(zip(table["partition"], table["value"], strict=True))
        sent = self._feed.sent
        return DrillResult(
            self._sink,
            self.batches(),
            self._kills,
            self._ended_alone,
            sent.total(),
            lost=sum(record not in written for record in sent),
            doubled=sum(count - 1 for count in written.values()),
            foreign=sum(record not in sent for record in written),
        )

    def _log(self) -> str:
        return (self._folder / "driver.log").read_text(errors="replace")[-6000:]


_CONF: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.executor.extraJavaOptions": QUICK_JAVA,
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


def main() -> int:
    """Run a drill for each requested sink."""
    parser = argparse.ArgumentParser(prog="python -m tools.drill.streams", description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="for each sink (20)")
    parser.add_argument("--batches", type=int, default=200, help="for each sink (200)")
    parser.add_argument("--seed", default="1", help="seed of the victims and times")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds for each sink (900)")
    parser.add_argument("--sinks", nargs="+", choices=("parquet", "delta"))
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    clean = True
    for sink in options.sinks or ("parquet", "delta"):
        with tempfile.TemporaryDirectory(prefix="tubemq-drill-") as name:
            result = _play(Path(name), sink, options)
        full = result.kills.total() >= options.kills and result.batches >= options.batches
        clean = clean and result.clean and full
        print(result.report(), "" if full else "(time was up before)", flush=True)
    return 0 if clean else 1


def _play(folder: Path, sink: str, options: argparse.Namespace) -> DrillResult:
    topic = TopicSpec(TOPIC, partitions=2)
    with (
        EmbeddedTubeMQ(brokers=2, topics=[topic], http=False) as server,
        SparkCluster(folder / "cluster", find_java().home) as cluster,
    ):
        drill = StreamDrill(cluster, Feed(server), folder / "job", sink=sink, seed=options.seed)
        return drill.play(kills=options.kills, batches=options.batches, limit_s=options.limit)


if __name__ == "__main__":
    sys.exit(main())
