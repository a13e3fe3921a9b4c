"""Samples in real asset state, taken by one Dag and used by another, cut windows by arrival."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.airflow.conftest import Cluster, Lake
from tubemq_provider._devkit.airflow_stack import AirflowStack

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(300)]

ASSET = "tubemq:test/timed/timed"


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
