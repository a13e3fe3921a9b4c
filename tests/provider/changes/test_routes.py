"""Routes: one read, many tables, each with every record once, whatever dies in between."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from deltalake import DeltaTable

from tests.provider.changes.history import SCHEMA, Database, LogBatch
from tests.provider.changes.test_followed_tables import DieAfter, Died, Never
from tests.provider.windows.fake_reader import TOPIC, FakeStats, ends_of
from tubemq_client.errors import ConfigError, CorruptRecord
from tubemq_client.model import INDEX_ENTRY_BYTES, CorruptRecords, OffsetRange
from tubemq_provider.engines.routed import RoutedEngine
from tubemq_provider.ingest.made_good import MakeGood
from tubemq_provider.ingest.routes import parse_routes
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.sinks.factory import sink_for
from tubemq_provider.sinks.read import read_windows
from tubemq_provider.sinks.routed import PLACES, Route, RoutedSink, _place_key
from tubemq_provider.windows.errors import CountMismatch, SinkHistoryLost, TableAltered
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.protocols import Step
from tubemq_provider.windows.run.kinds import window_run

KEYS = ("1:0", "2:0")
Record = tuple[str | None, bytes]


class StreamBatch(LogBatch):
    streams: list[str | None]

    def to_arrow(self, schema: pa.Schema) -> pa.RecordBatch:
        batch = super().to_arrow(schema)
        at = batch.schema.get_field_index("stream_id")
        return batch.set_column(at, batch.schema.field(at), pa.array(self.streams, pa.string()))


class StreamReader:
    """Range reader over records with stream ids; counts what was read."""

    def __init__(self, topic: Topic) -> None:
        self.stats = FakeStats()
        self._topic = topic

    def read(self, range_: OffsetRange) -> Iterator[StreamBatch]:
        log = self._topic.logs[range_.partition.key]
        first, end = range_.start // INDEX_ENTRY_BYTES, range_.end // INDEX_ENTRY_BYTES
        for start in range(first, end, 9):
            records = log[start : min(start + 9, end)]
            self._topic.read += len(records)
            batch = StreamBatch(
                range_.partition.key, start * INDEX_ENTRY_BYTES, [body for _, body in records]
            )
            batch.streams = [stream for stream, _ in records]
            yield batch


class Topic:
    """Records with stream ids, and one group's windows of them into routes."""

    def __init__(self, home: Path, routes: Any) -> None:
        self.logs: dict[str, list[Record]] = {key: [] for key in KEYS}
        self.read = 0
        (home.parent / "t").mkdir(exist_ok=True)
        self.home, self.routes = home, routes
        self.journal = MemoryJournal()

    def add(self, key: str, stream: str | None, body: bytes) -> None:
        self.logs[key].append((stream, body))

    def make_sink(self, home: Any, routes: Any) -> RoutedSink:
        def open_table(route: Route, address: str) -> Any:
            return sink_for(address, **route.options, following=route.following)

        return RoutedSink(home, routes, open_table)

    def run(
        self, task: str, observer: Any = None, corrupt: str = "fail", *, again: bool = False
    ) -> Any:
        """Run the next window; with `again` make good those of failed tables, return what failed
        again."""
        sink = self.make_sink(sink_for(self.home), parse_routes(self.routes))
        scope = WindowScope("c1", TOPIC, "g1", sink.identity)
        ends = {key: INDEX_ENTRY_BYTES * len(log) for key, log in self.logs.items()}
        planner = CursorPlanner(
            scope, lambda: ends_of(ends), initial_position="earliest", policies=Policies()
        )

        @contextmanager
        def open_reader(plan: WindowPlan) -> Iterator[StreamReader]:
            yield StreamReader(self)

        engine = RoutedEngine(open_reader, sink, corrupt_records=CorruptRecords(corrupt))  # type: ignore[arg-type]
        store = MemoryOffsetStore(self.journal, task=task)
        observer = Never() if observer is None else observer
        if again:
            return made_good(sink, engine, observer)
        return window_run(planner, store, sink, engine, attempt="a", observer=observer).run()


