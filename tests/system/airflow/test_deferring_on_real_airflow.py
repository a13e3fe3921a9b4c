"""An ingest that waits in a real triggerer, with a `spark-submit` of the tests': whatever is killed
or cleared meanwhile, each record is published once."""

from __future__ import annotations

from pathlib import Path

import pytest

from devkit.airflow.stack import AirflowStack
from tests.kit.lakes import Cluster, Lake
from tests.kit.spark_submit import fake_spark_home
from tubemq_provider.engines.applications import Application

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(600)]

DAG = "drill_deferrable"
TOPIC = "submitted"


class Scene:
    """One Dag whose applications wait for a word."""

    def __init__(self, airflow: AirflowStack, lakes: Path) -> None:
        self.airflow = airflow
        self.work = lakes / "submit" / "work"
        self.lake = Lake(lakes / DAG)
        fake_spark_home(lakes / "submit")
        airflow.wait_for_dags([DAG])
        airflow.api.pause(DAG, paused=False)

    def state(self, run_id: str) -> str:
        return str(self.airflow.api.task(DAG, run_id, "ingest")["state"])

    def tries(self, run_id: str) -> int:
        return int(self.airflow.api.task(DAG, run_id, "ingest")["try_number"])

    def until_deferred(self, run_id: str) -> Application:
        """Its application; it runs, and the triggerer waits for it, not a worker."""
        self.airflow.api.wait(lambda: self.state(run_id) == "deferred", 180, "the task to defer")
        self.airflow.api.wait(
            lambda: "waiting for the Spark application" in self.airflow.logs(DAG, run_id),
            180,
            "the triggerer to begin",
        )
        found = [Application(folder) for folder in self.work.iterdir()]
        (running,) = (application for application in found if application.running)
        return running

    def let_go(self, application: Application) -> None:
        (application.folder / "go").touch()

    def published(self, run_id: str) -> int:
        """How many windows there are when the run has succeeded."""
        self.airflow.expect_success(DAG, run_id)
        return len(self.lake.windows())


def test_a_deferred_ingest_survives_the_triggerer_and_is_published_once(
    airflow: AirflowStack, cluster: Cluster, lakes: Path
) -> None:
    scene = Scene(airflow, lakes)
    cluster.produce(TOPIC, [f"first {i}" for i in range(20)])
    run_id = airflow.api.trigger(DAG)
    application = scene.until_deferred(run_id)
    airflow.kill("triggerer")
    scene.let_go(application)
    airflow.api.wait(lambda: not application.running, 180, "the application to end")
    airflow.restart("triggerer")
    assert scene.published(run_id) == 1
    assert scene.lake.records() == cluster.sent[TOPIC]

    # Marked failed while it is deferred: the application ends, and publishes nothing later.
    cluster.produce(TOPIC, [f"second {i}" for i in range(20)])
    failed = airflow.api.trigger(DAG)
    application = scene.until_deferred(failed)
    path = f"/dags/{DAG}/dagRuns/{failed}/taskInstances/ingest"
    airflow.api.call("PATCH", path, json={"new_state": "failed"})
    airflow.api.wait(lambda: not application.running, 180, "the application to be ended")
    assert len(scene.lake.windows()) == 1

    # Cleared while it is deferred: one of both tries publishes, once.
    cleared = airflow.api.trigger(DAG)
    scene.until_deferred(cleared)
    tries = scene.tries(cleared)
    airflow.api.clear(DAG, cleared, "ingest")
    airflow.api.wait(
        lambda: scene.tries(cleared) > tries and scene.state(cleared) == "deferred",
        180,
        "the cleared task to defer again",
    )
    for folder in scene.work.iterdir():
        scene.let_go(Application(folder))
    assert scene.published(cleared) == 2
    assert scene.lake.records() == cluster.sent[TOPIC]
