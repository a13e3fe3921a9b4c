"""The active master is killed: nothing acknowledged is lost, nothing confirmed comes again.

The embedded masters take over in steps like genuine ones, only faster; those are in
`tests/system/real/test_two_masters.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.system.behaviour.shells import Shell
from tests.system.behaviour.sites import EMBEDDED_TOPICS, SHARED, eventually
from tubemq_client import ClientSettings, OffsetRange, errors
from tubemq_client.embedded import EmbeddedTubeMQ, Switches

TOPICS = {SHARED: ()}
SLOW = Switches(fail_over_ms=300, fail_over_load_ms=300, fail_over_report_ms=600)


@pytest.fixture
def pair() -> Iterator[EmbeddedTubeMQ]:
    with EmbeddedTubeMQ(1, EMBEDDED_TOPICS, http=False, switches=SLOW, masters=2) as server:
        yield server


@pytest.fixture
def options(pair: EmbeddedTubeMQ) -> ClientSettings:
    return ClientSettings(
        pair.master_addresses,
        heartbeat_period_ms=100,
        heartbeat_period_after_failures_ms=100,
        register_pause_ms=200,
    )


def lasting(seconds: float) -> Iterator[None]:
    """Yield turns of a loop for that many seconds, and a little at a time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield
        time.sleep(0.01)


def test_a_producer_keeps_its_routes(
    shell: Shell, pair: EmbeddedTubeMQ, options: ClientSettings
) -> None:
    with shell.Producer(options) as producer:
        sent = [producer.send(SHARED, b"before")]
        pair.fail_over()
        sent += [producer.send(SHARED, b"%d" % n) for n, _ in enumerate(lasting(2.5))]
        pair.wait_switched()
        sent.append(producer.send(SHARED, b"after"))
    assert len({(receipt.partition, receipt.offset) for receipt in sent}) == len(sent) > 20


def test_a_group_member_keeps_its_partitions_and_positions(
    shell: Shell, pair: EmbeddedTubeMQ, options: ClientSettings
) -> None:
    lost: list[object] = []
    with (
        shell.Producer(options) as producer,
        shell.Consumer(options, "members", TOPICS, on_lost=lost.append) as consumer,
    ):
        eventually(lambda: len(consumer.assignment) == 3 or None)
        sent, got = [], []
        pair.fail_over()
        for n, _ in enumerate(lasting(2.5)):
            sent.append(b"%d" % n)
            producer.send(SHARED, sent[-1])
            if (batch := consumer.receive(0)) is not None:
                got += [message.body for message in batch.messages()]
                consumer.confirm(batch)
        pair.wait_switched()
        while (batch := consumer.receive(1_000)) is not None:
            got += [message.body for message in batch.messages()]
            consumer.confirm(batch)
        assert sorted(got) == sorted(sent)
        assert len(consumer.assignment) == 3
        assert lost == []


def test_a_consumer_that_assigns_itself_keeps_its_partitions(
    shell: Shell, pair: EmbeddedTubeMQ, options: ClientSettings
) -> None:
    with (
        shell.Producer(options) as producer,
        shell.AssignedConsumer(options, "assigned", TOPICS) as consumer,
    ):
        mine = consumer.own_partitions()
        for partition in mine:
            consumer.assign(partition)
        sent, got = [], []
        pair.fail_over()
        for n, _ in enumerate(lasting(2.5)):
            sent.append(b"%d" % n)
            producer.send(SHARED, sent[-1])
            if (batch := consumer.receive(0)) is not None:
                got += [message.body for message in batch.messages()]
                consumer.confirm(batch)
        pair.wait_switched()
        eventually(lambda: partitions_or_none(consumer))
        while (batch := consumer.receive(1_000)) is not None:
            got += [message.body for message in batch.messages()]
            consumer.confirm(batch)
        assert sorted(got) == sorted(sent)
        assert consumer.assignment == mine
        assert "master" not in consumer.last_errors


def partitions_or_none(consumer: object) -> object:
    try:
        found = consumer.partitions(refresh=True)  # type: ignore[attr-defined]
    except errors.TubeMQError:
        return None  # not registered again yet
    return found if all(found.values()) else None


def test_look_ups_and_readers_outlast_a_switch(
    shell: Shell, pair: EmbeddedTubeMQ, options: ClientSettings
) -> None:
    with shell.Producer(options) as producer:
        receipt = producer.send(SHARED, b"x")
    with shell.Metadata(options) as metadata, shell.RangeReader(options, group="readers") as reader:
        assert len(metadata.topic(SHARED).subscribable) == 3
        pair.fail_over()
        found = metadata.topic(SHARED)
        assert len(found.subscribable) == 3  # brokers have reported by now
        end = metadata.ends(SHARED, "readers", stable=False)[receipt.partition]
        wanted = OffsetRange(receipt.partition, end.min_offset, end.max_offset)
        bodies = [m.body for batch in reader.read(wanted) for m in batch.messages()]
        assert bodies == [b"x"]


def test_a_join_during_a_switch_waits_for_it(
    shell: Shell, pair: EmbeddedTubeMQ, options: ClientSettings
) -> None:
    pair.fail_over()
    with (
        shell.AssignedConsumer(options, "late", TOPICS) as assigned,
        shell.Metadata(options) as metadata,
    ):
        assert len(metadata.topic(SHARED).partitions) == len(assigned.partitions()) == 3
    with shell.Consumer(options, "later", TOPICS) as consumer:
        assert consumer.partitions_ready(20_000)


def test_a_wrong_topic_is_one_at_once_while_nothing_changes(
    shell: Shell, pair: EmbeddedTubeMQ
) -> None:
    """A minute of patience would show."""
    first, second = pair.master_addresses
    for masters in ((first, second), (second, first)):
        settings = ClientSettings(masters=masters, fail_over_wait_ms=60_000)
        with shell.Metadata(settings) as metadata, pytest.raises(errors.UnknownTopic):
            metadata.topic("nowhere")


def test_patience_ends(shell: Shell, pair: EmbeddedTubeMQ) -> None:
    settings = ClientSettings(masters=pair.master_addresses, fail_over_wait_ms=0)
    with shell.Metadata(settings) as metadata:
        metadata.topic(SHARED)
        pair.fail_over()
        with pytest.raises(errors.ConnectError, match="no active master"):
            metadata.topic(SHARED)
