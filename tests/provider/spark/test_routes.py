"""Routes on Spark: one job reads a window, and its tasks write the files of every table."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from deltalake import DeltaTable

from tests.provider.changes.test_followed_tables import Died, Never
from tests.provider.spark.in_process import engine_in_process as in_process
from tests.provider.spark.world import GROUP, TOPIC, World
from tubemq_client import Partition, Record
from tubemq_client.model import PartitionEnds
from tubemq_provider.engines.session import SessionEngine
from tubemq_provider.ingest.routes import parse_routes
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.rows.spec import DecodeSpec
from tubemq_provider.sinks.factory import sink_for
from tubemq_provider.sinks.read import read_windows
from tubemq_provider.sinks.routed import Route, RoutedSink
from tubemq_provider.windows.following import Following
from tubemq_provider.windows.plan import WindowScope
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.protocols import IngestWatch
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.verify import check_counts

pytestmark = pytest.mark.timeout(120)


class Ingest:
    """One group's windows of a topic into routes."""

    def __init__(
        self, world: World, home: Any, routes: Any, *, engine: Any = in_process, **options: Any
    ) -> None:
        self.engine = engine
        self.world, self.home, self.routes, self.options = world, home, routes, options
        self.journal = MemoryJournal()

    def send(self, *records: tuple[str, bytes]) -> None:
        self.world._send(TOPIC, [Record(body, {}, stream) for stream, body in records])

    def run(self, task: str, observer: Any = None) -> Any:
        def open_table(route: Route, address: str) -> Any:
            return sink_for(address, **route.options, following=route.following)

        sink = RoutedSink(sink_for(self.home), parse_routes(self.routes), open_table)
        scope = WindowScope("c1", TOPIC, GROUP, sink.identity)
        ends = {
            partition: PartitionEnds(partition, 0, end, stable=True)
            for key, (_, end) in self.world.whole().items()
            for partition in [Partition.from_key(TOPIC, key)]
        }
        planner = CursorPlanner(
            scope, lambda: ends, initial_position="earliest", policies=Policies()
        )
        engine = self.engine(self.world.settings, **self.options).into(sink)
        store = MemoryOffsetStore(self.journal, task=task)
        observer = Never() if observer is None else observer
        return window_run(planner, store, sink, engine, attempt="a", observer=observer).run()


def bodies(address: str) -> Counter[bytes]:
    if address.startswith("delta:"):
        return Counter(DeltaTable(address[6:]).to_pyarrow_table()["value"].to_pylist())
    return Counter(read_windows(address).to_table()["value"].to_pylist())


class DieAtTable(Never):
    """Observer that ends the run when the first of its tables is published."""

    def at(self, step: Any, point: str) -> None:
        if point.endswith(": published"):
            raise Died


CHANGES = {"decode": {"format": "maxwell", "schema": "id bigint, name string"}}


def change(op: str, table: str, id_: int, name: str) -> bytes:
    return json.dumps(
        {"database": "shop", "table": table, "type": op, "ts": 1, "data": {"id": id_, "name": name}}
    ).encode()


@pytest.fixture(params=["in-process", pytest.param("session", marks=pytest.mark.spark)])
def engine(request: pytest.FixtureRequest) -> Any:
    if request.param == "in-process":
        return in_process
    request.getfixturevalue("spark")
    return SessionEngine


def test_streams_go_to_their_tables_in_one_job_through_a_kill(
    world: World, tmp_path: Path, engine: Any
) -> None:
    """Named tables and those that only a pattern takes, with and without changes to follow."""
    lake = tmp_path / "lake"
    lake.mkdir()
    database = f"sqlite:///{lake}/lake.db?table={{stream_id}}"
    follow = {"sink": database, **CHANGES, "apply": "changes", "key": ["id"],
              "version": "_source_time"}  # fmt: skip
    routes = {"name": "shop", "tables": {
        "orders": f"delta:{lake}/orders", "log_*": f"{lake}/{{stream_id}}",
        "goods": follow, "sh*": follow, "empty": f"{lake}/empty"}}  # fmt: skip
    options = {"minPartitions": "8"}
    ingest = Ingest(world, tmp_path / "home", routes, engine=engine, options=options)
    sent = Counter[Any]()
    for number in range(2):
        records = [(("orders", "log_a", "log_b")[n % 3], b"%d-%d" % (number, n)) for n in range(60)]
        ingest.send(*records, *_history(number))
        sent.update(records)
        if not number:
            with pytest.raises(Died):
                ingest.run("t0", DieAtTable())
        result = ingest.run(f"t{number}")
        assert sum(entry["read"] for entry in result.tables.values()) == 60 + 42
        assert len(result.tables) == 5
    for stream, address in (
        ("orders", f"delta:{lake}/orders"),
        ("log_a", f"{lake}/log_a"),
        ("log_b", f"{lake}/log_b"),
    ):
        assert bodies(address) == Counter(b for s, b in sent.elements() if s == stream)
    with sa.create_engine(f"sqlite:///{lake}/lake.db").connect() as connection:
        for name in ("goods", "shops"):
            query = sa.text(f"SELECT id, name FROM {name} ORDER BY id")
            rows = [tuple(row) for row in connection.execute(query)]
            assert rows == [(id_, f"{name}-1-{id_}") for id_ in range(10) if id_ != 3]
    assert not list((tmp_path / "home").rglob("_routes"))
    assert not list((lake / "empty").glob("*"))


def test_a_table_follows_changes_that_tasks_reduced(
    world: World, tmp_path: Path, engine: Any
) -> None:
    ingest = Ingest(world, tmp_path, {})
    ingest.send(*(each for each in _history(0) + _history(1) if b"goods" in each[1]))
    following = Following("changes", ("id",), "_source_time")
    spec = DecodeSpec.parse({**CHANGES["decode"], "before": True, "columns": ["partition"]})
    spark = engine(world.settings, decode=spec, following=following, options={"minPartitions": "8"})
    sink = sink_for(f"delta:{tmp_path}/goods", following=following)
    plan = world.plan(world.whole())
    staging = sink.begin(plan, "a")
    counts = spark.ingest(plan, staging, IngestWatch())
    check_counts(plan, counts)
    assert (counts.total, sum((counts.read or {}).values())) == (10, 42)
    sink.publish(staging, plan, counts, lambda _: None)
    table = DeltaTable(f"{tmp_path}/goods").to_pyarrow_table().to_pylist()
    assert sorted(row["name"] for row in table) == [f"goods-1-{n}" for n in range(10) if n != 3]
    assert not list((tmp_path / "goods").rglob("_slices"))


def _history(number: int) -> list[tuple[str, bytes]]:
    """Return changes of two tables; the order of those of a key is that of their versions."""
    found = []
    for name in ("goods", "shops"):
        at = 100 * number
        for id_ in range(10):
            for text in ("draft", f"{name}-{number}-{id_}"):
                at += 1
                body = json.loads(change("insert", name, id_, text))
                found.append(json.dumps({**body, "ts": at}).encode())
        body = json.loads(change("delete", name, 3, ""))
        found.append(json.dumps({**body, "ts": at + 1}).encode())
    return [(json.loads(body)["table"], body) for body in found]
