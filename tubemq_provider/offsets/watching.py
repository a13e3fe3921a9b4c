"""Where a group stands for those who wait: a sensor in its task, a watcher outside of any.

Both see the cursors of the stores that keep one: asset state, and the ledger, whose cursor also
says which windows are taken. A sensor sees commit events besides; a trigger, which reads
asynchronously, does not. What they find is a hint for scheduling and never the beginning of a
window; runs find that out for themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tubemq_provider.offsets.asset_state import AssetProgress
from tubemq_provider.offsets.chunking import join, piece_names, read_whole
from tubemq_provider.offsets.ledger.envelope import CURSOR, Versioned, piece_keys
from tubemq_provider.offsets.ledger.store import VersionedState
from tubemq_provider.windows.cursor import cursor_in_use, newer_position
from tubemq_provider.windows.protocols import Document

__all__ = ["Kept", "inlet_position", "kept_position", "load_note", "move_behind", "store_note"]

_CURSOR = "cursor"
_NOTE = "ring"
_LOOKS = 5


class AsyncState(Protocol):
    """The asynchronous half of Airflow's asset state accessor."""

    async def aget(self, key: str, default: Any = None) -> Any: ...

    async def aset(self, key: str, value: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class Kept:
    """Where a group stands, by partition key; empty where no cursor is kept.

    `accepted` is behind the windows that are published, `taken` also behind those that runs have
    claimed (the ledger only; elsewhere they are equal).
    """

    accepted: Mapping[str, int]
    taken: Mapping[str, int]


async def kept_position(state: AsyncState) -> Kept:
    """Read where a group stands.

    A document that cannot be read counts as none: the run that it triggers says what is wrong with
    it. Raises what Airflow's accessor raises when the API server does not answer.
    """
    document = cursor_in_use(await _cursor(state), await _ledger_cursor(state)) or {}
    accepted = _offsets(document.get("next"))
    move_behind(accepted, document.get("done"))
    taken = dict(accepted)
    move_behind(taken, document.get("pending"))
    return Kept(accepted, taken)


def inlet_position(context: Mapping[str, Any], asset: Any) -> dict[str, int]:
    """Where a group stands by partition key, of which the running task has `asset` as inlet: behind
    the windows that the newer of cursor and newest commit event knows as published.

    Raises `DocumentError` for a cursor that cannot be read. Windows that are published but not yet
    told of are not known here; only a run, which asks the sink as well, moves past them.
    """
    progress = AssetProgress.of_inlet(context, asset)
    states = context.get("asset_state_store")
    claimed = None if states is None else VersionedState(states[asset]).load(CURSOR)
    cursor = cursor_in_use(progress.load_cursor(), claimed.document if claimed else None)
    newest = newer_position(cursor, progress.newest_position()) or {}
    following = {str(key): int(offset) for key, offset in newest.get("next", {}).items()}
    if newest is cursor:
        move_behind(following, newest.get("done"))
    return following


async def load_note(state: AsyncState) -> Document:
    """What the watcher noted when it rang last; empty if it never did."""
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
        names = {f"{_CURSOR}~{name}" for name in piece_names(head)}
        pieces = {name: await state.aget(name) for name in names}
        whole = read_whole(pieces.get, _CURSOR, head)
        if whole is not None:
            return whole
    return None


async def _ledger_cursor(state: AsyncState) -> Document | None:
    for _ in range(_LOOKS):
        found = Versioned.from_value(await state.aget(CURSOR))
        if found is None:
            return None
        names = piece_keys(CURSOR, found.document)
        if not names:
            return found.document
        pieces = [Versioned.from_value(await state.aget(name)) for name in names]
        if None not in pieces:
            return join(found.document, [p.document for p in pieces if p], CURSOR)
    return None


def _offsets(document: object) -> dict[str, int]:
    if not isinstance(document, Mapping):
        return {}
    return {str(key): offset for key, offset in document.items() if isinstance(offset, int)}


def move_behind(position: dict[str, int], claims: object) -> None:
    """Move `position` behind the windows of `claims`, plans or ``{"plan": …}`` by window id."""
    for claim in claims.values() if isinstance(claims, Mapping) else ():
        plan = claim.get("plan", claim) if isinstance(claim, Mapping) else {}
        ranges = plan.get("ranges") if isinstance(plan, Mapping) else None
        for key, pair in ranges.items() if isinstance(ranges, Mapping) else ():
            if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[1], int):
                position[str(key)] = max(position.get(str(key), 0), pair[1])
