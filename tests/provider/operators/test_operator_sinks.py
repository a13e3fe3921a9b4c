"""Each kind of sink through the operator's job, and what a Dag may say about one."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from airflow.sdk import Connection

from tests.provider.contexts import fake_context
from tests.provider.grouped import grouped
from tests.provider.sinks.postgres import postgres_server, socket_of
from tubemq_client import Partition, Record
from tubemq_client.embedded import EmbeddedTubeMQ
from tubemq_client.errors import ConfigError
from tubemq_provider.hooks.sink_connection import open_sink
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.ingest.arguments import IngestArguments
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator
from tubemq_provider.operators.job import open_job
from tubemq_provider.sinks.read import read_windows
from tubemq_provider.task_arguments import parse
from tubemq_provider.windows.errors import IdentityMismatch, OtherScopeFound
from tubemq_provider.windows.protocols import Step
from tubemq_provider.windows.run.result import WindowResult

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]

TOPIC = "orders"
SECRET = "hush-hush"


class Silent:
    def at(self, step: Step, point: str) -> None:
        pass


class Scene:
    """Runs of one group, one after the other, as tasks that are cleared would repeat them."""

    def __init__(self, hook: TubeMQHook, mq: EmbeddedTubeMQ, root: Path) -> None:
        self.hook, self.mq, self.root = hook, mq, root
        self.journal = MemoryJournal()

    def produce(self, *bodies: bytes) -> None:
        records = [Record(body, partition=Partition(1, TOPIC, 0)) for body in bodies]
        list(self.hook.produce(TOPIC, records))
        self.mq.broker(1).store(TOPIC, 0).flush()

    def run(self, task: str, *, cleared: bool = False, **arguments: Any) -> WindowResult:
        given = {"topic": TOPIC, "group": "lake", "cluster": "test", "engine": "inline"}
        checked = parse(IngestArguments, {**given, "initial_position": "earliest", **arguments})
        job = open_job(checked, self.hook, (None, None), ExitStack())
        store = MemoryOffsetStore(self.journal, task=task)
        return job.run(store, attempt=task, serialised=True, observer=Silent(), cleared=cleared)


@pytest.fixture
def scene(hook: TubeMQHook, mq: EmbeddedTubeMQ, tmp_path: Path) -> Scene:
    return Scene(hook, mq, tmp_path)


def _delta(root: Path) -> list[bytes]:
    from deltalake import DeltaTable

    return list(DeltaTable(root / "delta").to_pyarrow_table()["value"].to_pylist())


def _sqlite(root: Path) -> list[bytes]:
    import sqlalchemy as sa

    with sa.create_engine(f"sqlite:///{root}/lake.db").connect() as connection:
        return list(connection.scalars(sa.text("SELECT value FROM orders")))


def _iceberg(root: Path) -> list[bytes]:
    from pyiceberg.catalog import load_catalog

    table = load_catalog("lake", **_catalog(root)).load_table("sales.orders")
    return list(table.scan().to_arrow()["value"].to_pylist())


def _catalog(root: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{root}/cat.db", "warehouse": f"file://{root}/ice"}


SINKS: dict[str, tuple[str, Callable[[Path], list[bytes]]]] = {
    "parquet": ("{root}/lake", lambda root: _in_files(root / "lake")),
    "delta": ("delta:{root}/delta", _delta),
    "iceberg": ("iceberg:lake/sales.orders", _iceberg),
    "jdbc": ("sqlite:///{root}/lake.db?table=orders", _sqlite),
}


def _in_files(root: Path) -> list[bytes]:
    return list(read_windows(root).to_table()["value"].to_pylist())


@pytest.mark.parametrize("kind", SINKS)
def test_windows_go_into_every_sink_once_and_a_cleared_one_is_left(
    kind: str, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, values = SINKS[kind]
    arguments: dict[str, Any] = {"sink": spec.format(root=scene.root)}
    if kind == "iceberg":
        connection = {"conn_type": "generic", "extra": _catalog(scene.root)}
        monkeypatch.setenv("AIRFLOW_CONN_CATALOG", json.dumps(connection))
        arguments["sink_conn_id"] = "catalog"
    scene.produce(b"a", b"b")
    first = scene.run("first", **arguments)
    scene.produce(b"c")
    scene.run("second", **arguments)
    again = scene.run("first", cleared=True, **arguments)
    assert (first.sink_kind, again.replayed, again.ranges) == (kind, True, first.ranges)
    assert sorted(values(scene.root)) == [b"a", b"b", b"c"]


def test_a_second_beginning_of_a_group_needs_a_policy(scene: Scene) -> None:
    scene.produce(b"a", b"b")
    scene.run("first", path=f"{scene.root}/lake", filters=["s1"])
    anew = Scene(scene.hook, scene.mq, scene.root)
    with pytest.raises(OtherScopeFound, match="on_other_scope='start_anew'"):
        anew.run("first", path=f"{scene.root}/lake")
    told = anew.run("first", path=f"{scene.root}/lake", on_other_scope="start_anew")
    assert told.total == 2


def test_an_object_store_gets_its_credentials_from_a_connection(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.provider.sinks.object_server import object_server

    with object_server("ops") as options:
        extra = {"endpoint_url": options["endpoint"], "region_name": "us-east-1"}
        connection = {"conn_type": "aws", "login": "key", "password": SECRET, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_STORE", json.dumps(connection))
        arguments = {
            "sink": "s3://ops/orders",
            "sink_conn_id": "store",
            "staging_root": str(scene.root / "staging"),
        }
        scene.produce(b"a", b"b")
        result = scene.run("first", **arguments)
        assert scene.run("first", cleared=True, **arguments).replayed
        stored = read_windows("s3://ops/orders", storage_options=options)
        assert sorted(stored.to_table()["value"].to_pylist()) == [b"a", b"b"]
    said = json.dumps([result.to_document(), scene.journal.__dict__], default=str)
    assert SECRET not in said


@pytest.mark.parametrize("sink", ["s3://lake/orders", "delta:s3://lake/orders"])
@pytest.mark.parametrize("extra", ['{"endpoint_url": "http://minio:9000",}', '["endpoint_url"]'])
def test_a_sinks_connection_with_an_extra_that_is_no_object_is_refused(
    sink: str, extra: str
) -> None:
    """Airflow takes it for none, and without an endpoint the key goes to another store."""
    made = Connection(conn_id="store", conn_type="aws", login="loader", password=SECRET)
    made.extra = extra
    with pytest.raises(ConfigError, match="extra: it is no JSON object") as caught:
        open_sink(sink, "store", lambda _: made)
    assert SECRET not in str(caught.value)


def test_a_cleared_task_rewrites_its_window_only_if_asked(scene: Scene) -> None:
    arguments = {"sink": f"sqlite:///{scene.root}/lake.db?table=orders", "on_clear": "rewrite"}
    scene.produce(b"a", b"b")
    first = scene.run("first", **arguments)
    scene.produce(b"c")
    second = scene.run("second", **arguments)
    assert scene.run("first", **arguments).replayed  # a retry, not a clear
    again = scene.run("first", cleared=True, **arguments)
    assert not again.replayed
    assert (again.hash, again.records) == (first.hash, first.records)
    assert again.position == second.position  # nothing is rewound
    assert sorted(_sqlite(scene.root)) == [b"a", b"b", b"c"]


def test_corrupt_records_are_kept_beside_the_window(scene: Scene) -> None:
    scene.produce(b"a", b"b", b"c")
    scene.mq.broker(1).store("orders").corrupt(0)
    found = scene.run("first", sink=f"{scene.root}/lake", corrupt_records="quarantine")
    (aside,) = (scene.root / "lake").glob("window_id=*/_corrupt/*.corrupt")
    assert found.corrupt == pq.read_metadata(aside).num_rows > 0
    assert found.total + found.corrupt == 3
    assert scene.run("first", cleared=True, sink=f"{scene.root}/lake").replayed


def test_appending_has_to_be_requested_and_is_reported(scene: Scene) -> None:
    scene.produce(b"a")
    found = scene.run("first", sink=f"append:{scene.root}/files", exactly_once=False)
    assert not found.exactly_once
    assert found.total == 1


def _operator(**arguments: Any) -> TubeMQCursorIngestOperator:
    given = {"topic": TOPIC, "group": "lake", "cluster": "test"}
    return TubeMQCursorIngestOperator(task_id="ingest", **given, **grouped(**arguments))


@pytest.mark.parametrize(
    ("spec", "uri"),
    [
        ("/lake/orders", "file:///lake/orders"),
        ("s3://lake/orders/", "s3://lake/orders"),
        ("delta:s3://lake/orders", "s3://lake/orders"),
        ("iceberg:lake/sales.orders", "iceberg://lake/sales.orders"),
        ("postgresql://db/lake?table=sales.orders", "postgresql://db/lake/sales.orders"),
    ],
)
def test_the_outlet_is_the_sinks_place(spec: str, uri: str) -> None:
    assert _operator(sink=spec).outlets[1].name == uri


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "path or sink is needed: the place where rows go"),
        ({"path": "/a", "sink": "/b"}, "path and sink are two places for the rows: give one"),
        ({"sink": "kafka:orders"}, "supported: "),
        ({"sink": "delta:lake/orders"}, "'lake/orders' is relative"),
        ({"sink": "append:/lake"}, "append:… needs exactly_once=False"),
        ({"sink": "/lake", "exactly_once": False}, "exactly_once=False has no effect"),
        ({"sink": "postgresql://db/lake"}, "needs ?table=<name>"),
        ({"sink": f"postgresql://me:{SECRET}@db/lake?table=t"}, "credentials do not belong here"),
        ({"sink": f"postgresql://db/l?table=t&password={SECRET}"}, "credentials do not belong"),
        ({"sink": f"s3://key:{SECRET}@lake/orders"}, "credentials do not belong here"),
        ({"sink": f"s3://key:{SECRET}/x@lake/orders"}, "credentials do not belong here"),
        ({"sink": f"s3://lake/orders?sig={SECRET}"}, "credentials do not belong here"),
        ({"sink": f"postgresql://me:#{SECRET}@db/lake?table=t"}, "credentials do not belong here"),
        ({"sink": f"postgresql://me:/{SECRET}@db/lake?table=t"}, "credentials do not belong here"),
        ({"sink": f"postgresql://me:?{SECRET}@db/lake?table=t"}, "credentials do not belong here"),
        ({"sink": f"mssql+pyodbc://?odbc_connect=PWD%3D{SECRET}&table=t"}, "do not belong here"),
        ({"sink": f"mssql://db/l?table=t&driver=x%7D;PWD%3D{SECRET}"}, "do not belong here"),
        ({"sink": f"oracle://db/l?table=t&wallet_password={SECRET}"}, "do not belong here"),
        ({"sink": f"mysql://db/l?table=t&ssl_key_password={SECRET}"}, "use a table of PostgreSQL"),
        ({"sink": "postgresql://db/l?table=t&hostaddr=10.0.0.1"}, "these lead nowhere else"),
        ({"sink": "postgresql://db/l?table=t&host=elsewhere"}, "these lead nowhere else"),
        ({"sink": "/lake", "sink_conn_id": "x"}, "sink_conn_id has no effect"),
        ({"sink": "delta:/lake", "corrupt_records": "quarantine"}, "needs a sink of files"),
        ({"sink": "/lake", "on_clear": "rewrite"}, "cannot replace a window in one step"),
        ({"sink": "delta:/lake", "on_clear": "rewrite"}, "use an object store or a database"),
    ],
)
def test_an_invalid_sink_fails_when_the_dag_is_parsed(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _operator(**arguments)
    assert said in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "connection", "said"),
    [
        ("//db/lake?table=t", {"host": "other"}, "is for host 'other', port 5432, the sink is on"),
        ("//db/lake?table=t", {}, "names no host; give it the one that its password is for"),
        (
            "//db:5433/lake?table=t",
            {"host": "db"},
            "port 5432, the sink is on host 'db', port 5433",
        ),
        ("//db/lake?table=t", {"host": "db", "port": 5433}, "the sink is on host 'db', port 5432"),
        ("//db/lake?table=t&host=evil", {"host": "db"}, "these lead nowhere else"),
        ("///lake?table=t&host=evil", {"host": "db"}, "the sink is on host 'evil'"),
        ("///lake?table=t&host=db&host=evil", {"host": "db"}, "the sink is on host 'db,evil'"),
        ("//db/lake?table=t&hostaddr=10.0.0.66", {"host": "db"}, "these lead nowhere else"),
        ("//db/lake?table=t&port=5433", {"host": "db"}, "these lead nowhere else"),
        ("//db/lake?table=t&dbname=host%3Devil", {"host": "db"}, "these lead nowhere else"),
        ("//db/lake?table=t&service=evil", {"host": "db"}, "these lead nowhere else"),
        ("//db#x/lake?table=t", {"host": "db"}, "has to be dialect://host:port/database"),
        ("//x:@db/lake?table=t", {"host": "db"}, "credentials do not belong here"),
    ],
)
def test_a_password_goes_nowhere_but_to_its_own_host_and_port(
    address: str, connection: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Connection(
        conn_id="db", conn_type="postgres", login="me", password=SECRET, **connection
    )
    with pytest.raises(ConfigError) as caught:
        open_sink(f"postgresql:{address}", "db", lambda _: found)
    assert said in str(caught.value)
    assert SECRET not in str(caught.value)


def test_parameters_with_secrets_come_from_the_connection(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("psycopg2")
    with postgres_server() as url:
        place = socket_of(url)
        address = f"postgresql+psycopg2:///postgres?host={place}&table=orders"
        refused = f"{address}&sslpassword={SECRET}"
        with pytest.raises(ConfigError, match="'url_parameters'"):
            _operator(sink=refused, sink_conn_id="db")
        extra = {"url_parameters": {"sslpassword": SECRET, "application_name": "lake"}}
        connection = {"conn_type": "postgres", "host": place, "login": "postgres", "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_DB", json.dumps(connection))
        scene.produce(b"a", b"b")
        result = scene.run("first", sink=address, sink_conn_id="db")
    assert result.total == 2
    assert SECRET not in json.dumps([result.to_document(), scene.journal.__dict__], default=str)


def test_login_and_password_of_a_database_are_shown_nowhere(
    hook: TubeMQHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("psycopg2")
    connection = {
        "conn_type": "postgres",
        "host": "DB",
        "login": "me@home",
        "password": f"{SECRET}/@",
    }
    monkeypatch.setenv("AIRFLOW_CONN_DB", json.dumps(connection))
    given = {"topic": TOPIC, "group": "lake", "cluster": "test", "engine": "inline"}
    address = {"sink": "postgresql://db/lake?table=orders", "sink_conn_id": "db"}
    job = open_job(parse(IngestArguments, {**given, **address}), hook, (None, None), ExitStack())
    url: Any = job._sink._url  # type: ignore[attr-defined]
    assert (url.username, url.password, url.host) == ("me@home", f"{SECRET}/@", "db")
    assert SECRET not in repr(job._sink) + job._sink.identity


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ({}, {"path": "other"}, r"written for sink parquet:.*/lake, not parquet:.*/other"),
        ({}, {"filters": ["s1"]}, r"reading without filters, not with \['s1'\]"),
        ({"filters": ["s1"]}, {"filters": ["s2"]}, r"or other filters than \['s2'\]"),
    ],
)
def test_a_group_of_another_scope_fails_with_the_differences(
    scene: Scene, before: dict[str, Any], after: dict[str, Any], said: str
) -> None:
    scene.produce(b"a")
    paths = {"path": f"{scene.root}/lake"}
    scene.run("first", **paths, **before)
    if "path" in after:
        after = {"path": f"{scene.root}/other"}
    with pytest.raises(IdentityMismatch, match=said):
        scene.run("second", **(paths | after))


def test_a_try_after_a_killed_one_logs_the_window_that_it_resumes(
    scene: Scene, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    task = TubeMQCursorIngestOperator(
        task_id="ingest",
        topic=TOPIC,
        group="lake",
        path=str(tmp_path / "lake"),
        cluster="test",
        engine="inline",
        initial_position="earliest",
    )
    scene.produce(b"a")
    kept: dict[Any, Any] = {}
    context = fake_context(task, kept)
    planned = type(task).execute.__wrapped__(task, context)  # type: ignore[attr-defined]
    assert "takes over" not in capfd.readouterr().out
    context["ti"].try_number = 2
    type(task).execute.__wrapped__(task, context)  # type: ignore[attr-defined]
    assert f"try 2 takes over window {planned['window_id']}" in capfd.readouterr().out


def test_a_run_of_an_operator_keeps_max_files(scene: Scene) -> None:
    scene.produce(b"a", b"b")
    lake = str(scene.root / "lake")
    arguments: dict[str, Any] = {"path": lake, "partition_by": ["batch_offset"]}
    with pytest.raises(ConfigError, match="has 2 data files, and max_files=1 permits"):
        scene.run("first", **arguments, max_files=1)
    assert scene.run("first", **arguments, max_files=2).total == 2
