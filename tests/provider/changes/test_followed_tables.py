"""Tables that follow a database: after every window they equal it, whatever dies in between."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from pyiceberg.catalog import load_catalog

from tests.provider.changes.history import SCHEMA, VERSIONS, Database, Row, reader_of
from tests.provider.sinks.postgres import postgres_server
from tests.provider.windows.fake_reader import TOPIC, ends_of
from tubemq_provider.engines.inline import InlineEngine
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.rows.spec import DecodeSpec
from tubemq_provider.sinks._deleted_keys import DeletedKeys
from tubemq_provider.sinks._storage import LocalStorage
from tubemq_provider.sinks.factory import sink_for
from tubemq_provider.windows.errors import ChangeOrderUnclear
from tubemq_provider.windows.following import Following
from tubemq_provider.windows.plan import WindowScope
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.planning.standalone_planner import ExplicitPlanner
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.protocols import Step
from tubemq_provider.windows.run.kinds import window_run

WINDOWS = int(os.environ.get("TUBEMQ_FOLLOWED_WINDOWS", "6"))
"""Windows of a history; more by hand."""


class Died(BaseException):
    """The process is gone."""


class DieAfter:
    """Observer that ends the run after a number of points."""

    def __init__(self, points: int) -> None:
        self.points = points

    def at(self, step: Step, point: str) -> None:
        self.points -= 1
        if self.points < 0:
            raise Died


class Never:
    def at(self, step: Step, point: str) -> None:
        """Continue."""


class Table:
    """A followed table in one kind of sink."""

    def __init__(
        self,
        spec: str,
        rows: Callable[[], list[Row]],
        following: Following,
        catalog: dict[str, str] | None = None,
    ) -> None:
        self.spec, self.rows, self.following, self.catalog = spec, rows, following, catalog
        self.journal = MemoryJournal()

    def run(
        self,
        database: Database,
        task: str,
        observer: Any = None,
        explicit: tuple[Any, Any] | None = None,
    ) -> Any:
        sink = sink_for(self.spec, following=self.following, catalog_properties=self.catalog)
        scope = WindowScope("c1", TOPIC, "g1", sink.identity)
        ends = dict(database.ends())
        planner: Any = CursorPlanner(
            scope, lambda: ends_of(ends), initial_position="earliest", policies=Policies()
        )
        if explicit is not None:
            planner = ExplicitPlanner(scope, *explicit, lambda: ends_of(ends), Policies(), None)
        decode = DecodeSpec.parse(
            {"format": database.format, "schema": SCHEMA, "columns": ["partition"], "before": True}
        )
        engine = InlineEngine(reader_of(database), decode=decode, following=self.following)
        store = MemoryOffsetStore(self.journal, task=task)
        observer = Never() if observer is None else observer
        return window_run(planner, store, sink, engine, attempt="a", observer=observer).run()


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with postgres_server() as url:
        yield url


def table_of(kind: str, place: Any, following: Following) -> Table:
    where = "" if following.soft_delete is None else f" WHERE NOT {following.soft_delete}"
    if kind == "delta":
        from deltalake import DeltaTable

        def in_delta() -> list[Row]:
            read = DeltaTable(str(place / "goods")).to_pyarrow_table().to_pylist()
            live = [r for r in read if not r.get(following.soft_delete or "")]
            return sorted((r["id"], r["name"], r["price"]) for r in live)

        return Table(f"delta:{place}/goods", in_delta, following)
    if kind == "iceberg":
        catalog = {"type": "sql", "uri": f"sqlite:///{place}/catalog.db", "warehouse": f"{place}/w"}
        (place / "w").mkdir(exist_ok=True)

        def in_iceberg() -> list[Row]:
            table = load_catalog("lake", **catalog).load_table("shop.goods")
            read = table.scan().to_arrow().to_pylist()
            live = [r for r in read if not r.get(following.soft_delete or "")]
            return sorted((r["id"], r["name"], r["price"]) for r in live)

        return Table("iceberg:lake/shop.goods", in_iceberg, following, catalog)
    url = f"sqlite:///{place}/lake.db" if kind == "sqlite" else str(place)

    def in_database() -> list[Row]:
        engine = sa.create_engine(url, poolclass=sa.NullPool)
        with engine.connect() as connection:
            query = f"SELECT id, name, price FROM goods{where} ORDER BY id"
            return [tuple(row) for row in connection.execute(sa.text(query))]

    if kind == "postgresql":
        engine = sa.create_engine(url, poolclass=sa.NullPool)
        with engine.begin() as connection:
            for name in ("goods", "tubemq_windows", "tubemq_boundaries"):
                connection.execute(sa.text(f"DROP TABLE IF EXISTS {name}"))
    mark = "&" if "?" in url else "?"
    return Table(f"{url}{mark}table=goods", in_database, following)


def place_of(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return request.getfixturevalue("postgres") if kind == "postgresql" else tmp_path


CASES = [
    ("sqlite", "debezium", True), ("sqlite", "canal", False), ("sqlite", "maxwell", False),
    ("postgresql", "maxwell", True), ("postgresql", "canal", False), ("delta", "debezium", False),
    ("iceberg", "maxwell", False), ("iceberg", "debezium", True),
]  # fmt: skip


@pytest.mark.timeout(240 + 10 * WINDOWS)
@pytest.mark.parametrize(("kind", "format_", "soft"), CASES)
def test_after_every_window_the_table_equals_the_database(
    kind: str, format_: str, soft: bool, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    following = Following("changes", ("id",), VERSIONS[format_], "gone" if soft else None)
    table = table_of(kind, place_of(kind, request, tmp_path), following)
    database = Database(format_, seed=WINDOWS)
    for number in range(WINDOWS):
        database.play(12)
        for attempt in range(database.random.randint(0, 2)):
            try:
                table.run(database, f"t{number}", DieAfter(database.random.randint(0, 25)))
            except Died:
                continue
            assert attempt >= 0
        table.run(database, f"t{number}")
        assert table.rows() == database.rows(), f"window {number}"
        replayed = table.run(database, f"t{number}")
        assert replayed.replayed or replayed.empty
        assert table.rows() == database.rows()


@pytest.mark.parametrize("kind", ["sqlite", "delta", "iceberg"])
def test_the_offset_is_the_order_where_a_key_stays_in_its_partition(
    kind: str, tmp_path: Path
) -> None:
    table = table_of(kind, tmp_path, Following("changes", ("id",)))
    database = Database("debezium", seed=3, move_keys=False)
    for number in range(3):
        database.play(15)
        table.run(database, f"t{number}")
        assert table.rows() == database.rows()


def test_a_delta_table_is_followed_by_a_key_that_is_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partition of a row is looked up in files that a merge has written, and with them texts as
    pyarrow compares them with no other text."""
    monkeypatch.setattr(f"{__name__}.SCHEMA", "id string, name string, price double")
    table = table_of("delta", tmp_path, Following("changes", ("id",)))
    database = Database("debezium", seed=1)
    for number in range(3):
        database.logs["1:0"].append(_insert('"a"', f"x{number}"))
        table.run(database, f"t{number}")
    assert table.rows() == [("a", "x2", None)]


