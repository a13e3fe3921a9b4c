"""Benchmarks on one genuine broker, in one run: `make bench` or `python -m tools.benchmarks
[produce]`.

Producing is described in `produce`. Rows of reading, for 1 KiB and 100 B records of which three in
four carry attributes (`--plain`: none do): the raw fetch rate (ceiling), the published Java client,
which takes bodies only, the range reader with checksums, into Arrow (nine columns), the same with
the Python decoder and over two and three connections, Spark to a no-op sink, Spark to Parquet. Each
pass measures every row in turn on the same broker (`interleaved`), Java in one warm JVM. The
columns of ratios are the ones to quote: rates depend on the machine and the moment, ratios within
one pass much less. Starts itself again inside a network namespace, because a genuine TubeMQ binds
every interface.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tools.benchmarks import overhead
from tools.benchmarks.interleaved import Rate, interleave, print_table, timed
from tools.benchmarks.raw_fetch import raw_fetch
from tools.devkit.isolation import can_isolate, is_isolated, isolated_command
from tools.devkit.tubemq.artifacts import resolve_artifacts
from tools.devkit.tubemq.genuine import GenuineTubeMQ, TopicSpec
from tubemq_client import (
    COLUMNS,
    ClientSettings,
    Metadata,
    OffsetRange,
    Producer,
    RangeReader,
    Record,
)
from tubemq_client._core.columns import native_types
from tubemq_client._wire import native

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubemq_client import BrokerNode

RAW = "raw fetch"
JAVA = "Java client 1.13.0"
SIZES = {"bench_1k": 1024, "bench_100": 100}
STABLE_DEADLINE_S = 120


def main() -> int:
    """Parse options, start the server, measure, print the tables."""
    options = _options()
    reading = options.what == "read"
    options.mib = options.mib or (256 if reading else 128)
    options.passes = options.passes or (5 if reading else 3)
    if not is_isolated() and can_isolate():
        resolve_artifacts()  # the namespace has no network
        command = isolated_command([sys.executable, "-m", "tools.benchmarks", *sys.argv[1:]])
        os.execvp(command[0], command)

    topics = [TopicSpec(name) for name in SIZES]
    with GenuineTubeMQ(topics=topics, progress=_say) as server:
        server.wait_accepting()
        settings = ClientSettings(masters=(server.master_address,))
        if options.what == "produce":
            return _produce(server, options)
        for topic, size in SIZES.items():
            if options.size not in (None, size):
                continue
            count = options.mib * 2**20 // size
            range_ = _fill(settings, topic, size, count, plain=options.plain)
            with Metadata(settings) as metadata:
                broker = metadata.topic(topic).brokers[range_.partition.broker_id]
            rows = _measure(server, settings, broker, range_, size, options)
            _print(topic, size, rows, (RAW, JAVA))
    return overhead.main()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.benchmarks", description=__doc__)
    parser.add_argument(
        "what", nargs="?", choices=("read", "produce"), default="read", help="default: read"
    )
    parser.add_argument("--in-flight", type=int, default=256, help="unanswered records (256)")
    parser.add_argument("--mib", type=int, help="payload MiB per topic (read 256, produce 128)")
    parser.add_argument("--passes", type=int, help="passes that count (read 5, produce 3)")
    parser.add_argument(
        "--seconds", type=float, default=3.0, help="least time of a reader's turn in a pass (3)"
    )
    parser.add_argument(
        "--size", type=int, choices=SIZES.values(), help="records of this size only (both)"
    )
    parser.add_argument("--plain", action="store_true", help="records without attributes")
    parser.add_argument("--no-spark", action="store_true", help="leave the Spark rows out")
    parser.add_argument("--no-java", action="store_true", help="leave the Java row out")
    return parser.parse_args()


def _produce(server: GenuineTubeMQ, options: argparse.Namespace) -> int:
    from tools.benchmarks import produce

    for topic, size in SIZES.items():
        rows = produce.produce_rows(server, topic, size, options)
        _print(topic, size, rows, (produce.JAVA if produce.JAVA in rows else next(iter(rows)),))
    return 0


def _fill(
    settings: ClientSettings, topic: str, size: int, count: int, *, plain: bool
) -> OffsetRange:
    _say(f"{topic}: producing {count} records of {size} bytes")
    body = os.urandom(size)
    bare, marked = Record(body), Record(body, stream_id="red", msg_time="202611211200")
    records = (bare if plain or number % 4 == 0 else marked for number in range(count))
    with Producer(settings) as producer:
        started = time.perf_counter()
        for _ in producer.send_many(topic, records, in_flight=256):
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
    size: int,
    options: argparse.Namespace,
) -> dict[str, list[Rate]]:
    ways: dict[str, Callable[[], Rate]] = {
        RAW: lambda: timed(lambda: raw_fetch(settings, broker, range_), size)
    }
    with ExitStack() as stack:
        if not options.no_java:
            from tools.benchmarks.java_client import READER, JavaClient

            place = (server.masters, range_.partition.topic, str(range_.entries))
            ways[JAVA] = stack.enter_context(JavaClient(server, READER, *place)).run
        read = partial(_range_reader, settings, broker, range_, size)
        ways["RangeReader + CRC"] = partial(read, arrow=False)
        ways["RangeReader + CRC + Arrow"] = read
        for parallel in (2, 3):
            ways[f"  over {parallel} connections"] = partial(read, parallel=parallel)
        if native.enabled():
            ways["  Python decoder"] = partial(_in_python, read)
        if not options.no_spark:
            from tools.benchmarks.spark_read import spark_ways

            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            ways |= stack.enter_context(spark_ways(settings, range_, folder, size))
        return interleave(ways, passes=options.passes, seconds=options.seconds)


def _in_python(read: Callable[[], Rate]) -> Rate:
    """Read without the compiled decoder."""
    scan, native._scan = native._scan, None  # noqa: SLF001 - a benchmark may look behind the switch
    try:
        return read()
    finally:
        native._scan = scan  # noqa: SLF001


def _range_reader(
    settings: ClientSettings,
    broker: BrokerNode,
    range_: OffsetRange,
    size: int,
    *,
    arrow: bool = True,
    parallel: int = 1,
) -> Rate:
    import pyarrow as pa

    types = native_types()
    schema = pa.schema([(name, types[name]) for name in COLUMNS])

    def read() -> int:
        with RangeReader(settings, group="bench", brokers={broker.broker_id: broker}) as reader:
            batches = reader.read(range_, parallel=parallel)
            if arrow:
                return sum(batch.to_arrow(schema).num_rows for batch in batches)
            return sum(map(len, batches))

    rate = timed(read, size)
    if rate.records != range_.entries:
        raise SystemExit(f"the range reader read {rate.records} of {range_.entries} records")
    return rate


def _print(topic: str, size: int, rows: dict[str, list[Rate]], against: tuple[str, ...]) -> None:
    print_table(f"{topic}: {size} byte records, one partition", rows, against)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    raise SystemExit(main())
