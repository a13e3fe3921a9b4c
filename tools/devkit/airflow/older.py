"""Promises for Airflow before 3.3, checked on the Airflow that runs this.

Every module can be imported, windows are exactly once with ``offset_store="events"``, and the rest
names its requirement.

`python -m tools.devkit.airflow.older`, in an environment with that Airflow (`make
test-airflow-matrix` creates them). Prints a line for each promise and exits with 1 if one is not
kept.
"""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import tubemq_provider
from tests.kit.lakes import Cluster, Lake
from tools.devkit.airflow.stack import AirflowStack, running_airflow
from tubemq_client.embedded import EmbeddedTubeMQ, Switches

_ELSEWHERE: Final = ("dagster", "spark", "engines", "migrations")
"""Packages that need Dagster, PySpark or Alembic, and nothing of Airflow."""

_DAG: Final = """
from datetime import datetime, UTC
from airflow.sdk import DAG
from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator
from tubemq_provider.sensors.lag import TubeMQLagSensor

with DAG("older", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False):
    wait = TubeMQLagSensor(
        task_id="wait", topic="orders", group="lake", cluster="test", poke_interval=2, timeout=240,
        deferrable=True,
    )
    ingest = TubeMQCursorIngestOperator(
        task_id="ingest", topic="orders", group="lake", cluster="test", path={path!r},
        engine="inline", initial_position="earliest", offset_store="events",
    )
    wait >> ingest
"""
_REFUSED: Final = """
from datetime import datetime, UTC
from airflow.sdk import DAG
from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator

with DAG("refused", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False):
    TubeMQCursorIngestOperator(
        task_id="ingest", topic="orders", group="lake", cluster="test", path="/lake",
        engine="inline", initial_position="earliest",
    )
"""


def main() -> int:
    """Check all promises; return 0 if they are kept."""
    from airflow import __version__

    print(f"Airflow {__version__}", flush=True)
    problems = [*import_problems(), *listing_problems()]
    if not problems:
        problems = [*window_problems()]
    for problem in problems:
        print(f"  not kept: {problem}")
    return int(bool(problems))


def import_problems() -> Iterator[str]:
    """Yield modules that cannot be imported."""
    count = 0
    for module in pkgutil.walk_packages(tubemq_provider.__path__, "tubemq_provider."):
        if {*_ELSEWHERE} & {*module.name.split(".")}:
            continue
        count += 1
        try:
            importlib.import_module(module.name)
        except Exception as exc:  # noqa: BLE001 - it is reported
            yield f"{module.name}: {type(exc).__name__}: {exc}"
    print(f"  imported {count} modules", flush=True)


def listing_problems() -> Iterator[str]:
    """Yield problems that `airflow providers` reports about the provider."""
    command = [sys.executable, "-m", "airflow", "providers", "get", "airflow-provider-tubemq"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if answer.returncode or "airflow-provider-tubemq" not in answer.stdout:
        yield f"airflow providers get: {answer.stdout[-500:]} {answer.stderr[-500:]}"
    ours = [line for line in answer.stderr.splitlines() if "tubemq" in line.lower()]
    yield from (f"airflow providers get: {line}" for line in ours)
    print("  listed by airflow providers", flush=True)


def window_problems() -> Iterator[str]:
    """Run three windows on a real Airflow, the second after a deferred sensor, and check that an
    unavailable store is refused."""
    with tempfile.TemporaryDirectory(prefix="tubemq-older-") as name:
        folder = Path(name)
        (dags := folder / "dags").mkdir()
        lake = folder / "lake"
        (dags / "older.py").write_text(_DAG.format(path=str(lake)))
        switches = Switches(flush_interval_ms=None, unflushed_records=None)
        with EmbeddedTubeMQ(brokers=2, switches=switches, http=False) as server:
            cluster = Cluster(server)
            cluster.add_topic("orders")
            connection = {
                "conn_type": "tubemq",
                "host": server.masters,
                "extra": {"cluster": "test"},
            }
            with running_airflow(
                dags,
                database="sqlite",
                root=folder / "airflow",
                triggerer=True,
                connections={"tubemq_default": connection},
                # 3.1 does not start with the empty value that 3.3 accepts to need no driver.
                environment={
                    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": (
                        f"sqlite+aiosqlite:///{folder / 'airflow' / 'airflow.db'}"
                    )
                },
            ) as airflow:
                yield from _windows(airflow, cluster, Lake(lake))
                (dags / "refused.py").write_text(_REFUSED)
                yield from _refused(airflow)


def _windows(airflow: AirflowStack, cluster: Cluster, lake: Lake) -> Iterator[str]:
    airflow.wait_for_dags(["older"])
    airflow.api.pause("older", paused=False)
    for number, count in enumerate((20, 5, 7), 1):
        cluster.produce("orders", [f"{number} {i}" for i in range(count)])
        run = airflow.api.trigger("older")
        airflow.expect_success("older", run)
        result = airflow.api.xcom("older", run, "ingest")
        if result["total"] != count:
            yield f"window {number} has {result['total']} records of {count}"
    if lake.records() != cluster.sent["orders"]:
        yield "the lake has other records than were sent"
    print("  three windows, each waited for by a deferred sensor, exactly once", flush=True)


def _refused(airflow: AirflowStack) -> Iterator[str]:
    refused = airflow.api.wait(airflow.api.import_errors, 180, "the refusal of asset_state")
    messages = " ".join(error["stack_trace"] for error in refused)
    if "say offset_store='events'" not in messages:
        yield f"offset_store='asset_state' was not refused with the way out: {messages[-500:]}"
    print("  offset_store='asset_state' is refused with the way out", flush=True)


if __name__ == "__main__":
    sys.exit(main())
