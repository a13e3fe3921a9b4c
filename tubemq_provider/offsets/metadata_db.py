"""Progress in Airflow's metadata database: assets, their state, their events, the ledger.

For code with access to the metadata database instead of a task: the command line, pages. Values are
written through the configured state backend, exactly where a task's store reads them. The only
module here that opens a session; it decides nothing.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple

from airflow.models.asset import AssetEvent, AssetModel, TaskOutletAssetReference
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import func, inspect, or_, select

from tubemq_client import errors
from tubemq_provider._airflow import AssetScope, TaskScope, get_state_backend, has_asset_state
from tubemq_provider.offsets.asset_state import PROGRESS, TIMELINE
from tubemq_provider.offsets.commit_events import commit_event
from tubemq_provider.offsets.document_state import DocumentState
from tubemq_provider.offsets.ledger.backend import TubeMQStateBackend, ledger_of
from tubemq_provider.offsets.ledger.envelope import CURSOR
from tubemq_provider.offsets.ledger.store import VersionedState
from tubemq_provider.offsets.ledger.tables import CURSORS, WindowRow
from tubemq_provider.windows.cursor import cursor_in_use
from tubemq_provider.windows.errors import DocumentError, StoreConflict
from tubemq_provider.windows.protocols import Document
from tubemq_provider.windows.spaces import FIRST_SOURCE, SOURCES

__all__ = [
    "Commit",
    "Group",
    "RunningTask",
    "find_groups",
    "groups",
    "has_ledger",
    "is_set_up",
    "open_group",
    "reading",
    "state_backend",
]

_PREFIX = f"{FIRST_SOURCE}:"
_EVENTS = 1_000
_LOOKED_THROUGH = 50_000
"""Most asset events that are searched for commit events. Tasks that only observe may emit many
without one; they are small."""
_TASKS = 50
_PLAN = "win/"
"""Part of the keys of stored plans, in asset state and in the ledger's copies there."""
_AT_WORK = ("running", "deferred", "queued", "up_for_retry", "up_for_reschedule")
_FAILED = ("failed", "upstream_failed")
_FAILURES = 10
_EVENTS_AT_ONCE = 5


def state_backend() -> str:
    """Return the class name of the configured state backend."""
    backend = type(get_state_backend())
    return f"{backend.__module__}.{backend.__name__}"


class Commit(NamedTuple):
    """Asset event: its commit event (None without one), the time when it was recorded, and the task
    that emitted it."""

    document: Document | None
    at: datetime
    dag_id: str | None
    run_id: str | None
    task_id: str | None


