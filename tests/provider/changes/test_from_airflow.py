"""Followed tables and routes through the operator's job, on a broker."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.provider.changes.test_followed_tables import Died
from tubemq_client import OffsetRange, Partition, RangeReader, Record
from tubemq_client._io.connection_state import ConnectionCounters
from tubemq_client.embedded import EmbeddedTubeMQ, TopicSpec
from tubemq_client.errors import ConfigError
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.ingest.arguments import IngestArguments
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.operators.job import open_job
from tubemq_provider.sinks.read import read_windows
from tubemq_provider.sources.tubemq.dead_letters import DeadLetterTopic
from tubemq_provider.task_arguments import parse
from tubemq_provider.windows.protocols import Step

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]

TOPIC = "orders"
DEBEZIUM = {"format": "debezium", "schema": "id int, name string"}


class Silent:
    def at(self, step: Step, point: str) -> None:
        """Continue."""


class Scene:
    def __init__(self, hook: TubeMQHook, mq: EmbeddedTubeMQ) -> None:
        self.hook, self.mq = hook, mq
        self.journal = MemoryJournal()

    def produce(self, *records: tuple[str, bytes]) -> None:
        place = Partition(1, TOPIC, 0)
        made = [Record(body, partition=place, stream_id=stream) for stream, body in records]
        list(self.hook.produce(TOPIC, made))
        self.mq.broker(1).store(TOPIC, 0).flush()

    def run(self, task: str, *, observer: Any = None, **arguments: Any) -> Any:
        given = {"topic": TOPIC, "group": "lake", "cluster": "test", "engine": "inline"}
        checked = parse(IngestArguments, {**given, "initial_position": "earliest", **arguments})
        job = open_job(checked, self.hook, (None, None), ExitStack())
        store = MemoryOffsetStore(self.journal, task=task)
        return job.run(store, attempt=task, serialised=True, observer=observer or Silent())


@pytest.fixture
def scene(hook: TubeMQHook, mq: EmbeddedTubeMQ) -> Scene:
    return Scene(hook, mq)


def change(op: str, before: Any, after: Any, lsn: int) -> bytes:
    source = {"lsn": lsn}
    return json.dumps({"op": op, "before": before, "after": after, "source": source}).encode()


def rows(path: Path, table: str) -> list[Any]:
    with sa.create_engine(f"sqlite:///{path}/lake.db").connect() as connection:
        query = sa.text(f"SELECT id, name FROM {table} ORDER BY id")
        return [tuple(row) for row in connection.execute(query)]


def test_a_table_follows_a_topic(scene: Scene, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {
        "sink": f"sqlite:///{tmp_path}/lake.db?table=people", "decode": DEBEZIUM,
        "apply": "changes", "key": ["id"], "version": "_source_position",
    }  # fmt: skip
    one, two = {"id": 1, "name": "a"}, {"id": 2, "name": "b"}
    scene.produce(("s", change("c", None, one, 1)), ("s", change("c", None, two, 2)))
    scene.run("t1", **arguments)
    assert rows(tmp_path, "people") == [(1, "a"), (2, "b")]
    moved = {"id": 3, "name": "a"}
    scene.produce(("s", change("u", one, moved, 3)), ("s", change("d", two, None, 4)))
    scene.produce(("s", b'{"ts_ms": 1}'))
    result = scene.run("t2", **arguments)
    assert rows(tmp_path, "people") == [(3, "a")]
    assert result.notices == {"heartbeat": 1}
    assert scene.run("t2", **arguments).replayed


def test_streams_of_a_topic_go_to_their_tables(scene: Scene, tmp_path: Path) -> None:
    routes = {"name": "shop", "tables": {
        "people": {"sink": f"sqlite:///{tmp_path}/lake.db?table={{stream_id}}",
                   "decode": DEBEZIUM, "apply": "changes", "key": "id"},
        "*": f"{tmp_path}/{{stream_id}}"}}  # fmt: skip
    scene.produce(("people", change("c", None, {"id": 1, "name": "a"}, 1)), ("log", b"x"))
    arguments = {"sink": f"{tmp_path}/windows", "routes": routes}
    result = scene.run("t1", **arguments)
    assert {entry["read"] for entry in result.tables.values()} == {1}
    assert rows(tmp_path, "people") == [(1, "a")]
    assert read_windows(tmp_path / "log").to_table()["value"].to_pylist() == [b"x"]
    file = tmp_path / "routes.json"
    file.write_text(json.dumps(routes), encoding="utf-8")
    scene.produce(("log", b"y"))
    scene.run("t2", **{**arguments, "routes": str(file)})
    assert sorted(read_windows(tmp_path / "log").to_table()["value"].to_pylist()) == [b"x", b"y"]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"sink": "/lake", "decode": DEBEZIUM, "apply": "changes", "key": "id"}, "no effect with parq"),
    ({"sink": "delta:/x", "decode": DEBEZIUM, "apply": "changes"}, "key is needed"),
    ({"sink": "delta:/x", "decode": DEBEZIUM, "apply": "upsert", "key": "id"}, "would keep rows"),
    ({"sink": "delta:/x", "apply": "upsert", "key": "id"}, "decode is needed"),
    ({"sink": "delta:/x", "key": "id"}, "key has no effect without apply"),
    ({"sink": "delta:/x", "decode": {"format": "json", "schema": "id int"}, "apply": "changes",
      "key": "id"}, "needs a format of changes"),
    ({"sink": "delta:/x", "decode": DEBEZIUM, "apply": "changes", "key": "id",
      "engine": "session", "direct_write": "off"}, "apply needs the direct write"),
    ({"sink": "delta:/x", "decode": DEBEZIUM, "apply": "changes", "key": "id",
      "engine": "session", "sql": "SELECT 1"}, "sql is not available with apply"),
    ({"sink": "/x", "routes": {"name": "n", "tables": {"a": "/a"}}, "engine": "session",
      "direct_write": "off"}, "routes need the direct write"),
    ({"sink": "/x", "engine": "session", "routes": {"name": "n", "tables": {"a": {
        "sink": "/a", "decode": {"format": "avro", "schema": "{}", "schema_registry": "r"}}}}},
     "schema_registry needs engine='inline'"),
    ({"sink": "delta:/x", "decode": DEBEZIUM, "apply": "changes", "key": "id",
      "offset_store": "ledger"}, "version is needed with apply='changes'"),
    ({"sink": "delta:/x", "decode": DEBEZIUM, "apply": "changes", "key": "id", "mode": "time",
      "initial_position": None, "boundaries": {}, "version": "_source_position"},
     "soft_delete is needed with apply='changes'"),
    ({"sink": "/x", "routes": {"name": "n", "tables": {"a": "/a"}}, "decode": "tdmsg"},
     "decode has no effect with routes"),
    ({"sink": "/x", "decode": {"format": "avro", "schema": "{}", "schema_registry": "r"},
      "engine": "submit"}, "schema_registry needs engine='inline'"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "problem"), REFUSED)
def test_what_cannot_be_exact_is_refused_before_anything_is_read(
    arguments: dict[str, Any], problem: str
) -> None:
    given = {"topic": TOPIC, "group": "lake", "cluster": "test", "engine": "inline"}
    with pytest.raises(ConfigError, match=problem):
        parse(IngestArguments, {**given, "initial_position": "earliest", **arguments})


def test_fifty_tables_cost_one_read_of_the_topic(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.produce(*((f"s{at % 50}", b"%06d" % at * 100) for at in range(2_000)))
    made: list[ConnectionCounters] = []
    create = ConnectionCounters.__init__

    def counted(counters: ConnectionCounters) -> None:
        create(counters)
        made.append(counters)

    monkeypatch.setattr(ConnectionCounters, "__init__", counted)

    def received(group: str, **arguments: Any) -> int:
        made.clear()
        scene.journal = MemoryJournal()
        result = scene.run("t", group=group, **arguments)
        tables = result.tables.values()
        assert (result.total or sum(table["rows"] for table in tables)) == 2_000
        return sum(counters.bytes_received for counters in made)

    (tmp_path / "t").mkdir()
    one = received("one", sink=f"{tmp_path}/all")
    tables = {"*": f"{tmp_path}/t/{{stream_id}}"}
    fifty = received("many", sink=f"{tmp_path}/w", routes={"name": "n", "tables": tables})
    assert len(list((tmp_path / "t").glob("s*"))) == 50
    assert 1_200_000 < fifty <= 1.05 * one


def test_a_failing_table_leaves_the_others_alone_and_is_made_good(
    scene: Scene, tmp_path: Path
) -> None:
    routes = {"name": "shop", "on_route_failure": "isolate",
              "tables": {"a": f"{tmp_path}/a", "b": f"{tmp_path}/later/b"}}  # fmt: skip
    arguments = {"sink": f"{tmp_path}/w", "routes": routes}
    scene.produce(("a", b"a1"), ("b", b"b1"), ("b", b"b2"))
    result = scene.run("t1", **arguments)
    assert (result.total, result.tables[f"{tmp_path}/later/b"]["rows"]) == (1, 0)
    assert "cannot be made" in result.tables[f"{tmp_path}/later/b"]["failed"]
    assert f"{tmp_path}/later/b did not take window" in result.warnings[0]
    scene.produce(("a", b"a2"), ("b", b"b3"))
    result = scene.run("t2", **arguments)
    assert result.total == 1
    assert len(result.warnings) == 2
    (tmp_path / "later").mkdir()
    scene.produce(("a", b"a3"))
    result = scene.run("t3", **arguments)
    assert sum(len(tables) for tables in result.made_good.values()) == 2
    assert not result.warnings
    for name, bodies in (("a", [b"a1", b"a2", b"a3"]), ("later/b", [b"b1", b"b2", b"b3"])):
        assert sorted(read_windows(tmp_path / name).to_table()["value"].to_pylist()) == bodies
    result = scene.run("t4", **arguments)
    assert result.empty
    assert not result.made_good
    assert not (tmp_path / "w" / "_failed_tables").exists()


class DieAt:
    """Observer that ends the run at the `count`-th time of a point."""

    def __init__(self, point: str, count: int = 1) -> None:
        self.point, self.count = point, count

    def at(self, step: Step, point: str) -> None:
        self.count -= point == self.point
        if self.count == 0:
            self.count = -1
            raise Died


@pytest.mark.parametrize(
    ("point", "routed"),
    [("dead letters begun", True), ("dead letter sent", False), ("dead letters noted", True)],
)
def test_quarantined_records_are_sent_to_a_topic_once(
    scene: Scene, tmp_path: Path, point: str, routed: bool
) -> None:
    scene.mq.add_topic(TopicSpec("letters"))
    decode = {"format": "json", "schema": "id int"}
    scene.produce(("a", b"=,1"), ("a", b'{"id": 2}'), ("a", b"!"), ("b", b"3"))
    arguments: dict[str, Any] = {
        "sink": f"{tmp_path}/w", "quarantine_topic": "letters", "corrupt_records": "quarantine",
        "decode": decode,
    }  # fmt: skip
    if routed:
        table = {"sink": f"{tmp_path}/a", "decode": arguments.pop("decode")}
        routes = {"name": "n", "unrouted": "quarantine", "tables": {"a": table}}
        arguments["routes"] = routes
    with pytest.raises(Died):
        scene.run("t1", observer=DieAt(point, 2 if point == "dead letter sent" else 1), **arguments)
    result = scene.run("t1", **arguments)
    assert (result.corrupt, result.total) == (3, 1)
    scene.run("t2", **arguments)
    found = {}
    settings = scene.hook.get_settings()
    ends = DeadLetterTopic(settings, "letters", "look").ends()
    with RangeReader(settings, group="look") as reader:
        for key, end in ends.items():
            range_ = OffsetRange(Partition.from_key("letters", key), 0, end)
            for batch in reader.read(range_) if end else ():
                for message in batch.messages():
                    assert message.body not in found
                    found[message.body] = message.attributes
    assert set(found) == {b"=,1", b"!", b"3"}
    assert found[b"!"]["topic"] == TOPIC
    assert found[b"!"]["window"] == result.window_id
    reason = "no route takes stream_id 'b'" if routed else "b'3' is no object"
    assert found[b"3"]["reason"].startswith(reason[:8] if routed else "")
    assert found[b"!"]["reason"]
