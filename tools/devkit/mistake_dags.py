"""Dags with the mistakes that beginners make, each with one; for `tools.devkit.mistake_pictures`.

Each fails at its first try, explains the error, and changes nothing. Paths and cluster come from
the environment; a file of Airflow's Dag folder imports `DAGS` and the Dags in it.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG

from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator, TubeMQWindowIngestOperator
from tubemq_provider.sensors.lag import TubeMQLagSensor

__all__ = ["DAGS", "FIRST", "MISTAKES"]

LAKES = os.environ.get("TUBEMQ_MISTAKES_LAKES", "/lakes")
FIRST = "a_good_beginning"
INTERVAL = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-01T01:00:00Z"}
BOUNDARY = {"2026-02-01T00:00:00Z": {"orders": {"1:0": 0, "1:1": 0}}}

MISTAKES: dict[str, dict[str, Any]] = {
    "dead_host": {"tubemq_conn_id": "dead"},
    "no_such_name": {"tubemq_conn_id": "nameless"},
    "http_port": {"tubemq_conn_id": "http_port"},
    "bad_fields": {"tubemq_conn_id": "bad_fields"},
    "no_connection": {"tubemq_conn_id": "tubemq_prod"},
    "wrong_topic": {"topic": "oders"},
    "no_initial_position": {"initial_position": None},
    "cluster_not_passed": {"cluster": None},
    "unknown_partition": {"initial_position": {"orders": {"9:9": 0}}},
    "beyond_the_end": {"initial_position": {"orders": {"1:0": 280_000_000, "1:1": 0}}},
    "missing_folder": {"path": f"{LAKES}/not_mounted/orders"},
    "folder_cannot_be_made": {"path": "/proc/lake"},
    "no_interval": {"resolver": "timeline", "initial_position": None},
    "no_boundaries_file": {**INTERVAL, "boundaries": "/nothere.json", "initial_position": None},
    "instant_not_known": {**INTERVAL, "boundaries": BOUNDARY, "initial_position": None},
    "end_not_there": {
        "initial_position": None,
        "starting_offsets": {"orders": {"1:0": 0, "1:1": 0}},
        "ending_offsets": {"orders": {"1:0": 280_000_000, "1:1": 0}},
    },
    "renamed_group": {"group": "lake_renamed", "path": f"{LAKES}/{FIRST}"},
    "same_group_other_path": {"group": "lake", "path": f"{LAKES}/elsewhere"},
    "renamed_cluster": {
        "tubemq_conn_id": "alias",
        "cluster": "renamed",
        "group": "lake",
        "path": f"{LAKES}/{FIRST}",
    },
    "ledger_not_configured": {"offset_store": "ledger"},
    "iceberg_without_catalog": {"path": None, "sink": "iceberg:nocatalog/sales.orders"},
    "no_database_driver": {
        "path": None,
        "sink": "postgresql+psycopg://db.example/lake?table=orders",
    },
}
"""Arguments in which each Dag differs from one that works."""


def _ingest(dag_id: str, differences: dict[str, Any]) -> DAG:
    arguments: dict[str, Any] = {
        "topic": "orders",
        "group": f"lake_{dag_id}",
        "cluster": "main",
        "initial_position": "earliest",
        "path": f"{LAKES}/{dag_id}",
        "engine": "inline",
        **differences,
    }
    if conn_id := arguments.get("tubemq_conn_id"):
        arguments["cluster"] = differences.get("cluster", conn_id)
    with DAG(dag_id, schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)) as dag:
        passed = {name: value for name, value in arguments.items() if value is not None}
        of_time = {"resolver", "boundaries", "starting_offsets"} & passed.keys()
        operator = TubeMQWindowIngestOperator if of_time else TubeMQCursorIngestOperator
        operator(task_id="ingest", **passed)
    return dag


def _sensor(dag_id: str, **arguments: Any) -> DAG:
    common: dict[str, Any] = {"topic": "orders", "group": "lake", "timeout": 3, "poke_interval": 1}
    with DAG(dag_id, schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)) as dag:
        TubeMQLagSensor(task_id="ingest", **{**common, **arguments})
    return dag


DAGS = {
    FIRST: _ingest(FIRST, {"group": "lake"}),
    **{name: _ingest(name, differences) for name, differences in MISTAKES.items()},
    "sensor_dead_host": _sensor("sensor_dead_host", tubemq_conn_id="dead"),
    "sensor_wrong_topic": _sensor("sensor_wrong_topic", topic="oders", cluster="main"),
}
