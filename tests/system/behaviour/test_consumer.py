"""The client-balance consumer: batches come back until confirmed, partitions have one owner."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from tests.system.behaviour.conftest import embedded
from tests.system.behaviour.shells import Shell
from tests.system.behaviour.sites import (
    EMBEDDED_TOPICS,
    SHARED,
    SINGLE,
    Site,
    bodies,
    eventually,
    whole,
)
from tests.system.behaviour.windows import settings_for
from tubemq_client import AssignedConsumer, ClientSettings, Partition, errors
from tubemq_client._core.effects import Await, Conversation
from tubemq_client.embedded import EmbeddedTubeMQ, Switches

TOPICS = {SHARED: ()}

# -- on every server ------------------------------------------------------------------------------


def test_a_batch_comes_back_until_it_is_confirmed(shell: Shell, site: Site, group: str) -> None:
    partition = site.partition()
    start, *_ = site.send(partition, b"a", b"b", b"c")
    with shell.AssignedConsumer(site.settings, group, TOPICS) as consumer:
        assert consumer.assign(partition, start) == start
        for _ in range(2):
            batch = eventually(lambda: whole(consumer.pull(partition), 3))
            assert bodies(batch) == [b"a", b"b", b"c"]
        assert consumer.reject(batch) == start
        batch = eventually(lambda: whole(consumer.pull(partition), 3))
        assert consumer.confirm(batch) == start + 84
        assert consumer.pull(partition) is None


def test_the_group_resumes_at_the_confirmed_or_the_given_offset(
    shell: Shell, site: Site, group: str
) -> None:
    partition = site.partition()
    start, second, _ = site.send(partition, b"a", b"b", b"c")
    with shell.AssignedConsumer(site.settings, group, TOPICS) as consumer:
        consumer.assign(partition, start)
        consumer.confirm(eventually(lambda: whole(consumer.pull(partition), 3)))
    (last,) = site.send(partition, b"d")
    with shell.AssignedConsumer(site.settings, group, TOPICS) as consumer:
        assert consumer.assign(partition) == last
        assert bodies(eventually(lambda: consumer.pull(partition))) == [b"d"]
    with shell.AssignedConsumer(site.settings, group, TOPICS) as consumer:
        assert consumer.assign(partition, second) == second
        batch = eventually(lambda: whole(consumer.pull(partition), 2))
        assert bodies(batch)[:2] == [b"b", b"c"]


def test_a_new_group_may_start_at_the_latest(shell: Shell, site: Site, group: str) -> None:
    partition = site.partition()
    (offset,) = site.send(partition, b"old")
    with shell.AssignedConsumer(site.settings, group, TOPICS) as consumer:
        assert consumer.assign(partition, position="latest") == offset + 28


def test_a_partition_held_by_another_member_is_refused(
    shell: Shell, site: Site, group: str
) -> None:
    partition = site.partition()
    with (
        shell.AssignedConsumer(site.settings, group, TOPICS) as first,
        shell.AssignedConsumer(site.settings, group, TOPICS) as second,
        shell.AssignedConsumer(site.settings, group, TOPICS) as third,
    ):
        first.assign(partition)
        with pytest.raises(errors.PartitionOccupied):
            second.assign(partition)
        first.release(partition)
        with pytest.raises(errors.PartitionOccupied, match="asked again in"):
            second.assign(partition)  # not worth asking so soon
        third.assign(partition)
        assert (first.assignment, third.assignment) == ([], [partition])


def test_leaving_gives_everything_back_at_once(shell: Shell, site: Site, group: str) -> None:
    mine = [site.partition(SHARED, n) for n in range(3)]
    with shell.AssignedConsumer(site.settings, group, TOPICS) as consumer:
        for partition in mine:
            consumer.assign(partition)
    with shell.AssignedConsumer(site.settings, group, TOPICS) as consumer:
        for partition in mine:
            consumer.assign(partition)
        assert consumer.assignment == mine


def test_members_of_a_group_must_agree_on_topics(shell: Shell, site: Site, group: str) -> None:
    with (
        shell.AssignedConsumer(site.settings, group, TOPICS),
        pytest.raises(errors.GroupInconsistent),
    ):
        shell.AssignedConsumer(site.settings, group, {SINGLE: ()}).__enter__()


def test_filters_belong_to_their_topic(shell: Shell, site: Site, group: str) -> None:
    """A filter on one topic must not hide records of another one."""
    mine, other = site.partition(), site.partition(SINGLE)
    (red,) = site.send(mine, b"red", stream="red")
    site.send(mine, b"blue", stream="blue")
    (plain,) = site.send(other, b"plain")
    wanted = {SHARED: ("red",), SINGLE: ()}
    with shell.AssignedConsumer(site.settings, group, wanted) as consumer:
        consumer.assign(mine, red)
        consumer.assign(other, plain)
        assert bodies(eventually(lambda: consumer.pull(other))) == [b"plain"]
        assert bodies(eventually(lambda: consumer.pull(mine))) == [b"red"]


def test_partitions_say_whether_they_can_be_subscribed(
    shell: Shell, site: Site, group: str
) -> None:
    with shell.AssignedConsumer(site.settings, group, TOPICS) as consumer:
        assert consumer.partitions() == {site.partition(SHARED, n): True for n in range(3)}


def test_what_was_not_assigned_is_a_mistake_that_is_named(
    shell: Shell, site: Site, group: str
) -> None:
    with shell.AssignedConsumer(site.settings, group, TOPICS) as consumer:
        with pytest.raises(errors.ConfigError, match="not assigned"):
            consumer.pull(site.partition())
        with pytest.raises(errors.ConfigError, match="unknown partition"):
            consumer.assign(site.partition(SHARED, 7))


def test_a_member_of_a_fixed_group_takes_its_share(shell: Shell, site: Site, group: str) -> None:
    partition = site.partition()
    place = {"source_count": 2, "node_id": 0}
    with (
        shell.AssignedConsumer(site.settings, group, TOPICS, **place) as first,
        shell.AssignedConsumer(site.settings, group, TOPICS, source_count=2, node_id=1) as second,
    ):
        shares = [first.own_partitions(), second.own_partitions()]
        assert sorted(shares[0] + shares[1]) == sorted(first.partitions())
        assert [(c.source_count, c.node_id) for c in (first, second)] == [(2, 0), (2, 1)]
        for other in ({"source_count": 3, "node_id": 2}, place, {}):
            with pytest.raises(errors.GroupInconsistent):
                shell.AssignedConsumer(site.settings, group, TOPICS, **other).__enter__()
        with pytest.raises(errors.ConfigError, match="node_id"):
            shell.AssignedConsumer(site.settings, group, TOPICS, source_count=2)
        assert first.consumer_id != second.consumer_id
        assert first.topics == {SHARED: ()}
    assert partition in shares[0] + shares[1]
    assert first.closed


def test_positions_are_known_from_the_answers_of_brokers(
    shell: Shell, site: Site, group: str
) -> None:
    partition = site.partition(SINGLE)
    start, *_ = site.send(partition, b"a", b"b")
    with shell.AssignedConsumer(site.settings, group, {SINGLE: ()}) as consumer:
        assert not consumer.partitions_ready(0)
        assert consumer.consumed_offsets == {}
        assert consumer.assign(partition, start) == start
        assert consumer.partitions_ready(0)
        batch = consumer.receive(30_000)
        assert batch.start == start
        assert consumer.receive(0) is None  # one batch of a partition is out at a time
        end = consumer.confirm(batch)
        known = consumer.consumed_offsets[partition]
        assert (known.current, known.lag) == (end, 0)
        assert consumer.assign(partition, start) == end  # held already: nothing happens


def test_what_a_member_gave_up_is_refused_when_it_is_served_late(site: Site, group: str) -> None:
    partition = site.partition(SINGLE)
    start, *_ = site.send(partition, b"a", b"b")
    with AssignedConsumer(site.settings, group, {SINGLE: ()}) as consumer:
        consumer.assign(partition, start)
        session, given_up = consumer._consumer, consumer._consumer.held[partition].lease
        session._names.doubt(partition)  # as a fetch without an answer would
        batch = eventually(lambda: consumer.pull(partition))

        def fetch_late() -> Conversation[Any]:
            return (yield Await((yield from given_up.post_fetch(consumed=True))))

        assert consumer._driver.run(fetch_late()).errCode == 412
        assert consumer._do(session.heartbeat_brokers()) == 1
        assert consumer.assignment == [partition]
        assert consumer.confirm(batch) == start + 28 * len(batch)
    with AssignedConsumer(site.settings, group, {SINGLE: ()}) as successor:
        assert successor.assign(partition) == start + 28 * len(batch)


@pytest.fixture(params=["embedded", pytest.param("genuine", marks=pytest.mark.real)])
def administered(request: pytest.FixtureRequest) -> Iterator[tuple[Site, str, str]]:
    """Start a server of either kind; return its administration's address and token, too."""
    if request.param == "genuine":
        cluster = request.getfixturevalue("genuine")
        settings = settings_for(cluster.masters, heartbeat_period_ms=1_000)
        yield Site(settings, [cluster.broker_id]), cluster.master_web, cluster.admin_token
        return
    with EmbeddedTubeMQ(1, EMBEDDED_TOPICS) as server:
        assert server.master_web is not None
        yield (
            Site(settings_for(server.masters, heartbeat_period_ms=1_000), server.broker_ids),
            server.master_web,
            "abc",
        )


