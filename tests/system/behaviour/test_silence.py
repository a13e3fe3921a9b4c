"""A server that is gone, or accepts and never answers, costs a member its own partitions only.

Members rest a little after every batch, so that what is counted is how long they were kept, not
what the machine can do; counts are compared with those of the same member a moment before.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.system.behaviour.conftest import embedded
from tests.system.behaviour.shells import BLOCKING, Shell
from tests.system.behaviour.sites import SHARED, eventually, new_group
from tests.system.behaviour.windows import settings_for
from tools.devkit.patience import PATIENCE
from tubemq_client import AssignedConsumer, ClientSettings, Partition, Record, errors
from tubemq_client.admin import AdminClient, TopicProperties
from tubemq_client.embedded import EmbeddedTubeMQ, ReadLimits, Switches, TopicSpec
from tubemq_client.model import ConsumerSettings

TROUBLE_S = float(os.environ.get("TUBEMQ_SILENCE_SECONDS", "5"))
LONG_TROUBLE_S = 10.0
CONTROL_S = 2.0
MEASUREMENTS = int(5 * PATIENCE)
"""Upper bound of measurements: other work on the machine only ever lowers a rate."""
REST_S = 0.005
TINY_READS = ReadLimits(first_fetch_bytes=300, fetch_bytes=300)

ALL_METHODS = range(1, 40)
BOTH = pytest.mark.parametrize("kind", ["balanced", "assigned"])


def member(shell: Shell, kind: str, settings: ClientSettings, topic: str, **options: Any) -> Any:
    """Start a consumer that holds its partitions alone."""
    make = shell.Consumer if kind == "balanced" else shell.AssignedConsumer
    return make(settings, new_group(), {topic: ()}, **options)


def ready(consumer: Any, partitions: int) -> None:
    if hasattr(consumer, "keep_share"):
        consumer.keep_share()
    eventually(lambda: len(consumer.assignment) == partitions or None)


def consume(consumer: Any, seconds: float) -> Counter[int]:
    """Receive and confirm for `seconds`; count batches by broker."""
    counts: Counter[int] = Counter()
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        batch = consumer.receive(round(left * 1_000))
        if batch is not None:
            counts[batch.partition.broker_id] += 1
            consumer.confirm(batch)
            time.sleep(REST_S)
    return counts


@pytest.fixture(scope="module")
def three() -> Iterator[EmbeddedTubeMQ]:
    """Three brokers with more records than anybody reads here."""
    switches = Switches(reads=TINY_READS, flush_interval_ms=100, unflushed_records=None)
    with embedded(switches, brokers=3) as server:
        for broker in server.broker_ids:
            fill(settings_for(server.masters), Partition(broker, SHARED, 0), 6_000)
        yield server


def fill(settings: ClientSettings, partition: Partition, count: int) -> None:
    with BLOCKING.Producer(settings) as producer:
        records = [Record(b"%05d" % n, partition=partition) for n in range(count)]
        for _ in producer.send_many(partition.topic, records):
            pass


@pytest.mark.rates
@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("trouble", ["stopped", "silent"])
@pytest.mark.parametrize(
    "seconds", [TROUBLE_S, pytest.param(LONG_TROUBLE_S, marks=pytest.mark.soak)]
)
def test_the_other_brokers_records_flow_at_their_usual_rate(
    shell: Shell, three: EmbeddedTubeMQ, kind: str, trouble: str, seconds: float
) -> None:
    """With the default time for a request, 10 s: no receiver may wait for that."""
    settings = settings_for(three.masters, heartbeat_period_ms=1_000)
    shares: list[float] = []
    while len(shares) < MEASUREMENTS and max(shares, default=0) < 0.9:
        with member(shell, kind, settings, SHARED) as consumer:
            shares.append(share_in_trouble(consumer, three, trouble, seconds))
        print(f"{shell} {kind} {trouble}: {shares[-1]:.2f} of the rate before")
    assert max(shares) >= 0.9, shares


def share_in_trouble(consumer: Any, three: EmbeddedTubeMQ, trouble: str, seconds: float) -> float:
    """Return the rate of brokers 1 and 2 while broker 3 is in trouble, as a share of their rate
    before."""
    broker = three.broker(3)
    ready(consumer, 9)
    before = consume(consumer, CONTROL_S)
    assert set(before) == {1, 2, 3}
    try:
        if trouble == "stopped":
            broker.stop()
        else:
            broker.silence(*ALL_METHODS)
        after = consume(consumer, seconds)
        assert {node.broker_id for node in consumer.stats.left_alone} <= {3}
    finally:
        broker.silence()
        broker.restart()
    usual, now = ((c[1] + c[2]) / s for c, s in ((before, CONTROL_S), (after, seconds)))
    return now / usual


@BOTH
def test_a_broker_that_answers_again_is_asked_again(
    shell: Shell, three: EmbeddedTubeMQ, kind: str
) -> None:
    broker = three.broker(3)
    settings = settings_for(three.masters, rpc_timeout_ms=1_500, heartbeat_period_ms=1_000)
    with member(shell, kind, settings, SHARED) as consumer:
        ready(consumer, 9)
        broker.silence(*ALL_METHODS)
        try:
            eventually(lambda: (consume(consumer, 0.5), consumer.stats.unanswered)[1] or None)
            # On a busy machine another one may owe an answer for a moment.
            assert 3 in {node.broker_id for node in consumer.stats.left_alone}
            assert consumer.stats.unanswered >= 1
        finally:
            broker.silence()
        eventually(lambda: consume(consumer, 0.5)[3] or None)
        eventually(lambda: (consume(consumer, 0.5), consumer.stats.left_alone == {})[1] or None)


@pytest.mark.rates
def test_a_query_to_a_silent_master_does_not_stop_consumption(
    shell: Shell, three: EmbeddedTubeMQ
) -> None:
    settings = settings_for(three.masters, rpc_timeout_ms=2_000)
    shares: list[float] = []
    while len(shares) < MEASUREMENTS and max(shares, default=0) < 0.9:
        with member(shell, "assigned", settings, SHARED) as consumer:
            ready(consumer, 9)
            shares.append(share_while_asking(consumer, three))
    assert max(shares) >= 0.9, shares


def share_while_asking(consumer: Any, three: EmbeddedTubeMQ) -> float:
    """Return the consumption while a thread queries a silent master, as a share of that before."""
    before = consume(consumer, CONTROL_S).total()
    three.silence_master(*ALL_METHODS)
    failures: list[Exception] = []

    def ask() -> None:
        for _ in range(2):
            try:
                consumer.partitions(refresh=True)
            except errors.NetworkError as error:
                failures.append(error)

    asking = threading.Thread(target=ask)
    try:
        asking.start()
        after = consume(consumer, CONTROL_S).total()
    finally:
        three.silence_master()
        asking.join(30)
    assert failures, "it was silent all the time"
    return after / before


# -- many partitions -------------------------------------------------------------------------------

MANY = TopicSpec("b_many", 1, 30)


@pytest.fixture(scope="module")
def many() -> Iterator[EmbeddedTubeMQ]:
    switches = Switches(reads=TINY_READS, flush_interval_ms=100, unflushed_records=None)
    with EmbeddedTubeMQ(1, [MANY], http=False, switches=switches) as server:
        fill(settings_for(server.masters), Partition(1, MANY.name, 7), 6_000)
        yield server


@pytest.mark.rates
@pytest.mark.slow
def test_empty_partitions_cost_the_busy_one_nothing(shell: Shell, many: EmbeddedTubeMQ) -> None:
    settings = settings_for(many.masters)
    empty: dict[str, list[int]] = {"balanced": [], "assigned": []}
    for kind, counts in empty.items():
        with member(shell, kind, settings, MANY.name) as consumer:
            ready(consumer, 30)
            consume(consumer, 1.0)  # the others pass the busy one's records
            shares: list[float] = []
            while len(shares) < MEASUREMENTS and max(shares, default=0) < 0.9:
                shares.append(share_of_busy(consumer, counts))
        assert max(shares) >= 0.9, shares
    print(f"{shell}: empty fetches {empty}")
    assert min(empty["assigned"]) <= 1.1 * max(empty["balanced"])


def share_of_busy(consumer: Any, empty: list[int]) -> float:
    """Return the rate of the busy partition next to the others, as a share of its rate alone, and
    the number of empty fetches."""
    consumer.freeze([p for p in consumer.assignment if p.partition_id != 7])
    alone = consume(consumer, 1.0).total()
    consumer.unfreeze()
    asked = consumer.stats.empty
    together = consume(consumer, 1.0).total()
    empty.append(consumer.stats.empty - asked)
    return together / alone


# -- rules -----------------------------------------------------------------------------------------


def limit(mib: int) -> list[dict[str, Any]]:
    rule = {"start": "00:00", "end": "24:00", "dltInM": 21, "limitInM": mib, "freqInMs": 700}
    return [{"type": 0, "rule": [rule]}]


@BOTH
def test_a_group_with_its_own_rule_is_exempt_from_the_default(shell: Shell, kind: str) -> None:
    """A broker enforces the default rule; the group's wider rule is kept by its members, which send
    it with every fetch."""
    reads = ReadLimits(first_fetch_bytes=300_000, fetch_bytes=300_000)
    switches = Switches(reads=reads, unflushed_records=1)
    group = new_group()
    topic = TopicSpec("b_ruled")
    with EmbeddedTubeMQ(1, [topic], switches=switches) as server:
        partition = Partition(1, topic.name, 0)
        with BLOCKING.Producer(settings_for(server.masters)) as producer:
            for _ in range(20):
                producer.send(topic.name, bytes(200_000), partition=partition)
        with AdminClient(f"http://{server.master_web}", token=switches.admin_token) as admin:
            admin.set_resource_control(group, flow_control=True, flow_rules=limit(500))
        server.broker(1).limit_readers(json.dumps(limit(1)))
        make = shell.Consumer if kind == "balanced" else shell.AssignedConsumer
        settings = settings_for(server.masters, heartbeat_period_ms=1_000)
        with make(settings, group, {topic.name: ()}) as consumer:
            ready(consumer, 1)
            found = 0
            while found < 20:
                batch = consumer.receive(10_000)
                assert batch is not None, consumer.last_errors
                found += len(batch)
                consumer.confirm(batch)
            assert consumer.stats.limited == 0


# -- a share of a group ----------------------------------------------------------------------------


@pytest.fixture
def quick() -> Iterator[EmbeddedTubeMQ]:
    """Leases end soon."""
    with embedded(Switches(lease_ms=1_500)) as server:
        yield server


def beating_often(server: EmbeddedTubeMQ, **options: int) -> ClientSettings:
    """Return settings with which even a busy machine renews such a lease in time."""
    return replace(settings_for(server.masters, **options), heartbeat_period_ms=200)


def test_a_share_is_taken_over_from_a_member_that_died(
    shell: Shell, quick: EmbeddedTubeMQ, group: str
) -> None:
    options = beating_often(quick, register_pause_ms=100)
    died = AssignedConsumer(options, group, {SHARED: ()})
    died.__enter__()
    died.assign(Partition(1, SHARED, 1))
    assigned: list[Partition] = []
    with shell.AssignedConsumer(
        options, group, {SHARED: ()}, on_assigned=assigned.extend
    ) as consumer:
        died._driver.close()  # it sends no more heartbeats and no goodbye
        consumer.keep_share()
        assert consumer.partitions_ready(10_000)
        eventually(lambda: len(consumer.assignment) == 3 or None)
        eventually(lambda: sorted(assigned) == consumer.assignment or None)
    died.close()


def test_a_share_starts_at_its_offsets_and_outlasts_masters(
    shell: Shell, quick: EmbeddedTubeMQ, group: str
) -> None:
    partition = Partition(1, SHARED, 0)
    options = beating_often(quick, rpc_timeout_ms=1_000)
    fill(options, partition, 3)
    lost: list[Partition] = []
    quick_view = ConsumerSettings(metadata_period_ms=1_000)
    with shell.AssignedConsumer(
        options, group, {SHARED: ()}, consumer=quick_view, on_lost=lost.extend
    ) as consumer:
        quick.silence_master(*ALL_METHODS)
        consumer.keep_share({partition: 28})
        batch = consumer.receive(20_000)
        assert [message.body for message in batch.messages()] == [b"00001", b"00002"]
        consumer.confirm(batch)
        eventually(lambda: len(consumer.assignment) == 3 or None)
        quick.broker(1).revoke_lease(group, SHARED, 0)
        eventually(lambda: lost or None)
        eventually(lambda: len(consumer.assignment) == 3 or None)
        quick.silence_master()
        eventually(lambda: "master" not in consumer.last_errors or None)
        fill(options, partition, 1)
        batch = consumer.receive(20_000)
        assert [message.body for message in batch.messages()] == [b"00000"], (
            "the offset counts once"
        )


def test_members_of_a_fixed_group_share_without_a_word(
    shell: Shell, quick: EmbeddedTubeMQ, group: str
) -> None:
    options = settings_for(quick.masters)
    with (
        shell.AssignedConsumer(options, group, {SHARED: ()}, source_count=2, node_id=0) as one,
        shell.AssignedConsumer(options, group, {SHARED: ()}, source_count=2, node_id=1) as two,
    ):
        for consumer in (one, two):
            consumer.keep_share()
        eventually(lambda: len(one.assignment) + len(two.assignment) == 3 or None)
        assert one.assignment == one.own_partitions()
        assert two.assignment == two.own_partitions()


def test_what_another_member_is_to_have_is_given_back_after_its_batch(
    shell: Shell, quick: EmbeddedTubeMQ, group: str
) -> None:
    options = beating_often(quick)
    revoked = threading.Event()
    with shell.AssignedConsumer(
        options,
        group,
        {SHARED: ()},
        source_count=2,
        node_id=0,
        on_revoked=lambda _: revoked.set(),
    ) as consumer:
        others = sorted(set(consumer.partitions()) - set(consumer.own_partitions()))
        fill(options, others[0], 1)
        consumer.assign(others[0])
        batch = eventually(lambda: consumer.pull(others[0]))
        consumer.keep_share()
        assert revoked.wait(30)
        assert others[0] in consumer.assignment
        assert consumer.confirm(batch) == 28
        eventually(lambda: consumer.assignment == consumer.own_partitions() or None)


def test_a_share_grows_with_its_topic(shell: Shell, group: str) -> None:
    """Members of a fixed group divide the new partitions, too, and read them from the first
    record."""
    grows, switches = TopicSpec("b_grows", 1, 2), Switches()
    view = ConsumerSettings(metadata_period_ms=1_000)
    with (
        EmbeddedTubeMQ(1, [grows], switches=switches) as server,
        AdminClient(f"http://{server.master_web}", token=switches.admin_token) as admin,
    ):
        options = settings_for(server.masters, heartbeat_period_ms=1_000)

        def place(number: int) -> Any:
            topics = {grows.name: ()}
            where = {"source_count": 2, "node_id": number}
            return shell.AssignedConsumer(options, group, topics, consumer=view, **where)

        with place(0) as one, place(1) as two:
            for consumer in (one, two):
                consumer.keep_share()
            eventually(lambda: len(one.assignment) + len(two.assignment) == 2 or None)
            admin.modify_topic(grows.name, TopicProperties(partitions=5))
            eventually(lambda: len(one.assignment) + len(two.assignment) == 5 or None)
            assert not set(one.assignment) & set(two.assignment)
            new = Partition(1, grows.name, 4)
            fill(options, new, 1)
            owner = one if new in one.assignment else two
            batch = owner.receive(20_000)
            assert (batch.partition, batch.start) == (new, 0)
            assert owner.confirm(batch) == 28
