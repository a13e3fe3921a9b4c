"""Samples in real asset state, taken by one Dag and used by another, cut windows by arrival."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.kit.lakes import Cluster, Lake
from tools.devkit.airflow.api import AirflowApiError
from tools.devkit.airflow.stack import AirflowStack

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(600)]

ASSET = "tubemq:test/timed/timed"
HOUR = "2026-01-01T05:00:00Z"


def test_one_dag_samples_and_another_cuts_the_windows_that_its_conf_names(
    airflow: AirflowStack, cluster: Cluster, lakes: Path
) -> None:
    cluster.add_topic("timed")
    dags = ("sample_ends", "window_by_arrival")
    airflow.wait_for_dags(dags)
    for dag_id in dags:
        airflow.api.pause(dag_id, paused=False)

    cluster.produce("timed", [f"before {i}" for i in range(9)])
    airflow.run_dag("sample_ends")
    instants = [datetime.now(UTC).isoformat()]
    sampled = airflow.run_dag("sample_ends")
    cluster.produce("timed", [f"within {i}" for i in range(12)])
    airflow.run_dag("sample_ends")
    instants.append(datetime.now(UTC).isoformat())
    airflow.run_dag("sample_ends")
    cluster.produce("timed", [f"after {i}" for i in range(7)])

    assert set(airflow.api.asset_state(ASSET)) == {"watch"}
    assert airflow.api.asset_events(ASSET) == []
    assert airflow.api.xcom("sample_ends", sampled, "sample")["samples"] == 2
    conf = {"tubemq_window": {"start": instants[0], "end": instants[1]}}
    for replayed in (False, True):
        run_id = airflow.run_dag("window_by_arrival", conf)
        found = airflow.api.xcom("window_by_arrival", run_id, "ingest")
        assert (found["total"], found["replayed"]) == (12, replayed)
    bodies = sorted(body for _, body in Lake(lakes / "timed").records())
    assert bodies == sorted(f"within {i}".encode() for i in range(12))


@pytest.mark.parametrize(
    ("mode", "conf", "said"),
    [
        ("time", {}, "CronDataIntervalTimetable"),
        ("time", {"tubemq_window": {"start": HOUR, "end": HOUR}}, "is not before end"),
        ("time", {"tubemq_window": {"start": HOUR}}, "expected"),
        ("cursor", {"tubemq_window": {"start": HOUR, "end": HOUR}}, "takes what comes next"),
    ],
)
def test_a_run_that_a_mode_cannot_serve_fails_with_a_hint(
    airflow: AirflowStack, mode: str, conf: dict[str, Any], said: str
) -> None:
    dag_id = f"resolve_{mode}"
    airflow.wait_for_dags([dag_id])
    airflow.api.pause(dag_id, paused=False)
    run_id = airflow.api.trigger(dag_id, conf)
    with pytest.raises(AirflowApiError, match=said):
        airflow.expect_success(dag_id, run_id)
    assert airflow.api.task(dag_id, run_id, "ingest")["try_number"] == 1


def test_a_cursor_is_not_backfilled(airflow: AirflowStack) -> None:
    airflow.wait_for_dags(["resolve_cursor"])
    airflow.api.pause("resolve_cursor", paused=False)
    (run,) = airflow.backfill("resolve_cursor", HOUR, HOUR)
    assert run["state"] == "failed"
    log = airflow.logs("resolve_cursor", run["dag_run_id"])
    assert "a cursor has no past intervals" in log
