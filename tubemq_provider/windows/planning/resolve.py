"""From what a user means to the plan of a window that stands alone: time windows, explicit ranges.

A `TimeResolver` turns an instant into offsets. What it says is fixed once per instant, beside the
data, so that neighbouring windows share the boundary: no gap and no overlap, whatever is asked
later. Neither kind of window touches the cursor. This module must not import airflow or pyspark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, Protocol, runtime_checkable

from tubemq_client.errors import ConfigError
from tubemq_client.model import PartitionEnds
from tubemq_provider.windows._plan_document import offset_problem, valid_key
from tubemq_provider.windows.canonical import basic_instant, rfc3339
from tubemq_provider.windows.errors import DocumentError, WindowNotReady
from tubemq_provider.windows.plan import WindowPlan, WindowScope, key_order, time_window_id
from tubemq_provider.windows.planning.retention import (
    EndsLookup,
    by_key,
    check_reachable,
    lost_starts,
)
from tubemq_provider.windows.policies import EARLIEST, LATEST, NewPartitionPosition, Policies
from tubemq_provider.windows.protocols import BoundaryBook, Document

__all__ = [
    "EvidentResolver",
    "ExplicitPlanner",
    "Resolved",
    "StandalonePlanner",
    "TimePlanner",
    "TimeResolver",
    "fixed_boundary",
]

Range = tuple[int, int]
Words = Mapping[str, int | str]


@runtime_checkable
class TimeResolver(Protocol):
    """Turns an instant into one offset per partition."""

    @property
    def name(self) -> str:
        """The word users choose it by: ``boundaries``."""

    @property
    def exact(self) -> bool:
        """Whether it gives the same answer for ever. Others need a place to fix their answer."""

    def offsets_at(self, instant: datetime) -> Mapping[str, int]:
        """Offset by partition key; records before it belong to earlier windows. Raises
        `ConfigError` if the instant cannot be resolved, `WindowNotReady` if it cannot yet."""


class Resolved(NamedTuple):
    """Offsets by partition key, and what they rest on: strings, integers, lists and objects."""

    offsets: Mapping[str, int]
    evidence: Document


@runtime_checkable
class EvidentResolver(TimeResolver, Protocol):
    """A resolver that says how good its answer is; the boundary's document keeps it."""

    def resolve(self, instant: datetime) -> Resolved:
        """What `offsets_at` gives, with the evidence. Raises the same."""


