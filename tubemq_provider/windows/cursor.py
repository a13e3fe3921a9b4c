"""Position of a group, and the cursor document that caches it.

A position states that all windows up to `seq` are published and that the next window starts at
`next`. It is stored in the cursor and in every commit event, and can be rebuilt from either or from
the sink's markers. This module must not do I/O; `run` decides when a cursor is stored.
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
from tubemq_provider.windows.versions import VERSIONS, migrated

__all__ = [
    "BY_HAND",
    "CURSOR_VERSION",
    "Cursor",
    "EarlierEpochs",
    "Position",
    "continue_command",
    "cursor_in_use",
    "earlier_epochs",
    "epoch_command",
    "epoch_of",
    "is_ahead",
    "is_by_hand",
    "newer_position",
    "past_epochs",
    "position_of_event",
    "present_epoch",
    "updated_at",
]

CURSOR_VERSION: Final = VERSIONS["cursor"]
"""Value of `v` in the cursor documents of this release."""

_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)

BY_HAND: Final = "by_hand"
"""Member of a position that a user has set; see `Position`."""


@dataclass(frozen=True, slots=True)
class Position:
    """Number `seq` of the last published cursor window (0: none yet), and each partition's `next`
    offset to read.

    `last` are the anchors: records before `next` that identify the logs; documents of earlier
    releases have none. `by_hand`: a user has set `next`, so that it may differ from the end of
    window `seq`, and that window need not be in the sink. Neither takes part in comparisons.
    """

    seq: int
    next: Mapping[str, int]
    last: Anchors = field(default_factory=dict, compare=False)
    by_hand: bool = field(default=False, compare=False)

    def to_document(self, scope_hash: str, space: OffsetSpace) -> dict[str, Any]:
        """Return the member ``position`` of a commit event."""
        ordered = space.by_key(self.next)
        document: dict[str, Any] = {"h": scope_hash, "seq": self.seq, "next": ordered}
        if self.last:
            document["last"] = anchors_document(space.by_key(self.last))
        if self.by_hand:
            document[BY_HAND] = 1
        return document


@dataclass(frozen=True, slots=True)
class Cursor:
    """Stored position with its last writer (`by`), number of writes (`rev`) and time of the last
    one (`updated`; 1970 if unknown). `past` are the epochs of the group that have ended."""

    position: Position
    rev: int = 0
    by: str = ""
    past: tuple[str, ...] = ()
    updated: datetime = _LONG_AGO

    @property
    def seq(self) -> int:
        """Number of the last published cursor window."""
        return self.position.seq

    def to_document(self, scope: WindowScope, now: datetime) -> dict[str, Any]:
        """Return the whole cursor as one document, so that one write replaces it."""
        document = {
            "v": CURSOR_VERSION,
            "cluster": scope.cluster,
            "topic": scope.topic,
            "group": scope.group,
            "epoch": scope.epoch,
            "sink": scope.sink,
            **self.position.to_document(scope.scope_hash, scope.space),
            "rev": self.rev,
            "by": self.by,
            "updated": rfc3339(now),
        }
        return document | ({"past": list(self.past)} if self.past else {})

    @classmethod
    def from_document(cls, document: Mapping[str, Any], scope: WindowScope) -> Cursor:
        """Parse a stored document.

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
class EarlierEpochs:
    """Earlier epochs of a group, as the first run of a new epoch needs them.

    `past` are their names; `begin` the first position that a user has set for the new epoch
    (a keyword, or offsets by partition; None if unset); `seen` the id of the last window known when
    the user decided on the epoch ("" if unset)."""

    past: tuple[str, ...]
    begin: str | Mapping[str, int] | None = None
    seen: str = ""


def earlier_epochs(document: Mapping[str, Any], scope: WindowScope) -> EarlierEpochs | None:
    """Return the earlier epochs from a cursor or commit event that was written before the epoch of
    `scope` had any progress; None if the document is of this epoch.

    Raises `IdentityMismatch` if the epoch has ended: another one was begun after it.
    """
    epoch, past = epoch_of(document), past_epochs(document)
    if scope.epoch in past:
        raise IdentityMismatch(
            f"epoch {scope.epoch!r} of group {scope.group!r} on topic {scope.topic!r} has ended: "
            f"epoch {epoch!r} was begun after it; pass epoch={epoch!r} to the task, or no epoch at "
            f"all to continue where the group is"
        )
    begin = document.get("begin")
    if epoch == scope.epoch:
        if "next" in document or begin is None:
            return None
        return EarlierEpochs(past, begin, str(document.get("seen", "")))
    return EarlierEpochs((*past, epoch))


def epoch_of(document: Mapping[str, Any] | None) -> str:
    """Return the epoch of a cursor or commit event; "" if it names none."""
    return str((document or {}).get("epoch", ""))


