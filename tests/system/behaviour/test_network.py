"""A bad network between reader and broker: cut, split, garbled and silent connections."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from tests.system.behaviour.shells import Shell
from tests.system.behaviour.sites import SHARED
from tests.system.behaviour.windows import Feeder, Ledger
from tubemq_client import BrokerNode, ClientSettings, OffsetRange, Partition, errors
from tubemq_client.embedded import EmbeddedTubeMQ
from tubemq_client.testing.proxy import FaultProxy, Faults

PARTITION = Partition(1, SHARED, 1)


@pytest.fixture
def filled(by_hand: EmbeddedTubeMQ, settings: ClientSettings, ledger: Ledger) -> OffsetRange:
    Feeder(settings, SHARED, ledger, 1).produce(600, [PARTITION, Partition(1, SHARED, 2)])
    by_hand.broker(1).flush()
    return OffsetRange(PARTITION, 28, ledger.stable_end_of(PARTITION) - 56)


@pytest.fixture
def proxy(by_hand: EmbeddedTubeMQ) -> Iterator[FaultProxy]:
    host, port = by_hand.broker(1).address.split(":")
    with FaultProxy((host, int(port))) as proxy:
        yield proxy


def read(
    shell: Shell,
    settings: ClientSettings,
    proxy: FaultProxy,
    range_: OffsetRange,
    deadline_ms: int = 4_000,
) -> list[bytes]:
    brokers = {1: BrokerNode(1, *proxy.address)}
    with shell.RangeReader(
        settings, group="net", brokers=brokers, deadline_ms=deadline_ms
    ) as reader:
        return [m.body for batch in reader.read(range_) for m in batch.messages()]


@pytest.mark.parametrize("cut_after", [45_500, 61_001, 77_777])
def test_a_connection_cut_again_and_again_loses_and_doubles_nothing(
    shell: Shell,
    settings: ClientSettings,
    ledger: Ledger,
    filled: OffsetRange,
    proxy: FaultProxy,
    cut_after: int,
) -> None:
    proxy.faults.cut_after = cut_after
    assert read(shell, settings, proxy, filled) == ledger.expected(filled, ())
    assert proxy.cuts >= 1


def test_replies_in_tiny_pieces_are_put_together(
    shell: Shell, settings: ClientSettings, ledger: Ledger, filled: OffsetRange, proxy: FaultProxy
) -> None:
    proxy.faults.split = 61
    assert read(shell, settings, proxy, filled) == ledger.expected(filled, ())


def test_a_silent_broker_is_given_up_within_the_deadline(
    shell: Shell, settings: ClientSettings, filled: OffsetRange, proxy: FaultProxy
) -> None:
    proxy.faults.stall = True
    with pytest.raises(errors.RangeStalled, match="rpc_timeout_ms"):
        read(shell, dataclasses.replace(settings, rpc_timeout_ms=300), proxy, filled, 1_000)


def test_a_garbled_frame_is_a_protocol_violation_not_a_record(
    shell: Shell, settings: ClientSettings, filled: OffsetRange, proxy: FaultProxy
) -> None:
    proxy.faults = Faults(garble_at=0)
    with pytest.raises(errors.ProtocolViolation):
        read(shell, settings, proxy, filled)


def test_a_garbled_record_fails_its_checksum(
    shell: Shell, settings: ClientSettings, filled: OffsetRange, proxy: FaultProxy
) -> None:
    # Far into the first reply: inside a body of zeros, which no length or tag can mistake.
    proxy.faults = Faults(garble_at=9_000)
    with pytest.raises((errors.CorruptRecord, errors.ProtocolViolation)):
        read(shell, settings, proxy, filled)


@pytest.mark.parametrize("kind", ["Producer", "Consumer"])
def test_a_garbled_answer_to_the_last_word_leaves_no_connection(
    shell: Shell, by_hand: EmbeddedTubeMQ, settings: ClientSettings, kind: str
) -> None:
    host, port = by_hand.masters.split(":")
    with FaultProxy((host, int(port))) as proxy:
        address = proxy.address
        there = dataclasses.replace(settings, masters=(address,), heartbeat_period_ms=60_000)
        args = (there,) if kind == "Producer" else (there, "leaving", {SHARED: ()})
        with getattr(shell, kind)(*args) as client:
            if kind == "Producer":
                client.send(SHARED, b"x")
            so_far = client.connections["{}:{}".format(*address)].bytes_received
            proxy.faults = Faults(garble_at=so_far)
        assert not [where for where, found in client.connections.items() if found.is_open]
