"""Window plans: the frozen statement of which offsets a window consists of.

A plan is the whole contract between planning, engines and sinks. It is immutable once stored, has
one canonical JSON form and one hash, and never says which task made it, when, or in which try. This
module must not do I/O, read a clock, or import airflow, pyspark or pyarrow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
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
"""What the alias of a cluster may look like: it stands in ids, assets and directories."""


@dataclass(frozen=True, slots=True)
class WindowScope:
    """What windows belong to; two scopes never share a window id or a cursor.

    `cluster` is the alias of the connection (changing masters changes nothing), `filters` are
    stream ids (order and repetition do not matter), `epoch` names the life of the topic that
    offsets refer to, `sink` is `Sink.identity`. `source` is the kind of source; it is part of the
    identity unless it is the first one, which had none.
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
        """Ten hex digits that tell this scope from others."""
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
        """The group as commands name it; the first kind of source needs no prefix."""
        kind = "" if self.source == FIRST_SOURCE else f"{self.source}:"
        return f"{kind}{self.cluster}/{self.topic}/{self.group}"

    @property
    def space(self) -> OffsetSpace:
        """What offsets and keys of the source mean."""
        return space_of(self.source)


def cursor_window_id(seq: int, scope_hash: str) -> str:
    """The id of the `seq`-th cursor window, counted from 1."""
    return f"c-{seq}-{scope_hash}"


def cursor_window_of(window_id: str) -> tuple[int, str] | None:
    """Number and scope hash in the id of a cursor window; None if it is no such id."""
    kind, _, rest = window_id.partition("-")
    number, _, scope_hash = rest.partition("-")
    return (int(number), scope_hash) if kind == "c" and number.isdecimal() and scope_hash else None


def time_window_id(start: datetime, end: datetime, scope_hash: str) -> str:
    """The id of the window of `[start, end)`."""
    return f"t-{basic_instant(start)}-{basic_instant(end)}-{scope_hash}"


def time_window_of(window_id: str) -> tuple[datetime, datetime, str] | None:
    """Interval and scope hash in the id of a window of time; None if it is no such id."""
    kind, *rest = window_id.split("-")
    if kind != "t" or len(rest) != 3:
        return None
    try:
        return parse_basic_instant(rest[0]), parse_basic_instant(rest[1]), rest[2]
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """`[start, end)` offsets for every partition of one window. Immutable; never mutate `ranges`.

    - `ranges`: by partition key ``"1:0"``; a range may be empty (the partition is carried along).
    - `gaps`: parts of `ranges` that retention had already removed at planning, skipped on request.
    - `resets`: position a partition had before `on_offset_regression` moved it to its range start.
    - `joined`: partitions that the position before this window did not know.
    - `absent`: partitions of the position that no broker offers now; their range is empty.
    - `has_more`: a cap cut the window short.
    - `before`: by which records the logs are known that the window was planned for, by partition: a
      record shortly before its range or the first in it, or in the range of another one that shares
      the store; at least one a store where there is any.
    - `upto`: the last records up to the end of the ranges, once they were read.
    - `time`: the interval, `seq`: the number in the chain; each only for its kind.

    `hash` covers id, topic, group, filters, epoch and ranges, nothing else: equal hashes mean the
    same records. Made with `cursor`, `for_time`, `explicit` or `from_document`, which validate.
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
        """The plan of cursor window `seq`; `notes` are the informative members."""
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
        """The plan of the time window `[start, end)`."""
        window_id = time_window_id(start, end, scope.scope_hash)
        interval = (rfc3339(start), rfc3339(end))
        return cls._of(scope, window_id, WindowKind.TIME, ranges, time=interval, **notes)

    @classmethod
    def explicit(cls, scope: WindowScope, ranges: Mapping[str, Range], **notes: Any) -> WindowPlan:
        """The plan of ranges given by hand; its id is ``x-`` and its hash."""
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
        """What offsets and keys of the source mean."""
        return space_of(self.source)

    @property
    def hash(self) -> str:
        """Hex sha256 over id, topic, group, filters, epoch and ranges."""
        if self._hash is None:
            # An explicit window's id is made from this hash: there the scope stands for the id.
            named = f"x-{self.scope_hash}" if self.kind is WindowKind.EXPLICIT else self.window_id
            known = (self.topic, self.group, self.filters, self.epoch, self.ranges)
            object.__setattr__(self, "_hash", _plan_hash(named, *known))
        assert self._hash is not None
        return self._hash

    @property
    def ends(self) -> dict[str, int]:
        """Where every partition stands after this window."""
        return {key: end for key, (_, end) in self.ranges.items()}

    @property
    def bases(self) -> dict[str, int]:
        """The position that this window continues, by partition it knew. Range starts, except
        where a reset moved the start; without joined partitions."""
        joined = set(self.joined)
        return {
            key: self.resets.get(key, start)
            for key, (start, _) in self.ranges.items()
            if key not in joined
        }

    @property
    def entries(self) -> int:
        """Index entries over all ranges (gaps not counted): an upper bound on records."""
        return sum(
            self.space.entries(low, high)
            for key, (start, end) in self.ranges.items()
            for low, high in _without(start, end, self.gaps.get(key, ()))
        )

    @property
    def anchors(self) -> dict[str, Anchor]:
        """By which records the logs are known where this window ends."""
        return {**self.before, **self.upto}

    @property
    def known_before(self) -> str:
        """Id of the cursor window that this one follows; "" if it is none."""
        return cursor_window_id(self.seq - 1, self.scope_hash) if self.seq else ""

    @property
    def anchors_at_start(self) -> dict[str, Anchor]:
        """Those of `before` that tell of the logs at the position that this window continues; the
        first record of a range tells of it only together with its plan."""
        starts = self.bases
        return {
            key: anchor for key, anchor in self.before.items() if anchor.offset < starts.get(key, 0)
        }

    def scope_in(self, sink: str) -> WindowScope:
        """What this window would belong to in a sink of that identity."""
        known = (self.filters, self.epoch, self.source)
        return WindowScope(self.cluster, self.topic, self.group, sink, *known)

    def reads(self) -> Iterator[Any]:
        """The ranges an engine has to read, as the source's own values: non-empty, with gaps taken
        out, in key order."""
        for key, (start, end) in self.ranges.items():
            for low, high in _without(start, end, self.gaps.get(key, ())):
                yield self.space.ranges(self.topic, key, low, high)

    @property
    def read_upto(self) -> dict[str, int]:
        """Where reading ends in each partition of which anything is read: its end, or where a gap
        before that begins."""
        parts = {
            key: list(_without(start, end, self.gaps.get(key, ())))
            for key, (start, end) in self.ranges.items()
        }
        return {key: found[-1][1] for key, found in parts.items() if found}

    def continues(self, position: Mapping[str, int]) -> bool:
        """Whether this window begins exactly where `position` (next start by key) ends."""
        return self.bases == dict(position)

    # -- documents ----------------------------------------------------------------------------

    def to_document(self) -> dict[str, Any]:
        """The JSON object that stores keep; `from_document` gives an equal plan back."""
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
        """The plan in a stored document. Raises `DocumentError` listing every problem: unknown
        version, missing or wrong members, or a hash that does not fit the content."""
        arguments, stored_hash = read_members(document, where)
        plan = cls(**arguments)
        if plan.hash != stored_hash:
            raise DocumentError(where, [f"hash {stored_hash!r} does not fit the content"])
        return plan

    def canonical(self) -> str:
        """The canonical JSON of the whole document."""
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
