"""Windows whose driver a genuine YARN runs, in cluster mode: whatever dies on the task's machine or
is killed, content equals receipts, and the manager ends what was cancelled. By hand."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.provider.spark.jobs import Window
from tests.provider.spark.test_submit_on_cluster import (
    TaskDied,
    application_of,
    bodies,
    data_files,
    nothing_is_left,
    said,
    until,
)
from tests.provider.spark.world import World
from tools.devkit.maven import MavenUnavailable
from tools.devkit.spark import QUICK_JAVA, spark_home
from tools.devkit.yarn import YarnCluster
from tubemq_provider.windows.errors import WindowError

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(500)]

SECRET = "hush-hush"


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[YarnCluster]:
    from tubemq_provider.engines.java import find_java

    try:
        with YarnCluster(tmp_path_factory.mktemp("yarn"), find_java().home) as started:
            yield started
    except MavenUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def configuration(yarn: YarnCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn.configuration))


def window_on(
    world: World, yarn: YarnCluster, lake: dict[str, str], work: Path, sink: str
) -> Window:
    """Run a window whose driver is in the cluster; broker 2 sends nothing once it is submitted."""
    conf = {
        "spark.master": "yarn",
        "spark.submit.deployMode": "cluster",
        "spark.yarn.jars": f"local:{spark_home()}/jars/*",
        "spark.yarn.stagingDir": (yarn.folder / "staging").as_uri(),
        "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": "127.0.0.1",
        "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
        "spark.pyspark.python": sys.executable,
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.executor.instances": "1",
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.executor.extraJavaOptions": QUICK_JAVA,
    }
    options = {"engine": "submit", "spark_conf": conf, "spark_work_dir": str(work)}
    return Window(world, sink, lake, **options)


@pytest.mark.parametrize("sink", ["s3://lake/by-yarn", "delta:s3://lake/by-yarn-delta"])
def test_the_next_try_resumes_the_driver_after_task_and_supervisor_died(
    world: World, yarn: YarnCluster, lake: dict[str, str], tmp_path: Path, sink: str
) -> None:
    world.produce(500, size=500)
    work = tmp_path / "work"
    window = window_on(world, yarn, lake, work, sink)
    before = len(yarn.applications())

    def die(point: str) -> None:
        if point == "application submitted":
            world.mq.broker(2).stop_reading()
        if point == "session started":
            until(lambda: data_files(window))
            process = application_of(work).process
            assert process is not None
            os.killpg(process, signal.SIGKILL)
            raise TaskDied

    with pytest.raises(TaskDied):
        window.run(die)
    assert yarn.applications()[before]["state"] == "RUNNING", yarn.logs()
    shown = said(work)
    world.mq.broker(2).resume_reading()
    points: list[str] = []
    result = window.run(points.append)

    assert "application submitted" not in points
    assert result.total == 500
    assert bodies(window) == window.expected()
    until(lambda: nothing_is_left(window, result.window_id or "", work))
    until(lambda: yarn.applications()[-1]["finalStatus"] == "SUCCEEDED")
    assert len(yarn.applications()) == before + 1
    assert not [text[:200] for text in (*shown, yarn.logs()) if SECRET in text]


def test_a_task_that_is_killed_has_the_manager_end_the_application(
    world: World, yarn: YarnCluster, lake: dict[str, str], tmp_path: Path
) -> None:
    world.produce(100)
    work = tmp_path / "work"
    window = window_on(world, yarn, lake, work, "s3://lake/killed-on-yarn")
    reached = threading.Event()

    def hold(point: str) -> None:
        if point == "application submitted":
            world.mq.broker(2).stop_reading()
        if point == "session started":
            until(lambda: data_files(window))
            reached.set()
            assert window.job is not None
            window.job.cancel()

    with pytest.raises(WindowError, match="cancelled"):
        window.run(hold)
    assert reached.is_set()
    until(lambda: yarn.applications()[-1]["state"] in ("KILLED", "FINISHED"))
    assert yarn.applications()[-1]["state"] == "KILLED"
    world.mq.broker(2).resume_reading()
    assert window.run().total == 100
    assert bodies(window) == window.expected()
