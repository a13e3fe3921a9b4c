"""Protocols and base classes of the stores, sinks and engines of a window run, with the values
exchanged.

`WindowRun` (`windows/run/steps.py`) decides *what* happens in which order. An `OffsetStore` keeps
progress, a `Sink` keeps records together with a marker, an `Engine` moves records. Implementations
are passive on purpose: they store and return documents and files, and never decide whether a window
is written, replayed or replaced.

This module must not import airflow, pyspark or pyarrow, and has no logic but neutral defaults.
Documents are plain JSON objects: strings, integers, lists and objects. No floats (Airflow's asset
state turns a nested NaN into null), no secrets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from tubemq_client.errors import ConfigError

if TYPE_CHECKING:
    from tubemq_provider.windows.anchors import Anchors
    from tubemq_provider.windows.facts import FileFact
    from tubemq_provider.windows.field_ids import FieldIds
    from tubemq_provider.windows.partitioning import PartitionBy
    from tubemq_provider.windows.plan import WindowPlan

__all__ = [
    "BoundaryBook",
    "ClaimStore",
    "Document",
    "Engine",
    "IngestCounts",
    "IngestWatch",
    "Marker",
    "OffsetStore",
    "OrderedBook",
    "Progress",
    "Publication",
    "Sink",
    "Staging",
    "Step",
    "StepObserver",
    "Suspended",
    "cannot_replace",
]

Document = dict[str, Any]
"""JSON object of strings, integers, lists and objects. Partition keys are ``"1:10002"``."""

Progress = Callable[[str], None]
"""Callback of engines and sinks inside a long step; takes a short name of the completed action.

