"""Windows on Airflow's Celery executor: two workers in separate processes, on PostgreSQL.

`python -m tools.devkit.airflow.celery_run`, in an environment with Airflow's Celery provider
(`make test-celery` creates it). Celery's broker is the same PostgreSQL, over kombu's SQLAlchemy
transport: no other server is needed. Prints a line for each promise and exits with 1 if one is not
kept.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import psutil  # type: ignore[import-untyped]

from tests.kit.lakes import Cluster, RocketMQCluster
from tests.system.scenarios.conftest import DAGS, Scene
from tools.devkit.airflow.database import metadata_database
from tools.devkit.airflow.home import AirflowHome
from tools.devkit.airflow.stack import AirflowStack
from tools.devkit.reaper import Reaper
from tubemq_client.embedded import EmbeddedTubeMQ, Switches

SIDE_BY_SIDE: Final = ("s01", "s02", "s08", "s16")
KILLED: Final = "s03"
WORKERS: Final = 2


def main() -> int:
    """Run all checks; return 0 if all promises are kept."""
    switches = Switches(flush_interval_ms=None, unflushed_records=None)
    with (
        tempfile.TemporaryDirectory(prefix="tubemq-celery-") as name,
        EmbeddedTubeMQ(brokers=2, switches=switches, http=False) as server,
        _airflow(Path(name), server) as airflow,
    ):
        clusters: dict[str, Cluster | RocketMQCluster] = {"tubemq": Cluster(server)}
        stage = Scene("stage", airflow, clusters, Path(name) / "lakes")
        problems = [*_side_by_side(stage), *_killed(stage)]
    for problem in problems:
        print(f"  not kept: {problem}")
    return int(bool(problems))


@contextmanager
def _airflow(root: Path, server: EmbeddedTubeMQ) -> Iterator[AirflowStack]:
    lakes, dags, home = root / "lakes", root / "dags", root / "airflow"
    for folder in (*(lakes / name for name in ("stop", "reached", "go")), dags, home):
        folder.mkdir(parents=True)
    for file in DAGS.glob("*.py"):
        shutil.copy(file, dags)
    reaper = Reaper()
    with closing(reaper), metadata_database("postgres", home, reaper) as url:
        settings = AirflowHome(
            home,
            url,
            dags,
            connections={
                "tubemq_default": {
                    "conn_type": "tubemq",
                    "host": server.masters,
                    "extra": {"cluster": "test"},
                }
            },
            environment={
                "TUBEMQ_SCENARIO_LAKES": str(lakes),
                "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
                "AIRFLOW__CELERY__BROKER_URL": f"sqla+{url}",
                "AIRFLOW__CELERY__RESULT_BACKEND": f"db+{url}",
                "AIRFLOW__SCHEDULER__USE_JOB_SCHEDULE": "False",
                "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "20",
                "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
            },
            parallelism=8,
        )
        airflow = AirflowStack(settings, reaper)
        try:
            airflow.migrate()
            _make_queue(f"sqla+{url}")
            airflow.start(workers=WORKERS)
            yield airflow
        finally:
            airflow.stop()


def _make_queue(broker: str) -> None:
    """Create Airflow's queue, and the tables of all queues. A process that finds them missing
    creates them, and of two workers that do so at once, one fails."""
    from kombu import Connection  # type: ignore[import-not-found]

    with Connection(broker) as connection:
        channel = connection.channel()
        channel.queue_declare("default")
        # Kombu leaves its transaction open, which the database would abort during the run.
        channel.session.close()


def _side_by_side(stage: Scene) -> Iterator[str]:
    """Run four groups at once, three windows each: each record is there once."""
    scenes = [stage.other(name) for name in SIDE_BY_SIDE]
    for scene in scenes:
        scene.begin()
    for window in range(3):
        for scene in scenes:
            scene.produce(20 + window)
        runs = [(scene, scene.trigger()) for scene in scenes]
        for scene, run in runs:
            scene.result(run)
    for scene in scenes:
        scene.expect_whole(windows=3)
    idle = [name for name in _workers() if "succeeded" not in stage.airflow.component_log(name)]
    yield from (f"{name} had no task" for name in idle)
    print("  four groups, three windows each, on two workers: each record once", flush=True)


def _killed(stage: Scene) -> Iterator[str]:
    """Kill a worker with all its tasks while one of them writes; the other worker continues it."""
    scene = stage.other(KILLED)
    scene.begin()
    scene.produce(30)
    run = scene.stand_at("ingest:")
    pid = int(scene.api.task(scene.name, run, "ingest")["pid"])
    worker = _worker_of(stage.airflow, pid)
    stage.airflow.kill(worker)
    scene.go_on()
    scene.result(run)
    tries = scene.api.task(scene.name, run, "ingest")["try_number"]
    scene.expect_whole(windows=1)
    if tries < 2:
        yield f"the task was not tried again, though {worker} was killed"
    stage.airflow.restart(worker)
    scene.produce(5)
    scene.run()
    scene.expect_whole(windows=2)
    print(f"  {worker} killed in the middle of a window: each record once, in try {tries}")


def _worker_of(airflow: AirflowStack, pid: int) -> str:
    ancestors = {process.pid for process in psutil.Process(pid).parents()}
    return next(name for name in _workers() if airflow.process_ids()[name] in ancestors)


def _workers() -> list[str]:
    return [f"worker-{number + 1}" for number in range(WORKERS)]


if __name__ == "__main__":
    sys.exit(main())
