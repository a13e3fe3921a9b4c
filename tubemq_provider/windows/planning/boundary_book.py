"""Boundaries of one scope as a monotone sequence, fixed by concurrent runs.

A boundary has one offset per partition. It lies between the nearest fixed boundaries on both sides,
whatever a resolver answers and in whatever order windows are planned. It has every partition of
earlier boundaries, and none that is missing in a later one. So time windows tile each partition's
log:

- A partition joins at one boundary, and the window that ends there reads it from its beginning.
  Earlier windows that are planned afterwards leave it out.
- If retention has removed the records that would determine a boundary, a window may begin there
  only with the gap policy to skip: it begins at the lowest offset that the boundary can have, and
  the lost range is its gap.
- A partition that cannot be resolved now keeps its offset only if its broker is *retired*;
  otherwise the boundary waits.

Two runs that fix different instants concurrently could contradict each other. So boundaries are
fixed in turns: ``turn-<n>-<h>`` can be written once, by a run that has read all earlier turns, and
has the whole boundary. The document under the instant is a copy of it, which the next run writes if
the first one died in between.

All I/O goes through a `BoundaryBook`: no clock, no look-up of ends.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from shlex import quote
from typing import Final, NamedTuple

from tubemq_client.errors import ConfigError, DataLoss
from tubemq_client.model import GapPolicy
from tubemq_provider.windows.anchors import anchors_document, read_anchors
from tubemq_provider.windows.canonical import (
    basic_instant,
    parse_basic_instant,
    parse_instant,
    rfc3339,
)
from tubemq_provider.windows.errors import (
    BoundaryConflict,
    DocumentError,
    StoreConflict,
    WindowNotReady,
)
from tubemq_provider.windows.plan import WindowScope
from tubemq_provider.windows.planning.instants import Resolved
from tubemq_provider.windows.planning.published import PublishedWindows, WindowEdge
from tubemq_provider.windows.protocols import BoundaryBook, Document, OrderedBook
from tubemq_provider.windows.spaces import OffsetSpace

__all__ = [
    "ANCHORS",
    "BEGIN",
    "RESTORED",
    "RESTORED_FROM",
    "ScopeBook",
    "boundary_command",
    "brokers_of",
    "retired_brokers",
    "retired_key",
]

_TURNS: Final = 200
"""Attempts of a run to get a turn before it leaves the retry to the scheduler."""

_OLD_LOOKS: Final = 200
"""Most earlier boundaries that are read to complete one that is not *whole*. Such boundaries are of
releases that compared a boundary with two others only."""

ANCHORS: Final = "anchors"
"""Member of a boundary's evidence: the anchors of its logs."""

BEGIN: Final = "begin"
"""Member of a boundary's evidence: the first offsets of its epoch."""

_LOST_TO_RETENTION: Final = "eroded"
"""Member of a boundary's evidence: the partitions whose offset was lost to retention, each with the
lowest and the highest offset that it can have."""

RESTORED: Final = "published windows"
"""Resolver name of a boundary that was lost and restored from the plans of published windows."""

RESTORED_FROM: Final = "windows"
"""Member of such a boundary's evidence: the ids of these windows."""

_TURNS_KEPT: Final = 100
"""Turns before the last one that are kept, for diagnosis."""

_PRUNED: Final = 10
"""Most old turns that a run removes: others may have died before they removed theirs."""

_KEY = re.compile(r"(turn|retired)-(.+)")


def retired_key(broker: int | str, scope: WindowScope) -> str:
    """Return the key of a book that marks a broker as retired: it will not come back."""
    return f"retired-{broker}-{scope.scope_hash}"


def retired_brokers(book: BoundaryBook | None, scope: WindowScope) -> frozenset[str]:
    """Return names of brokers that a user has retired for `scope`; none without a book."""
    return frozenset() if book is None else ScopeBook(book, scope).retired


class _Sides(NamedTuple):
    """Fixed boundaries before and after an instant; None if there is none. `open` has the
    partitions whose offset in `above` was lost to retention."""

    below: Mapping[str, int] | None
    above: Mapping[str, int] | None
    open: Collection[str] = ()

    def start(self, key: str) -> int:
        """Return the offset in the boundary before, 0 without one."""
        return (self.below or {}).get(key, 0)