def made_good(sink: RoutedSink, engine: Any, observer: Any) -> list[str]:
    """Make good the windows of failed tables, as the next run does; return what failed again."""

    def progress(point: str) -> None:
        observer.at(Step.LOAD, point)

    again = MakeGood(sink, engine, lambda *_, **__: None, attempt="again", progress=progress)
    return again.run(sink.failures())


def values_in(path: Path) -> Counter[bytes]:
    return Counter(read_windows(sink_for(path)).to_table()["value"].to_pylist())


def test_streams_go_to_their_tables_in_one_read_through_kills(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    routes = {
        "name": "shop",
        "tables": {
            "orders": {"sink": f"delta:{lake}/orders", "decode": {
                "format": "json", "schema": "id bigint", "columns": ["partition"]}},
            "people": {"sink": f"sqlite:///{lake}/people.db?table=people"},
            "log_*": f"{lake}/{{stream_id}}",
        },
    }  # fmt: skip
    lake.mkdir()
    topic = Topic(tmp_path / "home", routes)
    rng, sent, died = random.Random(4), Counter[tuple[str, bytes]](), 0
    for number in range(4):
        for at in range(40):
            stream = rng.choice(["orders", "people", "log_a", "log_b/c"])
            body = json.dumps({"id": 100 * number + at}).encode()
            topic.add(rng.choice(KEYS), stream, body)
            sent[stream, body] += 1
        for points in (5 + 4 * number, 22 + 5 * number):
            try:
                topic.run(f"t{number}", DieAfter(points))
            except Died:
                died += 1
        result = topic.run(f"t{number}")
        total = sum(entry["read"] for entry in result.tables.values())
        assert (total, len(result.tables)) == (40, 4)
    assert died > 4
    orders = DeltaTable(str(lake / "orders")).to_pyarrow_table()["id"].to_pylist()
    assert sorted(orders) == sorted(json.loads(b)["id"] for s, b in sent if s == "orders")
    with sa.create_engine(f"sqlite:///{lake}/people.db").connect() as connection:
        people = Counter(connection.scalars(sa.text("SELECT value FROM people")))
    assert people == Counter(b for s, b in sent.elements() if s == "people")
    for stream, place in (("log_a", "log_a"), ("log_b/c", "log_b_x2f_c")):
        assert values_in(lake / place) == Counter(b for s, b in sent.elements() if s == stream)


def test_a_window_is_read_once_for_fifty_tables(tmp_path: Path) -> None:
    topic = Topic(tmp_path / "home", {"name": "n", "tables": {"*": f"{tmp_path}/t/{{stream_id}}"}})
    for at in range(500):
        topic.add(KEYS[at % 2], f"s{at % 50}", b"%d" % at)
    result = topic.run("t1")
    assert topic.read == 500
    assert len(result.tables) == 50
    assert {entry["rows"] for entry in result.tables.values()} == {10}


def test_what_no_route_takes_fails_the_window_or_is_set_aside(tmp_path: Path) -> None:
    routes: Any = {"name": "n", "tables": {"a": f"{tmp_path}/a"}}
    topic = Topic(tmp_path / "home", routes)
    for stream in ("a", "b", None):
        topic.add("1:0", stream, b"x")
    with pytest.raises(ConfigError, match="no route takes records with stream_id 'b'"):
        topic.run("t1")
    topic.routes = {**routes, "unrouted": "quarantine"}
    result = topic.run("t1")
    assert (result.corrupt, sum(t["read"] for t in result.tables.values())) == (2, 1)
    quarantined = list((tmp_path / "home").rglob("_corrupt/*"))
    assert len(quarantined) == 1


def test_a_route_changed_between_two_tries_of_a_window_is_seen(tmp_path: Path) -> None:
    decode = {"format": "json", "schema": "id bigint", "columns": ["partition"]}
    routes: Any = {"name": "n", "tables": {"a": {"sink": f"{tmp_path}/a", "decode": decode}}}
    topic = Topic(tmp_path / "home", routes)
    topic.add("1:0", "a", b'{"id": 1}')
    topic.add("1:0", "b", b'{"id": 2}')
    topic.routes = {"name": "n", "tables": {
        "a": {"sink": f"{tmp_path}/a", "decode": decode}, "b": f"{tmp_path}/b"}}  # fmt: skip

    class DieAtTable(Never):
        def at(self, step: Any, point: str) -> None:
            if point == f"{tmp_path}/a: published":
                raise Died

    with pytest.raises(Died):
        topic.run("t1", DieAtTable())
    topic.routes = {"name": "n", "tables": {"*": {"sink": f"{tmp_path}/a", "decode": decode}}}
    with pytest.raises(CountMismatch, match="a route was changed between two tries"):
        topic.run("t1")


def test_values_that_give_one_place_are_refused(tmp_path: Path) -> None:
    topic = Topic(tmp_path / "home", {"name": "n", "tables": {"*": f"{tmp_path}/t/{{stream_id}}"}})
    topic.add("1:0", "Orders", b"1")
    topic.add("1:0", "orders", b"2")
    with pytest.raises(ConfigError, match="in other letters"):
        topic.run("t1")
    topic.logs["1:0"] = [("a_x2f_b", b"1"), ("a", b"1")]
    with pytest.raises(ConfigError, match="cannot stand in an address"):
        topic.run("t1")


def test_tables_of_a_canal_topic_are_followed_each(tmp_path: Path) -> None:
    follow = {
        "decode": {"format": "canal", "schema": SCHEMA},
        "apply": "changes", "key": ["id"], "version": "_source_time",
    }  # fmt: skip
    address = f"sqlite:///{tmp_path}/lake.db?table={{_table}}"
    routes = {"name": "db", "by": "_table", "format": "canal",
              "tables": {"*": {"sink": address, **follow}}}  # fmt: skip
    topic = Topic(tmp_path / "home", routes)
    sources = {name: Database("canal", seed, KEYS) for seed, name in enumerate(("goods", "shops"))}
    for number in range(3):
        for name, source in sources.items():
            source.play(15)
            for key, log in source.logs.items():
                for body in log:
                    topic.add(key, None, body.replace(b'"goods"', f'"{name}"'.encode()))
                log.clear()
        topic.add("1:0", None, b'{"type": "HEARTBEAT"}')
        result = topic.run(f"t{number}")
        assert result.notices == {"heartbeat": 1}
        with sa.create_engine(f"sqlite:///{tmp_path}/lake.db").connect() as connection:
            for name, source in sources.items():
                query = f"SELECT id, name, price FROM {name} ORDER BY id"
                rows = [tuple(row) for row in connection.execute(sa.text(query))]
                assert rows == source.rows()


def test_problems_of_routes_are_listed_before_anything_is_read() -> None:
    with pytest.raises(ConfigError) as error:
        parse_routes(
            {
                "by": "_table",
                "unrouted": "drop",
                "tables": {
                    "a": {"sink": "relative", "decode": "jsn"},
                    "b": {"sink": "/x", "apply": "changes", "key": ["id"]},
                    "c": {"to": "/x"},
                    "d": {"sink": "delta:/x", "apply": "upsert"},
                },
            }
        )
    text = str(error.value)
    for part in (
        "name is needed", "belong together", "'drop' is none of", "'a': sink: 'relative'",
        "'a': decode: format: 'jsn'", "'b': apply has no effect with parquet",
        "'c': sink is needed", "'d': key is needed",
    ):  # fmt: skip
        assert part in text


def test_members_of_a_wrong_kind_are_listed_before_anything_is_read() -> None:
    """A misspelled word would fail the window, or with isolation the table, when its first record
    is met."""
    wrong = {
        "schema_evolution": "add", "partition_by": "day(x", "max_partitions": "x", "version": 5,
        "key": [3], "soft_delete": True, "sink_conn_id": 7,
    }  # fmt: skip
    tables: dict[str, Any] = {name: {"sink": "delta:/x", name: wrong[name]} for name in wrong}
    tables["a"] = {"sink": "sqlite:////x.db?table=a", "partition_by": ["day(x)"]}
    tables["b"] = {"sink": "/x/b", "partition_by": ["x", "x"]}
    with pytest.raises(ConfigError) as error:
        parse_routes({"name": "n", "tables": tables})
    text = str(error.value)
    for part in (
        "'schema_evolution': schema_evolution: input should be 'refuse' or 'add_columns'",
        "'partition_by': partition_by: 'day(x' is neither", "'max_partitions': max_partitions: 'x'",
        "'version': version: ", "'key': key: ", "'soft_delete': soft_delete: ",
        "'sink_conn_id': sink_conn_id: ", "'a': partition_by has no effect with sqlite",
        "'b': partition_by: x is named twice",
    ):  # fmt: skip
        assert part in text
    assert len(error.value.problems) == len(tables)


@pytest.mark.parametrize(
    ("member", "problem"),
    [
        ({"schema_evolution": "add_colums"}, "schema_evolution: input should be 'refuse' or"),
        ({"max_partitions": "many"}, "max_partitions: 'many': "),
        ({"max_partitions": 0}, "max_partitions: "),
        ({"max_partitions": 5}, "partition_by: max_partitions has no effect"),
        ({"partition_by": 1}, "partition_by: "),
        ({"partition_by": ["a", "a"]}, "partition_by: a is named twice"),
        ({"partition_by": [""]}, "partition_by: '' is neither a column"),
        (
            {"sink": "sqlite:////tmp/x.db?table=t", "partition_by": "a"},
            "partition_by has no effect",
        ),
        ({"key": None, "apply": "upsert"}, "key is needed by"),
        ({"key": [""], "apply": "upsert"}, "key: a blank text is no column"),
        ({"key": ["a", "a"], "apply": "upsert"}, "key: a is named twice"),
        ({"key": 1}, "key: "),
        ({"sink_conn_id": 1}, "sink_conn_id: "),
        ({"version": ["a"]}, "version: "),
        ({"decode": {"format": "json", "schema": {1}}}, "decode: it has members that JSON has not"),
    ],
)
def test_members_of_a_table_are_judged_like_the_options_of_an_operator(
    member: dict[str, Any], problem: str
) -> None:
    """Some were raw errors, some were taken: a word that was misspelled had no effect."""
    table = {"sink": "delta:/lake/a", **member}
    with pytest.raises(ConfigError) as caught:
        parse_routes({"name": "r", "tables": {"a": table}})
    assert any(text.startswith(f"'a': {problem}") for text in caught.value.problems)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"by": None}, "by: None is no column"),
        ({"by": " "}, "by: ' ' is no column"),
        ({"by": ["stream_id"]}, "by: "),
        ({"name": "a\0b"}, "name: 'a\\x00b' has characters"),
        ({"tables": {None: "/lake/a"}}, "tables: None is neither a value nor a pattern"),
    ],
)
def test_odd_members_of_routes_are_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_routes({"name": "r", "tables": {"a": "/lake/a"}, **given})
    assert any(text.startswith(problem) for text in caught.value.problems)


