"""A window on a standalone cluster: executors in separate processes and directories, one of which
is killed, write straight into an object store; the driver only gets their reports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.provider.spark.world import TOPIC, World
from tools.devkit.patience import PATIENCE
from tools.devkit.processes import start_with_order
from tools.devkit.spark import QUICK_JAVA, SparkCluster, bare_python
from tubemq_provider.engines.java import find_java
from tubemq_provider.sinks.delta import DeltaSink
from tubemq_provider.sinks.factory import sink_for
from tubemq_provider.sinks.object_store import ObjectStoreSink
from tubemq_provider.sinks.read import read_windows

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(180)]

SECRET = "hush-hush"
CHILD = Path(__file__).with_name("cluster_child.py")
DEADLINE_S = 120


def conf(folder: Path) -> dict[str, str]:
    events = folder / "events"
    events.mkdir()
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.executor.extraJavaOptions": QUICK_JAVA,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{events}",
        "spark.ui.showConsoleProgress": "false",
    }


def write_task_of(world: World, cluster: SparkCluster, folder: Path) -> dict[str, object]:
    return {
        "masters": world.masters,
        "topic": TOPIC,
        "ranges": world.whole(),
        "master": cluster.master_url,
        "conf": conf(folder),
        "tasks": 12,
        "sql": None,
        "answer": str(folder / "answer.json"),
    }


def start_driver(folder: Path, order: dict[str, object], **more: str) -> subprocess.Popen[str]:
    """Start the driver, with a temporary directory in which nothing of the window may appear, and
    `more` in its environment."""
    (folder / "tmp").mkdir()
    return start_with_order(
        [sys.executable, str(CHILD)],
        order,
        log=folder / "driver.log",
        cwd=folder,
        environment={"TMPDIR": str(folder / "tmp"), "SPARK_LOCAL_IP": "127.0.0.1", **more},
    )


def data_files(sink: ObjectStoreSink | DeltaSink) -> list[str]:
    """Return everything in the sink's data, except for reports of a running read."""
    root = "data" if isinstance(sink, ObjectStoreSink) else "windows"
    return sorted(name for name in sink.storage.names(root) if "/_reads/" not in name)


def bodies_in(sink: ObjectStoreSink | DeltaSink, lake: dict[str, str]) -> list[bytes]:
    if isinstance(sink, ObjectStoreSink):
        return sorted(read_windows(sink).to_table()["value"].to_pylist())
    table = DeltaTable(sink.storage.url, storage_options=lake).to_pyarrow_table()
    return sorted(table["value"].to_pylist())


def kill_one_at_work(
    driver: subprocess.Popen[str], sink: ObjectStoreSink | DeltaSink, c: SparkCluster
) -> bool:
    """Kill an executor once there is a file; False if the window was done before."""
    deadline = time.monotonic() + DEADLINE_S * PATIENCE
    while driver.poll() is None and time.monotonic() < deadline:
        if data_files(sink) and (executors := c.executors()):
            os.kill(executors[0], signal.SIGKILL)
            return True
        threading.Event().wait(0.05)
    return False


@pytest.mark.parametrize(
    ("url", "sql"),
    [
        ("s3://lake/by-session", None),
        ("delta:s3://lake/by-sql", "SELECT partition, value, length(value) AS size FROM records"),
    ],
    ids=["records", "sql"],
)
def test_executors_that_share_nothing_with_the_driver_write_a_window_and_one_is_killed(
    world: World,
    cluster: SparkCluster,
    lake: dict[str, str],
    tmp_path: Path,
    url: str,
    sql: str | None,
) -> None:
    world.produce(2_000, size=2_000)
    sink = sink_for(url, storage_options=lake)
    assert isinstance(sink, ObjectStoreSink | DeltaSink)
    folder = tmp_path / "driver"
    folder.mkdir()
    given = {"sink": url, "storage_options": lake, "sql": sql}
    driver = start_driver(folder, {**write_task_of(world, cluster, folder), **given})
    try:
        killed = kill_one_at_work(driver, sink, cluster)
        driver.wait(DEADLINE_S)
    finally:
        driver.kill()
    answer = folder / "answer.json"
    assert answer.exists(), (folder / "driver.log").read_text()[-3000:]
    done = json.loads(answer.read_text())
    assert done["won"]
    assert len(done["files"]) >= 12
    assert bodies_in(sink, lake) == world.expected(world.whole())
    # Files of the killed executor are gone; its Python worker may have outlived it by a moment.
    deadline = time.monotonic() + DEADLINE_S * PATIENCE
    while data_files(sink) != sorted(done["files"]) and time.monotonic() < deadline:
        sink.tidy(done["window_id"])
        threading.Event().wait(0.2)
    assert data_files(sink) == sorted(done["files"])
    assert not [name for name in sink.storage.names("") if "/_reads/" in name]
    assert killed
    assert not [p for p in (folder / "tmp").rglob("*") if "parquet" in p.name]
    said = [json.dumps(done), *(p.read_text("utf-8", "replace") for p in cluster.logs())]
    said += [p.read_text("utf-8", "replace") for p in folder.rglob("*") if p.is_file()]
    assert len(said) > 6
    assert not [text[:200] for text in said if SECRET in text]


def test_executors_get_the_package_and_each_side_finds_its_own_python_by_name(
    world: World, lake: dict[str, str], tmp_path: Path
) -> None:
    world.produce(200)
    url = "s3://lake/by-shipped-session"
    folder = tmp_path / "driver"
    folder.mkdir()
    nodes = f"{Path(bare_python(tmp_path / 'python')).parent}:{os.defpath}"
    with SparkCluster(tmp_path / "cluster", find_java().home, workers=1, path=nodes) as cluster:
        order = write_task_of(world, cluster, folder)
        chosen = {**conf(tmp_path), "spark.pyspark.python": "python3"}
        given = {"sink": url, "storage_options": lake, "conf": chosen, "ship": True}
        # As in a task of Airflow's, whose interpreter is not that of the PATH.
        driver = start_driver(folder, {**order, **given}, PATH=os.defpath)
        try:
            driver.wait(DEADLINE_S)
        finally:
            driver.kill()
    answer = folder / "answer.json"
    assert answer.exists(), (folder / "driver.log").read_text()[-3000:]
    assert sum(json.loads(answer.read_text())["records"].values()) == 200
    sink = sink_for(url, storage_options=lake)
    assert isinstance(sink, ObjectStoreSink)
    assert bodies_in(sink, lake) == world.expected(world.whole())
    assert not list((folder / "tmp").glob("tubemq-ship-*"))
