"""`LedgerStore`: progress in the ledger, as a task sees it through the task SDK.

Cursor and plans are documents with a revision; a write names the revision it replaces, and one that
comes too late changes nothing and says so. Task plan and commit events stay where the default store
has them. The cursor also holds claims, so that cursor windows of one group may run side by side
(`windows.run.claimed_run`).

A task has no database access: every method is a request to the API server, which must run
`TubeMQStateBackend`. This module uses Airflow by shape only, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self
from uuid import uuid4

from tubemq_client import errors
from tubemq_provider.offsets.asset_state import (
    AssetProgress,
    AssetStateOffsetStore,
    InletEvents,
)
from tubemq_provider.offsets.chunking import PiecesMissing, join, piece_names, split
from tubemq_provider.offsets.commit_events import OutletEvent, writer_of
from tubemq_provider.offsets.document_state import StateAccessor as State
from tubemq_provider.offsets.ledger.envelope import (
    CURSOR,
    DONE,
    PIECE,
    PROBE,
    WINDOW,
    Envelope,
    Versioned,
    piece_keys,
)
from tubemq_provider.windows.errors import StoreConflict
from tubemq_provider.windows.protocols import Document

__all__ = ["LedgerStore", "VersionedState"]

_LOOKS = 20
_CHANGES = 200
_CONFLICT = 409


class VersionedState:
    """Documents with revisions over Airflow's get and set; long ones are kept in pieces."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._heads: dict[str, Document] = {}

    def expect_ledger(self) -> None:
        """Raise `errors.ConfigError` unless the API server has the ledger's backend."""
        answer = self._state.get(PROBE)
        if not isinstance(answer, Mapping) or answer.get("ledger") != 1:
            raise errors.ConfigError(
                "offset_store='ledger' needs [state_store] backend = "
                "tubemq_provider.offsets.ledger.backend.TubeMQStateBackend on the API server, and "
                "tubemq_provider.offsets.ledger.db_manager.LedgerDBManager among [database] "
                "external_db_managers when 'airflow db migrate' runs",
                subject="offset store",
            )

    def load(self, key: str) -> Versioned | None:
        """The document under `key`, or None. Raises `PiecesMissing` if a part is not there."""
        rev = 0
        for _ in range(_LOOKS):
            found = Versioned.from_value(self._state.get(key))
            self._heads[key] = found.document if found else {}
            if found is None or not piece_names(found.document):
                return found
            rev = found.rev
            pieces = [
                Versioned.from_value(self._state.get(name))
                for name in piece_keys(key, found.document)
            ]
            if None not in pieces:
                whole = join(found.document, [p.document for p in pieces if p], key)
                return Versioned(found.rev, whole)
        raise PiecesMissing(f"ledger key {key!r}", rev)

    def store(self, key: str, document: Document, expected: int) -> None:
        """Replace revision `expected` of the document, and remove what that was made of. Raises
        `StoreConflict`. Who dies in the middle leaves pieces behind that nothing reads."""
        before = self._heads.pop(key, None) or (self.head(key) if expected else None) or {}
        head, pieces = split(document)
        for name, piece in zip(piece_keys(key, head), pieces.values(), strict=True):
            # Named after its content: there already means there already.
            self._put(name, Envelope(0, name.removeprefix(PIECE)[-64:], piece))
        try:
            self._put(key, Envelope(expected, uuid4().hex, head))
        except StoreConflict:
            # Another run may have stored the same document, of the same pieces.
            if pieces and self.head(key) != head:
                self.drop_pieces(key, head)
            raise
        if before != head:
            self.drop_pieces(key, before)

    def drop_pieces(self, key: str, head: Document) -> None:
        """Remove what a document is made of that is there no more."""
        for name in piece_keys(key, head):
            self._state.delete(name)

    def head(self, key: str) -> Document | None:
        """What is under `key` itself: the document, or what stands for a long one."""
        found = Versioned.from_value(self._state.get(key))
        return found.document if found else None

    def delete(self, key: str) -> None:
        """Remove what is under `key`."""
        head = self.head(key)
        self._heads.pop(key, None)
        self._state.delete(key)
        if head is not None:
            self.drop_pieces(key, head)

    def _put(self, key: str, envelope: Envelope) -> None:
        try:
            self._state.set(key, envelope.to_value())
        except Exception as exc:
            if _status(exc) == _CONFLICT:
                raise StoreConflict(f"{key}: somebody else has written it since") from exc
            raise