def fixed_boundary(
    resolver: TimeResolver,
    instant: datetime,
    scope: WindowScope,
    book: BoundaryBook | None,
    *,
    floor: Mapping[str, int] | None = None,
    ceiling: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """The one boundary at `instant`: what the book has, else what the resolver says, fixed now.

    A resolver that may answer differently later could contradict a neighbour that is fixed: its
    answer is kept between `floor`, the boundary before, and `ceiling`, the one after. One that
    forgets a partition of `floor` is refused before it is fixed: the partition would join again
    later, and its records come twice.
    """
    if book is None:
        if not resolver.exact:
            raise ConfigError(
                f"resolver {resolver.name!r} may answer differently later, and this sink has no "
                f"place to fix a boundary; use the 'boundaries' resolver, or a sink that keeps "
                f"boundaries, such as Parquet",
                subject="time window",
            )
        return dict(resolver.offsets_at(instant))
    key = _boundary_key(instant, scope)
    found = book.read(key)
    if found is None:
        offsets, evidence = _ask(resolver, instant)
        if not resolver.exact:
            _refuse_forgotten(offsets, floor or {}, instant)
            offsets = _between(offsets, floor or {}, ceiling or {})
        document: Document = {
            "v": 1,
            "instant": rfc3339(instant),
            "topic": scope.topic,
            "h": scope.h,
            "resolver": resolver.name,
            "offsets": dict(sorted(offsets.items(), key=key_order)),
        }
        found = book.fix(key, document | ({"evidence": evidence} if evidence else {}))
    return _boundary_offsets(found, key, scope)


def _boundary_key(instant: datetime, scope: WindowScope) -> str:
    return f"{basic_instant(instant)}-{scope.h}"


def _ask(resolver: TimeResolver, instant: datetime) -> Resolved:
    if isinstance(resolver, EvidentResolver):
        return resolver.resolve(instant)
    return Resolved(resolver.offsets_at(instant), {})


def _refuse_forgotten(
    offsets: Mapping[str, int], floor: Mapping[str, int], instant: datetime
) -> None:
    if missing := sorted(floor.keys() - offsets, key=key_order):
        raise WindowNotReady(
            f"partitions {', '.join(missing)} are known at the start of the window, but nothing "
            f"tells where they were at {rfc3339(instant)}; is their broker away?"
        )


def _between(
    offsets: Mapping[str, int], floor: Mapping[str, int], ceiling: Mapping[str, int]
) -> dict[str, int]:
    raised = {key: max(offset, floor.get(key, 0)) for key, offset in offsets.items()}
    return {key: min(offset, ceiling.get(key, offset)) for key, offset in raised.items()}


def _boundary_offsets(document: Document, key: str, scope: WindowScope) -> dict[str, int]:
    problems = []
    if document.get("v") != 1:
        problems.append(f"version {document.get('v')!r} is unknown here; this release reads 1")
    if document.get("h") != scope.h:
        problems.append(f"h {document.get('h')!r} is not {scope.h!r}")
    offsets = document.get("offsets")
    if not isinstance(offsets, dict) or not offsets:
        problems.append("offsets are missing")
        offsets = {}
    for partition, offset in offsets.items():
        if not valid_key(partition):
            problems.append(f"{partition!r} is not '<broker id>:<partition id>'")
        elif bad := offset_problem(offset):
            problems.append(f"{partition}: {bad}")
    if problems:
        raise DocumentError(f"boundary {key}", problems)
    return dict(offsets)


class StandalonePlanner(Protocol):
    """Plans a window that depends on no other: `TimePlanner`, `ExplicitPlanner`."""

    scope: WindowScope
    policies: Policies

    @property
    def window_id(self) -> str | None:
        """The id, if it is known before planning."""

    def has_neighbour(self) -> bool:
        """Whether a window beside this one is known to have been planned in the same scope."""

    def plan(self) -> WindowPlan:
        """The plan; the same question may be answered differently later."""


@dataclass
class TimePlanner:
    """Plans the window `[start, end)` of time. Independent of other windows and of the cursor."""

    scope: WindowScope
    start: datetime
    end: datetime
    resolver: TimeResolver
    ends: EndsLookup
    book: BoundaryBook | None = None
    policies: Policies = field(default_factory=Policies)

    def __post_init__(self) -> None:
        if not self.start < self.end:
            raise ConfigError(
                f"start {rfc3339(self.start)} is not before end {rfc3339(self.end)}",
                subject="time window",
            )

    @property
    def window_id(self) -> str:
        """Known before planning: it names the interval."""
        return time_window_id(self.start, self.end, self.scope.h)

    def has_neighbour(self) -> bool:
        """Whether one of the boundaries is fixed already."""
        if self.book is None:
            return False
        keys = (_boundary_key(instant, self.scope) for instant in (self.start, self.end))
        return any(self.book.read(key) is not None for key in keys)

    def plan(self) -> WindowPlan:
        """Fix both boundaries and plan what lies between, even if that is nothing.

        Raises `WindowNotReady` while a boundary lies beyond what brokers have on disk, and
        `DataLoss` as `gap_policy` says.
        """
        before = fixed_boundary(
            self.resolver, self.start, self.scope, self.book, ceiling=self._fixed_end()
        )
        after = fixed_boundary(self.resolver, self.end, self.scope, self.book, floor=before)
        known = by_key(self.scope.topic, self.ends())
        ranges, joined = self._ranges(before, after, known)
        check_reachable(self.scope.topic, ranges, known)
        gaps = lost_starts(self.scope.topic, ranges, known, self.policies.gap_policy)
        return WindowPlan.for_time(
            self.scope, self.start, self.end, ranges, gaps=gaps, joined=joined
        )

    def _fixed_end(self) -> dict[str, int]:
        """The boundary at the end if a neighbour has fixed it, and it matters for the start."""
        if self.book is None or self.resolver.exact:
            return {}
        key = _boundary_key(self.end, self.scope)
        found = self.book.read(key)
        return _boundary_offsets(found, key, self.scope) if found else {}

    def _ranges(
        self,
        before: Mapping[str, int],
        after: Mapping[str, int],
        known: Mapping[str, PartitionEnds],
    ) -> tuple[dict[str, Range], tuple[str, ...]]:
        problems = [
            f"partition {key} is known at {rfc3339(self.start)} but not at {rfc3339(self.end)}"
            for key in before
            if key not in after
        ]
        joined = tuple(key for key in after if key not in before)
        ranges = {}
        for key, end in after.items():
            start = before.get(key, self._joining(known.get(key), end))
            if start > end:
                problems.append(f"partition {key}: start {start} is beyond end {end}")
            ranges[key] = (start, end)
        if problems:
            raise ConfigError(problems, subject=f"boundaries of window {self.window_id}")
        return ranges, joined

    def _joining(self, known: PartitionEnds | None, end: int) -> int:
        """Where a partition begins that no earlier boundary knows."""
        latest = self.policies.new_partition_position is NewPartitionPosition.LATEST
        return end if latest or known is None else min(known.min_offset, end)


@dataclass
class ExplicitPlanner:
    """Plans ranges given by hand: `starting` and `ending` by partition key, offsets or words.

    Offsets are taken as they are; ``"earliest"`` and ``"latest"`` are resolved when planned.
    """

    scope: WindowScope
    starting: Words
    ending: Words
    ends: EndsLookup
    policies: Policies = field(default_factory=Policies)

    def __post_init__(self) -> None:
        problems = [f"partition {key} has no start" for key in self.ending.keys() - self.starting]
        problems += [f"partition {key} has no end" for key in self.starting.keys() - self.ending]
        for key in self.starting.keys() & self.ending.keys():
            start, end = self.starting[key], self.ending[key]
            if isinstance(start, int) and isinstance(end, int) and start > end:
                problems.append(f"partition {key}: start {start} is beyond end {end}")
        if problems:
            raise ConfigError(sorted(problems), subject="offsets")

    @property
    def window_id(self) -> None:
        """Only known once planned: the id is the hash of the ranges."""
        return

    def has_neighbour(self) -> bool:
        """Never known: such windows have no order."""
        return False

    def plan(self) -> WindowPlan:
        """The plan of these ranges. Raises `WindowNotReady` and `DataLoss` like a time window."""
        known = by_key(self.scope.topic, self.ends())
        unknown = [key for key in self.starting if key not in known]
        if unknown:
            raise ConfigError(
                [f"topic {self.scope.topic!r} has no partition {key}" for key in unknown],
                subject="offsets",
            )
        ranges = {
            key: (_offset(self.starting[key], known[key]), _offset(self.ending[key], known[key]))
            for key in self.starting
        }
        check_reachable(self.scope.topic, ranges, known)
        gaps = lost_starts(self.scope.topic, ranges, known, self.policies.gap_policy)
        return WindowPlan.explicit(self.scope, ranges, gaps=gaps)


def _offset(value: int | str, known: PartitionEnds) -> int:
    if value == EARLIEST:
        return known.min_offset
    if value == LATEST:
        return known.max_offset
    return int(value)
