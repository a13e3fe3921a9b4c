"""The same job on TubeMQ and on Kafka, in turns: `python -m tools.benchmarks.kafka [--size 100]`.

A genuine TubeMQ and a genuine Kafka (both from Maven) on loopback hold the same number of records
with bodies from the same file in one partition; three in four of TubeMQ's carry attributes. One
Spark session on `local[2]` reads each in two splits, four columns (partition, offset, time, body),
to nowhere and to Parquet by Spark's writer; then TubeMQ's tasks write Parquet themselves, over one
connection each and over two, and pyarrow alone writes the same rows from memory in one thread. Raw
fetches (see `raw_fetch`) over one connection and more, each in a separate process, show the
broker's limit. Every pass measures every way (see `interleaved`): quote ratios. `--json` saves the
figures for `tools.benchmarks.plots`.

The connector must be that of Spark's release; if Maven has none as new, run this in an environment
of `make test-spark-matrix`, such as `build/spark-4.2/bin/python -m tools.benchmarks.kafka`, or skip
Kafka with `--no-kafka`. `--replayed` has neither broker, but one that serves at almost no cost (see
`replay`): the speed of Spark's tasks when they never wait.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tools.benchmarks.interleaved import Rate, Spread, interleave, print_table, shares
from tools.benchmarks.raw_fetch import raw_fetch
from tools.benchmarks.replay import ReplayingTubeMQ
from tools.devkit.isolation import can_isolate, is_isolated, isolated_command
from tools.devkit.kafka import KAFKA_VERSION, Kafka, broker_jars, connector_jars
from tools.devkit.tubemq.artifacts import SERVER_VERSION, resolve_artifacts
from tools.devkit.tubemq.genuine import GenuineTubeMQ, TopicSpec
from tubemq_client import ClientSettings, Metadata, OffsetRange, Partition, Producer, Record
from tubemq_provider.engines.java import find_java
from tubemq_provider.engines.session import SessionEngine
from tubemq_provider.engines.spark_runtime import open_session
from tubemq_provider.sources.tubemq.columns import RECORDS
from tubemq_provider.spark import register
from tubemq_provider.spark.splits import split_ranges
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.protocols import IngestWatch, Staging

if TYPE_CHECKING:
    from multiprocessing.pool import Pool

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from tubemq_client import BrokerNode
    from tubemq_client.model import Address

TOPIC: Final = "compared"
ENTRY: Final = 28
DISTINCT: Final = 20_000
NOOP, KAFKA_NOOP = "TubeMQ to noop", "Kafka to noop"
PARQUET, KAFKA_PARQUET = "TubeMQ to Parquet", "Kafka to Parquet"
DIRECT, ALONE = "TubeMQ, tasks write Parquet", "pyarrow alone"
DIRECT_2 = "the same over two connections each"
FEW: Final = ("partition", "offset", "msg_time", "value")
IN_MEMORY_BYTES: Final = 256 * 2**20
CONNECTIONS: Final = (1, 2, 3, 4)
RAW: Final = {number: f"raw fetch, connections: {number}" for number in CONNECTIONS}
RATIOS: Final = (
    (NOOP, KAFKA_NOOP),
    (PARQUET, KAFKA_PARQUET),
    (DIRECT, PARQUET),
    (DIRECT, KAFKA_PARQUET),
    (DIRECT, ALONE),
    (DIRECT_2, PARQUET),
    (DIRECT_2, KAFKA_PARQUET),
    (DIRECT_2, ALONE),
    (DIRECT, RAW[2]),
    (DIRECT_2, RAW[4]),
    *((raw, ALONE) for raw in RAW.values()),
)


def main() -> int:
    """Start both brokers, fill them, measure in turns, print the table and the ratios."""
    options = _options()
    import pyspark

    release = ".".join(pyspark.__version__.split(".")[:2])
    if not options.replayed and not is_isolated() and can_isolate():
        resolve_artifacts()  # the namespace has no network
        if options.kafka:
            broker_jars()
            connector_jars(options.connector or f"{release}.0")
        command = isolated_command([sys.executable, "-m", "tools.benchmarks.kafka", *sys.argv[1:]])
        os.execvp(command[0], command)
    jars = connector_jars(options.connector or f"{release}.0") if options.kafka else []
    with tempfile.TemporaryDirectory(prefix="tubemq-bench-") as name:
        rates_by_way = _compared(Path(name), options, jars)
    print_table(f"{options.size} B, PySpark {pyspark.__version__}, local[2]", rates_by_way)
    measured = [(name, of) for name, of in RATIOS if name in rates_by_way and of in rates_by_way]
    ratios = {f"{name} ÷ {of}": shares(rates_by_way, name, of) for name, of in measured}
    for name, spread in ratios.items():
        print(f"{name}: {spread.median:.2f} ({spread.low:.2f} to {spread.high:.2f})")
    print("load:", " ".join(f"{load:.1f}" for load in os.getloadavg()))
    if options.json:
        _save(options, pyspark.__version__, rates_by_way, ratios)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.benchmarks.kafka", description=__doc__)
    parser.add_argument("--size", type=int, default=100, help="bytes of a body (100)")
    parser.add_argument("--records", type=int, help="records (1 000 000; of 1 KiB 250 000)")
    parser.add_argument("--passes", type=int, default=5, help="passes that count (5)")
    parser.add_argument("--connector", help="release of spark-sql-kafka (that of Spark, .0)")
    parser.add_argument("--no-kafka", dest="kafka", action="store_false", help="TubeMQ only")
    parser.add_argument("--replayed", action="store_true", help="a broker that costs nothing")
    parser.add_argument(
        "--all-columns", action="store_true", help="all nine of TubeMQ, attributes too, not four"
    )
    parser.add_argument("--json", type=Path, help="add the figures to this file")
    options = parser.parse_args()
    options.kafka = options.kafka and not options.replayed
    options.records = options.records or (1_000_000 if options.size < 512 else 250_000)
    return options


def _compared(folder: Path, options: argparse.Namespace, jars: list[Path]) -> dict[str, list[Rate]]:
    with ExitStack() as stack:
        master = _broker(options, stack)
        bodies, kafka = _bodies(folder / "bodies", options.size), None
        if options.kafka:
            kafka = stack.enter_context(Kafka(folder / "kafka", find_java()))
            _fill_kafka(kafka, folder / "bodies", options.records)
        settings = ClientSettings(masters=(master,))
        partition = _fill_tubemq(settings, bodies, options.records)
        conf = {"spark.jars": ",".join(map(str, jars)), "spark.driver.memory": "3g"}
        spark, _ = open_session("local[2]", conf)
        stack.callback(spark.stop)
        register(spark)
        workers = stack.enter_context(get_context("spawn").Pool(max(CONNECTIONS)))
        address = None if kafka is None else kafka.address
        job = _Job(spark, settings, partition, address, options, folder, workers=workers)
        return interleave(job.ways(), passes=options.passes)


def _broker(options: argparse.Namespace, stack: ExitStack) -> Address:
    """Start the selected TubeMQ; return its master's address."""
    if options.replayed:
        return stack.enter_context(ReplayingTubeMQ([TOPIC])).master_address
    genuine = stack.enter_context(GenuineTubeMQ(topics=[TopicSpec(TOPIC)], progress=_say))
    genuine.wait_accepting()
    return genuine.master_address


