"""Scenarios 7 to 15 and 24: the same window again, two at once, backfills, catch-up, renaming.

Whatever Airflow runs again or concurrently, a window is written once, and the cursor never moves
back.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.system.scenarios.conftest import FIRST, HOUR, Scene, rfc

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(600)]


def test_scenario_07_the_latest_task_is_cleared(scene: Scene) -> None:
    scene.begin()
    scene.produce(20)
    run_id = scene.trigger()
    scene.result(run_id)
    scene.produce(5)
    written, cursor = scene.files(), scene.cursor()
    again = scene.clear(run_id)
    assert (again["total"], again["replayed"]) == (20, True)
    assert scene.files() == written
    assert scene.cursor() == cursor
    assert scene.run()["total"] == 5
    scene.expect_whole(windows=2)


def test_scenario_08_an_old_task_is_cleared_while_the_cursor_is_far_ahead(scene: Scene) -> None:
    scene.begin()
    scene.produce(20)
    run_id = scene.trigger()
    first = scene.result(run_id)
    for count in (10, 5):
        scene.produce(count)
        scene.run()
    written, cursor = scene.files(), scene.cursor()
    again = scene.clear(run_id)
    assert (again["window_id"], again["replayed"]) == (first["window_id"], True)
    assert scene.files() == written
    assert scene.cursor() == cursor
    scene.expect_whole(windows=3)


def test_scenario_09_two_runs_at_once_of_one_dag(scene: Scene) -> None:
    scene.begin()
    scene.produce(20)
    slow = scene.stand_at("plan:task plan stored")
    scene.produce(5)
    fast = scene.run()
    scene.go_on()
    assert scene.result(slow)["window_id"] == fast["window_id"]
    scene.run()
    assert scene.lake.records() == scene.sent


def test_scenario_10_two_dags_with_one_group(scene: Scene) -> None:
    scene.begin(scene.name, scene.beside("_too"))
    scene.produce(20)
    slow = scene.stand_at("ingest:range written")
    scene.produce(5)
    fast = scene.run(scene.beside("_too"))
    scene.go_on()
    assert scene.result(slow)["window_id"] == fast["window_id"]
    for dag_id in (scene.name, scene.beside("_too")):
        scene.run(dag_id)
    assert scene.lake.records() == scene.sent


def test_scenario_11_a_backfill_of_past_windows(scene: Scene) -> None:
    scene.begin(scene.name, scene.beside("_cursor"))
    hours = scene.cut_hours(10, 0, 12)
    runs = scene.airflow.backfill(scene.name, rfc(0), rfc(2))
    assert [run["state"] for run in runs] == ["success"] * 3
    scene.expect_whole(windows=3)
    totals = Counter(event["window_id"][:8] for event in scene.events())
    assert sum(totals.values()) == 3
    assert sum(hours, Counter()) == scene.lake.records()
    # A cursor has no past: its backfill is refused, with what to do instead.
    (refused,) = scene.airflow.backfill(scene.beside("_cursor"), rfc(0), rfc(0))
    said = scene.airflow.logs(scene.beside("_cursor"), refused["dag_run_id"])
    assert refused["state"] == "failed"
    assert "mode='time'" in said
    scene.expect_whole(windows=3)


def test_scenario_12_a_backfill_reprocesses_what_is_done(scene: Scene) -> None:
    scene.begin()
    scene.cut_hours(10, 12)
    for run_id in [scene.interval(0), scene.interval(1)]:
        scene.result(run_id)
    written = scene.files()
    runs = scene.airflow.backfill(scene.name, rfc(0), rfc(1), reprocess="completed")
    assert [run["state"] for run in runs] == ["success"] * 2
    # Airflow clears the runs that are there and keeps their names.
    assert all(run["dag_run_id"].startswith("manual__") for run in runs)
    assert all(scene.result(run["dag_run_id"])["replayed"] for run in runs)
    assert scene.files() == written
    scene.expect_whole(windows=2)


def test_scenario_13_a_partition_runs_twice(scene: Scene) -> None:
    scene.begin()
    scene.cut_hours(10)
    key = f"{FIRST:%Y-%m-%dT%H:%M:%S}"
    first = scene.result(scene.trigger(partition_key=key))
    written = scene.files()
    second = scene.result(scene.trigger(partition_key=key))
    assert (second["window_id"], second["replayed"]) == (first["window_id"], True)
    assert scene.files() == written
    scene.expect_whole(windows=1)


def test_scenario_14_windows_out_of_order_and_at_once(scene: Scene) -> None:
    scene.begin()
    scene.cut_hours(10, 11, 12, 13)
    runs = [scene.interval(hour) for hour in (3, 1, 2, 0)]
    assert sorted(scene.result(run_id)["total"] for run_id in runs) == [10, 11, 12, 13]
    assert scene.coverage().complete
    scene.expect_whole(windows=4)


def test_scenario_15_a_manual_run_without_an_interval(scene: Scene) -> None:
    scene.begin()
    scene.cut_hours(10, 12)
    said = scene.failure(scene.trigger())
    assert "tubemq_window" in said
    window = {"start": rfc(0), "end": rfc(1)}
    run_id = scene.api.trigger(scene.name, {"tubemq_window": window})
    assert scene.result(run_id)["total"] == 10
    assert scene.coverage().intervals.done == ((FIRST, FIRST + HOUR),)


def test_scenario_24_the_dag_is_renamed(scene: Scene, dags_folder: Path) -> None:
    scene.begin()
    scene.produce(20)
    scene.run()
    file = dags_folder / "renamed.py"
    file.write_text(file.read_text().replace('"s24"\n', '"s24_new"\n', 1))
    scene.produce(5)
    scene.begin("s24_new")
    assert scene.run("s24_new")["total"] == 5
    assert scene.cursor()["seq"] == 2  # type: ignore[index]
    scene.expect_whole(windows=2)
