"""The partition table under any sequence of events: nothing is delivered twice or stuck."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tubemq_client import BrokerNode, Partition, errors
from tubemq_client._core.balance_partitions import HeldPartition, PartitionState, PartitionTable
from tubemq_client._core.flow_control import FlowControl, Pace
from tubemq_client._core.registration import Registered, Registration

BROKER = BrokerNode(1, "127.0.0.1", 8123)
PARTITIONS = [Partition(1, "orders", number) for number in range(4)]
CONFIRM_TIMEOUT_MS = 1_000

partitions = st.sampled_from(PARTITIONS)
delays = st.sampled_from([0, 1, 300, 2_000])


def registration(partition: Partition) -> HeldPartition:
    return HeldPartition(Registration(BROKER, partition, "group", "client"), Pace(FlowControl()))


class Table(RuleBasedStateMachine):
    """Table test; `fetches`, `batches`, `settling` are (registration, token) pairs in use."""

    def __init__(self) -> None:
        super().__init__()
        self.rings = 0
        self.now = 1_000
        self.table = PartitionTable(self._ring)
        self.fetches: list[tuple[HeldPartition, int]] = []
        self.batches: list[tuple[HeldPartition, int]] = []
        self.settling: list[tuple[HeldPartition, int]] = []
        self.tokens: set[int] = set()

    def _ring(self) -> None:
        self.rings += 1

    @rule(ms=st.integers(0, 1_500))
    def time_passes(self, ms: int) -> None:
        self.now += ms

    @rule(partition=partitions, admitted=st.booleans())
    def gain(self, partition: Partition, admitted: bool) -> None:
        if partition not in self.table.held:
            self.table.add(registration(partition))
            if admitted:
                self.table.admit([partition])

    @rule(partition=partitions)
    def revoke(self, partition: Partition) -> None:
        self.table.exclude([partition])

    @rule(partition=partitions)
    def lose(self, partition: Partition) -> None:
        held = self.table.held.get(partition)
        assert self.table.remove(partition, held) == (held is not None)
        assert not self.table.remove(partition, registration(partition))

    @rule(partition=partitions, frozen=st.booleans())
    def freeze(self, partition: Partition, frozen: bool) -> None:
        (self.table.freeze if frozen else self.table.unfreeze)([partition])

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        (self.table.pause if paused else self.table.resume)()

    @rule()
    def take(self) -> None:
        held = self.table.take(self.now)
        wait = self.table.wait_ms(self.now)
        if held is None:
            assert wait is None or wait > 0
            return
        assert held.token not in self.tokens
        assert not held.withheld
        assert not self.table.paused
        assert held.partition not in self.table.frozen
        assert held.ready_at <= self.now
        self.tokens.add(held.token)
        self.fetches.append((held, held.token))

    @precondition(lambda self: self.fetches)
    @rule(data=st.data(), delay=delays)
    def nothing_came(self, data: Any, delay: int) -> None:
        held, token = self._pick(data, self.fetches)
        ours = self.table.held.get(held.partition) is held
        assert self.table.release(held, token, ready_at=self.now + delay) == ours

    @precondition(lambda self: self.fetches)
    @rule(data=st.data())
    def a_batch_came(self, data: Any) -> None:
        held, token = self._pick(data, self.fetches)
        if self.table.delivered(held, token, self.now):
            self.batches.append((held, token))
        else:
            self.table.release(held, token)

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def confirm(self, data: Any) -> None:
        held, token = self._pick(data, self.batches)
        current = self.table.held.get(held.partition) is held and held.token == token
        if current and held.use is PartitionState.DELIVERED:
            assert self.table.confirm(held.partition, token) is held
            self.settling.append((held, token))
        else:
            with pytest.raises(errors.StaleBatch):
                self.table.confirm(held.partition, token)

    @precondition(lambda self: self.settling)
    @rule(data=st.data(), consumed=st.booleans())
    def settled(self, data: Any, consumed: bool) -> None:
        held, token = self._pick(data, self.settling)
        if self.table.release(held, token, consumed=consumed):
            assert held.consumed == consumed
        assert not self.table.release(held, token)

    @rule()
    def overdue(self) -> None:
        for partition in self.table.expire(self.now, CONFIRM_TIMEOUT_MS):
            held = self.table.held[partition]
            assert (held.use, held.consumed) == (PartitionState.IDLE, False)
            assert self.now - held.delivered_at >= CONFIRM_TIMEOUT_MS

    @invariant()
    def every_booking_is_in_somebodys_hands(self) -> None:
        hands = [*self.fetches, *self.batches, *self.settling]
        for held in self.table.held.values():
            if held.use is not PartitionState.IDLE:
                assert (held, held.token) in hands
        live = [
            (held, token)
            for held, token in hands
            if self.table.held.get(held.partition) is held
            and held.token == token
            and held.use is not PartitionState.IDLE
        ]
        assert len({held.partition for held, _ in live}) == len(live)

    def teardown(self) -> None:
        """After any history: once nothing is in use, all held partitions are fetchable."""
        for held, token in [*self.fetches, *self.batches, *self.settling]:
            self.table.release(held, token)
        self.table.admit(list(self.table.held))
        self.table.unfreeze(PARTITIONS)
        self.table.resume()
        assert self.rings
        for _ in self.table.held:
            assert self.table.take(self.now + 10_000) is not None
        assert self.table.take(self.now + 10_000) is None

    def _pick(self, data: Any, hands: list[tuple[HeldPartition, int]]) -> Any:
        return hands.pop(data.draw(st.integers(0, len(hands) - 1)))


TestTable = Table.TestCase
TestTable.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_partitions_take_turns() -> None:
    table = PartitionTable()
    for partition in PARTITIONS:
        table.add(registration(partition))
    table.admit(PARTITIONS)
    order = []
    for _ in range(8):
        held = table.take(0)
        assert held is not None
        order.append(held.partition)
        table.release(held, held.token)
    assert order == PARTITIONS * 2


def test_how_far_a_group_is_behind() -> None:
    held = registration(PARTITIONS[0])
    held.learn_registered(Registered(28, 140), 5)
    held.learn(-1, 280, 6)
    assert held.offset is not None
    assert (held.offset.lag, held.offset.updated_at_ms) == (4, 5)