def _bodies(path: Path, size: int) -> list[bytes]:
    """Write lines of printable bytes that do not compress well, too many for a dictionary page."""
    raw = size * 3 // 4 + 3
    bodies = [base64.b64encode(os.urandom(raw))[:size] for _ in range(DISTINCT)]
    path.write_bytes(b"\n".join(bodies) + b"\n")
    return bodies


def _fill_kafka(kafka: Kafka, bodies: Path, records: int) -> None:
    _say(f"Kafka: producing {records} records")
    kafka.run(
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", kafka.address, "--create", "--topic", TOPIC),
        *("--partitions", "1", "--replication-factor", "1"),
    )
    kafka.run(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", TOPIC, "--num-records", str(records), "--throughput", "-1"),
        *("--payload-file", str(bodies)),
        *("--producer-props", f"bootstrap.servers={kafka.address}", "acks=all"),
    )


def _fill_tubemq(settings: ClientSettings, bodies: list[bytes], count: int) -> Partition:
    _say(f"TubeMQ: producing {count} records")
    source = random.Random(1)  # noqa: S311 - which body comes when is no secret
    with Producer(settings) as producer:
        partition = producer.partitions(TOPIC)[0]
        records = (
            Record(source.choice(bodies), stream_id="red", msg_time="202611211200")
            if number % 4
            else Record(source.choice(bodies))
            for number in range(count)
        )
        for _ in producer.send_many(TOPIC, records, in_flight=256):
            pass
    deadline = time.monotonic() + 120
    with Metadata(settings) as metadata:
        while metadata.ends(TOPIC, "bench", [partition])[partition].max_offset < count * ENTRY:
            if time.monotonic() > deadline:
                raise SystemExit("TubeMQ: not on disk after 120 s")
            time.sleep(1)
    return partition


