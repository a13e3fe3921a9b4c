"""An ingest that waits in a real triggerer, with a `spark-submit` of the tests' and with Spark's.

Each record is published once, whichever process is killed or task cleared meanwhile.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.lakes import Cluster, Lake
from tests.kit.spark_submit import fake_spark_home
from tools.devkit.airflow.stack import AirflowStack
from tubemq_provider.engines.applications import Application

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(600)]

FAKE, GENUINE = "drill_deferrable", "drill_deferrable_spark"
TOPIC = "submitted"


class Scene:
    """One Dag whose applications wait for a word."""

    def __init__(self, airflow: AirflowStack, lakes: Path, dag_id: str, work: Path) -> None:
        self.airflow = airflow
        self.dag_id = dag_id
        self.work = work
        self.lake = Lake(lakes / dag_id)
        airflow.wait_for_dags([dag_id])
        airflow.api.pause(dag_id, paused=False)

    def state(self, run_id: str, task_id: str = "ingest") -> str:
        return str(self.airflow.api.task(self.dag_id, run_id, task_id)["state"])

    def tries(self, run_id: str) -> int:
        return int(self.airflow.api.task(self.dag_id, run_id, "ingest")["try_number"])

    def until_deferred(self, run_id: str) -> Application:
        """Its application; it runs, and the triggerer waits for it, not a worker."""
        self.airflow.api.wait(lambda: self.state(run_id) == "deferred", 180, "the task to defer")
        self.airflow.api.wait(
            lambda: "waiting for the Spark application" in self.airflow.logs(self.dag_id, run_id),
            180,
            "the triggerer to begin",
        )
        found = [Application(folder) for folder in self.work.iterdir()]
        (running,) = (application for application in found if application.running)
        return running

    def let_go(self, application: Application) -> None:
        (application.folder / "go").touch()

    def published(self, run_id: str) -> int:
        """Return the number of windows when the run has succeeded."""
        self.airflow.expect_success(self.dag_id, run_id)
        return len(self.lake.windows())


def test_a_deferred_ingest_survives_the_triggerer_and_is_published_once(
    airflow: AirflowStack, cluster: Cluster, lakes: Path
) -> None:
    fake_spark_home(lakes / "submit")
    scene = Scene(airflow, lakes, FAKE, lakes / "submit" / "work")
    cluster.produce(TOPIC, [f"first {i}" for i in range(20)])
    run_id = airflow.api.trigger(FAKE)
    application = scene.until_deferred(run_id)
    airflow.kill("triggerer")
    scene.let_go(application)
    airflow.api.wait(lambda: not application.running, 180, "the application to end")
    airflow.restart("triggerer")
    assert scene.published(run_id) == 1
    assert scene.lake.records() == cluster.sent[TOPIC]

    # Marked failed while it is deferred: the application ends, and publishes nothing later.
    cluster.produce(TOPIC, [f"second {i}" for i in range(20)])
    failed = airflow.api.trigger(FAKE)
    application = scene.until_deferred(failed)
    path = f"/dags/{FAKE}/dagRuns/{failed}/taskInstances/ingest"
    airflow.api.call("PATCH", path, json={"new_state": "failed"})
    airflow.api.wait(lambda: not application.running, 180, "the application to be ended")
    assert len(scene.lake.windows()) == 1

    # Cleared while it is deferred: one of both tries publishes, once.
    cleared = airflow.api.trigger(FAKE)
    scene.until_deferred(cleared)
    tries = scene.tries(cleared)
    airflow.api.clear(FAKE, cleared, "ingest")
    airflow.api.wait(
        lambda: scene.tries(cleared) > tries and scene.state(cleared) == "deferred",
        180,
        "the cleared task to defer again",
    )
    for folder in scene.work.iterdir():
        scene.let_go(Application(folder))
    assert scene.published(cleared) == 2
    assert scene.lake.records() == cluster.sent[TOPIC]


def test_a_task_defers_while_spark_works_and_comes_back_past_a_killed_triggerer(
    airflow: AirflowStack, cluster: Cluster, lakes: Path
) -> None:
    place = lakes / "submit_spark"
    scene = Scene(airflow, lakes, GENUINE, place / "work")
    airflow.api.call("POST", "/pools", json={"name": "single", "slots": 1})
    cluster.produce(TOPIC, [f"by Spark {i}" for i in range(200)])

    run_id = airflow.api.trigger(GENUINE)
    application = scene.until_deferred(run_id)
    # The only slot of their pool is free for the other task of the run.
    airflow.api.wait(
        lambda: scene.state(run_id, "meanwhile") == "success", 180, "a task in the same slot"
    )
    assert (scene.state(run_id), application.running) == ("deferred", True)
    airflow.kill("triggerer")
    (place / "go").touch()
    airflow.api.wait(lambda: application.result is not None, 180, "the application's result")
    assert application.report["id"].startswith("local-")  # Spark's own word
    assert scene.lake.windows() == []
    airflow.restart("triggerer")

    assert scene.published(run_id) == 1
    assert scene.lake.records() == cluster.sent[TOPIC]
    assert scene.tries(run_id) == 1
    assert not list(scene.work.iterdir())
