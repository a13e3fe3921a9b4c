"""Offset store `asset_state`: progress in Airflow's asset state, task state and asset events.

The default `OffsetStore`. It maps the documents of the protocol to the accessors of a running task:
cursor and plans are keys of the offsets asset's state, the task plan is task state, commit events
are outlet events of the offsets asset. It decides nothing and never combines two writes: Airflow's
stores are plain upserts without a version, which `WindowRun` tolerates.

The accessors come from the task's context and are used by shape only, so this module imports
nothing of Airflow. Every method is one request to the API server, some milliseconds each. A try
that Airflow has given up on cannot write: its requests get a 404.
"""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from tubemq_client.errors import ConfigError
from tubemq_provider.offsets.chunking import ChunksMissing, chunk_names, join
from tubemq_provider.offsets.commit_events import (
    EVENT_KEY,
    OutletEvent,
    RecentEvents,
    give_event,
    newest_position,
    writer_of,
)
from tubemq_provider.offsets.document_state import DocumentState, StateAccessor, TaskStatePlan
from tubemq_provider.offsets.ledger.envelope import CURSOR as LEDGER_CURSOR
from tubemq_provider.offsets.ledger.envelope import PIECE, PREFIX
from tubemq_provider.windows.errors import DocumentError
from tubemq_provider.windows.plan import named_group
from tubemq_provider.windows.planning.claims import windows_beyond
from tubemq_provider.windows.spaces import FIRST_SOURCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tubemq_provider.windows.protocols import Document

__all__ = [
    "EVENT_KEY",
    "PROGRESS",
    "TIMELINE",
    "AssetProgress",
    "AssetStateOffsetStore",
    "AssetTimeline",
    "refuse_claims",
]

_CURSOR = "cursor"
_PLAN = "win/"
TIMELINE: Final = "watch"
"""Key of the asset state with samples of ends."""
PROGRESS: Final = "progress"
"""Key of the task state with the progress of a running task."""


class InletEvents(Protocol):
    """Airflow's accessor of one inlet's events: configure, then iterate."""

    def ascending(self, ascending: bool = ...) -> InletEvents: ...  # noqa: FBT001

    def limit(self, limit: int) -> InletEvents: ...

    def __iter__(self) -> Any: ...


class _NoState:
    """Asset state for an Airflow that keeps none."""

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ARG002 - as Airflow's
        return default

    def set(self, key: str, value: Any) -> None:  # noqa: ARG002 - as Airflow's
        raise ConfigError(f"this Airflow keeps no state of assets: {key}", subject="asset state")

    def delete(self, key: str) -> None:
        """Do nothing: there is no state."""


_NO_STATE: Final = _NoState()


class AssetTimeline:
    """`TimelineStore` in the state of the offsets asset, key ``watch``."""

    def __init__(self, asset_state: StateAccessor) -> None:
        self._documents = DocumentState(asset_state)

    def load_timeline(self) -> Document | None:
        """Return the timeline, or None. Raises `DocumentError` for another value."""
        return self._documents.load(TIMELINE)

    def store_timeline(self, document: Document) -> None:
        """Replace the timeline, in one write."""
        self._documents.store(TIMELINE, document)


class AssetProgress:
    """Cursor and commit events, readable by any task that has the offsets asset as inlet."""

    def __init__(self, asset_state: StateAccessor, inlet_events: InletEvents) -> None:
        self._asset_state = asset_state
        self._documents = DocumentState(asset_state)
        self._inlet_events = inlet_events
        self._recent = RecentEvents(inlet_events)

    @classmethod
    def of_inlet(cls, context: Mapping[str, Any], asset: Any) -> AssetProgress:
        """Return the progress on `asset`, an inlet of the running task. Airflow before 3.3 keeps no
        asset state: then only commit events have it."""
        states = context.get("asset_state_store")
        state = _NO_STATE if states is None else states[asset]
        return AssetProgress(state, context["inlet_events"][asset])

    def load_cursor(self) -> Document | None:
        """Return the cursor, or None. Raises `DocumentError` for another value."""
        return self._documents.load(_CURSOR)

    def newest_position(self) -> Document | None:
        """Return the newest commit event with a position, or None.

        Normally one request. Only after many events without a position it requests more, in pages
        of growing size.
        """
        return newest_position(self._inlet_events)

    def recent_events(self) -> Iterable[Document]:
        """Return some of the newest commit events, newest first, in up to three requests."""
        return self._recent


