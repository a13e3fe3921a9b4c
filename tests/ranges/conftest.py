"""An embedded cluster of two brokers with the topics of the range suite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ranges.suite import Ledger, settings_for
from tubemq_client import ClientSettings
from tubemq_client.embedded import EmbeddedTubeMQ, ReadLimits, Switches, TopicSpec

# Small segments and fetches, so that a few thousand records cross every boundary there is.
SMALL_READS = ReadLimits(
    segment_records=700,
    first_fetch_bytes=8_000,
    fetch_bytes=20_000,
    memory_scan=(60, 100),
    file_scan=(80, 135),
)


@pytest.fixture(params=["small-reads", "real-limits"])
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedTubeMQ]:
    limits = SMALL_READS if request.param == "small-reads" else ReadLimits()
    with embedded(Switches(reads=limits, flush_interval_ms=100, unflushed_records=None)) as server:
        yield server


@pytest.fixture
def by_hand() -> Iterator[EmbeddedTubeMQ]:
    """Flushes only when a test says so."""
    switches = Switches(reads=SMALL_READS, flush_interval_ms=None, unflushed_records=None)
    with embedded(switches) as server:
        yield server


def embedded(switches: Switches) -> EmbeddedTubeMQ:
    topics = [TopicSpec("t_one", 1, 3), TopicSpec("t_two", 2, 3), TopicSpec("t_single")]
    return EmbeddedTubeMQ(2, topics, http=False, switches=switches)


@pytest.fixture
def settings(request: pytest.FixtureRequest) -> ClientSettings:
    name = "cluster" if "cluster" in request.fixturenames else "by_hand"
    return settings_for(request.getfixturevalue(name).masters)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()
