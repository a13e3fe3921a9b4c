"""Shares of a group whose members assign themselves, and when the master's view is ignored."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tubemq_client import Partition, errors
from tubemq_client._core.assigned_view import (
    RefusalBackoff,
    TopicView,
    java_hash,
    node_of,
    place_in_group,
)
from tubemq_client._wire.strings import BrokerMeta, TopicMeta

TOPIC = "t1"


@pytest.mark.parametrize(
    ("key", "expected"),
    [("1:t1:0", 1459897308), ("1:t1:10000", 4050360669), ("2:topic_a:3", 2222574338), ("", 0)],
)
def test_keys_are_hashed_as_java_does(key: str, expected: int) -> None:
    assert java_hash(key) == expected


def test_a_key_beyond_the_basic_plane_is_hashed_by_its_two_units() -> None:
    assert java_hash("\U0001f600") == (0xD83D * 31 + 0xDE00) % 2**32


@given(count=st.integers(1, 9), ids=st.sets(st.integers(0, 40_000), max_size=30))
def test_every_partition_is_the_share_of_exactly_one_member(count: int, ids: set[int]) -> None:
    view = TopicView({Partition(1, TOPIC, number): True for number in ids})
    shares = [view.share((count, node)) for node in range(count)]
    assert sorted(p for share in shares for p in share) == sorted(view.partitions)
    assert all(node_of(p, count) == node for node, share in enumerate(shares) for p in share)


def test_a_share_has_what_may_be_subscribed_only() -> None:
    view = TopicView({Partition(1, TOPIC, 0): True, Partition(1, TOPIC, 1): False})
    assert view.share(place_in_group(None, None)) == [Partition(1, TOPIC, 0)]


@pytest.mark.parametrize(
    ("count", "node", "named"),
    [(3, None, "node_id"), (None, 0, "source_count"), (0, 0, "source_count"), (3, 3, "node_id")],
)
def test_an_invalid_place_in_the_group_is_refused(
    count: int | None, node: int | None, named: str
) -> None:
    with pytest.raises(errors.ConfigError, match=named):
        place_in_group(count, node)


def meta(*brokers: int) -> list[TopicMeta]:
    return [TopicMeta(TOPIC, tuple(BrokerMeta(broker, 1, 2, True) for broker in brokers))]


def test_a_bare_id_says_that_nothing_has_changed() -> None:
    view = TopicView()
    assert view.learn(5, meta(1), {1}, 100)
    assert not view.learn(5, [], {1}, 200)
    assert (len(view.partitions), view.learned_ms) == (2, 200)


@pytest.mark.parametrize(("meta_id", "brokers"), [(-2, (1,)), (6, ()), (6, (7,))])
def test_a_view_without_a_known_broker_or_id_is_ignored(
    meta_id: int, brokers: tuple[int, ...]
) -> None:
    view = TopicView()
    view.learn(5, meta(1), {1}, 100)
    assert not view.learn(meta_id, meta(*brokers), {1}, 200)
    assert (view.meta_id, view.learned_ms, len(view.partitions)) == (5, 100, 2)


def test_a_refusal_is_repeated_for_five_seconds() -> None:
    hold_off, partition = RefusalBackoff(), Partition(1, TOPIC, 0)
    hold_off.note(partition, errors.PartitionOccupied(410, "taken", where="there"), 1_000)
    hold_off.check(Partition(1, TOPIC, 1), 1_000)
    with pytest.raises(errors.PartitionOccupied, match=r"there: code 410: taken .*in 1 ms"):
        hold_off.check(partition, 5_999)
    hold_off.check(partition, 6_000)