@pytest.mark.parametrize("kind", ["delta", "parquet", "sqlite"])
def test_a_table_that_lost_the_newest_window_stops_the_group(tmp_path: Path, kind: str) -> None:
    """A restored or dropped table is noticed though the window's own marker is there."""
    places = {
        "delta": f"delta:{tmp_path}/t/{{stream_id}}",
        "parquet": f"{tmp_path}/t/{{stream_id}}",
        "sqlite": f"sqlite:///{tmp_path}/t.db?table={{stream_id}}",
    }
    topic = Topic(tmp_path / "home", {"name": "shop", "tables": {"*": places[kind]}})
    for stream in ("orders", "clicks"):
        topic.add("1:0", stream, stream.encode())
    topic.run("1")
    topic.add("1:0", "orders", b"more")
    topic.run("2")
    if kind == "sqlite":
        with sa.create_engine(f"sqlite:///{tmp_path}/t.db").begin() as connection:
            connection.execute(sa.text("DROP TABLE orders"))
    else:
        shutil.rmtree(tmp_path / "t" / "orders")
    topic.add("1:0", "clicks", b"later")
    with pytest.raises(SinkHistoryLost):
        topic.run("3")


def test_a_route_may_lead_elsewhere_from_the_next_window_on(tmp_path: Path) -> None:
    topic = Topic(tmp_path / "home", {"name": "shop", "tables": {"a": f"{tmp_path}/one"}})
    topic.add("1:0", "a", b"1")
    topic.run("1")
    topic.routes = {"name": "shop", "tables": {"a": f"{tmp_path}/two"}}
    topic.add("1:0", "a", b"2")
    topic.run("2")
    assert (values_in(tmp_path / "one"), values_in(tmp_path / "two")) == ({b"1": 1}, {b"2": 1})


