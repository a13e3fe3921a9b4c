"""Airflow's tables as far as groups are read from them, in a SQLite of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from airflow.models import import_all_models
from airflow.models.asset import (
    AssetActive,
    AssetEvent,
    AssetModel,
    TaskOutletAssetReference,
)
from airflow.models.asset_state_store import AssetStateStoreModel
from airflow.models.task_state_store import TaskStateStoreModel
from airflow.models.taskinstance import TaskInstance
from sqlalchemy.orm import Session

from tubemq_provider.offsets.commit_events import EVENT_KEY

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
import_all_models()
_MODELS: tuple[Any, ...] = (
    AssetModel,
    AssetActive,
    AssetEvent,
    AssetStateStoreModel,
    TaskInstance,
    TaskOutletAssetReference,
    TaskStateStoreModel,
)


@contextmanager
def metadata_session() -> Iterator[Session]:
    """A session on empty tables."""
    engine = sa.create_engine("sqlite://")
    AssetModel.metadata.create_all(engine, tables=[model.__table__ for model in _MODELS])
    try:
        with Session(engine) as session:
            yield session
    finally:
        engine.dispose()


def add_asset(session: Session, name: str) -> int:
    """An offsets asset; its id."""
    asset = AssetModel(name=name, uri=name.replace(":", "://", 1), group="tubemq", extra={})
    session.add(asset)
    session.flush()
    return int(asset.id)


def add_event(
    session: Session,
    asset_id: int,
    minute: int,
    document: dict[str, Any] | None,
    dag_id: str | None = "loads",
) -> None:
    """An event `minute` minutes after the beginning; without a document it has no commit event."""
    extra = {} if document is None else {EVENT_KEY: document}
    at = BEGAN + timedelta(minutes=minute)
    event = AssetEvent(asset_id=asset_id, extra=extra, timestamp=at, source_dag_id=dag_id)
    event.source_run_id, event.source_task_id = f"run {minute}", "ingest"
    session.add(event)
    session.flush()


def window(window_id: str, ranges: dict[str, list[int]], **more: Any) -> dict[str, Any]:
    """A commit event of a window with one record for each entry."""
    records = {key: (end - start) // 28 for key, (start, end) in ranges.items()}
    kind = "time" if window_id.startswith("t-") else "cursor"
    told = {"v": 1, "kind": kind, "window_id": window_id, "hash": "f" * 64, "bytes": 7}
    sink = {"kind": "parquet", "ref": "/lake"}
    return {**told, "ranges": ranges, "records": records, "sink": sink, "replayed": 0, **more}
