"""Benchmarks on one genuine broker, in one run: `make bench` or `python -m benchmarks [produce]`.

Producing is described in `produce`. Rows of reading, for 1 KiB and 100 B records: the raw fetch
rate (ceiling), the published Java client, the range reader with checksums and Arrow, Spark to a
no-op sink, Spark to Parquet. The share column is the one to quote: rates depend on the machine,
ratios within one run much less. Starts itself again inside a network namespace, because a genuine
TubeMQ binds every interface.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import overhead
from benchmarks.raw_fetch import Rate, raw_fetch
from tubemq_client import ClientSettings, Metadata, OffsetRange, Producer, RangeReader, Record
from tubemq_client.testing.artifacts import resolve_artifacts
from tubemq_client.testing.genuine import GenuineTubeMQ, TopicSpec
from tubemq_client.testing.isolation import can_isolate, is_isolated, isolated_command

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubemq_client import BrokerNode

SIZES = {"bench_1k": 1024, "bench_100": 100}
STABLE_DEADLINE_S = 120


def main() -> int:
    """Parse options, start the server, measure, print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "what", nargs="?", choices=("read", "produce"), default="read", help="default: read"
    )
    parser.add_argument("--in-flight", type=int, default=256, help="unanswered records (256)")
    parser.add_argument("--mib", type=int, default=256, help="payload MiB per topic (default 256)")
    parser.add_argument("--passes", type=int, default=3, help="passes of each row, best counts")
    parser.add_argument("--no-spark", action="store_true", help="leave the Spark rows out")
    parser.add_argument("--no-java", action="store_true", help="leave the Java row out")
    options = parser.parse_args()
    if not is_isolated() and can_isolate():
        resolve_artifacts()  # the namespace has no network
        command = isolated_command([sys.executable, "-m", "benchmarks", *sys.argv[1:]])
        os.execvp(command[0], command)

    topics = [TopicSpec(name) for name in SIZES]
    with GenuineTubeMQ(topics=topics, progress=_say) as server:
        server.wait_accepting()
        settings = ClientSettings(masters=(server.master_address,))
        if options.what == "produce":
            return _produce(server, options)
        for topic, size in SIZES.items():
            range_ = _fill(settings, topic, size, options.mib * 2**20 // size)
            with Metadata(settings) as metadata:
                broker = metadata.topic(topic).brokers[range_.partition.broker_id]
            rows = _measure(server, settings, broker, range_, options)
            _print(topic, size, rows)
    return overhead.main()


def _produce(server: GenuineTubeMQ, options: argparse.Namespace) -> int:
    from benchmarks.produce import JAVA, produce_rows

    for topic, size in SIZES.items():
        rows = produce_rows(server, topic, size, options)
        _print(topic, size, rows, ceiling=next(iter(rows)) if options.no_java else JAVA)
    return 0


def _fill(settings: ClientSettings, topic: str, size: int, count: int) -> OffsetRange:
    _say(f"{topic}: producing {count} records of {size} bytes")
    body = os.urandom(size)
    with Producer(settings) as producer:
        started = time.perf_counter()
        for _ in producer.send_many(topic, (Record(body) for _ in range(count)), in_flight=256):
            pass
        rate = count / (time.perf_counter() - started)
        _say(f"{topic}: produced at {rate:,.0f} records/s")
        partition = producer.partitions(topic)[0]
    end = count * 28
    deadline = time.monotonic() + STABLE_DEADLINE_S
    with Metadata(settings) as metadata:
        while metadata.ends(topic, "bench", [partition])[partition].max_offset < end:
            if time.monotonic() > deadline:
                raise SystemExit(f"{topic}: not on disk after {STABLE_DEADLINE_S} s")
            time.sleep(1)
    return OffsetRange(partition, 0, end)


def _measure(
    server: GenuineTubeMQ,
    settings: ClientSettings,
    broker: BrokerNode,
    range_: OffsetRange,
    options: argparse.Namespace,
) -> dict[str, Rate]:
    def best(run: Callable[[], Rate]) -> Rate:
        return min((run() for _ in range(options.passes)), key=lambda rate: rate.seconds)

    rows = {"raw fetch": best(lambda: raw_fetch(settings, broker, range_))}
    if not options.no_java:
        from benchmarks.java_client import run_java_reader

        found = run_java_reader(server, range_.partition.topic, range_.entries)
        rows["Java client 1.13.0"] = Rate(found["records"], found["bytes"], found["seconds"])
    rows["RangeReader + CRC"] = best(lambda: _range_reader(settings, broker, range_, arrow=False))
    rows["RangeReader + CRC + Arrow"] = best(
        lambda: _range_reader(settings, broker, range_, arrow=True)
    )
    rows["raw fetch (again)"] = best(lambda: raw_fetch(settings, broker, range_))
    if not options.no_spark:
        from benchmarks.spark_read import spark_rows

        with tempfile.TemporaryDirectory() as folder:
            rows |= spark_rows(settings, range_, Path(folder), options.passes)
    return rows


def _range_reader(
    settings: ClientSettings, broker: BrokerNode, range_: OffsetRange, *, arrow: bool
) -> Rate:
    import pyarrow as pa

    schema = pa.schema([("partition", pa.string()), ("offset", pa.int64()), ("value", pa.binary())])
    records = size = 0
    started = time.perf_counter()
    with RangeReader(settings, group="bench", brokers={broker.broker_id: broker}) as reader:
        for batch in reader.read(range_):
            if arrow:
                records += batch.to_arrow(schema).num_rows
            else:
                records += len(batch)
        size = reader.stats.bytes
    return Rate(records, size, time.perf_counter() - started)


def _print(topic: str, size: int, rows: dict[str, Rate], ceiling: str = "raw fetch") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{topic}: {size} byte records, one partition")
    for name in ("path", "records", "records/s", "MiB/s", f"share of {ceiling}"):
        table.add_column(name, justify="left" if name == "path" else "right")
    whole = rows[ceiling].records_per_s
    for name, rate in rows.items():
        table.add_row(
            name,
            f"{rate.records:,}",
            f"{rate.records_per_s:,.0f}",
            f"{rate.records * size / rate.seconds / 2**20:,.1f}",
            f"{rate.records_per_s / whole:.2f}",
        )
    Console().print(table)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    raise SystemExit(main())