class ScopeBook:
    """Boundaries of `scope` in `book`. Create one per plan: it caches what it has read, and lists
    the book once unless it fixes something."""

    def __init__(self, book: BoundaryBook, scope: WindowScope) -> None:
        self._book = book
        self._scope = scope
        self._published: PublishedWindows | None = None
        self._since: datetime | None = None
        self._bounded: datetime | None = None
        self._read: dict[datetime, Document] = {}
        self._instants: list[datetime] = []
        self._keys: list[str] | None = None
        self._is_retired: dict[str, bool] = {}
        self._turn = 0
        self._last: Document | None = None
        self._stale = True

    def compare(self, published: PublishedWindows, since: datetime | None = None) -> None:
        """Use `published` windows too: they restore lost boundaries, and boundaries that contradict
        them are refused.

        If the instant `since` is fixed, earlier boundaries will not be requested, and are not
        listed if the book is an `OrderedBook`."""
        self._published, self._since = published, since
        self._forget_listing()

    def has(self, instant: datetime) -> bool:
        """Return True if the boundary at `instant` is fixed, or a published window has it."""
        return self._document(instant) is not None

    def instants(self) -> list[datetime]:
        """Return all fixed instants, the earliest first."""
        self._look()
        return list(self._instants)

    def first(self) -> datetime | None:
        """Return the earliest listed instant that is fixed or in a published window."""
        self._look()
        published = None if self._published is None else self._published.first()
        return min([*self._instants[:1], *([published] if published else [])], default=None)

    def last(self) -> datetime | None:
        """Return the latest instant that is fixed or in a published window."""
        self._look()
        published = None if self._published is None else self._published.last()
        return max([*self._instants[-1:], *([published] if published else [])], default=None)

    def at(self, instant: datetime) -> dict[str, int]:
        """Return the boundary fixed at `instant`, completed from earlier ones if it is not *whole*.
        Raises `KeyError` if none is fixed."""
        self._look()
        return self._effective(instant)

    def agreed(self, instant: datetime) -> dict[str, int]:
        """Return the boundary like `at`. Raises `BoundaryConflict` if published windows contradict
        it."""
        self._look()
        self._refuse_other_offsets(instant)
        return self._effective(instant)

    def agrees(self, instant: datetime, edge: WindowEdge) -> bool:
        """Return True if a window with this edge fits the boundary at `instant`. A boundary that is
        not *whole* fits always: earlier ones complete it."""
        document = self._document(instant) or {}
        return not document.get("whole") or not edge.contradicts(self._effective(instant))

    def evidence(self, instant: datetime) -> Document:
        """Return the evidence of the boundary fixed at `instant`; empty without any."""
        evidence = (self._document(instant) or {}).get("evidence", {})
        return dict(evidence) if isinstance(evidence, dict) else {}

    @cached_property
    def retired(self) -> frozenset[str]:
        """Names of retired brokers, as in partition keys."""
        keys = (self._parsed(key) for key in self._listing())
        return frozenset(name for kind, name in filter(None, keys) if kind == "retired")

    def is_retired(self, name: str) -> bool:
        """Return True if the broker of a partition or log is retired. One look-up by name."""
        broker = str(self._scope.space.peer_of(name))
        if broker not in self._is_retired:
            key = retired_key(broker, self._scope)
            self._is_retired[broker] = self._book.read(key) is not None
        return self._is_retired[broker]

    def fix(
        self,
        instant: datetime,
        name: str,
        resolve: Callable[[], Resolved],
        *,
        exact: bool,
        gap_policy: GapPolicy = GapPolicy.FAIL,
        begins: bool = False,
    ) -> dict[str, int]:
        """Return the one boundary at `instant`, and fix it if it is not.

        It is the fixed boundary, else that of published windows which begin or end there, else the
        answer of the resolver `name`, fitted between the neighbouring boundaries.

        An `exact` answer is not fitted: if it contradicts a fixed boundary, at the instant or next
        to it, `BoundaryConflict` is raised. Raises `WindowNotReady` while a partition cannot be
        resolved, and `DataLoss` for one that was lost to retention, if `gap_policy` is to fail.
        Otherwise a window that `begins` here starts at the lowest possible offset, so that its gap
        covers everything that may be lost; a window that ends here ends at the highest.
        """
        answer: Resolved | None = None
        for _ in range(_TURNS):
            self._look_unless_fixed(instant)
            document = self._document(instant)
            if document is not None:
                self._refuse_other_offsets(instant)
                if exact:
                    self.confirm(instant, resolve)
                if self._is_fixed(instant):
                    return self._effective(instant)
                document = self._restored(instant, document)
            else:
                if answer is None:
                    # Slow: other runs may fix boundaries meanwhile, and take this turn.
                    answer = resolve()
                    self._look()
                sides = self._sides(instant)
                complete = _with_later_offsets(answer, sides)
                open_offsets = self._lost_to_retention(complete, sides)
                if open_offsets and gap_policy is GapPolicy.FAIL:
                    raise _too_late(instant, open_offsets, self._scope)
                chosen = _with_chosen_offsets(complete, open_offsets, begins=begins)
                document = self._fitted(instant, name, chosen, sides, exact=exact)
            if self._take_turn(instant, document):
                return self._effective(instant)
        raise WindowNotReady(f"others fix boundaries of group {self._scope.group!r} all the time")

    def refuse_disorder(self, start: datetime, end: datetime) -> None:
        """Raise `BoundaryConflict` if the boundary at `end` is below that at `start`, or lacks one
        of its partitions: some boundaries were lost, and others were restored."""
        before, after = self._effective(start), self._effective(end)
        wrong = {key: at for key, at in before.items() if after.get(key, 0) < at}
        if not wrong:
            return
        used = self._published is not None and bool(self._published.at(end))
        text = rfc3339(start if used else end)
        problems = [
            f"partition {key}: {at} at {rfc3339(start)}, {after.get(key, 'nothing')} at "
            f"{rfc3339(end)}"
            for key, at in wrong.items()
        ]
        hint = (
            f"forget the one that no published window has, and the next window resolves it again: "
            f"{boundary_command('unfix', self._scope, '--instant ' + text)}"
        )
        raise BoundaryConflict("boundaries that are fixed contradict each other", problems, [hint])

    def keep(self, instant: datetime, edge: WindowEdge) -> None:
        """Check, right before a window is published, that the boundary at `instant` is the `edge`
        with which the window was planned.

        A boundary that was lost since is fixed again from the edge. Raises `StoreConflict` if it
        was taken back, or is fixed at other offsets: a retry plans the window again."""
        refused = StoreConflict(
            f"the boundary at {rfc3339(instant)} is not what window {edge.window_id} was planned "
            f"with: it was taken back, or lost and fixed again, since. Nothing was published; the "
            f"next try plans the window anew"
        )
        for _ in range(_TURNS):
            self._look_unless_fixed(instant)
            if self._published is not None and not self._is_fixed(instant):
                # It was lost: a window that was published since decides.
                self._published = self._published.again()
            self._refuse_other_offsets(instant)
            document = self._document(instant)
            if document is None and self._was_taken_back(instant):
                raise refused
            if document is None:
                try:
                    document = self._restored(instant, self._of_window(instant, [edge]))
                except BoundaryConflict as exc:  # with neighbours that were fixed since
                    raise refused from exc
            elif not self.agrees(instant, edge):
                raise refused
            elif self._is_fixed(instant):
                return
            else:
                document = self._restored(instant, document)
            if self._take_turn(instant, document):
                return
        raise WindowNotReady(f"others fix boundaries of group {self._scope.group!r} all the time")

    def _was_taken_back(self, instant: datetime) -> bool:
        """Return True if the missing boundary at `instant` was taken back, and not lost: the last
        turn of that instant decides."""
        text = rfc3339(instant)
        for number in sorted(self._turn_numbers(_listed(self._book, "turn-")), reverse=True):
            turn = self._book.read(self._turn_key(number)) or {}
            if turn.get("taken_back") == text:
                return True
            if turn.get("boundary", {}).get("instant") == text:
                return False
        return False

    def _take_turn(self, instant: datetime, document: Document) -> bool:
        """Fix `document` in the turn after the known ones; False if another run was faster."""
        self._forget_listing()
        number = self._turn + 1
        turn = {"v": 1, "turn": number, "boundary": document}
        if self._book.fix(self._turn_key(number), turn) != turn:
            return False
        # A number without a turn may have been used: old turns are removed, and others can be lost.
        numbers = self._turn_numbers(_listed(self._book, "turn-"))
        if any(other > number for other in numbers):
            return False
        self._read[instant] = self._book.fix(self._key(instant), document)
        for old in sorted(other for other in numbers if other <= number - _TURNS_KEPT)[:_PRUNED]:
            self._book.withdraw(self._turn_key(old))
        return True

    def confirm(self, instant: datetime, resolve: Callable[[], Resolved]) -> None:
        """Raise `BoundaryConflict` if `instant` is fixed at other offsets than an exact resolver
        gives: the user has corrected them since, and records between may be in a window. Partitions
        and instants that are not given any more keep their offsets."""
        self._look_unless_fixed(instant)
        if not self.has(instant):
            return
        try:
            answer = resolve()
        except (ConfigError, WindowNotReady):
            return
        fixed, by = self._effective(instant), self._read[instant].get("resolver")
        conflicts = {
            key: offset
            for key, offset in answer.offsets.items()
            if fixed.get(key, offset) != offset
        }
        if conflicts:
            fits = {key: fixed[key] for key in conflicts}
            raise _contradiction(self._scope, instant, _Clash(fits, conflicts, {}), f"by {by!r}")

    def retire(self, broker: int | str) -> None:
        """Retire a broker: boundaries no longer wait for its undelivered records. If it comes back,
        its partitions resume at their offsets. Safe while runs are active."""
        name = str(broker)
        document = {
            "v": 1,
            "broker": int(name) if name.isdecimal() else name,
            "h": self._scope.scope_hash,
        }
        self._book.fix(retired_key(name, self._scope), document)
        self._is_retired.pop(name, None)

    def withdraw(self, instant: datetime) -> None:
        """Forget the boundary at `instant`, as if it had never been fixed.

        The caller makes sure that no run is planning and that no published window begins at, ends
        at or contains the instant."""
        self._look()
        self._book.fix(
            self._turn_key(self._turn + 1),
            {"v": 1, "turn": self._turn + 1, "taken_back": rfc3339(instant)},
        )
        self._book.withdraw(self._key(instant))
        self._read.pop(instant, None)
        self._forget_listing()

    # -- reading ------------------------------------------------------------------------------

    def _look(self) -> None:
        """List the book if the listing is stale, and complete the last turn for a run that died in
        it."""
        if not self._stale:
            return
        own = f"-{self._scope.scope_hash}"
        instants = {
            _instant(parse_basic_instant, key.removesuffix(own), key)
            for key in self._listing()
            if key.endswith(own) and self._parsed(key) is None
        }
        self._turn = max(self._turn_numbers(self._listing()), default=0)
        self._instants = sorted(instants)
        self._last = self._book.read(self._turn_key(self._turn)) if self._turn else None
        if self._last is not None and "boundary" in self._last:
            document, where = self._last["boundary"], self._turn_key(self._turn)
            _check(document, where, self._scope)
            instant = _instant(parse_instant, document.get("instant"), where)
            if instant not in instants and not self._before_all(instant):
                self._book.fix(self._key(instant), document)
                if instant not in self._instants:
                    insort(self._instants, instant)
        self._stale = False

    def _look_unless_fixed(self, instant: datetime) -> None:
        """List the book unless it has the whole boundary at `instant`: then others do not
        matter."""
        if not (self._from_book(instant) or {}).get("whole"):
            self._look()

    def _forget_listing(self) -> None:
        self._keys, self._stale = None, True

    def _listing(self) -> list[str]:
        """Return the keys of the book: all, or those from the window's start on."""
        if self._keys is None:
            since, low = self._since, ""
            self._bounded = None
            if since is not None and (self._from_book(since) or {}).get("whole"):
                self._bounded = since
                # Fractions of a second sort before the full second: all of that second are listed.
                low = basic_instant(since)[:15]
            self._keys = list(_listed(self._book, low))
        return self._keys

    def _before_all(self, instant: datetime) -> bool:
        """Return True if `instant` is fixed but before the listed range."""
        return (
            self._bounded is not None
            and instant < self._bounded
            and self._from_book(instant) is not None
        )

    def _turn_numbers(self, keys: Iterable[str]) -> list[int]:
        parsed = (self._parsed(key) for key in keys)
        return [int(name) for kind, name in filter(None, parsed) if kind == "turn"]

    def _parsed(self, key: str) -> tuple[str, str] | None:
        """Return kind and name of a turn's or a retired broker's key; None for a boundary's."""
        own = f"-{self._scope.scope_hash}"
        match = _KEY.match(key.removesuffix(own)) if key.endswith(own) else None
        return (match[1], match[2]) if match else None

    def _key(self, instant: datetime) -> str:
        return f"{basic_instant(instant)}-{self._scope.scope_hash}"

    def _turn_key(self, number: int) -> str:
        return f"turn-{number}-{self._scope.scope_hash}"

    def _document(self, instant: datetime) -> Document | None:
        """Return the fixed boundary, else the one of published windows, else None."""
        document = self._from_book(instant)
        if document is not None or self._published is None:
            return document
        edges = self._published.at(instant)
        if not edges:
            return None
        if len(edges) > 1 and (conflicts := edges[0].contradicts(edges[1].offsets)):
            raise _windows_apart(instant, edges, conflicts)
        return self._of_window(instant, edges)

    def _from_book(self, instant: datetime) -> Document | None:
        if instant not in self._read:
            document = self._book.read(self._key(instant))
            if document is None:
                return None
            _check(document, self._key(instant), self._scope)
            self._read[instant] = document
        return self._read[instant]

    def _is_fixed(self, instant: datetime) -> bool:
        return self._from_book(instant) is not None

    def _of_window(self, instant: datetime, edges: Sequence[WindowEdge]) -> Document:
        """Return the boundary with which windows were planned. The window that begins there has its
        partitions; one that ends there and has no records may name others."""
        edge = edges[-1]
        anchors = {**edges[0].anchors, **edge.anchors}
        notes: Document = {RESTORED_FROM: [edge.window_id for edge in edges]}
        if anchors:
            notes[ANCHORS] = anchors_document(anchors)
        if edge.open:
            notes[_LOST_TO_RETENTION] = {key: list(pair) for key, pair in edge.open.items()}
        return {
            "v": 1,
            "instant": rfc3339(instant),
            "topic": self._scope.topic,
            "h": self._scope.scope_hash,
            "resolver": RESTORED,
            "offsets": self._scope.space.by_key(edge.offsets),
            "whole": 1,
            "evidence": notes,
        }

    def _restored(self, instant: datetime, document: Document) -> Document:
        """Return `document`, built from windows, without partitions that join later. Raises
        `BoundaryConflict` if a neighbouring boundary contradicts it."""
        sides, offsets = self._sides(instant), document["offsets"]
        above = sides.above
        # A partition at 0 that is not in the next boundary joins later.
        own = {
            key: offset
            for key, offset in offsets.items()
            if offset or above is None or key in above
        }
        below, after = self._neighbours(instant)
        wrong: dict[datetime, dict[str, int]] = {}
        for key, offset in (sides.below or {}).items():
            if below is not None and offset > own.get(key, 0):
                wrong.setdefault(below, {})[key] = own.get(key, 0)
        for key, offset in own.items():
            if above is not None and after is not None and above.get(key, 0) < offset:
                wrong.setdefault(after, {})[key] = offset
        for neighbour, conflicts in wrong.items():
            fixed = self._effective(neighbour)
            windows = " and ".join(document["evidence"][RESTORED_FROM])
            raise _contradicted(self._scope, neighbour, fixed, windows, conflicts)
        return document | {"offsets": own}

    def _refuse_other_offsets(self, instant: datetime) -> None:
        """Raise `BoundaryConflict` if published windows begin or end at the instant with other
        offsets than the fixed ones, or have offsets on the wrong side of them."""
        if self._published is None or not self._is_fixed(instant):
            return
        if not (self._document(instant) or {}).get("whole"):
            return
        fixed = self._effective(instant)
        for edge in self._published.at(instant):
            if conflicts := edge.contradicts(fixed):
                raise _contradicted(self._scope, instant, fixed, edge.window_id, conflicts)
        before, after = self._published.around(instant, instant)
        if before is not None:
            conflicts = {key: end for key, end in before.offsets.items() if fixed.get(key, 0) < end}
            if conflicts:
                raise _contradicted(self._scope, instant, fixed, before.window_id, conflicts)
        if after is not None:
            starts = {**after.offsets, **after.joined}
            conflicts = {key: at for key, at in starts.items() if at < fixed.get(key, 0)}
            if conflicts:
                raise _contradicted(self._scope, instant, fixed, after.window_id, conflicts)

    def _effective(self, instant: datetime) -> dict[str, int]:
        """Return the offsets at a fixed instant. A document that is not *whole* is of a release
        that did not compare it with all others: earlier boundaries complete and raise it."""
        offsets: dict[str, int] = {}
        place = bisect_left(self._instants, instant)
        earlier = reversed(self._instants[max(0, place - _OLD_LOOKS) : place])
        for fixed in [instant, *earlier]:
            document = self._document(fixed)
            if document is None:
                raise KeyError(fixed)
            for key, offset in document["offsets"].items():
                offsets[key] = max(offset, offsets.get(key, 0))
            if document.get("whole"):
                break
        return self._scope.space.by_key(offsets)

    def _sides(self, instant: datetime) -> _Sides:
        before, after = self._neighbours(instant)
        below = None if before is None else self.agreed(before)
        if after is None:
            return _Sides(below, None)
        return _Sides(below, self.agreed(after), self.evidence(after).get(_LOST_TO_RETENTION, {}))

    def _neighbours(self, instant: datetime) -> tuple[datetime | None, datetime | None]:
        """Return the nearest instants before and after with a boundary, fixed or of a published
        window. Boundaries inside a published window do not count: its edges do."""
        low, high = bisect_left(self._instants, instant), bisect_right(self._instants, instant)
        while low and self._is_inside(self._instants[low - 1]):
            low -= 1
        while high < len(self._instants) and self._is_inside(self._instants[high]):
            high += 1
        before, after = self._instants[max(0, low - 1) : low], self._instants[high : high + 1]
        if self._published is not None:
            earlier, later = self._published.neighbours(instant)
            before += [earlier] if earlier else []
            after += [later] if later else []
        return max(before, default=None), min(after, default=None)

    def _is_inside(self, instant: datetime) -> bool:
        return self._published is not None and self._published.across(instant) is not None

    # -- fitting ------------------------------------------------------------------------------

    def _lost_to_retention(self, answer: Resolved, sides: _Sides) -> dict[str, tuple[int, int]]:
        """Return partitions whose offset was lost to retention, each with the lowest and highest
        possible offset. Neighbouring boundaries may still determine it, and a partition that joins
        is read from its beginning anyway."""
        open_offsets = {}
        for key, least in answer.lost_to_retention.items():
            if sides.below is not None and key not in sides.below:
                continue
            low, high = max(least, sides.start(key)), answer.offsets[key]
            if sides.above is not None and key not in sides.open:
                high = min(high, sides.above.get(key, 0))
            if low < min(high, answer.held.get(key, high)):
                open_offsets[key] = (low, high)
        return self._scope.space.by_key(open_offsets)

    def _fitted(
        self, instant: datetime, name: str, answer: Resolved, sides: _Sides, *, exact: bool
    ) -> Document:
        """Return the document that fixes `answer`: clamped between its sides, and with all
        partitions of the boundary before."""
        missing = self._missing(answer, sides)
        if missing and not exact:
            raise WindowNotReady(_not_told(instant, missing, self._scope))
        offsets = dict(sides.below or {})
        moved: dict[str, int] = {}
        for key, offset in answer.offsets.items():
            if sides.above is not None and key not in sides.above:
                # The partition joins at a later boundary, from its beginning.
                continue
            offsets[key] = max(offset, sides.start(key))
            if sides.above is not None:
                offsets[key] = min(offsets[key], sides.above[key])
            if offsets[key] != offset:
                moved[key] = offset
        if exact and (missing or moved):
            fits = {key: offsets[key] for key in moved}
            raise _contradiction(self._scope, instant, _Clash(fits, moved, missing), "beside it")
        document: Document = {
            "v": 1,
            "instant": rfc3339(instant),
            "topic": self._scope.topic,
            "h": self._scope.scope_hash,
            "resolver": name,
            "offsets": self._scope.space.by_key(offsets),
            "whole": 1,
        }
        notes = {"evidence": answer.evidence, "moved": moved}
        return document | {key: note for key, note in notes.items() if note}

    def _missing(self, answer: Resolved, sides: _Sides) -> dict[str, str]:
        """Return partitions and logs that an answer must have and has not, each with the reason: a
        partition left out would join again later and be read twice. Those of retired brokers keep
        their offset instead."""
        missing, log_of = dict(answer.unknown), self._scope.space.log_of
        for key in (sides.below or {}).keys() - answer.offsets:
            if key not in missing and log_of(key) not in missing:
                missing[key] = "an earlier boundary has it, and nothing tells where it was"
        if sides.above is not None:
            present = {*sides.above, *(log_of(key) for key in sides.above)}
            missing = {key: reason for key, reason in missing.items() if key in present}
        return {key: reason for key, reason in missing.items() if not self.is_retired(key)}


