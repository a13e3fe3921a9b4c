"""Own CPU of a window of many brokers and partitions: ``python -m tools.benchmarks.partitions``.

Embedded brokers run in another process. Cursor windows into Parquet are run in this one, each with
``--records`` records in the first ``--filled`` partitions; the CPU of the process is printed for
each, and the least of all but the first, which pays for imports. ``--profile N`` prints the N
functions that take most of the last one.

  python -m tools.benchmarks.partitions --layout 1x1x4 --records 25
  python -m tools.benchmarks.partitions --layout 1x10x10 1x100x10 --filled 100
"""

from __future__ import annotations

import argparse
import cProfile
import logging
import multiprocessing
import pstats
import tempfile
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from tubemq_client import Partition, Producer, Record
from tubemq_client.config import ClientConfig
from tubemq_client.embedded import EmbeddedTubeMQ, TopicSpec
from tubemq_provider.ingest.arguments import IngestArguments
from tubemq_provider.ingest.job import IngestJob
from tubemq_provider.ingest.validation import parse
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.sources.tubemq.source import TubeMQSource

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

__all__ = ["main"]

TOPIC = "wide"


def main() -> int:
    """Print a line for each window of each layout."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--layout", nargs="+", default=["10x1x100"], metavar="BROKERSxSTORESxPARTITIONS"
    )
    parser.add_argument("--filled", type=int, help="partitions with records (default: all)")
    parser.add_argument("--records", type=int, default=1, help="of each of these (default 1)")
    parser.add_argument("--shared", action="store_true", help="files shared by partitions")
    parser.add_argument("--windows", type=int, default=4)
    parser.add_argument("--profile", type=int, default=0, metavar="FUNCTIONS")
    parser.add_argument("--sort", default="tottime", help="of the profile (tottime)")
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    for layout in options.layout:
        brokers, stores, partitions = map(int, layout.split("x"))
        topic = TopicSpec(TOPIC, stores=stores, partitions=partitions)
        with _servers(brokers, topic) as masters, tempfile.TemporaryDirectory() as root:
            _run_windows(masters, root, (brokers, topic), options)
    return 0


def _run_windows(masters: str, root: str, layout: tuple[int, TopicSpec], options: Any) -> None:
    brokers, topic = layout
    settings = ClientConfig.parse({"masters": masters}).settings()
    targets = [
        Partition(broker, TOPIC, 10_000 * store + number)
        for broker in range(1, brokers + 1)
        for store in range(topic.stores)
        for number in range(topic.partitions)
    ][: options.filled]
    arguments = parse(
        IngestArguments,
        {
            "topic": TOPIC,
            "group": "lake",
            "cluster": "bench",
            "path": root,
            "engine": "inline",
            **({"target_file_bytes": 128 << 20} if options.shared else {}),
            "initial_position": "earliest",
        },
    )
    journal, spent_ms = MemoryJournal(), []
    with Producer(settings) as producer:
        for number in range(options.windows):
            records = [Record(b"x" * 100, partition=t) for t in targets] * options.records
            list(producer.send_many(TOPIC, records))
            time.sleep(1)  # let the brokers flush
            profile = cProfile.Profile()
            began = time.process_time()
            if options.profile and number == options.windows - 1:
                profile.enable()
            with ExitStack() as stack:
                source = TubeMQSource(settings, identity="bench", topic=TOPIC, group="lake")
                job = IngestJob(arguments, source, ParquetSink(root), stack)
                store = MemoryOffsetStore(journal, task=str(number))
                result = job.run(store, attempt=str(number), serialised=True, observer=_Silent())
            profile.disable()
            spent_ms.append(1000 * (time.process_time() - began))
            if result.total != len(records):
                raise RuntimeError(f"the window has {result.total} of {len(records)} records")
    print(
        f"{brokers} brokers, {topic.stores} stores of {topic.partitions}, {len(records)} records: "
        f"{min(spent_ms[1:]):.1f} ms CPU at least, each {' '.join(f'{ms:.0f}' for ms in spent_ms)}",
        flush=True,
    )
    if options.profile:
        pstats.Stats(profile).sort_stats(options.sort).print_stats(options.profile)


class _Silent:
    def at(self, step: object, point: str) -> None:
        """Ignore the steps."""


@contextmanager
def _servers(brokers: int, topic: TopicSpec) -> Iterator[str]:
    """Run embedded servers in another process; yield the address of the master."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=True)
    process = context.Process(target=_serve, args=(sender, brokers, topic), daemon=True)
    process.start()
    try:
        yield receiver.recv()
    finally:
        receiver.send("end")
        process.join(30)


def _serve(channel: Connection, brokers: int, topic: TopicSpec) -> None:
    with EmbeddedTubeMQ(topics=[topic], brokers=brokers, http=False) as mq:
        channel.send(mq.masters)
        channel.recv()


if __name__ == "__main__":
    raise SystemExit(main())
