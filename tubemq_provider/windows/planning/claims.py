"""Claims: cursor windows of one group that several runs have taken for themselves, side by side.

A `ClaimBook` is the cursor together with the windows beyond it: *pending* ones, planned by a run
and not yet known to be published, and *done* ones, published behind a pending one. A claim is the
plan itself; it is adopted with its exact ranges and never released, shortened or planned anew. Pure
functions of documents: this module must not do I/O, and a caller stores a book by
compare-and-set.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from tubemq_client.model import Anchor
from tubemq_provider.windows.canonical import rfc3339
from tubemq_provider.windows.cursor import Cursor, Position, epoch_command
from tubemq_provider.windows.errors import DocumentError, MarkerConflict, SinkHistoryLost
from tubemq_provider.windows.plan import WindowPlan, WindowScope, cursor_window_id

__all__ = ["Claim", "ClaimBook", "rebuilt", "windows_beyond", "without"]

_NO_NOTES: dict[str, Any] = {
    "gaps": {},
    "resets": {},
    "joined": (),
    "absent": (),
    "has_more": False,
    "before": {},
    "upto": {},
}


@dataclass(frozen=True, slots=True)
class Claim:
    """A plan, and the `writer` that is to publish it ("" is none: the next run takes it)."""

    plan: WindowPlan
    by: str
    at: str


@dataclass(frozen=True, slots=True)
class ClaimBook:
    """The position of a group, and its windows beyond it by id. Immutable.

    `newest` are ids of the windows that may have been published last: a copy of the sink that lacks
    any window of the book lacks one of these. Numbers do not tell, as a window may be published
    long after later ones.
    """

    position: Position
    pending: Mapping[str, Claim] = field(default_factory=dict)
    done: Mapping[str, WindowPlan] = field(default_factory=dict)
    rev: int = 0
    newest: tuple[str, ...] = ()

    @property
    def frontier(self) -> Position:
        """Where the next window begins: behind all windows, published or claimed."""
        plans = [*(claim.plan for claim in self.pending.values()), *self.done.values()]
        last = max(plans, key=lambda plan: plan.seq or 0, default=None)
        return Position(last.seq or 0, last.ends, last.anchors) if last else self.position

    def knows(self, window_id: str) -> bool:
        """Whether a window beyond the position is claimed or published."""
        return window_id in self.pending or window_id in self.done

    def published(self, plan: WindowPlan) -> bool:
        """Whether a window counts as published."""
        return (plan.seq or 0) <= self.position.seq or plan.window_id in self.done

    def own(self, by: str) -> WindowPlan | None:
        """The first window that `by` has claimed and not finished."""
        return next((claim.plan for claim in self.in_order() if claim.by == by), None)

    def in_order(self) -> list[Claim]:
        """Pending claims, the one next to the position first."""
        return sorted(self.pending.values(), key=lambda claim: claim.plan.seq or 0)

    def claim(self, plan: WindowPlan, by: str, now: datetime) -> ClaimBook | None:
        """The book with a claim on `plan`; None if it does not begin at the frontier (any more)."""
        frontier = self.frontier
        if plan.seq != frontier.seq + 1 or not plan.continues(frontier.next):
            return None
        return replace(
            self, pending={**self.pending, plan.window_id: Claim(plan, by, rfc3339(now))}
        )

    def adopt(self, window_id: str, holder: str, by: str, now: datetime) -> ClaimBook | None:
        """The book with the claim of `holder` handed to `by`; None if it is not `holder`'s."""
        claim = self.pending.get(window_id)
        if claim is None or claim.by != holder:
            return None
        return replace(
            self, pending={**self.pending, window_id: Claim(claim.plan, by, rfc3339(now))}
        )

    def keeping(self, claims: Iterable[Claim]) -> ClaimBook:
        """The book with those of `claims` that still fit: on the same window, or behind all."""
        book = self
        for claim in sorted(claims, key=lambda claim: claim.plan.seq or 0):
            there = book.pending.get(claim.plan.window_id)
            behind = book.frontier
            follows = claim.plan.seq == behind.seq + 1 and claim.plan.continues(behind.next)
            if follows or (there is not None and there.plan.hash == claim.plan.hash):
                book = replace(book, pending={**book.pending, claim.plan.window_id: claim})
        return book

    def complete(self, plan: WindowPlan, before: Collection[str] = ()) -> ClaimBook | None:
        """The book with `plan` published and the position moved over all that follow on; None if
        that was known. `before` are those of `newest` that are known to be published before it.

        Raises `MarkerConflict` if the window was published with another end than the one claimed,
        and a later window begins at the claimed one.
        """
        if self.published(plan):
            return None
        claim = self.pending.get(plan.window_id)
        later = self.frontier.seq > (plan.seq or 0)
        if claim is not None and later and claim.plan.ends != plan.ends:
            raise MarkerConflict(
                f"window {plan.window_id} was published up to {plan.ends}, but claimed up to "
                f"{claim.plan.ends}, where a later window begins; the ledger was lost or replaced "
                f"while tasks were running: stop them, then 'airflow tubemq offsets rebuild'"
            )
        pending = {key: value for key, value in self.pending.items() if key != plan.window_id}
        done = {**self.done, plan.window_id: plan}
        newest = (*(key for key in self.newest if key not in before), plan.window_id)
        return replace(self, pending=pending, done=done, newest=newest).folded()

    def anchored(self, position: Position) -> ClaimBook | None:
        """The book with the records by which `position` knows its logs; None if it has moved."""
        return replace(self, position=position) if self.position == position else None

    def remaining(self, plan: WindowPlan) -> WindowPlan:
        """A claim without what later windows read again, as a reset let them; that is a gap of it.
        Its ends stay, so what follows still fits."""
        gaps = dict(plan.gaps)
        for key, low in self._read_again(plan).items():
            start, end = plan.ranges.get(key, (0, 0))
            cut = max(start, low)
            if cut < end:
                kept = tuple((a, min(b, cut)) for a, b in gaps.get(key, ()) if a < cut)
                gaps[key] = (*kept, (cut, end))
        return replace(plan, gaps=gaps)

    def begun_anew_behind(self, plan: WindowPlan) -> set[str]:
        """The partitions in which windows behind `plan` begin anew."""
        return set(self._read_again(plan))

    def _read_again(self, plan: WindowPlan) -> dict[str, int]:
        """From where windows behind `plan` read partitions once more."""
        found: dict[str, int] = {}
        for other in (*(claim.plan for claim in self.pending.values()), *self.done.values()):
            if (other.seq or 0) > (plan.seq or 0):
                for key in other.resets:
                    start = other.ranges[key][0]
                    found[key] = min(start, found.get(key, start))
        return found

    def folded(self) -> ClaimBook:
        """The book with the position moved over all published windows that follow on from it."""
        position, done = self.position, dict(self.done)
        while True:
            # A window that a reset let begin anew may end where it took over: ends alone do not
            # tell that a claim before is done.
            first = min((claim.plan.seq or 0 for claim in self.pending.values()), default=None)
            following = [
                plan
                for plan in done.values()
                if plan.continues(position.next) and (first is None or (plan.seq or 0) < first)
            ]
            if not following:
                return replace(self, position=position, done=done)
            plan = min(following, key=lambda plan: plan.seq or 0)
            del done[plan.window_id]
            position = Position(plan.seq or 0, plan.ends, _anchors(position, plan))

    # -- documents ----------------------------------------------------------------------------

    def to_document(self, scope: WindowScope, now: datetime, by: str) -> dict[str, Any]:
        """A cursor document (readers of plain cursors read it too) with the claims in it."""
        document = Cursor(self.position, self.rev + 1, by).to_document(scope, now)
        return document | self.claims_document()

    def claims_document(self) -> dict[str, Any]:
        """The members of a cursor document that hold claims."""
        pending = {
            key: {"plan": claim.plan.to_document(), "by": claim.by, "at": claim.at}
            for key, claim in self.pending.items()
        }
        done = {key: plan.to_document() for key, plan in self.done.items()}
        document: dict[str, Any] = {"pending": pending, "done": done}
        return document | ({"newest": list(self.newest)} if self.newest else {})

    @classmethod
    def from_document(cls, document: Mapping[str, Any], scope: WindowScope) -> ClaimBook:
        """The book in a stored document. Raises like `Cursor.from_document`."""
        cursor = Cursor.from_document(document, scope)
        windows_beyond(document)
        pending, done = document.get("pending", {}), document.get("done", {})
        claims = {}
        for key, value in pending.items():
            if not isinstance(value, dict) or not isinstance(value.get("by"), str):
                raise DocumentError(f"claim {key}", ["it is not {plan, by, at}"])
            plan = WindowPlan.from_document(value.get("plan"), where=f"claim {key}")
            claims[key] = Claim(plan, value["by"], str(value.get("at", "")))
        published = {
            key: WindowPlan.from_document(value, where=f"done window {key}")
            for key, value in done.items()
        }
        newest = document.get("newest", [])
        told = tuple(map(str, newest)) if isinstance(newest, list) else ()
        return cls(cursor.position, claims, published, cursor.rev, told)


