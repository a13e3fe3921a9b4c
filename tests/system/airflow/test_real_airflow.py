"""Real Airflow components, an embedded cluster, real Parquet: windows are exactly once.

One Airflow (API server, scheduler, dag processor, PostgreSQL) serves the whole module.
"""

from __future__ import annotations

import json
import signal
import sqlite3
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from tests.kit.lakes import SECRET, Cluster, Lake
from tools.devkit.airflow.api import AirflowApiError
from tools.devkit.airflow.stack import AirflowStack
from tools.devkit.patience import PATIENCE

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(600)]

TOPIC = "orders"


def unpause(airflow: AirflowStack, *dag_ids: str) -> None:
    airflow.wait_for_dags(dag_ids)
    for dag_id in dag_ids:
        airflow.api.pause(dag_id, paused=False)


def result(airflow: AirflowStack, dag_id: str, run_id: str) -> dict[str, Any]:
    found = airflow.api.xcom(dag_id, run_id, "ingest")
    assert isinstance(found, dict)
    return found


def test_every_component_listens_on_loopback_only(airflow: AirflowStack) -> None:
    listening = set()
    for pid in airflow.process_ids().values():
        for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):  # a task's process may end meanwhile
                for connection in process.net_connections("inet"):
                    if connection.status == psutil.CONN_LISTEN:
                        listening.add(connection.laddr.ip)
    assert listening == {"127.0.0.1"}


def test_airflow_knows_the_provider_its_connection_form_and_the_example_dags(
    airflow: AirflowStack,
) -> None:
    airflow.wait_for_dags(
        [
            "tubemq_time_windows",
            "rocketmq_time_windows",
            "tubemq_follow_topic",
            "tubemq_follow_into_delta",
            "tubemq_on_records",
            "tubemq_on_message",
            "tubemq_plan_read_commit",
            "tubemq_window_function",
            "tubemq_lag_alert",
        ]
    )
    assert airflow.api.import_errors() == []
    names = [p["package_name"] for p in airflow.api.listed("/providers", "providers")]
    assert "airflow-provider-tubemq" in names