@pytest.mark.parametrize("kind", ["sqlite", "delta", "iceberg"])
def test_a_window_of_heartbeats_may_come_before_the_first_change(kind: str, tmp_path: Path) -> None:
    table = table_of(kind, tmp_path, Following("changes", ("id",)))
    database = Database("debezium", seed=3)
    database.logs["1:0"] = [b'{"ts_ms": 1}']
    assert table.run(database, "t1").notices == {"heartbeat": 1}
    database.logs["1:0"].append(_insert(1, "a"))
    table.run(database, "t2")
    assert table.rows() == [(1, "a", None)]


def test_a_window_is_one_snapshot_of_an_iceberg_table_and_leaves_no_other_files(
    tmp_path: Path,
) -> None:
    table = table_of("iceberg", tmp_path, Following("changes", ("id",)))
    database = Database("debezium", seed=5, move_keys=False)
    catalog = load_catalog("lake", **(table.catalog or {}))
    for number in range(2):
        database.play(10)
        for points in (9, 13):
            with suppress(Died):
                table.run(database, f"t{number}", DieAfter(points))
        table.run(database, f"t{number}")
        goods = catalog.load_table("shop.goods")
        windows = [one.summary and one.summary["tubemq.window"] for one in goods.snapshots()]
        assert len(windows) == len({*windows}) == number + 1
        assert table.rows() == database.rows()
        named = {
            path.split("/merged/")[1] for path in goods.inspect.all_files()["file_path"].to_pylist()
        }
        there = (Path(goods.location().removeprefix("file://")) / "merged").rglob("*.parquet")
        assert {str(path).split("/merged/")[1] for path in there} == named


