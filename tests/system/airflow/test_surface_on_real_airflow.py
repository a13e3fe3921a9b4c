"""Other operators in a real Airflow: own tasks between plan and commit, links."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.system.airflow.conftest import TOPIC, Cluster
from tools.devkit.airflow.stack import AirflowStack
from tools.devkit.patience import PATIENCE

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(600)]

FUNCTION = "tubemq_window_function"


def links(airflow: AirflowStack, dag_id: str, run_id: str, task_id: str) -> dict[str, Any]:
    path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/links"
    found: dict[str, Any] = airflow.api.call("GET", path)["extra_links"]
    return found


def test_own_tasks_read_a_planned_window_and_the_commit_moves_progress(
    airflow: AirflowStack, cluster: Cluster, lakes: Path
) -> None:
    dag_id = "tubemq_plan_read_commit"
    cluster.produce(TOPIC, [f"own {n}" for n in range(10)])
    airflow.wait_for_dags([dag_id])
    airflow.api.pause(dag_id, paused=False)
    run_id = airflow.run_dag(dag_id)
    plan = airflow.api.xcom(dag_id, run_id, "plan")
    done = airflow.api.xcom(dag_id, run_id, "commit")
    counted = json.loads((lakes / "reports" / f"{plan['window_id']}.json").read_text())
    assert done["total"] == sum(counted.values()) == sum(cluster.sent[TOPIC].values())
    assert done["window_id"] == plan["window_id"]
    events = airflow.api.asset_events("tubemq:test/orders/own_tasks")
    assert [event["source_task_id"] for event in events] == ["commit"]
    found = links(airflow, dag_id, run_id, "commit")
    assert found["Offsets"].endswith("/assets?name_pattern=tubemq%3Atest%2Forders%2Fown_tasks")
    assert "admin_query_topic_info&topicName=orders" in found["Topic"]
    # Nothing new: what comes after the plan is skipped.
    run_id = airflow.run_dag(dag_id)
    assert airflow.api.task(dag_id, run_id, "commit")["state"] == "skipped"


@pytest.fixture(scope="module")
def of_function(airflow: AirflowStack, cluster: Cluster) -> tuple[str, int]:
    """Run a Dag whose function gets a window of all records so far; return the run and their
    number."""
    cluster.produce(TOPIC, ["of a function"])
    airflow.wait_for_dags([FUNCTION])
    airflow.api.pause(FUNCTION, paused=False)
    return airflow.run_dag(FUNCTION), sum(cluster.sent[TOPIC].values())


def test_a_function_is_given_a_window(airflow: AirflowStack, of_function: tuple[str, int]) -> None:
    dag_id, (run_id, sent) = FUNCTION, of_function
    done = airflow.api.xcom(dag_id, run_id, "report")
    assert done["total"] == sent
    assert done["returned"] == done["bytes"]
    path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/report/state-store/progress"
    progress = airflow.api.call("GET", path)["value"]
    assert (progress["state"], progress["read"]) == ("done", done["total"])
    airflow.api.clear(dag_id, run_id, "report")
    airflow.expect_success(dag_id, run_id)
    assert airflow.api.xcom(dag_id, run_id, "report")["replayed"]


def test_the_alert_on_lag_looks_and_is_content_below_its_limit(
    airflow: AirflowStack, cluster: Cluster
) -> None:
    dag_id = "tubemq_lag_alert"
    airflow.wait_for_dags([dag_id])
    airflow.api.pause(dag_id, paused=False)
    run_id = airflow.run_dag(dag_id)
    assert airflow.api.xcom(dag_id, run_id, "lag")["asset"] == "tubemq:test/orders/lake_follow"
    airflow.api.pause(dag_id, paused=True)


def test_the_page_shows_the_groups_of_a_dag_that_has_run(
    airflow: AirflowStack, of_function: tuple[str, int]
) -> None:
    dag_id, sent = FUNCTION, of_function[1]
    headers = {"Authorization": f"Bearer {airflow.api.token}"}
    with httpx.Client(
        base_url=f"{airflow.home.url}/tubemq", headers=headers, timeout=60 * PATIENCE
    ) as page:
        (group,) = page.get(f"/api/groups?dag_id={dag_id}").json()["groups"]
        assert (group["cluster"], group["topic"]) == ("test", TOPIC)
        windows = page.get(f"/api/groups/{group['id']}/windows").json()["windows"]
        assert {window["dag_id"] for window in windows} == {dag_id}
        assert sum(window["records"] for window in windows if not window["replayed"]) == sent

        def lag() -> Any:
            found = page.get(f"/api/groups/{group['id']}/lag").json()
            return found if found["state"] == "known" else None

        assert airflow.api.wait(lag, 100, "the lag")["partitions"]
