"""Windows through `spark-submit` on a standalone cluster: whatever is killed, content equals
receipts, and nothing is left over."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from devkit.spark import SparkCluster
from tests.provider.spark.jobs import Window, conf_for
from tests.provider.spark.world import World
from tubemq_provider.engines.applications import Application, Applications
from tubemq_provider.sinks.object_store import ObjectStoreSink
from tubemq_provider.sinks.read import read_windows
from tubemq_provider.windows.errors import WindowError

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

SECRET = "hush-hush"
DEADLINE_S = 180


class TaskDied(BaseException):
    """What stands for the death of the task's process: nothing catches it, nothing cleans up."""


def bodies(window: Window) -> list[bytes]:
    if window.url.startswith("delta:"):
        table = DeltaTable(window.url.removeprefix("delta:"), storage_options=window.storage)
        return sorted(table.to_pyarrow_table(columns=["value"])["value"].to_pylist())
    return sorted(read_windows(window.sink()).to_table()["value"].to_pylist())


def application_of(work_dir: Path) -> Application:
    (found,) = (path for path in work_dir.iterdir() if path.is_dir())
    return Application(found)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.05)


def said(*folders: Path) -> list[str]:
    """What files say, as far as they are still there."""
    found = []
    for path in (path for folder in folders for path in folder.rglob("*")):
        with suppress(OSError):
            found.append(path.read_bytes().decode("utf-8", "replace"))
    return found


def commands() -> str:
    """Command lines of all processes."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_bytes().decode("utf-8", "replace"))
    return "\n".join(found)


def submitting(
    world: World, cluster: SparkCluster, lake: dict[str, str], work: Path, **given: Any
) -> Window:
    """A window that goes through `spark-submit`."""
    options = {"engine": "submit", "spark_conf": conf_for(cluster), "spark_work_dir": str(work)}
    return Window(world, given.pop("sink"), lake, **options, **given)


def leftovers(window: Window, window_id: str) -> set[str]:
    """What is in the store and not in the marker, after tidying."""
    sink = window.sink()
    assert isinstance(sink, ObjectStoreSink)
    sink.tidy(window_id)
    marker = sink.marker(window_id)
    assert marker is not None
    return set(sink.storage.names("data")) ^ set(marker.files)


def test_a_task_dies_its_next_try_takes_the_application_up_and_an_executor_is_killed(
    world: World, cluster: SparkCluster, lake: dict[str, str], tmp_path: Path
) -> None:
    world.produce(2_000, size=2_000)
    work = tmp_path / "work"
    url = "s3://lake/by-submit"
    window = submitting(world, cluster, lake, work, sink=url, ship_package=True)
    shown: list[str] = []

    def die(point: str) -> None:
        if point == "frame loaded":
            shown.append(commands())
            raise TaskDied

    with pytest.raises(TaskDied):
        window.run(die)
    application = application_of(work)
    shown += said(work)
    sink = window.sink()
    assert isinstance(sink, ObjectStoreSink)

    points: list[str] = []

    def kill(point: str) -> None:
        points.append(point)
        if point == "session started":
            until(lambda: any(sink.storage.names("data")) or not application.running)
            for pid in cluster.executors()[:1]:  # none if the window was done meanwhile
                os.kill(pid, signal.SIGKILL)

    result = window.run(kill)

    assert "earlier try taken up" in points
    assert "application submitted" not in points
    assert result.total == 2_000
    assert bodies(window) == window.expected()
    assert not [*leftovers(window, result.window_id or ""), *work.iterdir()]
    assert not [text[:200] for text in (*shown, *said(cluster.folder)) if SECRET in text]
    assert "program.py" in shown[0]


def test_a_driver_is_killed_and_the_task_retried_into_delta(
    world: World, cluster: SparkCluster, lake: dict[str, str], tmp_path: Path
) -> None:
    world.produce(500, size=500)
    work = tmp_path / "work"
    window = submitting(world, cluster, lake, work, sink="delta:s3://lake/by-submit-delta")

    def kill(point: str) -> None:
        if point == "session started":  # which is seconds before the driver can be done
            process = application_of(work).process
            assert process is not None
            os.killpg(process, signal.SIGKILL)

    with pytest.raises(WindowError, match="ended without a result"):
        window.run(kill)
    assert not application_of(work).running
    result = window.run()

    assert (result.total, result.replayed) == (500, False)
    assert bodies(window) == window.expected()
    assert window.run().replayed
    assert not list(work.iterdir())
    assert not list(Applications(work).of_window(result.window_id or ""))