def _not_told(instant: datetime, missing: Mapping[str, str], scope: WindowScope) -> str:
    lines = "".join(f"\n  - {key}: {missing[key]}" for key in scope.space.ordered(missing))
    return (
        f"the boundary at {rfc3339(instant)} cannot be told yet:{lines}\nis a broker away? The "
        f"window waits for it; one that will never come back is given up with "
        f"{boundary_command('retire', scope, brokers_of(missing, scope.space))}"
    )


def _with_later_offsets(answer: Resolved, sides: _Sides) -> Resolved:
    """Return the answer with its `later` offsets of partitions that an earlier boundary has."""
    late = {key: end for key, end in answer.later.items() if key in (sides.below or {})}
    return replace(answer, offsets={**late, **answer.offsets}) if late else answer


def _with_chosen_offsets(
    answer: Resolved, open_offsets: Mapping[str, tuple[int, int]], *, begins: bool
) -> Resolved:
    """Return the answer with the chosen offsets of partitions that were lost to retention, and the
    evidence of that."""
    if not open_offsets:
        return answer
    least = {key: low for key, (low, _) in open_offsets.items()} if begins else {}
    evidence = {
        **answer.evidence,
        _LOST_TO_RETENTION: {key: list(pair) for key, pair in open_offsets.items()},
    }
    return replace(answer, offsets={**answer.offsets, **least}, evidence=evidence)


