"""A member step by step: orders of the master, reports, and the effects of faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.servers import memory_tubemq
from tubemq_client import BoundStart, ClientSettings, Partition, ReceivedBatch, _pb, errors
from tubemq_client._core.balance import BalancedSession
from tubemq_client._core.balance_fetch import Idle
from tubemq_client._core.flow_control import FlowRules
from tubemq_client._core.master import MasterSession
from tubemq_client._wire import methods
from tubemq_client.embedded import Switches, TopicSpec
from tubemq_client.model import ConsumerSettings
from tubemq_client.testing.memory import MemoryTubeMQ
from tubemq_client.testing.scripted import ScriptedDriver, TracedRequest

TOPIC = "orders"
ZERO, ONE = Partition(1, TOPIC, 0), Partition(1, TOPIC, 1)


memory = memory_tubemq(
    [TopicSpec(TOPIC, 1, 2)], switches=Switches(flush_interval_ms=None, unflushed_records=1)
)


class Member:
    """Session with its driver."""

    def __init__(self, memory: MemoryTubeMQ, name: str, **options: Any) -> None:
        self.mq = memory
        self.driver: ScriptedDriver = memory.driver()
        settings = ClientSettings(masters=(memory.master_address,))
        self.session = BalancedSession(
            MasterSession(settings.masters),
            "group",
            f"group_127.0.0.1-1-1-{name}",
            {TOPIC: ()},
            settings,
            **options,
        )
        self.driver.run(self.session.open())
        self.beat()

    @property
    def held(self) -> list[Partition]:
        return sorted(self.session.table.held)

    def beat(self) -> int:
        wait: int = self.driver.run(self.session.master_heartbeat_if_due())
        return wait

    def rebalance(self) -> list[tuple[str, list[Partition]]]:
        return [tuple(event) for event in self.driver.stream(self.session.rebalance())]

    def settle(self, *others: Member) -> None:
        """Take part in balance rounds until nothing changes."""
        for _ in range(5):
            self.mq.elapse(10_000)
            self.mq.balance()
            for member in (self, *others):
                member.beat()
                member.driver.run(member.session.broker_heartbeats_if_due())
                member.rebalance()
                member.beat()

    def fetch(self) -> Any:
        return self.driver.run(self.session.fetching.fetch())

    def receive(self) -> ReceivedBatch:
        for _ in range(5):
            if isinstance(batch := self.fetch(), ReceivedBatch):
                return batch
        raise AssertionError(self.session.last_errors)

    def everything(self) -> list[list[bytes]]:
        """Return the bodies of all available batches, each confirmed."""
        batches = []
        for _ in range(20):
            if isinstance(batch := self.fetch(), ReceivedBatch):
                batches.append([message.body for message in batch.messages()])
                self.confirm(batch)
        return batches

    def confirm(self, batch: ReceivedBatch, *, consumed: bool = True) -> int:
        position: int = self.driver.run(self.session.fetching.confirm(batch, consumed=consumed))
        return position

    def requests(self, method: Any) -> list[Any]:
        return [
            step.request
            for step in self.driver.trace
            if isinstance(step, TracedRequest) and step.method == method.name
        ]


Join = Callable[..., Member]


@pytest.fixture
def join(memory: MemoryTubeMQ) -> Join:
    return lambda name="a", **options: Member(memory, name, **options)


def send(memory: MemoryTubeMQ, partition: Partition, *bodies: bytes) -> None:
    for body in bodies:
        request = _pb.SendMessageRequestP2B(
            clientId="producer",
            topicName=TOPIC,
            partitionId=partition.partition_id,
            data=body,
            flag=0,
            checkSum=-1,
            sentAddr=0,
        )
        address = memory.node().address
        assert memory.reply(TracedRequest(0, address, methods.SEND_MESSAGE.name, request)).success


def once(memory: MemoryTubeMQ, method: Any, error: errors.TubeMQError) -> None:
    """Let the next `method` take effect and lose its reply."""

    def cut(traced: TracedRequest, reply: Any) -> Any:
        if traced.method == method.name:
            memory.tamper = None
            raise error
        return reply

    memory.tamper = cut


def never(member: Member, method: Any, error: errors.TubeMQError) -> None:
    """Let the member's next `method` be lost."""
    answer = member.driver._answer

    def refuse(traced: TracedRequest) -> Any:
        if traced.method == method.name:
            member.driver._answer = answer
            raise error
        return answer(traced)

    member.driver._answer = refuse