def test_a_stream_id_that_is_a_zero_character_is_no_heartbeat(tmp_path: Path) -> None:
    routes: Any = {"name": "n", "tables": {"*": f"{tmp_path}/t/{{stream_id}}"}}
    topic = Topic(tmp_path / "home", routes)
    topic.add("1:0", "\0", b"1")
    topic.add("1:0", "a", b"2")
    with pytest.raises(ConfigError, match="no route takes records"):
        topic.run("t1")
    topic.routes = {**routes, "unrouted": "quarantine"}
    result = topic.run("t1")
    assert (result.corrupt, sum(t["read"] for t in result.tables.values())) == (1, 1)


@pytest.mark.parametrize("by", ["message_id", "value", "offset"])
def test_a_column_that_is_no_text_is_refused_before_anything_is_read(
    tmp_path: Path, by: str
) -> None:
    topic = Topic(tmp_path / "home", {"name": "n", "by": by, "tables": {"*": f"{tmp_path}/a"}})
    topic.add("1:0", "a", b"1")
    with pytest.raises(ConfigError, match="is none of topic, partition"):
        topic.run("t1")
    assert topic.read == 0


UNFIT = ["", "a_x2f_b", "_x2f/", "é" * 41, "x" * 201, "tubemq_windows"]
"""Values that cannot stand in an address, each with a record beside one that can."""


