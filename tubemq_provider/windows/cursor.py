"""The position of a group, and the cursor document that caches it.

A position says: all windows up to `seq` are published, and the next window starts at `next`. It
travels in the cursor and in every commit event, and can be rebuilt from either or from the sink's
markers. This module must not do I/O; who stores a cursor, and when, is `run`'s business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from tubemq_provider.windows._plan_document import offset_problem, valid_key
from tubemq_provider.windows.anchors import Anchors, anchors_document, read_anchors
from tubemq_provider.windows.canonical import rfc3339
from tubemq_provider.windows.errors import DocumentError, IdentityMismatch
from tubemq_provider.windows.plan import WindowScope, key_order
from tubemq_provider.windows.versions import VERSIONS, brought_up

__all__ = ["CURSOR_VERSION", "Cursor", "Position", "position_of_event"]

CURSOR_VERSION: Final = VERSIONS["cursor"]
"""The `v` of cursor documents this code writes."""


@dataclass(frozen=True, slots=True)
class Position:
    """`seq` of the last published cursor window (0: none yet) and where every partition goes on.

    `last` are records before `next`, by which the logs are known again; documents of earlier
    releases have none. They do not make it another position.
    """

    seq: int
    next: Mapping[str, int]
    last: Anchors = field(default_factory=dict, compare=False)

    def to_document(self, h: str) -> dict[str, Any]:
        """What a commit event carries under ``position``."""
        ordered = dict(sorted(self.next.items(), key=key_order))
        document: dict[str, Any] = {"h": h, "seq": self.seq, "next": ordered}
        if self.last:
            document["last"] = anchors_document(dict(sorted(self.last.items(), key=key_order)))
        return document


@dataclass(frozen=True, slots=True)
class Cursor:
    """The stored position, with who wrote it and how often it was written (`rev`)."""

    position: Position
    rev: int = 0
    by: str = ""

    @property
    def seq(self) -> int:
        """How many windows the position has behind it."""
        return self.position.seq

    def to_document(self, scope: WindowScope, now: datetime) -> dict[str, Any]:
        """The whole cursor: one document, so that one write replaces it."""
        return {
            "v": CURSOR_VERSION,
            "cluster": scope.cluster,
            "topic": scope.topic,
            "group": scope.group,
            "epoch": scope.epoch,
            **self.position.to_document(scope.h),
            "rev": self.rev,
            "by": self.by,
            "updated": rfc3339(now),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any], scope: WindowScope) -> Cursor:
        """The cursor in a stored document.

        Raises `DocumentError` with every problem (somebody may have edited it), and
        `IdentityMismatch` if it belongs to another scope.
        """
        subject = f"cursor of group {scope.group!r} on topic {scope.topic!r}"
        position = _position(document, subject, scope, versioned=True)
        rev, by = document.get("rev", 0), document.get("by", "")
        return cls(position, rev if isinstance(rev, int) else 0, str(by))


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
    problems = _problems(document)
    if problems:
        raise DocumentError(subject, problems)
    if document["h"] != scope.h:
        raise IdentityMismatch(
            f"{subject} was written for another cluster, topic, group, filter set, epoch or sink "
            f"(h {document['h']} instead of {scope.h}); progress of one group cannot serve two: "
            f"give this pipeline its own group, or set the offsets of this one anew"
        )
    last = read_anchors(document.get("last", {}))
    return Position(document["seq"], dict(document["next"]), last)


def _problems(document: Mapping[str, Any]) -> list[str]:
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
        if not valid_key(key):
            problems.append(f"next: key {key!r} is not '<broker id>:<partition id>'")
        if bad := offset_problem(offset):
            problems.append(f"next of {key}: {bad}")
    try:
        read_anchors(document.get("last", {}))
    except (TypeError, ValueError) as exc:
        problems.append(f"last: {exc}")
    return problems