@pytest.mark.parametrize("kind", ["sqlite", "delta", "iceberg"])
def test_a_key_of_two_partitions_is_refused_without_a_version(kind: str, tmp_path: Path) -> None:
    table = table_of(kind, tmp_path, Following("changes", ("id",)))
    database = Database("debezium", seed=3, move_keys=False)
    database.logs["1:0"] = [_insert(1, "a")]
    table.run(database, "t1")
    database.logs["2:0"] = [_insert(1, "b")]
    with pytest.raises(ChangeOrderUnclear, match="version="):
        table.run(database, "t2")
    assert table.rows() == [(1, "a", None)]
    database.logs["1:0"].append(_insert(2, "c"))
    database.logs["2:0"].append(_insert(2, "d"))
    with pytest.raises(ChangeOrderUnclear, match="version="):
        table.run(database, "t3")


@pytest.mark.parametrize("kind", ["sqlite", "delta", "iceberg"])
def test_a_deleted_key_that_comes_back_from_another_partition_is_refused(
    kind: str, tmp_path: Path
) -> None:
    table = table_of(kind, tmp_path, Following("changes", ("id",)))
    database = Database("debezium", seed=3, move_keys=False)
    delete = b'{"op": "d", "before": {"id": 1, "name": "a"}, "after": null, "source": {"lsn": 1}}'
    database.logs["1:0"] = [_insert(1, "a"), _insert(2, "b")]
    table.run(database, "t1")
    database.logs["1:0"].append(delete)
    table.run(database, "t2")
    database.logs["1:0"] += [_insert(1, "c"), delete]  # a merge without an effect is a window too
    table.run(database, "t3")
    database.logs["2:0"] = [_insert(1, "d")]
    with pytest.raises(ChangeOrderUnclear, match=r"1:0 before, and comes from 2:0"):
        table.run(database, "t4")
    assert table.rows() == [(2, "b", None)]


def _debezium(op: str, lsn: int, before: int | None, after: int | None) -> bytes:
    rows = [None if key is None else {"id": key, "name": f"at {lsn}"} for key in (before, after)]
    body = {"op": op, "before": rows[0], "after": rows[1], "source": {"lsn": lsn}}
    return json.dumps(body).encode()


@pytest.mark.parametrize("kind", ["sqlite", "delta", "iceberg"])
def test_an_older_change_of_a_deleted_key_brings_no_row_back(kind: str, tmp_path: Path) -> None:
    """The key changes in one partition, and an earlier update of the old key is read later."""
    table = table_of(kind, tmp_path, Following("changes", ("id",), "_source_position"))
    database = Database("debezium", seed=3)
    database.logs["1:0"] = [_debezium("c", 1, None, 1), _debezium("c", 2, None, 2)]
    table.run(database, "t1")
    database.logs["2:0"] = [_debezium("u", 13, 1, 3)]
    table.run(database, "t2")
    assert table.rows() == [(2, "at 2", None), (3, "at 13", None)]
    database.logs["1:0"] += [_debezium("u", 12, 1, 1)]
    table.run(database, "t3")
    assert table.rows() == [(2, "at 2", None), (3, "at 13", None)]
    database.logs["1:0"] += [_debezium("c", 14, None, 1), _debezium("u", 15, 2, 2)]
    table.run(database, "t4")
    assert table.rows() == [(1, "at 14", None), (2, "at 15", None), (3, "at 13", None)]


