"""Positions: stored, lag, set, copied, removed, recorded; dry runs change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.client.admin.conftest import Site
from tests.system.behaviour.sites import SHARED, WIDE, eventually
from tubemq_client import AssignedConsumer, Partition, errors
from tubemq_client.admin import OffsetChange


@pytest.fixture
def place(site: Site) -> Partition:
    return Partition(site.broker_id, SHARED, 0)


def seen(ask: Callable[[], Any]) -> Any:
    """Wait for a new group, which a genuine broker lists up to 5 s late."""
    return eventually(lambda: ask() or None)


def test_positions_and_lag_without_registering(
    site: Site, admin: Any, group: str, place: Partition
) -> None:
    site.send(place, 10)
    end = admin.topic_ends(SHARED)[place].max_offset
    site.place(group, place, end - 84)

    seen(lambda: admin.group_offsets(SHARED, group))
    rows = admin.group_positions(group, SHARED)
    first = rows[0]
    assert (first.partition, first.position, first.in_flight) == (place, end - 84, 0)
    assert first.lag_entries == 3
    assert [row.partition.partition_id for row in rows] == [0, 1, 2]
    assert rows[1].position is None
    assert rows[1].lag_entries == (end - rows[1].min_offset) // 28
    assert admin.group_offsets(SHARED, group) == {place: end - 84}
    (lag,) = admin.lag(group)
    # Three partitions share one store: it counts once, by the partition with the largest lag.
    assert (lag.topic, lag.entries) == (SHARED, rows[1].lag_entries)


def test_setting_returns_old_and_new_offsets(
    site: Site, admin: Any, group: str, place: Partition
) -> None:
    site.send(place, 4)
    ends = admin.topic_ends(SHARED)[place]
    plan = admin.set_offsets(group, {place: "latest"}, dry_run=True)
    assert plan == [OffsetChange(group, place, None, ends.max_offset, applied=False)]
    assert admin.group_offsets(SHARED, group) == {}

    admin.set_offsets(group, {place: "latest"})
    seen(lambda: admin.group_offsets(SHARED, group))
    other = Partition(place.broker_id, SHARED, 2)
    changes = admin.set_offsets(group, {place: ends.max_offset - 28, other: "earliest"})
    assert [(c.before, c.after, c.applied) for c in changes] == [
        (ends.max_offset, ends.max_offset - 28, True),
        (None, ends.min_offset, True),
    ]
    assert admin.group_offsets(SHARED, group) == {
        place: ends.max_offset - 28,
        other: ends.min_offset,
    }


def test_every_wrong_offset_is_listed_and_nothing_is_set(
    site: Site, admin: Any, group: str, place: Partition
) -> None:
    end = admin.topic_ends(SHARED)[place].max_offset
    wrong = {
        place: end + 28,
        Partition(place.broker_id, SHARED, 1): 5,
        Partition(place.broker_id, SHARED, 77): 0,
        Partition(99, SHARED, 0): 0,
        Partition(place.broker_id, SHARED, 2): "latest",
    }
    with pytest.raises(errors.ConfigError) as refused:
        admin.set_offsets(group, wrong)
    text = "\n".join(refused.value.problems)
    assert len(refused.value.problems) == 4
    for words in (f"{end + 28} is not within the log", "5 is no multiple", ":77:", "99:"):
        assert words in text.replace(f"{SHARED}:77", ":77:")
    assert admin.group_offsets(SHARED, group) == {}
    with pytest.raises(errors.UnknownTopic, match="nowhere"):
        admin.set_offsets(group, {Partition(1, "nowhere", 0): 0})


def test_a_running_consumer_reads_on_from_the_new_position(
    site: Site, admin: Any, group: str, place: Partition
) -> None:
    site.send(place, 6)
    end = admin.topic_ends(SHARED)[place].max_offset
    with AssignedConsumer(site.settings, group, {SHARED: ()}) as consumer:
        consumer.assign(place, end - 6 * 28)
        batch = eventually(lambda: consumer.pull(place))
        admin.set_offsets(group, {place: end - 56})
        # Its current batch no longer moves anything.
        assert consumer.confirm(batch) == end - 56
        again = eventually(lambda: consumer.pull(place))
        assert next(message.offset for message in again.messages()) in (end - 56, None)
        assert len(list(again.messages())) <= 2
        consumer.reject(again)


def test_copying_and_removing(
    site: Site, admin: Any, group: str, place: Partition, once_on_genuine: None
) -> None:
    wide = Partition(place.broker_id, WIDE, 10_001)
    site.send(wide, 3)
    admin.set_offsets(group, {place: "earliest", wide: "latest"})
    seen(lambda: admin.group_offsets(SHARED, group))
    start = admin.group_offsets(SHARED, group)[place]
    end = admin.group_offsets(WIDE, group)[wide]

    copy = f"{group}_copy"
    plan = admin.clone_offsets(group, copy, dry_run=True)
    assert [(c.group, c.partition, c.before, c.after, c.applied) for c in plan] == [
        (copy, place, None, start, False),
        (copy, wide, None, end, False),
    ]
    assert admin.group_offsets(WIDE, copy) == {}
    admin.clone_offsets(group, copy, [WIDE])
    assert seen(lambda: admin.group_offsets(WIDE, copy)) == {wide: end}
    assert admin.group_offsets(SHARED, copy) == {}

    assert [c.after for c in admin.remove_offsets(group, dry_run=True)] == [None, None]
    assert admin.group_offsets(SHARED, group) == {place: start}
    admin.remove_offsets(group, [SHARED])
    assert admin.group_offsets(SHARED, group) == {}
    assert admin.group_offsets(WIDE, group) == {wide: end}
    admin.remove_offsets(group)
    assert admin.remove_offsets(group) == []
    with pytest.raises(errors.ConfigError, match="no position to copy"):
        admin.clone_offsets(group, copy)
