"""Claims: cursor windows of one group that concurrent runs have reserved for themselves.

A `ClaimBook` is the cursor with the windows beyond it: *pending* ones, planned by a run and not yet
known to be published, and *done* ones, published after a pending one. A claim is the plan itself;
another run may adopt it with its exact ranges, but it is never released, shortened or planned
again. Pure functions of documents: this module must not do I/O, and the caller stores a book by
compare-and-set.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from shlex import quote
from typing import Any

from tubemq_client.model import Anchor
from tubemq_provider.windows.canonical import rfc3339
from tubemq_provider.windows.cursor import Cursor, Position, continue_command, epoch_command
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
    """Claimed plan, and the `writer` that will publish it ("": none, the next run adopts it)."""

    plan: WindowPlan
    by: str
    at: str


@dataclass(frozen=True, slots=True)
class ClaimBook:
    """Position of a group, with the windows beyond it by id. Immutable.

    `newest` are ids of the windows that may have been published last: an older copy of the sink
    that lacks any window of the book lacks one of these. Numbers do not give that order, since a
    window may be published long after later ones.
    """

    position: Position
    pending: Mapping[str, Claim] = field(default_factory=dict)
    done: Mapping[str, WindowPlan] = field(default_factory=dict)
    rev: int = 0
    newest: tuple[str, ...] = ()

    @property
    def frontier(self) -> Position:
        """End of all windows, published or claimed: the next window begins there."""
        plans = [*(claim.plan for claim in self.pending.values()), *self.done.values()]
        last = max(plans, key=lambda plan: plan.seq or 0, default=None)
        return Position(last.seq or 0, last.ends, last.anchors) if last else self.position

    def knows(self, window_id: str) -> bool:
        """Return True if a window beyond the position is claimed or published."""
        return window_id in self.pending or window_id in self.done

    def published(self, plan: WindowPlan) -> bool:
        """Return True if a window counts as published."""
        return (plan.seq or 0) <= self.position.seq or plan.window_id in self.done

    def own(self, by: str) -> WindowPlan | None:
        """Return the first pending window that `by` has claimed, or None."""
        return next((claim.plan for claim in self.in_order() if claim.by == by), None)

    def in_order(self) -> list[Claim]:
        """Return pending claims in order of their numbers."""
        return sorted(self.pending.values(), key=lambda claim: claim.plan.seq or 0)

    def claim(self, plan: WindowPlan, by: str, now: datetime) -> ClaimBook | None:
        """Return the book with a claim on `plan`; None if it does not begin at the frontier."""
        frontier = self.frontier
        if plan.seq != frontier.seq + 1 or not plan.continues(frontier.next):
            return None
        return replace(
            self, pending={**self.pending, plan.window_id: Claim(plan, by, rfc3339(now))}
        )

    def adopt(self, window_id: str, holder: str, by: str, now: datetime) -> ClaimBook | None:
        """Return the book with the claim of `holder` moved to `by`; None if not `holder`'s."""
        claim = self.pending.get(window_id)
        if claim is None or claim.by != holder:
            return None
        return replace(
            self, pending={**self.pending, window_id: Claim(claim.plan, by, rfc3339(now))}
        )

    def keeping(self, claims: Iterable[Claim]) -> ClaimBook:
        """Return the book with those `claims` that still fit: on the same plan, or after all."""
        book = self
        for claim in sorted(claims, key=lambda claim: claim.plan.seq or 0):
            pending = book.pending.get(claim.plan.window_id)
            behind = book.frontier
            follows = claim.plan.seq == behind.seq + 1 and claim.plan.continues(behind.next)
            if follows or (pending is not None and pending.plan.hash == claim.plan.hash):
                book = replace(book, pending={**book.pending, claim.plan.window_id: claim})
        return book

    def complete(self, plan: WindowPlan, before: Collection[str] = ()) -> ClaimBook | None:
        """Return the book with `plan` published and the position moved over all adjacent published
        windows; None if it was published already.

        `before` are those of `newest` that are known to be published before it.

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
                f"while tasks were running: stop them, then run 'airflow tubemq offsets rebuild "
                f"{quote(plan.scope_in('').asset)} --sink SINK'"
            )
        pending = {key: value for key, value in self.pending.items() if key != plan.window_id}
        done = {**self.done, plan.window_id: plan}
        newest = (*(key for key in self.newest if key not in before), plan.window_id)
        return replace(self, pending=pending, done=done, newest=newest).folded()

    def anchored(self, position: Position) -> ClaimBook | None:
        """Return the book with the anchors of `position`; None if its position has moved."""
        return replace(self, position=position) if self.position == position else None

    def remaining(self, plan: WindowPlan) -> WindowPlan:
        """Return a claim with the ranges that later windows read again after a reset as gaps. Its
        ends stay, so that the next window still continues it."""
        gaps = dict(plan.gaps)
        for key, low in self._read_again(plan).items():
            start, end = plan.ranges.get(key, (0, 0))
            cut = max(start, low)
            if cut < end:
                earlier = tuple((a, min(b, cut)) for a, b in gaps.get(key, ()) if a < cut)
                gaps[key] = (*earlier, (cut, end))
        return replace(plan, gaps=gaps)

    def reset_after(self, plan: WindowPlan) -> set[str]:
        """Return the partitions that windows after `plan` have reset."""
        return set(self._read_again(plan))

    def _read_again(self, plan: WindowPlan) -> dict[str, int]:
        """Return the lowest start of partitions that windows after `plan` have reset."""
        lowest: dict[str, int] = {}
        for other in (*(claim.plan for claim in self.pending.values()), *self.done.values()):
            if (other.seq or 0) > (plan.seq or 0):
                for key in other.resets:
                    start = other.ranges[key][0]
                    lowest[key] = min(start, lowest.get(key, start))
        return lowest

    def folded(self) -> ClaimBook:
        """Return the book with the position moved over all adjacent published windows."""
        position, done = self.position, dict(self.done)
        while True:
            # A window with a reset may end where the one before it ended: equal offsets do not
            # prove that an earlier claim is done.
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
        """Return a cursor document, valid for readers of plain cursors, with the claims in it."""
        document = Cursor(self.position, self.rev + 1, by).to_document(scope, now)
        return document | self.claims_document()

    def claims_document(self) -> dict[str, Any]:
        """Return the members of a cursor document that have the claims."""
        pending = {
            key: {"plan": claim.plan.to_document(), "by": claim.by, "at": claim.at}
            for key, claim in self.pending.items()
        }
        done = {key: plan.to_document() for key, plan in self.done.items()}
        document: dict[str, Any] = {"pending": pending, "done": done}
        return document | ({"newest": list(self.newest)} if self.newest else {})

    @classmethod
    def from_document(cls, document: Mapping[str, Any], scope: WindowScope) -> ClaimBook:
        """Parse a stored document. Raises like `Cursor.from_document`."""
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
        listed = document.get("newest", [])
        newest = tuple(map(str, listed)) if isinstance(listed, list) else ()
        return cls(cursor.position, claims, published, cursor.rev, newest)


def without(claim: WindowPlan, given_up: Iterable[str]) -> WindowPlan:
    """Return a claim with the whole ranges of some partitions as gaps. Its ends stay."""
    return replace(claim, gaps={**claim.gaps, **{key: (claim.ranges[key],) for key in given_up}})


def windows_beyond(document: Mapping[str, Any]) -> list[str]:
    """Return ids of the windows that a document with claims has beyond its position. Raises
    `DocumentError` if the document was edited and is invalid."""
    parts = [document.get(name, {}) for name in ("pending", "done")]
    if not all(isinstance(part, dict) for part in parts):
        raise DocumentError("claims", ["pending and done must be objects"])
    return sorted({window_id for part in parts for window_id in part})


def _anchors(position: Position, plan: WindowPlan) -> dict[str, Anchor]:
    """Return the anchors after `plan`. Except after a reset, those of `position` override the
    plan's: it may have been planned long before the windows up to `position` were written."""
    newer = {key: anchor for key, anchor in position.last.items() if key not in plan.resets}
    return {**plan.before, **newer, **plan.upto}