@pytest.mark.parametrize(
    ("kind", "soft", "op"),
    [("sqlite", None, "d"), ("sqlite", "gone", "u"), ("delta", None, "d"), ("delta", None, "u"),
     ("delta", "gone", "d"), ("iceberg", None, "d"), ("iceberg", None, "u")],
)  # fmt: skip
def test_one_version_from_two_partitions_is_refused(
    kind: str, soft: str | None, op: str, tmp_path: Path
) -> None:
    """Also when the first of the two changes, in an earlier window, was a delete."""
    table = table_of(kind, tmp_path, Following("changes", ("id",), "_source_position", soft))
    database = Database("debezium", seed=3)
    database.logs["1:0"] = [_debezium("c", 1, None, 1), _debezium("c", 2, None, 2)]
    table.run(database, "t1")
    database.logs["1:0"] += [_debezium(op, 5, 1, 1 if op == "u" else None)]
    table.run(database, "t2")
    rows = table.rows()
    database.logs["2:0"] = [_debezium("u", 5, 1, 1)]
    with pytest.raises(ChangeOrderUnclear, match=r"with the same '_source_position'.*differs"):
        table.run(database, "t3")
    assert table.rows() == rows


def test_deletes_that_are_noted_no_more_are_no_reason_to_bring_rows_back(tmp_path: Path) -> None:
    """A bounded number of keys is noted. A change that is older than a forgotten delete fails."""
    following = Following("changes", ("id",), "at")
    deleted = DeletedKeys(LocalStorage(tmp_path), "t", following, most=50)
    for number in range(80):
        ids = [number, number + 1]
        columns = {
            "id": ids,
            "_op": ["d", "c"],
            "partition": ["1:0"] * 2,
            "at": [2 * i for i in ids],
        }
        deleted.note(f"w{number}", pa.table(columns))

    def current(key: int, at: int) -> int:
        change = {"id": [key], "_op": ["u"], "partition": ["2:0"], "at": [at]}
        return deleted.current(pa.table(change)).num_rows

    assert [current(79, at) for at in (157, 159)] == [0, 1]
    with pytest.raises(ChangeOrderUnclear, match=r"noted no more.*soft_delete="):
        current(1, 1)


def test_notes_of_deleted_keys_become_one_file(tmp_path: Path) -> None:
    storage, following = LocalStorage(tmp_path), Following("changes", ("id",))
    deleted = DeletedKeys(storage, "t", following)
    for number in range(80):
        ids = [number, number + 1]
        columns = {"id": ids, "_op": ["d", "c"], "partition": ["1:0", "1:0"]}
        deleted.note(f"w{number}", pa.table(columns))
    assert len([*storage.names("_tubemq/t/deleted")]) <= 32
    other = pa.table({"id": [3], "_op": ["c"], "partition": ["2:0"]})
    with pytest.raises(ChangeOrderUnclear, match="version="):
        deleted.note("w80", other)


def _insert(key: int | str, name: str) -> bytes:
    row = f'{{"id": {key}, "name": "{name}"}}'
    return f'{{"op": "c", "before": null, "after": {row}, "source": {{"lsn": 1}}}}'.encode()


def test_windows_in_any_order_reach_the_database_with_versions_and_soft_deletes(
    tmp_path: Path,
) -> None:
    following = Following("changes", ("id",), "_source_position", "gone")
    table = table_of("sqlite", tmp_path, following)
    database = Database("debezium", seed=11)
    cuts = [dict.fromkeys(database.keys, 0)]
    for _ in range(5):
        database.play(10)
        cuts.append(dict(database.ends()))
    spans = list(pairwise(cuts))
    database.random.shuffle(spans)
    for number, span in enumerate(spans):
        table.run(database, f"b{number}", explicit=span)
    assert table.rows() == database.rows()


def test_upserts_keep_the_last_row_of_a_key(tmp_path: Path) -> None:
    following = Following("upsert", ("id",))
    table = table_of("sqlite", tmp_path, following)
    database = Database("debezium", seed=1)
    database.logs["1:0"] = [b'{"id": 1, "name": "a"}', b'{"id": 1, "name": "b"}', b'{"id": 2}']
    database.format = "json"
    sink = sink_for(table.spec, following=following)
    scope = WindowScope("c1", TOPIC, "g1", sink.identity)
    planner = CursorPlanner(
        scope, lambda: ends_of(database.ends()), initial_position="earliest", policies=Policies()
    )
    decode = DecodeSpec.parse({"format": "json", "schema": SCHEMA, "columns": ["partition"]})
    engine = InlineEngine(reader_of(database), decode=decode, following=following)
    store = MemoryOffsetStore(MemoryJournal(), task="t")
    result = window_run(planner, store, sink, engine, attempt="a", observer=Never()).run()
    assert table.rows() == [(1, "b", None), (2, None, None)]
    assert result.total == 2
