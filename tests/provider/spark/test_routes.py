"""Routes on Spark: one job reads a window, and its tasks write the files of every table."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from deltalake import DeltaTable

from tests.provider.changes.test_followed_tables import DieAfter, Died, Never
from tests.provider.changes.test_routes import Topic
from tests.provider.spark.in_process import engine_in_process as in_process
from tests.provider.spark.routed import SparkTopic
from tests.provider.spark.world import World
from tubemq_client import Record
from tubemq_client.errors import ConfigError
from tubemq_provider.engines.session import SessionEngine
from tubemq_provider.rows.spec import DecodeSpec
from tubemq_provider.sinks.factory import sink_for
from tubemq_provider.sinks.read import read_windows
from tubemq_provider.windows.following import Following
from tubemq_provider.windows.protocols import IngestWatch
from tubemq_provider.windows.verify import check_counts

pytestmark = pytest.mark.timeout(120)


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
    ingest = SparkTopic(world, tmp_path / "home", routes, engine, options=options)
    sent = Counter[Any]()
    for number in range(2):
        records = [(("orders", "log_a", "log_b")[n % 3], b"%d-%d" % (number, n)) for n in range(60)]
        for stream, body in [*records, *_history(number)]:
            ingest.add("", stream, body)
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


def test_a_table_follows_changes_that_tasks_reduced(world: World, tmp_path: Path) -> None:
    changes = [body for name, body in _history(0) + _history(1) if name == "goods"]
    world.send([Record(body) for body in changes])
    following = Following("changes", ("id",), "_source_time")
    spec = DecodeSpec.parse({**CHANGES["decode"], "before": True, "columns": ["partition"]})
    spark = in_process(
        world.settings, decode=spec, following=following, options={"minPartitions": "8"}
    )
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


def test_a_failing_table_and_records_without_a_route_leave_the_others_alone(
    world: World, tmp_path: Path
) -> None:
    routes = {
        "name": "n", "unrouted": "quarantine", "on_route_failure": "isolate",
        "tables": {"a": f"{tmp_path}/a", "b": f"sqlite:///{tmp_path}/missing/b.db?table=b",
                   "x*": f"{tmp_path}/{{stream_id}}"},
    }  # fmt: skip
    topic = SparkTopic(world, tmp_path / "home", routes)
    unfit = ("x" * 201, "x_x2f_")
    for stream, count in (("a", 30), ("b", 2), ("c", 1), *((stream, 1) for stream in unfit)):
        for number in range(count):
            topic.add("", stream, b"%d" % number)
    result = topic.run("t")
    (a, b) = (result.tables[name] for name in sorted(result.tables))
    assert (a["rows"], b["rows"], b["read"], result.corrupt) == (30, 0, 2, 3)
    assert "unable to open database file" in b["failed"]
    assert bodies(f"{tmp_path}/a").total() == 30
    (marker,) = (sink_for(topic.home).marker(name) for name in sink_for(topic.home).window_ids())
    assert marker is not None
    tables = sink_for(topic.home).quarantined(marker)
    reasons = [text for table in tables for text in table["reason"].to_pylist()]
    assert sum("cannot stand in an address of route 'x*'" in text for text in reasons) == 2


def letters_topic(world: World, tmp_path: Path, **members: Any) -> SparkTopic:
    """Return a topic with values whose address is that of something else: of a value of an earlier
    window or of the same one, of another route, and of the windows' sink."""
    tables = {"*": f"{tmp_path}/{{stream_id}}",
              "own": {"sink": f"{tmp_path}/typed", **CHANGES}}  # fmt: skip
    topic = SparkTopic(world, tmp_path / "home", {"name": "n", "tables": tables, **members})
    topic.add("", "Orders", b"1")
    topic.run("t1")
    for stream, count in {"orders": 12, "A": 5, "a": 5, "typed": 2, "home": 1, "b": 40}.items():
        for number in range(count):
            topic.add("", stream, b"%d" % number)
    return topic


def test_values_whose_address_is_that_of_something_else_are_set_aside(
    world: World, tmp_path: Path
) -> None:
    """Tasks do not see each other's values, and the result is that of inline, through a kill."""
    topic = letters_topic(world, tmp_path, unrouted="quarantine")
    with pytest.raises(Died):
        topic.run("t2", DieAtTable())
    result = topic.run("t2")
    assert (result.corrupt, result.total) == (12 + 5 + 2 + 1, 5 + 40)
    tables = {Path(name).name: entry["rows"] for name, entry in result.tables.items()}
    assert sorted(tables.values()) == [5, 40]
    assert bodies(f"{tmp_path}/Orders") == {b"1": 1}
    assert bodies(f"{tmp_path}/b").total() == 40
    assert not (tmp_path / "orders").exists()
    assert not list(topic.home.rglob("_routes"))
    home = sink_for(topic.home)
    marker = home.marker(max(home.window_ids()))
    assert marker is not None
    reasons = Counter(r for table in home.quarantined(marker) for r in table["reason"].to_pylist())
    assert sorted(reasons.values()) == [1, 2, 5, 12]
    assert sum("in other letters" in reason for reason in reasons) == 2