def _too_late(
    instant: datetime, open_offsets: Mapping[str, tuple[int, int]], scope: WindowScope
) -> DataLoss:
    lines = "".join(
        f"\n  - partition {key}: what is left begins at {high}, and none of it is earlier; the "
        f"boundary was somewhere in [{low}, {high}]"
        for key, (low, high) in open_offsets.items()
    )
    low, high = next(iter(open_offsets.values()))
    return DataLoss(
        f"the boundary at {rfc3339(instant)} of topic {scope.topic!r} cannot be told any more, as "
        f"retention has removed what was before it:{lines}\nbegin at a later instant, or set "
        f"gap_policy='skip' to continue without what is gone; it is then recorded as a gap",
        start=low,
        available=high,
    )


class _Clash(NamedTuple):
    """Conflict of an exact answer: offsets that would fit, those given, and missing partitions."""

    fits: Mapping[str, int]
    given: Mapping[str, int]
    missing: Mapping[str, str]


def _contradiction(
    scope: WindowScope, instant: datetime, clash: _Clash, where: str
) -> BoundaryConflict:
    text = rfc3339(instant)
    problems = [
        f"partition {key}: {clash.given[key]} is given, {offset} fits"
        for key, offset in scope.space.by_key(clash.fits).items()
    ]
    problems += [
        f"partition {key}: not given, {reason}" for key, reason in sorted(clash.missing.items())
    ]
    hints = []
    if clash.fits:
        hints.append(
            f"give the offsets that fit; or, while no window that touches the fixed instant is "
            f"published, take it back: {boundary_command('unfix', scope, '--instant ' + text)}"
        )
    if clash.missing:
        hints.append(
            f"name partitions that had nothing new with their last offset, or retire their "
            f"broker: {boundary_command('retire', scope, brokers_of(clash.missing, scope.space))}"
        )
    subject = f"the boundary given for {text} contradicts what is fixed {where}"
    return BoundaryConflict(subject, problems, hints)


