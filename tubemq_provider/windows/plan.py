"""Window plans: the frozen offset ranges of a window, with its identity.

A plan is the whole contract between planning, engines and sinks. It is immutable once stored, has
one canonical JSON form and one hash, and does not contain the task, the time or the try that
created it. This module must not do I/O, read a clock, or import airflow, pyspark or pyarrow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from tubemq_client.model import Anchor
from tubemq_provider.windows._plan_document import (
    PLAN_VERSION,
    PLAN_VERSION_WITH_SOURCE,
    Range,
    WindowKind,
    identity_problems,
    range_problems,
    read_members,
)
from tubemq_provider.windows.anchors import Anchors, anchors_document
from tubemq_provider.windows.canonical import (
    basic_instant,
    canonical_json,
    parse_basic_instant,
    rfc3339,
    sha256_hex,
)
from tubemq_provider.windows.errors import DocumentError
from tubemq_provider.windows.spaces import FIRST_SOURCE, OffsetSpace, filters_of, space_of

__all__ = [
    "CLUSTER_PATTERN",
    "PLAN_VERSION",
    "WindowKind",
    "WindowPlan",
    "WindowScope",
    "cursor_window_id",
    "cursor_window_of",
    "time_window_id",
    "time_window_of",
]

CLUSTER_PATTERN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
"""Pattern of a cluster alias, which is part of ids, asset names and directories."""


@dataclass(frozen=True, slots=True)
class WindowScope:
    """Identity that windows share; two scopes never share a window id or a cursor.

    `cluster` is the alias of the connection (independent of its masters), `filters` are stream ids
    (order and repetition do not matter), `epoch` names the incarnation of the topic that offsets
    refer to, `sink` is `Sink.identity`. `source` is the kind of source; it is not part of the hash
    for `FIRST_SOURCE`, which documents of the first release do not name.
    """

    cluster: str
    topic: str
    group: str
    sink: str
    filters: tuple[str, ...] = ()
    epoch: str = ""
    source: str = FIRST_SOURCE
    _h: str | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "filters", tuple(sorted(set(filters_of(self.filters)))))

    @property
    def scope_hash(self) -> str:
        """Ten hex digits that identify the scope."""
        if self._h is None:
            object.__setattr__(self, "_h", self._digits())
        assert self._h is not None
        return self._h

    def _digits(self) -> str:
        return sha256_hex(
            [
                self.cluster,
                self.topic,
                self.group,
                list(self.filters),
                self.epoch,
                self.sink,
                *([] if self.source == FIRST_SOURCE else [self.source]),
            ]
        )[:10]

    @property
    def asset(self) -> str:
        """Name of the group in commands; the first kind of source has no prefix."""
        return named_group(self.source, self.cluster, self.topic, self.group)

    @property
    def space(self) -> OffsetSpace:
        """Offset space of the source."""
        return space_of(self.source)


def named_group(source: str, cluster: str, topic: str, group: str) -> str:
    """Return the name of a group in commands; the first kind of source has no prefix."""
    kind = "" if source == FIRST_SOURCE else f"{source}:"
    return f"{kind}{cluster}/{topic}/{group}"


def cursor_window_id(seq: int, scope_hash: str) -> str:
    """Return the id of the `seq`-th cursor window, counted from 1."""
    return f"c-{seq}-{scope_hash}"


def cursor_window_of(window_id: str) -> tuple[int, str] | None:
    """Return number and scope hash of a cursor window's id; None for another id."""
    kind, _, rest = window_id.partition("-")
    number, _, scope_hash = rest.partition("-")
    return (int(number), scope_hash) if kind == "c" and number.isdecimal() and scope_hash else None


def time_window_id(start: datetime, end: datetime, scope_hash: str) -> str:
    """Return the id of the time window `[start, end)`."""
    return f"t-{basic_instant(start)}-{basic_instant(end)}-{scope_hash}"


