"""Two genuine masters, and SIGKILL for the active one: nothing acknowledged is lost.

Starts a cluster of its own, because the shared one has a single master.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from tests.real.cluster import require_genuine
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
from tubemq_client.testing.genuine import TopicSpec
from tubemq_client.testing.two_masters import TwoMasters

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

TOPIC = "orders"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoMasters]:
    require_genuine()
    directory = tmp_path_factory.mktemp("two-masters")
    with TwoMasters(directory, topics=[TopicSpec(TOPIC, partitions=2)]) as running:
        running.wait_accepting()
        yield running


def settings(pair: TwoMasters) -> ClientSettings:
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


def test_nothing_acknowledged_is_lost_when_the_active_master_is_killed(
    pair: TwoMasters, record_property: Callable[[str, object], None]
) -> None:
    receipts: dict[bytes, SendReceipt] = {}
    got: list[bytes] = []
    dealt: list[bytes] = []
    moved: list[tuple[str, float]] = []
    refused = 0
    killed = time.monotonic()

    def note(word: str) -> Callable[[list[Partition]], None]:
        return lambda parts: moved.append((f"{word} {len(parts)}", time.monotonic() - killed))

    with (
        Producer(settings(pair)) as producer,
        AssignedConsumer(settings(pair), "survivors", {TOPIC: ()}) as consumer,
        Consumer(
            settings(pair),
            "members",
            {TOPIC: ()},
            on_assigned=note("assigned"),
            on_revoked=note("revoked"),
            on_lost=note("lost"),
        ) as member,
    ):
        partitions = producer.publish(TOPIC)
        for partition in partitions:
            consumer.assign(partition)
        assert eventually_holds(member, partitions)
        moved.clear()
        pair.kill_active()
        killed = time.monotonic()
        gap = 0.0
        while time.monotonic() < killed + 15:
            body = b"%d" % len(receipts)
            try:
                receipts[body] = producer.send(TOPIC, body)
            except (errors.NetworkError, errors.ServiceUnavailable):
                refused += 1
            got += confirmed(consumer, partitions)
            dealt += received(member, 0)
            if not gap and is_known(pair):
                gap = time.monotonic() - killed
        got += confirmed(consumer, partitions)
        assert consumer.assignment == partitions
        while more := received(member, 5_000):
            dealt += more
        assert eventually_holds(member, partitions)
    record_property("gap_s", round(gap, 1))
    print(f"{len(receipts)} acknowledged, {refused} refused, routed again after {gap:.1f} s")
    print("partitions of the group's member:", [f"{w} at {s:.1f} s" for w, s in moved] or "kept")
    assert gap
    assert sorted(got) == sorted(receipts)
    assert sorted(dealt) == sorted(receipts)
    assert stored(pair, partitions) >= set(receipts)


def is_known(pair: TwoMasters) -> bool:
    """Whether a master routes the topic again."""
    try:
        with Metadata(settings(pair)) as metadata:
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
    deadline = time.monotonic() + 60
    while member.assignment != partitions and time.monotonic() < deadline:
        time.sleep(0.1)
    return member.assignment == partitions


def stored(pair: TwoMasters, partitions: list[Partition]) -> set[bytes]:
    """Every record on the broker, read by ranges."""
    with Metadata(settings(pair)) as metadata:
        ends = metadata.ends(TOPIC, "readers", partitions, stable=False)
    with RangeReader(settings(pair), group="readers") as reader:
        return {
            message.body
            for partition, end in ends.items()
            for batch in reader.read(OffsetRange(partition, end.min_offset, end.max_offset))
            for message in batch.messages()
        }
