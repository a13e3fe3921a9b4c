"""Scenarios 1 to 6 and 23: a task dies or is superseded at every stage of its window.

The assertions are those of the docs: the offsets of the retry, its writes, and the contents of the
cursor and the commit events afterwards.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from tests.system.scenarios.conftest import Scene

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(600)]


def killed_at(scene: Scene, point: str, between: int = 0) -> dict[str, Any]:
    """Kill the first try of a run at a point; `between` records arrive meanwhile. Return the result
    of the retry."""
    scene.begin()
    scene.produce(20)
    run_id = scene.stand_at(point)
    if between:
        scene.produce(between)
    scene.kill(run_id)
    found = scene.result(run_id)
    assert len(scene.api.tries(scene.name, run_id, "ingest")) == 2
    return found


def test_scenario_01_killed_before_the_plan_is_stored(scene: Scene) -> None:
    found = killed_at(scene, "plan:plan created", between=5)
    # Nothing held the first try's plan, so the retry takes what is there by now.
    assert (found["total"], found["replayed"]) == (25, False)
    assert found["window_id"].startswith("c-1-")
    scene.expect_whole(windows=1)


def test_scenario_02_killed_after_the_plan_before_the_ingest(scene: Scene) -> None:
    found = killed_at(scene, "plan:task plan stored", between=5)
    assert (found["total"], found["replayed"]) == (20, False)
    assert scene.run()["total"] == 5
    scene.expect_whole(windows=2)


def test_scenario_03_killed_in_the_middle_of_the_ingest(scene: Scene) -> None:
    found = killed_at(scene, "ingest:range written", between=5)
    assert (found["total"], found["replayed"]) == (20, False)
    assert scene.run()["total"] == 5
    scene.expect_whole(windows=2)


def test_scenario_04_killed_after_sink_commit_before_cursor(scene: Scene) -> None:
    scene.begin()
    scene.produce(20)
    run_id = scene.stand_at("publish:published")
    written = scene.files()
    assert scene.lake.records() == scene.sent
    assert scene.cursor() is None
    scene.kill(run_id)
    assert scene.result(run_id)["replayed"]
    assert scene.files() == written
    assert scene.cursor()["seq"] == 1  # type: ignore[index]
    assert [event["window_id"] for event in scene.events()] == scene.lake.windows()
    scene.expect_whole(windows=1)


def test_scenario_05_killed_after_the_cursor_before_success(scene: Scene) -> None:
    scene.begin()
    scene.produce(20)
    run_id = scene.stand_at("commit_event:event emitted")
    before = scene.cursor()
    assert before is not None
    assert scene.events() == []
    scene.kill(run_id)
    assert scene.result(run_id)["replayed"]
    assert scene.cursor() == before
    assert len(scene.events()) == 1
    scene.expect_whole(windows=1)


@pytest.fixture
def stopped() -> Iterator[list[int]]:
    """Yield a list of processes that a test stops; they are resumed at its end."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        if psutil.pid_exists(pid):
            os.kill(pid, signal.SIGCONT)


def test_scenario_06_a_superseded_try_continues(scene: Scene, stopped: list[int]) -> None:
    scene.begin()
    scene.produce(20)
    run_id = scene.stand_at("ingest:end")
    zombie = psutil.Process(int(scene.api.task(scene.name, run_id, "ingest")["pid"]))
    # Without heartbeats of its supervisor the try is given up; its process does not know that.
    supervisor = zombie.ppid()
    os.kill(supervisor, signal.SIGSTOP)
    stopped.append(supervisor)
    assert not scene.result(run_id)["replayed"]
    written, cursor, events = scene.files(), scene.cursor(), scene.events()
    scene.go_on()
    os.kill(supervisor, signal.SIGCONT)
    zombie.wait(180)
    assert scene.files() == written
    assert scene.cursor() == cursor
    assert scene.events() == events
    scene.expect_whole(windows=1)


def test_scenario_23_api_server_down_when_the_cursor_is_written(scene: Scene) -> None:
    scene.begin()
    scene.produce(20)
    run_id = scene.stand_at("publish:published")
    pid = int(scene.api.task(scene.name, run_id, "ingest")["pid"])
    scene.airflow.kill("api-server")
    try:
        scene.go_on()
        deadline = time.monotonic() + 3
        while psutil.pid_exists(pid) and time.monotonic() < deadline:
            time.sleep(0.1)
    finally:
        scene.airflow.restart("api-server")
        scene.api.wait(scene.api.alive, 180, "the API server to be back")
    scene.result(run_id)
    assert scene.cursor()["seq"] == 1  # type: ignore[index]
    assert len(scene.events()) == 1
    scene.expect_whole(windows=1)
