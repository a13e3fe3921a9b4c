"""One real Airflow for all failure scenarios, with helpers for their requests.

Each scenario has a topic, a group, a Dag and a lake by its name, so they do not interfere. Those
about windows also run over RocketMQ, on Dags that begin with ``r``: a few always, all of them with
``SCENARIOS_OVER=all``.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from rocketmq_client.embedded import EmbeddedRocketMQ
from tests.kit.lakes import Cluster, Lake, RocketMQCluster
from tools.devkit.airflow.stack import AirflowStack, running_airflow
from tubemq_client.embedded import EmbeddedTubeMQ, Switches
from tubemq_provider.sinks.read import published_windows
from tubemq_provider.windows.coverage import Coverage, coverage

HOUR = timedelta(hours=1)
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
DAGS = Path(__file__).parent / "dags"
PATIENCE = 180
"""Seconds in which a task begins, or fails for good, on a machine that does much else as well."""

ONLY_TUBEMQ = {"16_the_dag_file", "17", "18", "24", "25"}
"""About Airflow's own housekeeping, index offsets, or stores that partitions share."""
ALWAYS_ON_BOTH = {"04", "14"}

Clusters = dict[str, Cluster | RocketMQCluster]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize a scenario by the sources it runs over."""
    if "scene" not in metafunc.fixturenames:
        return
    number = metafunc.function.__name__.removeprefix("test_scenario_")
    sources = ["tubemq"]
    if not any(number.startswith(name) for name in ONLY_TUBEMQ) and (
        number[:2] in ALWAYS_ON_BOTH or os.environ.get("SCENARIOS_OVER") == "all"
    ):
        sources.append("rocketmq")
    metafunc.parametrize("source", sources)


class Scene:
    """The stage of one scenario: its Dag, topic, group and lake."""

    def __init__(self, name: str, airflow: AirflowStack, clusters: Clusters, lakes: Path) -> None:
        self.name = name
        self.airflow = airflow
        self.api = airflow.api
        self.clusters = clusters
        self.cluster = clusters["rocketmq" if name.startswith("r") else "tubemq"]
        self.root = lakes
        self.lake = Lake(lakes / name)
        self.asset = f"{self.cluster.source}:test/{name}/group_{name}"
        self._runs = 0

    def other(self, name: str) -> Scene:
        """Another scene on the same stage; it has the number that follows the first letter."""
        scene = Scene(name, self.airflow, self.clusters, self.root)
        if name not in scene.cluster.sent:
            scene.cluster.add_topic(name)
        return scene

    def beside(self, suffix: str) -> str:
        """Return the name of the scenario's other Dag."""
        return self.name + suffix

    # -- what happens

    def begin(self, *dag_ids: str) -> None:
        """Unpause the Dags (the scenario's own without any)."""
        dag_ids = dag_ids or (self.name,)
        self.airflow.wait_for_dags(dag_ids)
        for dag_id in dag_ids:
            self.api.pause(dag_id, paused=False)

    def produce(self, count: int) -> dict[str, int]:
        """Send records to both brokers, on disk; return the ends by partition."""
        first = self.cluster.sent[self.name].total()
        return self.cluster.produce(self.name, [f"{self.name} {first + i}" for i in range(count)])

    def trigger(self, dag_id: str | None = None, **body: Any) -> str:
        """Start a run; its id."""
        return self.api.trigger(dag_id or self.name, **body)

    def interval(self, hour: int, dag_id: str | None = None) -> str:
        """Start the run of an hour; its id."""
        start = FIRST + HOUR * hour
        return self.trigger(
            dag_id,
            logical_date=start.isoformat(),
            data_interval_start=start.isoformat(),
            data_interval_end=(start + HOUR).isoformat(),
        )

    def run(self, dag_id: str | None = None) -> dict[str, Any]:
        """Run a whole run that must succeed; return its result."""
        return self.result(self.trigger(dag_id), dag_id)

    def result(self, run_id: str, dag_id: str | None = None) -> dict[str, Any]:
        """Wait for a run that must succeed; its result."""
        dag_id = dag_id or self.name
        self.airflow.expect_success(dag_id, run_id)
        found = self.api.xcom(dag_id, run_id, "ingest")
        assert isinstance(found, dict)
        return found

    def failure(self, run_id: str, dag_id: str | None = None) -> str:
        """Wait for a run that must fail; its logs."""
        dag_id = dag_id or self.name
        assert self.api.wait_for_run(dag_id, run_id, PATIENCE) == "failed"
        return self.airflow.logs(dag_id, run_id)

    def stand_at(self, point: str, dag_id: str | None = None) -> str:
        """Start a run whose task blocks at a point, and wait until it does."""
        dag_id = dag_id or self.name
        (self.root / "stop" / dag_id).write_text(point)
        run_id = self.trigger(dag_id)
        self.api.wait((self.root / "reached" / dag_id).exists, PATIENCE, f"{dag_id} to stand", 0.1)
        return run_id

    def go_on(self, dag_id: str | None = None) -> None:
        """Release the blocked task."""
        (self.root / "go" / (dag_id or self.name)).touch()

    def kill(self, run_id: str) -> None:
        """SIGKILL the process of the run's task."""
        self.airflow.kill_task(self.name, run_id, "ingest")

    def clear(self, run_id: str) -> dict[str, Any]:
        """Clear the task, let it run again; its result."""
        self.api.clear(self.name, run_id, "ingest")
        return self.result(run_id)

    def cut_hours(self, *counts: int) -> list[Counter[tuple[str, bytes]]]:
        """Send these numbers of records per hour and record its boundary; return the records of
        each."""
        last = dict.fromkeys(self.cluster.keys, 0)
        cuts = {rfc(0): {self.name: last}}
        hours = []
        for hour, count in enumerate(counts):
            before = Counter(self.cluster.sent[self.name])
            ends = self.produce(count)
            # A boundary lies where the store ended: for TubeMQ the same offset for its partitions.
            shared = self.cluster.source == "tubemq"
            last = {
                key: max(
                    last[key],
                    *(
                        end
                        for other, end in ends.items()
                        if other == key or (shared and other[0] == key[0])
                    ),
                )
                for key in last
            }
            cuts[rfc(hour + 1)] = {self.name: last}
            hours.append(self.cluster.sent[self.name] - before)
        (self.root / f"{self.name}.json").write_text(json.dumps(cuts))
        return hours

    # -- what is there

    @property
    def sent(self) -> Counter[tuple[str, bytes]]:
        return self.cluster.sent[self.name]

    def cursor(self) -> dict[str, Any] | None:
        """Return the cursor in asset state, None without one."""
        return self.api.asset_state(self.asset).get("cursor")

    def keep_state(self, asset: str, key: str) -> None:
        """Put something into the state of any asset."""
        path = f"/assets/{self.api.asset_id(asset)}/state-store/{key}"
        self.api.call("PUT", path, json={"value": "kept"})

    def kept_state(self, asset: str) -> int:
        """Return the number of values in the metadata database for an asset, active or not."""
        engine = sa.create_engine(self.airflow.home.database_url)
        wanted = (
            "SELECT count(*) FROM asset_state_store JOIN asset ON asset.id = asset_id "
            "WHERE asset.name = :name"
        )
        try:
            with engine.connect() as database:
                return int(database.execute(sa.text(wanted), {"name": asset}).scalar_one())
        finally:
            engine.dispose()

    def events(self) -> list[dict[str, Any]]:
        """Return the commit events, oldest first."""
        return [event["extra"]["tubemq"] for event in self.api.asset_events(self.asset)]

    def files(self) -> list[tuple[str, int]]:
        """Every file of the lake, with the time it was written."""
        return sorted((str(f), f.stat().st_mtime_ns) for f in self.lake.root.rglob("*.*"))

    def coverage(self) -> Coverage:
        (found,) = coverage(published_windows(self.lake.root))
        return found

    def expect_whole(self, windows: int) -> None:
        """Assert that every record is in the lake once, in `windows` windows, and no try left
        files."""
        assert self.lake.records() == self.sent
        assert len(self.lake.windows()) == windows
        assert list(self.lake.staging.iterdir()) == []


