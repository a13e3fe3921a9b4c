"""Position of a group for sensors, which are tasks, and for watchers, which are triggers.

Both read the cursors of asset state and of the ledger, whose cursor also has the claimed windows. A
sensor also reads commit events; a trigger, which reads asynchronously, cannot. The position is only
a hint for scheduling: runs determine the beginning of a window themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tubemq_provider.offsets.asset_state import AssetProgress
from tubemq_provider.offsets.chunking import chunk_names, join, read_whole
from tubemq_provider.offsets.ledger.envelope import CURSOR, Versioned, chunk_keys
from tubemq_provider.offsets.ledger.store import VersionedState
from tubemq_provider.windows.cursor import cursor_in_use, newer_position
from tubemq_provider.windows.protocols import Document

__all__ = [
    "GroupPosition",
    "advance_over",
    "group_position",
    "inlet_position",
    "load_note",
    "store_note",
]

_CURSOR = "cursor"
_NOTE = "ring"
_LOOKS = 5


class AsyncState(Protocol):
    """Asynchronous part of Airflow's asset state accessor."""

    async def aget(self, key: str, default: Any = None) -> Any: ...

    async def aset(self, key: str, value: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """Position of a group by partition key; empty without a cursor.

    `accepted` is the end of the published windows, `taken` also of the claimed ones (only in the
    ledger; in other stores they are equal).
    """

    accepted: Mapping[str, int]
    taken: Mapping[str, int]


async def group_position(state: AsyncState) -> GroupPosition:
    """Read the position of a group.

    An invalid document counts as none: the run that is triggered then reports it. Raises the errors
    of Airflow's accessor if the API server does not answer.
    """
    document = cursor_in_use(await _cursor(state), await _ledger_cursor(state)) or {}
    accepted = _offsets(document.get("next"))
    advance_over(accepted, document.get("done"))
    taken = dict(accepted)
    advance_over(taken, document.get("pending"))
    return GroupPosition(accepted, taken)


def inlet_position(context: Mapping[str, Any], asset: Any) -> dict[str, int]:
    """Return the position of a group by partition key, from the newer of cursor and newest commit
    event. The running task has `asset` as inlet.

    Raises `DocumentError` for an invalid cursor. Published windows without a commit event are not
    included; only a run, which also reads the sink, advances over them.
    """
    progress = AssetProgress.of_inlet(context, asset)
    states = context.get("asset_state_store")
    claimed = None if states is None else VersionedState(states[asset]).load(CURSOR)
    cursor = cursor_in_use(progress.load_cursor(), claimed.document if claimed else None)
    newest = newer_position(cursor, progress.newest_position()) or {}
    following = {str(key): int(offset) for key, offset in newest.get("next", {}).items()}
    if newest is cursor:
        advance_over(following, newest.get("done"))
    return following


async def load_note(state: AsyncState) -> Document:
    """Return the watcher's note of its last event; empty if it never fired."""
    note = await state.aget(_NOTE)
    return note if isinstance(note, dict) else {}


async def store_note(state: AsyncState, note: Document) -> None:
    """Replace the watcher's note. No task reads or writes this key."""
    await state.aset(_NOTE, note)


async def _cursor(state: AsyncState) -> Document | None:
    for _ in range(_LOOKS):
        head = await state.aget(_CURSOR)
        if not isinstance(head, dict):
            return None
        names = {f"{_CURSOR}~{name}" for name in chunk_names(head)}
        pieces = {name: await state.aget(name) for name in names}
        whole = read_whole(pieces.get, _CURSOR, head)
        if whole is not None:
            return whole
    return None


async def _ledger_cursor(state: AsyncState) -> Document | None:
    for _ in range(_LOOKS):
        head = Versioned.from_value(await state.aget(CURSOR))
        if head is None:
            return None
        names = chunk_keys(CURSOR, head.document)
        if not names:
            return head.document
        pieces = [Versioned.from_value(await state.aget(name)) for name in names]
        if None not in pieces:
            return join(head.document, [p.document for p in pieces if p], CURSOR)
    return None


def _offsets(document: object) -> dict[str, int]:
    if not isinstance(document, Mapping):
        return {}
    return {str(key): offset for key, offset in document.items() if isinstance(offset, int)}


def advance_over(position: dict[str, int], claims: object) -> None:
    """Advance `position` over the windows of `claims`, plans or ``{"plan": …}`` by window id."""
    for claim in claims.values() if isinstance(claims, Mapping) else ():
        plan = claim.get("plan", claim) if isinstance(claim, Mapping) else {}
        ranges = plan.get("ranges") if isinstance(plan, Mapping) else None
        for key, pair in ranges.items() if isinstance(ranges, Mapping) else ():
            if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[1], int):
                position[str(key)] = max(position.get(str(key), 0), pair[1])