class AssetStateOffsetStore(AssetProgress):
    """Offset store of one try of one task; see `OffsetStore` for the guarantees."""

    def __init__(
        self,
        *,
        asset_state: StateAccessor,
        task_state: StateAccessor,
        inlet_events: InletEvents,
        outlet_event: OutletEvent,
        writer: str,
    ) -> None:
        super().__init__(asset_state, inlet_events)
        self._task_plan = TaskStatePlan(task_state)
        self._outlet_event = outlet_event
        self._writer = writer

    @classmethod
    def from_context(cls, context: Mapping[str, Any], asset: Any) -> Self:
        """Create the store of the running task, which must have `asset` as inlet and outlet."""
        return cls(
            asset_state=context["asset_state_store"][asset],
            task_state=context["task_state_store"],
            inlet_events=context["inlet_events"][asset],
            outlet_event=context["outlet_events"][asset],
            writer=writer_of(context["ti"]),
        )

    def load_timeline(self) -> Document | None:
        """Return the samples of ends that another task stores on the same asset, or None."""
        return AssetTimeline(self._asset_state).load_timeline()

    @property
    def writer(self) -> str:
        """Id of the writer, ``<dag>|<run>|<task>|<map index>``."""
        return self._writer

    def load_cursor(self) -> Document | None:
        """Return the cursor, or None. Raises `DocumentError` for another value.

        Raises `errors.ConfigError` if the group has claimed windows in the ledger. Runs also load
        the cursor before they publish, as the group may have moved to the ledger since."""
        refuse_claims(self._asset_state)
        return super().load_cursor()

    def store_cursor(self, document: Document) -> None:
        """Replace the cursor, in one write."""
        self._documents.store(_CURSOR, document)

    def load_plan(self, window_id: str) -> Document | None:
        """Return the plan stored for a window, or None; also None if chunks of it are missing.

        Chunks are missing if another run published the window and forgot its plan during the write:
        then the marker has the plan. Otherwise nothing was read by this plan yet."""
        try:
            return self._documents.load(_PLAN + window_id)
        except ChunksMissing:
            return None

    def store_plan(self, window_id: str, document: Document) -> None:
        """Replace the plan stored for a window."""
        self._documents.store(_PLAN + window_id, document)

    def forget_plan(self, window_id: str) -> None:
        """Remove the plan stored for a window, if there is one."""
        self._documents.delete(_PLAN + window_id)

    def load_task_plan(self) -> Document | None:
        """Return the plan that an earlier try of this task run stored, or None."""
        return self._task_plan.load()

    def store_task_plan(self, document: Document) -> None:
        """Store the plan for later tries of this task run."""
        self._task_plan.store(document)

    def emit(self, document: Document) -> None:
        """Emit the commit event; Airflow stores it in the transaction of the task's success."""
        give_event(self._outlet_event, document)


def refuse_claims(state: StateAccessor) -> None:
    """Raise `ConfigError` if the ledger has windows of this group beyond its position, and
    `DocumentError` if its copy was edited and is invalid.

    Windows that were claimed there, or published after a claimed one, lie beyond the position in
    commit events: a run that does not use the ledger would store their records a second time. The
    ledger is read through asset state: with its backend the value comes from its tables, without it
    from the copy in Airflow's table."""
    value = state.get(LEDGER_CURSOR)
    if not isinstance(value, dict):
        return
    book = value.get("doc", value)
    if not isinstance(book, dict):
        raise DocumentError(f"ledger key {LEDGER_CURSOR!r}", [f"it is {book!r}, not an object"])
    names = [f"{PIECE}{LEDGER_CURSOR.removeprefix(PREFIX)}/{name}" for name in chunk_names(book)]
    chunks = [state.get(name) for name in names]
    if names and None not in chunks:
        book = join(book, [chunk.get("doc") for chunk in chunks], LEDGER_CURSOR)
    windows = windows_beyond(book)
    if windows or chunk_names(book):
        raise ConfigError(
            f"the ledger has windows of this group that are claimed or wait for a claimed one "
            f"({', '.join(windows) or 'too many to be read from here'}): let runs with "
            f"offset_store='ledger' finish them, {_way_out(value, book)}",
            subject="offset_store",
        )


def _way_out(value: dict[str, Any], book: dict[str, Any]) -> str:
    """Return other advice. Deleting the key helps only without a ledger, which keeps its cursor."""
    if value.get("ledger") == 1:
        plans = [claim.get("plan", {}) for claim in book.get("pending", {}).values()]
        source = next((plan["source"] for plan in plans if "source" in plan), FIRST_SOURCE)
        names = [str(book.get(name)) for name in ("cluster", "topic", "group")]
        asset = quote(named_group(source, *names))
        return (
            f"after 'airflow tubemq offsets adopt {asset}' if their tasks are gone; or 'airflow "
            f"tubemq offsets rebuild {asset} --sink SINK' notes those that are in the sink, and "
            f"with --drop-claims forgets the others"
        )
    return (
        f"or, as this Airflow has no ledger any more, remove the key {LEDGER_CURSOR!r} from the "
        f"asset's state if all of them are known to be in the sink"
    )