class RunningTask(NamedTuple):
    """Task instance of a group that is active or has failed, with its reported progress."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    state: str
    since: datetime | None
    progress: Document | None


@dataclass
class Group:
    """Progress of one (cluster, topic, group). With `readable`, events of tasks of other Dags are
    left out, as Airflow does for a user without access to those Dags."""

    name: str
    asset_id: int
    session: Any
    readable: frozenset[str] | None = None
    _revision: int = 0
    _seen: Document | None = None

    @property
    def source(self) -> str:
        """Kind of source."""
        return self.name.partition(":")[0]

    @property
    def label(self) -> str:
        """Label ``<cluster>/<topic>/<group>``."""
        return self.name.partition(":")[2]

    @property
    def asset(self) -> str:
        """Name of the group in commands; the first kind of source has no prefix."""
        return self.name.removeprefix(_PREFIX)

    @property
    def parts(self) -> tuple[str, str, str]:
        """Cluster, topic and group."""
        cluster, topic, group = self.label.split("/", 2)
        return cluster, topic, group

    def events(self, *, most: int | None = None) -> Generator[Document]:
        """Yield commit events of successful runs, newest first, at most a thousand.

        They are streamed: an event of ten thousand partitions has about a megabyte."""
        streamed = self._newest(AssetEvent.extra).limit(_LOOKED_THROUGH)
        streamed = streamed.execution_options(yield_per=_EVENTS_AT_ONCE)
        with closing(self.session.scalars(streamed)) as extras:
            commits = filter(None, map(commit_event, extras))
            yield from islice(commits, _EVENTS if most is None else most)

    def newest_position(self, *, most: int | None = None) -> Document | None:
        """Return the newest commit event with a position among the `most` newest, or None. Time
        windows have no position, so a group of many would be searched to its end."""
        with closing(self.events(most=most)) as events:
            return next((event for event in events if event.get("position")), None)

    def commits(self, *, skip: int = 0, most: int = _EVENTS) -> Generator[Commit]:
        """Yield asset events, newest first, `most` of them after the first `skip`. Streamed."""
        statement = self._newest(
            AssetEvent.extra,
            AssetEvent.timestamp,
            AssetEvent.source_dag_id,
            AssetEvent.source_run_id,
            AssetEvent.source_task_id,
        )
        streamed = statement.offset(skip).limit(most).execution_options(yield_per=_EVENTS_AT_ONCE)
        with closing(self.session.execute(streamed)) as rows:
            for extra, *rest in rows:
                yield Commit(commit_event(extra), *rest)

    def tasks(self, *, most: int = _TASKS) -> list[RunningTask]:
        """Return task instances that run or wait and have the offsets asset as outlet, with the
        progress under the key `PROGRESS` of their state."""
        rows = self._task_instances(_AT_WORK, TaskInstance.start_date, most)
        return [RunningTask._make([*row, self._progress(*row[:4])]) for row in rows]

    def failed_tasks(self, *, most: int = _FAILURES) -> list[RunningTask]:
        """Return the task instances with that outlet which have failed and were not cleared, the
        newest first."""
        rows = self._task_instances(_FAILED, TaskInstance.end_date.desc(), most)
        return [RunningTask._make([*row, None]) for row in rows]

    def _task_instances(self, states: Sequence[str], order: Any, most: int) -> Sequence[Any]:
        outlet = TaskOutletAssetReference
        ti = TaskInstance
        columns = select(ti.dag_id, ti.run_id, ti.task_id, ti.map_index, ti.state, ti.start_date)
        same = (outlet.dag_id == ti.dag_id) & (outlet.task_id == ti.task_id)
        statement = columns.join(outlet, same).where(outlet.asset_id == self.asset_id)
        statement = statement.where(ti.state.in_(states)).order_by(order, ti.run_id).limit(most)
        if self.readable is not None:
            statement = statement.where(ti.dag_id.in_(self.readable))
        rows: Sequence[Any] = self.session.execute(statement).all()
        return rows

    def _progress(self, dag_id: str, run_id: str, task_id: str, map_index: int) -> Document | None:
        scope = TaskScope(dag_id=dag_id, run_id=run_id, task_id=task_id, map_index=map_index)
        progress = _SessionState(self.session, scope).get(PROGRESS)
        return progress if isinstance(progress, dict) else None

    def _newest(self, *columns: Any) -> Any:
        """Return a statement for the group's events, newest first."""
        statement = select(*columns).where(AssetEvent.asset_id == self.asset_id)
        if self.readable is not None:
            dag_id = AssetEvent.source_dag_id
            statement = statement.where(or_(dag_id.is_(None), dag_id.in_(self.readable)))
        return statement.order_by(AssetEvent.timestamp.desc(), AssetEvent.id.desc())

    def cursor(self, *, of_ledger: bool = False) -> tuple[str, Document | None]:
        """Return the store that has the cursor (``ledger`` or ``asset_state``), and the cursor.

        If both have one, the group has moved between them: the ledger's counts unless it is behind
        (a later epoch is ahead of earlier ones). With `of_ledger` the ledger's counts always.
        Raises `DocumentError` for an edited cursor that cannot be read.
        """
        self._seen = DocumentState(self._state()).load("cursor")
        versioned = VersionedState(self._state()).load(CURSOR) if self._ledgers() else None
        self._revision = versioned.rev if versioned else 0
        claimed = versioned.document if versioned else None
        if claimed is None or (not of_ledger and cursor_in_use(self._seen, claimed) is self._seen):
            return "asset_state", _legible(self._seen)
        return "ledger", _legible(claimed)

    def store_cursor(self, store: str, document: Document) -> None:
        """Replace the cursor that `cursor` returned. Raises `StoreConflict` if a task has written
        it since. Asset state has no compare-and-set: there it is only read once more before."""
        if store == "ledger":
            VersionedState(self._state()).store(CURSOR, document, self._revision)
            return
        state = DocumentState(self._state())
        if state.load("cursor") != self._seen:
            raise StoreConflict("cursor: a task has written it since it was read; look again")
        state.store("cursor", document)

    def planned(self) -> list[str]:
        """Return ids of windows with a stored plan: planned and not yet published."""
        if not has_asset_state():
            return []
        from airflow.models.asset_state_store import AssetStateStoreModel

        key = AssetStateStoreModel.key
        keys = select(key).where(AssetStateStoreModel.asset_id == self.asset_id)
        names = self.session.scalars(keys.where(key.contains(_PLAN, autoescape=True)))
        return sorted(name.partition(_PLAN)[2] for name in names if "~" not in name)

    def forget_timeline(self) -> None:
        """Delete the samples of ends, if any."""
        DocumentState(self._state()).delete(TIMELINE)

    def windows(self) -> list[WindowRow]:
        """Return the ledger's windows; empty without a ledger."""
        return list(ledger_of(self.session).windows(self.name)) if self._ledgers() else []

    def _ledgers(self) -> bool:
        return isinstance(get_state_backend(), TubeMQStateBackend) and has_ledger(self.session)

    def _state(self) -> _SessionState:
        return _SessionState(self.session, AssetScope(asset_id=self.asset_id))