def test_an_administrator_sends_a_group_to_the_newest_data(
    shell: Shell, administered: tuple[Site, str, str], group: str
) -> None:
    site, web, token = administered
    partition = site.partition(SINGLE)
    start, *_ = site.send(partition, b"a", b"b", b"c")
    with shell.AssignedConsumer(site.settings, group, {SINGLE: ()}) as consumer:
        consumer.assign(partition, start)
        assert consumer.consumed_offsets[partition].current == start
        order = {
            "type": "op_modify",
            "method": "admin_set_client_balance_group_consume_from_max",
            "confModAuthToken": token,
            "modifyUser": "tests",
            "groupName": group,
        }
        assert httpx.get(f"http://{web}/webapi.htm", params=order).json()["errCode"] in (0, 200)
        end = start + 3 * 28
        eventually(lambda: consumer.consumed_offsets[partition].current == end or None)
        (new,) = site.send(partition, b"new")
        batch = consumer.receive(30_000)
        assert (batch.start, bodies(batch)) == (new, [b"new"])
        consumer.confirm(batch)


# -- with faults ----------------------------------------------------------------------------------

PARTITION = Partition(1, SHARED, 0)


@pytest.fixture
def server() -> Iterator[EmbeddedTubeMQ]:
    with embedded(Switches(lease_ms=1_500)) as server:
        yield server


