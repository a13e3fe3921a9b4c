"""Scenarios 16 to 22: progress is wiped, edited or restored, the log changes, a window fails.

Either the run finds the right position itself, or it fails with advice; it never guesses.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest
import sqlalchemy as sa

from tests.system.scenarios.conftest import FIRST, HOUR, Scene
from tools.devkit.airflow.api import AirflowApiError
from tubemq_provider.sinks.factory import sink_uri

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(600)]


def test_scenario_16_asset_state_is_wiped(scene: Scene) -> None:
    """A user deletes it under a running Dag, also while a window is in progress."""
    scene.begin()
    for _ in range(2):
        scene.produce(20)
        scene.run()
    written = scene.files()
    scene.api.forget_asset_state(scene.asset)
    assert scene.run()["empty"]
    assert scene.files() == written
    scene.produce(5)
    run_id = scene.stand_at("ingest:range written")
    scene.api.forget_asset_state(scene.asset)
    scene.go_on()
    found = scene.result(run_id)
    assert (found["total"], found["window_id"].split("-")[1]) == (5, "3")
    scene.expect_whole(windows=3)


def test_scenario_16_the_dag_file_goes_missing_and_airflow_wipes_asset_state(
    scene: Scene, dags_folder: Path
) -> None:
    """Airflow's own clean-up does it: without its file the Dag goes stale, and with the Dag deleted
    nothing refers to the offsets asset any more."""
    scene = scene.other("s16_gone")
    scene.begin()
    scene.produce(20)
    scene.run()
    written, cursor, events = scene.files(), scene.cursor(), scene.events()
    assert cursor is not None
    sink = sink_uri(scene.lake.root)
    scene.keep_state(sink, "witness")
    assert scene.kept_state(scene.asset) > 0
    file = dags_folder / "gone.py"
    text = file.read_text()
    file.unlink()
    # What is no more than an outlet loses its state; the inlet keeps the offsets asset's.
    scene.api.wait(lambda: scene.kept_state(sink) == 0, 180, "the sink's asset to be wiped")
    assert scene.cursor() == cursor
    # Removing the stale Dag removes the inlet.
    scene.api.call("DELETE", f"/dags/{scene.name}")
    scene.api.wait(lambda: scene.kept_state(scene.asset) == 0, 180, "the offsets to be wiped")
    file.write_text(text)
    scene.produce(5)
    scene.begin()
    assert scene.cursor() is None
    found = scene.run()
    assert (found["total"], found["window_id"].split("-")[1]) == (5, "2")
    assert {key: start for key, (start, _) in found["ranges"].items()} == cursor["next"]
    # Not found by the marker: windows known by a marker alone are listed as recovered.
    assert found["recovered"] == []
    assert scene.events()[:1] == events
    assert set(written) <= set(scene.files())
    assert scene.cursor()["seq"] == 2  # type: ignore[index]
    scene.expect_whole(windows=2)


def test_scenario_17_a_person_edits_the_cursor(scene: Scene) -> None:
    scene.begin()
    scene.produce(20)
    scene.run()
    right, written = scene.cursor(), scene.files()
    assert right is not None
    scene.produce(5)
    path = f"/assets/{scene.api.asset_id(scene.asset)}/state-store/cursor"
    wrong = {**right, "next": {key: end + 3 for key, end in right["next"].items()}}
    scene.api.call("PUT", path, json={"value": wrong})
    run_id = scene.trigger()
    assert "multiple of 28" in scene.failure(run_id)
    assert scene.api.task(scene.name, run_id, "ingest")["try_number"] == 1
    assert scene.files() == written
    scene.api.call("PUT", path, json={"value": right})
    assert scene.run()["total"] == 5
    scene.expect_whole(windows=2)


def test_scenario_17_a_person_edits_the_cursor_by_command(scene: Scene) -> None:
    scene = scene.other("s17_command")
    scene.begin()
    scene.produce(20)
    scene.run()
    before = scene.cursor()
    assert before is not None
    # Nonsense: all of it is named, and nothing changes.
    with pytest.raises(AirflowApiError) as refused:
        set_offsets(scene, {"1:0": 3, "one": 0, "1:1": -28})
    for problem in ("1:0: ", "'one' is not", "1:1: ", "missing: 2:0, 2:1"):
        assert problem in str(refused.value)
    assert scene.cursor() == before
    # Back to the start of one store: shown before and after, and taken by the next run.
    wanted = {**before["next"], "2:0": 0, "2:1": 0}
    said = set_offsets(scene, wanted)
    assert f"before: {json.dumps(before['next'])}" in said
    assert f"after:  {json.dumps(wanted)}" in said
    found = scene.run()
    assert (found["total"], found["window_id"].split("-")[1]) == (10, "2")
    repeated = scene.lake.records() - scene.sent
    assert repeated.total() == 10
    assert {key[0] for key, _ in repeated} == {"2"}


def set_offsets(scene: Scene, offsets: dict[str, int]) -> str:
    """``airflow tubemq offsets set``; what it printed."""
    asset = scene.asset.removeprefix("tubemq:")
    given = ("--offsets", json.dumps(offsets), "--yes")
    return scene.airflow.cli("tubemq", "offsets", "set", asset, *given)


def test_scenario_18_retention_overtakes_the_cursor(scene: Scene) -> None:
    scene.begin("s18", "s18_skip")
    scene.produce(20)
    scene.run()
    scene.produce(12)
    scene.cluster.server.broker(2).store(scene.name, 0).expire_to(28 * 13)
    said = scene.failure(scene.trigger())
    assert "gap_policy='skip'" in said
    assert len(scene.lake.windows()) == 1
    gaps = {key: [[28 * 10, 28 * 13]] for key in ("2:0", "2:1")}
    assert scene.run("s18_skip")["gaps"] == gaps
    assert scene.events()[-1]["gaps"] == gaps
    missing = scene.sent - scene.lake.records()
    assert missing.total() == 3
    assert {key[0] for key, _ in missing} == {"2"}


def test_scenario_19_partitions_are_added(scene: Scene) -> None:
    scene.begin()
    scene.produce(20)
    scene.run()
    added = scene.cluster.add_partition(scene.name, b"in the new one")
    scene.produce(10)
    assert added in scene.run()["ranges"]
    scene.expect_whole(windows=2)


def test_scenario_20_the_metadata_is_restored_from_a_backup(scene: Scene) -> None:
    scene.begin()
    scene.produce(20)
    scene.run()
    engine = sa.create_engine(scene.airflow.home.database_url)
    tables = ("asset_state_store", "asset_event")
    with engine.begin() as database:
        for table in tables:
            database.execute(sa.text(f"CREATE TABLE backup_{table} AS SELECT * FROM {table}"))
    for _ in range(2):
        scene.produce(10)
        scene.run()
    written = scene.files()
    scene.api.pause(scene.name, paused=True)
    with engine.begin() as database:
        newer = "DELETE FROM asset_event WHERE id > (SELECT max(id) FROM backup_asset_event)"
        database.execute(sa.text(newer))
        restored = (
            "UPDATE asset_state_store AS now SET value = old.value "
            "FROM backup_asset_state_store AS old "
            "WHERE now.asset_id = old.asset_id AND now.key = old.key"
        )
        database.execute(sa.text(restored))
        for table in tables:
            database.execute(sa.text(f"DROP TABLE backup_{table}"))
    engine.dispose()
    assert scene.cursor()["seq"] == 1  # type: ignore[index]
    scene.api.pause(scene.name, paused=False)
    scene.produce(5)
    found = scene.run()
    assert (found["total"], len(found["recovered"])) == (5, 2)
    assert set(written) <= set(scene.files())
    scene.expect_whole(windows=4)


def test_scenario_21_a_window_fails_for_good(scene: Scene) -> None:
    scene.begin(scene.name, scene.beside("_cursor"))
    scene.cut_hours(10, 11, 12)
    staging = [scene.lake.root / "_staging", scene.lake.staging]
    scene.result(scene.interval(0))
    # A time window that fails leaves a hole, which coverage shows until the window is run again.
    for place in staging:
        shutil.rmtree(place, ignore_errors=True)
        place.touch()
    failed = scene.interval(1)
    scene.failure(failed)
    for place in staging:
        place.unlink()
    scene.result(scene.interval(2))
    assert scene.coverage().intervals.missing == ((FIRST + HOUR, FIRST + 2 * HOUR),)
    assert not scene.clear(failed)["replayed"]
    assert scene.coverage().complete
    scene.expect_whole(windows=3)
    # A cursor window that fails is the next run's.
    follow = scene.other(scene.beside("_cursor"))
    follow.produce(20)
    killed = follow.stand_at("plan:task plan stored")
    follow.kill(killed)
    follow.failure(killed)
    follow.produce(5)
    assert [follow.run()["total"] for _ in range(2)] == [20, 5]
    follow.expect_whole(windows=2)


def test_scenario_22_a_task_is_marked_success_by_hand(scene: Scene) -> None:
    scene.begin()
    scene.produce(20)
    run_id = scene.stand_at("ingest:begin")
    path = f"/dags/{scene.name}/dagRuns/{run_id}/taskInstances/ingest"
    process = psutil.Process(int(scene.api.task(scene.name, run_id, "ingest")["pid"]))
    scene.api.call("PATCH", path, json={"new_state": "success"})
    process.wait(180)
    assert scene.api.wait_for_run(scene.name, run_id, 180) == "success"
    assert scene.events() == []
    found = scene.run()
    assert (found["total"], found["window_id"].split("-")[1]) == (20, "1")
    scene.expect_whole(windows=1)
