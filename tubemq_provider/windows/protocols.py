"""The three ways out of a window run, the observer of its steps, and the values they exchange.

`WindowRun` (`windows/run/steps.py`) decides *what* happens in which order; an `OffsetStore` keeps
progress, a `Sink` keeps records together with a marker, an `Engine` moves records. Implementations
are dumb on purpose: they store and return documents and files, and never decide whether a window
is written, replayed or replaced.

This module must not import airflow, pyspark or pyarrow, and holds no logic beyond checking values.
Documents are plain JSON objects: strings, integers, lists and objects. No floats (Airflow's asset
state turns a nested NaN into null), no secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from tubemq_provider.windows.anchors import Anchors
    from tubemq_provider.windows.facts import FileFact
    from tubemq_provider.windows.field_ids import FieldIds
    from tubemq_provider.windows.partitioning import PartitionBy
    from tubemq_provider.windows.plan import WindowPlan

__all__ = [
    "AbandoningEngine",
    "BoundaryBook",
    "ClaimStore",
    "CountedEngine",
    "Document",
    "Engine",
    "IngestCounts",
    "Marker",
    "OffsetStore",
    "OrderedBook",
    "OwnedEngine",
    "PlacedSink",
    "Progress",
    "Publication",
    "RecountingSink",
    "ReplacingSink",
    "ResumingEngine",
    "Sink",
    "Staging",
    "Step",
    "StepObserver",
    "Suspended",
    "SuspendingEngine",
]

Document = dict[str, Any]
"""A JSON object of strings, integers, lists and objects. Partition keys are ``"1:10002"``."""

Progress = Callable[[str], None]
"""Called by engines and sinks from inside a long step with a short name of what was just done.

