"""Windows through `spark-submit` on a standalone cluster that runs slow tasks twice (speculation):
whatever is killed, content equals receipts, and nothing is left over."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.provider.spark.jobs import Window, conf_for
from tests.provider.spark.world import World
from tools.devkit.patience import PATIENCE
from tools.devkit.spark import SparkCluster
from tubemq_provider.engines.applications import Application, Applications
from tubemq_provider.sinks.delta import DeltaSink
from tubemq_provider.sinks.object_store import ObjectStoreSink
from tubemq_provider.sinks.read import read_windows
from tubemq_provider.windows.errors import WindowError

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

SECRET = "hush-hush"
DEADLINE_S = 180
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
}
TWICE = re.compile(r"Starting task \d+\.1 in stage")
"""Driver's log lines of a second task attempt, during or after the first."""


class TaskDied(BaseException):
    """Death of the task's process: nothing catches it, nothing cleans up."""


def bodies(window: Window) -> list[bytes]:
    if window.url.startswith("delta:"):
        table = DeltaTable(window.url.removeprefix("delta:"), storage_options=window.storage)
        return sorted(table.to_pyarrow_table(columns=["value"])["value"].to_pylist())
    return sorted(read_windows(window.sink()).to_table()["value"].to_pylist())


def application_of(work_dir: Path) -> Application:
    (found,) = (path for path in work_dir.iterdir() if path.is_dir())
    return Application(found)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S * PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.05)


def said(*folders: Path) -> list[str]:
    """Return the contents of files that still exist."""
    found = []
    for path in (path for folder in folders for path in folder.rglob("*")):
        with suppress(OSError):
            found.append(path.read_bytes().decode("utf-8", "replace"))
    return found


def commands() -> str:
    """Return command lines of all processes."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_bytes().decode("utf-8", "replace"))
    return "\n".join(found)


def submitting(
    world: World, cluster: SparkCluster, lake: dict[str, str], work: Path, **given: Any
) -> Window:
    """Start a window of three of the four partitions through `spark-submit`: when two of them are
    done, one of both workers is free for a second attempt of the third's task."""
    conf = {**conf_for(cluster), **SPECULATION}
    options = {"engine": "submit", "spark_conf": conf, "spark_work_dir": str(work)}
    window = Window(world, given.pop("sink"), lake, **options, **given)
    del window.ranges["2:1"]
    return window


def storage_of(window: Window) -> tuple[Any, str]:
    """Return the sink's storage, and the folder of its data."""
    sink = window.sink()
    assert isinstance(sink, ObjectStoreSink | DeltaSink)
    return sink.storage, "data" if isinstance(sink, ObjectStoreSink) else "windows"


def data_files(window: Window) -> set[str]:
    """Return the files of the sink's data."""
    storage, root = storage_of(window)
    return set(storage.names(root))


def kill_in_mid_task(world: World, cluster: SparkCluster, window: Window, work: Path) -> None:
    """Kill an executor while a task that is blocked in a read runs on both, and unblock it. Broker
    2 sends nothing until then."""
    application = application_of(work)
    until(lambda: TWICE.search(application.log.read_text("utf-8", "replace")))
    assert data_files(window)  # of the tasks that are done
    assert application.running
    os.kill(cluster.executors()[0], signal.SIGKILL)
    world.mq.broker(2).resume_reading()


def nothing_is_left(window: Window, window_id: str, work: Path) -> bool:
    """Check that only the marker's files are in the store and no application is on this machine. An
    executor may outlive its driver by a moment; files that it writes then are tidied later."""
    sink = window.sink()
    sink.tidy(window_id)
    marker = sink.marker(window_id)
    assert marker is not None
    return data_files(window) == set(marker.files) and not list(work.iterdir())


def test_an_executor_is_killed_the_task_dies_and_its_next_try_resumes_the_application(
    world: World, cluster: SparkCluster, lake: dict[str, str], tmp_path: Path
) -> None:
    world.produce(2_000, size=2_000)
    work = tmp_path / "work"
    url = "s3://lake/by-submit"
    window = submitting(world, cluster, lake, work, sink=url, ship_package=True)
    shown: list[str] = []

    def die(point: str) -> None:
        if point == "application submitted":
            world.mq.broker(2).stop_reading()
        if point == "frame loaded":
            shown.append(commands())
            kill_in_mid_task(world, cluster, window, work)
            raise TaskDied

    with pytest.raises(TaskDied):
        window.run(die)
    shown += said(work)
    points: list[str] = []
    result = window.run(points.append)

    assert "earlier try taken up" in points
    assert "application submitted" not in points
    assert result.total == len(window.expected()) > 1_000
    assert bodies(window) == window.expected()
    until(lambda: nothing_is_left(window, result.window_id or "", work))
    assert not [text[:200] for text in (*shown, *said(cluster.folder)) if SECRET in text]
    assert "program.py" in shown[0]


@pytest.mark.parametrize(
    "sink",
    [
        "delta:s3://lake/driver-killed-delta",
        pytest.param("s3://lake/driver-killed", marks=pytest.mark.soak),
    ],
    ids=["delta", "s3"],
)
def test_a_driver_is_killed_in_mid_task_and_the_task_is_retried_and_an_executor_is_killed(
    world: World, cluster: SparkCluster, lake: dict[str, str], tmp_path: Path, sink: str
) -> None:
    world.produce(500, size=500)
    work = tmp_path / "work"
    window = submitting(world, cluster, lake, work, sink=sink)

    def kill_driver(point: str) -> None:
        if point == "application submitted":
            world.mq.broker(2).stop_reading()
        if point == "session started":
            until(lambda: data_files(window))
            process = application_of(work).process
            assert process is not None
            os.killpg(process, signal.SIGKILL)
            world.mq.broker(2).resume_reading()

    def kill_executor(point: str) -> None:
        if point == "application submitted":
            world.mq.broker(2).stop_reading()
        if point == "session started":
            kill_in_mid_task(world, cluster, window, work)

    with pytest.raises(WindowError, match="ended without a result"):
        window.run(kill_driver)
    assert not application_of(work).running
    assert data_files(window)  # for nothing
    result = window.run(kill_executor)

    assert (result.total, result.replayed) == (len(window.expected()), False)
    assert bodies(window) == window.expected()
    assert window.run().replayed
    until(lambda: nothing_is_left(window, result.window_id or "", work))
    assert not list(Applications(work).of_window(result.window_id or ""))