def time_window_of(window_id: str) -> tuple[datetime, datetime, str] | None:
    """Return start, end and scope hash of a time window's id; None for another id."""
    kind, *rest = window_id.split("-")
    if kind != "t" or len(rest) != 3:
        return None
    try:
        return parse_basic_instant(rest[0]), parse_basic_instant(rest[1]), rest[2]
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """Offset ranges `[start, end)` for every partition of one window. Immutable.

    - `ranges`: by partition key ``"1:0"``; a range may be empty, which keeps the position of its
      partition. Never mutate the mapping.
    - `gaps`: parts of `ranges` that retention had already removed at planning, skipped on request.
    - `resets`: position a partition had before `on_offset_regression` moved it to its range start.
    - `joined`: partitions that the position before this window did not have.
    - `absent`: partitions of the position that no broker offers now; their range is empty.
    - `has_more`: a limit cut the window short.
    - `before`: anchors of the logs for which the window was planned, by partition: a record shortly
      before its range, or the first in it, or one in the range of another partition of the store.
      At least one per store that has a record.
    - `upto`: anchors at the end of the ranges: the last records read.
    - `time`: the interval of a time window; `seq`: the number of a cursor window in its chain.

    `hash` covers id, topic, group, filters, epoch and ranges, nothing else: equal hashes mean the
    same records. Created by `cursor`, `for_time`, `explicit` or `from_document`, which validate.
    """

    window_id: str
    kind: WindowKind
    cluster: str
    topic: str
    group: str
    scope_hash: str
    ranges: Mapping[str, Range]
    filters: tuple[str, ...] = ()
    epoch: str = ""
    seq: int | None = None
    time: tuple[str, str] | None = None
    gaps: Mapping[str, tuple[Range, ...]] = field(default_factory=dict)
    resets: Mapping[str, int] = field(default_factory=dict)
    joined: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    has_more: bool = False
    before: Anchors = field(default_factory=dict)
    upto: Anchors = field(default_factory=dict)
    source: str = FIRST_SOURCE
    _hash: str | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ranges", self.space.by_key(self.ranges))
        problems = identity_problems(
            self.window_id, self.kind, self.scope_hash, self.seq, self.time
        )
        problems += range_problems(self.space, self.ranges, self.gaps)
        for name, keys in (
            ("resets", self.resets),
            ("joined", self.joined),
            ("absent", self.absent),
        ):
            problems += [
                f"{name} names {key}, which has no range" for key in set(keys) - self.ranges.keys()
            ]
        if problems:
            raise DocumentError(f"window plan {self.window_id!r}", problems)

    # -- making -------------------------------------------------------------------------------

    @classmethod
    def cursor(
        cls, scope: WindowScope, seq: int, ranges: Mapping[str, Range], **notes: Any
    ) -> WindowPlan:
        """Return the plan of cursor window `seq`; `notes` are the members outside the hash."""
        window_id = cursor_window_id(seq, scope.scope_hash)
        return cls._of(scope, window_id, WindowKind.CURSOR, ranges, seq=seq, **notes)

    @classmethod
    def for_time(
        cls,
        scope: WindowScope,
        start: datetime,
        end: datetime,
        ranges: Mapping[str, Range],
        **notes: Any,
    ) -> WindowPlan:
        """Return the plan of the time window `[start, end)`."""
        window_id = time_window_id(start, end, scope.scope_hash)
        interval = (rfc3339(start), rfc3339(end))
        return cls._of(scope, window_id, WindowKind.TIME, ranges, time=interval, **notes)

    @classmethod
    def explicit(cls, scope: WindowScope, ranges: Mapping[str, Range], **notes: Any) -> WindowPlan:
        """Return the plan of ranges that a user gave; its id is ``x-`` and its hash."""
        digest = _plan_hash(
            f"x-{scope.scope_hash}", scope.topic, scope.group, scope.filters, scope.epoch, ranges
        )
        return cls._of(scope, f"x-{digest}", WindowKind.EXPLICIT, ranges, **notes)

    @classmethod
    def _of(
        cls,
        scope: WindowScope,
        window_id: str,
        kind: WindowKind,
        ranges: Mapping[str, Range],
        **rest: Any,
    ) -> WindowPlan:
        return cls(
            window_id=window_id,
            kind=kind,
            cluster=scope.cluster,
            topic=scope.topic,
            group=scope.group,
            scope_hash=scope.scope_hash,
            filters=scope.filters,
            epoch=scope.epoch,
            source=scope.source,
            ranges=ranges,
            **rest,
        )

    # -- meaning ------------------------------------------------------------------------------

    @property
    def space(self) -> OffsetSpace:
        """Offset space of the source."""
        return space_of(self.source)

    @property
    def hash(self) -> str:
        """Hex sha256 over id, topic, group, filters, epoch and ranges."""
        if self._hash is None:
            # The id of an explicit window contains this hash: hash its scope instead of the id.
            named = f"x-{self.scope_hash}" if self.kind is WindowKind.EXPLICIT else self.window_id
            members = (self.topic, self.group, self.filters, self.epoch, self.ranges)
            object.__setattr__(self, "_hash", _plan_hash(named, *members))
        assert self._hash is not None
        return self._hash

    @property
    def ends(self) -> dict[str, int]:
        """Position of every partition after this window."""
        return {key: end for key, (_, end) in self.ranges.items()}

    @property
    def bases(self) -> dict[str, int]:
        """Position that this window continues: the range starts, or for a reset partition the
        position before the reset; without joined partitions."""
        joined = set(self.joined)
        return {
            key: self.resets.get(key, start)
            for key, (start, _) in self.ranges.items()
            if key not in joined
        }

    @property
    def entries(self) -> int:
        """Index entries over all ranges without gaps: an upper bound on records."""
        return sum(
            self.space.entries(low, high)
            for key, (start, end) in self.ranges.items()
            for low, high in _without(start, end, self.gaps.get(key, ()))
        )

    @property
    def record_limit(self) -> int:
        """Upper bound on records: index entries of each log once, however many partitions share
        it."""
        return sum(
            self._entries_of_log([self.ranges[key] for key in keys])
            for keys in self.space.logs(self.ranges).values()
        )

    def _entries_of_log(self, ranges: Iterable[Range]) -> int:
        """Return the index entries that lie in at least one of the ranges."""
        total, reached = 0, 0
        for start, end in sorted(ranges):
            if end > max(start, reached):
                total += self.space.entries(max(start, reached), end)
                reached = end
        return total

    @property
    def anchors(self) -> dict[str, Anchor]:
        """Anchors of the logs at the end of this window."""
        return {**self.before, **self.upto}

    @property
    def known_before(self) -> str:
        """Id of the cursor window before this one; "" for other kinds."""
        return cursor_window_id(self.seq - 1, self.scope_hash) if self.seq else ""

    @property
    def anchors_at_start(self) -> dict[str, Anchor]:
        """Anchors of the logs at the position that this window continues: those of `before` that
        lie below it. The first record of a range identifies the log only for this plan."""
        starts = self.bases
        return {
            key: anchor for key, anchor in self.before.items() if anchor.offset < starts.get(key, 0)
        }

    def scope_in(self, sink: str) -> WindowScope:
        """Return the scope of this window for a sink of identity `sink`."""
        members = (self.filters, self.epoch, self.source)
        return WindowScope(self.cluster, self.topic, self.group, sink, *members)

    def for_sink(self, sink: str) -> WindowPlan:
        """Return the plan of the same ranges for a sink of identity `sink`, under another id."""
        scope = self.scope_in(sink)
        if self.kind is WindowKind.EXPLICIT:
            window_id = WindowPlan.explicit(scope, self.ranges).window_id
        else:
            window_id = self.window_id.removesuffix(self.scope_hash) + scope.scope_hash
        return replace(self, window_id=window_id, scope_hash=scope.scope_hash)

    def reads(self) -> Iterator[Any]:
        """Yield the ranges that an engine has to read, as the source's own values: non-empty,
        without gaps, in key order."""
        for key, (start, end) in self.ranges.items():
            for low, high in _without(start, end, self.gaps.get(key, ())):
                yield self.space.ranges(self.topic, key, low, high)

    @property
    def read_upto(self) -> dict[str, int]:
        """End of the last readable range of each partition that has any: its end, or the start of
        a gap at its end."""
        parts = {
            key: list(_without(start, end, self.gaps.get(key, ())))
            for key, (start, end) in self.ranges.items()
        }
        return {key: ranges[-1][1] for key, ranges in parts.items() if ranges}

    def continues(self, position: Mapping[str, int]) -> bool:
        """Return True if this window begins exactly at `position` (next offset by key)."""
        return self.bases == dict(position)

    # -- documents ----------------------------------------------------------------------------

    def to_document(self) -> dict[str, Any]:
        """Return the JSON object to store; `from_document` restores an equal plan."""
        document: dict[str, Any] = {
            "v": PLAN_VERSION if self.source == FIRST_SOURCE else PLAN_VERSION_WITH_SOURCE,
            "id": self.window_id,
            "kind": str(self.kind),
            "cluster": self.cluster,
            "topic": self.topic,
            "group": self.group,
            "h": self.scope_hash,
            "filters": list(self.filters),
            "epoch": self.epoch,
            "ranges": {key: list(value) for key, value in self.ranges.items()},
            "hash": self.hash,
        }
        optional: dict[str, Any] = {
            "source": None if self.source == FIRST_SOURCE else self.source,
            "seq": self.seq,
            "time": list(self.time) if self.time else None,
            "gaps": {key: [list(gap) for gap in gaps] for key, gaps in self.gaps.items()},
            "resets": dict(self.resets),
            "joined": list(self.joined),
            "absent": list(self.absent),
            "more": 1 if self.has_more else 0,
            "before": anchors_document(self.before),
            "upto": anchors_document(self.upto),
        }
        document.update({name: value for name, value in optional.items() if value})
        return document

    @classmethod
    def from_document(cls, document: object, *, where: str = "window plan") -> WindowPlan:
        """Parse a stored document.

        Raises `DocumentError` listing every problem: unknown version, missing or wrong members, or
        a hash that does not fit the content."""
        arguments, stored_hash = read_members(document, where)
        plan = cls(**arguments)
        if plan.hash != stored_hash:
            raise DocumentError(where, [f"hash {stored_hash!r} does not fit the content"])
        return plan

    def canonical(self) -> str:
        """Return the canonical JSON of the whole document."""
        return canonical_json(self.to_document())


def _plan_hash(
    named: str,
    topic: str,
    group: str,
    filters: tuple[str, ...],
    epoch: str,
    ranges: Mapping[str, Range],
) -> str:
    return sha256_hex(
        {
            "id": named,
            "topic": topic,
            "group": group,
            "filters": list(filters),
            "epoch": epoch,
            "ranges": {key: list(value) for key, value in ranges.items()},
        }
    )


def _without(start: int, end: int, gaps: tuple[Range, ...]) -> Iterator[Range]:
    for low, high in sorted(gaps):
        if start < low:
            yield start, low
        start = max(start, high)
    if start < end:
        yield start, end
