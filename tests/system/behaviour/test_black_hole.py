"""Connections that a firewall dropped silently: sent data arrives nowhere, without an error.

Both servers are reached through the fault proxy, so the genuine one is silent in the same way.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from tests.system.behaviour.bad_network import BadNetwork, servers_of
from tests.system.behaviour.shells import Shell
from tests.system.behaviour.sites import SINGLE, Site, eventually
from tubemq_client import ClientSettings, errors

RPC_TIMEOUT_MS = 1_000
GRACE_S = 5.0
"""A second is enough on an idle machine. The loss of a single request is the stricter test."""


@pytest.fixture
def settings(site: Site) -> ClientSettings:
    return replace(site.settings, rpc_timeout_ms=RPC_TIMEOUT_MS)


@pytest.fixture
def network(settings: ClientSettings, monkeypatch: pytest.MonkeyPatch) -> BadNetwork:
    return BadNetwork(monkeypatch, servers_of(settings, SINGLE), every_s=60)


def test_a_producer_loses_one_request_to_a_black_hole(
    shell: Shell, settings: ClientSettings, network: BadNetwork
) -> None:
    with network, shell.Producer(settings) as producer:
        producer.send(SINGLE, b"before")
        assert network.swallow() >= 2
        began = time.monotonic()
        with pytest.raises(errors.RpcTimeout):
            producer.send(SINGLE, b"into the hole")
        producer.send(SINGLE, b"after")
        assert time.monotonic() - began <= RPC_TIMEOUT_MS / 1000 + GRACE_S
        assert max(stats.opened for stats in producer.connections.values()) == 2


def test_a_member_resumes_after_a_black_hole(
    shell: Shell, site: Site, settings: ClientSettings, network: BadNetwork, group: str
) -> None:
    partition = site.partition(SINGLE)
    with network, shell.AssignedConsumer(settings, group, {SINGLE: ()}) as member:
        member.assign(partition, site.end(partition))
        send(shell, site, b"first")
        member.confirm(eventually(lambda: member.receive(1_000)))
        assert network.swallow() >= 2
        send(shell, site, b"second")
        bodies: list[bytes] = []
        while b"second" not in bodies[-1:]:
            batch = member.receive(20_000)
            assert batch is not None, member.last_errors
            bodies = [message.body for message in batch.messages()]
            member.confirm(batch)
        assert 1 <= member.stats.unanswered <= 2


def send(shell: Shell, site: Site, body: bytes) -> Any:
    with shell.Producer(site.settings) as producer:
        return producer.send(SINGLE, body)
