"""Random windows over topics of a genuine broker whose retention overtakes the readers.

By hand, for any number of windows (about 30 a minute)::

    python -m tools.devkit.isolation -- python -m tests.system.real.retention --windows 200 --seed 1

The broker rolls small segments and deletes them after 30 s, data and index separately, while
producers continue. A reader comes later than that on purpose. Of each window every receipt is a row
or lies in a recorded gap (`gap_policy="skip"`), or the read fails and names retention ("fail");
anything else is *silent*. Prints counts; exit code 1 if anything was silent.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.system.behaviour.shells import BLOCKING, LoopShell, Shell
from tools.devkit.tubemq.genuine import GenuineTubeMQ, TopicSpec
from tubemq_client import ClientSettings, Metadata, OffsetRange, Partition, Producer, Record
from tubemq_client._core.effects import Await
from tubemq_client._core.registration import Registration
from tubemq_client._io.driver import BlockingDriver
from tubemq_client.errors import DataLoss

__all__ = ["BROKER", "Receipts", "produce", "read_window", "replies", "topic"]

BROKER = {
    "maxSegmentSize": "2097152",
    "maxIndexSegmentSize": "140000",
    "logClearupDurationMs": "10000",
}
"""Options of a broker on which data goes soon, and mostly before its index."""

SIZES = (100, 1_000, 4_000, 40_000)
STREAMS = ("a", "b", None)
_PAUSES_S = (0, 0, 1, 2, 5)
"""Before a window. The windows shall last longer than records are kept."""


def topic(name: str, partitions: int = 1) -> TopicSpec:
    """Return a topic of one store whose closed segments are kept for 30 s."""
    options: dict[str, str | int] = {
        "deletePolicy": "delete,30s",
        "memCacheFlushIntvl": 4000,
        "unflushThreshold": 1,
    }
    return TopicSpec(name, stores=1, partitions=partitions, options=options)


@dataclass
class Receipts:
    """Records sent: offset, first bytes of the body and stream id, by partition."""

    rows: dict[Partition, list[tuple[int, bytes, str | None]]] = field(default_factory=dict)

    def of(self, range_: OffsetRange, filters: tuple[str, ...]) -> list[tuple[int, bytes]]:
        """Return those of a range that pass the filters, in offset order."""
        return sorted(
            (at, mark)
            for at, mark, stream in self.rows.get(range_.partition, [])
            if range_.start <= at < range_.end and (not filters or stream in filters)
        )


def produce(
    settings: ClientSettings,
    name: str,
    receipts: Receipts,
    chance: random.Random,
    records: int,
    size: int | None = None,
) -> None:
    """Send records of `size` bytes (None: of any) to random partitions, and keep the receipts."""
    with Producer(settings) as producer:
        partitions = producer.partitions(name)
        sent = []
        for _ in range(records):
            mark = f"{chance.getrandbits(64):016x}".encode()
            stream = chance.choice(STREAMS)
            body = mark.ljust(size or chance.choice(SIZES), b".")
            sent.append((Record(body, partition=chance.choice(partitions), stream_id=stream), mark))
        answers = producer.send_many(name, [record for record, _ in sent], in_flight=32)
        for (record, mark), receipt in zip(sent, answers, strict=True):
            receipts.rows.setdefault(receipt.partition, []).append(
                (receipt.offset, mark, record.stream_id)
            )


def read_window(
    settings: ClientSettings,
    receipts: Receipts,
    range_: OffsetRange,
    *,
    filters: tuple[str, ...] = (),
    policy: str = "fail",
    parallel: int = 1,
    shell: Shell = BLOCKING,
) -> str:
    """Read a window; ``whole``, ``gap``, ``DataLoss``, or ``SILENT`` with what is wrong."""
    rows = receipts.of(range_, filters)
    with shell.RangeReader(settings, group="ret", gap_policy=policy, filters=filters) as reader:
        try:
            got = [
                message.body[:16]
                for batch in reader.read(range_, parallel=parallel)
                for message in batch.messages()
            ]
        except DataLoss:
            return "DataLoss" if policy == "fail" else "SILENT: skip fails"
        gaps = [(gap.start, gap.end) for gap in reader.stats.gaps]
    kept = [mark for at, mark in rows if not any(low <= at < high for low, high in gaps)]
    if got != kept:
        return f"SILENT: {len(rows)} receipts, {len(got)} rows, gaps {gaps} leave {len(kept)}"
    return "gap" if gaps else "whole"


def replies(settings: ClientSettings, partition: Partition, start: int, fetches: int) -> list[Any]:
    """Return the broker's replies to a register at `start`, to fetches and a commit, without
    records."""

    def ask() -> Iterator[Any]:
        with Metadata(settings) as metadata:
            (broker,) = metadata.topic(partition.topic, "raw").brokers.values()
        lease = Registration(broker, partition, "raw", "raw_127.0.0.1-1-1-1-Pull-3.0.0")
        found = yield from lease.register(start)
        seen: list[Any] = [tuple(asdict(found).values())]
        for _ in range(fetches):
            reply = yield Await((yield from lease.post_fetch(consumed=True)))
            lag = reply.currDataDlt
            seen.append(
                (reply.errCode, reply.currOffset, len(reply.messages), lag, reply.maxOffset)
            )
        found = yield from lease.commit()
        yield from lease.unregister()
        return [*seen, tuple(asdict(found).values())]

    driver = BlockingDriver(settings)
    try:
        return driver.run(ask())
    finally:
        driver.close()


def play(
    settings: ClientSettings, names: list[str], windows: int, seed: int, shells: Sequence[Shell]
) -> Counter[str]:
    """Read random windows while producers continue and retention removes their records."""
    chance, receipts, tally = random.Random(seed), Receipts(), Counter[str]()
    filled = 0.0
    while tally.total() < windows:
        if time.monotonic() - filled > 10:
            for name in names:
                produce(settings, name, receipts, chance, 400, chance.choice((None, *SIZES)))
            filled = time.monotonic()
        time.sleep(chance.choice(_PAUSES_S))
        name = chance.choice(names)
        partition = chance.choice([p for p in receipts.rows if p.topic == name])
        with Metadata(settings) as metadata:
            ends = metadata.ends(name, "ret", stable=False)[partition]
        low = max(0, ends.min_offset - 28 * 500)
        start = chance.randrange(low, ends.max_offset, 28)
        end = chance.randrange(max(start, ends.min_offset) + 28, ends.max_offset + 28, 28)
        end = min(end, start + 28 * chance.choice((1, 50, 1000, 10_000)))
        if end <= ends.min_offset:
            continue
        filters = chance.choice(((), (), ("a",), ("a", "b")))
        policy, parallel = chance.choice(("fail", "skip")), chance.choice((1, 1, 2))
        shell = chance.choice(shells)
        range_ = OffsetRange(partition, start, end)
        answer = read_window(
            settings,
            receipts,
            range_,
            filters=filters,
            policy=policy,
            parallel=parallel,
            shell=shell,
        )
        if answer.startswith("SILENT"):
            print(f"{range_} {filters} {policy} parallel={parallel}: {answer}", flush=True)
        tally[f"{policy}: {answer.split(':')[0]}"] += 1
        if tally.total() % 20 == 0:
            print(dict(tally), flush=True)
    return tally


def main() -> int:
    """Run and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--windows", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workdir", type=Path)
    given = parser.parse_args()
    names = {"ret_alone": 1, "ret_shared": 3}
    specs = [topic(name, partitions) for name, partitions in names.items()]
    with GenuineTubeMQ(given.workdir, topics=specs, broker_options=BROKER) as cluster:
        cluster.wait_accepting()
        settings = ClientSettings(masters=(cluster.master_address,))
        with LoopShell() as loop:
            tally = play(settings, list(names), given.windows, given.seed, (BLOCKING, loop))
    for name, number in sorted(tally.items()):
        print(f"{name:20} {number}")
    return any("SILENT" in name for name in tally)


if __name__ == "__main__":
    sys.exit(main())
