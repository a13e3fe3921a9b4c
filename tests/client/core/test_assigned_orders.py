"""Orders of the master and its administrators to a client-balanced member."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.client.core.conftest import BESIDE, PARTITION, TOPIC
from tubemq_client import ClientSettings, Partition, ReceivedBatch, errors
from tubemq_client._core.assigned import AssignedSession
from tubemq_client._core.identity import ClientIds
from tubemq_client._core.master import MasterSession
from tubemq_client.model import ConsumerSettings
from tubemq_client.testing.memory import MemoryTubeMQ
from tubemq_client.testing.scripted import ScriptedDriver, TracedRequest

CLOSED = f"{TOPIC}#1:1:2:0,2:1:2:1"
"""Broker 1's partitions may not be subscribed, broker 2's may."""


@pytest.fixture
def consumer(memory: MemoryTubeMQ, session: MasterSession, ids: ClientIds) -> AssignedSession:
    consumer = AssignedSession(
        session,
        "group",
        ids.consumer("group", "Balance"),
        {TOPIC: ()},
        settings=ClientSettings((memory.master_address,), heartbeat_period_ms=5_000),
        consumer=ConsumerSettings(rebalance_confirm_wait_ms=3_000),
    )
    memory.driver().run(consumer.open())
    return consumer


def beats(driver: ScriptedDriver) -> list[Any]:
    return [
        step.request
        for step in driver.trace
        if isinstance(step, TracedRequest) and step.method == "consumer heartbeat v2"
    ]


def rewriting(method: str, change: Callable[[Any], None]) -> Callable[[TracedRequest, Any], Any]:
    def tamper(traced: TracedRequest, reply: Any) -> Any:
        if traced.method == method:
            change(reply)
        return reply

    return tamper


def losing(method: str) -> Callable[[TracedRequest, Any], Any]:
    return lambda traced, reply: None if traced.method == method else reply


def close_broker_1(reply: Any) -> None:
    reply.topicMetaInfoId = 77
    reply.topicMetaInfoList[:] = [CLOSED]


def order_at(wall_ms: int) -> Callable[[Any], None]:
    def change(reply: Any) -> None:
        reply.opsTaskInfo.csmFrmMaxOffsetCtrlId = wall_ms

    return change


# -- partitions that may not be read any more ------------------------------------------------------


def test_the_master_is_asked_once_per_period(
    memory: MemoryTubeMQ, consumer: AssignedSession
) -> None:
    driver = memory.driver()
    memory.elapse(9_999)
    driver.run(consumer.refresh())
    assert driver.asked == []
    memory.elapse(1)
    driver.run(consumer.refresh())
    assert driver.asked == ["get partition meta"]
    driver.run(consumer.refresh(force=True))
    assert len(driver.asked) == 2


def test_partitions_closed_for_subscription_are_given_back(
    memory: MemoryTubeMQ, consumer: AssignedSession
) -> None:
    driver = memory.driver()
    there = Partition(2, TOPIC, 0)
    for partition in (PARTITION, there):
        driver.run(consumer.assign(partition, None))
    memory.tamper = rewriting("get partition meta", close_broker_1)
    driver.run(consumer.refresh(force=True))
    assert driver.run(consumer.fetching.pull(PARTITION)) is None
    driver.run(consumer.rebalance())
    assert consumer.held.keys() == {there}
    with pytest.raises(errors.ServiceUnavailable, match="may not be subscribed"):
        driver.run(consumer.assign(PARTITION, None))


def test_an_unconfirmed_batch_may_be_confirmed_before_its_partition_is_given_back(
    memory: MemoryTubeMQ, consumer: AssignedSession, send: Callable[..., list[int]]
) -> None:
    send(b"a")
    send(b"b", to=BESIDE)
    driver = memory.driver()
    for partition in (BESIDE, PARTITION):
        driver.run(consumer.assign(partition, 0))
        batch = driver.run(consumer.fetching.pull(partition))
        assert batch is not None
    memory.tamper = rewriting("get partition meta", close_broker_1)
    driver.run(consumer.refresh(force=True))
    events = driver.stream(consumer.rebalance())
    assert next(events) == ("revoked", [PARTITION, BESIDE])
    assert consumer.held.keys() == {PARTITION, BESIDE}
    assert driver.run(consumer.fetching.confirm(batch, consumed=True)) > 0
    began = memory.clock()
    assert list(events) == []
    assert consumer.held == {}
    assert memory.clock() - began >= 3_000, "the other batch might have been confirmed"


def test_after_a_switch_of_masters_no_partition_is_given_back(
    memory: MemoryTubeMQ, consumer: AssignedSession
) -> None:
    driver = memory.driver()
    driver.run(consumer.assign(PARTITION, None))
    driver.run(consumer.master.notice_switch())
    memory.tamper = rewriting("get partition meta", close_broker_1)
    driver.run(consumer.refresh(force=True))
    driver.run(consumer.rebalance())
    assert consumer.held.keys() == {PARTITION}


def test_a_view_forced_by_the_master_is_applied(
    memory: MemoryTubeMQ, consumer: AssignedSession
) -> None:
    driver = memory.driver()
    driver.run(consumer.assign(PARTITION, None))
    memory.tamper = rewriting("consumer heartbeat v2", close_broker_1)
    memory.elapse(5_000)
    driver.run(consumer.master_heartbeat_if_due())
    driver.run(consumer.rebalance())
    assert consumer.held == {}
    memory.tamper = None
    memory.elapse(5_000)
    driver.run(consumer.master_heartbeat_if_due())
    first, second = beats(driver)
    assert first.subRepInfo.lstAssignedTime < second.subRepInfo.lstAssignedTime
    assert second.subRepInfo.topicMetaInfoId == 77


# -- reports and orders ----------------------------------------------------------------------------


def test_unchanged_partitions_are_reported_every_sixtieth_heartbeat(
    memory: MemoryTubeMQ, consumer: AssignedSession
) -> None:
    driver = memory.driver()
    driver.run(consumer.assign(PARTITION, None))
    for _ in range(62):
        driver.run(consumer.heartbeat_master())
    reported = [n for n, beat in enumerate(beats(driver)) if beat.subRepInfo.reportSubInfo]
    assert reported == [0, 60]


def test_an_order_to_skip_to_the_end_is_performed_once_and_echoed(
    memory: MemoryTubeMQ, consumer: AssignedSession, send: Callable[..., list[int]]
) -> None:
    driver = memory.driver()
    driver.run(consumer.assign(PARTITION, 0))
    send(*(b"%d" % n for n in range(5)))
    memory.elapse(5_000)
    order = memory.clock()
    memory.tamper = rewriting("consumer heartbeat v2", order_at(order))
    driver.run(consumer.master_heartbeat_if_due())
    driver.run(consumer.rebalance())
    assert driver.run(consumer.fetching.pull(PARTITION)) is None
    position = consumer.held[PARTITION].offset
    assert position is not None
    assert (position.current, position.lag) == (5 * 28, 0)
    send(b"new")
    memory.elapse(5_000)
    driver.run(consumer.master_heartbeat_if_due())
    driver.run(consumer.rebalance())
    batch = driver.run(consumer.fetching.pull(PARTITION))
    assert batch is not None
    assert batch.start == 5 * 28
    assert [beat.opsTaskInfo.csmFrmMaxOffsetCtrlId for beat in beats(driver)] == [0, order]


def test_an_order_overtaken_by_a_renewal_loses_nothing(
    memory: MemoryTubeMQ, consumer: AssignedSession, send: Callable[..., list[int]]
) -> None:
    """A renewal that takes the partition under a new client id costs no partition.

    A pull was given up, so the next one renews the lease while the order's own request is in
    flight: the broker refuses that request, not the partition.
    """
    driver, pulled = memory.driver(), []
    driver.run(consumer.assign(PARTITION, 0))
    send(b"a")
    memory.elapse(5_000)
    memory.tamper = rewriting("consumer heartbeat v2", order_at(memory.clock()))
    driver.run(consumer.master_heartbeat_if_due())
    memory.tamper = losing("get messages")
    with pytest.raises(errors.RpcTimeout):
        driver.run(consumer.fetching.pull(PARTITION))
    memory.tamper = None

    def overtaken(traced: TracedRequest) -> Any:
        if traced.method == "register partition" and not pulled:
            pulled.append(driver.run(consumer.fetching.pull(PARTITION)))
        return memory.reply(traced)

    ScriptedDriver(overtaken, memory.clock).run(consumer.rebalance())
    assert consumer.held.keys() == {PARTITION}
    assert pulled[0] is not None
    driver.run(consumer.fetching.confirm(pulled[0], consumed=True))
    send(b"b", b"c")
    driver.run(consumer.rebalance())
    assert driver.run(consumer.fetching.pull(PARTITION)) is None, "the order still counts"


def test_an_order_from_before_the_member_joined_is_ignored(
    memory: MemoryTubeMQ, consumer: AssignedSession, send: Callable[..., list[int]]
) -> None:
    driver = memory.driver()
    send(b"a")
    driver.run(consumer.assign(PARTITION, 0))
    memory.tamper = rewriting("consumer heartbeat v2", order_at(memory.clock() - 1))
    driver.run(consumer.heartbeat_master())
    driver.run(consumer.rebalance())
    assert driver.run(consumer.fetching.pull(PARTITION)) is not None


def test_a_broker_that_hangs_costs_an_order_one_request_and_no_heartbeat(
    memory: MemoryTubeMQ, consumer: AssignedSession, send: Callable[..., list[int]]
) -> None:
    there, hung = Partition(2, TOPIC, 0), memory.node(1).address
    driver = memory.driver(rpc_timeout_ms=1_000)
    for partition in (PARTITION, BESIDE, there):
        driver.run(consumer.assign(partition, 0))
        send(b"old", to=partition)
    memory.elapse(5_000)
    memory.tamper = rewriting("consumer heartbeat v2", order_at(memory.clock()))
    driver.run(consumer.master_heartbeat_if_due())
    memory.tamper = lambda asked, reply: None if asked.address == hung else reply
    asked, began = len(driver.asked), memory.clock()
    driver.run(consumer.broker_heartbeats_if_due())
    assert set(driver.asked[asked:]) == {"broker heartbeat"}
    asked, began = len(driver.asked), memory.clock()
    driver.run(consumer.rebalance())
    assert driver.asked[asked:].count("register partition") <= 3, "one of them at the hung broker"
    assert memory.clock() - began <= 1_000
    assert at_end(consumer) == {there}
    assert consumer.rebalance_wait_ms == 1_000
    memory.tamper = None
    driver.run(consumer.rebalance())
    assert at_end(consumer) == {PARTITION, BESIDE, there}
    assert consumer.rebalance_wait_ms is None


def at_end(consumer: AssignedSession) -> set[Partition]:
    """Return the held partitions without unread records, as far as the member knows."""
    offsets = ((partition, held.offset) for partition, held in consumer.held.items())
    return {
        partition for partition, offset in offsets if offset and 0 == offset.lag < offset.current
    }


# -- what brokers say ------------------------------------------------------------------------------


def test_a_limit_without_a_time_waits_as_after_nothing_to_read(
    memory: MemoryTubeMQ, consumer: AssignedSession, send: Callable[..., list[int]]
) -> None:
    def limited(reply: Any) -> None:
        reply.success, reply.errCode = False, 452
        reply.ClearField("minLimitTime")

    driver = memory.driver()
    driver.run(consumer.assign(PARTITION, 0))
    memory.tamper = rewriting("get messages", limited)
    driver.run(consumer.fetching.fetch())
    idle = driver.run(consumer.fetching.fetch())
    assert idle.wait_ms == consumer.consumer.not_found_wait_ms
    assert driver.asked.count("get messages") == 1
    assert consumer.fetching.stats.limited == 1


@pytest.mark.parametrize(
    ("code", "wait_ms"), [(404, 400), (403, 2_000), (503, 300), (301, 200), (500, 300)]
)
def test_a_partition_waits_as_the_code_requires_and_others_continue(
    memory: MemoryTubeMQ, consumer: AssignedSession, there: Partition, code: int, wait_ms: int
) -> None:
    def refuse(traced: TracedRequest, reply: Any) -> Any:
        if traced.method == "get messages" and traced.address == memory.node(1).address:
            reply.success, reply.errCode = False, code
            reply.ClearField("messages")
        return reply

    memory.tamper = refuse
    driver = memory.driver()
    results = [driver.run(consumer.fetching.fetch()) for _ in range(4)]
    assert [batch.partition for batch in results if isinstance(batch, ReceivedBatch)] == [there]
    assert driver.asked.count("get messages") == 3, "each partition once"
    memory.elapse(wait_ms - 1)
    assert driver.run(consumer.fetching.fetch()).wait_ms == 1
    memory.elapse(1)
    driver.run(consumer.fetching.fetch())
    assert driver.asked.count("get messages") == 4


def test_an_unreadable_entry_hides_no_other_loss(
    memory: MemoryTubeMQ, consumer: AssignedSession
) -> None:
    driver = memory.driver()
    for partition in (PARTITION, BESIDE):
        driver.run(consumer.assign(partition, None))

    def lost(reply: Any) -> None:
        reply.hasPartFailure = True
        reply.failureInfo.extend(["garbage", f"411:{memory.node(1)}#{TOPIC}:1"])

    memory.tamper = rewriting("broker heartbeat", lost)
    driver.run(consumer.heartbeat_brokers())
    assert consumer.held.keys() == {PARTITION}
    assert "garbage" in str(consumer.last_errors[f"broker {memory.node(1)}"])


# -- metadata --------------------------------------------------------------------------------------


def test_a_master_that_did_not_answer_is_asked_again_by_the_next_call(
    memory: MemoryTubeMQ, consumer: AssignedSession
) -> None:
    driver = memory.driver()
    memory.elapse(10_000)
    memory.tamper = losing("get partition meta")
    for _ in range(2):
        with pytest.raises(errors.RpcTimeout):
            driver.run(consumer.refresh())
    memory.tamper = None
    assert len(driver.run(consumer.refresh())) == 4


def test_concurrent_calls_use_the_cached_metadata(
    memory: MemoryTubeMQ, consumer: AssignedSession
) -> None:
    memory.elapse(10_000)
    asking = consumer.refresh()
    asking.send(None)
    asking.send(memory.clock())  # it has sent its request
    driver = memory.driver()
    assert len(driver.run(consumer.refresh())) == 4
    assert driver.asked == []
    asking.close()


def test_only_changes_are_requested(memory: MemoryTubeMQ, consumer: AssignedSession) -> None:
    driver = memory.driver()
    memory.elapse(10_000)
    driver.run(consumer.refresh())
    memory.elapse(10_000)
    assert len(driver.run(consumer.refresh())) == 4
    known_ids = [
        step.request.topicMetaInfoId for step in driver.trace if isinstance(step, TracedRequest)
    ]
    assert known_ids == [consumer.view.meta_id] * 2
    driver.run(consumer.refresh(force=True))
    assert driver.trace[-1].request.topicMetaInfoId == -2  # type: ignore[union-attr]


def test_a_refused_partition_is_asked_for_twice(
    memory: MemoryTubeMQ, consumer: AssignedSession
) -> None:
    """The first attempt after a lease has ended only makes room."""
    refusals = iter([410])

    def occupied(traced: TracedRequest, reply: Any) -> Any:
        if traced.method == "register partition" and (code := next(refusals, None)):
            reply.success, reply.errCode = False, code
        return reply

    memory.tamper = occupied
    driver = memory.driver()
    driver.run(consumer.assign(PARTITION, None))
    assert driver.slept == [1_000]
    assert consumer.held.keys() == {PARTITION}


def test_an_explicit_offset_overrides_the_position(
    memory: MemoryTubeMQ, consumer: AssignedSession, send: Callable[..., list[int]]
) -> None:
    send(b"a", b"b")
    consumer.consumer = ConsumerSettings(consume_position="always_latest")
    assert memory.driver().run(consumer.assign(PARTITION, 28)).current == 28


# -- assigning -------------------------------------------------------------------------------------


def test_the_settings_position_counts_the_first_time_only(
    memory: MemoryTubeMQ, consumer: AssignedSession, send: Callable[..., list[int]]
) -> None:
    send(b"a", b"b")
    consumer.consumer = ConsumerSettings(consume_position="always_latest")
    driver = memory.driver()
    assert driver.run(consumer.assign(PARTITION, None)).current == 56
    driver.run(consumer.release(PARTITION, consumed=False))
    send(b"c")
    assert driver.run(consumer.assign(PARTITION, None)).current == 56


def test_a_broker_that_is_down_is_asked_twice(
    memory: MemoryTubeMQ, consumer: AssignedSession
) -> None:
    driver = memory.driver()
    memory.unplugged.add(memory.node(1).address)
    with pytest.raises(errors.ConnectError):
        driver.run(consumer.assign(PARTITION, None))
    assert driver.asked == ["register partition"] * 2
    assert driver.run(consumer.assign(Partition(2, TOPIC, 0), None)).current == 0


@pytest.fixture
def there(
    memory: MemoryTubeMQ, consumer: AssignedSession, send: Callable[..., list[int]]
) -> Partition:
    """Hold a partition of the second broker and two of the first, each with one record."""
    there = Partition(2, TOPIC, 0)
    for partition in (PARTITION, BESIDE, there):
        send(b"x", to=partition)
        memory.driver().run(consumer.assign(partition, 0))
    return there


def test_partitions_take_turns_and_one_that_fails_costs_the_others_nothing(
    memory: MemoryTubeMQ, consumer: AssignedSession, there: Partition
) -> None:
    driver = memory.driver()
    memory.unplugged.add(memory.node(1).address)
    results = [driver.run(consumer.fetching.fetch()) for _ in range(3)]
    assert [batch.partition for batch in results if isinstance(batch, ReceivedBatch)] == [there]
    assert str(PARTITION) in consumer.last_errors
    assert str(BESIDE) not in consumer.last_errors, "a broker is asked once, not once a partition"
    memory.unplugged.clear()
    memory.elapse(300)
    results = [driver.run(consumer.fetching.fetch()) for _ in range(3)]
    batches = [batch for batch in results if isinstance(batch, ReceivedBatch)]
    assert [batch.partition for batch in batches] == [PARTITION, BESIDE]


def test_a_hanging_broker_delays_receive_shortly_and_is_avoided(
    memory: MemoryTubeMQ, consumer: AssignedSession, there: Partition
) -> None:
    hung = memory.node(1).address
    memory.tamper = lambda asked, reply: None if asked.address == hung else reply
    driver = memory.driver(rpc_timeout_ms=1_000)
    began = memory.clock()
    results = [driver.run(consumer.fetching.fetch()) for _ in range(3)]
    assert [batch.partition for batch in results if isinstance(batch, ReceivedBatch)] == [there]
    assert memory.clock() - began <= 200
    assert consumer.fetching.breaker.left_alone(memory.clock()) == {memory.node(1): 0}
    asked = len(driver.asked)
    while not consumer.fetching.stats.unanswered:
        memory.elapse(10)
        driver.run(consumer.fetching.fetch())
    assert len(driver.asked) == asked, "what is owed is waited for beside the others"
    assert memory.clock() - began <= 1_100
    assert consumer.last_errors.keys() == {str(PARTITION)}
    memory.tamper = None
    memory.elapse(300)
    results = [driver.run(consumer.fetching.fetch()) for _ in range(4)]
    batches = [batch for batch in results if isinstance(batch, ReceivedBatch)]
    assert [batch.partition for batch in batches] == [PARTITION, BESIDE], "nothing was confirmed"
    assert consumer.fetching.breaker.left_alone(memory.clock()) == {}
