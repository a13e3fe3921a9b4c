"""Planners of standalone windows: time windows and explicit ranges.

A `TimeResolver` turns an instant into offsets. Its answer is fixed once per instant, with the data,
so that neighbouring windows share the boundary: without gap and overlap, even if the resolver would
answer differently later. Neither kind of window touches the cursor. This module must not import
airflow or pyspark.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, partial
from typing import Any

from tubemq_client.errors import ConfigError
from tubemq_client.model import Anchor
from tubemq_provider.windows.anchors import anchors_document, read_anchors
from tubemq_provider.windows.canonical import rfc3339
from tubemq_provider.windows.cursor import EarlierEpochs
from tubemq_provider.windows.errors import StoreConflict, WindowNotReady
from tubemq_provider.windows.plan import WindowKind, WindowPlan, WindowScope, time_window_id
from tubemq_provider.windows.planning.boundary_book import ANCHORS, BEGIN, RESTORED_FROM, ScopeBook
from tubemq_provider.windows.planning.instants import Resolved, TimeResolver, ask
from tubemq_provider.windows.planning.log_identity import LogIdentity, RecordLookup
from tubemq_provider.windows.planning.published import PublishedWindows, edges_of
from tubemq_provider.windows.planning.retention import (
    EndsLookup,
    away_of,
    by_key,
    check_reachable,
    joined_behind_dead,
    lost_starts,
)
from tubemq_provider.windows.policies import (
    EARLIEST,
    STABLE,
    NewPartitionPosition,
    Policies,
    end_word,
    parse_offsets,
)
from tubemq_provider.windows.protocols import BoundaryBook
from tubemq_provider.windows.spaces import Ends

__all__ = ["ExplicitPlanner", "StandalonePlanner", "TimePlanner"]

Interval = tuple[datetime, datetime]
Range = tuple[int, int]
Words = Mapping[str, int | str]


class StandalonePlanner(ABC):
    """Base of planners of a window that depends on no other; compares a plan with the present
    logs. Boundaries, and windows that are published, matter to windows of time only."""

    scope: WindowScope
    policies: Policies
    ends: EndsLookup
    witness: RecordLookup | None

    @property
    @abstractmethod
    def kind(self) -> WindowKind:
        """Kind of the planned window: time or explicit."""

    @property
    def window_id(self) -> str | None:
        """Id of the window; None if it is the hash of the ranges, known only after planning."""
        return None

    @property
    def interval(self) -> Interval | None:
        """Start and end of a time window; None for an explicit one."""
        return None

    def compare(self, published: PublishedWindows) -> None:  # noqa: B027 - only boundaries need it
        """Use the published windows, whose plans have the offsets of their boundaries."""

    def keep_boundaries(self, plan: WindowPlan) -> None:  # noqa: B027 - only boundaries need it
        """Raise `StoreConflict` unless `plan`, right before it is published, still has the offsets
        of its fixed boundaries. Boundaries that were lost are fixed again."""

    def refuse_overtaken(self, plan: WindowPlan) -> None:  # noqa: B027 - only boundaries need it
        """Raise `StoreConflict` if windows that were published meanwhile meet `plan` at other
        offsets."""

    def begin_epoch(self, earlier: EarlierEpochs) -> None:  # noqa: B027 - only boundaries need it
        """Begin the scope's epoch after the earlier ones, where a user has set it. A user's ranges
        apply to every epoch."""

    def has_neighbour(self) -> bool:
        """Return True if an adjacent window of the same scope is known to have been planned."""
        return False

    def confirm(self) -> None:  # noqa: B027 - only boundaries need it
        """Raise `WindowError` if the request contradicts fixed boundaries."""

    @abstractmethod
    def stands(self, plan: WindowPlan) -> bool:
        """Return True if a stored plan that was never published may still be used."""

    @abstractmethod
    def plan(self) -> WindowPlan:
        """Return the plan. A later call may return another one."""

    def recognise(self, plan: WindowPlan, *, again: bool = False) -> None:
        """Raise `LogReplaced` unless the logs are those that the plan was made for.

        `again`: ask the brokers, use no cached answer. Records that were read before a successful
        check come from the right log."""
        if again:
            self._life.forget()
        if self.witness is not None:
            self._life.recognise(plan, self._known)

    @cached_property
    def _known(self) -> dict[str, Ends]:
        return by_key(self.scope.topic, self.scope.space, self._looked)

    @cached_property
    def _looked(self) -> Mapping[Any, Ends]:
        return self.ends()

    @cached_property
    def _life(self) -> LogIdentity:
        return LogIdentity(self.scope, self.witness)


@dataclass
class TimePlanner(StandalonePlanner):
    """Planner of the time window `[start, end)`, independent of the cursor."""

    scope: WindowScope
    start: datetime
    end: datetime
    resolver: TimeResolver
    ends: EndsLookup
    book: BoundaryBook | None = None
    policies: Policies = field(default_factory=Policies)
    witness: RecordLookup | None = None
    _ordered: str | Mapping[str, int | str] = field(default=EARLIEST, init=False)
    _begin: Mapping[str, int] = field(default_factory=dict, init=False)
    _published: PublishedWindows | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if not self.start < self.end:
            raise ConfigError(
                f"start {rfc3339(self.start)} is not before end {rfc3339(self.end)}",
                subject="time window",
            )

    @property
    def kind(self) -> WindowKind:
        """Kind of the planned window."""
        return WindowKind.TIME

    @property
    def window_id(self) -> str:
        """Id of the window, which names the interval."""
        return time_window_id(self.start, self.end, self.scope.scope_hash)

    @property
    def interval(self) -> Interval:
        """Start and end of the window."""
        return self.start, self.end

    def compare(self, published: PublishedWindows) -> None:
        """Use the published windows, and read boundaries again."""
        self._published = published
        self.__dict__.pop("_opened", None)

    def keep_boundaries(self, plan: WindowPlan) -> None:
        """Raise `StoreConflict` unless `plan`, right before it is published, begins and ends at its
        fixed boundaries. Boundaries that were lost are fixed again."""
        self.__dict__.pop("_opened", None)  # read boundaries again
        book = self._opened
        for instant, edge in zip((self.start, self.end), edges_of(plan), strict=True):
            if book is not None:
                book.keep(instant, edge)

    def refuse_overtaken(self, plan: WindowPlan) -> None:
        """Raise `StoreConflict` if published windows meet `plan` at other offsets, or overlap it.
        Do nothing if the window itself is published: then its marker decides."""
        published = self._published
        if published is None or published.overlaps(self.start, self.end):
            return
        starts, ends = edges_of(plan)
        before, after = published.around(self.start, self.end)
        problems = [
            f"partition {key}: it has {edge.offsets.get(key, 0)} at {rfc3339(instant)}, where "
            f"{other.window_id} has {offset}"
            for instant, edge in ((self.start, starts), (self.end, ends))
            for other in published.at(instant)
            for key, offset in other.contradicts(edge.offsets).items()
        ]
        if before is not None:
            problems += [
                f"partition {key}: it begins at {starts.offsets[key]}, {before.window_id} ends at "
                f"{end}"
                for key, end in before.offsets.items()
                if key in starts.offsets and starts.offsets[key] < end
            ]
        if after is not None:
            problems += [
                f"partition {key}: it ends at {ends.offsets[key]}, {after.window_id} begins at "
                f"{start}"
                for key, start in after.offsets.items()
                if key in ends.offsets and start < ends.offsets[key]
            ]
        if problems:
            lines = "".join(f"\n  - {problem}" for problem in problems)
            raise StoreConflict(
                f"window {plan.window_id} does not meet the adjacent windows, which were published "
                f"meanwhile:{lines}\nNothing was published; the next try plans the window anew"
            )

    def begin_epoch(self, earlier: EarlierEpochs) -> None:
        """Begin the scope's epoch at the offsets that a user has set, if any: its windows read
        nothing before them, unless its first boundary was fixed elsewhere already."""
        topic, begin = self.scope.topic, end_word(earlier.begin)
        if isinstance(begin, Mapping):
            begin = parse_offsets(
                {topic: begin}, topic, subject="begin of the epoch", space=self.scope.space
            )
        self._ordered = begin or EARLIEST

    def has_neighbour(self) -> bool:
        """Return True if one of the boundaries is fixed already."""
        book = self._opened
        return book is not None and (book.has(self.start) or book.has(self.end))

    def stands(self, plan: WindowPlan) -> bool:
        """Return True if the stored plan of an earlier try has the offsets of the boundaries as
        they are fixed now: they may have been taken back since.

        False if it reads partitions of a broker that was retired since and is away: they are left
        out of a new plan. False also if the interval is published: then a marker decides."""
        if self._published is not None and self._published.overlaps(self.start, self.end):
            return False
        book = self._opened
        reads = {range_.partition.key for range_ in plan.reads()}
        if book and any(book.is_retired(key) and key not in self._known for key in reads):
            return False
        try:
            before, after = self._boundaries(book)
        except ConfigError:
            if self.book is None:
                return True  # no other document has the boundaries
            raise
        # Time windows have no resets: their bases are their starts.
        return plan.ends == after and plan.bases == before

    def confirm(self) -> None:
        """Raise `BoundaryConflict` if a user's offsets of an instant differ from the fixed ones."""
        if self._opened is not None and self.resolver.exact:
            for at in (self.start, self.end):
                self._opened.confirm(at, partial(ask, self.resolver, at))

    def plan(self) -> WindowPlan:
        """Fix both boundaries and plan the ranges between them, even if all are empty.

        Raises `WindowNotReady` while a boundary lies beyond the stable end of a log, and `DataLoss`
        if `gap_policy` is to fail. Undelivered records of a retired broker are a gap.
        """
        book = self._opened
        before, after = self._boundaries(book)
        topic, ends = self.scope.topic, self._known
        retired = {key for key in after if key not in ends and book and book.is_retired(key)}
        ranges, joined = self._ranges(before, after, ends, retired)
        here = {key: range_ for key, range_ in ranges.items() if key not in retired}
        check_reachable(topic, here, ends)
        anchors, data = self._life.begin(here, ends)
        behind = joined_behind_dead(self.scope.space, here, joined, data)
        here, ranges = here | behind, ranges | behind
        gaps = lost_starts(topic, here, ends, self.policies.gap_policy, data)
        gaps |= {key: (ranges[key],) for key in retired if ranges[key][0] < ranges[key][1]}
        return WindowPlan.for_time(
            self.scope,
            self.start,
            self.end,
            ranges,
            gaps=gaps,
            joined=joined,
            absent=tuple(key for key in ranges if key not in ends),
            before=anchors,
        )

    @cached_property
    def _opened(self) -> ScopeBook | None:
        """Book of the scope's boundaries, with its published windows; None without a book."""
        book = self._scope_book()
        if book is not None and self._published is not None:
            book.compare(self._published, self.start)
        return book

    def _scope_book(self) -> ScopeBook | None:
        return None if self.book is None else ScopeBook(self.book, self.scope)

    def _boundaries(self, book: ScopeBook | None) -> tuple[dict[str, int], dict[str, int]]:
        """Return both boundaries, after fixing them if the sink has a book."""
        resolver, instants = self.resolver, (self.start, self.end)
        if book is None and not resolver.exact:
            raise ConfigError(
                f"resolver {resolver.name!r} may answer differently later, and this sink has no "
                f"place to fix a boundary; use the 'boundaries' resolver, or a sink that keeps "
                f"boundaries, such as Parquet",
                subject="time window",
            )
        self._begin = self._beginning(book)
        if book is None:
            before, after = (dict(resolver.offsets_at(instant)) for instant in instants)
        else:
            self._refuse_other_logs(book)
            answers: list[Callable[[], Resolved]] = [
                partial(self._ask, book, at) for at in instants
            ]
            if self._begins_epoch(book):
                answers[0] = self._nothing
            before, after = (
                book.fix(
                    *(at, resolver.name, answer),
                    exact=resolver.exact,
                    gap_policy=self.policies.gap_policy,
                    begins=at == self.start,
                )
                for at, answer in zip(instants, answers, strict=True)
            )
            book.refuse_disorder(self.start, self.end)
            # A partition at 0 in a window without records may join only later.
            before = {key: at for key, at in before.items() if at or key in after}
        return before, after

    def _begins_epoch(self, book: ScopeBook) -> bool:
        """Return True for the first window of an epoch. It begins at the beginning of its logs, and
        not where the resolver says: samples may be of the topic before it was recreated."""
        return bool(self.scope.epoch) and not self.resolver.exact and book.last() is None

    def _nothing(self) -> Resolved:
        """Return the boundary before an epoch: all partitions join at the next one."""
        return self._not_before(Resolved({}))

    def _beginning(self, book: ScopeBook | None) -> Mapping[str, int]:
        """Return the first offsets of the epoch, by partition, if it does not begin at the
        beginning of its logs.

        The evidence of the first boundary has them: the user's setting may be lost by now, and its
        keywords would resolve to other offsets."""
        if not self.scope.epoch:
            return {}
        first = None if book is None else book.first()
        if book is not None and first and not self.resolver.exact:
            evidence, ordered = book.evidence(first), self._ordered
            if BEGIN not in evidence and RESTORED_FROM in evidence and isinstance(ordered, Mapping):
                return {key: value for key, value in ordered.items() if isinstance(value, int)}
            return dict(evidence.get(BEGIN, {}))
        ordered = self._ordered
        if self.resolver.exact:  # its boundaries have the first offsets; ignore keywords
            ordered = {} if isinstance(ordered, str) else ordered
            return {key: value for key, value in ordered.items() if isinstance(value, int)}
        if ordered == EARLIEST:
            return {}
        if isinstance(ordered, str):
            unreachable = away_of(self._looked)
            waiting = [key for key in unreachable if book is None or not book.is_retired(key)]
            ordered = dict.fromkeys([*self._known, *waiting], ordered)
        return self._resolved(ordered)

    def _resolved(self, ordered: Words) -> dict[str, int]:
        missing = [
            key
            for key, value in ordered.items()
            if isinstance(value, str) and key not in self._known
        ]
        if missing:
            raise WindowNotReady(
                f"epoch {self.scope.epoch!r} begins at an end of its logs, and no broker tells "
                f"that of partitions {', '.join(missing)} now; the first window waits for them"
            )
        return {
            key: _offset(value, self._known[key]) if isinstance(value, str) else value
            for key, value in ordered.items()
        }

    def _not_before(self, answer: Resolved) -> Resolved:
        """Clamp an answer to the epoch's first offsets, and add them to its evidence."""
        if not self._begin:
            return answer
        offsets = answer.offsets
        if not self.resolver.exact:
            offsets = {key: max(at, self._begin.get(key, 0)) for key, at in offsets.items()}
        evidence = {**answer.evidence, BEGIN: dict(self._begin)}
        lost_to_retention = {
            key: max(at, self._begin.get(key, 0)) for key, at in answer.lost_to_retention.items()
        }
        return replace(
            answer, offsets=offsets, evidence=evidence, lost_to_retention=lost_to_retention
        )

    def _ask(self, book: ScopeBook, at: datetime) -> Resolved:
        """Return the resolver's answer, with anchors of its logs in the evidence. Logs that no
        broker offers now keep their earlier anchors: they may be recreated before they return."""
        answer = self._not_before(ask(self.resolver, at))
        if self.witness is None:
            return answer
        ends = by_key(self.scope.topic, self.scope.space, self.ends())
        # If no record lies before the boundary, one after it identifies the log as well.
        here = {
            key: (offset, max(offset, ends[key].max_offset))
            for key, offset in answer.offsets.items()
            if key in ends
        }
        log_of = self.scope.space.log_of
        present = set(map(log_of, ends))
        earlier = {
            key: anchor
            for key, anchor in self._latest_anchors(book).items()
            if log_of(key) not in present
        }
        anchors = earlier | self._life.taken(here, {}, ends)
        if not anchors:
            return answer
        return replace(answer, evidence={**answer.evidence, ANCHORS: anchors_document(anchors)})

    def _refuse_other_logs(self, book: ScopeBook) -> None:
        """Raise `LogReplaced` if the logs are not those of the latest boundary: offsets of a
        recreated log would be clamped to it, and its first records would be in no window."""
        last = book.last()
        if self.witness is None or last is None:
            return
        # A boundary that contradicts published windows may be of another log itself.
        offsets = book.agreed(last)
        anchors = self._latest_anchors(book)
        if anchors:
            ends = by_key(self.scope.topic, self.scope.space, self.ends())
            upto = {key: anchor.offset + self.scope.space.step for key, anchor in anchors.items()}
            wide = {key: max(end, offsets.get(key, 0)) for key, end in upto.items()}
            self._life.refuse(self._life.replaced(wide, anchors, ends, shorter=True), anchors)

    def _latest_anchors(self, book: ScopeBook) -> dict[str, Anchor]:
        """Return the anchors in the evidence of the latest boundary."""
        last = book.last()
        anchors = book.evidence(last).get(ANCHORS, {}) if last else {}
        return read_anchors(anchors, self.scope.space)

    def _ranges(
        self,
        before: Mapping[str, int],
        after: Mapping[str, int],
        ends: Mapping[str, Ends],
        retired: Collection[str],
    ) -> tuple[dict[str, Range], tuple[str, ...]]:
        problems = [
            f"partition {key} is known at {rfc3339(self.start)} but not at {rfc3339(self.end)}"
            for key in before
            if key not in after
        ]
        joined = tuple(key for key in after if key not in before)
        # The first partitions of an epoch are not new to the topic.
        begins = bool(self.scope.epoch) and not before
        joining = self._from_beginning if begins else self._joining
        ranges = {}
        for key, end in after.items():
            if key in before:
                start = before[key]
            elif key in self._begin:
                start = self._begin[key]
            elif key in retired:
                start = 0  # its first offset cannot be looked up any more
            else:
                start = joining(key, ends.get(key), end)
            if start < min(end, self._begin.get(key, 0)):
                problems.append(
                    f"partition {key}: start {start} is before {self._begin[key]}, where epoch "
                    f"{self.scope.epoch!r} begins: give boundaries from there on"
                )
            if start > end:
                problems.append(f"partition {key}: start {start} is beyond end {end}")
            ranges[key] = (start, end)
        if problems:
            raise ConfigError(problems, subject=f"boundaries of window {self.window_id}")
        # Before any partition has joined, a window has empty ranges of the present partitions.
        return ranges or dict.fromkeys(ends, (0, 0)), joined

    def _joining(self, key: str, ends: Ends | None, end: int) -> int:
        """Return the first offset of a partition that no earlier boundary has."""
        if self.policies.new_partition_position is NewPartitionPosition.STABLE:
            return end
        return self._from_beginning(key, ends, end)

    def _from_beginning(self, key: str, ends: Ends | None, end: int) -> int:
        if ends is None:
            raise WindowNotReady(
                f"partition {key} joins with window {self.window_id}, and no broker offers it now: "
                f"where it begins cannot be told"
            )
        return min(ends.min_offset, end)