def without(claim: WindowPlan, given_up: Iterable[str]) -> WindowPlan:
    """A claim of which some partitions are not read at all: gaps of it. Its ends stay."""
    return replace(claim, gaps={**claim.gaps, **{key: (claim.ranges[key],) for key in given_up}})


def windows_beyond(document: Mapping[str, Any]) -> list[str]:
    """Ids of the windows that a document with claims has beyond its position. Raises
    `DocumentError` where it was edited so that it does not tell."""
    parts = [document.get(name, {}) for name in ("pending", "done")]
    if not all(isinstance(part, dict) for part in parts):
        raise DocumentError("claims", ["pending and done must be objects"])
    return sorted({window_id for part in parts for window_id in part})


def _anchors(position: Position, plan: WindowPlan) -> dict[str, Anchor]:
    """By which records the logs are known after `plan`. It may have been planned long before the
    windows up to `position` were written, and so know less of the logs, but for those it reset."""
    kept = {key: anchor for key, anchor in position.last.items() if key not in plan.resets}
    return {**plan.before, **kept, **plan.upto}


def rebuilt(
    position: Position, published: Iterable[WindowPlan], claims: Iterable[Claim] = ()
) -> ClaimBook:
    """A lost book, from a position that is known and the windows that the sink has beyond it.

    Where a window is missing before one that is there, one of `claims` stands for it, if it is
    known; else exactly the hole becomes a claim of nobody. Raises `SinkHistoryLost` where a hole
    has no known beginning, `MarkerConflict` where windows overlap.
    """
    known = {claim.plan.seq: claim for claim in claims}
    beyond = sorted(
        (plan for plan in published if (plan.seq or 0) > position.seq),
        key=lambda plan: plan.seq or 0,
    )
    pending: dict[str, Claim] = {}
    reached = position
    done: dict[str, WindowPlan] = {}
    for plan in beyond:
        while (claim := known.get(reached.seq + 1)) is not None:
            if claim.plan.seq == plan.seq or not claim.plan.continues(reached.next):
                break
            if claim.plan.seq == (plan.seq or 0) - 1 and not plan.continues(claim.plan.ends):
                break  # the window was planned behind another one of that number
            pending[claim.plan.window_id] = claim
            reached = Position(reached.seq + 1, claim.plan.ends, _anchors(reached, claim.plan))
        if not plan.continues(reached.next):
            hole = _hole(reached, plan)
            pending[hole.window_id] = Claim(hole, "", "")
        done[plan.window_id] = plan
        reached = Position(plan.seq or 0, plan.ends, _anchors(reached, plan))
    return ClaimBook(position, pending, done).folded()