def test_such_values_fail_the_window_before_it_is_read_again(world: World, tmp_path: Path) -> None:
    topic = letters_topic(world, tmp_path)
    with pytest.raises(ConfigError, match="add a route that names the value") as error:
        topic.run("t2")
    assert len(error.value.problems) == 4
    assert "Orders in other letters" in str(error.value)
    assert "(12 so far)" in str(error.value)
    assert not list((tmp_path / "b").rglob("*.parquet"))


def dies(topic: Any, task: str, points: int, *, again: bool = False) -> int:
    """Run a window that is killed after some points; return 1 if it was, 0 if it was done first."""
    try:
        topic.run(task, DieAfter(points), again=again)
    except Died:
        return 1
    return 0


@pytest.mark.parametrize(
    "kind", ["inline", "tasks", pytest.param("spark", marks=pytest.mark.spark)]
)
def test_a_table_that_fails_where_its_files_are_written_is_made_good_through_kills(
    world: World, tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    """Tables with too many partitions fail in the middle of the read: one that a route names, one
    that only a pattern takes. The others are published, and nothing is lost or doubled."""
    topic: Any = Topic(tmp_path / "home", {})
    if kind != "inline":
        engine = in_process if kind == "tasks" else SessionEngine
        topic = SparkTopic(world, topic.home, {}, engine, options={"minPartitions": "4"})
    if kind == "spark":
        request.getfixturevalue("spark")

    def routes(most: int) -> dict[str, Any]:
        decode = {"format": "json", "schema": "id bigint, kind string", "columns": ["partition"]}
        by_kind = {"decode": decode, "partition_by": ["kind"], "max_partitions": most}
        return {"name": "shop", "on_route_failure": "isolate", "tables": {
            "good": f"{tmp_path}/good",
            "wide": {"sink": f"{tmp_path}/wide", **by_kind},
            "t_*": {"sink": f"{tmp_path}/{{stream_id}}", **by_kind}}}  # fmt: skip

    streams = ("good", "wide", "t_wide", "t_few")
    sent: dict[str, list[int]] = {name: [] for name in streams}
    kinds = Counter(dict.fromkeys(streams, 1)) | Counter(wide=9, t_wide=9)

    def stored(name: str) -> list[int]:
        if name == "good":
            bodies = read_windows(tmp_path / name).to_table()["value"].to_pylist()
            return sorted(json.loads(body)["id"] for body in bodies)
        return sorted(read_windows(tmp_path / name).to_table()["id"].to_pylist())

    kills = 0
    topic.routes = routes(2)
    for number, points in enumerate((12,) if kind == "spark" else (9, 14, 19, 24, 28)):
        for at in range(80):
            name = streams[at % 4]
            body = {"id": 100 * number + at, "kind": f"k{at // 4 % kinds[name]}"}
            topic.add("1:0", name, json.dumps(body).encode())
            sent[name].append(100 * number + at)
        kills += dies(topic, f"t{number}", points)
        result = topic.run(f"t{number}")
        tables = {Path(name).name: entry for name, entry in result.tables.items()}
        assert {name for name, entry in tables.items() if entry.get("failed")} == {"wide", "t_wide"}
        assert "more than 2 partitions" in tables["wide"]["failed"]
        assert [tables[name]["read"] for name in streams] == [20] * 4
        assert [tables[name]["rows"] for name in streams] == [20, 0, 0, 20]
        for name in ("good", "t_few"):
            assert stored(name) == sent[name]
    assert len(topic.run("again", again=True)) == 2 * (number + 1)
    topic.routes = routes(20)
    for points in (4, 9, 15, 21) if kind != "spark" else (9,):
        kills += dies(topic, "again", points, again=True)
    assert kills >= 2
    assert topic.run("again", again=True) == []
    for name in streams:
        assert stored(name) == sent[name]
    assert not list(tmp_path.rglob("*/_staging/*"))


def test_a_record_without_a_route_fails_the_window_before_anything_is_published(
    world: World, tmp_path: Path
) -> None:
    topic = SparkTopic(world, tmp_path / "home", {"name": "n", "tables": {"a": f"{tmp_path}/a"}})
    topic.add("", "a", b"1")
    topic.add("", "other", b"2")
    with pytest.raises(ConfigError, match="no route takes records with stream_id 'other'"):
        topic.run("t")
    assert not list((tmp_path / "a").rglob("*.parquet"))
