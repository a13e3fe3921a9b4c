"""Counters of clients' connections by server, also of connections that were replaced."""

from __future__ import annotations

import time
from typing import Any

from tests.system.behaviour.shells import Shell
from tests.system.behaviour.sites import SINGLE, Site, eventually
from tests.system.behaviour.windows import settings_for
from tubemq_client import ConnectionStats, Partition, errors
from tubemq_client.embedded import EmbeddedTubeMQ


def test_connections_are_counted_by_server(shell: Shell, site: Site) -> None:
    began = int(time.time() * 1000) - 1
    with shell.Producer(site.settings) as producer:
        for _ in range(3):
            producer.send(SINGLE, b"x" * 500)
        found = producer.stats.connections
        assert found.keys() == producer.connections.keys()
        at_broker = max(found.values(), key=lambda stats: stats.bytes_sent)
        assert (at_broker.is_open, at_broker.opened, at_broker.in_flight) == (True, 1, 0)
        assert at_broker.requests == at_broker.replies == 3
        assert at_broker.bytes_sent > 1_500 > at_broker.bytes_received > 0
        assert at_broker.received_at_ms is not None
        assert began <= at_broker.received_at_ms <= time.time() * 1000 + 1
    after = producer.connections
    assert after.keys() == found.keys()
    assert not any(stats.is_open for stats in after.values())


def test_the_figures_of_a_member_have_its_connections(shell: Shell, site: Site, group: str) -> None:
    with shell.Consumer(site.settings, group, {SINGLE: ()}) as member:
        (at_master,) = member.stats.connections.values()
        assert isinstance(at_master, ConnectionStats)
        assert at_master.requests >= at_master.replies >= 1


def test_counts_continue_when_a_connection_is_replaced(
    shell: Shell, by_hand: EmbeddedTubeMQ
) -> None:
    with shell.Producer(settings_for(by_hand.masters)) as producer:
        where = Partition(1, SINGLE, 0)
        producer.send(SINGLE, b"x", partition=where)
        by_hand.broker(1).restart()
        eventually(lambda: stored(producer, where))
        at_broker = max(producer.connections.values(), key=lambda stats: stats.opened)
        assert at_broker.opened >= 2
        assert at_broker.requests >= 2


def stored(producer: Any, where: Partition) -> Any:
    try:
        return producer.send(SINGLE, b"y", partition=where)
    except errors.TubeMQError:
        return None
