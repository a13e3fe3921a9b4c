"""`LedgerStore`: offset store in the ledger, accessed by a task through the task SDK.

Cursor and plans are documents with a revision. A write names the revision that it replaces; for an
outdated revision it changes nothing and raises. Task plan and commit events are those of the
default store. The cursor also has claims, so that runs of one group may be concurrent
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
from tubemq_provider.offsets.chunking import ChunksMissing, chunk_names, join, split
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
    chunk_keys,
)
from tubemq_provider.windows.errors import StoreConflict
from tubemq_provider.windows.protocols import Document

__all__ = ["LedgerStore", "VersionedState", "task_is_over"]

_LOOKS = 20
_CHANGES = 200
_CONFLICT = 409
_RUN_OVER = frozenset({"success", "failed"})
_TASK_OVER = frozenset({"failed", "skipped", "upstream_failed", "removed"})
_NOT_FOUND = 404


class VersionedState:
    """Documents with revisions over Airflow's get and set; long ones are stored in chunks."""

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
        """Return the document under `key`, or None. Raises `ChunksMissing` without its chunks."""
        rev = 0
        for _ in range(_LOOKS):
            head = Versioned.from_value(self._state.get(key))
            self._heads[key] = head.document if head else {}
            if head is None or not chunk_names(head.document):
                return head
            rev = head.rev
            chunks = [
                Versioned.from_value(self._state.get(name))
                for name in chunk_keys(key, head.document)
            ]
            if None not in chunks:
                whole = join(head.document, [p.document for p in chunks if p], key)
                return Versioned(head.rev, whole)
        raise ChunksMissing(f"ledger key {key!r}", rev)

    def store(self, key: str, document: Document, expected: int) -> None:
        """Replace revision `expected` of the document, and remove its chunks. Raises
        `StoreConflict`. A process that dies in between leaves chunks that no one reads."""
        before = self._heads.pop(key, None) or (self.head(key) if expected else None) or {}
        head, chunks = split(document)
        for name, chunk in zip(chunk_keys(key, head), chunks.values(), strict=True):
            # A chunk is named after its content: an existing one has the same content.
            self._put(name, Envelope(0, name.removeprefix(PIECE)[-64:], chunk))
        try:
            self._put(key, Envelope(expected, uuid4().hex, head))
        except StoreConflict:
            # Another run may have stored the same document, with the same chunks.
            if chunks and self.head(key) != head:
                self.drop_pieces(key, head)
            raise
        if before != head:
            self.drop_pieces(key, before)

    def drop_pieces(self, key: str, head: Document) -> None:
        """Remove the chunks of a document that was replaced."""
        for name in chunk_keys(key, head):
            self._state.delete(name)

    def head(self, key: str) -> Document | None:
        """Return the value under `key`: the document, or the head of a long one."""
        stored = Versioned.from_value(self._state.get(key))
        return stored.document if stored else None

    def delete(self, key: str) -> None:
        """Remove the document under `key`."""
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
                raise StoreConflict(f"{key}: another writer has changed it since") from exc
            raise


