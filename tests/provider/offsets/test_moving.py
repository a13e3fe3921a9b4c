"""A group that moves from one store to another, there and back."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from tests.provider.offsets.accessors import Event, Inlet, LedgerState, State
from tests.provider.windows.world import World
from tubemq_client.errors import ConfigError
from tubemq_provider.offsets.asset_state import refuse_claims
from tubemq_provider.offsets.document_state import DocumentState
from tubemq_provider.offsets.file import CLAIMS_FILE, FileOffsetStore
from tubemq_provider.offsets.file_claims import FileClaimStore
from tubemq_provider.offsets.ledger.envelope import CURSOR
from tubemq_provider.offsets.ledger.store import task_is_over
from tubemq_provider.offsets.ledger.tables import metadata
from tubemq_provider.offsets.registry import store_for
from tubemq_provider.windows.cursor import Cursor
from tubemq_provider.windows.errors import DocumentError, SinkHistoryLost
from tubemq_provider.windows.protocols import Document, OffsetStore
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.run.result import WindowResult


class Tasks:
    """Tasks of one Airflow, each with the store that it asks for."""

    def __init__(self, directory: Path) -> None:
        engine = sa.create_engine(f"sqlite:///{directory}/airflow.db")
        metadata.create_all(engine)
        self.world = World()
        self.state, self.inlet = LedgerState(engine), Inlet([])
        self.files = directory / "progress"
        self.over: set[str] = set()
        self.made = 0

    def run(self, store: str, *, dies_at: str = "") -> WindowResult | None:
        """Run a new task for one window; it succeeds unless it dies."""
        name, outlet, steps = self.begin(store)
        while True:
            try:
                if next(steps).point == dies_at:
                    return None
            except StopIteration as done:
                self.inlet.events.append(outlet)
                self.over.add(name)
                result: WindowResult = done.value
                return result

    def begin(self, store: str, max_records: int = 4) -> tuple[str, Event, Any]:
        """Return a new task before its first step."""
        self.made += 1
        name, outlet = f"run-{self.made}", Event({})
        run = window_run(
            self.world.planner(max_records=max_records),
            self._store(store, name, outlet),
            self.world.sink,
            self.world.engine,
            attempt=name,
        )
        return name, outlet, run.steps()

    def _store(self, store: str, name: str, outlet: Event) -> OffsetStore:
        if store == "file":
            return FileOffsetStore(self.files, task=name)
        if store == "file_claims":
            return FileClaimStore(self.files, task=name, over=self.over.__contains__)
        return store_for(store, self._context(name, outlet), "a")

    def _context(self, name: str, outlet: Event) -> dict[str, Any]:
        state = lambda _, run: "failed" if run in self.over else "running"  # noqa: E731
        return {
            "asset_state_store": {"a": self.state},
            "task_state_store": State(),
            "inlet_events": {"a": self.inlet},
            "outlet_events": {"a": outlet},
            "ti": SimpleNamespace(
                dag_id="d",
                run_id=name,
                task_id="t",
                map_index=-1,
                get_dagrun_state=state,
                get_task_states=lambda *_, **__: {},
            ),
        }


@pytest.fixture
def tasks(tmp_path: Path) -> Tasks:
    found = Tasks(tmp_path)
    found.world.log.append("1:0", 3)
    return found


def test_claims_are_not_forgotten_when_the_ledger_is_left(tasks: Tasks) -> None:
    world = tasks.world
    tasks.run("asset_state")
    world.log.append("1:0", 8)
    assert tasks.run("ledger", dies_at="plan claimed") is None
    tasks.run("ledger")
    assert world.sink.marker(world.id(3)) is not None
    world.log.append("1:0", 2)
    with pytest.raises(ConfigError, match=world.id(2)):
        tasks.run("asset_state")
    with pytest.raises(ConfigError, match=r"offsets adopt.*offsets rebuild.* --drop-claims"):
        tasks.run("asset_state")
    with pytest.raises(SinkHistoryLost, match="claimed in a ledger and never written"):
        tasks.run("events")
    tasks.over.add("run-2")
    tasks.run("ledger")
    for store in ("asset_state", "events"):
        tasks.run(store)
    assert world.sink.records() == Counter(world.log.all_records())


@pytest.mark.parametrize("stores", [("asset_state", "ledger"), ("file", "file_claims")])
def test_a_run_of_before_does_not_publish_what_claims_have_meanwhile(
    tasks: Tasks, stores: tuple[str, str]
) -> None:
    """It stored records again that a claim behind its own window had, in a run that was green."""
    world, (before, after) = tasks.world, stores
    tasks.run(before)
    world.log.append("1:0", 12)
    _, _, slow = tasks.begin(before, max_records=8)
    while next(slow).point != "records written":
        pass
    tasks.run(after, dies_at="plan claimed")
    tasks.run(after)
    with pytest.raises(ConfigError, match="windows of this group that are claimed"):
        list(slow)
    for number in range(2, tasks.made):
        tasks.over.add(f"run-{number}")
    for _ in range(4):
        tasks.run(after)
    assert world.sink.records() == Counter(world.log.all_records())


def test_claims_in_a_directory_are_not_forgotten_when_claims_are_given_up(tasks: Tasks) -> None:
    world = tasks.world
    tasks.run("file")
    world.log.append("1:0", 8)
    assert tasks.run("file_claims", dies_at="plan claimed") is None
    tasks.run("file_claims")
    assert world.sink.marker(world.id(3)) is not None
    world.log.append("1:0", 2)
    with pytest.raises(ConfigError, match=rf"{world.id(2)}.*let runs with claims=True finish them"):
        tasks.run("file")
    tasks.over.add("run-2")
    tasks.run("file_claims")
    for _ in range(2):
        tasks.run("file")
    assert world.sink.records() == Counter(world.log.all_records())


def test_claims_of_a_ledger_that_is_gone_are_forgotten_with_the_key(tasks: Tasks) -> None:
    """Without its backend Airflow has a copy under the key: only then does removing it help."""
    window = tasks.world.id(2)
    state = State()
    state.set(CURSOR, {"v": 1, "pending": {window: {}}, "done": {}})
    with pytest.raises(ConfigError, match=rf"{window}.*remove the key '{CURSOR}'"):
        refuse_claims(state)
    state.delete(CURSOR)
    refuse_claims(state)


@pytest.mark.parametrize(
    "edited", [{"pending": []}, {"done": 1}, {"doc": 1}, {"doc": {"pending": "x"}}], ids=str
)
def test_claims_that_somebody_has_edited_are_reported(tmp_path: Path, edited: Document) -> None:
    state = State()
    state.set(CURSOR, edited)
    with pytest.raises(DocumentError):
        refuse_claims(state)
    if "doc" not in edited:
        (tmp_path / CLAIMS_FILE).write_text(json.dumps(edited))
        with pytest.raises(DocumentError):
            FileOffsetStore(tmp_path, task="t").load_cursor()


@pytest.mark.parametrize("head", [{"count": 1}, {"count": "x", "sha256": "a"}], ids=str)
def test_a_head_that_somebody_has_edited_stands_for_itself(head: Document) -> None:
    """The run says what is wrong with it, and it can be deleted."""
    state = State()
    state.set("cursor", {"tubemq_pieces": head})
    documents = DocumentState(state)
    found = documents.load("cursor")
    assert found == {"tubemq_pieces": head}
    world = World()
    with pytest.raises(DocumentError, match="seq None"):
        Cursor.from_document({"v": 1, **found}, world.scope)
    documents.delete("cursor")
    assert documents.load("cursor") is None


@pytest.mark.parametrize("state", ["success", "failed"])
def test_a_task_that_planned_for_others_keeps_its_claim_until_its_run_ends(state: str) -> None:
    run = {"r": "running"}
    ti = SimpleNamespace(
        get_dagrun_state=lambda _, number: run[number],
        get_task_states=lambda *_, **__: {"r": {"plan": state}},
    )
    assert task_is_over(ti)("d|r|plan|-1") is (state == "failed")
    run["r"] = "success"
    assert task_is_over(ti)("d|r|plan|-1")


def test_a_ledger_that_was_left_does_not_go_back(tasks: Tasks) -> None:
    world = tasks.world
    tasks.run("ledger")
    world.log.append("1:0", 2)
    tasks.run("asset_state")
    world.sink.windows.pop(world.id(2))  # compaction, or the sink's own retention
    with pytest.raises(SinkHistoryLost, match="rebuild"):
        tasks.run("ledger")


def test_claims_in_a_directory_are_given_up_and_taken_again_between_runs(tasks: Tasks) -> None:
    """The book was behind for ever, and the error named a command that Dagster does not have."""
    world = tasks.world
    for store in (
        "file_claims",
        "file",
        "file",
        "file_claims",
        "file_claims",
        "file",
        "file_claims",
    ):
        world.log.append("1:0", 3)
        tasks.run(store)
    assert set(world.sink.windows) == {world.id(number) for number in range(1, 8)}
    assert world.sink.records() == Counter(world.log.all_records())


def test_claims_that_are_taken_again_know_what_a_plain_run_published_last(tasks: Tasks) -> None:
    world = tasks.world
    tasks.run("file_claims")
    world.log.append("1:0", 3)
    tasks.run("file")
    world.log.append("1:0", 3)
    tasks.run("file", dies_at="published")
    world.log.append("1:0", 5)
    for _ in range(3):
        tasks.run("file_claims")
    assert world.sink.records() == Counter(world.log.all_records())
