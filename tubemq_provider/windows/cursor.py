"""The position of a group, and the cursor document that caches it.

A position says: all windows up to `seq` are published, and the next window starts at `next`. It
travels in the cursor and in every commit event, and can be rebuilt from either or from the sink's
markers. This module must not do I/O; `run` decides when a cursor is stored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import takewhile
from shlex import quote
from typing import Any, Final

from tubemq_provider.windows.anchors import Anchors, anchors_document, read_anchors
from tubemq_provider.windows.canonical import rfc3339
from tubemq_provider.windows.errors import DocumentError, IdentityMismatch
from tubemq_provider.windows.plan import WindowKind, WindowPlan, WindowScope
from tubemq_provider.windows.spaces import OffsetSpace
from tubemq_provider.windows.versions import VERSIONS, brought_up

__all__ = [
    "BY_HAND",
    "CURSOR_VERSION",
    "Cursor",
    "EarlierLife",
    "Position",
    "cursor_in_use",
    "earlier_life",
    "epoch_command",
    "epoch_of",
    "going_on",
    "is_ahead",
    "is_by_hand",
    "newer_position",
    "past_epochs",
    "position_of_event",
    "present_life",
    "updated_at",
]

CURSOR_VERSION: Final = VERSIONS["cursor"]
"""The `v` of cursor documents this code writes."""

_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)

BY_HAND: Final = "by_hand"
"""The member of a position that a person has set; see `Position`."""


@dataclass(frozen=True, slots=True)
class Position:
    """`seq` of the last published cursor window (0: none yet) and where every partition goes on.

    `last` are records before `next`, by which the logs are known again; documents of earlier
    releases have none. They do not make it another position. Nor does `by_hand`: a person has set
    `next`, so that it need not be where window `seq` ends, nor that window be in the sink.
    """

    seq: int
    next: Mapping[str, int]
    last: Anchors = field(default_factory=dict, compare=False)
    by_hand: bool = field(default=False, compare=False)

    def to_document(self, scope_hash: str, space: OffsetSpace) -> dict[str, Any]:
        """What a commit event carries under ``position``."""
        ordered = space.by_key(self.next)
        document: dict[str, Any] = {"h": scope_hash, "seq": self.seq, "next": ordered}
        if self.last:
            document["last"] = anchors_document(space.by_key(self.last))
        if self.by_hand:
            document[BY_HAND] = 1
        return document


@dataclass(frozen=True, slots=True)
class Cursor:
    """The stored position, with its last writer, how often it was written (`rev`) and when
    (`updated`; long ago if it does not say). `past` are the epochs of the group that have ended."""

    position: Position
    rev: int = 0
    by: str = ""
    past: tuple[str, ...] = ()
    updated: datetime = _LONG_AGO

    @property
    def seq(self) -> int:
        """How many windows the position has behind it."""
        return self.position.seq

    def to_document(self, scope: WindowScope, now: datetime) -> dict[str, Any]:
        """The whole cursor: one document, so that one write replaces it."""
        document = {
            "v": CURSOR_VERSION,
            "cluster": scope.cluster,
            "topic": scope.topic,
            "group": scope.group,
            "epoch": scope.epoch,
            **self.position.to_document(scope.scope_hash, scope.space),
            "rev": self.rev,
            "by": self.by,
            "updated": rfc3339(now),
        }
        return document | ({"past": list(self.past)} if self.past else {})

    @classmethod
    def from_document(cls, document: Mapping[str, Any], scope: WindowScope) -> Cursor:
        """The cursor in a stored document.

        Raises `DocumentError` with every problem (a user may have edited it), and
        `IdentityMismatch` if it belongs to another scope.
        """
        subject = f"cursor of group {scope.group!r} on topic {scope.topic!r}"
        position = _position(document, subject, scope, versioned=True)
        rev, by = document.get("rev", 0), document.get("by", "")
        return cls(
            position,
            rev if isinstance(rev, int) else 0,
            str(by),
            past_epochs(document),
            updated_at(document),
        )


@dataclass(frozen=True, slots=True)
class EarlierLife:
    """What an epoch that begins knows of those before it: their names, where an operator wants it
    to begin (words or offsets by partition; None: nothing was said), and the id of the last window
    that was known when its beginning was decided ("": not said)."""

    past: tuple[str, ...]
    begin: str | Mapping[str, int] | None = None
    seen: str = ""


def earlier_life(document: Mapping[str, Any], scope: WindowScope) -> EarlierLife | None:
    """What a cursor or commit event says that was written before the epoch of `scope` had any
    progress; None if it is of this epoch.

    Raises `IdentityMismatch` if the epoch has ended: another one was begun after it.
    """
    epoch, past = epoch_of(document), past_epochs(document)
    if scope.epoch in past:
        raise IdentityMismatch(
            f"epoch {scope.epoch!r} of group {scope.group!r} on topic {scope.topic!r} has ended: "
            f"epoch {epoch!r} was begun after it; pass epoch={epoch!r} to the task, or no epoch at "
            f"all to go on where the group is"
        )
    begin = document.get("begin")
    if epoch == scope.epoch:
        if "next" in document or begin is None:
            return None
        return EarlierLife(past, begin, str(document.get("seen", "")))
    return EarlierLife((*past, epoch))


def epoch_of(document: Mapping[str, Any] | None) -> str:
    """The epoch that a cursor or commit event was written in; "" if it says nothing."""
    return str((document or {}).get("epoch", ""))


def is_ahead(cursor: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether `cursor` has come further than `other`, which another store of the group keeps; an
    epoch that has begun is ahead of those before it, though it counts its windows from one. One
    that was edited so that it has no number counts as ahead: it is there for somebody to see."""
    if epoch_of(cursor) in past_epochs(other):
        return False
    if epoch_of(other) in past_epochs(cursor):
        return True
    mine, its = cursor.get("seq"), other.get("seq")
    if isinstance(mine, int) and isinstance(its, int):
        return mine > its
    return not isinstance(mine, int)


