"""Common behaviour of both consumers, whichever side distributes the partitions."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.system.behaviour.conftest import SMALL_READS, embedded
from tests.system.behaviour.shells import BLOCKING, Shell
from tests.system.behaviour.sites import SHARED, Site, bodies, eventually
from tests.system.behaviour.windows import settings_for
from tubemq_client import AssignedConsumer, Consumer, Partition, errors
from tubemq_client.embedded import EmbeddedTubeMQ, Switches
from tubemq_client.model import ConsumerSettings

BOTH = pytest.mark.parametrize("kind", ["balanced", "assigned"])
PARTITIONS = [Partition(1, SHARED, number) for number in range(3)]


@pytest.fixture
def server() -> Iterator[EmbeddedTubeMQ]:
    with embedded(Switches(reads=SMALL_READS, unflushed_records=1)) as server:
        yield server


def member(
    shell: Shell,
    kind: str,
    server: EmbeddedTubeMQ,
    group: str,
    heartbeat_ms: int = 1_000,
    **options: Any,
) -> Any:
    make = shell.Consumer if kind == "balanced" else shell.AssignedConsumer
    settings = settings_for(server.masters, heartbeat_period_ms=heartbeat_ms)
    return make(settings, group, {SHARED: ()}, **options)


def ready(consumer: Any) -> None:
    if hasattr(consumer, "keep_share"):
        consumer.keep_share()
    eventually(lambda: len(consumer.assignment) == 3 or None)


def send(server: EmbeddedTubeMQ, count: int) -> list[bytes]:
    site = Site(settings_for(server.masters), [1])
    sent = [b"%03d" % number for number in range(count)]
    for number, partition in enumerate(PARTITIONS):
        site.send(partition, *sent[number::3])
    return sent


def test_whatever_one_consumer_can_do_the_other_can() -> None:
    names = {name for name in dir(Consumer) if not name.startswith("_")}
    more = {name for name in dir(AssignedConsumer) if not name.startswith("_")} - names
    assert names <= set(dir(AssignedConsumer))
    assert more == {
        "assign",
        "keep_share",
        "node_id",
        "own_partitions",
        "partitions",
        "pull",
        "release",
        "source_count",
    }


@BOTH
def test_handlers_get_every_batch_several_at_a_time(
    shell: Shell, server: EmbeddedTubeMQ, group: str, kind: str
) -> None:
    sent = send(server, 300)
    got: list[bytes] = []
    with member(shell, kind, server, group) as consumer:
        ready(consumer)

        def handle(batch: Any) -> None:
            got.extend(bodies(batch))
            if len(got) == len(sent):
                threading.Thread(target=consumer.stop).start()

        consumer.run(handle, workers=3)
        assert sorted(got) == sent
        assert consumer.stats.records == len(sent)


@BOTH
def test_a_loop_over_batches_confirms_each_and_rejects_the_one_it_is_left_in(
    shell: Shell, server: EmbeddedTubeMQ, group: str, kind: str
) -> None:
    sent = send(server, 90)
    got: list[bytes] = []
    with member(shell, kind, server, group) as consumer:
        ready(consumer)
        left: list[bytes] = []
        for batch in consumer.batches(5_000):
            if len(got) > 30:
                left = bodies(batch)
                break
            got += bodies(batch)
        for batch in consumer.batches(2_000):
            got += bodies(batch)
    assert left
    assert sorted(got) == sent


@BOTH
def test_an_unconfirmed_batch_is_delivered_again_after_its_time(
    shell: Shell, server: EmbeddedTubeMQ, group: str, kind: str
) -> None:
    """For any period of heartbeats."""
    send(server, 3)
    quick = ConsumerSettings(confirm_timeout_ms=2_000)
    with member(shell, kind, server, group, 10_000, consumer=quick) as consumer:
        ready(consumer)
        batches = [consumer.receive(10_000) for _ in range(3)]
        again = consumer.receive(8_000)
        assert again is not None, "a heartbeat is not waited for"
        assert bodies(again) in [bodies(batch) for batch in batches]
        late = next(batch for batch in batches if batch.partition == again.partition)
        with pytest.raises(errors.StaleBatch):
            consumer.confirm(late)
        consumer.confirm(again)


@BOTH
def test_local_confirmations_are_sent_with_the_next_fetch_or_when_leaving(
    shell: Shell, server: EmbeddedTubeMQ, group: str, kind: str
) -> None:
    sent = send(server, 60)
    local = ConsumerSettings(confirm_locally=True)
    got: list[bytes] = []
    with member(shell, kind, server, group, consumer=local) as consumer:
        ready(consumer)
        while len(got) < len(sent):
            batch = consumer.receive(10_000)
            got += bodies(batch)
            assert consumer.confirm(batch) == -1
    assert sorted(got) == sent
    with BLOCKING.AssignedConsumer(settings_for(server.masters), group, {SHARED: ()}) as successor:
        positions = [successor.assign(partition) for partition in PARTITIONS]
        assert successor.receive(300) is None
    assert min(positions) > 0


@BOTH
def test_nothing_is_fetched_while_paused_or_frozen(
    shell: Shell, server: EmbeddedTubeMQ, group: str, kind: str
) -> None:
    with member(shell, kind, server, group) as consumer:
        ready(consumer)
        consumer.pause()
        consumer.freeze(PARTITIONS[1:])
        send(server, 30)
        assert consumer.receive(300) is None
        assert (consumer.paused, consumer.frozen) == (True, PARTITIONS[1:])
        consumer.resume()
        assert consumer.receive(10_000).partition == PARTITIONS[0]
        assert consumer.receive(300) is None
        consumer.unfreeze()
        assert consumer.receive(10_000).partition in PARTITIONS[1:]


def test_listeners_are_called_for_assigned_and_lost_partitions(
    shell: Shell, server: EmbeddedTubeMQ, group: str
) -> None:
    assigned: list[Partition] = []
    lost: list[Partition] = []
    with member(
        shell, "assigned", server, group, on_assigned=assigned.extend, on_lost=lost.extend
    ) as consumer:
        ready(consumer)
        # Listeners are called after the event.
        eventually(lambda: sorted(assigned) == PARTITIONS or None)
        server.broker(1).revoke_lease(group, SHARED, 0)
        eventually(lambda: lost == PARTITIONS[:1] or None)
        again = sorted([*PARTITIONS, PARTITIONS[0]])
        eventually(lambda: sorted(assigned) == again or None)


def test_a_partition_that_is_released_waits_for_its_batch(
    shell: Shell, server: EmbeddedTubeMQ, group: str
) -> None:
    send(server, 3)
    with member(shell, "assigned", server, group) as consumer:
        consumer.assign(PARTITIONS[0])
        batch = eventually(lambda: consumer.pull(PARTITIONS[0]))
        releasing = threading.Thread(target=consumer.release, args=(PARTITIONS[0],))
        releasing.start()
        time.sleep(0.1)
        position = consumer.confirm(batch)
        releasing.join(30)
        assert consumer.assignment == []
        assert consumer.assign(PARTITIONS[0]) == position > 0
