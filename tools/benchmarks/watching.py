"""Latency of a watcher's run, also after idle minutes.

Run as ``python -m tools.benchmarks.watching``.

A real Airflow with a triggerer and the example Dag `tubemq_on_records`, on an embedded cluster.
After `--idle` seconds without records, batches are sent; for each the time from the last receipt to
the start of the Dag's run is measured, by the clock of this machine. At the end the lake must hold
all records, with no run active: a stranded backlog ends in an error.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from datetime import datetime
from pathlib import Path

from tests.kit.lakes import Cluster, Lake
from tools.devkit.airflow.stack import AirflowStack, running_airflow
from tubemq_client.embedded import EmbeddedTubeMQ, Switches

DAG, TOPIC = "tubemq_on_records", "orders"
DAG_FILE = Path(__file__).parents[2] / "dags" / "tubemq_on_records.py"


def wait_until_taken(airflow: AirflowStack, cluster: Cluster, lake: Lake) -> None:
    """Wait until the lake holds everything and no run is active."""

    def there() -> bool:
        states = {run["state"] for run in airflow.api.runs(DAG)}
        if "success" not in states or states & {"queued", "running"}:
            return False
        return lake.records() == cluster.sent[TOPIC]

    airflow.api.wait(there, 120, "the records in the lake", period=0.5)


def latency(airflow: AirflowStack, cluster: Cluster, lake: Lake, number: int) -> float:
    """Return the seconds from the receipts of a batch to the start of the first run after them."""
    before = {run["dag_run_id"] for run in airflow.api.runs(DAG)}
    cluster.produce(TOPIC, [f"{number}.{n}" for n in range(10)])
    sent = time.time()
    wait_until_taken(airflow, cluster, lake)
    new = [run for run in airflow.api.runs(DAG) if run["dag_run_id"] not in before]
    started = min(datetime.fromisoformat(run["start_date"]).timestamp() for run in new)
    return started - sent


def measure(idle: float, batches: int, poll: float) -> list[float]:
    """Return the latencies, in their order."""
    root = Path(tempfile.mkdtemp(prefix="watching"))
    (root / "dags").mkdir()
    shutil.copy(DAG_FILE, root / "dags")
    switches = Switches(flush_interval_ms=None, unflushed_records=None)
    with EmbeddedTubeMQ(brokers=2, switches=switches) as server:
        cluster, lake = Cluster(server), Lake(root / "lake")
        cluster.add_topic(TOPIC)
        connection = {
            "conn_type": "tubemq",
            "host": server.masters,
            "extra": {"cluster": "test"},
        }
        environment = {
            "TUBEMQ_EXAMPLE_CLUSTER": "test",
            "TUBEMQ_EXAMPLE_ENGINE": "inline",
            "TUBEMQ_EXAMPLE_RECORDS_PATH": str(root / "lake"),
            "TUBEMQ_EXAMPLE_POLL_SECONDS": str(poll),
        }
        with running_airflow(
            root / "dags",
            connections={"tubemq_default": connection},
            environment=environment,
            parallelism=2,
            root=root / "airflow",
            triggerer=True,
        ) as airflow:
            airflow.wait_for_dags([DAG])
            airflow.watch(DAG)
            latency(airflow, cluster, lake, 0)  # the first one waits for the triggerer, too
            print(f"idle for {idle:.0f} s", flush=True)
            time.sleep(idle)
            return [latency(airflow, cluster, lake, number + 1) for number in range(batches)]


def main() -> None:
    """Print the latencies and their median."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--idle", type=float, default=600, help="idle seconds before the batches")
    parser.add_argument("--batches", type=int, default=9)
    parser.add_argument("--poll", type=float, default=5, help="the watcher's poll_interval, s")
    options = parser.parse_args()
    latencies = measure(options.idle, options.batches, options.poll)
    print("publish to run, s:", " ".join(f"{each:.1f}" for each in latencies))
    print(
        f"first after idling {latencies[0]:.1f} s, median {statistics.median(latencies):.1f} s, "
        f"poll_interval {options.poll:.0f} s, nothing stranded"
    )


if __name__ == "__main__":
    main()