class LedgerStore(AssetStateOffsetStore):
    """The store of one try of one task; see `OffsetStore` and `ClaimStore` for the promises.

    `store_cursor` and `store_plan` replace what this store has read last (what it has not read, it
    reads first). Of two planners of one window the first one's plan stays.
    """

    def __init__(
        self,
        *,
        asset_state: State,
        task_state: State,
        inlet_events: InletEvents,
        outlet_event: OutletEvent,
        writer: str,
        is_over: Callable[[str], bool] = lambda _: False,
    ) -> None:
        super().__init__(
            asset_state=asset_state,
            task_state=task_state,
            inlet_events=inlet_events,
            outlet_event=outlet_event,
            writer=writer,
        )
        self._ledger = VersionedState(asset_state)
        self._is_over = is_over
        self._seen: dict[str, int] = {}

    @classmethod
    def from_context(cls, context: Mapping[str, Any], asset: Any) -> Self:
        """The store for the running task. Raises `errors.ConfigError` if there is no ledger."""
        from tubemq_provider.offsets.ledger.task_liveness import task_is_over

        asset_state, ti = context["asset_state_store"][asset], context["ti"]
        VersionedState(asset_state).expect_ledger()
        return cls(
            asset_state=asset_state,
            task_state=context["task_state_store"],
            inlet_events=context["inlet_events"][asset],
            outlet_event=context["outlet_events"][asset],
            writer=writer_of(ti),
            is_over=task_is_over(ti),
        )

    def load_cursor(self) -> Document | None:
        """The cursor with its claims, or None."""
        return self._load(CURSOR)

    def store_cursor(self, document: Document) -> None:
        """Replace the cursor read last. Raises `StoreConflict` if it is not there any more."""
        self._store(CURSOR, document)

    def load_plan(self, window_id: str) -> Document | None:
        """The plan stored for a window, or None; see `AssetStateOffsetStore` for one without its
        pieces, which the next plan of the window replaces."""
        key = WINDOW + window_id
        try:
            return self._load(key)
        except PiecesMissing as exc:
            self._seen[key] = exc.rev
            return None

    def store_plan(self, window_id: str, document: Document) -> None:
        """Store a plan in place of the one read last; if another planner was first, its plan stays
        and nothing is raised: a caller that stores a plan reads it back."""
        try:
            self._store(WINDOW + window_id, document)
        except StoreConflict:
            pass

    def forget_plan(self, window_id: str) -> None:
        """Remove the plan of a published window; the ledger keeps that there was one."""
        self._ledger.delete(WINDOW + window_id)
        self._seen.pop(WINDOW + window_id, None)

    def emit(self, document: Document) -> None:
        """Give the commit event, and keep it in the ledger's row of the window, if there is one."""
        super().emit(document)
        if "window_id" in document:
            envelope = Envelope(0, uuid4().hex, _shown(document))
            self._asset_state.set(DONE + document["window_id"], envelope.to_value())

    # ClaimStore

    def change_cursor(
        self, change: Callable[[Document | None], Document | None]
    ) -> Document | None:
        """Apply `change` to the cursor in one compare-and-set, as often as it takes.

        `change` gets the cursor and returns the new one, or None to leave it. Returns what is there
        afterwards. Raises `StoreConflict` after 200 attempts that others overtook.
        """
        for _ in range(_CHANGES):
            current = self.load_cursor()
            wanted = change(current)
            if wanted is None:
                return current
            try:
                self.store_cursor(wanted)
            except StoreConflict:
                continue
            return wanted
        raise StoreConflict(f"the cursor was changed by others {_CHANGES} times in a row")

    def is_over(self, claimant: str) -> bool:
        """Whether `claimant` (a `writer`) will never write again: its task has ended for good."""
        return claimant != self.writer and (not claimant or self._is_over(claimant))

    def previous_cursor(self) -> Document | None:
        """The cursor that the default store kept for this group before the ledger was used."""
        return AssetProgress.load_cursor(self)

    def _load(self, key: str) -> Document | None:
        found = self._ledger.load(key)
        self._seen[key] = found.rev if found else 0
        return found.document if found else None

    def _store(self, key: str, document: Document) -> None:
        if key not in self._seen:
            self._load(key)
        # Whatever comes of it, what was read is no longer what is there.
        self._ledger.store(key, document, self._seen.pop(key))


def _status(exc: Exception) -> int | None:
    """The HTTP status in an error of the task SDK."""
    detail = getattr(getattr(exc, "error", None), "detail", None)
    status = detail.get("status_code") if isinstance(detail, Mapping) else None
    return status if isinstance(status, int) else None


def _shown(event: Document) -> Document:
    """The event as far as it fits into one row: ranges of thousands of partitions are in the
    marker."""
    if not split(event)[1]:
        return event
    return {name: value for name, value in event.items() if not isinstance(value, dict | list)}
