"""The ledger on SQLite and PostgreSQL: the suite of all stores, and real contention."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
import sqlalchemy as sa

from tests.provider.offsets.accessors import ASSET, Event, Inlet, LedgerState, State, ledger_store
from tools.devkit.airflow.database import metadata_database
from tools.devkit.reaper import Reaper
from tubemq_client import errors
from tubemq_provider.offsets.ledger.envelope import CURSOR, Envelope
from tubemq_provider.offsets.ledger.store import LedgerStore, VersionedState
from tubemq_provider.offsets.ledger.tables import LedgerTables, metadata
from tubemq_provider.testing.offset_store_suite import BIG, ClaimStoreSuite, OpenTry, RunWorld
from tubemq_provider.windows.errors import StoreConflict
from tubemq_provider.windows.protocols import Document, OffsetStore

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    reaper = Reaper()
    try:
        with metadata_database(request.param, tmp_path_factory.mktemp("db"), reaper) as found:
            yield found
    finally:
        reaper.close()


@pytest.fixture
def engine(url: str) -> Iterator[sa.Engine]:
    engine = sa.create_engine(url)
    metadata.drop_all(engine)
    metadata.create_all(engine)
    yield engine
    engine.dispose()


class TestLedgerStore(ClaimStoreSuite):
    """Each name is a separate task on one offsets asset."""

    @pytest.fixture
    def open_try(self, engine: sa.Engine) -> OpenTry:
        self.inlet, self.tasks = Inlet([]), dict[str, State]()
        self.outlets: dict[int, Event] = {}
        self.engine = engine
        self.over: set[str] = set()

        def open_try(name: str) -> LedgerStore:
            outlet = Event({})
            store = ledger_store(
                engine,
                name,
                inlet=self.inlet,
                outlet=outlet,
                task_state=self.tasks.setdefault(name, State()),
                is_over=self.over.__contains__,
            )
            self.outlets[id(store)] = outlet
            return store

        return open_try

    def finish_task(self, store: OffsetStore) -> None:
        self.inlet.events.append(self.outlets[id(store)])

    def lose_ledger(self) -> None:
        metadata.drop_all(self.engine)
        metadata.create_all(self.engine)

    def test_a_retry_goes_on_with_its_own_claim(self, world: RunWorld) -> None:
        for step in world.over(world.open_try("a")).steps():
            if step.point == "plan claimed":
                break
        world.log.append("1:0", 7)
        self.tasks["a"].clear()
        result = self.finish(world, "a")
        assert (result.window_id, result.total) == (world.id(1), 5)
        assert self.finish(world, "b").total == 7

    def test_the_claim_of_a_task_that_is_over_is_adopted_with_its_ranges(
        self, world: RunWorld
    ) -> None:
        for step in world.over(world.open_try("dead")).steps():
            if step.point == "plan claimed":
                break
        world.log.append("1:0", 7)
        assert self.finish(world, "beside").total == 7
        self.over.add("dead")
        result = self.finish(world, "heir")
        assert (result.window_id, result.total) == (world.id(1), 5)
        assert result.position is not None
        assert result.position.seq == 2
        assert self.finish(world, "next").empty

    def test_a_claim_whose_window_is_published_is_only_noted(self, world: RunWorld) -> None:
        for step in world.over(world.open_try("dead")).steps():
            if step.point == "published":
                break
        self.over.add("dead")
        world.log.append("1:0", 7)
        result = self.finish(world, "next")
        assert (result.window_id, result.total) == (world.id(2), 7)
        assert result.position is not None
        assert result.position.seq == 2

    def test_a_lost_ledger_is_rebuilt_from_the_markers_and_a_hole_is_claimed(
        self, world: RunWorld
    ) -> None:
        self.finish(world, "a")
        world.log.append("1:0", 3)
        for step in world.over(world.open_try("dead")).steps():
            if step.point == "plan claimed":
                break
        world.log.append("2:0", 4)
        self.finish(world, "c")
        self.lose_ledger()
        world.log.append("1:1", 1)
        totals = [self.finish(world, task).total for task in ("d", "e")]
        assert totals == [3, 1]
        assert set(world.sink.windows) == {world.id(n) for n in (1, 2, 3, 4)}

    def test_the_stable_end_is_resolved_once_by_runs_side_by_side(self, world: RunWorld) -> None:
        options = {"initial_position": "stable"}
        one = world.over(world.open_try("a"), **options).steps()
        for step in one:
            if step.point == "claims created":
                break
        world.log.append("1:0", 2)
        store = world.open_try("b")
        assert world.over(store, **options).run().total == 2
        for _ in one:
            pass
        assert sum(world.sink.records().values()) == 2


def test_four_processes_with_ten_updates_each_make_forty(engine: sa.Engine, url: str) -> None:
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.provider.offsets.ledger_child", url, "10"], cwd=ROOT
        )
        for _ in range(4)
    ]
    assert [child.wait(60) for child in children] == [0] * 4
    found = ledger_store(engine, "reader").load_cursor()
    assert found == {"n": 40}
    with engine.begin() as connection:
        stored = LedgerTables(connection, engine.dialect.name).read(ASSET, "cursor")
    assert stored is not None
    assert stored.rev == 40


def test_a_request_that_is_repeated_because_its_answer_was_lost_counts_once(
    engine: sa.Engine,
) -> None:
    state = LedgerState(engine)
    state.lose_answers = True
    documents = VersionedState(state)
    documents.store(CURSOR, {"n": 1}, 0)
    documents.store(CURSOR, {"n": 2}, 1)
    with pytest.raises(StoreConflict):
        documents.store(CURSOR, {"n": 3}, 1)
    found = documents.load(CURSOR)
    assert found is not None
    assert (found.rev, found.document) == (2, {"n": 2})


def test_a_repeated_request_counts_once_though_others_wrote_meanwhile(engine: sa.Engine) -> None:
    state = LedgerState(engine)
    first = Envelope(0, "mine", {"n": 1}).to_value()
    state.set(CURSOR, first)
    documents = VersionedState(state)
    for n in range(1, 11):
        documents.store(CURSOR, {"n": n + 1}, n)
    state.set(CURSOR, first)
    found = documents.load(CURSOR)
    assert found is not None
    assert (found.rev, found.document) == (11, {"n": 11})


def test_no_value_exceeds_what_airflow_takes_and_old_pieces_are_removed(
    engine: sa.Engine,
) -> None:
    store, chance = ledger_store(engine, "a"), Random(7)  # numbers that compress little
    for base in (BIG, BIG - 28_000):
        store.load_cursor()
        store.store_cursor({f"1:{n}": base + chance.randrange(2**31) for n in range(9000)})
    assert 20_000 < store._asset_state.longest < 65_535  # type: ignore[attr-defined]
    with engine.begin() as connection:
        keys = connection.execute(sa.text("SELECT key FROM tubemq_offset_cursor")).scalars().all()
    chunks = {key.split("/")[2] for key in keys if key.startswith("chunk/")}
    assert len(chunks) == 1


def pieces_in(engine: sa.Engine) -> int:
    with engine.begin() as connection:
        keys = connection.execute(sa.text("SELECT key FROM tubemq_offset_cursor")).scalars().all()
    return sum(key.startswith("chunk/") for key in keys)


def long_document(tag: str) -> Document:
    return {"by": tag, "next": {f"1:{n}": BIG for n in range(3_000)}}


def test_a_document_that_becomes_short_leaves_no_pieces_behind(engine: sa.Engine) -> None:
    store = ledger_store(engine, "a")
    for tag in ("one", "two"):
        for document in (long_document(tag), {"by": tag, "next": {}}):
            store.load_cursor()
            store.store_cursor(document)
        assert pieces_in(engine) == 0
    VersionedState(LedgerState(engine)).store(CURSOR, long_document("command"), 4)
    VersionedState(LedgerState(engine)).store(CURSOR, {"by": "command"}, 5)
    assert pieces_in(engine) == 0


def test_a_document_that_came_too_late_leaves_no_pieces_behind(engine: sa.Engine) -> None:
    fast, slow = ledger_store(engine, "a"), ledger_store(engine, "b")
    for number in range(3):
        slow.load_cursor()
        fast.load_cursor()
        fast.store_cursor(long_document(f"a{number}"))
        needed = pieces_in(engine)
        with pytest.raises(StoreConflict):
            slow.store_cursor(long_document(f"b{number}"))
        assert pieces_in(engine) == needed
        # Of one document that two store, the pieces stay.
        slow.load_cursor()
        fast.load_cursor()
        fast.store_cursor(long_document("both"))
        with pytest.raises(StoreConflict):
            slow.store_cursor(long_document("both"))
        assert slow.load_cursor() == long_document("both")


def test_without_the_backend_the_ledger_is_refused_with_what_to_configure() -> None:
    with pytest.raises(errors.ConfigError, match="TubeMQStateBackend"):
        VersionedState(State()).expect_ledger()


def test_windows_stay_in_the_ledger_after_their_plans(engine: sa.Engine) -> None:
    store = ledger_store(engine, "a")
    store.store_plan("t-1", {"hash": "aa", "ranges": {"1:0": [0, 28]}})
    store.emit({"window_id": "t-1", "hash": "aa", "records": {"1:0": 1}})
    store.forget_plan("t-1")
    with engine.begin() as connection:
        (row,) = LedgerTables(connection, engine.dialect.name).windows(ASSET)
    assert (row.window_id, row.state, row.plan_hash, row.plan) == ("t-1", "written", "aa", None)
    assert row.outcome is not None
    assert row.outcome["records"] == {"1:0": 1}


def test_a_long_document_that_is_stored_again_is_still_there(engine: sa.Engine) -> None:
    store = ledger_store(engine, "w")
    document = {"v": 1, "ranges": {f"1:{n}": [BIG, BIG] for n in range(2_000)}}
    for _ in range(2):
        store.load_plan("t-1")
        store.store_plan("t-1", document)
    assert ledger_store(engine, "v").load_plan("t-1") == document
