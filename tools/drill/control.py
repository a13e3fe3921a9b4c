"""Calls of a drill to Airflow while Airflow is being killed: with retries, work to do, lists.

Everything goes through the public REST API. A call is retried while the API server is unreachable
or answers 5xx, within a bound; a run id chosen by the drill makes starting a run idempotent. This
module must not change what a run has left behind: no clear, no mark, no repair but those that the
drill reports as its own clears.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import httpx

from tools.devkit.airflow.api import AirflowApi, AirflowApiError

__all__ = ["Control"]

T = TypeVar("T")
_PATIENCE_S = 120.0
_PAUSE_S = 0.5
_PAGE = 100
_STATUS = re.compile(r": (\d{3}) ")


class Control:
    """Client of one Airflow, with retries."""

    def __init__(self, api: AirflowApi) -> None:
        self._api = api

    def unpause(self, dag_ids: list[str]) -> None:
        """Unpause the Dags."""
        for dag_id in dag_ids:
            self._with_retries(partial(self._api.pause, dag_id, paused=False))

    def schedule(self, dag_id: str) -> str:
        """Return the schedule of a Dag as last parsed by Airflow."""
        dag = self._with_retries(lambda: self._api.call("GET", f"/dags/{dag_id}"))
        return str(dag["timetable_summary"])

    def trigger(self, dag_id: str, run_id: str, conf: Mapping[str, Any] | None = None) -> None:
        """Start a run without an interval."""
        self._start(dag_id, run_id, conf, {})

    def trigger_interval(self, dag_id: str, start: datetime, end: datetime) -> None:
        """Start the run of one interval by hand."""
        interval = {
            "logical_date": start.isoformat(),
            "data_interval_start": start.isoformat(),
            "data_interval_end": end.isoformat(),
        }
        self._start(dag_id, f"drill__{start:%dT%H%M}", None, interval)

    def backfill(self, dag_id: str, first: datetime, last: datetime, *, again: bool) -> bool:
        """Create a backfill; return False while an earlier one of this Dag is not closed. `again`:
        also run intervals that are done."""
        open_ = self._with_retries(lambda: self._api.backfills(dag_id))
        if not all(backfill["completed_at"] for backfill in open_):
            return False
        body = {
            "dag_id": dag_id,
            "from_date": first.isoformat(),
            "to_date": last.isoformat(),
            "max_active_runs": 4,
            "reprocess_behavior": "completed" if again else "none",
        }
        count = len(open_)

        def create() -> None:
            # On a retry after a lost answer, it may exist already.
            if len(self._api.backfills(dag_id)) == count:
                self._api.call("POST", "/backfills", json=body)

        self._with_retries(create)
        return True

    def clear(self, dag_id: str, run_id: str) -> None:
        """Clear the ingest task of a run that is over."""
        self._with_retries(lambda: self._api.clear(dag_id, run_id, "ingest"))

    def active(self) -> list[dict[str, Any]]:
        """List runs that are queued or running."""
        return list(self._pages("/dags/~/dagRuns", "dag_runs", state=["queued", "running"]))

    def failed(self) -> list[dict[str, Any]]:
        """List runs that have failed finally."""
        return list(self._pages("/dags/~/dagRuns", "dag_runs", state=["failed"]))

    def succeeded_lately(self) -> list[dict[str, Any]]:
        """List the newest runs that have succeeded, at most a page."""
        query = {"state": ["success"], "limit": _PAGE, "order_by": "-id"}
        path = "/dags/~/dagRuns"
        return list(
            self._with_retries(lambda: self._api.call("GET", path, params=query))["dag_runs"]
        )

    def running_tasks(self) -> list[dict[str, Any]]:
        """List task instances whose process runs right now, as far as Airflow knows."""
        path = "/dags/~/dagRuns/~/taskInstances"
        return list(self._pages(path, "task_instances", state=["running"]))

    def events(self, asset: str) -> list[dict[str, Any]]:
        """List all events of an asset, oldest first."""
        asset_id = self._with_retries(lambda: self._api.asset_id(asset))
        if asset_id is None:
            return []
        query = {"asset_id": asset_id, "order_by": "timestamp"}
        return list(self._pages("/assets/events", "asset_events", **query))

    def _start(
        self, dag_id: str, run_id: str, conf: Mapping[str, Any] | None, body: dict[str, Any]
    ) -> None:
        def start() -> None:
            try:
                self._api.trigger(dag_id, conf, dag_run_id=run_id, **body)
            except AirflowApiError as error:
                if _status(error) != 409:
                    raise

        self._with_retries(start)

    def _pages(self, path: str, key: str, **query: Any) -> Iterator[dict[str, Any]]:
        offset = 0
        while True:
            params = {**query, "limit": _PAGE, "offset": offset}
            reply = self._with_retries(partial(self._api.call, "GET", path, params=params))
            yield from reply[key]
            offset += _PAGE
            if offset >= reply["total_entries"]:
                return

    @staticmethod
    def _with_retries(call: Callable[[], T]) -> T:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return call()
            except (httpx.TransportError, AirflowApiError) as error:
                refused = isinstance(error, AirflowApiError) and _status(error) < 500
                if refused or time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE_S)


def _status(error: AirflowApiError) -> int:
    match = _STATUS.search(str(error))
    return int(match[1]) if match else 500
