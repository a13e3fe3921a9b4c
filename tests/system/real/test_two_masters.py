"""Two genuine masters, and SIGKILL for the active one: nothing acknowledged is lost.

Starts a separate cluster, because the shared one has a single master.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pytest

from tests.system.real.cluster import require_genuine
from tools.devkit.patience import PATIENCE
from tools.devkit.tubemq.genuine import TopicSpec
from tools.devkit.tubemq.two_masters import TwoMasters
from tubemq_client import (
    AssignedConsumer,
    ClientSettings,
    Consumer,
    Metadata,
    OffsetRange,
    Partition,
    Producer,
    RangeReader,
    SendReceipt,
    errors,
)

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

TOPIC = "orders"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoMasters]:
    require_genuine()
    directory = tmp_path_factory.mktemp("two-masters")
    with TwoMasters(directory, topics=[TopicSpec(TOPIC, partitions=2)]) as running:
        running.wait_accepting()
        yield running


def settings_of(pair: TwoMasters) -> ClientSettings:
    return ClientSettings(masters=pair.addresses, heartbeat_period_ms=1_000)


def test_what_is_on_stand_by_is_passed_over(pair: TwoMasters) -> None:
    first, second = pair.addresses
    for masters in ((first, second), (second, first)):
        with Metadata(ClientSettings(masters=masters)) as metadata:
            assert len(metadata.topic(TOPIC).partitions) == 2
    with (
        Metadata(ClientSettings(masters=(second,))) as metadata,
        pytest.raises(errors.StandbyMaster),
    ):
        metadata.topic(TOPIC)


@dataclass
class Tally:
    """Events around the kill. `moved` are the callbacks of the group's member about its
    partitions."""

    receipts: dict[bytes, SendReceipt] = field(default_factory=dict)
    refused: int = 0
    got: list[bytes] = field(default_factory=list)
    dealt: list[bytes] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    gap_s: float = 0.0

    def hears(self) -> dict[str, Callable[[list[Partition]], None]]:
        def note(word: str) -> Callable[[list[Partition]], None]:
            return lambda partitions: self.moved.append(f"{word} {len(partitions)}")

        return {f"on_{word}": note(word) for word in ("assigned", "revoked", "lost")}

    def send(self, producer: Producer) -> None:
        body = b"%d" % len(self.receipts)
        try:
            self.receipts[body] = producer.send(TOPIC, body)
        except (errors.NetworkError, errors.ServiceUnavailable):
            self.refused += 1


def test_nothing_acknowledged_is_lost_when_the_active_master_is_killed(
    pair: TwoMasters, record_property: Callable[[str, object], None]
) -> None:
    tally = Tally()
    options = settings_of(pair)
    with (
        Producer(options) as producer,
        AssignedConsumer(options, "survivors", {TOPIC: ()}) as consumer,
        Consumer(options, "members", {TOPIC: ()}, **tally.hears()) as member,
    ):
        partitions = producer.publish(TOPIC)
        for partition in partitions:
            consumer.assign(partition)
        assert eventually_holds(member, partitions)
        tally.moved.clear()
        pair.kill_active()
        killed = time.monotonic()
        while time.monotonic() < killed + 15:
            tally.send(producer)
            tally.got += confirmed(consumer, partitions)
            tally.dealt += received(member, 0)
            if not tally.gap_s and is_known(pair):
                tally.gap_s = time.monotonic() - killed
        tally.got += confirmed(consumer, partitions)
        assert consumer.assignment == partitions
        while more := received(member, 5_000):
            tally.dealt += more
        assert eventually_holds(member, partitions)
    record_property("gap_s", round(tally.gap_s, 1))
    print(f"{len(tally.receipts)} acknowledged, {tally.refused} refused,", end=" ")
    print(f"routed again after {tally.gap_s:.1f} s; partitions {tally.moved or 'kept'}")
    assert tally.gap_s
    assert sorted(tally.got) == sorted(tally.dealt) == sorted(tally.receipts)
    assert stored(pair, partitions) >= set(tally.receipts)


def is_known(pair: TwoMasters) -> bool:
    """Return True if a master routes the topic again; does not wait."""
    try:
        with Metadata(replace(settings_of(pair), fail_over_wait_ms=0)) as metadata:
            return bool(metadata.topic(TOPIC).subscribable)
    except errors.TubeMQError:
        return False


def confirmed(consumer: AssignedConsumer, partitions: list[Partition]) -> list[bytes]:
    found = []
    for partition in partitions:
        batch = consumer.pull(partition)
        if batch is not None:
            found += [message.body for message in batch.messages()]
            consumer.confirm(batch)
    return found


def received(member: Consumer, timeout_ms: int) -> list[bytes]:
    batch = member.receive(timeout_ms)
    if batch is None:
        return []
    member.confirm(batch)
    return [message.body for message in batch.messages()]


def eventually_holds(member: Consumer, partitions: list[Partition]) -> bool:
    deadline = time.monotonic() + 60 * PATIENCE
    while member.assignment != partitions and time.monotonic() < deadline:
        time.sleep(0.1)
    return member.assignment == partitions


def stored(pair: TwoMasters, partitions: list[Partition]) -> set[bytes]:
    """Every record on the broker, read by ranges."""
    with Metadata(settings_of(pair)) as metadata:
        ends = metadata.ends(TOPIC, "readers", partitions, stable=False)
    with RangeReader(settings_of(pair), group="readers") as reader:
        return {
            message.body
            for partition, end in ends.items()
            for batch in reader.read(OffsetRange(partition, end.min_offset, end.max_offset))
            for message in batch.messages()
        }