def is_ahead(cursor: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return True if `cursor` is ahead of `other`, which another store of the group keeps.

    A later epoch is ahead of earlier ones, although it counts its windows from one. A cursor that
    was edited and has no number counts as ahead, so that its error is not hidden."""
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
    """Return the one that is ahead: the cursor, or the position of the newest event.

    A later epoch is ahead of earlier ones, although it counts its windows from one."""
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
    """Return the cursor in use of a group that has moved between stores: `claimed` in the ledger,
    unless `kept` in asset state is ahead of it."""
    if not kept or not claimed:
        return kept or claimed
    return kept if is_ahead(kept, claimed) else claimed


def present_epoch(
    cursor: Mapping[str, Any] | None,
    event: Mapping[str, Any] | None,
    recent: Iterable[Mapping[str, Any]] = (),
) -> Mapping[str, Any] | None:
    """Return the cursor or event that names the current epoch of a group; None if none does.

    It is the newer of the cursor and the newest event with a position, unless one of the `recent`
    events after that (newest first) is of a later epoch. Time windows have no position: of a group
    that has no others, or has lost its cursor, only their events name the epoch. Events of explicit
    windows do not count.
    """
    newest = newer_position(cursor, event)
    latest = cursor if newest is not None and newest is cursor else event
    for document in takewhile(lambda document: not document.get("position"), recent):
        ahead = latest is None or epoch_of(latest) in past_epochs(document)
        if document.get("kind") == WindowKind.TIME and ahead:
            latest = document
    return latest


def past_epochs(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the epochs of a group that have ended, from a cursor or commit event."""
    past = document.get("past", [])
    return tuple(map(str, past)) if isinstance(past, list) else ()


def position_of_event(event: Mapping[str, Any], scope: WindowScope) -> Position:
    """Return the position in a commit event. Raises like `Cursor.from_document`."""
    subject = f"position in the newest commit event of group {scope.group!r}"
    event = migrated("event", event, subject)
    return _position(event["position"], subject, scope, versioned=False)


def _position(document: object, subject: str, scope: WindowScope, *, versioned: bool) -> Position:
    if not isinstance(document, dict):
        raise DocumentError(subject, [f"it is {type(document).__name__}, not an object"])
    if versioned:
        document = migrated("cursor", document, subject)
    problems = _problems(document, scope.space)
    if problems:
        raise DocumentError(subject, problems)
    if document["h"] != scope.scope_hash:
        raise IdentityMismatch(
            f"{subject} was written for {_what_differs(document, scope)} "
            f"(h {document['h']} instead of {scope.scope_hash}); progress of one group cannot "
            f"serve two: give this pipeline its own group; or, to continue this group with its "
            f"present scope from its position, give it a new epoch: {epoch_command(scope)} "
            f"--begin '{json.dumps(document['next'])}' (without --begin it reads all records again)"
        )
    last = read_anchors(document.get("last", {}), scope.space)
    return Position(document["seq"], dict(document["next"]), last, is_by_hand(document))


def _what_differs(document: Mapping[str, Any], scope: WindowScope) -> str:
    """Return the part of the scope that has changed, as far as it can be found: of the old scope
    the digest and the sink are stored, so likely scopes are tried. Cluster, topic and group are in
    the key of the stored progress, and differ only if it was edited."""
    before = str(document.get("epoch", scope.epoch))
    if before != scope.epoch and replace(scope, epoch=before).scope_hash == document["h"]:
        return f"epoch {before!r}, not {scope.epoch!r}"
    if scope.filters and replace(scope, filters=()).scope_hash == document["h"]:
        return f"reading without filters, not with {list(scope.filters)}"
    sink = document.get("sink")  # cursors of earlier releases and events have none
    if isinstance(sink, str) and sink != scope.sink:
        return f"sink {sink}, not {scope.sink}"
    if sink == scope.sink:
        return f"other filters than {list(scope.filters)}"
    if scope.filters:
        return f"another sink than {scope.sink}, or other filters than {list(scope.filters)}"
    return f"another sink than {scope.sink}, or with filters, of which there are none now"


def epoch_command(scope: WindowScope, seen: str = "") -> str:
    """Return the command that begins a new epoch of a group.

    If the group has published windows after `seen`, the command is refused, or the epoch begins
    after them."""
    command = f"airflow tubemq offsets epoch {quote(scope.asset)} <name>"
    return f"{command} --seen {seen}" if seen else command


def is_by_hand(document: Mapping[str, Any]) -> bool:
    """Return True if a user has set the position in a cursor or event."""
    return bool(document.get(BY_HAND))


def updated_at(document: Mapping[str, Any]) -> datetime:
    """Return the time when a cursor was written; 1970 if it has none."""
    try:
        return datetime.fromisoformat(str(document.get("updated"))).astimezone(UTC)
    except ValueError:
        return _LONG_AGO


def continue_command(plan: WindowPlan, begin: Mapping[str, int] | None = None) -> str:
    """Return the command by which a group with lost progress continues after a published window.

    `begin` are the first offsets, if logs were recreated since; by default the window's ends."""
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