def unfit_topic(tmp_path: Path, **members: Any) -> Topic:
    tables = {"*": f"{tmp_path}/t/{{stream_id}}"}
    topic = Topic(tmp_path / "home", {"name": "n", "tables": tables, **members})
    for stream in ["/x2f_", *UNFIT, "Orders", "orders", "\x07", None]:
        topic.add("1:0", stream, str(stream).encode())
    return topic


def test_values_that_cannot_stand_in_an_address_are_named_in_one_error(tmp_path: Path) -> None:
    topic = unfit_topic(tmp_path)
    topic.add("1:0", "x" * 201, b"again")
    with pytest.raises(ConfigError) as error:
        topic.run("t1")
    long = f"'{'x' * 60}'… (201 characters)"
    where = "cannot stand in an address of route '*': it"
    assert [problem.split(": add")[0] for problem in error.value.problems] == [
        f"stream_id '' {where} is empty (1 so far)",
        f"stream_id 'a_x2f_b' {where} would give the place of another value (1 so far)",
        f"stream_id '_x2f/' {where} would give the place of another value (1 so far)",
        f"stream_id '{'é' * 41}' {where} has 205 characters there, more than 200 (1 so far)",
        f"stream_id {long} {where} has 201 characters there, more than 200 (2 so far)",
        "3 other values, with 3 records",
    ]
    assert "unrouted='quarantine'" in str(error.value)