class LedgerStore(AssetStateOffsetStore):
    """Claim store of one try of one task; see `OffsetStore` and `ClaimStore` for the guarantees.

    `store_cursor` and `store_plan` replace the revision that this store has read last (it reads one
    first if it has not yet). Of two plans of one window the first stays.
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
        """Create the store of the running task. Raises `errors.ConfigError` without a ledger."""
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
        """Return the cursor with its claims, or None."""
        return self._load(CURSOR)

    def store_cursor(self, document: Document) -> None:
        """Replace the cursor read last. Raises `StoreConflict` if it was changed since."""
        self._store(CURSOR, document)

    def load_plan(self, window_id: str) -> Document | None:
        """Return the plan stored for a window, or None; also None if chunks of it are missing (see
        `AssetStateOffsetStore`): the next plan of the window replaces it."""
        key = WINDOW + window_id
        try:
            return self._load(key)
        except ChunksMissing as exc:
            self._seen[key] = exc.rev
            return None

    def store_plan(self, window_id: str, document: Document) -> None:
        """Replace the plan read last. If another run has stored one since, that plan stays and
        nothing is raised: callers read the plan back."""
        try:
            self._store(WINDOW + window_id, document)
        except StoreConflict:
            pass

    def forget_plan(self, window_id: str) -> None:
        """Remove the plan of a published window; its row stays."""
        self._ledger.delete(WINDOW + window_id)
        self._seen.pop(WINDOW + window_id, None)

    def emit(self, document: Document) -> None:
        """Emit the commit event, and store it in the ledger's row of its window, if it has one."""
        super().emit(document)
        if "window_id" in document:
            envelope = Envelope(0, uuid4().hex, _shown(document))
            self._asset_state.set(DONE + document["window_id"], envelope.to_value())

    # ClaimStore

    def change_cursor(
        self, change: Callable[[Document | None], Document | None]
    ) -> Document | None:
        """Apply `change` to the cursor by compare-and-set, with retries.

        `change` receives the cursor and returns the new one, or None to leave it. Returns the
        cursor afterwards. Raises `StoreConflict` after 200 lost attempts.
        """
        for _ in range(_CHANGES):
            current = self.load_cursor()
            changed = change(current)
            if changed is None:
                return current
            try:
                self.store_cursor(changed)
            except StoreConflict:
                continue
            return changed
        raise StoreConflict(f"the cursor was changed by others {_CHANGES} times in a row")

    def is_over(self, claimant: str) -> bool:
        """Return True if the task of `claimant` (a `writer`) has ended and will not be retried."""
        return claimant != self.writer and (not claimant or self._is_over(claimant))

    def previous_cursor(self) -> Document | None:
        """Return the cursor that the default store kept before the ledger was used, or None."""
        return AssetProgress.load_cursor(self)

    def _load(self, key: str) -> Document | None:
        versioned = self._ledger.load(key)
        self._seen[key] = versioned.rev if versioned else 0
        return versioned.document if versioned else None

    def _store(self, key: str, document: Document) -> None:
        if key not in self._seen:
            self._load(key)
        # Whether or not the write succeeds, the cached revision is outdated now.
        self._ledger.store(key, document, self._seen.pop(key))


def _status(exc: Exception) -> int | None:
    """Return the HTTP status in an error of the task SDK, or None."""
    detail = getattr(getattr(exc, "error", None), "detail", None)
    status = detail.get("status_code") if isinstance(detail, Mapping) else None
    return status if isinstance(status, int) else None


def _shown(event: Document) -> Document:
    """Return the event as far as it fits into one row: ranges of thousands of partitions are in the
    marker."""
    if not split(event)[1]:
        return event
    return {name: value for name, value in event.items() if not isinstance(value, dict | list)}


def task_is_over(ti: Any) -> Callable[[str], bool]:
    """Return a function that is True for claimants whose task has ended, asked through the running
    task instance `ti` and cached.

    A claim names its task as ``<dag>|<run>|<task>|<map index>``. Adopting a claim of a live task is
    safe, since the sink's marker decides, but repeats work; never adopting one would block the
    group. So only final states count as ended, and unknown ones as alive. A task that succeeded and
    left its claim has planned for other tasks of its run: these may still read and commit until the
    run ends."""
    answers: dict[str, bool] = {}

    def is_over(claimant: str) -> bool:
        if claimant not in answers:
            answers[claimant] = _ask(ti, claimant)
        return answers[claimant]

    return is_over


def _ask(ti: Any, claimant: str) -> bool:
    parts = claimant.rsplit("|", 2)
    dag_id, _, run_id = parts[0].partition("|")
    if len(parts) != 3 or not run_id:
        return False
    task_id, map_index = parts[1], int(parts[2])
    try:
        if ti.get_dagrun_state(dag_id, run_id) in _RUN_OVER:
            return True
        states = ti.get_task_states(dag_id, run_ids=[run_id], task_ids=[task_id])
    except Exception as exc:
        detail = getattr(getattr(exc, "error", None), "detail", None)
        # The run was deleted, and its tasks with it.
        if isinstance(detail, dict) and detail.get("status_code") == _NOT_FOUND:
            return True
        raise
    name = task_id if map_index < 0 else f"{task_id}_{map_index}"
    return (states.get(run_id) or {}).get(name) in _TASK_OVER
