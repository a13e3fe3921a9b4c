"""The boundaries of one scope as one monotone sequence, fixed by many runs at once.

A boundary is never looked at alone. It lies between the nearest fixed ones on both sides, whatever
a resolver says and in whatever order windows are planned; it names every partition that an earlier
boundary names, and none that a later one has left out. So windows tile each partition's log:

- A partition that joins does so at one boundary, and the window that ends there takes it from its
  beginning. Older windows that are planned afterwards leave it out.
- Where retention has removed what would tell a boundary, a window may not begin there unless its
  gap policy is to skip: then it begins at the least offset that the boundary can have, and what is
  gone is its gap.
- A partition that nothing can tell of now keeps its place only if its broker is *retired*; else the
  boundary waits.

Two runs that fix different instants could contradict each other without seeing it. So boundaries
are fixed in turns: ``turn-<n>-<h>`` can be written once, by a run that has seen all turns before,
and holds the whole boundary; the document under the instant is its copy, which the next run makes
if the first one died in between.

Goes through a `BoundaryBook` and does nothing else: no clock, no look-up of ends.
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
from tubemq_provider.windows.planning.published import Edge, PublishedWindows
from tubemq_provider.windows.policies import GapPolicy
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
"""How often a run tries to get a turn before it lets the scheduler try again."""

_OLD_LOOKS: Final = 200
"""Boundaries of releases that compared a boundary with two others only: at most this many before
one of them are read, to find the partitions and offsets that it should have known."""

ANCHORS: Final = "anchors"
"""Where the evidence of a boundary names the records by which its logs were known."""

BEGIN: Final = "begin"
"""Where it has the offsets with which its epoch begins."""

_ERODED: Final = "eroded"
"""Where the evidence of a boundary names the partitions in which retention left it open, each with
the least and the highest offset that it could be."""

RESTORED: Final = "published windows"
"""The resolver of a boundary that was lost, and that windows have told again."""

RESTORED_FROM: Final = "windows"
"""Where the evidence of such a boundary names these windows."""

_TURNS_KEPT: Final = 100
"""Turns behind the last one that stay, for a look at what happened."""

_PRUNED: Final = 10
"""How many old turns a run removes at most: one is enough, unless an earlier release left many."""

_KEY = re.compile(r"(turn|retired)-(.+)")


def retired_key(broker: int | str, scope: WindowScope) -> str:
    """Under which a book says that a broker will not come back."""
    return f"retired-{broker}-{scope.scope_hash}"


def retired_brokers(book: BoundaryBook | None, scope: WindowScope) -> frozenset[str]:
    """Names of brokers that an operator has retired for `scope`; none where there is no book."""
    return frozenset() if book is None else ScopeBook(book, scope).retired


class _Sides(NamedTuple):
    """What is fixed around an instant; None where nothing is. `open` has the partitions that
    retention had left open when `above` was fixed."""

    below: Mapping[str, int] | None
    above: Mapping[str, int] | None
    open: Collection[str] = ()

    def start(self, key: str) -> int:
        """The offset fixed before, 0 without one."""
        return (self.below or {}).get(key, 0)


class ScopeBook:
    """The boundaries of `scope` in `book`. Make one per plan: it keeps what it has read, and lists
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
        self._turn = 0
        self._last: Document | None = None
        self._stale = True

    def compare(self, published: PublishedWindows, since: datetime | None = None) -> None:
        """Know boundaries that only `published` windows have, and refuse those that contradict
        them. If the instant `since` is fixed, what was fixed before it is not asked for: it need
        not be listed, where a book can leave it out."""
        self._published, self._since = published, since
        self._forget_listing()

    def has(self, instant: datetime) -> bool:
        """Whether the boundary at `instant` is fixed, or a published window knows it."""
        return self._document(instant) is not None

    def instants(self) -> list[datetime]:
        """All instants that are fixed, the earliest first."""
        self._look()
        return list(self._instants)

    def first(self) -> datetime | None:
        """The earliest instant that matters and is fixed, or that a published window knows."""
        self._look()
        known = None if self._published is None else self._published.first()
        return min([*self._instants[:1], *([known] if known else [])], default=None)

    def last(self) -> datetime | None:
        """The latest instant that is fixed, or that a published window knows."""
        self._look()
        known = None if self._published is None else self._published.last()
        return max([*self._instants[-1:], *([known] if known else [])], default=None)

    def at(self, instant: datetime) -> dict[str, int]:
        """The boundary fixed at `instant`, with what earlier ones say of partitions that it does
        not name. Raises `KeyError` if none is fixed."""
        self._look()
        return self._effective(instant)

    def agreed(self, instant: datetime) -> dict[str, int]:
        """What `at` gives. Raises `BoundaryConflict` if published windows say otherwise."""
        self._look()
        self._refuse_other_offsets(instant)
        return self._effective(instant)

    def agrees(self, instant: datetime, edge: Edge) -> bool:
        """Whether a window may begin or end where the boundary at `instant` is fixed. What a
        release fixed that looked at two others only is not compared: those before complete it."""
        document = self._document(instant) or {}
        return not document.get("whole") or not edge.contradicts(self.at(instant))

    def evidence(self, instant: datetime) -> Document:
        """What the boundary fixed at `instant` rests on; empty if it says nothing, or is none."""
        found = (self._document(instant) or {}).get("evidence", {})
        return dict(found) if isinstance(found, dict) else {}

    @cached_property
    def retired(self) -> frozenset[str]:
        """Names of brokers that an operator has retired, as keys of partitions have them."""
        found = (self._parsed(key) for key in self._listing())
        return frozenset(name for kind, name in filter(None, found) if kind == "retired")

    def is_retired(self, name: str) -> bool:
        """Whether the broker of a partition, or of a log, is retired."""
        return self._scope.space.peer_of(name) in self.retired

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
        """The one boundary at `instant`: what is fixed, or what the published windows that touch it
        say, else the answer of the resolver called `name`, fitted between its neighbours and fixed
        now.

        An `exact` answer means what it says: one that contradicts what is fixed, here or beside it,
        raises `BoundaryConflict` instead of being fitted. Raises `WindowNotReady` while a partition
        cannot be told, and `DataLoss` for one that retention has left open, if `gap_policy` says
        so. Else a window that `begins` here does so at the least offset of these, so that its gap
        has all that may be lost; one that ends here has the gap before the highest.
        """
        answer: Resolved | None = None
        for _ in range(_TURNS):
            self._look()
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
                    # Takes its time: others may fix boundaries meanwhile, and take this turn.
                    answer = resolve()
                    self._look()
                sides = self._sides(instant)
                told = _told(answer, sides)
                worn = self._worn(told, sides)
                if worn and gap_policy is GapPolicy.FAIL:
                    raise _too_late(instant, worn, self._scope)
                settled = _settled(told, worn, begins=begins)
                document = self._fitted(instant, name, settled, sides, exact=exact)
            if self._take_turn(instant, document):
                return self._effective(instant)
        raise WindowNotReady(f"others fix boundaries of group {self._scope.group!r} all the time")

    def refuse_disorder(self, start: datetime, end: datetime) -> None:
        """Raise `BoundaryConflict` if what is fixed at `end` lies before what is fixed at `start`,
        or leaves a partition of it out: some were lost, and others came back."""
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
            f"forget the one that no published window has, and the next window asks for it anew: "
            f"{boundary_command('unfix', self._scope, '--instant ' + text)}"
        )
        raise BoundaryConflict("boundaries that are fixed contradict each other", problems, [hint])

    def keep(self, instant: datetime, edge: Edge) -> None:
        """See that the boundary at `instant` is what a window that is about to be published was
        planned with, `edge`. One that was lost since is fixed again as the window has it. Raises
        `StoreConflict` if the boundary was taken back, or is fixed at other offsets: another try
        plans the window anew."""
        refused = StoreConflict(
            f"the boundary at {rfc3339(instant)} is not what window {edge.window_id} was planned "
            f"with: it was taken back, or lost and fixed anew, since. Nothing was published; the "
            f"next try plans the window anew"
        )
        for _ in range(_TURNS):
            self._look()
            self._refuse_other_offsets(instant)
            document = self._document(instant)
            if document is None and self._was_taken_back(instant):
                raise refused
            if document is None:
                try:
                    document = self._restored(instant, self._of_window(instant, [edge]))
                except BoundaryConflict as exc:  # with what was fixed beside it since
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
        """Whether the boundary at `instant`, which is not there, was taken back and not lost. The
        turns tell: the last one that is about it counts."""
        text = rfc3339(instant)
        for number in sorted(self._turn_numbers(_listed(self._book, "turn-")), reverse=True):
            turn = self._book.read(self._turn_key(number)) or {}
            if turn.get("taken_back") == text:
                return True
            if turn.get("boundary", {}).get("instant") == text:
                return False
        return False

    def _take_turn(self, instant: datetime, document: Document) -> bool:
        """Fix `document` in the turn after those that were seen; False if others were faster."""
        self._forget_listing()
        number = self._turn + 1
        turn = {"v": 1, "turn": number, "boundary": document}
        if self._book.fix(self._turn_key(number), turn) != turn:
            return False
        # Old turns are removed, so that one that was free may have been taken long ago.
        numbers = self._turn_numbers(_listed(self._book, "turn-"))
        if any(other > number for other in numbers):
            return False
        self._read[instant] = self._book.fix(self._key(instant), document)
        for old in sorted(other for other in numbers if other <= number - _TURNS_KEPT)[:_PRUNED]:
            self._book.take_back(self._turn_key(old))
        return True

    def confirm(self, instant: datetime, resolve: Callable[[], Resolved]) -> None:
        """Raise `BoundaryConflict` if `instant` is fixed at other offsets than an exact resolver
        gives for it: they have been corrected since, and what lies between may be in a window. What
        is not given any more stays as it is."""
        self._look()
        if not self.has(instant):
            return
        try:
            answer = resolve()
        except ConfigError:
            return
        fixed, by = self._effective(instant), self._read[instant].get("resolver")
        given = {
            key: offset
            for key, offset in answer.offsets.items()
            if fixed.get(key, offset) != offset
        }
        if given:
            fits = {key: fixed[key] for key in given}
            raise _contradiction(self._scope, instant, _Clash(fits, given, {}), f"by {by!r}")

    def retire(self, broker: int | str) -> None:
        """Give up what the broker has and never delivered: boundaries no longer wait for it. If it
        comes back, its partitions go on where they were. Safe beside runs."""
        name = str(broker)
        document = {
            "v": 1,
            "broker": int(name) if name.isdecimal() else name,
            "h": self._scope.scope_hash,
        }
        self._book.fix(retired_key(name, self._scope), document)

    def take_back(self, instant: datetime) -> None:
        """Forget the boundary at `instant`, as if it had never been fixed. Only while no run plans,
        and only if no published window begins, ends or lies there: callers see to both."""
        self._look()
        self._book.fix(
            self._turn_key(self._turn + 1),
            {"v": 1, "turn": self._turn + 1, "taken_back": rfc3339(instant)},
        )
        self._book.take_back(self._key(instant))
        self._read.pop(instant, None)
        self._forget_listing()

    # -- reading ------------------------------------------------------------------------------

    def _look(self) -> None:
        """List the book unless nothing happened since, and finish the last turn for a run that died
        in it."""
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

    def _forget_listing(self) -> None:
        self._keys, self._stale = None, True

    def _listing(self) -> list[str]:
        """The keys of the book: all, or those that matter."""
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
        """Whether `instant` is before all that was listed, so that it may well be fixed."""
        return (
            self._bounded is not None
            and instant < self._bounded
            and self._from_book(instant) is not None
        )

    def _turn_numbers(self, keys: Iterable[str]) -> list[int]:
        found = (self._parsed(key) for key in keys)
        return [int(name) for kind, name in filter(None, found) if kind == "turn"]

    def _parsed(self, key: str) -> tuple[str, str] | None:
        """Kind and name of a key that is no boundary's; None for a boundary's."""
        own = f"-{self._scope.scope_hash}"
        found = _KEY.match(key.removesuffix(own)) if key.endswith(own) else None
        return (found[1], found[2]) if found else None

    def _key(self, instant: datetime) -> str:
        return f"{basic_instant(instant)}-{self._scope.scope_hash}"

    def _turn_key(self, number: int) -> str:
        return f"turn-{number}-{self._scope.scope_hash}"

    def _document(self, instant: datetime) -> Document | None:
        """The boundary as it is fixed, else as published windows have it."""
        found = self._from_book(instant)
        if found is not None or self._published is None:
            return found
        edges = self._published.at(instant)
        if not edges:
            return None
        if len(edges) > 1 and (given := edges[0].contradicts(edges[1].offsets)):
            raise _windows_apart(instant, edges, given)
        return self._of_window(instant, edges)

    def _from_book(self, instant: datetime) -> Document | None:
        if instant not in self._read:
            found = self._book.read(self._key(instant))
            if found is None:
                return None
            _check(found, self._key(instant), self._scope)
            self._read[instant] = found
        return self._read[instant]

    def _is_fixed(self, instant: datetime) -> bool:
        return self._from_book(instant) is not None

    def _of_window(self, instant: datetime, edges: Sequence[Edge]) -> Document:
        """The boundary that windows were planned with. One that begins there says best which
        partitions it had: a window of a topic without records names them all."""
        edge = edges[-1]
        anchors = {**edges[0].anchors, **edge.anchors}
        notes: Document = {RESTORED_FROM: [found.window_id for found in edges]}
        if anchors:
            notes[ANCHORS] = anchors_document(anchors)
        if edge.open:
            notes[_ERODED] = {key: list(pair) for key, pair in edge.open.items()}
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
        """`document`, made of windows, if it lies between its neighbours. Raises `BoundaryConflict`
        for one that is fixed elsewhere, as it contradicts what is stored."""
        sides, offsets = self._sides(instant), document["offsets"]
        above = sides.above
        # A partition at 0 that joins later has no place here yet.
        kept = {
            key: offset
            for key, offset in offsets.items()
            if offset or above is None or key in above
        }
        below, after = self._neighbours(instant)
        wrong: dict[datetime, dict[str, int]] = {}
        for key, offset in (sides.below or {}).items():
            if below is not None and offset > kept.get(key, 0):
                wrong.setdefault(below, {})[key] = kept.get(key, 0)
        for key, offset in kept.items():
            if above is not None and after is not None and above.get(key, 0) < offset:
                wrong.setdefault(after, {})[key] = offset
        for neighbour, given in wrong.items():
            fixed = self._effective(neighbour)
            windows = " and ".join(document["evidence"][RESTORED_FROM])
            raise _contradicted(self._scope, neighbour, fixed, windows, given)
        return document | {"offsets": kept}

    def _refuse_other_offsets(self, instant: datetime) -> None:
        """Raise `BoundaryConflict` if published windows begin or end at other offsets than those
        that are fixed for the instant, or have offsets on the other side of it."""
        if self._published is None or not self._is_fixed(instant):
            return
        if not (self._document(instant) or {}).get("whole"):
            return
        fixed = self._effective(instant)
        for edge in self._published.at(instant):
            if given := edge.contradicts(fixed):
                raise _contradicted(self._scope, instant, fixed, edge.window_id, given)
        before, after = self._published.around(instant, instant)
        if before is not None:
            given = {key: end for key, end in before.offsets.items() if fixed.get(key, 0) < end}
            if given:
                raise _contradicted(self._scope, instant, fixed, before.window_id, given)
        if after is not None:
            starts = {**after.offsets, **after.joined}
            given = {key: at for key, at in starts.items() if at < fixed.get(key, 0)}
            if given:
                raise _contradicted(self._scope, instant, fixed, after.window_id, given)

    def _effective(self, instant: datetime) -> dict[str, int]:
        """The offsets at a fixed instant. A document that is not *whole* was made by a release that
        did not compare it with all others: earlier ones complete and raise it."""
        offsets: dict[str, int] = {}
        place = bisect_left(self._instants, instant)
        earlier = reversed(self._instants[max(0, place - _OLD_LOOKS) : place])
        for known in [instant, *earlier]:
            document = self._document(known)
            if document is None:
                raise KeyError(known)
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
        return _Sides(below, self.agreed(after), self.evidence(after).get(_ERODED, {}))

    def _neighbours(self, instant: datetime) -> tuple[datetime | None, datetime | None]:
        """The instants before and after that have a boundary, fixed or known to a window. One that
        lies inside a published window bounds nothing any more: its ends do."""
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

    def _worn(self, answer: Resolved, sides: _Sides) -> dict[str, tuple[int, int]]:
        """Partitions that retention has left open at an instant, and between which offsets it lies.
        What is fixed beside it may still tell; one that joins is read from its beginning anyway."""
        worn = {}
        for key, least in answer.eroded.items():
            if sides.below is not None and key not in sides.below:
                continue
            low, high = max(least, sides.start(key)), answer.offsets[key]
            if sides.above is not None and key not in sides.open:
                high = min(high, sides.above.get(key, 0))
            if low < min(high, answer.held.get(key, high)):
                worn[key] = (low, high)
        return self._scope.space.by_key(worn)

    def _fitted(
        self, instant: datetime, name: str, answer: Resolved, sides: _Sides, *, exact: bool
    ) -> Document:
        """The document that fixes `answer`: between its sides, and with all that is below it."""
        missing = self._missing(answer, sides)
        if missing and not exact:
            raise WindowNotReady(_not_told(instant, missing, self._scope))
        offsets = dict(sides.below or {})
        moved: dict[str, int] = {}
        for key, offset in answer.offsets.items():
            if sides.above is not None and key not in sides.above:
                # It joins later, and is read from its beginning there.
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
        """What an answer leaves out though it has to be told, each with the reason: it would join
        again later and be read twice. What is retired keeps its place instead."""
        missing, log_of = dict(answer.unknown), self._scope.space.log_of
        for key in (sides.below or {}).keys() - answer.offsets:
            if key not in missing and log_of(key) not in missing:
                missing[key] = "an earlier boundary has it, and nothing tells where it was"
        if sides.above is not None:
            known = {*sides.above, *(log_of(key) for key in sides.above)}
            missing = {key: reason for key, reason in missing.items() if key in known}
        return {key: reason for key, reason in missing.items() if not self.is_retired(key)}


