"""The few REST calls that a test or a demo makes against a disposable Airflow.

Every wait is bounded and its error names the awaited condition. Knows Airflow's public API
(`/api/v2`) only; it neither reads the metadata database nor starts processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

from tools.devkit.patience import PATIENCE
from tubemq_client.errors import require_extra

__all__ = ["FINISHED", "AirflowApi", "AirflowApiError"]

T = TypeVar("T")
FINISHED = frozenset({"success", "failed"})
"""Final states of a Dag run."""
PAGE = 100
"""Entries per page: Airflow's maximum for a list (`api.maximum_page_limit`)."""


class AirflowApiError(RuntimeError):
    """Error answer of the API, or an expired wait."""


class AirflowApi:
    """Client of one Airflow whose login is open (`simple_auth_manager_all_admins`).

    Blocking; each call has a timeout of 90 s, because test machines are busy.
    """

    def __init__(self, base_url: str) -> None:
        try:
            import httpx
        except ImportError as exc:
            raise require_extra("admin", exc) from exc
        self._http = httpx.Client(base_url=base_url, timeout=90.0)
        self._token: str | None = None

    def close(self) -> None:
        """Close the connection pool."""
        self._http.close()

    def alive(self) -> bool:
        """Return True if the server answers at all."""
        import httpx

        try:
            return bool(self._http.get("/api/v2/version").status_code == 200)
        except httpx.TransportError:
            return False

    def call(self, method: str, path: str, **kwargs: Any) -> Any:
        """Send one request below `/api/v2`; return the JSON. Raises `AirflowApiError` on
        refusal."""
        headers = {"Authorization": f"Bearer {self.token}"}
        reply = self._http.request(method, f"/api/v2{path}", headers=headers, **kwargs)
        if reply.status_code >= 400:
            raise AirflowApiError(f"{method} {path}: {reply.status_code} {reply.text[:500]}")
        return reply.json() if reply.content else None

    def listed(self, path: str, key: str, **params: Any) -> list[dict[str, Any]]:
        """Return all entries of a list, page by page: Airflow returns at most 100 per answer."""
        entries: list[dict[str, Any]] = []
        while True:
            page = {**params, "limit": PAGE, "offset": len(entries)}
            reply = self.call("GET", path, params=page)
            entries += reply[key]
            if not reply[key] or len(entries) >= reply["total_entries"]:
                return entries

    @property
    def token(self) -> str:
        """Token that a browser would have in its session cookie."""
        if self._token is None:
            self._token = str(self._http.get("/auth/token").json()["access_token"])
        return self._token

    # Dags and runs

    def dag_known(self, dag_id: str) -> bool:
        """Return True if the Dag has been parsed and serialised."""
        return self._get_or_none(f"/dags/{dag_id}") is not None

    def import_errors(self) -> list[dict[str, Any]]:
        """List Dag files that could not be imported."""
        return self.listed("/importErrors", "import_errors")

    def pause(self, dag_id: str, *, paused: bool) -> None:
        """Pause or unpause a Dag."""
        self.call("PATCH", f"/dags/{dag_id}", json={"is_paused": paused})

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None, **body: Any) -> str:
        """Start a run and return its id. `body` may hold `logical_date`, `data_interval_start` …"""
        payload = {"conf": dict(conf or {}), "logical_date": None, **body}
        return str(self.call("POST", f"/dags/{dag_id}/dagRuns", json=payload)["dag_run_id"])

    def run(self, dag_id: str, run_id: str) -> dict[str, Any]:
        """Return one Dag run."""
        return dict(self.call("GET", f"/dags/{dag_id}/dagRuns/{quote(run_id)}"))

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        """List all runs of a Dag, oldest first."""
        runs = self.listed(f"/dags/{dag_id}/dagRuns", "dag_runs")
        return sorted(runs, key=lambda run: (run["run_after"], run["dag_run_id"]))

    def wait_for_run(self, dag_id: str, run_id: str, timeout: float) -> str:
        """Block until the run is over; return its state, `success` or `failed`."""

        def finished() -> str | None:
            state = str(self.run(dag_id, run_id)["state"])
            return state if state in FINISHED else None

        return self.wait(finished, timeout, f"run {run_id} of {dag_id}")

    # Task instances

    def task(self, dag_id: str, run_id: str, task_id: str) -> dict[str, Any]:
        """Return a task instance: state, try_number, pid …"""
        return dict(self.call("GET", self._task_path(dag_id, run_id, task_id)))

    def tries(self, dag_id: str, run_id: str, task_id: str) -> list[dict[str, Any]]:
        """List all tries of a task instance, oldest first."""
        path = f"{self._task_path(dag_id, run_id, task_id)}/tries"
        return list(self.call("GET", path)["task_instances"])

    def clear(self, dag_id: str, run_id: str, task_id: str) -> None:
        """Clear one task of one run, so that it runs again."""
        body = {
            "dry_run": False,
            "task_ids": [task_id],
            "dag_run_id": run_id,
            "only_failed": False,
            "reset_dag_runs": True,
        }
        self.call("POST", f"/dags/{dag_id}/clearTaskInstances", json=body)

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value") -> Any:
        """Return an XCom value, or None if there is none."""
        path = f"{self._task_path(dag_id, run_id, task_id)}/xcomEntries/{key}"
        entry = self._get_or_none(path, params={"deserialize": "true"})
        return entry["value"] if entry else None

    # Assets

    def asset_id(self, name: str) -> int | None:
        """Return the id of the asset of exactly this name."""
        assets = self.listed("/assets", "assets")
        return next((int(a["id"]) for a in assets if a["name"] == name), None)

    def asset_events(self, name: str) -> list[dict[str, Any]]:
        """List the events of an asset, oldest first."""
        asset_id = self.asset_id(name)
        if asset_id is None:
            return []
        params = {"asset_id": asset_id, "order_by": "timestamp"}
        return self.listed("/assets/events", "asset_events", **params)

    def asset_state(self, name: str) -> dict[str, Any]:
        """Return everything in the state store of an asset."""
        asset_id = self.asset_id(name)
        if asset_id is None:
            return {}
        rows = self.listed(f"/assets/{asset_id}/state-store", "asset_state_store")
        return {row["key"]: row["value"] for row in rows}

    def forget_asset_state(self, name: str) -> None:
        """Delete everything in an asset's state store, as Airflow's own clean-up may."""
        self.call("DELETE", f"/assets/{self.asset_id(name)}/state-store")

    # Backfills

    def backfills(self, dag_id: str) -> list[dict[str, Any]]:
        """List all backfills of a Dag; `completed_at` is set on those that Airflow has closed."""
        return self.listed("/backfills", "backfills", dag_id=dag_id)

    # Helpers

    @staticmethod
    def wait(probe: Callable[[], T | None], timeout: float, what: str, period: float = 0.5) -> T:
        """Call `probe` until it returns something; `AirflowApiError` after `timeout` seconds."""
        deadline = time.monotonic() + timeout * PATIENCE
        while True:
            value = probe()
            if value:
                return value
            if time.monotonic() > deadline:
                raise AirflowApiError(f"gave up after {timeout:g} s waiting for {what}")
            time.sleep(period)

    @staticmethod
    def _task_path(dag_id: str, run_id: str, task_id: str) -> str:
        return f"/dags/{dag_id}/dagRuns/{quote(run_id)}/taskInstances/{task_id}"

    def _get_or_none(self, path: str, **kwargs: Any) -> dict[str, Any] | None:
        try:
            return dict(self.call("GET", path, **kwargs))
        except AirflowApiError as exc:
            if ": 404 " in str(exc):
                return None
            raise