def _contradicted(
    scope: WindowScope,
    instant: datetime,
    fixed: Mapping[str, int],
    window: str,
    conflicts: Mapping[str, int],
) -> BoundaryConflict:
    text = rfc3339(instant)
    problems = [
        f"partition {key}: fixed at {fixed.get(key, 0)}, window {window} has {offset}"
        for key, offset in scope.space.by_key(conflicts).items()
    ]
    hint = (
        f"what is published counts: forget the boundary, and the next window takes the window's "
        f"offsets: {boundary_command('unfix', scope, '--instant ' + text)}"
    )
    return BoundaryConflict(
        f"the boundary at {text} contradicts what is published (boundaries were lost, or restored)",
        problems,
        [hint],
    )


def _windows_apart(
    instant: datetime, edges: Sequence[WindowEdge], conflicts: Mapping[str, int]
) -> BoundaryConflict:
    first, second = edges
    problems = [
        f"partition {key}: window {first.window_id} has {first.offsets.get(key, 0)}, window "
        f"{second.window_id} has {second.offsets.get(key, 0)}"
        for key in conflicts
    ]
    hint = (
        "both are published: what lies between is in both, or in none; if it is in none, read it "
        "by offsets (resolver='explicit')"
    )
    return BoundaryConflict(
        f"two windows meet at {rfc3339(instant)} at different offsets", problems, [hint]
    )