def _not_told(instant: datetime, missing: Mapping[str, str], scope: WindowScope) -> str:
    lines = "".join(f"\n  - {key}: {missing[key]}" for key in scope.space.ordered(missing))
    return (
        f"the boundary at {rfc3339(instant)} cannot be told yet:{lines}\nis a broker away? The "
        f"window waits for it; one that will never come back is given up with "
        f"{boundary_command('retire', scope, brokers_of(missing, scope.space))}"
    )


def _told(answer: Resolved, sides: _Sides) -> Resolved:
    """The answer with what it tells late of partitions that an earlier boundary has."""
    late = {key: end for key, end in answer.later.items() if key in (sides.below or {})}
    return replace(answer, offsets={**late, **answer.offsets}) if late else answer


def _settled(answer: Resolved, worn: Mapping[str, tuple[int, int]], *, begins: bool) -> Resolved:
    """The answer that is taken where retention left it open, with the note that it did."""
    if not worn:
        return answer
    least = {key: low for key, (low, _) in worn.items()} if begins else {}
    evidence = {**answer.evidence, _ERODED: {key: list(pair) for key, pair in worn.items()}}
    return replace(answer, offsets={**answer.offsets, **least}, evidence=evidence)


def _too_late(
    instant: datetime, worn: Mapping[str, tuple[int, int]], scope: WindowScope
) -> DataLoss:
    lines = "".join(
        f"\n  - partition {key}: what is left begins at {high}, and none of it is earlier; the "
        f"boundary was somewhere in [{low}, {high}]"
        for key, (low, high) in worn.items()
    )
    low, high = next(iter(worn.values()))
    return DataLoss(
        f"the boundary at {rfc3339(instant)} of topic {scope.topic!r} cannot be told any more, as "
        f"retention has removed what was before it:{lines}\nbegin at a later instant, or set "
        f"gap_policy='skip' to go on without what is gone; it is then recorded as a gap",
        start=low,
        available=high,
    )


