"""Clients need a master's address now and then, and nothing else while records flow."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.system.behaviour.conftest import embedded
from tests.system.behaviour.shells import Shell
from tests.system.behaviour.sites import SHARED, bodies, eventually
from tubemq_client import ClientSettings, Record, errors
from tubemq_client.embedded import EmbeddedTubeMQ, Switches
from tubemq_client.model import Address
from tubemq_client.testing.proxy import FaultProxy

ALL_METHODS = range(1, 40)


def test_records_flow_while_no_master_answers(
    shell: Shell, by_hand: EmbeddedTubeMQ, settings: ClientSettings, group: str
) -> None:
    """Held partitions and known routes stay: brokers are queried directly."""
    quick = replace(settings, rpc_timeout_ms=1_500, heartbeat_period_ms=100)
    found: list[bytes] = []
    with (
        shell.Producer(quick) as producer,
        shell.Consumer(quick, group, {SHARED: ()}) as consumer,
    ):
        producer.publish(SHARED)
        eventually(lambda: len(consumer.assignment) == 6 or None)
        by_hand.silence_master(*ALL_METHODS)
        eventually(lambda: "master" in consumer.last_errors or None)
        sent = [b"%d" % number for number in range(60)]
        assert len(list(producer.send_many(SHARED, [Record(body) for body in sent]))) == 60
        for broker in by_hand.broker_ids:
            by_hand.broker(broker).flush()
        while len(found) < len(sent):
            batch = consumer.receive(15_000)
            assert batch is not None, consumer.last_errors
            found += bodies(batch)
            consumer.confirm(batch)
        by_hand.silence_master()
    assert sorted(found) == sorted(sent)


def test_a_master_that_moved_is_found_under_its_name(
    shell: Shell,
    by_hand: EmbeddedTubeMQ,
    settings: ClientSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Names are looked up for every connection; an answer is never kept."""
    ips = leading_to(monkeypatch, "127.0.0.2")
    named = replace(settings, masters=(("master.test", by_hand.master_address[1]),))
    with shell.Metadata(named) as metadata:
        with pytest.raises(errors.ConnectError, match=r"master\.test"):
            metadata.topic(SHARED)
        ips.append("127.0.0.1")
        assert len(metadata.topic(SHARED).partitions) == 6


def leading_to(monkeypatch: pytest.MonkeyPatch, *first: str) -> list[str]:
    """Return the IP addresses that master.test resolves to; the last one counts."""
    resolve, ips = socket.getaddrinfo, list(first)

    def look_up(host: Any, *rest: Any, **options: Any) -> Any:
        return resolve(ips[-1] if host == "master.test" else host, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return ips


@pytest.fixture
def moving(
    by_hand: EmbeddedTubeMQ, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Address, EmbeddedTubeMQ, list[str]]]:
    """Yield a name that resolves to the master of one cluster, another cluster on the same port of
    another host, and the addresses it resolves to."""
    ips = leading_to(monkeypatch, "127.0.0.1")
    with (
        embedded(Switches(), brokers=3) as other,
        FaultProxy(by_hand.master_address) as here,
        FaultProxy(other.master_address, listen=("127.0.0.2", here.address[1])),
    ):
        yield ("master.test", here.address[1]), other, ips


@pytest.mark.parametrize("old", ["stands by", "answers as before"])
def test_a_name_that_moves_to_another_master_is_followed_while_the_old_one_lives(
    shell: Shell,
    by_hand: EmbeddedTubeMQ,
    moving: tuple[Address, EmbeddedTubeMQ, list[str]],
    settings: ClientSettings,
    group: str,
    old: str,
) -> None:
    name, _, ips = moving
    named = replace(settings, masters=(name,), dns_refresh_ms=1_000, heartbeat_period_ms=500)
    with (
        shell.Metadata(named) as metadata,
        shell.Consumer(named, group, {SHARED: ()}) as consumer,
    ):
        assert len(metadata.topic(SHARED).partitions) == 6
        eventually(lambda: len(consumer.assignment) == 6 or None)
        ips.append("127.0.0.2")
        if old == "stands by":
            by_hand.set_standby()
            assert len(metadata.topic(SHARED).partitions) == 9, "with the first answer"
        eventually(lambda: len(metadata.topic(SHARED).partitions) == 9 or None)
        # The new master deals out what the member did not hold before.
        eventually(lambda: {p.broker_id for p in consumer.assignment} == {1, 2, 3} or None)
