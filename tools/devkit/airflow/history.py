"""Groups with a history of some weeks in Airflow's tables, without running those weeks.

Assets, events, state, running tasks: the rows that the page and commands read, written straight
into a metadata database. For tests, and for pictures of the page; no Airflow process is needed or
notified.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from zlib import crc32

import sqlalchemy as sa
from airflow.models import import_all_models
from airflow.models.asset import (
    AssetActive,
    AssetEvent,
    AssetModel,
    TaskOutletAssetReference,
)
from airflow.models.asset_state_store import AssetStateStoreModel
from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.models.task_state_store import TaskStateStoreModel
from airflow.models.taskinstance import TaskInstance
from sqlalchemy.orm import Session

from tubemq_provider.offsets.commit_events import EVENT_KEY

__all__ = [
    "BEGAN",
    "add_asset",
    "add_dag",
    "add_event",
    "add_state",
    "add_task",
    "empty_tables",
    "metadata_of",
    "window",
]

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
_MODELS: tuple[Any, ...] = (
    AssetModel,
    AssetActive,
    AssetEvent,
    AssetStateStoreModel,
    TaskInstance,
    TaskOutletAssetReference,
    TaskStateStoreModel,
)


def _load_models() -> None:
    """Import all models: tables refer to others."""
    load: Any = import_all_models
    load()


@contextmanager
def metadata_of(url: str) -> Iterator[Session]:
    """Yield a session on the metadata database of an Airflow, committed at the end.

    Referenced rows need not exist.
    """
    _load_models()
    engine = sa.create_engine(url)
    try:
        with Session(engine) as session:
            yield session
            session.commit()
    finally:
        engine.dispose()


@contextmanager
def empty_tables() -> Iterator[Session]:
    """Yield a session on empty tables of a database in memory."""
    _load_models()
    engine = sa.create_engine("sqlite://")
    AssetModel.metadata.create_all(engine, tables=[model.__table__ for model in _MODELS])
    try:
        with Session(engine) as session:
            yield session
    finally:
        engine.dispose()


def add_asset(session: Session, name: str) -> int:
    """Add an offsets asset; return its id."""
    asset = AssetModel(name=name, uri=name.replace(":", "://", 1), group="tubemq", extra={})
    session.add(asset)
    session.flush()
    return int(asset.id)


def add_event(
    session: Session,
    asset_id: int,
    minute: float,
    document: dict[str, Any] | None,
    dag_id: str | None = "loads",
) -> None:
    """Add an event `minute` minutes after the beginning; without a document, no commit event."""
    extra = {} if document is None else {EVENT_KEY: document}
    at = BEGAN + timedelta(minutes=minute)
    event = AssetEvent(asset_id=asset_id, extra=extra, timestamp=at, source_dag_id=dag_id)
    event.source_run_id, event.source_task_id = f"run {minute}", "ingest"
    session.add(event)
    session.flush()


def add_state(session: Session, asset_id: int, key: str, value: Any) -> None:
    """Add a value under `key` of an asset's state."""
    session.add(AssetStateStoreModel(asset_id=asset_id, key=key, value=json.dumps(value)))
    session.flush()


def add_task(
    session: Session,
    asset_id: int,
    dag_id: str,
    task_id: str,
    *,
    state: str = "running",
    progress: Mapping[str, Any] | None = None,
) -> None:
    """Add a task instance that has the asset as outlet, in the run ``now``; a failed one ended."""
    task = {"dag_id": dag_id, "task_id": task_id}
    session.execute(sa.insert(TaskOutletAssetReference).values(asset_id=asset_id, **task))
    ti = {**task, "run_id": "now", "state": state, "pool": "default_pool", "start_date": BEGAN}
    if state == "failed":
        ti["end_date"] = BEGAN
    session.execute(sa.insert(TaskInstance).values(ti))
    if progress is not None:
        value = json.dumps(progress)
        number = crc32(dag_id.encode()) >> 1  # of a Dag run that does not exist
        session.add(
            TaskStateStoreModel(
                **task, run_id="now", dag_run_id=number, key="progress", value=value
            )
        )
    session.flush()


def add_dag(session: Session, dag_id: str) -> None:
    """Add a Dag, with the columns that permission checks read."""
    values = {"dag_id": dag_id, "bundle_name": "dags-folder", "is_paused": False}
    values |= {"max_active_tasks": 1, "max_consecutive_failed_dag_runs": 0, "is_stale": False}
    values |= {"has_task_concurrency_limits": False}
    if session.get(DagBundleModel, "dags-folder") is None:
        session.add(DagBundleModel(name="dags-folder"))
        session.flush()
    session.execute(sa.insert(DagModel).values(values))


def window(window_id: str, ranges: dict[str, list[int]], **more: Any) -> dict[str, Any]:
    """Return a commit event of a window with one record for each entry."""
    records = {key: (end - start) // 28 for key, (start, end) in ranges.items()}
    kind = "time" if window_id.startswith("t-") else "cursor"
    header = {"v": 1, "kind": kind, "window_id": window_id, "hash": "f" * 64, "bytes": 7}
    sink = {"kind": "parquet", "ref": "/lake"}
    return {**header, "ranges": ranges, "records": records, "sink": sink, "replayed": 0, **more}