@dataclass
class ExplicitPlanner(StandalonePlanner):
    """Planner of a user's ranges: `starting` and `ending` by partition key, offsets or keywords.

    Offsets are used unchanged; ``"earliest"`` and ``"stable"`` are resolved when planned.
    """

    scope: WindowScope
    starting: Words
    ending: Words
    ends: EndsLookup
    policies: Policies = field(default_factory=Policies)
    witness: RecordLookup | None = None

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
    def kind(self) -> WindowKind:
        """Kind of the planned window."""
        return WindowKind.EXPLICIT

    def stands(self, plan: WindowPlan) -> bool:
        """Return True if the plan of an earlier try has the requested offsets, which the user may
        have corrected since. Keywords keep the offsets to which they were resolved."""
        requested = {key: (self.starting[key], self.ending[key]) for key in self.starting}
        return requested.keys() == plan.ranges.keys() and all(
            isinstance(word, str) or word == number
            for key, pair in requested.items()
            for word, number in zip(pair, plan.ranges[key], strict=True)
        )

    def plan(self) -> WindowPlan:
        """Return the plan of the ranges. Raises like `TimePlanner.plan`."""
        ends, unreachable = self._known, away_of(self._looked)
        if waiting := [key for key in self.starting if key in unreachable]:
            lines = "".join(f"\n  - partition {key}: {unreachable[key]}" for key in waiting)
            raise WindowNotReady(f"the window waits for brokers that do not answer:{lines}")
        unknown = [key for key in self.starting if key not in ends]
        if unknown:
            raise ConfigError(
                [f"topic {self.scope.topic!r} has no partition {key}" for key in unknown],
                subject="offsets",
            )
        ranges = {
            key: (_offset(self.starting[key], ends[key]), _offset(self.ending[key], ends[key]))
            for key in self.starting
        }
        if beyond := [
            f"partition {key}: {self.starting[key]!r} is {start} now, beyond its end {end}"
            for key, (start, end) in ranges.items()
            if start > end
        ]:
            raise ConfigError(beyond, subject="offsets")
        check_reachable(self.scope.topic, ranges, ends)
        before, data = self._life.begin(ranges, ends)
        gaps = lost_starts(self.scope.topic, ranges, ends, self.policies.gap_policy, data)
        return WindowPlan.explicit(self.scope, ranges, gaps=gaps, before=before)


def _offset(value: int | str, ends: Ends) -> int:
    if value == EARLIEST:
        return ends.min_offset
    if end_word(value) == STABLE:
        return ends.max_offset
    return int(value)