def _hole(reached: Position, following: WindowPlan) -> WindowPlan:
    """The window that must lie between `reached` and the beginning of `following`."""
    ends = following.bases
    if set(ends) != set(reached.next) or reached.seq + 1 >= (following.seq or 0):
        raise SinkHistoryLost(
            f"windows up to {reached.seq} end at {dict(reached.next)}, window "
            f"{following.window_id} begins at {ends}, and what lies between cannot be told from "
            f"the sink; set the position by hand"
        )
    scope = following.scope_in("")
    known = _same_life(following)
    # A record of another log where one was known: a lost window between began anew in it, and may
    # have ended where the one before it did.
    overlapping = [
        key
        for key, end in ends.items()
        if end < reached.next[key] or _other_record(reached.last.get(key), known.get(key))
    ]
    if overlapping:
        command = epoch_command(scope, cursor_window_id(reached.seq, following.scope_hash))
        raise MarkerConflict(
            f"window {following.window_id} begins before window {reached.seq} ends, or in another "
            f"log, in partitions {', '.join(overlapping)}: the sink holds records twice, or a "
            f"window between them, with which a log began anew, was never written. Go on "
            f"behind the sink's newest window: {command}"
        )
    ranges = {key: (start, ends[key]) for key, start in reached.next.items()}
    return replace(
        following,
        window_id=cursor_window_id(reached.seq + 1, following.scope_hash),
        seq=reached.seq + 1,
        ranges=ranges,
        **{**_NO_NOTES, "before": {**known, **reached.last}},
    )


def _other_record(one: Anchor | None, other: Anchor | None) -> bool:
    return one is not None and other is not None and one.offset == other.offset and one != other


def _same_life(following: WindowPlan) -> dict[str, Anchor]:
    """Records by which the logs are known that `following` goes on in; the first one of its own
    range is no such record of a window before it."""
    anchors = following.anchors_at_start
    return {key: anchor for key, anchor in anchors.items() if key not in following.resets}
