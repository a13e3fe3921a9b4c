"""The asset-state store on stand-ins of Airflow's accessors that keep state as Airflow does."""

from __future__ import annotations

from typing import Any

import pytest

from tests.provider.offsets.accessors import Event, Inlet, State
from tubemq_provider.offsets.asset_state import EVENT_KEY, AssetStateOffsetStore
from tubemq_provider.testing.offset_store_suite import OffsetStoreSuite, OpenTry
from tubemq_provider.windows.errors import DocumentError
from tubemq_provider.windows.protocols import OffsetStore
from tubemq_provider.windows.run.epochs import stored_epoch

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]


class Task:
    """One offsets asset and the tries of one task on it."""

    def __init__(self) -> None:
        self.asset_state = State()
        self.task_state = State()
        self.inlet = Inlet([])

    def store(self, task_state: State | None = None) -> tuple[AssetStateOffsetStore, Event]:
        outlet = Event({})
        store = AssetStateOffsetStore(
            asset_state=self.asset_state,
            task_state=self.task_state if task_state is None else task_state,
            inlet_events=self.inlet,
            outlet_event=outlet,
            writer="dag|run|task|-1",
        )
        return store, outlet

    def succeed(self, document: dict[str, Any]) -> None:
        store, outlet = self.store()
        store.emit(document)
        self.inlet.events.append(outlet)


class TestAsAnOffsetStore(OffsetStoreSuite):
    """Contract of every store; each name is a separate task on one asset."""

    @pytest.fixture
    def open_try(self) -> OpenTry:
        self.asset, self.tasks = Task(), dict[str, State]()
        self.outlets: dict[int, Event] = {}

        def open_try(name: str) -> AssetStateOffsetStore:
            store, outlet = self.asset.store(self.tasks.setdefault(name, State()))
            self.outlets[id(store)] = outlet
            return store

        return open_try

    def finish_task(self, store: OffsetStore) -> None:
        self.asset.inlet.events.append(self.outlets[id(store)])

    def wipe(self) -> None:
        self.asset.asset_state.clear()


def test_keys_are_those_that_people_will_look_for() -> None:
    task = Task()
    store, _ = task.store()
    store.store_cursor({})
    store.store_plan("c-1-aa", {})
    assert set(task.asset_state) == {"cursor", "win/c-1-aa"}
    store.forget_plan("c-1-aa")
    store.forget_plan("c-1-aa")
    assert set(task.asset_state) == {"cursor"}


def test_the_event_nests_under_one_key_and_leaves_others_alone() -> None:
    store, outlet = Task().store()
    outlet.extra = {"mine": 1}
    store.emit({"window": "c-1-aa"})
    assert outlet.extra == {"mine": 1, EVENT_KEY: {"window": "c-1-aa"}}


def test_an_event_is_seen_only_after_success() -> None:
    task = Task()
    task.store()[0].emit({"position": {"seq": 1}})
    assert task.store()[0].newest_position() is None
    task.succeed({"position": {"seq": 1}})
    assert task.store()[0].newest_position() == {"position": {"seq": 1}}


def test_newest_position_passes_over_events_without_one() -> None:
    task = Task()
    task.succeed({"position": {"seq": 7}})
    for _ in range(150):
        task.succeed({"window": "t-1"})
    task.inlet.events += [Event({}), Event({"other": 1}), Event({EVENT_KEY: "text"})]
    assert task.store()[0].newest_position() == {"position": {"seq": 7}}
    assert task.inlet.requests == [1, 5, 25, 125, 625]


def test_years_of_windows_of_time_are_not_looked_through_for_an_epoch() -> None:
    """Their events have no position: each run fetched all there were."""
    task = Task()
    for _ in range(1_000):
        task.succeed({"window": "t-1"})
    assert stored_epoch(task.store()[0], chained=False) == ""
    assert sum(task.inlet.requests) < 50
    task.succeed({"position": {"seq": 7}, "epoch": "second"})
    for _ in range(4):
        task.succeed({"window": "t-1"})
    assert stored_epoch(task.store()[0], chained=False) == "second"


def test_tasks_that_only_looked_hide_no_epoch() -> None:
    """Their events have no commit event; in the first epoch records would be stored again."""
    hour = {"window": "t-1", "kind": "time", "epoch": "second", "past": [""]}
    task = Task()
    for _ in range(30):
        task.succeed(hour)
    task.inlet.events += [Event({})] * 3_000
    assert stored_epoch(task.store()[0], chained=False) == "second"
    task.succeed(hour)
    assert len(list(task.store()[0].recent_events())) == 1, "the others are behind thousands"
    for _ in range(30):
        task.succeed(hour)
        task.inlet.events.append(Event({}))
    assert len(list(task.store()[0].recent_events())) == 25


def test_normally_one_request_finds_the_position() -> None:
    task = Task()
    for seq in range(500):
        task.succeed({"position": {"seq": seq}})
    assert task.store()[0].newest_position() == {"position": {"seq": 499}}
    assert task.inlet.requests == [1]


def test_a_value_edited_by_hand_is_refused_with_the_key() -> None:
    task = Task()
    task.asset_state.set("cursor", "oops")
    with pytest.raises(DocumentError, match=r"cursor.*\n.*str, not a document"):
        task.store()[0].load_cursor()
