"""Values of a balanced group: its start, the master's orders, the changes a member receives.

No state and no conversation; `balance` works with them.

Source: `docs/protocol/balance.md#orders`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tubemq_client import errors
from tubemq_client._core.limits import (
    filter_problems,
    group_problem,
    session_key_problem,
    topic_problem,
)
from tubemq_client._wire import strings
from tubemq_client.model import INDEX_ENTRY_BYTES, Partition

__all__ = ["BalanceOrder", "BoundStart", "Rebalance", "SessionCallbacks", "subscription"]


@dataclass(frozen=True, slots=True)
class BoundStart:
    """Start a whole group from offsets of the caller's choice ("bound consume").

    All members pass the same `session_key`, `source_count` (the number of members) and
    `select_big`. The master assigns nothing before `source_count` members have joined, if any of
    them lists `offsets` (partition to index offset); a listed partition goes to the member that
    lists it, and where several do the largest offset wins (`select_big` False: the smallest). An
    offset is used once, when the group starts: a member that returns later resumes at the group's
    position. `session_start_ms` (epoch) is shown to operators; None is now.
    """

    session_key: str
    source_count: int
    offsets: Mapping[Partition, int] = field(default_factory=dict)
    select_big: bool = True
    session_start_ms: int | None = None

    def problems(self, topics: Iterable[str]) -> list[str]:
        """Return the problems of this start for a member that reads `topics`."""
        problems = []
        if problem := session_key_problem(self.session_key):
            problems.append(problem)
        if self.source_count < 1:
            problems.append(f"source_count {self.source_count} is less than 1")
        for partition, offset in self.offsets.items():
            if partition.topic not in topics:
                problems.append(f"offsets: the topic of {partition} is not subscribed")
            if offset < 0 or offset % INDEX_ENTRY_BYTES:
                problems.append(f"offsets: {offset} of {partition} is not a multiple of 28 >= 0")
        return problems


class Rebalance(NamedTuple):
    """Change of partitions that `rebalance` delivers.

    "assigned" before the first fetch, "revoked" while batches may still be confirmed, "lost" when a
    broker has already taken the partitions away.
    """

    kind: str
    partitions: list[Partition]


@dataclass(slots=True)
class SessionCallbacks:
    """Callbacks of the session to its driver.

    A partition may be fetchable, a heartbeat is due, an order has arrived.
    """

    ready: Callable[[], None] = lambda: None
    beat: Callable[[], None] = lambda: None
    rebalance: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class BalanceOrder:
    """Order of the master. `fresh`: it was given while the group started."""

    rebalance_id: int
    operation: int
    texts: tuple[str, ...]
    fresh: bool


def subscription(
    group: str, topics: Mapping[str, Iterable[str]], bound: BoundStart | None
) -> dict[str, tuple[str, ...]]:
    """Return topics with their sorted filter items.

    Raises `errors.ConfigError` with all mistakes, including those that no server checks but that
    could not be written in a heartbeat.
    """
    sorted_items = {topic: tuple(sorted(set(items))) for topic, items in topics.items()}
    problems = [] if sorted_items else ["topics: name at least one"]
    judged = [
        ("group", group_problem(group)),
        *(("topics", topic_problem(t)) for t in sorted_items),
    ]
    problems += [f"{option}: {problem}" for option, problem in judged if problem]
    for topic, items in topics.items():
        if isinstance(items, str):
            problems.append(f"topics: the filters of {topic!r} are the text {items!r}; give a list")
            continue
        problems += [
            f"topics: filter {item!r} of {topic!r} is blank or contains '#' or ','"
            for item in sorted_items[topic]
            if not strings.is_filter_item(item)
        ]
        problems += [
            f"topics: {topic!r}: {filter_problem}"
            for filter_problem in filter_problems(sorted_items[topic])
        ]
    if bound is not None:
        problems += [f"bound: {problem}" for problem in bound.problems(sorted_items)]
    if problems:
        raise errors.ConfigError(problems, subject="consumer")
    return sorted_items
