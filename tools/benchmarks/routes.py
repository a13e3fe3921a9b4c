"""One read into many tables, against one table: `python -m tools.benchmarks.routes`.

An embedded broker, records of as many streams as there are tables, and windows of the same records
in turns: into one Parquet sink, and by routes into a Parquet sink for each stream. Prints the
median and the range of the ratio of wall times within a pass, and the ratio of the bytes that the
client received. ``--tables``, ``--records``, ``--size`` and ``--sink`` choose other cases.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.benchmarks.interleaved import Rate, interleave, print_table, shares
from tubemq_client import Partition, Producer, Record
from tubemq_client.config import ClientConfig
from tubemq_client.embedded import EmbeddedTubeMQ, TopicSpec
from tubemq_provider.ingest.arguments import IngestArguments
from tubemq_provider.ingest.job import IngestJob
from tubemq_provider.ingest.validation import parse
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.sinks.factory import sink_for
from tubemq_provider.sinks.routed import Route, RoutedSink
from tubemq_provider.sources.tubemq.source import TubeMQSource

if TYPE_CHECKING:
    from tubemq_provider.windows.protocols import Sink, Step

__all__ = ["main"]

ONE, MANY = "one table", "a table for each stream"
TOPIC = TopicSpec("streams", stores=1, partitions=4)


def main() -> int:
    """Fill the topic, measure both ways in turns, print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--tables", type=int, default=50)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=512, help="bytes of a body")
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--sink", default="", help="prefix of each address, such as delta:")
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    with (
        EmbeddedTubeMQ(topics=[TOPIC], http=False) as mq,
        tempfile.TemporaryDirectory(prefix="tubemq-bench-") as root,
    ):
        _fill(mq, options)
        bench = _Bench(mq, Path(root), options)
        rates = interleave({ONE: bench.one, MANY: bench.many}, passes=options.passes)
    print_table(f"{options.records} records of {options.size} bytes", rates, [ONE])
    spread = shares(rates, ONE, MANY)
    print(
        f"wall time of {options.tables} tables is {spread.median:.2f} times that of one "
        f"({spread.low:.2f} to {spread.high:.2f})"
    )
    return 0


def _fill(mq: EmbeddedTubeMQ, options: argparse.Namespace) -> None:
    settings = ClientConfig.parse({"masters": mq.masters}).settings()
    body = b"x" * options.size
    records = [
        Record(
            body,
            partition=Partition(1, TOPIC.name, number % TOPIC.partitions),
            stream_id=f"s{number // 7 % options.tables}",
        )
        for number in range(options.records)
    ]
    with Producer(settings) as producer:
        list(producer.send_many(TOPIC.name, records))
    mq.broker(1).flush()


class _Bench:
    """Windows of the whole topic, each into new places."""

    def __init__(self, mq: EmbeddedTubeMQ, root: Path, options: argparse.Namespace) -> None:
        self._settings = ClientConfig.parse({"masters": mq.masters}).settings()
        self._root, self._options, self._number = root, options, 0

    def one(self) -> Rate:
        """Run a window into one table."""
        place = self._place()
        return self._run(sink_for(f"{self._options.sink}{place}/all"), f"{place}/all")

    def many(self) -> Rate:
        """Run a window into a table for each stream."""
        place = self._place()
        tables = {"*": f"{self._options.sink}{place}/{{stream_id}}"}
        routes = {"name": "bench", "tables": tables}
        return self._run(sink_for(f"{place}/windows"), f"{place}/windows", routes)

    def _place(self) -> Path:
        self._number += 1
        place = self._root / str(self._number)
        place.mkdir()
        return place

    def _run(self, sink: Sink, place: str, routes: dict[str, Any] | None = None) -> Rate:
        checked = parse(
            IngestArguments,
            {
                "topic": TOPIC.name,
                "group": "lake",
                "cluster": "bench",
                "sink": place,
                "engine": "inline",
                "initial_position": "earliest",
                "routes": routes,
            },
        )
        if checked.route_set is not None:

            def open_table(route: Route, address: str) -> Sink:
                return sink_for(address, **route.options)

            sink = RoutedSink(sink, checked.route_set, open_table)
        source = TubeMQSource(self._settings, identity="bench", topic=TOPIC.name, group="lake")
        with ExitStack() as stack:
            job = IngestJob(checked, source, sink, stack)
            store = MemoryOffsetStore(MemoryJournal(), task="bench")
            began, cpu = time.perf_counter(), time.process_time()
            result = job.run(store, attempt="bench", serialised=True, observer=_Silent())
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        read = sum(table["read"] for table in result.tables.values()) or result.total
        if read != self._options.records:
            raise RuntimeError(f"the window has {read} records, not {self._options.records}")
        return Rate(read, read * self._options.size, seconds, cpu)


class _Silent:
    def at(self, step: Step, point: str) -> None:
        """Continue."""


if __name__ == "__main__":
    raise SystemExit(main())
