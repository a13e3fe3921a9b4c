"""Times turned into offsets on the genuine broker, judged by the receive times in its receipts.

One stretch of half a minute or so serves all three resolvers: records flow, samples are taken, and
the broker scans its groups every 20 s, which is the shortest that it accepts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from tests.system.real import topics
from tools.devkit.patience import PATIENCE
from tubemq_client import ClientSettings, Metadata, Record, SendReceipt
from tubemq_client.errors import ConfigError
from tubemq_client.model import Message, OffsetRange, Partition, PartitionEnds
from tubemq_client.sync import Producer, RangeReader
from tubemq_provider.sources.tubemq.history_resolver import (
    HISTORY_GROUP,
    HISTORY_TOPIC,
    HistoryResolver,
    history_partition,
)
from tubemq_provider.sources.tubemq.message_time_resolver import MessageTimeResolver
from tubemq_provider.windows.canonical import parse_instant
from tubemq_provider.windows.errors import WindowNotReady
from tubemq_provider.windows.planning.instants import Resolved
from tubemq_provider.windows.protocols import Document
from tubemq_provider.windows.time_resolvers.timeline import TimelineResolver, record_sample

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(180)]

TOPIC = topics.SPARES[2].name
GROUP = "timed"
MINUTES = [f"2026010112{minute:02d}" for minute in range(60)]
PATIENCE_S = 75


def now() -> datetime:
    return datetime.now(UTC)


@dataclass
class Shelf:
    document: Document | None = None

    def load_timeline(self) -> Document | None:
        return self.document

    def store_timeline(self, document: Document) -> None:
        self.document = document


@dataclass
class Flow:
    """Records that keep coming, their receipts, and the samples that were taken meanwhile."""

    settings: ClientSettings
    metadata: Metadata
    producer: Producer
    reader: RangeReader
    shelf: Shelf = field(default_factory=Shelf)
    receipts: list[tuple[str, SendReceipt]] = field(default_factory=list)
    probe: datetime | None = None
    by_history: Resolved | None = None

    def produce(self, minute: str) -> None:
        partitions = self.producer.partitions(TOPIC)
        records = [Record(b"x", msg_time=minute, partition=p) for p in partitions for _ in range(5)]
        sent = self.producer.send_many(TOPIC, records)
        self.receipts += [(minute, receipt) for receipt in sent]

    def read(self, range_: OffsetRange) -> Iterator[Message]:
        for batch in self.reader.read(range_):
            yield from batch.messages()

    def ends(self, *, stable: bool = False) -> Mapping[Partition, PartitionEnds]:
        return self.metadata.ends(TOPIC, GROUP, stable=stable)

    def partitions(self) -> list[Partition]:
        return list(self.metadata.topic(TOPIC, GROUP).partitions)

    def history(self) -> HistoryResolver:
        group = f"{GROUP}.e"
        return HistoryResolver(TOPIC, group, self.read, self._history_ends, self.partitions)

    def _history_ends(self) -> Mapping[Partition, PartitionEnds]:
        found = self.metadata.topic(HISTORY_TOPIC, HISTORY_GROUP)
        number = history_partition(f"{GROUP}.e")
        wanted = [p for p in found.partitions if p.partition_id == number]
        return self.metadata.ends(
            HISTORY_TOPIC, HISTORY_GROUP, wanted, stable=False, metadata=found
        )


@pytest.fixture(scope="module")
def flow(genuine: object) -> Iterator[Flow]:
    """Return the flow after two scans of the broker: one before `probe`, one after it."""
    settings = ClientSettings(masters=(genuine.master_address,))  # type: ignore[attr-defined]
    reader = RangeReader(settings, group=HISTORY_GROUP, pool_size=1)
    with Metadata(settings) as metadata, Producer(settings) as producer, reader:
        flow = Flow(settings, metadata, producer, reader)
        flow.ends()  # makes the group known to the broker
        deadline = time.monotonic() + PATIENCE_S * PATIENCE
        for minute in MINUTES:
            record_sample(TOPIC, flow.shelf, flow.ends, now)
            flow.produce(minute)
            if flow.by_history is None:
                _ask_history(flow)
            elif len(flow.receipts) > 100:
                break
            assert time.monotonic() < deadline, "the broker has written no history"
            time.sleep(1)
        record_sample(TOPIC, flow.shelf, flow.ends, now)
        yield flow


def _ask_history(flow: Flow) -> None:
    if flow.probe is None:
        with suppress(ConfigError):
            try:
                flow.history().resolve(now())
            except WindowNotReady:
                flow.probe = now()
        return
    with suppress(WindowNotReady):
        flow.by_history = flow.history().resolve(flow.probe)


def check_arrival(flow: Flow, instant: datetime, resolved: Resolved) -> None:
    """All that arrived before the instant is below; nothing that arrived after the sample is."""
    until = parse_instant(resolved.evidence["until"]) + timedelta(seconds=1)
    for _, receipt in flow.receipts:
        boundary = resolved.offsets[receipt.partition.key]
        if receipt.time_ms < instant.timestamp() * 1000:
            assert receipt.offset < boundary
        elif receipt.time_ms > until.timestamp() * 1000:
            assert receipt.offset >= boundary


def test_the_brokers_history_bounds_what_arrived(flow: Flow) -> None:
    assert flow.probe is not None
    assert flow.by_history is not None
    check_arrival(flow, flow.probe, flow.by_history)
    since = parse_instant(flow.by_history.evidence["since"])
    until = parse_instant(flow.by_history.evidence["until"])
    assert since <= flow.probe <= until
    assert until - since <= timedelta(seconds=25)
    with pytest.raises(ConfigError, match="before"):
        flow.history().resolve(flow.probe - timedelta(hours=1))


def test_samples_bound_what_arrived(flow: Flow) -> None:
    resolver = TimelineResolver(TOPIC, flow.shelf.load_timeline, flow.partitions)
    times = [receipt.time_ms for _, receipt in flow.receipts]
    for time_ms in times[20::25]:
        instant = datetime.fromtimestamp(time_ms / 1000, UTC)
        check_arrival(flow, instant, resolver.resolve(instant))


def test_message_time_in_order_is_exact(flow: Flow) -> None:
    resolver = MessageTimeResolver(TOPIC, flow.read, flow.ends, now)
    instant = datetime(2026, 1, 1, 12, 7, tzinfo=UTC)
    found = resolver.resolve(instant)
    assert found.evidence["overlap"] == {}
    for minute, receipt in flow.receipts:
        below = receipt.offset < found.offsets[receipt.partition.key]
        assert below == (minute < "202601011207")
