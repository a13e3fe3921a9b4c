"""Producing: receipts, routes, refusals, and what is sent again."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from tests.system.behaviour.conftest import embedded
from tests.system.behaviour.shells import Shell
from tests.system.behaviour.sites import SHARED, SINGLE, Site, eventually
from tests.system.behaviour.windows import settings_for
from tubemq_client import ClientSettings, Partition, Record, errors
from tubemq_client._core.sending import ProducerSession
from tubemq_client.embedded import EmbeddedTubeMQ, Switches

PARTITION = Partition(1, SHARED, 0)


def send(shell: Shell, settings: ClientSettings, partition: Partition, count: int) -> list[int]:
    with shell.Producer(settings) as producer:
        records = [Record(b"%d" % n, partition=partition) for n in range(count)]
        return [receipt.offset for receipt in producer.send_many(partition.topic, records)]


# -- on every server ------------------------------------------------------------------------------


def test_receipts_come_in_the_order_of_records_with_their_offsets(shell: Shell, site: Site) -> None:
    first = site.end(site.partition())
    offsets = send(shell, site.settings, site.partition(), 200)
    assert offsets == [first + 28 * n for n in range(200)]


def test_records_without_a_partition_go_round(shell: Shell, site: Site) -> None:
    with shell.Producer(site.settings) as producer:
        used = [producer.send(SHARED, b"x").partition.partition_id for _ in range(6)]
    assert sorted(used) == [0, 0, 1, 1, 2, 2]


def test_several_may_send_at_once_and_each_gets_its_own_receipt(shell: Shell, site: Site) -> None:
    first = site.end(site.partition(SINGLE))
    with shell.Producer(site.settings) as producer, ThreadPoolExecutor(8) as pool:
        producer.publish(SINGLE)
        sent = list(pool.map(lambda n: (n, producer.send(SINGLE, b"%d" % n)), range(80)))
    offsets = sorted(receipt.offset for _, receipt in sent)
    assert offsets == [first + 28 * n for n in range(80)]
    assert len({receipt.message_id for _, receipt in sent}) == 80


def test_the_partitions_of_a_topic_are_those_that_take_records(shell: Shell, site: Site) -> None:
    with shell.Producer(site.settings) as producer:
        assert producer.partitions(SHARED) == [site.partition(SHARED, n) for n in range(3)]


def test_stopping_early_leaves_the_producer_usable(shell: Shell, site: Site) -> None:
    records = [Record(b"%d" % n, partition=site.partition()) for n in range(100)]
    with shell.Producer(site.settings) as producer:
        receipts = producer.send_many(SHARED, records, in_flight=8)
        first = next(receipts)
        receipts.close()
        after = producer.send(SHARED, b"after", partition=site.partition())
    assert first.offset < after.offset <= first.offset + 28 * 9


def test_a_topic_without_routes_is_named(shell: Shell, site: Site) -> None:
    with (
        shell.Producer(site.settings) as producer,
        pytest.raises(errors.UnknownTopic, match="nowhere"),
    ):
        producer.send("nowhere", b"x")


def test_an_invalid_topic_is_refused_at_once(shell: Shell, site: Site) -> None:
    """It costs the producer nothing at its other topics, which its heartbeats name at once."""
    with shell.Producer(site.settings) as producer, shell.Metadata(site.settings) as metadata:
        for ask in (producer.publish, metadata.topic, lambda name: producer.send(name, b"x")):
            with pytest.raises(errors.ConfigError, match="'1st-topic' is not a topic name"):
                ask("1st-topic")
        assert producer.send(SHARED, b"after", partition=site.partition()).partition.topic == SHARED


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (Record(b""), "body is empty"),
        (Record("a text"), "body is of type str, not bytes"),  # type: ignore[arg-type]
        (Record(None), "body is of type NoneType, not bytes"),  # type: ignore[arg-type]
        (Record(b"x", partition=Partition(1, SHARED, 9)), "1:0, 1:1, 1:2"),
        (Record(bytes(2 * 2**20)), "exceeds the limit"),
    ],
    ids=["empty", "text", "none", "elsewhere", "large"],
)
def test_a_record_no_broker_would_take_is_refused_before_it_is_sent(
    shell: Shell, site: Site, record: Record, words: str
) -> None:
    with shell.Producer(site.settings) as producer, pytest.raises(errors.ConfigError, match=words):
        list(producer.send_many(SHARED, [record]))


def test_a_closed_producer_raises(shell: Shell, site: Site) -> None:
    with shell.Producer(site.settings) as producer:
        producer.publish(SHARED)
    with pytest.raises(errors.ClosedError):
        producer.send(SHARED, b"x")


# -- with faults ----------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[EmbeddedTubeMQ]:
    with embedded(Switches()) as server:
        yield server


@pytest.fixture
def options(server: EmbeddedTubeMQ) -> ClientSettings:
    return settings_for(server.masters, heartbeat_period_ms=1_000, rpc_timeout_ms=2_000)


def test_an_overflow_is_sent_again_and_stored_once(
    shell: Shell, server: EmbeddedTubeMQ, options: ClientSettings
) -> None:
    server.broker(1).overflow_every(5)
    assert sorted(send(shell, options, PARTITION, 40)) == [28 * n for n in range(40)]


def test_a_forgotten_producer_registers_again_by_itself(
    shell: Shell, server: EmbeddedTubeMQ, options: ClientSettings
) -> None:
    with shell.Producer(options) as producer:
        producer.publish(SHARED)
        server.forget_members()
        assert producer.publish(SINGLE) == [Partition(1, SINGLE, 0)]


def test_heartbeats_continue_after_an_unknown_failure(
    shell: Shell,
    server: EmbeddedTubeMQ,
    options: ClientSettings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No known protocol reply fails in this way; hence the patch."""
    beats: list[int] = []
    heartbeat = ProducerSession.heartbeat

    def beat(session: ProducerSession) -> Any:
        beats.append(len(beats))
        if len(beats) == 1:
            raise ZeroDivisionError("nobody thought of this")
        return heartbeat(session)

    with shell.Producer(replace(options, heartbeat_period_ms=50)) as producer:
        producer.publish(SHARED)
        monkeypatch.setattr(ProducerSession, "heartbeat", beat)
        eventually(lambda: len(beats) > 1 or None)
        monkeypatch.setattr(ProducerSession, "heartbeat", heartbeat)
    assert "nobody thought of this" in caplog.text


def test_a_write_stop_is_raised_not_retried(
    shell: Shell, server: EmbeddedTubeMQ, options: ClientSettings
) -> None:
    with shell.Producer(options) as producer:
        producer.publish(SHARED)
        server.broker(1).stop_writing()
        with pytest.raises(errors.ServiceUnavailable):
            producer.send(SHARED, b"x")


def test_a_producer_outlives_a_restart_of_its_broker(
    shell: Shell, server: EmbeddedTubeMQ, options: ClientSettings
) -> None:
    with shell.Producer(options) as producer:
        before = producer.send(SHARED, b"before")
        server.broker(1).stop()
        for _ in range(3):
            with pytest.raises(errors.NetworkError):
                producer.send(SHARED, b"lost")
        server.broker(1).restart()
        after = producer.send(SHARED, b"after")
    assert after.offset == before.offset + 28