def _legible(cursor: Document | None) -> Document | None:
    members = cursor or {}
    seq, following = members.get("seq", None if "next" in members else 0), members.get("next", {})
    problems = [] if isinstance(following, dict) else [f"next {following!r} is not an object"]
    if isinstance(seq, bool) or not isinstance(seq, int):
        problems.append(f"seq {seq!r} is not an integer")
    if problems:
        remedy = "it was edited by hand; delete the key, progress is rebuilt from events and sink"
        raise DocumentError("offsets asset state key 'cursor'", [*problems, remedy])
    return cursor


class _SessionState:
    """State of an asset or a task over a session, with the interface of a task's accessor."""

    def __init__(self, session: Any, scope: AssetScope | TaskScope) -> None:
        self._session = session
        self._scope = scope

    def get(self, key: str, default: Any = None) -> Any:
        text = get_state_backend().get(self._scope, key, session=self._session)
        return default if text is None else json.loads(text)

    def set(self, key: str, value: Any) -> None:
        backend: Any = get_state_backend()
        backend.set(self._scope, key, json.dumps(value), session=self._session)

    def delete(self, key: str) -> None:
        get_state_backend().delete(self._scope, key, session=self._session)


def has_ledger(session: Any) -> bool:
    """Return True if the ledger's tables exist."""
    return bool(inspect(session.get_bind()).has_table(CURSORS.name))


def is_set_up() -> bool:
    """Return True if the metadata database has its tables: a command may run with an Airflow that
    was never set up."""
    with reading() as session:
        return bool(inspect(session.get_bind()).has_table(AssetModel.__tablename__))


@contextmanager
def reading() -> Iterator[Any]:
    """Open a session for reading."""
    with create_session(scoped=False) as session:
        yield session


def find_groups(
    session: Any,
    *,
    after: str = "",
    containing: str = "",
    dag_id: str | None = None,
    asset_id: int | None = None,
    readable: frozenset[str] | None = None,
) -> Iterator[Group]:
    """Yield groups by the names of offsets assets, of every kind of source and after the name
    `after`. Filters: a part of the name; a Dag that has the asset as outlet; the id."""
    latest = func.max(AssetModel.id)
    statement = select(AssetModel.name, latest).where(_of_a_source()).group_by(AssetModel.name)
    if after:
        statement = statement.where(AssetModel.name > after)
    if containing:
        statement = statement.where(AssetModel.name.icontains(containing, autoescape=True))
    if dag_id is not None:
        outlets = select(TaskOutletAssetReference.asset_id)
        of_dag = outlets.where(TaskOutletAssetReference.dag_id == dag_id)
        statement = statement.where(AssetModel.id.in_(of_dag))
    if asset_id is not None:
        statement = statement.where(AssetModel.id == asset_id)
    for name, number in session.execute(statement.order_by(AssetModel.name)).all():
        yield Group(name, number, session, readable)


def _of_a_source() -> Any:
    """Return a condition for names of offsets assets of any kind of source."""
    return or_(*(AssetModel.name.like(f"{source}:%/%/%") for source in SOURCES))


@contextmanager
def groups() -> Iterator[list[Group]]:
    """Open the groups of all offsets assets; changes in the body are committed at the end."""
    with create_session() as session:
        named = select(AssetModel).where(_of_a_source())
        models = session.scalars(named.order_by(AssetModel.name, AssetModel.id)).all()
        # A name may have had several ids; the last is the one in use.
        by_name = {model.name: model.id for model in models}
        yield [Group(name, asset_id, session) for name, asset_id in by_name.items()]


@contextmanager
def open_group(asset: str) -> Iterator[Group]:
    """Open one group, by `Group.asset` or the name of its asset. Raises `errors.ConfigError` if
    Airflow has no such asset."""
    with groups() as every:
        named = next((group for group in every if asset in (group.asset, group.name)), None)
        if named is None:
            names = ", ".join(group.asset for group in every) or "none"
            raise errors.ConfigError(
                f"no offsets asset {asset!r}; there are: {names}", subject="asset"
            )
        yield named
