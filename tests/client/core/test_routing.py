"""Choice of a record's partition, and what is avoided for how long."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tubemq_client import Partition, ProducerSettings
from tubemq_client._core.routing import SendBreaker, partition_for_key

PARTITIONS = [Partition(broker, "orders", n) for broker in (1, 2, 3, 4) for n in (0, 1)]
FIRST = PARTITIONS[0]


def brokers_open(breaker: SendBreaker, now: int) -> set[int]:
    return {p.broker_id for p in breaker.open(PARTITIONS, now)}


def test_the_partition_of_a_key_is_the_same_everywhere() -> None:
    """CRC-32 of "123456789" is 0xCBF43926 in every implementation."""
    assert partition_for_key("123456789", PARTITIONS) == PARTITIONS[0xCBF43926 % 8]
    assert partition_for_key(b"123456789", PARTITIONS) == PARTITIONS[0xCBF43926 % 8]


@given(st.binary() | st.text(), st.integers(1, 8))
def test_every_key_has_a_partition(key: bytes | str, count: int) -> None:
    assert partition_for_key(key, PARTITIONS[:count]) in PARTITIONS[:count]


def test_a_broker_that_is_unavailable_gets_nothing_for_50_s() -> None:
    breaker = SendBreaker()
    breaker.unavailable(FIRST, 1_000)
    assert brokers_open(breaker, 50_999) == {2, 3, 4}
    assert brokers_open(breaker, 51_000) == {1, 2, 3, 4}
    assert not breaker.any


def test_a_partition_is_avoided_after_more_than_three_failures_in_a_row() -> None:
    breaker = SendBreaker()
    for _ in range(3):
        breaker.failed(FIRST, 0)
    breaker.stored(FIRST)
    for _ in range(3):
        breaker.failed(FIRST, 0)
    assert FIRST in breaker.open(PARTITIONS, 0)
    breaker.failed(FIRST, 0)
    assert FIRST not in breaker.open(PARTITIONS, 2_999)
    assert PARTITIONS[1] in breaker.open(PARTITIONS, 2_999), "its neighbour is not to blame"
    assert FIRST in breaker.open(PARTITIONS, 3_000)


class Meanwhile:
    """Options during whose look-up another thread stores a record."""

    def __init__(self, breaker: SendBreaker) -> None:
        self._breaker = breaker
        self._options = breaker.settings

    def __getattr__(self, name: str) -> Any:
        self._breaker.stored(FIRST)
        return getattr(self._options, name)


def test_another_thread_may_store_a_record_while_a_failure_is_noted() -> None:
    breaker = SendBreaker()
    for _ in range(3):
        breaker.failed(FIRST, 0)
    for _ in range(5):
        breaker.unreachable(FIRST, 0, known_brokers=4)
    breaker.settings = Meanwhile(breaker)  # type: ignore[assignment]
    breaker.failed(FIRST, 0)
    breaker.unreachable(FIRST, 0, known_brokers=4)
    assert FIRST not in breaker.open(PARTITIONS, 0)


def test_changes_during_a_choice_of_partitions_are_kept() -> None:
    """Another thread has the same table, and records its observation in it."""
    breaker = SendBreaker()
    brokers, partitions = breaker.brokers, breaker.partitions
    breaker.open(PARTITIONS, 0)
    brokers[1] = partitions[PARTITIONS[2]] = 1_000
    assert breaker.open(PARTITIONS, 0) == PARTITIONS[3:]


@pytest.mark.parametrize(("apart_ms", "left_out"), [(10_000, True), (30_000, False)])
def test_broken_connections_count_within_their_window(apart_ms: int, left_out: bool) -> None:
    breaker = SendBreaker()
    for n in range(6):
        breaker.unreachable(FIRST, n * apart_ms, known_brokers=4)
    assert (1 in breaker.brokers) is left_out
    if left_out:
        assert breaker.brokers[1] == 50_000 + 1_800_000


def test_at_most_a_share_of_the_brokers_is_avoided_for_connections() -> None:
    breaker = SendBreaker(ProducerSettings(link_max_quarantined_share=0.5))
    for partition in PARTITIONS[::2]:
        for _ in range(6):
            breaker.unreachable(partition, 0, known_brokers=4)
    assert set(breaker.brokers) == {1, 2}


@pytest.mark.parametrize(("known", "left_out"), [(1, 0), (2, 1), (3, 1), (4, 1), (5, 2), (7, 2)])
def test_the_avoided_share_is_rounded_to_whole_brokers(known: int, left_out: int) -> None:
    """Rounded down, the share would protect no cluster of two or three; upstream rounds too."""
    breaker = SendBreaker()
    for broker in range(known):
        for _ in range(6):
            breaker.unreachable(Partition(broker, "orders", 0), 0, known)
    assert len(breaker.brokers) == left_out


def test_when_everything_is_avoided_everything_is_tried() -> None:
    breaker = SendBreaker()
    for partition in PARTITIONS:
        breaker.unavailable(partition, 0)
    assert breaker.open(PARTITIONS, 1) == PARTITIONS
    assert brokers_open(breaker, 1) == {1, 2, 3, 4}
    assert [p.broker_id for p in breaker.open(PARTITIONS, 1, {1, 2, 3})] == [4, 4]
    assert list(breaker.open(PARTITIONS, 1, {1, 2, 3, 4})) == []


def test_a_broker_that_stores_much_less_is_avoided_for_a_period() -> None:
    breaker = SendBreaker()
    for partition in PARTITIONS[2:]:
        for _ in range(200):
            breaker.stored(partition)
    for _ in range(100):
        breaker.failed(PARTITIONS[1], 0)
    breaker.judge(30_000)
    assert brokers_open(breaker, 30_001) == {2, 3, 4}
    breaker.judge(60_000)
    assert brokers_open(breaker, 60_000) == {1, 2, 3, 4}


def test_few_failures_do_not_exclude_a_broker() -> None:
    breaker = SendBreaker()
    for _ in range(200):
        breaker.stored(PARTITIONS[2])
    breaker.failed(PARTITIONS[1], 0)
    breaker.judge(30_000)
    assert not breaker.brokers


def test_a_broker_that_answers_is_used_again() -> None:
    breaker = SendBreaker()
    for _ in range(6):
        breaker.unreachable(FIRST, 0, known_brokers=4)
    assert brokers_open(breaker, 1) == {2, 3, 4}
    breaker.stored(FIRST)
    assert brokers_open(breaker, 1) == {1, 2, 3, 4}