def newer_position(
    cursor: Mapping[str, Any] | None, event: Mapping[str, Any] | None
) -> Mapping[str, Any] | None:
    """Which of a cursor and the position of the newest event is ahead; an epoch that was begun is
    ahead of those before it, though it counts its windows from one."""
    accepted: Mapping[str, Any] | None = event["position"] if event else None
    if cursor is None or accepted is None:
        return cursor or accepted
    if epoch_of(event) in past_epochs(cursor):
        return cursor
    if epoch_of(cursor) in past_epochs(event or {}):
        return accepted
    return accepted if int(accepted["seq"]) > int(cursor.get("seq", 0)) else cursor


def cursor_in_use(
    kept: Mapping[str, Any] | None, claimed: Mapping[str, Any] | None
) -> Mapping[str, Any] | None:
    """Which of two cursors a group goes by that has moved from one store to another: `kept` in
    asset state, or `claimed` in the ledger, which counts unless it is behind."""
    if not kept or not claimed:
        return kept or claimed
    return kept if is_ahead(kept, claimed) else claimed


def present_life(
    cursor: Mapping[str, Any] | None,
    event: Mapping[str, Any] | None,
    recent: Iterable[Mapping[str, Any]] = (),
) -> Mapping[str, Any] | None:
    """What says which epoch of a group is the present one; None if nothing does.

    The newer of the cursor and the newest event with a position, or one of the `recent` events
    behind that, newest first: windows of time have no position, and where a group has no others, or
    its cursor was wiped, their events are all that tells. One counts if it ends what is known else;
    windows of explicit offsets tell nothing.
    """
    newest = newer_position(cursor, event)
    known = cursor if newest is not None and newest is cursor else event
    for told in takewhile(lambda told: not told.get("position"), recent):
        ahead = known is None or epoch_of(known) in past_epochs(told)
        if told.get("kind") == WindowKind.TIME and ahead:
            known = told
    return known


def past_epochs(document: Mapping[str, Any]) -> tuple[str, ...]:
    """The epochs of a group that have ended, as a cursor or commit event has them."""
    past = document.get("past", [])
    return tuple(map(str, past)) if isinstance(past, list) else ()