def rebuilt(
    position: Position, published: Iterable[WindowPlan], claims: Iterable[Claim] = ()
) -> ClaimBook:
    """Return a lost book, rebuilt from a known position and the sink's windows beyond it.

    If a window is missing before one in the sink, its claim is taken from `claims`; without one,
    exactly the hole becomes a claim without a writer. Raises `SinkHistoryLost` if windows do not
    follow from each other, `MarkerConflict` if they overlap.
    """
    claims_by_seq = {claim.plan.seq: claim for claim in claims}
    beyond = sorted(
        (plan for plan in published if (plan.seq or 0) > position.seq),
        key=lambda plan: plan.seq or 0,
    )
    pending: dict[str, Claim] = {}
    reached = position
    done: dict[str, WindowPlan] = {}
    for plan in beyond:
        while (claim := claims_by_seq.get(reached.seq + 1)) is not None:
            if claim.plan.seq == plan.seq or not claim.plan.continues(reached.next):
                break
            if claim.plan.seq == (plan.seq or 0) - 1 and not plan.continues(claim.plan.ends):
                break  # the window was planned behind another one of that number
            pending[claim.plan.window_id] = claim
            reached = Position(reached.seq + 1, claim.plan.ends, _anchors(reached, claim.plan))
        if not plan.continues(reached.next):
            hole = _hole(reached, plan, beyond[-1])
            pending[hole.window_id] = Claim(hole, "", "")
        done[plan.window_id] = plan
        reached = Position(plan.seq or 0, plan.ends, _anchors(reached, plan))
    return ClaimBook(position, pending, done).folded()