@pytest.mark.parametrize("on_failure", ["fail", "isolate"])
def test_values_that_cannot_stand_in_an_address_are_set_aside_with_the_reason(
    tmp_path: Path, on_failure: str
) -> None:
    """Through a kill, and when one of two values in other letters came in an earlier window."""
    topic = unfit_topic(tmp_path, unrouted="quarantine", on_route_failure=on_failure)
    with pytest.raises(Died):
        topic.run("t1", DieAtPublished())
    result = topic.run("t1")
    assert (result.corrupt, result.total, len(result.tables)) == (len(UNFIT) + 2, 3, 3)
    for stream, place in (("/x2f_", "_x2f_x2f_"), ("Orders", "Orders"), ("\x07", "_x7_")):
        assert values_in(tmp_path / "t" / place) == {stream.encode(): 1}
    topic.add("1:0", "orders", b"later")
    topic.add("1:0", "Orders", b"more")
    result = topic.run("t2")
    assert (result.corrupt, result.total) == (1, 1)
    home = sink_for(tmp_path / "home")
    reasons = [
        reason
        for window_id in sorted(home.window_ids())
        for marker in [home.marker(window_id)]
        if marker is not None
        for table in home.quarantined(marker)
        for reason in table["reason"].to_pylist()
    ]
    assert sum("t/Orders in other letters" in reason for reason in reasons) == 2
    assert sum("no route takes records with stream_id None" in reason for reason in reasons) == 1
    assert max(len(reason.replace(str(tmp_path), "")) for reason in reasons) < 250


class DieAtPublished(Never):
    """Observer that ends the run when a first table is published."""

    def at(self, step: Any, point: str) -> None:
        if point.endswith(": published"):
            raise Died


def test_the_next_route_takes_values_that_cannot_stand_in_an_address(tmp_path: Path) -> None:
    topic = unfit_topic(tmp_path)
    topic.routes["tables"]["?*"] = f"{tmp_path}/rest"
    topic.logs["1:0"] = [("x" * 300, b"1"), ("a_x2f_b", b"2"), ("fits", b"3")]
    topic.run("t1")
    assert values_in(tmp_path / "rest") == {b"1": 1, b"2": 1}
    assert values_in(tmp_path / "t" / "fits") == {b"3": 1}


def test_a_value_that_leads_to_another_sink_is_set_aside(tmp_path: Path) -> None:
    """To that of the whole window, or of a route that treats records otherwise."""
    decode = {"format": "json", "schema": "id bigint"}
    topic = unfit_topic(tmp_path, unrouted="quarantine")
    topic.home = tmp_path / "t" / "home"
    topic.routes["tables"]["own"] = {"sink": f"{tmp_path}/t/typed", "decode": decode}
    topic.logs["1:0"] = [("home", b"1"), ("typed", b"2"), ("own", b'{"id": 3}'), ("Home", b"4")]
    result = topic.run("t1")
    assert (result.corrupt, result.total) == (3, 1)


def test_routes_that_lead_to_one_place_are_refused_before_anything_is_read() -> None:
    with pytest.raises(ConfigError) as error:
        parse_routes(
            {
                "name": "n",
                "tables": {
                    "Orders": "/t/{stream_id}",
                    "orders": "/t/{stream_id}",
                    "a": "/t/ORDERS",
                    "b": "/t/b/",
                    "c": "/t/b",
                    "d": {"sink": "/t/b/", "decode": {"format": "json", "schema": "id int"}},
                    "e": {"sink": "/t/b/", "sink_conn_id": "other"},
                    "a_x2f_b": "/t/{stream_id}",
                    "*": "/t/{stream_id}",
                },
            }
        )
    text = str(error.value)
    assert len(error.value.problems) == 6
    for pattern, other in (("orders", "Orders"), ("a", "Orders"), ("c", "b")):
        assert f"{pattern!r}: its sink is that of {other!r} in other letters, or with" in text
    for pattern in ("d", "e"):
        assert f"{pattern!r}: its sink is that of 'b', and its other members differ" in text
    assert "'a_x2f_b': stream_id 'a_x2f_b' cannot stand in an address" in text


def test_a_value_longer_than_a_database_takes_falls_to_the_next_route() -> None:
    tables = {"*": "postgresql://h/d?table=in_{stream_id}", "?*": "postgresql://h/d?table=rest"}
    routes = parse_routes({"name": "n", "tables": tables})
    assert [routes.patterns.route_of("x" * length) for length in (60, 61)] == [0, 1]


