"""Choice of the active master, and what the client keeps of its answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.client.core.conftest import TOPIC
from tubemq_client import _pb, errors
from tubemq_client._core.identity import ClientIds
from tubemq_client._core.master import MasterSession, fetch_topic_metadata
from tubemq_client.model import Address
from tubemq_client.testing.memory import MemoryTubeMQ
from tubemq_client.testing.scripted import ScriptedDriver, TracedRequest

GONE: Address = ("gone", 8715)


def addresses(driver: ScriptedDriver) -> list[Address]:
    return [step.address for step in driver.trace if isinstance(step, TracedRequest)]


def test_metadata_is_asked_for_and_the_group_left(memory: MemoryTubeMQ, ids: ClientIds) -> None:
    driver = memory.driver()
    session = MasterSession((memory.master_address,))
    metadata = driver.run(fetch_topic_metadata(session, TOPIC, ids.consumer("g", "Meta"), "g"))
    assert [p.key for p in metadata.subscribable] == ["1:0", "1:1", "2:0", "2:1"]
    assert metadata.brokers == {n: memory.node(n) for n in (1, 2)}
    assert driver.asked == ["register consumer v2", "get partition meta", "close consumer"]


def test_a_master_that_is_down_is_skipped_and_not_asked_again(
    memory: MemoryTubeMQ, ids: ClientIds
) -> None:
    driver = memory.driver()
    session = MasterSession((GONE, memory.master_address))
    driver.run(fetch_topic_metadata(session, TOPIC, ids.consumer("g", "Meta"), "g"))
    assert addresses(driver) == [GONE, *[memory.master_address] * 3]


def test_a_stand_by_is_skipped(memory: MemoryTubeMQ, ids: ClientIds) -> None:
    standby: Address = ("standby", 8715)

    def answer(traced: TracedRequest) -> object:
        if traced.address == standby:
            raise errors.StandbyMaster("StandbyException")
        return memory.reply(traced)

    driver = ScriptedDriver(answer, memory.clock)
    session = MasterSession((standby, memory.master_address))
    metadata = driver.run(fetch_topic_metadata(session, TOPIC, ids.consumer("g", "Meta"), "g"))
    assert metadata.brokers
    assert addresses(driver).count(standby) == 1


def test_when_no_master_answers_every_one_is_named(memory: MemoryTubeMQ, ids: ClientIds) -> None:
    driver = memory.driver()
    session = MasterSession((GONE, ("lost", 8715)))
    with pytest.raises(errors.ConnectError) as failure:
        driver.run(fetch_topic_metadata(session, TOPIC, ids.consumer("g", "Meta"), "g"))
    for word in ("gone:8715", "lost:8715", "masters"):
        assert word in str(failure.value)


def test_metadata_is_returned_even_if_leaving_fails(memory: MemoryTubeMQ, ids: ClientIds) -> None:
    def cut(traced: TracedRequest, reply: object) -> object:
        if traced.method == "close consumer":
            raise errors.ConnectionLost("cut")
        return reply

    memory.tamper = cut
    session = MasterSession((memory.master_address,))
    metadata = memory.driver().run(
        fetch_topic_metadata(session, TOPIC, ids.consumer("g", "Meta"), "g")
    )
    assert metadata.partitions


def test_partitions_are_selected_by_name_or_all_and_unknown_ones_listed(
    memory: MemoryTubeMQ, ids: ClientIds
) -> None:
    session = MasterSession((memory.master_address,))
    metadata = memory.driver().run(
        fetch_topic_metadata(session, TOPIC, ids.consumer("g", "Meta"), "g")
    )
    assert metadata.select(None) == sorted(metadata.partitions)
    (first, *_) = metadata.subscribable
    assert metadata.select(iter([first])) == [first]
    with pytest.raises(errors.ConfigError, match="no partition 1:7; it has 1:0, 1:1, 2:0, 2:1"):
        metadata.select([type(first)(1, TOPIC, 7)])


# -- while masters change over ---------------------------------------------------------------------


def fresh_master(times: int) -> Callable[[TracedRequest, Any], Any]:
    """Let a master that has not loaded its metadata yet answer the first registrations."""
    left = iter(range(times))

    def tamper(traced: TracedRequest, reply: Any) -> Any:
        if traced.method == "register consumer v2" and next(left, None) is not None:
            return _pb.RegisterResponseM2CV2(errCode=431, errMsg="Requested topic not deployed!")
        return reply

    return tamper


def test_an_unknown_topic_is_asked_for_again_after_a_switch(
    memory: MemoryTubeMQ, ids: ClientIds
) -> None:
    session = MasterSession((GONE, memory.master_address), fail_over_wait_ms=1_000)
    memory.tamper = fresh_master(2)
    driver = memory.driver()
    metadata = driver.run(fetch_topic_metadata(session, TOPIC, ids.consumer("g", "Meta"), "g"))
    assert len(metadata.partitions) == 4
    assert driver.slept == [200, 200]


@pytest.mark.parametrize("wait_ms", [0, 900])
def test_waiting_for_a_switch_ends(memory: MemoryTubeMQ, ids: ClientIds, wait_ms: int) -> None:
    session = MasterSession((GONE, memory.master_address), fail_over_wait_ms=wait_ms)
    memory.tamper = fresh_master(100)
    driver = memory.driver()
    with pytest.raises(errors.UnknownTopic):
        driver.run(fetch_topic_metadata(session, TOPIC, ids.consumer("g", "Meta"), "g"))
    assert sum(driver.slept) == wait_ms


def test_without_a_switch_an_unknown_topic_is_unknown_at_once(
    memory: MemoryTubeMQ, ids: ClientIds
) -> None:
    session = MasterSession((memory.master_address,), fail_over_wait_ms=60_000)
    driver = memory.driver()
    with pytest.raises(errors.UnknownTopic):
        driver.run(fetch_topic_metadata(session, "nowhere", ids.consumer("g", "Meta"), "g"))
    assert driver.slept == []


# -- beside other members of the group -------------------------------------------------------------


def test_a_look_up_waits_until_another_one_has_left_its_group(
    memory: MemoryTubeMQ, ids: ClientIds
) -> None:
    """A master accepts one set of topics per group, and tasks of two topics may share a group."""
    driver, session = memory.driver(), MasterSession((memory.master_address,))
    other_client = ids.consumer("g.e", "Meta")
    driver.run(session.register_consumer(other_client, "g.e", {"other": ()}))
    refused = 0

    def leaves(traced: TracedRequest, reply: Any) -> Any:
        nonlocal refused
        refused += getattr(reply, "errCode", 0) == 425
        if refused == 3:
            memory.tamper = None
            memory.driver().run(session.close_consumer(other_client, "g.e"))
        return reply

    memory.tamper = leaves
    metadata = driver.run(fetch_topic_metadata(session, TOPIC, ids.consumer("g.e", "Meta"), "g.e"))
    assert len(metadata.partitions) == 4
    assert len(driver.slept) == 3


def test_a_group_that_stays_busy_is_reported_as_retriable(
    memory: MemoryTubeMQ, ids: ClientIds
) -> None:
    """A killed look-up occupies the group until the master forgets it."""
    driver, session = memory.driver(), MasterSession((memory.master_address,))
    driver.run(session.register_consumer(ids.consumer("g.e", "Meta"), "g.e", {"other": ()}))
    with pytest.raises(errors.GroupBusy) as busy:
        driver.run(fetch_topic_metadata(session, TOPIC, ids.consumer("g.e", "Meta"), "g.e"))
    assert (busy.value.retriable, busy.value.fatal, busy.value.code) == (True, False, 425)
    assert 10_000 <= sum(driver.slept) < 11_000
    memory.elapse(30_000)
    assert driver.run(fetch_topic_metadata(session, TOPIC, ids.consumer("g.e", "Meta"), "g.e"))


def test_members_with_other_differences_are_not_awaited(
    memory: MemoryTubeMQ, ids: ClientIds
) -> None:
    driver, session = memory.driver(), MasterSession((memory.master_address,))
    driver.run(session.register_consumer(ids.consumer("g", "Pull"), "g", {TOPIC: ("red",)}))
    with pytest.raises(errors.GroupInconsistent) as refused:
        driver.run(fetch_topic_metadata(session, TOPIC, ids.consumer("g", "Meta"), "g"))
    assert refused.value.fatal
    assert driver.slept == []