It is a crash point for the tests and a sign of life for the operator; it may raise to stop the
step (a killed task), so its caller must be safe to abandon at that moment."""


class Step(StrEnum):
    """The eight steps of a window run, in order."""

    LOAD = "load"
    PLAN = "plan"
    CHECK = "check_marker"
    INGEST = "ingest"
    PUBLISH = "publish"
    ADVANCE = "advance"
    COMMIT = "commit_event"
    MIRROR = "mirror"


@dataclass(frozen=True, slots=True)
class Staging:
    """Where one try writes the files of one window: a storage and a prefix in it that no other try
    uses; nothing there is visible yet.

    `path` is an absolute local path of a directory that exists and is empty, or the URL of a prefix
    in an object store (``s3://…``), without secrets; `options` open that store, and what they leave
    out comes from the environment of the writing process. Engines write Parquet files *directly
    there*, under names that no other task and no other try of a task uses, and that start with
    neither ``_`` nor ``.`` (`files.locations.location_of` gives them the place). In a local
    directory, subdirectories such as ``partition=1%3A0/`` are fine, and the ``_SUCCESS``,
    ``_temporary`` and ``.crc`` files that Spark leaves are removed by the sink. There is no
    ``data/`` level. Engines neither fsync nor rename nor write the marker.

    `final` says that the files are where they will stay, and `publish` only says so.

    `partition_by`: rows that differ in it belong into different files, and the facts of each have
    its values (`files.partitioned` writes such files); a sink refuses files without them.

    `field_ids`: numbers of columns that writers put into the files (`files.field_ids`), for tables
    that find columns by number; files without any are taken too.
    """

    window_id: str
    attempt: str
    path: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    final: bool = False
    partition_by: PartitionBy | None = None
    field_ids: FieldIds | None = None


@dataclass(frozen=True, slots=True)
class IngestCounts:
    """What an engine wrote for one plan.

    `records` has an entry for **every** key of ``plan.ranges`` (0 where nothing was there); `bytes`
    counts message bodies. `gaps` are offset ranges per partition key that retention took while
    reading under ``gap_policy="skip"``; `corrupt` counts records left out under
    ``corrupt_records="drop"``. `pieces` are the sub-ranges actually read per key, if
    the engine knows them: the run checks that they tile the plan. `last` is the last record read of
    each partition that had any. `read` counts records where `records` are rows that decoding made
    of them, more or fewer; None: they are the same. `took_ms` is how long the engine took, where
    that was not all in this run.

    `files` says what each file holds, if the engine knows: only these are published, and nobody
    reads them again. None: the sink finds the files and reads their footers. `quarantined` are then
    the files of corrupt records among them, relative to the staging place too. Neither is kept.
    """

    records: Mapping[str, int]
    bytes: int = 0
    gaps: Mapping[str, list[list[int]]] = field(default_factory=dict)
    corrupt: int = 0
    pieces: Mapping[str, list[list[int]]] | None = None
    last: Anchors = field(default_factory=dict)
    files: tuple[FileFact, ...] | None = field(default=None, repr=False, compare=False)
    quarantined: tuple[str, ...] = field(default=(), repr=False, compare=False)
    read: Mapping[str, int] | None = None
    took_ms: int | None = field(default=None, compare=False)

    @property
    def total(self) -> int:
        """Records over all partitions."""
        return sum(self.records.values())


@dataclass(frozen=True, slots=True)
class Marker:
    """Proof, kept with the data, that a window is written: its whole plan, counts and files.

    `ref` names the published data for people and downstream tasks (a path or a version). `files`
    are relative to it. `partition_columns` are names and Arrow types of what they are apart by.
    """

    plan: WindowPlan
    counts: IngestCounts
    ref: str
    files: tuple[str, ...] = ()
    partition_columns: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Publication:
    """Outcome of `Sink.publish`: the marker that is now in the sink, and whether it is ours.

    `won` False means another run published the same window id first; `marker` is then theirs.
    """

    won: bool
    marker: Marker


@runtime_checkable
class BoundaryBook(Protocol):
    """Where boundaries between time windows are fixed once, outside anything Airflow can wipe.

    What belongs under which key is the business of `windows.planning.boundary_book`."""

    def listing(self) -> Iterable[str]:
        """All keys, in no particular order; each that was fixed before the call is among them."""

    def read(self, key: str) -> Document | None:
        """The document fixed under `key` (``<instant>-<h>``), or None."""

    def fix(self, key: str, document: Document) -> Document:
        """Store `document` under `key` only if nothing is there; returns what is there now."""

    def take_back(self, key: str) -> None:
        """Remove what is fixed under `key`, if anything. For operators only: runs never do."""


@runtime_checkable
class OrderedBook(Protocol):
    """A boundary book that can leave out early keys of a listing, so that one of many years costs
    what one of a day does."""

    def listing_from(self, key: str) -> Iterable[str]:
        """All keys that sort at or after `key`, as `BoundaryBook.listing` gives them."""


@runtime_checkable
class OffsetStore(Protocol):
    """Progress of one (cluster, topic, group), seen by one try of one task.

    Four places with different lifetimes: the *cursor* (one document), *stored plans* (one document
    per window id), the *task plan* (one document that survives retries and clears of the same task
    run, and is not shared with other runs), and *commit events* (append only).

    Every method is one remote action and may be followed by the death of the process. Reads return
    what was written, unchanged, or None; a store never interprets documents, except that
    `newest_position` looks for the member ``position``. No method is a compare-and-set: the last
    writer wins, and `WindowRun` is built for that.

    Under Airflow: cursor and plans are keys ``cursor`` and ``win/<window id>`` of the offsets
    asset's state, the task plan is task state, events are outlet events of the offsets asset.
    """

    @property
    def writer(self) -> str:
        """The writer: ``<dag>|<run>|<task>|<map index>`` or similar. Recorded in the cursor."""

    def load_cursor(self) -> Document | None:
        """The cursor, or None if there is none (never stored, or wiped)."""

    def store_cursor(self, document: Document) -> None:
        """Replace the cursor, in one write."""

    def load_plan(self, window_id: str) -> Document | None:
        """The plan stored under ``win/<window id>``, or None."""

    def store_plan(self, window_id: str, document: Document) -> None:
        """Replace the plan under ``win/<window id>``."""

    def forget_plan(self, window_id: str) -> None:
        """Remove ``win/<window id>`` if present (only ever called for published windows)."""

    def load_task_plan(self) -> Document | None:
        """The plan that an earlier try of this very task run kept, or None."""

    def store_task_plan(self, document: Document) -> None:
        """Keep the plan for later tries of this task run."""

    def newest_position(self) -> Document | None:
        """The newest commit event whose ``position`` is present (not missing, not null), or None.

        The whole event document as it was given to `emit`. Only events of *successful* runs
        count. Events without a position (time windows) are passed over.
        """

    def emit(self, document: Document) -> None:
        """Give the run's commit event. It becomes visible together with the task's success.

        At most one per try; called before the last step. Where success and event cannot be one
        transaction (files, memory), it is stored at once.
        """


@runtime_checkable
class ClaimStore(OffsetStore, Protocol):
    """An `OffsetStore` whose cursor changes by compare-and-set, and so may hold claims: plans that
    runs of one group have taken for themselves, side by side."""

    def change_cursor(
        self, change: Callable[[Document | None], Document | None]
    ) -> Document | None:
        """Replace the cursor by what `change` makes of it, in one step; `change` may be asked
        again, and leaves things as they are by returning None. Returns what is there then."""

    def is_over(self, claimant: str) -> bool:
        """Whether the `writer` of that name will never write again."""

    def previous_cursor(self) -> Document | None:
        """A cursor that another kind of store kept for this group before, or None."""


@runtime_checkable
class Sink(Protocol):
    """Where records end up, each window with its marker, whole or not at all."""

    @property
    def kind(self) -> str:
        """A word: ``parquet``."""

    @property
    def identity(self) -> str:
        """What makes this sink this sink (kind and normalised place); part of every window id."""

    @property
    def exactly_once(self) -> bool:
        """False only for sinks that append without a marker; the result says so."""

    @property
    def boundaries(self) -> BoundaryBook | None:
        """Where time boundaries are fixed beside the data, or None if the sink has no place."""

    def marker(self, window_id: str) -> Marker | None:
        """The marker published under this id, or None; what is reported survives a crash of the
        machine. Raises `SinkDamaged` if something unreadable is in its place."""

    def window_ids(self) -> Iterable[str]:
        """Ids of all published windows, in no particular order."""

    def begin(self, plan: WindowPlan, attempt: str) -> Staging:
        """A fresh, empty staging place that no other try, live or dead, uses: on the sink's own
        storage where it can, else a local directory of this machine."""

    def publish(
        self,
        staging: Staging,
        plan: WindowPlan,
        counts: IngestCounts,
        progress: Progress,
    ) -> Publication:
        """Check that the staged files hold exactly `counts`, then make data and marker visible in
        one atomic step. Where `counts` has facts of the files, they are held against the plan and
        against the names and sizes in the storage, and no record is read. If the id is already
        published, nothing changes and the marker found is returned with ``won=False``. Raises
        `CountMismatch` before anything becomes visible."""

    def discard(self, staging: Staging) -> None:
        """Drop a staging place that will not be published. Never raises for missing files."""

    def tidy(self, window_id: str) -> None:
        """Drop what dead tries of a *published* window left in staging. Best effort."""


@runtime_checkable
class RecountingSink(Protocol):
    """A sink that can say what it holds of a window now, and not only what the marker says."""

    def recount(self, marker: Marker) -> Mapping[str, int]:
        """Rows by partition key as they are in the sink; keys without rows may be left out.

        Reads footers or one column, never all records. Raises `SinkDamaged` if a file is gone.
        """


@runtime_checkable
class RestorableSink(Protocol):
    """A sink that can be taken back to an earlier state and leave markers of later windows."""

    def holds(self, marker: Marker) -> bool:
        """Whether the window of `marker` is part of the sink's present state; True where nothing
        tells. Rows that were deleted or merged since make no difference. Reads what was committed
        since the window was, and no data."""


@runtime_checkable
class PlacedSink(Protocol):
    """A sink at a place that may be away, as a file system that is not mounted."""

    def missing(self) -> str | None:
        """What to say, and to do, if the place is not there; None if it is, or cannot be asked."""


@runtime_checkable
class SchemaSink(Protocol):
    """A sink into which not all columns fit: it has some of its own, or names mean something."""

    def check_columns(self, columns: Any) -> None:
        """Raise `ConfigError` if files with `columns`, a `pyarrow.Schema` as they say it, could not
        be published as the sink is now. Asked before a record is read, so that nobody waits for a
        refusal that is certain; what only values decide, and what changes meanwhile, `publish`
        judges."""


@runtime_checkable
class ReplacingSink(Protocol):
    """A sink that can put other records in a published window's place in one step."""

    def replace(
        self,
        staging: Staging,
        plan: WindowPlan,
        counts: IngestCounts,
        progress: Progress,
    ) -> Publication:
        """Like `Sink.publish`, for a window that is published: readers see all of the old or all
        of the new records. If another try has replaced it meanwhile, ``won`` is False and `marker`
        is theirs; if another is about to, `StoreConflict` (retriable): it may never come to it."""


@runtime_checkable
class Engine(Protocol):
    """Moves exactly the records of a plan into a staging place."""

    @property
    def name(self) -> str:
        """``inline``, ``session``, …; recorded in results."""

    def ingest(self, plan: WindowPlan, staging: Staging, progress: Progress) -> IngestCounts:
        """Write every record of ``plan.reads()`` once, none outside, as Parquet files into
        `staging`; returns counts, and facts of the files where it knows them. Raises on the first
        doubt; leaves files lying about.

        Columns (a subset is allowed, but keep ``partition``: the sink counts by it): topic,
        partition (``"1:0"``), offset, batch_offset, message_id, msg_time, stream_id, attributes,
        value.
        """

    def cancel(self) -> None:
        """Ask a running `ingest` to stop soon; called from a signal handler or another thread."""


@runtime_checkable
class CountedEngine(Protocol):
    """An engine that reads nothing: the window of `plan_hash` was read before the run began, and it
    has its counts. No other window is of use to it, so a run plans none."""

    @property
    def plan_hash(self) -> str:
        """The hash of the only plan that it takes."""


@runtime_checkable
class ResumingEngine(Protocol):
    """An engine whose work may outlive the try that began it. Staging places that it was given are
    left to `Sink.tidy`: another try may be about to publish what is in them."""

    def place(self, plan: WindowPlan, staging: Staging) -> Staging:
        """The staging place that `ingest` is to be given: `staging`, or that of an earlier try of
        just this work, which goes on, or is done and was not published."""


@runtime_checkable
class AbandoningEngine(Protocol):
    """An engine whose work may go on after another run, elsewhere, has published the window."""

    def abandoned(self, plan: WindowPlan) -> Iterable[str]:
        """Windows like that of `plan`, and perhaps its own, with work that no run waits for now."""

    def end_abandoned(self, window_id: str) -> None:
        """End such work of a window that is published; what it wrote is for `Sink.tidy`."""


class Suspended(BaseException):
    """A run that ends on purpose while its work goes on without it; no failure, so that nothing is
    cleared up. A later run of the same task publishes. `ticket` finds the work again: plain JSON,
    no secrets."""

    def __init__(self, ticket: Document) -> None:
        self.ticket = ticket
        super().__init__(f"suspended: {ticket}")


@runtime_checkable
class SuspendingEngine(ResumingEngine, Protocol):
    """A resuming engine whose work needs no process that waits for it."""

    def may_suspend(self) -> None:
        """Let `ingest` raise `Suspended` as soon as its work goes on alone and can be found."""

    def expect(self, ticket: Document) -> None:
        """This run goes on where `Suspended` ended an earlier one of the task: with just that work
        and its outcome, also if that is an error. It is not begun anew unless it cannot be found
        here, and never suspended again."""


@runtime_checkable
class OwnedEngine(Engine, Protocol):
    """An engine that ends what an earlier try of the same task has left elsewhere, and leaves alone
    what another task does there for the same window."""

    def belong_to(self, task: str) -> None:
        """Work for `task`, the `OffsetStore.writer` that all its tries have in common."""


@runtime_checkable
class StepObserver(Protocol):
    """Told about every point between two actions of a run. Tests stop or kill runs here; the
    operator logs. It may raise: the run then ends as if the process had died at that point."""

    def at(self, step: Step, point: str) -> None:
        """`point` is ``begin``, ``end``, or the name of the action just completed."""
