"""A real Airflow and the cluster it reads from, started once a session on loopback.

The first test that needs them starts them. Such tests give every Dag a separate group and
directory.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.lakes import SECRET, TOPIC, Cluster
from tools.devkit.airflow.stack import AirflowStack, running_airflow
from tubemq_client.embedded import EmbeddedTubeMQ, Switches

REPOSITORY = Path(__file__).parents[3]
DRILL_DAGS = Path(__file__).parent / "dags"


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Start the cluster of the real Airflow: two brokers, HTTP on, flushed by hand."""
    switches = Switches(flush_interval_ms=None, unflushed_records=None)
    with EmbeddedTubeMQ(brokers=2, switches=switches) as server:
        yield Cluster(server)


@pytest.fixture(scope="session")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the sinks of all real Dags, one directory each."""
    return tmp_path_factory.mktemp("lakes")


def _environment(lakes: Path) -> dict[str, str]:
    """Return the variables of the example Dags and the drills."""
    return {
        "TUBEMQ_EXAMPLE_CLUSTER": "test",
        "TUBEMQ_EXAMPLE_ENGINE": "inline",
        "TUBEMQ_EXAMPLE_INTERVAL_PATH": str(lakes / "hours"),
        "TUBEMQ_EXAMPLE_FOLLOW_PATH": str(lakes / "follow"),
        "TUBEMQ_EXAMPLE_RECORDS_PATH": str(lakes / "on_records"),
        "TUBEMQ_EXAMPLE_POLL_SECONDS": "2",
        "TUBEMQ_EXAMPLE_DELTA_SINK": f"delta:{lakes}/example_delta",
        "TUBEMQ_EXAMPLE_BOUNDARIES": str(lakes / "boundaries.json"),
        "TUBEMQ_EXAMPLE_DONE": str(lakes / "done"),
        "TUBEMQ_EXAMPLE_REPORTS": str(lakes / "reports"),
        "TUBEMQ_EXAMPLE_ALERTS_TOPIC": "told",
        "TUBEMQ_DRILL_LAKES": str(lakes),
    }


@pytest.fixture(scope="session")
def airflow(
    cluster: Cluster, lakes: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AirflowStack]:
    """Start a real Airflow over the example Dags and the drills, with the inline engine."""
    dags = tmp_path_factory.mktemp("dags")
    for file in (*(REPOSITORY / "dags").glob("*.py"), *DRILL_DAGS.glob("*.py")):
        shutil.copy(file, dags)
    (lakes / "sinks").mkdir()
    catalog = {"type": "sql", "uri": f"sqlite:///{lakes}/sinks/cat.db", "note": SECRET}
    catalog["warehouse"] = f"file://{lakes}/sinks/iceberg"
    own = ("deferred", "told", "submitted", "commands")
    for topic in (TOPIC, "drill", "kills", "sense", "sinks", *own):
        cluster.add_topic(topic)
    connection = {
        "conn_type": "tubemq",
        "host": cluster.server.masters,
        "extra": {"cluster": "test", "admin_url": f"http://{cluster.server.master_web}"},
    }
    with running_airflow(
        dags,
        connections={
            "tubemq_default": connection,
            "lake_catalog": {"conn_type": "generic", "extra": catalog},
        },
        environment=_environment(lakes),
        parallelism=4,
        root=tmp_path_factory.mktemp("airflow"),
        triggerer=True,
    ) as stack:
        yield stack
