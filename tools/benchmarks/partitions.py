"""Own CPU of a window of many brokers and partitions: ``python -m tools.benchmarks.partitions``.

Embedded brokers run in another process. Two cursor windows into Parquet are run in this one, each
with a record in every ``--every``-th partition; the CPU of the process (imports and the first
window left out) is printed for each. ``--profile N`` prints the N functions that take most of it.

  python -m tools.benchmarks.partitions --layout 10x100 1000x10
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

TOPIC, WINDOWS = "wide", 2


def main() -> int:
    """Print a line for each window of each layout."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--layout", nargs="+", default=["10x100"], metavar="BROKERSxPARTITIONS", help="of a broker"
    )
    parser.add_argument("--every", type=int, default=1, help="partitions for a record (default 1)")
    parser.add_argument("--profile", type=int, default=0, metavar="FUNCTIONS")
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    for layout in options.layout:
        brokers, partitions = map(int, layout.split("x"))
        with _servers(brokers, partitions) as masters, tempfile.TemporaryDirectory() as root:
            _run_windows(masters, root, (brokers, partitions), options)
    return 0


def _run_windows(masters: str, root: str, layout: tuple[int, int], options: Any) -> None:
    brokers, partitions = layout
    settings = ClientConfig.parse({"masters": masters}).settings()
    targets = [
        Partition(broker, TOPIC, number)
        for broker in range(1, brokers + 1)
        for number in range(partitions)
    ][:: options.every]
    arguments = parse(
        IngestArguments,
        {
            "topic": TOPIC,
            "group": "lake",
            "cluster": "bench",
            "path": root,
            "engine": "inline",
            "initial_position": "earliest",
        },
    )
    journal = MemoryJournal()
    with Producer(settings) as producer:
        for number in range(WINDOWS):
            records = [Record(b"x" * 100, partition=target) for target in targets]
            list(producer.send_many(TOPIC, records))
            time.sleep(1)  # let the brokers flush
            profile = cProfile.Profile()
            began = time.process_time()
            if options.profile and number == WINDOWS - 1:
                profile.enable()
            with ExitStack() as stack:
                source = TubeMQSource(settings, identity="bench", topic=TOPIC, group="lake")
                job = IngestJob(arguments, source, ParquetSink(root), stack)
                store = MemoryOffsetStore(journal, task=str(number))
                result = job.run(store, attempt=str(number), serialised=True, observer=_Silent())
            profile.disable()
            spent = time.process_time() - began
            print(
                f"{brokers} brokers of {partitions} partitions, window {number}: {result.total} "
                f"records, {1000 * spent:.0f} ms CPU",
                flush=True,
            )
    if options.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(options.profile)


class _Silent:
    def at(self, step: object, point: str) -> None:
        """Ignore the steps."""


@contextmanager
def _servers(brokers: int, partitions: int) -> Iterator[str]:
    """Run embedded servers in another process; yield the address of the master."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=True)
    process = context.Process(target=_serve, args=(sender, brokers, partitions), daemon=True)
    process.start()
    try:
        yield receiver.recv()
    finally:
        receiver.send("end")
        process.join(30)


def _serve(channel: Connection, brokers: int, partitions: int) -> None:
    topic = TopicSpec(TOPIC, partitions=partitions)
    with EmbeddedTubeMQ(topics=[topic], brokers=brokers, http=False) as mq:
        channel.send(mq.masters)
        channel.recv()


if __name__ == "__main__":
    raise SystemExit(main())
