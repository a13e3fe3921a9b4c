"""Scenarios 16 to 22: progress is wiped, edited or restored, the log changes, a window fails.

Either the run finds the right place again by itself, or it fails and says what to do; it never
guesses.
"""

from __future__ import annotations

import psutil  # type: ignore[import-untyped]
import pytest
import sqlalchemy as sa

from tests.scenarios.conftest import FIRST, HOUR, Scene
from tubemq_client import Partition, Record
from tubemq_client.embedded import TopicSpec
from tubemq_client.sync import Producer

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(240)]


def test_scenario_16_asset_state_is_wiped(scene: Scene) -> None:
    scene.begin()
    for _ in range(2):
        scene.produce(20)
        scene.run()
    written = scene.files()
    scene.api.forget_asset_state(scene.asset)
    assert scene.run()["empty"]
    assert scene.files() == written
    scene.produce(5)
    found = scene.run()
    assert (found["total"], found["window_id"].split("-")[1]) == (5, "3")
    scene.expect_whole(windows=3)


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
    scene.cluster.server.add_topic(TopicSpec(scene.name, stores=1, partitions=3))
    added = Partition(1, scene.name, 2)
    with Producer(scene.cluster.settings) as producer:
        list(producer.send_many(scene.name, [Record(b"in the new one", partition=added)]))
    scene.sent[added.key, b"in the new one"] += 1
    scene.produce(10)
    assert added.key in scene.run()["ranges"]
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
    scene.begin("s21", "s21_cursor")
    scene.cut_hours(10, 11, 12)
    broken = scene.root / "broken"
    file = scene.lake.root / "_staging"
    scene.result(scene.interval(0))
    # A time window that fails leaves a hole, which coverage shows until the window is run again.
    file.rename(broken)
    file.touch()
    failed = scene.interval(1)
    scene.failure(failed)
    file.unlink()
    broken.rename(file)
    scene.result(scene.interval(2))
    assert scene.coverage().intervals.missing == ((FIRST + HOUR, FIRST + 2 * HOUR),)
    assert not scene.clear(failed)["replayed"]
    assert scene.coverage().complete
    scene.expect_whole(windows=3)
    # A cursor window that fails is the next run's.
    follow = scene.other("s21_cursor")
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
    process.wait(60)
    assert scene.api.wait_for_run(scene.name, run_id, 60) == "success"
    assert scene.events() == []
    found = scene.run()
    assert (found["total"], found["window_id"].split("-")[1]) == (20, "1")
    scene.expect_whole(windows=1)
