"""Progress in Airflow's own metadata: asset state, task state and asset events.

The default `OffsetStore`. It maps the four places of the protocol onto what a running task is
handed: cursor and plans are keys of the offsets asset's state, the task plan is task state, commit
events are outlet events of the offsets asset. It decides nothing and never combines two writes:
Airflow's stores are plain upserts without a version, and `WindowRun` is built for that.

The accessors come from the task's context and are used by shape only, so this module imports
nothing of Airflow. Every method is one request to the API server, some milliseconds each; a try
that Airflow has given up on cannot write (its requests answer 404).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from tubemq_client.errors import ConfigError
from tubemq_provider.offsets.chunking import PiecesMissing
from tubemq_provider.offsets.commit_events import (
    EVENT_KEY,
    OutletEvent,
    RecentEvents,
    give_event,
    newest_position,
    writer_of,
)
from tubemq_provider.offsets.document_state import DocumentState, StateAccessor, TaskStatePlan
from tubemq_provider.offsets.ledger.claims_guard import refuse_claims

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
]

_CURSOR = "cursor"
_PLAN = "win/"
TIMELINE: Final = "watch"
"""The key of samples of ends."""
PROGRESS: Final = "progress"
"""The key of task state under which a running task tells how far it has come."""


class InletEvents(Protocol):
    """Airflow's accessor of one inlet's events: configure, then iterate."""

    def ascending(self, ascending: bool = ...) -> InletEvents: ...  # noqa: FBT001

    def limit(self, limit: int) -> InletEvents: ...

    def __iter__(self) -> Any: ...


class _NoState:
    """State of an asset where Airflow keeps none."""

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ARG002 - as Airflow's
        return default

    def set(self, key: str, value: Any) -> None:  # noqa: ARG002 - as Airflow's
        raise ConfigError(f"this Airflow keeps no state of assets: {key}", subject="asset state")

    def delete(self, key: str) -> None:
        """Nothing is there."""


_NO_STATE: Final = _NoState()


class AssetTimeline:
    """A `TimelineStore`: the samples of ends that are kept beside the progress, key ``watch``."""

    def __init__(self, asset_state: StateAccessor) -> None:
        self._documents = DocumentState(asset_state)

    def load_timeline(self) -> Document | None:
        """The timeline, or None. Raises `DocumentError` if something else is stored."""
        return self._documents.load(TIMELINE)

    def store_timeline(self, document: Document) -> None:
        """Replace the timeline, in one write."""
        self._documents.store(TIMELINE, document)


class AssetProgress:
    """What any task may read that has the offsets asset as inlet: cursor and commit events."""

    def __init__(self, asset_state: StateAccessor, inlet_events: InletEvents) -> None:
        self._asset_state = asset_state
        self._documents = DocumentState(asset_state)
        self._inlet_events = inlet_events
        self._recent = RecentEvents(inlet_events)

    @classmethod
    def of_inlet(cls, context: Mapping[str, Any], asset: Any) -> AssetProgress:
        """The progress kept on `asset`, an inlet of the running task. Airflow before 3.3 keeps no
        state of assets: there it is what commit events say."""
        states = context.get("asset_state_store")
        state = _NO_STATE if states is None else states[asset]
        return AssetProgress(state, context["inlet_events"][asset])

    def load_cursor(self) -> Document | None:
        """The cursor, or None. Raises `DocumentError` if something else is stored."""
        return self._documents.load(_CURSOR)

    def newest_position(self) -> Document | None:
        """The newest commit event that has a position, or None if no event has one.

        Normally one request for a few events; only a long row of events without a position makes
        it ask for more, ten times as many each time.
        """
        return newest_position(self._inlet_events)

    def recent_events(self) -> Iterable[Document]:
        """The newest commit events, the newest first: some, in up to three requests."""
        return self._recent


class AssetStateOffsetStore(AssetProgress):
    """The store of one try of one task; see `OffsetStore` for what each method promises."""

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
        """The store for the running task, which must have `asset` as inlet and as outlet."""
        return cls(
            asset_state=context["asset_state_store"][asset],
            task_state=context["task_state_store"],
            inlet_events=context["inlet_events"][asset],
            outlet_event=context["outlet_events"][asset],
            writer=writer_of(context["ti"]),
        )

    def load_timeline(self) -> Document | None:
        """The samples of ends that another task keeps on the same asset, or None."""
        return AssetTimeline(self._asset_state).load_timeline()

    @property
    def writer(self) -> str:
        """`<dag>|<run>|<task>|<map index>`."""
        return self._writer

    def load_cursor(self) -> Document | None:
        """The cursor, or None. Raises `DocumentError` if something else is stored, and
        `errors.ConfigError` if the group has windows under way in the ledger: also before a run
        publishes, as the group may have moved there since it began."""
        refuse_claims(self._asset_state)
        return super().load_cursor()

    def store_cursor(self, document: Document) -> None:
        """Replace the cursor, in one write."""
        self._documents.store(_CURSOR, document)

    def load_plan(self, window_id: str) -> Document | None:
        """The plan stored for a window, or None. One without its pieces is none: another run has
        published the window and forgotten its plan while this one was stored, so that the sink's
        marker has it; and else nothing was read by it that another plan would repeat."""
        try:
            return self._documents.load(_PLAN + window_id)
        except PiecesMissing:
            return None

    def store_plan(self, window_id: str, document: Document) -> None:
        """Replace the plan stored for a window."""
        self._documents.store(_PLAN + window_id, document)

    def forget_plan(self, window_id: str) -> None:
        """Remove the plan stored for a window, if there is one."""
        self._documents.delete(_PLAN + window_id)

    def load_task_plan(self) -> Document | None:
        """The plan that an earlier try of this task run kept, or None."""
        return self._task_plan.load()

    def store_task_plan(self, document: Document) -> None:
        """Keep the plan for later tries of this task run."""
        self._task_plan.store(document)

    def emit(self, document: Document) -> None:
        """Give the commit event; Airflow records it in the transaction of the task's success."""
        give_event(self._outlet_event, document)