def _hole(reached: Position, following: WindowPlan, newest: WindowPlan) -> WindowPlan:
    """Return the plan of the window between `reached` and the beginning of `following`.

    A partition that joined in between begins at the start of its log: where it was to begin is
    lost with the claim, and no other window has read it before. Partitions never leave a chain of
    windows: those of a retired broker keep an empty range.
    """
    ends = following.bases
    if reached.next.keys() - ends.keys() or reached.seq + 1 >= (following.seq or 0):
        behind = {**reached.next, **newest.ends}
        raise SinkHistoryLost(
            f"windows up to {reached.seq} end at {dict(reached.next)}, window "
            f"{following.window_id} begins at {ends}, and what lies between cannot be told from "
            f"the sink: a position was set by hand, or the sink has windows of two ledgers. "
            f"Offsets between them that were never written can be written as explicit windows with "
            f"on_other_scope='start_anew'; then continue after the sink's newest window: "
            f"{continue_command(newest, behind)}"
        )
    scope = following.scope_in("")
    anchors = _same_life(following)
    # An anchor of another log: a lost window between had a reset, and may have ended at the same
    # offsets as the window before it.
    overlapping = [
        key
        for key, end in ends.items()
        if end < reached.next.get(key, 0) or _other_record(reached.last.get(key), anchors.get(key))
    ]
    if overlapping:
        command = epoch_command(scope, cursor_window_id(reached.seq, following.scope_hash))
        raise MarkerConflict(
            f"window {following.window_id} begins before window {reached.seq} ends, or in another "
            f"log, in partitions {', '.join(overlapping)}: the sink holds records twice, or a "
            f"window between them, which restarted a recreated log, was never written. Continue "
            f"after the sink's newest window: {command}"
        )
    joined = tuple(key for key in ends if key not in reached.next)
    ranges = {key: (reached.next.get(key, 0), end) for key, end in ends.items()}
    return replace(
        following,
        window_id=cursor_window_id(reached.seq + 1, following.scope_hash),
        seq=reached.seq + 1,
        ranges=ranges,
        **{**_NO_NOTES, "joined": joined, "before": {**anchors, **reached.last}},
    )


def _other_record(one: Anchor | None, other: Anchor | None) -> bool:
    return one is not None and other is not None and one.offset == other.offset and one != other


def _same_life(following: WindowPlan) -> dict[str, Anchor]:
    """Return anchors of the logs that `following` continues. The first record of its range is not
    one of them: it does not identify the log for the window before."""
    anchors = following.anchors_at_start
    return {key: anchor for key, anchor in anchors.items() if key not in following.resets}