@pytest.fixture
def options(server: EmbeddedTubeMQ) -> ClientSettings:
    return settings_for(server.masters, heartbeat_period_ms=1_000, rpc_timeout_ms=2_000)


def test_heartbeats_keep_a_quiet_partition(
    shell: Shell, server: EmbeddedTubeMQ, options: ClientSettings, group: str
) -> None:
    site = Site(options, [1])
    site.send(PARTITION, b"a")
    often = replace(options, heartbeat_period_ms=300)
    with shell.AssignedConsumer(often, group, TOPICS) as consumer:
        consumer.assign(PARTITION)
        time.sleep(3)  # twice the lease
        assert bodies(consumer.pull(PARTITION)) == [b"a"]


def test_heartbeats_register_again_where_the_master_forgot(
    shell: Shell, server: EmbeddedTubeMQ, options: ClientSettings, group: str
) -> None:
    with shell.AssignedConsumer(options, group, TOPICS) as consumer:
        server.forget_members()
        found = eventually(lambda: partitions_or_none(consumer))
        assert len(found) == 3


def partitions_or_none(consumer: object) -> object:
    try:
        return consumer.partitions()  # type: ignore[attr-defined]
    except errors.ServerError:
        return None  # not yet


def test_a_lost_partition_leaves_the_assignment(
    shell: Shell, server: EmbeddedTubeMQ, options: ClientSettings, group: str
) -> None:
    with shell.AssignedConsumer(options, group, TOPICS) as consumer:
        consumer.assign(PARTITION)
        server.broker(1).steal_lease(group, SHARED, 0)
        with pytest.raises(errors.PartitionTaken):
            consumer.pull(PARTITION)
        assert consumer.assignment == []


def test_closing_does_not_wait_for_a_broker_that_is_gone(
    shell: Shell, server: EmbeddedTubeMQ, options: ClientSettings, group: str
) -> None:
    with shell.AssignedConsumer(options, group, TOPICS) as consumer:
        consumer.assign(PARTITION)
        server.broker(1).stop()
