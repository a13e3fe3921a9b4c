"""The values of a balanced group: how it begins, what the master orders, what a member hears.

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

__all__ = ["BoundStart", "Calls", "Order", "Rebalance", "subscription"]


@dataclass(frozen=True, slots=True)
class BoundStart:
    """Start a whole group from offsets of the caller's choice ("bound consume").

    All members give the same `session_key`, `source_count` (how many members there will be) and
    `select_big`. The master deals out nothing before `source_count` members are there, if any of
    them lists `offsets` (partition to index offset); a listed partition goes to the member that
    lists it, and where several do the largest offset wins (`select_big` False: the smallest). An
    offset is used once, when the group begins: a member that comes back later goes on where the
    group is. `session_start_ms` (epoch) is shown to operators; None is now.
    """

    session_key: str
    source_count: int
    offsets: Mapping[Partition, int] = field(default_factory=dict)
    select_big: bool = True
    session_start_ms: int | None = None

    def problems(self, topics: Iterable[str]) -> list[str]:
        """What is wrong with it for a member that reads `topics`."""
        found = []
        if problem := session_key_problem(self.session_key):
            found.append(problem)
        if self.source_count < 1:
            found.append(f"source_count {self.source_count} is less than 1")
        for partition, offset in self.offsets.items():
            if partition.topic not in topics:
                found.append(f"offsets: the topic of {partition} is not subscribed")
            if offset < 0 or offset % INDEX_ENTRY_BYTES:
                found.append(f"offsets: {offset} of {partition} is not a multiple of 28 >= 0")
        return found


class Rebalance(NamedTuple):
    """What `rebalance` delivers: "assigned" before the first fetch, "revoked" while batches may
    still be confirmed, "lost" when a broker has taken the partitions away already."""

    kind: str
    partitions: list[Partition]


@dataclass(slots=True)
class Calls:
    """How the session calls its shell: there may be something to fetch, a heartbeat is due, an
    order is there."""

    ready: Callable[[], None] = lambda: None
    beat: Callable[[], None] = lambda: None
    rebalance: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class Order:
    """An order of the master. `fresh`: it was given while the group began."""

    rebalance_id: int
    operation: int
    texts: tuple[str, ...]
    fresh: bool


def subscription(
    group: str, topics: Mapping[str, Iterable[str]], bound: BoundStart | None
) -> dict[str, tuple[str, ...]]:
    """Topics with their filter items, sorted. Raises `errors.ConfigError` with all mistakes, those
    included that no server minds but that could not be written in a heartbeat."""
    wanted = {topic: tuple(sorted(set(items))) for topic, items in topics.items()}
    problems = [] if wanted else ["topics: name at least one"]
    judged = [("group", group_problem(group)), *(("topics", topic_problem(t)) for t in wanted)]
    problems += [f"{option}: {problem}" for option, problem in judged if problem]
    for topic, items in topics.items():
        if isinstance(items, str):
            problems.append(f"topics: the filters of {topic!r} are the text {items!r}; give a list")
            continue
        problems += [
            f"topics: filter {item!r} of {topic!r} is blank or contains '#' or ','"
            for item in wanted[topic]
            if not strings.is_filter_item(item)
        ]
        problems += [f"topics: {topic!r}: {found}" for found in filter_problems(wanted[topic])]
    if bound is not None:
        problems += [f"bound: {problem}" for problem in bound.problems(wanted)]
    if problems:
        raise errors.ConfigError(problems, subject="consumer")
    return wanted
