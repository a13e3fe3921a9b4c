"""Every scenario runs on both APIs and, if it needs no fault, on both servers.

Embedded clusters are created for each test; the genuine one is shared by the session.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.servers import client_settings
from tests.system.behaviour.shells import BLOCKING, LoopShell, Shell
from tests.system.behaviour.sites import EMBEDDED_TOPICS, Site, new_group
from tests.system.behaviour.windows import Ledger, settings_for
from tubemq_client.embedded import EmbeddedTubeMQ, ReadLimits, Switches

# Small segments and fetches, so that a few thousand records cross every boundary there is.
SMALL_READS = ReadLimits(
    segment_records=700,
    first_fetch_bytes=8_000,
    fetch_bytes=20_000,
    memory_scan=(60, 100),
    file_scan=(80, 135),
)

PATIENT = {"heartbeat_period_ms": 1_000, "rpc_timeout_ms": 10_000}


@pytest.fixture(params=["sync", "aio"])
def shell(request: pytest.FixtureRequest) -> Iterator[Shell]:
    if request.param == "sync":
        yield BLOCKING
        return
    with LoopShell() as shell:
        yield shell


@pytest.fixture
def group() -> str:
    return new_group()


def embedded(switches: Switches, brokers: int = 1) -> EmbeddedTubeMQ:
    return EmbeddedTubeMQ(brokers, EMBEDDED_TOPICS, http=False, switches=switches)


@pytest.fixture(params=["embedded", pytest.param("genuine", marks=pytest.mark.real)])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """Start a server of either kind, for scenarios that hold on both."""
    if request.param == "genuine":
        cluster = request.getfixturevalue("genuine")
        yield Site(settings_for(cluster.masters, **PATIENT), [cluster.broker_id])
        return
    with embedded(Switches()) as server:
        yield Site(settings_for(server.masters, **PATIENT), server.broker_ids)


@pytest.fixture(
    params=["small-reads", "real-limits", pytest.param("genuine", marks=pytest.mark.real)]
)
def window_site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """Servers to read windows from; the embedded ones have two brokers."""
    if request.param == "genuine":
        cluster = request.getfixturevalue("genuine")
        yield Site(settings_for(cluster.masters), [cluster.broker_id])
        return
    limits = SMALL_READS if request.param == "small-reads" else ReadLimits()
    switches = Switches(reads=limits, flush_interval_ms=100, unflushed_records=None)
    with embedded(switches, brokers=2) as server:
        yield Site(settings_for(server.masters), server.broker_ids)


@pytest.fixture
def by_hand() -> Iterator[EmbeddedTubeMQ]:
    """Start two embedded brokers that flush only by hand, for scenarios with faults."""
    switches = Switches(reads=SMALL_READS, flush_interval_ms=None, unflushed_records=None)
    with embedded(switches, brokers=2) as server:
        yield server


settings = client_settings(server="by_hand")


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()