def position_of_event(event: Mapping[str, Any], scope: WindowScope) -> Position:
    """The position in a commit event. Raises like `Cursor.from_document`."""
    subject = f"position in the newest commit event of group {scope.group!r}"
    event = brought_up("event", event, subject)
    return _position(event["position"], subject, scope, versioned=False)


def _position(document: object, subject: str, scope: WindowScope, *, versioned: bool) -> Position:
    if not isinstance(document, dict):
        raise DocumentError(subject, [f"it is {type(document).__name__}, not an object"])
    if versioned:
        document = brought_up("cursor", document, subject)
    problems = _problems(document, scope.space)
    if problems:
        raise DocumentError(subject, problems)
    if document["h"] != scope.scope_hash:
        raise IdentityMismatch(
            f"{subject} was written for {_what_differs(document, scope)} "
            f"(h {document['h']} instead of {scope.scope_hash}); progress of one group cannot "
            f"serve two: give this pipeline its own group; or, if the group is to go on as it is "
            f"now from where it stands, give it a new epoch: {epoch_command(scope)} "
            f"--begin '{json.dumps(document['next'])}' (without --begin it reads all records again)"
        )
    last = read_anchors(document.get("last", {}), scope.space)
    return Position(document["seq"], dict(document["next"]), last, is_by_hand(document))


def _what_differs(document: Mapping[str, Any], scope: WindowScope) -> str:
    """What of the scope is not as it was. A digest keeps no words, but some can be tried; progress
    is kept under the names of cluster, topic and group, so it is those only in edited state."""
    before = str(document.get("epoch", scope.epoch))
    if before != scope.epoch and replace(scope, epoch=before).scope_hash == document["h"]:
        return f"epoch {before!r}, not {scope.epoch!r}"
    if scope.filters and replace(scope, filters=()).scope_hash == document["h"]:
        return f"reading without filters, not with {list(scope.filters)}"
    if scope.filters:
        return f"another sink than {scope.sink}, or other filters than {list(scope.filters)}"
    return f"another sink than {scope.sink}, or with filters, of which there are none now"


def epoch_command(scope: WindowScope, seen: str = "") -> str:
    """The command that lets a group begin anew; it is refused, or begins behind what was published,
    if the group has gone on since window `seen`."""
    command = f"airflow tubemq offsets epoch {quote(scope.asset)} <name>"
    return f"{command} --seen {seen}" if seen else command


def is_by_hand(document: Mapping[str, Any]) -> bool:
    """Whether a person has set the position that a cursor or event has."""
    return bool(document.get(BY_HAND))


def updated_at(document: Mapping[str, Any]) -> datetime:
    """When a cursor was written; long ago if it does not say so."""
    try:
        return datetime.fromisoformat(str(document.get("updated"))).astimezone(UTC)
    except ValueError:
        return _LONG_AGO


def going_on(plan: WindowPlan, begin: Mapping[str, int] | None = None) -> str:
    """The command that lets a group of which little is known go on behind a published window;
    `begin`: where that is, if logs are known to be others by now."""
    return f"{epoch_command(plan.scope_in(''))} --begin '{json.dumps(dict(begin or plan.ends))}'"


def _problems(document: Mapping[str, Any], space: OffsetSpace) -> list[str]:
    problems = []
    if not isinstance(document.get("h"), str):
        problems.append(f"h {document.get('h')!r} is not a string")
    seq = document.get("seq")
    if isinstance(seq, bool) or not isinstance(seq, int) or seq < 0:
        problems.append(f"seq {seq!r} is not an integer >= 0")
    following = document.get("next")
    if not isinstance(following, dict) or not following:
        return [*problems, f"next {following!r} is not an object with a partition"]
    for key, offset in following.items():
        if not space.is_key(key):
            problems.append(f"next: key {key!r} is not {space.key_form}")
        if bad := space.offset_problem(offset):
            problems.append(f"next of {key}: {bad}")
    try:
        read_anchors(document.get("last", {}), space)
    except (TypeError, ValueError) as exc:
        problems.append(f"last: {exc}")
    return problems
