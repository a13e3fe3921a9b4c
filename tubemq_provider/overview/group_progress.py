"""Position of a group: its store, its offsets, and its claimed windows.

The newer one of cursor and newest commit event, as a run would resume it; a store without a cursor
has only the events. Queries no broker; a session's rows are read, and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tubemq_provider.offsets.metadata_db import Group
from tubemq_provider.windows.cursor import newer_position
from tubemq_provider.windows.errors import DocumentError
from tubemq_provider.windows.protocols import Document
from tubemq_provider.windows.spaces import space_of


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """Progress of one group.

    `asset` is the group's name in commands, `cursor` and `event` are the documents as stored, or
    None.
    """

    asset: str
    store: str
    cursor: Document | None
    event: Document | None

    @property
    def next(self) -> dict[str, int]:
        """Next offset of each partition; empty without progress."""
        return dict((newer_position(self.cursor, self.event) or {}).get("next", {}))

    @property
    def claims(self) -> Mapping[str, Mapping[str, Any]]:
        """Claimed windows by id."""
        claims: Mapping[str, Mapping[str, Any]] = (self.cursor or {}).get("pending", {})
        return claims

    def row(self) -> dict[str, object]:
        """Return the row of the group in a list."""
        cluster, topic, name = self.asset.split("/", 2)
        cursor = self.cursor or {}
        position = self.cursor or (self.event or {}).get("position") or {}
        return {
            "asset": self.asset,
            "cluster": cluster.rpartition(":")[2],
            "topic": topic,
            "group": name,
            "store": self.store if self.cursor else "events" if self.event else "",
            "seq": position.get("seq", ""),
            "partitions": len(position.get("next", {})),
            "claims": len(self.claims),
            "updated": cursor.get("updated", ""),
            "by": cursor.get("by", ""),
        }


def group_position(group: Group, *, most: int | None = None) -> GroupProgress:
    """Return the position of `group` from its cursor and its newest event with a position.

    Searches the `most` newest events (default: a thousand). Raises `DocumentError` for a document
    that was edited into another shape.
    """
    store, cursor = group.cursor()
    now = GroupProgress(group.asset, store, cursor, group.newest_position(most=most))
    try:
        following, claims = now.next, now.claims
        sound = all(isinstance(offset, int) for offset in following.values())
        sound = sound and all(isinstance(claim, dict) for claim in claims.values())
        space_of(group.source).ordered(following)
        now.row()
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as exc:
        problem = f"it cannot be read: {type(exc).__name__} {exc}"
        raise DocumentError("position of the group", [problem]) from exc
    if not sound:
        raise DocumentError("position of the group", ["next or pending has another shape"])
    return now


def row_of(group: Group) -> dict[str, object]:
    """Return the row of `group` in a list; for unreadable documents, its name and the problem."""
    try:
        return group_position(group).row()
    except DocumentError as exc:
        row = GroupProgress(group.asset, "", None, None).row()
        return row | {"store": "unreadable", "by": "; ".join(exc.problems)}
