"""Watchers and deferred sensors in a real triggerer: runs follow records, and nothing is missed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.lakes import Cluster, Lake
from tools.devkit.airflow.stack import AirflowStack

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(600)]

DAG = "tubemq_on_records"
TOPIC = "orders"
QUIET_SECONDS = 10.0


def finished(airflow: AirflowStack, dag_id: str) -> int:
    """Return the number of successful runs; none may fail."""
    states = [run["state"] for run in airflow.api.runs(dag_id)]
    assert "failed" not in states
    return states.count("success")


def wait_for_records(airflow: AirflowStack, cluster: Cluster, lake: Lake, what: str) -> None:
    """Until the lake holds what was ever sent and no run is under way."""

    def there() -> bool:
        runs = airflow.api.runs(DAG)
        busy = any(run["state"] in ("queued", "running") for run in runs)
        return not busy and finished(airflow, DAG) > 0 and lake.records() == cluster.sent[TOPIC]

    airflow.api.wait(there, 180, what, period=1.0)


def test_runs_follow_records_and_nothing_else(
    airflow: AirflowStack, cluster: Cluster, lakes: Path
) -> None:
    lake = Lake(lakes / "on_records")
    cluster.produce(TOPIC, [f"watched {i}" for i in range(20)])
    airflow.wait_for_dags([DAG])
    airflow.watch(DAG)
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


def test_the_sink_tells_once_of_each_window_with_records(
    airflow: AirflowStack, cluster: Cluster, lakes: Path
) -> None:
    airflow.wait_for_dags(["tell", "hear"])
    for dag_id in ("tell", "hear"):
        airflow.api.pause(dag_id, paused=False)
    cluster.produce("told", ["one", "two", "three"])

    def heard() -> list[dict[str, Any]]:
        runs = airflow.api.runs("hear")
        done = [run["dag_run_id"] for run in runs if run["state"] == "success"]
        assert len(done) == len(runs)
        said = [airflow.api.xcom("hear", run_id, "hear") for run_id in sorted(done)]
        return [extra["tubemq"] for extras in said for extra in extras]

    def heard_of(count: int) -> Callable[[], bool]:
        return lambda: len(airflow.api.runs("hear")) == count and _all_done(airflow, "hear")

    # The retry of a try killed right after publishing emits the event.
    first = airflow.api.trigger("tell", {"max_records": 2})
    airflow.api.wait((lakes / "reached" / "tell").exists, 180, "the first try to publish")
    airflow.kill_task("tell", first, "ingest")
    airflow.expect_success("tell", first)
    airflow.api.wait(heard_of(1), 180, "the first window to be heard of")
    second = airflow.run_dag("tell")
    airflow.api.wait(heard_of(2), 180, "the second window to be heard of")

    # Neither an empty window nor one with an earlier event.
    empty = airflow.run_dag("tell")
    assert airflow.api.xcom("tell", empty, "ingest")["empty"]
    airflow.api.clear("tell", second, "ingest")
    airflow.expect_success("tell", second)
    assert airflow.api.xcom("tell", second, "ingest")["replayed"]
    time.sleep(QUIET_SECONDS)
    told = heard()
    results = [airflow.api.xcom("tell", run_id, "ingest") for run_id in (first, second)]
    assert [each["window_id"] for each in told] == [each["window_id"] for each in results]
    assert sum(each["records"] for each in told) == 3
    assert [each["place"] for each in told] == [each["sink_ref"] for each in results]


def test_each_message_starts_a_run_that_can_read_it(
    airflow: AirflowStack, cluster: Cluster
) -> None:
    dag_id = "tubemq_on_message"
    airflow.wait_for_dags([dag_id])
    airflow.watch(dag_id)

    def heard() -> set[str]:
        runs = airflow.api.runs(dag_id)
        done = [run["dag_run_id"] for run in runs if run["state"] == "success"]
        return {said for run_id in done for said in airflow.api.xcom(dag_id, run_id, "obey")}

    try:
        cluster.produce("commands", ["begin"])
        airflow.api.wait(lambda: heard() == {"begin"}, 180, "the first command")
        # What comes while no triggerer lives is heard by the next one.
        airflow.kill("triggerer")
        cluster.produce("commands", ["end"])
        airflow.restart("triggerer")
        airflow.api.wait(
            lambda: heard() == {"begin", "end"}, 180, "the command without a triggerer"
        )
    finally:
        airflow.api.pause(dag_id, paused=True)
    payload = airflow.api.asset_events("commands_for_airflow_commands")[0]["extra"]["payload"]
    assert (payload["topic"], payload["encoding"]) == ("commands", "utf-8")


def _all_done(airflow: AirflowStack, dag_id: str) -> bool:
    return all(run["state"] == "success" for run in airflow.api.runs(dag_id))


def test_a_waiting_sensor_holds_no_worker(airflow: AirflowStack, cluster: Cluster) -> None:
    dag_id = "deferred_sense"
    airflow.wait_for_dags([dag_id])
    airflow.api.pause(dag_id, paused=False)
    run_id = airflow.api.trigger(dag_id)

    def state() -> str:
        return str(airflow.api.task(dag_id, run_id, "lag")["state"])

    airflow.api.wait(lambda: state() == "deferred", 180, "the sensor to be deferred")
    time.sleep(3)
    assert state() == "deferred"
    cluster.produce("deferred", ["one", "two"])
    airflow.expect_success(dag_id, run_id)
    assert airflow.api.xcom(dag_id, run_id, "lag")["lag"] == 2