It is a crash point for tests and a progress report for the operator. It may raise to stop the step
(a killed task), so its caller must be safe to abandon at that moment."""


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
    """Place for the files of one try of one window, used by no other try and not visible yet.

    `path` is an absolute local path of a directory that exists and is empty, or the URL of a prefix
    in an object store (``s3://…``), without secrets. `options` open that store; the rest comes from
    the environment of the writing process. Engines write Parquet files *directly there*, under
    names that no other task and no other try of a task uses, and that start with neither ``_`` nor
    ``.`` (`files.locations.location_of` opens the place). In a local directory, subdirectories such
    as ``partition=1%3A0/`` are allowed, and the sink removes the ``_SUCCESS``, ``_temporary`` and
    ``.crc`` files that Spark leaves. There is no ``data/`` level. Engines neither fsync nor rename
    nor write the marker.

    `final`: the files stay at their path, and `publish` only makes them visible.

    `partition_by`: rows with different values go into different files, and the facts of each file
    have its values (`files.partitioned` writes such files). A sink refuses files without them.

    `field_ids`: column numbers that writers put into the files (`files.field_ids`), for tables that
    find columns by number. Files without numbers are accepted.
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
    """Counts and facts of the files that an engine wrote for one plan.

    - `records`: rows by partition key, with an entry for **every** key of ``plan.ranges`` (0 for an
      empty partition); `bytes`: size of message bodies.
    - `gaps`: offset ranges by partition key that retention removed while reading under
      ``gap_policy="skip"``; `corrupt`: records left out under ``corrupt_records="drop"``.
    - `pieces`: sub-ranges actually read by key, if the engine knows them: the run checks that they
      tile the plan.
    - `last`: anchor of the last record read of each partition that had any.
    - `read`: records by partition key if decoding made more or fewer rows of them than `records`;
      None if the numbers are equal.
    - `notices`: records that are no row and no error, by kind: DDL, heartbeats, truncated tables.
    - `tables`: of routed windows, rows and records read of each table by its address.
    - `unrouted`: of routed windows, records by partition key that are in no table.
    - `routed`: of routed windows, rows of all tables by partition key. `records` are those in the
      sink itself, none.
    - `patterns`: of routed windows, the routes that there were.
    - `took_ms`: duration of reading, if it began before this run.
    - `files`: facts of each file, if the engine knows them. Only these files are published, and
      none is read again. None: the sink lists the files and reads their footers.
    - `quarantined`: the files with corrupt records among `files`, relative to the staging place.
      Neither `files` nor `quarantined` is stored.
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
    notices: Mapping[str, int] = field(default_factory=dict)
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    unrouted: Mapping[str, int] = field(default_factory=dict)
    routed: Mapping[str, int] = field(default_factory=dict)
    patterns: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Records over all partitions."""
        return sum(self.records.values())

    @property
    def published(self) -> Mapping[str, int]:
        """Rows by partition key, in the sink or in the tables of its routes."""
        return self.routed if self.tables else self.records


@dataclass(frozen=True, slots=True)
class Marker:
    """Proof, stored with the data, that a window is published: its plan, counts and files.

    `ref` names the published data for users and downstream tasks (a path or a version). `files` are
    relative to it. `partition_columns` are names and Arrow types of their partition columns.
    """

    plan: WindowPlan
    counts: IngestCounts
    ref: str
    files: tuple[str, ...] = ()
    partition_columns: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Publication:
    """Outcome of `Sink.publish`: the marker in the sink, and whether this call published it.

    `won` is False if another run published the window id first; `marker` is then that run's.
    """

    won: bool
    marker: Marker


@runtime_checkable
class BoundaryBook(Protocol):
    """Write-once store of the boundaries between time windows, outside anything Airflow can wipe.

    Keys and documents are defined by `windows.planning.boundary_book`."""

    def listing(self) -> Iterable[str]:
        """Return all keys, in no particular order, including each fixed before the call."""

    def read(self, key: str) -> Document | None:
        """Return the document fixed under `key` (``<instant>-<h>``), or None."""

    def fix(self, key: str, document: Document) -> Document:
        """Store `document` under `key` unless the key exists; return the stored document."""

    def withdraw(self, key: str) -> None:
        """Remove the document fixed under `key`, if any. For administrators only: no run does."""


@runtime_checkable
class OrderedBook(Protocol):
    """Boundary book that can list keys from a given one on, so that the cost of a listing does not
    grow with the book's age."""

    def listing_from(self, key: str) -> Iterable[str]:
        """Return all keys that sort at or after `key`, as `BoundaryBook.listing` does."""


@runtime_checkable
class OffsetStore(Protocol):
    """Progress of one (cluster, topic, group), as one try of one task accesses it.

    Four kinds of documents with different lifetimes: the *cursor* (one document), *stored plans*
    (one document per window id), the *task plan* (one document that survives retries and clears of
    the same task run, and is not shared with other runs), and *commit events* (append only).

    Every method is one remote action, after which the process may die. Reads return the stored
    document unchanged, or None. A store never interprets documents, except that `newest_position`
    looks for the member ``position``. No method is a compare-and-set: the last writer wins, and
    `WindowRun` tolerates that.

    Under Airflow: cursor and plans are keys ``cursor`` and ``win/<window id>`` of the offsets
    asset's state, the task plan is task state, events are outlet events of the offsets asset.
    """

    @property
    def writer(self) -> str:
        """Id of the writer: ``<dag>|<run>|<task>|<map index>`` or similar; kept in the cursor."""

    def load_cursor(self) -> Document | None:
        """Return the cursor, or None if there is none (never stored, or wiped)."""

    def store_cursor(self, document: Document) -> None:
        """Replace the cursor, in one write."""

    def load_plan(self, window_id: str) -> Document | None:
        """Return the plan stored under ``win/<window id>``, or None."""

    def store_plan(self, window_id: str, document: Document) -> None:
        """Replace the plan under ``win/<window id>``."""

    def forget_plan(self, window_id: str) -> None:
        """Remove ``win/<window id>`` if present (only ever called for published windows)."""

    def load_task_plan(self) -> Document | None:
        """Return the plan that an earlier try of this task run stored, or None."""

    def store_task_plan(self, document: Document) -> None:
        """Store the plan for later tries of this task run."""

    def newest_position(self) -> Document | None:
        """Return the newest commit event whose ``position`` is neither missing nor null, or None.

        It is the whole document that `emit` received. Only events of *successful* runs count.
        Events without a position (time windows) are skipped.
        """

    def emit(self, document: Document) -> None:
        """Emit the run's commit event, which becomes visible together with the task's success.

        At most one per try, before the last step. A store that cannot commit event and success in
        one transaction (files, memory) stores it at once.
        """


@runtime_checkable
class ClaimStore(OffsetStore, Protocol):
    """An `OffsetStore` whose cursor changes by compare-and-set, and so can hold claims: plans that
    concurrent runs of one group have reserved for themselves."""

    def change_cursor(
        self, change: Callable[[Document | None], Document | None]
    ) -> Document | None:
        """Replace the cursor by the result of `change` atomically, and return the new cursor.

        `change` may be called again after a conflict; if it returns None, nothing is written."""

    def is_over(self, claimant: str) -> bool:
        """Return True if the `writer` of that id will never write again."""

    def previous_cursor(self) -> Document | None:
        """Return the cursor that another kind of store kept for this group before, or None."""


class Sink(ABC):
    """Destination of records. Each window becomes visible whole, with its marker, or not at all.

    The methods after `tidy` have neutral defaults: a sink overrides what it can do.
    """

    kind: str
    """Name of the kind: ``parquet``."""
    identity: str
    """Identity of the sink (kind and normalised place); part of every window id."""
    exactly_once: bool = True
    """False only for sinks that append without a marker; the result reports it."""
    can_replace: ClassVar[bool] = False
    """True if `replace` works."""
    independent: ClassVar[bool] = False
    """True if sinks of this class at different places share nothing, such as a database's lock:
    several threads may then begin and publish in them, each in its own."""

    def serialize(self) -> Document:
        """Return what Airflow stores and shows of the object: its class, no options."""
        return _class_of(self)

    @property
    def boundaries(self) -> BoundaryBook | None:
        """Book of time boundaries stored with the data; None if the sink cannot store any."""
        return None

    @abstractmethod
    def marker(self, window_id: str) -> Marker | None:
        """Return the marker published under this id, or None.

        A returned marker is durable: it survives a crash of the machine. Raises `SinkDamaged` if
        something unreadable is in its place."""

    @abstractmethod
    def window_ids(self) -> Iterable[str]:
        """Return ids of all published windows, in no particular order."""

    def later_window_ids(self, low: str) -> Iterable[str]:  # noqa: ARG002
        """Return the ids of `window_ids`, but time windows that sort before `low` may be left out:
        a sink that leaves them out lists as little after thousands of windows as after ten."""
        return self.window_ids()

    @abstractmethod
    def begin(self, plan: WindowPlan, attempt: str) -> Staging:
        """Create an empty staging place that no other try, live or dead, uses: in the sink's own
        storage if possible, else a local directory of this machine."""

    @abstractmethod
    def publish(
        self,
        staging: Staging,
        plan: WindowPlan,
        counts: IngestCounts,
        progress: Progress,
    ) -> Publication:
        """Check that the staged files hold exactly `counts`, then make data and marker visible in
        one atomic step.

        If `counts` has facts of the files, they are compared with the plan and with names and sizes
        in the storage, and no record is read. If the id is already published, nothing changes, and
        the existing marker is returned with ``won=False``. Raises `CountMismatch` before anything
        becomes visible."""

    @abstractmethod
    def discard(self, staging: Staging) -> None:
        """Remove a staging place that will not be published. Never raises for missing files."""

    @abstractmethod
    def tidy(self, window_id: str) -> None:
        """Remove staging places that dead tries of a *published* window left. Best effort."""

    def book(self, name: str) -> BoundaryBook | None:  # noqa: ARG002
        """Return a book of documents beside the data, in the directory `name`; None if the sink
        cannot store any."""
        return None

    def quarantined(self, marker: Marker) -> Iterator[Any]:  # noqa: ARG002
        """Yield the quarantined records of a published window as `pyarrow.Table`s, always in the
        same order."""
        return iter(())

    @property
    def made_good(self) -> Mapping[str, list[str]]:
        """Windows that this run has published in tables that had failed to take them."""
        return {}

    def missing(self) -> str | None:
        """Return an error text with advice if the sink's place is missing, such as a file system
        that is not mounted; None if it exists, or if that cannot be checked."""
        return None

    def check_columns(self, columns: Any) -> None:  # noqa: B027 - any columns fit by default
        """Raise `ConfigError` if files with the `pyarrow.Schema` `columns` could not be published
        in the sink as it is now.

        Called before a record is read, so that a certain refusal costs no read. `publish` checks
        what depends on values or has changed meanwhile."""

    def recount(self, marker: Marker) -> Mapping[str, int] | None:  # noqa: ARG002
        """Return rows of a published window by partition key, as they are now; keys without rows
        may be left out. None: the sink cannot count them.

        Reads footers or one column, never all records. Raises `SinkDamaged` if a file is gone.
        """
        return None

    def holds(self, marker: Marker) -> bool | None:  # noqa: ARG002
        """Return True if the window of `marker` is part of the sink's present state, or if that is
        unknown; False if the sink was restored to a state before it, or its files or their table
        are gone; None if the sink cannot be restored without its markers.

        Rows that were deleted or merged since make no difference. Reads commits since the window's,
        or names of files, and no data."""
        return None

    def replace(
        self,
        staging: Staging,  # noqa: ARG002
        plan: WindowPlan,  # noqa: ARG002
        counts: IngestCounts,  # noqa: ARG002
        progress: Progress,  # noqa: ARG002
    ) -> Publication:
        """Publish like `publish`, but over a published window, in one atomic step: readers see all
        of the old or all of the new records. Raises `ConfigError` unless `can_replace`.

        If another try has replaced the window meanwhile, ``won`` is False and `marker` is that
        try's. Raises `StoreConflict` (retriable) while another try is replacing it, which may still
        fail."""
        raise cannot_replace(self.kind)


def _class_of(value: object) -> Document:
    return {"class": f"{type(value).__module__}.{type(value).__qualname__}"}


def cannot_replace(kind: str) -> ConfigError:
    """Return the error for a sink of this kind, which is asked to replace a window."""
    return ConfigError(
        f"on_clear='rewrite' needs a sink that replaces a window in one step; the {kind} sink "
        f"cannot",
        subject="policies",
    )


def _ignore(*_: object) -> None:
    """Receive a report and do nothing."""


@dataclass(frozen=True, slots=True)
class IngestWatch:
    """Callbacks for one ingest; none does anything by default.

    An engine calls four of them, as far as it knows: `progress` with the short name of a completed
    action (it may raise, which ends the ingest), `on_read` with a partition key, the records read
    of it so far and those read in all, `on_tasks` with the number of tasks of a Spark job that have
    ended, and of all, and `on_page` with the URL of Spark's UI. The run calls `on_begin` before the
    engine reads, and `on_end` with its counts.
    """

    progress: Progress = _ignore
    on_read: Callable[[WindowPlan, str, int, int], None] = _ignore
    on_tasks: Callable[[WindowPlan, int, int], None] = _ignore
    on_page: Callable[[str], None] = _ignore
    on_begin: Callable[[WindowPlan], None] = _ignore
    on_end: Callable[[WindowPlan, IngestCounts], None] = _ignore


class Engine(ABC):
    """Reader that moves exactly the records of a plan into a staging place.

    All but `name` and `ingest` has a neutral default, right for work that ends with its process.
    """

    resumes: ClassVar[bool] = False
    """True if its work may outlive the try that began it. A run then discards no staging place,
    since another try may publish its files; `Sink.tidy` removes them."""

    plan_hash: str | None = None
    """Hash of the only plan that it accepts, because the window was read before the run began and
    `ingest` returns reported counts; a run then plans no other window. None: it reads any plan."""

    def serialize(self) -> Document:
        """Return what Airflow stores and shows of the object: its class, no options."""
        return _class_of(self)

    @property
    @abstractmethod
    def name(self) -> str:
        """Name, such as ``inline`` or ``session``; recorded in results."""

    @abstractmethod
    def ingest(self, plan: WindowPlan, staging: Staging, watch: IngestWatch) -> IngestCounts:
        """Write every record of ``plan.reads()`` once, and no other, as Parquet files into
        `staging`; return counts, and facts of the files if it knows them. Raises at the first
        inconsistency, and leaves its files behind.

        Columns (a subset is allowed, but keep ``partition``: the sink counts by it): topic,
        partition (``"1:0"``), offset, batch_offset, message_id, msg_time, stream_id, attributes,
        value.
        """

    def into(self, sink: Sink) -> Engine:
        """Return the same engine for the tables of `sink`, which has routes. Raises `ConfigError`
        for an engine that writes one table only."""
        raise ConfigError(
            f"engine={self.name!r} writes one table; use engine='inline', 'session', 'submit' or "
            f"'connect' for {sink!r}",
            subject="routes",
        )

    def cancel(self) -> None:  # noqa: B027 - an engine may have nothing to stop
        """Ask a running `ingest` to stop soon. Called from a signal handler or another thread."""

    def belong_to(self, task: str) -> None:  # noqa: B027 - by default all tries are alike
        """Set the owning task: the `OffsetStore.writer` that all its tries have in common. An
        engine that stops the remote work of earlier tries stops none of other tasks."""

    def place(self, plan: WindowPlan, staging: Staging) -> Staging:  # noqa: ARG002
        """Return the staging place to pass to `ingest`: `staging`, or that of an earlier try of the
        same work which is still running, or has finished and was not published."""
        return staging

    def abandoned(self, plan: WindowPlan) -> Iterable[str]:  # noqa: ARG002
        """Return ids of windows of the plan's scope, possibly its own, whose work still runs and no
        run awaits: another run, elsewhere, may have published them."""
        return ()

    def end_abandoned(self, window_id: str) -> None:  # noqa: B027
        """Stop such work of a published window. `Sink.tidy` removes its files."""

    def may_suspend(self) -> None:  # noqa: B027 - without effect if the work ends with the process
        """Let `ingest` raise `Suspended` as soon as its work needs no waiting process and can be
        found again."""

    def expect(self, ticket: Document) -> None:  # noqa: B027
        """Resume the work of `ticket`, with which `Suspended` ended an earlier run of the task.

        Its outcome counts even if it is an error. The work is restarted only if it cannot be found
        here, and is not suspended again."""


class Suspended(BaseException):
    """Planned end of a run whose work continues without it, e.g. while its task is deferred.

    Not an `Exception`, so that nothing is cleaned up. A later run of the same task publishes.
    `ticket` identifies the work: plain JSON, no secrets."""

    def __init__(self, ticket: Document) -> None:
        self.ticket = ticket
        super().__init__(f"suspended: {ticket}")


@runtime_checkable
class StepObserver(Protocol):
    """Observer of every point between two actions of a run.

    Tests stop or kill runs here; the operator logs. It may raise: the run then ends as if the
    process had died at that point."""

    def at(self, step: Step, point: str) -> None:
        """Receive a point: ``begin``, ``end``, or the name of the action just completed."""