# -- orders ---------------------------------------------------------------------------------------


def test_an_order_is_acknowledged_at_once_with_the_held_partitions(
    memory: MemoryTubeMQ, join: Join
) -> None:
    member = join()
    memory.elapse(10_000)
    memory.balance()
    assert member.beat() == 10_000
    assert member.rebalance() == [("assigned", [ZERO, ONE])]
    assert member.beat() == 10_000  # it was due at once: there was a change to report
    *_, offered, acknowledgement = member.requests(methods.HEARTBEAT_CONSUMER)
    assert not offered.HasField("event")
    assert (acknowledgement.event.opType, acknowledgement.event.status) == (10, 2)
    assert acknowledgement.reportSubscribeInfo
    node = memory.node()
    assert sorted(acknowledgement.subscribeInfo) == sorted(acknowledgement.event.subscribeInfo)
    assert list(acknowledgement.subscribeInfo) == [
        f"{member.session.client_id}@group#{node}#{TOPIC}:{n}" for n in (0, 1)
    ]


def test_held_partitions_are_reported_periodically_and_on_change(
    memory: MemoryTubeMQ, join: Join
) -> None:
    member = join(consumer=ConsumerSettings(report_every_beats=3))
    member.settle()
    before = len(member.requests(methods.HEARTBEAT_CONSUMER))
    for _ in range(6):
        memory.elapse(10_000)
        member.beat()
    beats = member.requests(methods.HEARTBEAT_CONSUMER)[before:]
    assert sum(beat.reportSubscribeInfo for beat in beats) == 2
    memory.elapse(31_000)  # leases end
    member.driver.run(member.session.broker_heartbeats_if_due())
    assert member.held == []
    member.beat()
    last = member.requests(methods.HEARTBEAT_CONSUMER)[-1]
    assert (last.reportSubscribeInfo, list(last.subscribeInfo)) == (True, [])
    assert member.rebalance()[0] == ("lost", [ZERO, ONE])


def test_an_occupied_partition_is_retried_and_left_to_the_master(
    memory: MemoryTubeMQ, join: Join
) -> None:
    ghost = join("ghost")
    ghost.settle()
    memory.elapse(1_000)
    member = join("b")
    event = _pb.EventProto(rebalanceId=77, opType=1)
    event.subscribeInfo.append(f"{member.session.client_id}@group#{memory.node()}#{TOPIC}:0")
    reply = _pb.HeartResponseM2C(success=True, errCode=200, errMsg="OK!", notAllocated=False)
    reply.event.CopyFrom(event)
    member.session._receive_order(reply)
    assert member.rebalance() == []
    assert member.driver.slept == [1_000] * 4
    assert isinstance(member.session.last_errors[str(ZERO)], errors.PartitionOccupied)
    member.beat()
    acknowledgement = member.requests(methods.HEARTBEAT_CONSUMER)[-1]
    assert (acknowledgement.event.rebalanceId, list(acknowledgement.subscribeInfo)) == (77, [])


@pytest.mark.parametrize(
    ("operation", "text"), [(3, ""), (99, ""), (2, "client@group#1:h:1#orders:0"), (10, "garbage")]
)
def test_orders_that_change_nothing_are_acknowledged_too(
    memory: MemoryTubeMQ, join: Join, operation: int, text: str
) -> None:
    """Otherwise the whole group would wait for this member."""
    member = join()
    reply = _pb.HeartResponseM2C(success=True, errCode=200, errMsg="OK!", notAllocated=False)
    reply.event.CopyFrom(_pb.EventProto(rebalanceId=5, opType=operation))
    reply.event.subscribeInfo.extend([text] if text else [])
    member.session._receive_order(reply)
    assert member.rebalance() == []
    member.beat()
    acknowledgement = member.requests(methods.HEARTBEAT_CONSUMER)[-1]
    assert (acknowledgement.event.rebalanceId, acknowledgement.event.opType) == (5, operation)
    assert list(acknowledgement.event.subscribeInfo) == ([text] if text else [])