def test_a_record_without_a_key_is_set_aside_as_a_bad_one(tmp_path: Path) -> None:
    decode = {"format": "json", "schema": "id bigint, name string"}
    table = {"sink": f"delta:{tmp_path}/a", "decode": decode, "apply": "upsert", "key": ["id"]}
    topic = Topic(tmp_path / "home", {"name": "n", "tables": {"a": table}})
    topic.add("1:0", "a", b'{"id": 1, "name": "x"}')
    topic.add("1:0", "a", b'{"name": "y"}')
    with pytest.raises(CorruptRecord, match=r"no value in 'id', which is of the key.*quarantine"):
        topic.run("t1")
    result = topic.run("t1", corrupt="quarantine")
    assert (result.total, result.corrupt) == (1, 1)


@pytest.mark.parametrize(
    ("format_", "body"),
    [
        ("canal", {"type": "ALTER", "isDdl": True, "sql": "ALTER …", "database": "", "table": ""}),
        ("debezium", {"ddl": "ALTER …", "source": {}}),
    ],
)
def test_ddl_that_names_no_table_is_no_heartbeat(tmp_path: Path, format_: str, body: Any) -> None:
    decode = {"format": format_, "schema": SCHEMA}
    tables = {"*": {"sink": f"{tmp_path}/a", "decode": decode}}
    routes: Any = {"name": "n", "by": "_table", "format": format_, "tables": tables}
    topic = Topic(tmp_path / "home", routes)
    topic.add("1:0", None, json.dumps(body).encode())
    with pytest.raises(ConfigError, match="no route takes records with _table None"):
        topic.run("t1")
    topic.routes = {**routes, "unrouted": "quarantine"}
    assert topic.run("t1").corrupt == 1


def test_a_new_schema_of_goldengate_is_of_the_table_that_it_names(tmp_path: Path) -> None:
    decode = {"format": "ogg", "schema": SCHEMA}
    routes: Any = {"name": "n", "by": "_table", "format": "ogg", "tables": {
        "goods": {"sink": f"{tmp_path}/a", "decode": decode}}}  # fmt: skip
    topic = Topic(tmp_path / "home", routes)
    topic.add("1:0", None, b'{"$schema": "http://json-schema.org/draft-04/schema#",'
                           b' "title": "SHOP.goods", "definitions": {}}')  # fmt: skip
    with pytest.raises(TableAltered, match=r"SHOP\.goods was altered"):
        topic.run("t1")


def test_two_spellings_of_one_sink_lose_no_records(tmp_path: Path) -> None:
    """The table would have the window of the first, and seem to have that of the second."""
    table, other = f"delta:{tmp_path}/a", f"delta:file://{tmp_path}/a"
    topic = Topic(tmp_path / "home", {"name": "n", "tables": {"a": table, "b": other}})
    topic.add("1:0", "a", b"1")
    topic.add("1:0", "b", b"2")
    with pytest.raises(ConfigError, match="are one sink in two spellings"):
        topic.run("t1")


def test_another_word_than_the_value_in_an_address_is_refused() -> None:
    """It would be the name of a directory in which all values are."""
    tables = {"*": "/lake/{streamid}"}
    with pytest.raises(ConfigError, match=r"'\*': sink: \{streamid\} is not .* as \{stream_id\}"):
        parse_routes({"name": "n", "tables": tables})


def test_of_two_runs_that_give_one_place_at_once_the_second_publishes_nothing(
    tmp_path: Path,
) -> None:
    """The next try finds the address of the first, and sets the records aside."""
    tables = {"*": f"{tmp_path}/{{stream_id}}"}
    topic = Topic(tmp_path / "home", {"name": "n", "unrouted": "quarantine", "tables": tables})
    topic.add("1:0", "orders", b"1")

    class OtherRun(Never):
        def at(self, step: Any, point: str) -> None:
            if point == "tables noted":
                key = _place_key(f"{tmp_path}/orders")
                book = sink_for(topic.home).book(PLACES)
                assert book is not None
                book.fix(key, {"address": f"{tmp_path}/Orders"})

    with pytest.raises(CountMismatch, match="another run has just written"):
        topic.run("t1", OtherRun())
    assert not list(tmp_path.rglob("orders/**/*.parquet"))
    assert topic.run("t1").corrupt == 1
