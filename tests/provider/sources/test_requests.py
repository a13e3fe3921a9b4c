"""Requests of one inline window, counted: what a user of many narrow partitions waits for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.benchmarks.window_requests import Cost, cost_of_window
from tubemq_client.embedded import EmbeddedTubeMQ, TopicSpec


def windows(topic: TopicSpec, root: Path, *, filled: int, count: int) -> list[Cost]:
    """Return the costs of `count` windows, each of one record in `filled` partitions."""
    with EmbeddedTubeMQ(topics=[topic], http=False) as mq:
        return [cost_of_window(mq, str(root), topic, filled, number) for number in range(count)]


def test_a_window_registers_once_at_the_master_and_has_one_connection_to_each_server(
    tmp_path: Path,
) -> None:
    first, second = windows(TopicSpec("wide", stores=3), tmp_path, filled=3, count=2)

    for cost in (first, second):
        assert cost.connections == 2
        assert cost.requests["register consumer v2"] == 1
        assert cost.requests["get partition meta"] == 1
        assert cost.requests["close consumer"] == 1


@pytest.mark.parametrize(("stores", "partitions", "most"), [(10, 1, 12), (2, 5, 9), (1, 10, 9)])
def test_a_partition_with_a_record_costs_few_requests(
    stores: int, partitions: int, most: int, tmp_path: Path
) -> None:
    topic = TopicSpec("wide", stores=stores, partitions=partitions)

    *_, cost = windows(topic, tmp_path, filled=10, count=2)

    assert cost.requests.total() <= 3 + 10 * most


def test_partitions_without_records_cost_the_look_at_their_ends(tmp_path: Path) -> None:
    topic = TopicSpec("wide", stores=20, partitions=2)

    *_, few = windows(topic, tmp_path, filled=2, count=2)
    # The first store has the records; the look is a register and an unregister of each store.
    beyond_ends = few.requests.total() - 2 * topic.stores

    assert beyond_ends <= 3 + 3 + 3 + 2 * 8