def test_an_acknowledgement_whose_reply_is_lost_is_sent_again(
    memory: MemoryTubeMQ, join: Join
) -> None:
    member = join()
    memory.elapse(10_000)
    memory.balance()
    member.beat()
    member.rebalance()
    once(memory, methods.HEARTBEAT_CONSUMER, errors.ConnectionLost("cut"))
    member.beat()
    memory.elapse(10_000)
    member.beat()
    first, second = member.requests(methods.HEARTBEAT_CONSUMER)[-2:]
    assert first.event == second.event
    memory.elapse(10_000)
    member.beat()
    assert not member.requests(methods.HEARTBEAT_CONSUMER)[-1].HasField("event")


def test_a_forgotten_member_registers_with_its_partitions(memory: MemoryTubeMQ, join: Join) -> None:
    member = join()
    member.settle()
    memory._master.forget_members()
    memory.elapse(10_000)
    assert member.beat() == 0
    register = member.requests(methods.REGISTER_CONSUMER)[-1]
    assert len(register.subscribeInfo) == 2
    member.settle()
    assert (member.held, member.rebalance()) == ([ZERO, ONE], [])


def test_a_fatal_refusal_is_raised_by_receive(memory: MemoryTubeMQ, join: Join) -> None:
    member = join()
    memory._master.forget_members()
    other = BalancedSession(
        MasterSession((memory.master_address,)),
        "group",
        "group_127.0.0.1-1-1-x",
        {TOPIC: ("red",)},
        ClientSettings(masters=(memory.master_address,)),
    )
    memory.driver().run(other.open())
    memory.elapse(10_000)
    member.beat()
    assert isinstance(member.session.failure, errors.GroupInconsistent)


# -- where a group begins -------------------------------------------------------------------------


def test_explicit_offsets_are_used_once_by_the_group(memory: MemoryTubeMQ, join: Join) -> None:
    send(memory, ZERO, b"a", b"b", b"c")
    send(memory, ONE, b"x", b"y")
    bound = BoundStart("key", 1, {ZERO: 28, ONE: 112})
    first = join("first", bound=bound)
    first.settle()
    received = [body for batch in first.everything() for body in batch]
    assert sorted(received) == [b"b", b"c", b"y"]
    second = join("second", bound=bound)
    first.settle(second)
    assert (len(first.held), len(second.held)) == (1, 1)
    send(memory, second.held[0], b"d")
    assert second.everything() == [[b"d"]]


def test_a_slow_member_keeps_its_start_offsets_after_a_fast_one(
    memory: MemoryTubeMQ, join: Join
) -> None:
    send(memory, ZERO, b"a", b"b")
    send(memory, ONE, b"c", b"d")
    fast = join("fast", bound=BoundStart("key", 2, {ZERO: 28}))
    slow = join("slow", bound=BoundStart("key", 2, {ONE: 84}))
    memory.elapse(10_000)
    memory.balance()
    fast.beat()
    fast.rebalance()
    fast.beat()
    slow.beat()
    assert not slow.session._not_allocated
    slow.rebalance()
    assert (fast.everything(), slow.everything()) == ([[b"b"]], [[b"d"]])


@pytest.mark.parametrize(("position", "first"), [("earliest", b"old"), ("latest", b"new")])
def test_a_new_group_starts_at_the_requested_position(
    memory: MemoryTubeMQ, join: Join, position: Any, first: bytes
) -> None:
    """Also if the first registration failed: only a success uses up the position."""
    send(memory, ZERO, b"old")
    member = join(consumer=ConsumerSettings(consume_position=position))
    memory.elapse(10_000)
    memory.balance()
    member.beat()
    never(member, methods.REGISTER_PARTITION, errors.ConnectError("refused"))
    member.rebalance()
    send(memory, ZERO, b"new")
    assert next(iter(member.receive().messages())).body == first


# -- fetching and confirming ----------------------------------------------------------------------


@pytest.mark.parametrize("arrives", [True, False])
@pytest.mark.parametrize(
    "error", [errors.ConnectionLost("cut"), errors.RpcTimeout("silent")], ids=["cut", "silent"]
)
def test_a_confirmation_without_an_answer_takes_effect(
    memory: MemoryTubeMQ, join: Join, error: errors.TubeMQError, arrives: bool
) -> None:
    member = join()
    member.settle()
    send(memory, ZERO, b"a")
    batch = member.receive()
    if arrives:
        once(memory, methods.COMMIT_OFFSET, error)
    else:
        never(member, methods.COMMIT_OFFSET, error)
    if isinstance(error, errors.RpcTimeout):
        with pytest.raises(errors.RpcTimeout):
            member.confirm(batch)
    else:
        assert member.confirm(batch) == 28
    send(memory, ZERO, b"b")
    memory.elapse(1_000)
    assert [m.body for m in member.receive().messages()] == [b"b"]