def test_lists_of_the_api_are_read_to_their_last_page(
    airflow: AirflowStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = airflow.api.listed("/providers", "providers")
    monkeypatch.setattr("tools.devkit.airflow.api.PAGE", 2)
    assert len(whole) > 2
    assert airflow.api.listed("/providers", "providers") == whole


def test_the_store_keeps_what_a_run_needs_on_real_airflow(airflow: AirflowStack) -> None:
    unpause(airflow, "drill_store")
    first = airflow.run_dag("drill_store")
    found = airflow.api.xcom("drill_store", first, "use_store")
    # The second try finds what the failed first one wrote, except its event.
    assert found["writer"] == f"drill_store|{first}|use_store|-1"
    assert found["cursor"] == {"seq": 1, "next": {"1:0": 2**53 + 28}, "text": "Größe ✓"}
    assert found["plan"] == {"ranges": {"1:0": [0, 28]}}
    assert found["task_plan"] == {"seq": 1}
    assert found["event"] is None
    second = airflow.run_dag("drill_store")
    found = airflow.api.xcom("drill_store", second, "use_store")
    assert found["cursor"]["seq"] == 3
    assert found["event"] == {"seq": 2, "position": {"seq": 2}}
    assert set(airflow.api.asset_state("tubemq:test/drill/store")) == {
        "cursor",
        "win/c-1-0123456789",
    }


def test_three_runs_without_data_and_one_with_write_one_window(
    airflow: AirflowStack, cluster: Cluster, lakes: Path
) -> None:
    dag_id = "drill_empty_runs"
    unpause(airflow, dag_id)
    lake = Lake(lakes / dag_id)
    for _ in range(3):
        found = result(airflow, dag_id, airflow.run_dag(dag_id))
        assert found["empty"]
        assert found["window_id"] is None
    cluster.produce("drill", [f"drill {i}" for i in range(40)])
    run_id = airflow.run_dag(dag_id)
    found = result(airflow, dag_id, run_id)
    assert (found["total"], found["empty"], found["replayed"]) == (40, False, False)
    assert lake.records() == cluster.sent["drill"]
    assert len(lake.windows()) == 1
    # Every success has an event with the position; only one has a window.
    events = [e["extra"]["tubemq"] for e in airflow.api.asset_events(f"tubemq:test/drill/{dag_id}")]
    assert len(events) == 4
    assert all("position" in event for event in events)
    assert [event.get("window_id") for event in events] == [None] * 3 + lake.windows()
    assert '"store": "asset_state"' in airflow.logs(dag_id, run_id).replace("\\", "")


def test_progress_is_rebuilt_after_airflow_has_wiped_the_asset_state(
    airflow: AirflowStack, cluster: Cluster, lakes: Path
) -> None:
    dag_id = "drill_empty_runs"
    unpause(airflow, dag_id)
    airflow.run_dag(dag_id)
    airflow.api.forget_asset_state(f"tubemq:test/drill/{dag_id}")
    cluster.produce("drill", [f"after the wipe {i}" for i in range(10)])
    found = result(airflow, dag_id, airflow.run_dag(dag_id))
    assert found["total"] == 10
    assert Lake(lakes / dag_id).records() == cluster.sent["drill"]


def test_a_cleared_task_replays_its_window_and_writes_nothing(
    airflow: AirflowStack, cluster: Cluster, lakes: Path
) -> None:
    dag_id = "drill_empty_runs"
    unpause(airflow, dag_id)
    cluster.produce("drill", ["before the clear"])
    run_id = airflow.run_dag(dag_id)
    cluster.produce("drill", ["after the clear"])
    windows = Lake(lakes / dag_id).windows()
    before = result(airflow, dag_id, run_id)
    airflow.api.clear(dag_id, run_id, "ingest")
    airflow.expect_success(dag_id, run_id)
    after = result(airflow, dag_id, run_id)
    assert after["replayed"]
    assert after["ranges"] == before["ranges"]
    assert Lake(lakes / dag_id).windows() == windows
    airflow.run_dag(dag_id)
    assert Lake(lakes / dag_id).records() == cluster.sent["drill"]


def test_every_kind_of_sink_takes_windows_once_and_is_left_by_a_clear(
    airflow: AirflowStack, cluster: Cluster, lakes: Path
) -> None:
    names = {
        "delta": f"file://{lakes}/sinks/delta",
        "jdbc": f"sqlite://{lakes}/sinks/lake.db/orders",
        "iceberg": "iceberg://lake/sales.orders",
        "append": f"file://{lakes}/sinks/append",
    }
    dags = {kind: f"drill_sink_{kind}" for kind in names}
    unpause(airflow, *dags.values())
    cluster.produce("sinks", [f"record {i}" for i in range(12)])
    runs = {kind: airflow.api.trigger(dag_id) for kind, dag_id in dags.items()}
    for kind, run_id in runs.items():
        airflow.expect_success(dags[kind], run_id)
        found = result(airflow, dags[kind], run_id)
        assert (found["sink_kind"], found["total"]) == (kind, 12)
        assert found["exactly_once"] == (kind != "append")
        assert len(airflow.api.asset_events(names[kind].replace("sqlite:///", "sqlite:////"))) == 1
    del runs["append"]
    for kind, run_id in runs.items():
        airflow.api.clear(dags[kind], run_id, "ingest")
    for kind, run_id in runs.items():
        airflow.expect_success(dags[kind], run_id)
        assert result(airflow, dags[kind], run_id)["replayed"], kind
        assert SECRET not in airflow.logs(dags[kind], run_id)
    files = DeltaTable(lakes / "sinks" / "delta").to_pyarrow_table()
    rows = sqlite3.connect(lakes / "sinks" / "lake.db").execute("SELECT value FROM orders")
    table = load_catalog("lake", type="sql", uri=f"sqlite:///{lakes}/sinks/cat.db").load_table(
        "sales.orders"
    )
    sent = Counter(body for _, body in cluster.sent["sinks"].elements())
    assert Counter(files["value"].to_pylist()) == sent
    assert Counter(value for (value,) in rows) == sent
    assert Counter(table.scan().to_arrow()["value"].to_pylist()) == sent


def test_a_backfill_writes_one_window_per_interval_and_again_writes_nothing(
    airflow: AirflowStack, cluster: Cluster, lakes: Path
) -> None:
    dag_id = "tubemq_time_windows"
    hours = [f"2026-01-01T0{h}:00:00Z" for h in range(4)]
    ends = dict.fromkeys(["1:0", "1:1", "2:0", "2:1"], 0)
    boundaries = {hours[0]: {TOPIC: ends}}
    per_hour = []
    for hour, until in zip(range(3), hours[1:], strict=True):
        sent = Counter(cluster.sent[TOPIC])
        found = cluster.produce(TOPIC, [f"hour {hour} record {i}" for i in range(10 + hour)])
        # A boundary lies where the store ended: the same offset for its partitions.
        ends = {key: max(o for k, o in found.items() if k[0] == key[0]) for key in found}
        boundaries[until] = {TOPIC: ends}
        per_hour.append(cluster.sent[TOPIC] - sent)
    (lakes / "boundaries.json").write_text(json.dumps(boundaries))
    lake = Lake(lakes / "hours")
    unpause(airflow, dag_id)

    runs = airflow.backfill(dag_id, hours[0], hours[2])
    assert [run["state"] for run in runs] == ["success"] * 3
    assert len(lake.windows()) == 3
    assert lake.records() == sum(per_hour, Counter())
    totals = {
        run["data_interval_start"]: result(airflow, dag_id, run["dag_run_id"]) for run in runs
    }
    assert [found["total"] for _, found in sorted(totals.items())] == [10, 11, 12]

    windows = lake.windows()
    files = sorted(str(f) for f in lake.root.rglob("*.parquet"))
    assert airflow.backfill(dag_id, hours[0], hours[2]) == runs
    again = airflow.backfill(dag_id, hours[0], hours[2], reprocess="completed")
    assert [run["state"] for run in again] == ["success"] * 3
    assert lake.windows() == windows
    assert sorted(str(f) for f in lake.root.rglob("*.parquet")) == files
    assert all(result(airflow, dag_id, run["dag_run_id"])["replayed"] for run in again)


def test_following_a_topic_waits_for_lag_and_takes_what_is_new(
    airflow: AirflowStack, cluster: Cluster, lakes: Path
) -> None:
    dag_id = "tubemq_follow_topic"
    unpause(airflow, dag_id)
    lake = Lake(lakes / "follow")
    for batch in range(2):
        run_id = airflow.api.trigger(dag_id)
        cluster.produce(TOPIC, [f"follow {batch} record {i}" for i in range(20)])
        airflow.expect_success(dag_id, run_id)
        assert lake.records() == cluster.sent[TOPIC]
    lag = airflow.api.xcom(dag_id, run_id, "lag")
    assert lag["lag"] == 20
    assert sorted(lag["ends"]) == ["1:0", "1:1", "2:0", "2:1"]


def test_following_a_topic_into_a_table_has_every_record_once(
    airflow: AirflowStack, cluster: Cluster, lakes: Path
) -> None:
    unpause(airflow, "tubemq_follow_into_delta")
    for batch in range(2):
        cluster.produce(TOPIC, [f"table {batch} record {i}" for i in range(5)])
        airflow.run_dag("tubemq_follow_into_delta")
    found = DeltaTable(lakes / "example_delta").to_pyarrow_table()
    rows = zip(found["partition"].to_pylist(), found["value"].to_pylist(), strict=True)
    assert Counter(rows) == cluster.sent[TOPIC]


class TestKills:
    """SIGKILL of the real task process between and inside the steps of a window run."""

    @pytest.fixture(scope="class")
    @staticmethod
    def drills(airflow: AirflowStack, cluster: Cluster, lakes: Path) -> dict[str, str]:
        """Every drill Dag and its run: killed at its point, retried, and run again."""
        cluster.produce("kills", [f"first window {i}" for i in range(30)])
        dag_ids = sorted(
            dag["dag_id"]
            for dag in airflow.api.listed("/dags", "dags")
            if dag["dag_id"].startswith("kill_")
        )
        unpause(airflow, *dag_ids)
        runs = {dag_id: airflow.api.trigger(dag_id) for dag_id in dag_ids}
        waiting = set(dag_ids)

        def kill_those_that_stand() -> bool:
            for dag_id in sorted(waiting):
                if (lakes / "reached" / dag_id).exists():
                    airflow.kill_task(dag_id, runs[dag_id], "ingest")
                    waiting.discard(dag_id)
            return not waiting

        airflow.api.wait(kill_those_that_stand, 180, f"{len(dag_ids)} tasks to reach their point")
        for dag_id, run_id in runs.items():
            airflow.expect_success(dag_id, run_id)
        cluster.produce("kills", [f"second window {i}" for i in range(20)])
        later = {dag_id: airflow.api.trigger(dag_id) for dag_id in dag_ids}
        for dag_id, run_id in later.items():
            airflow.expect_success(dag_id, run_id)
        return runs

    def test_each_was_killed_once_and_tried_again(
        self, airflow: AirflowStack, drills: dict[str, str]
    ) -> None:
        assert len(drills) == 18
        for dag_id, run_id in drills.items():
            assert len(airflow.api.tries(dag_id, run_id, "ingest")) == 2, dag_id
            assert signal.SIGKILL.name in airflow.logs(dag_id, run_id), dag_id

    def test_every_record_is_there_once_in_two_windows(
        self, drills: dict[str, str], cluster: Cluster, lakes: Path
    ) -> None:
        for dag_id in drills:
            lake = Lake(lakes / dag_id)
            assert lake.records() == cluster.sent["kills"], dag_id
            assert [w.split("-")[:2] for w in lake.windows()] == [["c", "1"], ["c", "2"]], dag_id

    def test_the_cursor_is_contiguous_and_at_the_end(
        self, airflow: AirflowStack, drills: dict[str, str]
    ) -> None:
        for dag_id in drills:
            asset = f"tubemq:test/kills/{dag_id}"
            cursor = airflow.api.asset_state(asset)["cursor"]
            windows = [
                extra
                for e in airflow.api.asset_events(asset)
                if "window_id" in (extra := e["extra"]["tubemq"])
            ]
            assert cursor["seq"] == 2, dag_id
            for key, offset in cursor["next"].items():
                first, second = windows[0]["ranges"][key], windows[1]["ranges"][key]
                assert [first[0], first[1], second[1]] == [0, second[0], offset], dag_id

    def test_nothing_is_left_of_the_killed_tries(self, drills: dict[str, str], lakes: Path) -> None:
        for dag_id in drills:
            assert list((lakes / f".{dag_id}.tubemq-staging").iterdir()) == [], dag_id


@pytest.mark.parametrize("mode", ["poke", "reschedule"])
def test_sensors_wait_in_both_modes(airflow: AirflowStack, cluster: Cluster, mode: str) -> None:
    names = [f"sense_{kind}_{mode}" for kind in ("ready", "lag_cursor", "lag_broker")]
    unpause(airflow, *names)
    before = sum(cluster.sent["sense"].values())
    want = {"1:0": 28 * (before // 2 + 6)}
    runs = {
        name: airflow.api.trigger(name, {"until_offsets": want, "min_lag": before + 12})
        for name in names
    }
    for name, run_id in runs.items():
        airflow.api.wait(
            lambda n=name, r=run_id: (
                "not yet" in airflow.logs(n, r) or "lag " in airflow.logs(n, r)
            ),
            180,
            f"{name} to look once",
        )
        assert airflow.api.run(name, run_id)["state"] == "running"
    cluster.produce("sense", [f"{mode} {i}" for i in range(12)])
    for name, run_id in runs.items():
        airflow.expect_success(name, run_id)
        found = airflow.api.xcom(name, run_id, "sense")
        # The ready sensor checks the one partition of its arguments; the others both brokers.
        assert found["lag"] == (before + 12) // (2 if "ready" in name else 1)
        assert found["ends"]["1:0"] == want["1:0"]
        looks = airflow.logs(name, run_id).count("Pre Execute")
        assert (looks > 1) == (mode == "reschedule")


def test_a_mistake_that_no_retry_cures_fails_at_once_and_says_what_to_do(
    airflow: AirflowStack,
) -> None:
    unpause(airflow, "drill_wrong_cluster")
    run_id = airflow.api.trigger("drill_wrong_cluster")
    with pytest.raises(AirflowApiError, match="pass cluster='test' to the task"):
        airflow.expect_success("drill_wrong_cluster", run_id)
    assert airflow.api.task("drill_wrong_cluster", run_id, "ingest")["try_number"] == 1


def test_killing_the_task_by_hand_ends_it_soon(airflow: AirflowStack, lakes: Path) -> None:
    dag_id = "drill_marked_failed"
    unpause(airflow, dag_id)
    run_id = airflow.api.trigger(dag_id)
    reached = lakes / "reached" / dag_id
    airflow.api.wait(reached.exists, 180, "the task to stand in its ingest")
    pid = int(airflow.api.task(dag_id, run_id, "ingest")["pid"])
    path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/ingest"
    airflow.api.call("PATCH", path, json={"new_state": "failed"})
    airflow.api.wait(lambda: not psutil.pid_exists(pid), 180, "the task's process to end")
    assert "the task was killed" in airflow.logs(dag_id, run_id)
    assert Lake(lakes / dag_id).windows() == []


@pytest.mark.spark
def test_a_killed_spark_task_leaves_no_process_and_its_retry_writes_the_window(
    airflow: AirflowStack, cluster: Cluster, lakes: Path
) -> None:
    dag_id = "drill_spark"
    unpause(airflow, dag_id)
    cluster.produce("drill", [f"for spark {i}" for i in range(25)])
    run_id = airflow.api.trigger(dag_id)
    airflow.api.wait((lakes / "reached" / dag_id).exists, 300, "Spark to have written its files")
    pid = int(airflow.api.task(dag_id, run_id, "ingest")["pid"])
    java = psutil.Process(pid).children(recursive=True)
    assert any(process.name() == "java" for process in java)
    airflow.kill_task(dag_id, run_id, "ingest")
    airflow.expect_success(dag_id, run_id, timeout=300 * PATIENCE)
    assert not any(process.is_running() for process in java)
    assert result(airflow, dag_id, run_id)["engine"] == "session"
    assert Lake(lakes / dag_id).records() == cluster.sent["drill"]
    assert len(Lake(lakes / dag_id).windows()) == 1
