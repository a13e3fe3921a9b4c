"""Servers for the tests of the embedded TubeMQ: everything by hand, time included."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client.embedded.rpc import BrokerWire, Wire
from tests.kit.servers import embedded_tubemq
from tubemq_client.embedded import EmbeddedTubeMQ, Switches, TopicSpec
from tubemq_client.testing.clock import ManualClock

TOPICS = [TopicSpec("lone"), TopicSpec("shared", 1, 3), TopicSpec("wide", 2, 3)]
BY_HAND = Switches(
    flush_interval_ms=None, unflushed_records=None, lease_scan_ms=None, balance_period_ms=None
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


# Flushes, lease scans and time move only when a test moves them.
mq = embedded_tubemq(TOPICS, by_clock=True, switches=BY_HAND)


@pytest.fixture
def wire(mq: EmbeddedTubeMQ) -> Iterator[BrokerWire]:
    with BrokerWire(mq.broker(1).address) as connection:
        yield connection


class OtherClient(BrokerWire):
    client_id = "g_127.0.0.1-2-2-2-Pull-test"


@pytest.fixture
def other(mq: EmbeddedTubeMQ) -> Iterator[BrokerWire]:
    """Another client of the same group."""
    with OtherClient(mq.broker(1).address) as connection:
        yield connection


@pytest.fixture
def master(mq: EmbeddedTubeMQ) -> Iterator[Wire]:
    with Wire(mq.masters) as connection:
        yield connection