def test_a_rejected_batch_waits_before_it_is_delivered_again(
    memory: MemoryTubeMQ, join: Join
) -> None:
    member = join()
    member.settle()
    send(memory, ZERO, b"a")
    batch = member.receive()
    assert member.confirm(batch, consumed=False) == 0
    while not isinstance(result := member.fetch(), Idle) or result.wait_ms == 0:
        assert isinstance(result, Idle)
    assert 0 < (result.wait_ms or 0) <= 400
    memory.elapse(400)
    assert member.receive().start == batch.start


@pytest.mark.parametrize(
    ("code", "limit_ms", "wait_ms"),
    [(404, 0, 400), (452, 700, 700), (403, 0, 2_000), (301, 0, 200), (503, 0, 300), (500, 0, 300)],
)
def test_a_refused_fetch_waits_as_the_code_requires(
    memory: MemoryTubeMQ, join: Join, code: int, limit_ms: int, wait_ms: int
) -> None:
    member = join()
    member.settle()
    memory.elapse(1_000)
    member.session.table.freeze([ONE])

    def refuse(traced: TracedRequest, reply: Any) -> Any:
        if traced.method == methods.GET_MESSAGES.name:
            return _pb.GetMessageResponseB2C(success=False, errCode=code, minLimitTime=limit_ms)
        return reply

    memory.tamper = refuse
    assert member.fetch() == Idle(0)
    assert member.fetch() == Idle(wait_ms)
    assert member.held == [ZERO, ONE]


def test_flow_rules_decide_how_often_an_empty_partition_is_asked(
    memory: MemoryTubeMQ, join: Join
) -> None:
    member = join()
    member.settle()
    memory.elapse(1_000)
    member.session.table.freeze([ONE])
    rule = '[{"type":1,"rule":[{"zeroCnt":2,"freqInMs":900}]}]'
    member.session.flow.default = FlowRules.parse(rule)
    assert [member.fetch(), member.fetch()] == [Idle(0), Idle(400)]
    memory.elapse(400)
    assert [member.fetch(), member.fetch()] == [Idle(0), Idle(900)]


def test_a_forgetful_master_is_not_flooded(memory: MemoryTubeMQ, join: Join) -> None:
    member = join()
    waits = []
    for _ in range(4):
        memory._master.forget_members()
        memory.elapse(10_000)
        waits.append(member.beat())
    assert waits == [0, 10_000, 10_000, 10_000]


@pytest.mark.parametrize("code", [411, 412, 415])
def test_a_fetch_refused_for_a_lost_partition_gives_it_up(
    memory: MemoryTubeMQ, join: Join, code: int
) -> None:
    member = join()
    member.settle()
    memory.tamper = lambda asked, reply: _pb.GetMessageResponseB2C(success=False, errCode=code)
    member.fetch()
    assert len(member.held) == 1
    memory.tamper = None
    assert [kind for kind, _ in member.rebalance()] == ["lost"]
    assert member.beat() >= 0
    assert len(member.requests(methods.HEARTBEAT_CONSUMER)[-1].subscribeInfo) == 1


def test_an_abandoned_fetch_leaves_its_partition_to_the_next(
    memory: MemoryTubeMQ, join: Join
) -> None:
    member = join()
    member.settle()
    send(memory, ZERO, b"a")
    send(memory, ONE, b"b")
    for _ in range(5):
        half = member.session.fetching.fetch()
        next(half)
        half.send(memory.clock())
        half.close()
    starts = {member.receive().partition, member.receive().partition}
    assert starts == {ZERO, ONE}


def test_unreachable_brokers_do_not_prevent_leaving(memory: MemoryTubeMQ, join: Join) -> None:
    member = join()
    member.settle()
    memory.unplugged.add(memory.node().address)
    member.driver.run(member.session.close())
    assert member.driver.asked[-1] == methods.CLOSE_CONSUMER.name
    assert member.held == []