class _Job:
    """Measured ways of one session."""

    def __init__(
        self,
        spark: SparkSession,
        settings: ClientSettings,
        partition: Partition,
        kafka: str | None,
        options: argparse.Namespace,
        folder: Path,
        *,
        workers: Pool,
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._partition = partition
        self._kafka_address = kafka
        self._records: int = options.records
        self._size: int = options.size
        self._columns = ",".join(RECORDS.names if options.all_columns else FEW)
        self._folder = folder
        self._workers = workers

    def ways(self) -> dict[str, Callable[[], Rate]]:
        """Return the ways by name; each is checked for its number of records."""
        tubemq, runs = self._tubemq(), dict[str, Callable[[], None]]()
        frames = [(NOOP, PARQUET, tubemq)]
        if self._kafka_address is not None:
            frames.append((KAFKA_NOOP, KAFKA_PARQUET, self._kafka()))
        for noop, parquet, frame in frames:
            count = frame.count()
            if count != self._records:
                raise SystemExit(f"{count} of {self._records} records")
            runs |= {noop: partial(_noop, frame), parquet: partial(self._parquet, frame)}
        runs |= {DIRECT: self._direct, DIRECT_2: partial(self._direct, connections=2)}
        runs[ALONE] = partial(self._alone, self._in_memory(tubemq))
        with Metadata(self._settings) as metadata:
            broker = metadata.topic(TOPIC).brokers[self._partition.broker_id]
        for number, name in RAW.items():
            runs[name] = partial(self._raw, broker, number)
        return {name: partial(self._timed, run) for name, run in runs.items()}

    def _timed(self, run: Callable[[], None]) -> Rate:
        started = time.perf_counter()
        run()
        return Rate(self._records, self._records * self._size, time.perf_counter() - started)

    def _tubemq(self) -> DataFrame:
        host, port = self._settings.masters[0]
        topic, key = self._partition.topic, self._partition.key
        reader = self._spark.read.format("tubemq").options(
            masters=f"{host}:{port}",
            topic=topic,
            group="bench_spark",
            startingOffsets=json.dumps({topic: {key: 0}}),
            endingOffsets=json.dumps({topic: {key: self._records * ENTRY}}),
            minPartitions="2",
            maxRecordsPerPartition=str(self._records),
            columns=self._columns,
        )
        return reader.load()

    def _kafka(self) -> DataFrame:
        reader = self._spark.read.format("kafka").options(
            **{"kafka.bootstrap.servers": self._kafka_address},
            subscribe=TOPIC,
            startingOffsets="earliest",
            endingOffsets="latest",
            minPartitions="2",
        )
        return reader.load().select("partition", "offset", "timestamp", "value")

    def _parquet(self, frame: DataFrame) -> None:
        frame.write.mode("overwrite").parquet(str(self._folder / "out"))

    def _raw(self, broker: BrokerNode, connections: int) -> None:
        whole = OffsetRange(self._partition, 0, self._records * ENTRY)
        splits = split_ranges([whole], max_records=self._records, min_partitions=connections)
        self._workers.starmap(
            raw_fetch, [(self._settings, broker, split.range, split.index) for split in splits]
        )

    def _direct(self, connections: int = 1) -> None:
        scope = WindowScope("bench", TOPIC, "bench_spark", "bench")
        range_ = (0, self._records * ENTRY)
        plan = WindowPlan.explicit(scope, {self._partition.key: range_})
        options = {
            "columns": self._columns,
            "minPartitions": "2",
            "maxRecordsPerPartition": str(self._records),
            "connectionsPerTask": str(connections),
        }
        engine = SessionEngine(self._settings, options=options, direct_write="on")
        with tempfile.TemporaryDirectory(dir=self._folder) as staging:
            staging_place = Staging(plan.window_id, "bench", staging)
            total = engine.ingest(plan, staging_place, IngestWatch()).total
        if total != self._records:
            raise SystemExit(f"direct: {total} of {self._records} records")

    def _in_memory(self, frame: DataFrame) -> pa.Table:
        """Return rows in the form in which tasks write them, in chunks of 4 MiB of bodies; as many
        as Spark's driver can hold."""
        import pyarrow as pa

        table = frame.limit(min(self._records, IN_MEMORY_BYTES // self._size)).toArrow()
        step = max(1, 4 * 2**20 // self._size)
        return pa.Table.from_batches(table.combine_chunks().to_batches(max_chunksize=step))

    def _alone(self, table: pa.Table) -> None:
        import pyarrow.parquet as pq

        remaining = self._records
        with pq.ParquetWriter(self._folder / "alone.parquet", table.schema) as writer:
            while remaining:
                for batch in table.slice(0, remaining).to_batches():
                    writer.write_batch(batch, row_group_size=table.num_rows)
                remaining -= min(remaining, table.num_rows)


def _noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _save(
    options: argparse.Namespace,
    spark: str,
    rates_by_way: dict[str, list[Rate]],
    ratios: dict[str, Spread],
) -> None:
    """Add this run to the file, replacing an earlier one of its size."""
    results: dict[str, Any] = json.loads(options.json.read_text()) if options.json.exists() else {}
    results[str(options.size)] = {
        "records": options.records,
        "passes": options.passes,
        "pyspark": spark,
        "kafka": KAFKA_VERSION,
        "tubemq": SERVER_VERSION,
        "load": [round(load, 1) for load in os.getloadavg()],
        "records_per_s": {
            name: Spread.of([round(rate.records_per_s) for rate in rates])._asdict()
            for name, rates in rates_by_way.items()
        },
        "ratios": {
            name: {key: round(value, 3) for key, value in spread._asdict().items()}
            for name, spread in ratios.items()
        },
    }
    options.json.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    raise SystemExit(main())
