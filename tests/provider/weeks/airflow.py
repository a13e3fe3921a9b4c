"""Airflow as ingest tasks meet it: states, events, runs and the ledger's tables, in memory."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.pool import StaticPool

from tests.provider.contexts import accept, fake_context
from tests.provider.offsets.accessors import LedgerState
from tubemq_provider.assets import offsets_asset
from tubemq_provider.offsets.commit_events import commit_event
from tubemq_provider.offsets.ledger.tables import metadata
from tubemq_provider.offsets.metadata_db import Group


class Here(Group):
    """A group of the command line, over this state and these events."""

    def __init__(self, airflow: Airflow) -> None:
        super().__init__(airflow.asset.name, 1, None)
        self._airflow = airflow

    def events(self, *, most: int | None = None) -> Any:
        told = self._airflow.kept.get("events", {}).get(self._airflow.asset, [])
        found = [document for document in map(commit_event, reversed(told)) if document]
        yield from found[:most]

    def _ledgers(self) -> bool:
        return True

    def _state(self) -> Any:
        return self._airflow.state


class Airflow:
    """One group's state and events, and the states of its runs."""

    def __init__(self, topic: str, group: str) -> None:
        self.engine = sa.create_engine(
            "sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False}
        )
        metadata.create_all(self.engine)
        self.asset = offsets_asset("test", topic, group)
        self.state = LedgerState(self.engine, self.asset.name)
        self.kept: dict[Any, Any] = {self.asset: self.state}
        self.runs: dict[str, str] = {}

    def context(self, task: Any, run: str, *, tries: int, clears: int) -> Any:
        context = fake_context(task, self.kept, run=run)
        ti = context["ti"]
        ti.try_number = tries
        ti.get_dagrun_state = lambda _dag, run_id: self.runs[run_id]
        ti.get_task_states = lambda *_, **__: {}
        context["dag_run"] = SimpleNamespace(
            clear_number=clears, run_type="scheduled", conf={}, run_id=run
        )
        return context

    def accept(self, context: Any) -> None:
        accept(context, self.kept)

    @contextmanager
    def open_group(self, _: str) -> Any:
        yield Here(self)

    def events(self) -> list[Any]:
        return [e for e in map(commit_event, self.kept.get("events", {}).get(self.asset, [])) if e]
