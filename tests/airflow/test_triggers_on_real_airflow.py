"""Watchers and deferred sensors in a real triggerer: runs follow records, and nothing is missed."""

from __future__ import annotations

import time

import pytest

from tests.airflow.conftest import Cluster, Lake
from tubemq_provider._devkit.airflow_stack import AirflowStack

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(300)]

DAG = "tubemq_on_records"
TOPIC = "orders"
QUIET_SECONDS = 10.0


def finished(airflow: AirflowStack, dag_id: str) -> int:
    """How many runs have succeeded; none may fail."""
    states = [run["state"] for run in airflow.api.runs(dag_id)]
    assert "failed" not in states
    return states.count("success")


def wait_for_records(airflow: AirflowStack, cluster: Cluster, lake: Lake, what: str) -> None:
    """Until the lake holds what was ever sent and no run is under way."""

    def there() -> bool:
        runs = airflow.api.runs(DAG)
        busy = any(run["state"] in ("queued", "running") for run in runs)
        return not busy and finished(airflow, DAG) > 0 and lake.records() == cluster.sent[TOPIC]

    airflow.api.wait(there, 120, what, period=1.0)


def test_runs_follow_records_and_nothing_else(
    airflow: AirflowStack, cluster: Cluster, lakes: object
) -> None:
    lake = Lake(lakes / "on_records")  # type: ignore[operator]
    cluster.produce(TOPIC, [f"watched {i}" for i in range(20)])
    airflow.wait_for_dags([DAG])
    airflow.api.pause(DAG, paused=False)
    try:
        wait_for_records(airflow, cluster, lake, "the backlog in the lake")
        before = len(airflow.api.runs(DAG))
        # Some looks of the watcher, in which it has nothing to ring for.
        time.sleep(QUIET_SECONDS)
        assert len(airflow.api.runs(DAG)) == before
        cluster.produce(TOPIC, [f"more {i}" for i in range(5)])
        wait_for_records(airflow, cluster, lake, "the new records in the lake")

        # Records that come while no triggerer lives are found by the next one.
        airflow.kill("triggerer")
        cluster.produce(TOPIC, [f"unwatched {i}" for i in range(5)])
        airflow.restart("triggerer")
        wait_for_records(airflow, cluster, lake, "what came without a triggerer")
    finally:
        airflow.api.pause(DAG, paused=True)
    events = airflow.api.asset_events(f"{TOPIC}_waiting_for_lake_on_records")
    payload = events[0]["extra"]["payload"]
    assert (payload["topic"], payload["group"]) == (TOPIC, "lake_on_records")
    assert payload["lag"] > 0


def test_a_waiting_sensor_holds_no_worker(airflow: AirflowStack, cluster: Cluster) -> None:
    dag_id = "deferred_sense"
    airflow.wait_for_dags([dag_id])
    airflow.api.pause(dag_id, paused=False)
    run_id = airflow.api.trigger(dag_id)

    def state() -> str:
        return str(airflow.api.task(dag_id, run_id, "lag")["state"])

    airflow.api.wait(lambda: state() == "deferred", 90, "the sensor to be deferred")
    time.sleep(3)
    assert state() == "deferred"
    cluster.produce("deferred", ["one", "two"])
    airflow.expect_success(dag_id, run_id)
    assert airflow.api.xcom(dag_id, run_id, "lag")["lag"] == 2
