"""Peak memory of a read task's Python worker: `python -m tools.benchmarks.worker_memory`.

An embedded TubeMQ holds records of 100 B, of 1 KiB, and the largest that a topic allows (20 MiB);
Spark on `local[1]` reads each topic to nowhere and through tasks that write Parquet, each in a new
session. The output is the peak of resident memory (``VmHWM`` in /proc) of the largest of Spark's
Python workers, which outlive their tasks. Needs Linux.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from tubemq_client import Producer, ProducerSettings, Record
from tubemq_client.config import ClientConfig
from tubemq_client.embedded import EmbeddedTubeMQ, TopicSpec
from tubemq_provider.engines.session import SessionEngine
from tubemq_provider.engines.spark_runtime import open_session
from tubemq_provider.spark import register
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.protocols import IngestWatch, Staging

TOPICS: Final = {
    "small": (TopicSpec("small"), 100, 1_000_000),
    "kilobyte": (TopicSpec("kilobyte"), 1024, 200_000),
    # Some bytes are reserved for attributes and the frame.
    "largest": (TopicSpec("largest", max_message_mb=20), 20 * 2**20 - 1024, 12),
}
# Readers of the file get them; members of groups that keep up would not.
LARGE: Final = ProducerSettings(large_records="send")
CONTEXT: Final = multiprocessing.get_context("spawn")


def main() -> int:
    """Fill the topics, measure both ways of each in separate processes, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--topics", nargs="+", choices=TOPICS, default=list(TOPICS))
    chosen = {topic: TOPICS[topic] for topic in parser.parse_args().topics}
    specs = [spec for spec, _, _ in chosen.values()]
    with EmbeddedTubeMQ(brokers=1, topics=specs, http=False) as server:
        settings = ClientConfig.parse({"masters": server.masters}).settings()
        print("| Records | Way | Peak of a worker, MiB |\n|---|---|---|")
        for topic, (_, size, count) in chosen.items():
            with Producer(settings, producer=LARGE) as producer:
                body = os.urandom(size)
                records = (Record(body, {"key": "value"}) for _ in range(count))
                window = max(1, min(256, 32 * 2**20 // size))
                for _ in producer.send_many(topic, records, in_flight=window):
                    pass
            server.broker(1).flush()
            for way in ("to noop", "tasks write Parquet"):
                with CONTEXT.Pool(1) as pool:
                    peak = pool.apply(_peak, (server.masters, topic, count, way))
                print(f"| {count} of {size} B | {way} | {peak:.0f} |", flush=True)
    return 0


def _peak(masters: str, topic: str, count: int, way: str) -> float:
    spark, _ = open_session("local[1]", {"spark.log.level": "ERROR", "spark.driver.memory": "2g"})
    try:
        register(spark)
        if way == "to noop":
            options = {"masters": masters, "topic": topic, "group": "bench"}
            frame = spark.read.format("tubemq").options(**options).load()
            frame.write.format("noop").mode("overwrite").save()
        else:
            _ingest_direct(masters, topic, count)
        return max(_peaks(os.getpid()), default=0.0)
    finally:
        spark.stop()


def _ingest_direct(masters: str, topic: str, count: int) -> None:
    settings = ClientConfig.parse({"masters": masters}).settings()
    scope = WindowScope("bench", topic, "bench", "bench")
    plan = WindowPlan.explicit(scope, {"1:0": (0, count * 28)})
    with tempfile.TemporaryDirectory() as folder:
        staging = Staging(plan.window_id, "bench", folder)
        total = (
            SessionEngine(settings, direct_write="on").ingest(plan, staging, IngestWatch()).total
        )
    if total != count:
        raise SystemExit(f"{total} of {count} records")


def _peaks(pid: int) -> list[float]:
    """Return `VmHWM`, in MiB, of the Python processes below the JVM of this one."""
    peaks = []
    for child in _children(pid):
        with suppress(OSError):
            command = Path(f"/proc/{child}/cmdline").read_bytes()
            if b"pyspark" in command and b"java" not in command.split(b"\0")[0]:
                status = Path(f"/proc/{child}/status").read_text()
                peaks.append(int(status.split("VmHWM:")[1].split()[0]) / 1024)
        peaks += _peaks(child)
    return peaks


def _children(pid: int) -> list[int]:
    return [
        int(child)
        for path in Path(f"/proc/{pid}/task").glob("*/children")
        for child in path.read_text().split()
    ]


if __name__ == "__main__":
    raise SystemExit(main())