def rfc(hour: int) -> str:
    return (FIRST + HOUR * hour).isoformat()


@pytest.fixture(scope="session")
def dags_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the Dags, so that tests may change them."""
    folder = tmp_path_factory.mktemp("scenario-dags")
    for file in DAGS.glob("*.py"):
        shutil.copy(file, folder)
    return folder


@pytest.fixture(scope="session")
def stage(
    dags_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[AirflowStack, Clusters, Path]]:
    """Start a real Airflow and the clusters that it reads from; return the lakes' folder, too."""
    lakes = tmp_path_factory.mktemp("scenario-lakes")
    for name in ("stop", "reached", "go"):
        (lakes / name).mkdir()
    switches = Switches(flush_interval_ms=None, unflushed_records=None)
    with (
        EmbeddedTubeMQ(brokers=2, switches=switches, http=False) as server,
        EmbeddedRocketMQ(brokers=2) as other,
    ):
        clusters: Clusters = {"tubemq": Cluster(server), "rocketmq": RocketMQCluster(other)}
        connection = {
            "conn_type": "tubemq",
            "host": server.masters,
            "extra": {"cluster": "test"},
        }
        host, port = other.name_server
        second = {**connection, "conn_type": "rocketmq", "host": f"{host}:{port}"}
        with running_airflow(
            dags_folder,
            connections={"tubemq_default": connection, "rocketmq_default": second},
            environment={
                "TUBEMQ_SCENARIO_LAKES": str(lakes),
                "AIRFLOW__SCHEDULER__USE_JOB_SCHEDULE": "False",
                # How often stale Dags, and the state of assets without a Dag, are cleaned up.
                "AIRFLOW__SCHEDULER__PARSING_CLEANUP_INTERVAL": "5",
                # A heartbeat comes every five seconds, or a little later on a busy machine.
                "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "20",
                "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
            },
            parallelism=5,
            root=tmp_path_factory.mktemp("scenario-airflow"),
        ) as airflow:
            yield airflow, clusters, lakes


@pytest.fixture
def scene(
    stage: tuple[AirflowStack, Clusters, Path], request: pytest.FixtureRequest, source: str
) -> Scene:
    """Return the scene of the test's number: ``test_scenario_04_…`` runs on ``s04``, or ``r04``."""
    airflow, clusters, lakes = stage
    name = source[0].replace("t", "s") + request.node.originalname.split("_")[2]
    return Scene(name, airflow, clusters, lakes).other(name)
