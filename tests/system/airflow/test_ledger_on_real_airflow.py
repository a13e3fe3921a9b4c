"""The ledger, the store of events and ``airflow tubemq`` on real Airflow components and PostgreSQL.

One Airflow whose API server has the ledger's backend, and whose tables came from `airflow db
migrate`, serves the whole module. Tests build on each other's windows, in order.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.kit.lakes import Cluster, Lake
from tools.devkit.airflow.api import AirflowApiError
from tools.devkit.airflow.stack import AirflowStack, running_airflow
from tubemq_client.embedded import EmbeddedTubeMQ, Switches

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(600)]

TOPIC = "orders"
GROUP = "test/orders/ledger"
ASSET = f"tubemq:{GROUP}"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    switches = Switches(flush_interval_ms=None, unflushed_records=None)
    with EmbeddedTubeMQ(brokers=2, switches=switches) as server:
        found = Cluster(server)
        found.add_topic(TOPIC)
        yield found


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("ledger-lakes")
    for name in ("claimed", "go"):
        (root / name).mkdir()
    return root


@pytest.fixture(scope="module")
def airflow(
    cluster: Cluster, lakes: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AirflowStack]:
    dags = tmp_path_factory.mktemp("ledger-dags")
    shutil.copy(Path(__file__).parent / "ledger_dags.py", dags)
    connection = {
        "conn_type": "tubemq",
        "host": cluster.server.masters,
        "extra": {"cluster": "test"},
    }
    ledger = "tubemq_provider.offsets.ledger"
    with running_airflow(
        dags,
        connections={
            "tubemq_default": connection,
            "elsewhere": connection | {"extra": {"cluster": "other"}},
        },
        environment={
            "TUBEMQ_LEDGER_LAKES": str(lakes),
            "AIRFLOW__STATE_STORE__BACKEND": f"{ledger}.backend.TubeMQStateBackend",
            "AIRFLOW__DATABASE__EXTERNAL_DB_MANAGERS": f"{ledger}.db_manager.LedgerDBManager",
        },
        parallelism=4,
        root=tmp_path_factory.mktemp("ledger-airflow"),
    ) as stack:
        names = ["ledger_count", "ingest_ledger", "ingest_events"]
        stack.wait_for_dags(names)
        for name in names:
            stack.api.pause(name, paused=False)
        yield stack


def tubemq(airflow: AirflowStack, *arguments: str) -> Any:
    """`airflow tubemq …` and its JSON."""
    printed = airflow.cli("tubemq", *arguments, "--output", "json")
    return json.loads(printed[min(i for i in map(printed.find, "[{") if i >= 0) :])


def result(airflow: AirflowStack, dag_id: str, run_id: str) -> dict[str, Any]:
    found = airflow.api.xcom(dag_id, run_id, "ingest")
    assert isinstance(found, dict)
    return found


def test_four_tasks_with_ten_contended_updates_each_make_forty(airflow: AirflowStack) -> None:
    airflow.run_dag("ledger_count")
    with sa.create_engine(airflow.home.database_url).begin() as connection:
        query = "SELECT rev, document FROM tubemq_offset_cursor WHERE asset LIKE '%contended'"
        ((rev, document),) = connection.execute(sa.text(query)).all()
    assert (rev, json.loads(document)) == (40, {"n": 40})
    shown = airflow.api.asset_state("tubemq:test/count/contended")
    assert shown["tubemq-ledger/cursor"] == {"n": 40}


def test_runs_of_one_group_side_by_side_and_one_that_dies_lose_nothing(
    airflow: AirflowStack, cluster: Cluster, lakes: Path
) -> None:
    lake, dag_id = Lake(lakes / "ledger"), "ingest_ledger"
    runs = {}
    for name, count in (("dies", 10), ("lives", 20)):
        cluster.produce(TOPIC, [f"{name} {i}" for i in range(count)])
        runs[name] = airflow.api.trigger(dag_id, {"wait": name})
        airflow.api.wait((lakes / "claimed" / name).exists, 180, f"the claim of {name}")
    show = tubemq(airflow, "offsets", "show", GROUP)
    assert (show["store"], len(show["cursor"]["pending"])) == ("ledger", 2)
    airflow.kill_task(dag_id, runs["dies"], "ingest")
    (lakes / "go" / "lives").touch()
    airflow.expect_success(dag_id, runs["lives"])
    assert result(airflow, dag_id, runs["lives"])["total"] == 20
    assert airflow.api.wait_for_run(dag_id, runs["dies"], 60) == "failed"
    heir = airflow.run_dag(dag_id)
    assert result(airflow, dag_id, heir)["total"] == 10
    assert result(airflow, dag_id, heir)["position"]["seq"] == 2
    assert lake.records() == cluster.sent[TOPIC]
    assert [name.split("-")[1] for name in lake.windows()] == ["1", "2"]


def test_the_ledger_survives_what_airflow_wipes(
    airflow: AirflowStack, cluster: Cluster, lakes: Path
) -> None:
    airflow.api.forget_asset_state(ASSET)
    cluster.produce(TOPIC, [f"after the wipe {i}" for i in range(5)])
    run_id = airflow.run_dag("ingest_ledger")
    assert result(airflow, "ingest_ledger", run_id)["total"] == 5
    assert Lake(lakes / "ledger").records() == cluster.sent[TOPIC]


def test_events_alone_keep_a_group_going(
    airflow: AirflowStack, cluster: Cluster, lakes: Path
) -> None:
    dag_id = "ingest_events"
    airflow.run_dag(dag_id)
    cluster.produce(TOPIC, ["one more"])
    run_id = airflow.run_dag(dag_id)
    assert result(airflow, dag_id, run_id)["total"] == 1
    assert Lake(lakes / "events").records() == cluster.sent[TOPIC]
    assert airflow.api.asset_state("tubemq:test/orders/events") == {}


class TestCommands:
    """The real command on the real database; each call is a separate process."""

    def test_list_and_windows(self, airflow: AirflowStack, lakes: Path) -> None:
        groups = {row["asset"]: row for row in tubemq(airflow, "offsets", "list")}
        assert groups[GROUP]["seq"] == 3
        assert groups["test/orders/events"]["store"] == "events"
        rows = tubemq(airflow, "windows", "list", "--asset", GROUP)
        assert Counter(row["records"] for row in rows) == Counter([20, 10, 5])
        found = tubemq(
            airflow, "windows", "verify", "--sink", str(lakes / "ledger"), "--asset", GROUP
        )
        assert found == {"windows": 3, "accepted": 3, "problems": []}
        # Without an asset, windows of other groups in other sinks do not matter here.
        assert tubemq(airflow, "windows", "verify", "--sink", str(lakes / "ledger")) == found

    def test_lag_and_check(self, airflow: AirflowStack, cluster: Cluster, lakes: Path) -> None:
        with pytest.raises(AirflowApiError, match="name a connection to that cluster"):
            tubemq(airflow, "lag", GROUP, "--conn-id", "elsewhere")
        # Stored as the form of the web interface stores it: no process has it in its environment.
        stored = {
            "connection_id": "in_the_database",
            "conn_type": "tubemq",
            "host": cluster.server.masters,
            "extra": '{"cluster": "test"}',
        }
        airflow.api.call("POST", "/connections", json=stored)
        assert tubemq(airflow, "lag", GROUP, "--conn-id", "in_the_database")["lag"] == 1
        sink = ["--sink", str(lakes / "ledger")]
        checks = tubemq(airflow, "check", "--conn-id", "in_the_database", *sink)
        assert {row["check"]: row["result"] for row in checks} == dict.fromkeys(
            ["connection", "cluster", "state backend", "ledger tables", "sink"], "ok"
        )

    def test_rebuild_restores_a_lost_position(
        self, airflow: AirflowStack, cluster: Cluster, lakes: Path
    ) -> None:
        before = tubemq(airflow, "offsets", "show", GROUP)["cursor"]["next"]
        with sa.create_engine(airflow.home.database_url).begin() as connection:
            older = """replace(document, '"seq": 3', '"seq": 1')"""
            lost = f"UPDATE tubemq_offset_cursor SET document = {older} WHERE asset = '{ASSET}'"
            connection.execute(sa.text(lost.replace(":", "\\:")))
        sink = str(lakes / "ledger")
        with pytest.raises(AirflowApiError, match="pass --yes"):
            airflow.cli("tubemq", "offsets", "rebuild", GROUP, "--sink", sink)
        found = tubemq(airflow, "offsets", "rebuild", GROUP, "--sink", sink, "--yes")
        assert (found["before"]["seq"], found["after"]["seq"]) == (1, 3)
        assert found["after"]["next"] == before
        run_id = airflow.run_dag("ingest_ledger")
        assert result(airflow, "ingest_ledger", run_id)["total"] == 1
        assert Lake(lakes / "ledger").records() == cluster.sent[TOPIC]

    def test_set_moves_a_group_and_mistakes_are_listed(self, airflow: AirflowStack) -> None:
        cursor = tubemq(airflow, "offsets", "show", GROUP)["cursor"]
        wanted = json.dumps(dict.fromkeys(cursor["next"], 0))
        found = tubemq(airflow, "offsets", "set", GROUP, "--offsets", wanted, "--yes")
        assert found["before"] == cursor["next"]
        after = tubemq(airflow, "offsets", "show", GROUP)["cursor"]
        assert set(after["next"].values()) == {0}
        assert (after["by"], after["rev"]) == ("airflow tubemq", cursor["rev"] + 1)
        with pytest.raises(AirflowApiError) as caught:
            airflow.cli("tubemq", "offsets", "set", GROUP, "--offsets", '{"x": 1, "1:0": 27}', "-y")
        assert "'x' is not" in str(caught.value)
        assert "27 is not a multiple" in str(caught.value)