class _Clash(NamedTuple):
    """Offsets that would fit, those that were given instead, and partitions that are missing."""

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
    given: Mapping[str, int],
) -> BoundaryConflict:
    text = rfc3339(instant)
    problems = [
        f"partition {key}: fixed at {fixed.get(key, 0)}, window {window} has {offset}"
        for key, offset in scope.space.by_key(given).items()
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
    instant: datetime, edges: Sequence[Edge], given: Mapping[str, int]
) -> BoundaryConflict:
    first, second = edges
    problems = [
        f"partition {key}: window {first.window_id} has {first.offsets.get(key, 0)}, window "
        f"{second.window_id} has {second.offsets.get(key, 0)}"
        for key in given
    ]
    hint = (
        "both are published: what lies between is in both, or in none; if it is in none, read it "
        "by offsets (resolver='explicit')"
    )
    return BoundaryConflict(
        f"two windows meet at {rfc3339(instant)} at different offsets", problems, [hint]
    )


def _listed(book: BoundaryBook, low: str) -> Iterable[str]:
    """The keys from `low` on, in no particular order."""
    if low and isinstance(book, OrderedBook):
        return book.listing_from(low)
    return (key for key in book.listing() if key >= low)


def boundary_command(name: str, scope: WindowScope, options: str) -> str:
    """A command as an operator types it, but for the sink, which has many spellings."""
    more = "".join(f" --filter {quote(item)}" for item in scope.filters)
    more += f" --epoch {scope.epoch}" if scope.epoch else ""
    return f"'airflow tubemq offsets {name} {quote(scope.asset)} --sink SINK{more} {options}'"


def brokers_of(names: Iterable[str], space: OffsetSpace) -> str:
    """Options of a command that name the brokers of partitions or logs."""
    peers = dict.fromkeys(space.peer_of(name) for name in space.ordered(names))
    return " ".join(f"--broker {peer}" for peer in peers)


def _instant(parse: Callable[[str], datetime], text: object, key: str) -> datetime:
    """The instant of a boundary, as a name or a document has it. Raises `DocumentError`."""
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
    """What is wrong with the members of evidence that later boundaries and windows go by."""
    if not isinstance(evidence, dict):
        return [f"evidence is {type(evidence).__name__}, not an object"]
    problems = [
        f"{name} is {type(evidence[name]).__name__}, not an object"
        for name in (BEGIN, _ERODED)
        if not isinstance(evidence.get(name, {}), dict)
    ]
    if not problems:
        problems += [f"{BEGIN}: {bad}" for bad in _offset_problems(evidence.get(BEGIN, {}), space)]
    try:
        read_anchors(evidence.get(ANCHORS, {}), space)
    except (TypeError, ValueError) as exc:
        problems.append(f"{ANCHORS}: {exc}")
    return problems