def _listed(book: BoundaryBook, low: str) -> Iterable[str]:
    """Yield the keys from `low` on, in no particular order."""
    if low and isinstance(book, OrderedBook):
        return book.listing_from(low)
    return (key for key in book.listing() if key >= low)


def boundary_command(name: str, scope: WindowScope, options: str) -> str:
    """Return a command for a user to run; the sink stays a placeholder, as it has many forms."""
    more = "".join(f" --filter {quote(item)}" for item in scope.filters)
    more += f" --epoch {scope.epoch}" if scope.epoch else ""
    return f"'airflow tubemq offsets {name} {quote(scope.asset)} --sink SINK{more} {options}'"


def brokers_of(names: Iterable[str], space: OffsetSpace) -> str:
    """Return command options that name the brokers of partitions or logs."""
    peers = dict.fromkeys(space.peer_of(name) for name in space.ordered(names))
    return " ".join(f"--broker {peer}" for peer in peers)


def _instant(parse: Callable[[str], datetime], text: object, key: str) -> datetime:
    """Parse the instant of a boundary, from its key or document. Raises `DocumentError`."""
    try:
        return parse(str(text))
    except ValueError as exc:
        raise DocumentError(f"boundary {key}", [f"it is of no instant: {exc}"]) from exc


def _check(document: object, key: str, scope: WindowScope) -> None:
    if not isinstance(document, dict):
        raise DocumentError(f"boundary {key}", [f"it is {document!r}, not an object"])
    problems = []
    if document.get("v") != 1:
        problems.append(f"version {document.get('v')!r} is unknown here; this release reads 1")
    if document.get("h") != scope.scope_hash:
        problems.append(f"h {document.get('h')!r} is not {scope.scope_hash!r}")
    offsets = document.get("offsets")
    if not isinstance(offsets, dict) or not (offsets or document.get("whole")):
        problems.append("offsets are missing")
        offsets = {}
    problems += _offset_problems(offsets, scope.space)
    problems += _evidence_problems(document.get("evidence", {}), scope.space)
    if problems:
        raise DocumentError(f"boundary {key}", problems)


def _offset_problems(offsets: Mapping[str, object], space: OffsetSpace) -> list[str]:
    problems = []
    for partition, offset in offsets.items():
        if not space.is_key(partition):
            problems.append(f"{partition!r} is not {space.key_form}")
        elif bad := space.offset_problem(offset):
            problems.append(f"{partition}: {bad}")
    return problems


def _evidence_problems(evidence: object, space: OffsetSpace) -> list[str]:
    """Return problems of the evidence members that later boundaries and windows use."""
    if not isinstance(evidence, dict):
        return [f"evidence is {type(evidence).__name__}, not an object"]
    problems = [
        f"{name} is {type(evidence[name]).__name__}, not an object"
        for name in (BEGIN, _LOST_TO_RETENTION)
        if not isinstance(evidence.get(name, {}), dict)
    ]
    if not problems:
        problems += [f"{BEGIN}: {bad}" for bad in _offset_problems(evidence.get(BEGIN, {}), space)]
    try:
        read_anchors(evidence.get(ANCHORS, {}), space)
    except (TypeError, ValueError) as exc:
        problems.append(f"{ANCHORS}: {exc}")
    return problems
