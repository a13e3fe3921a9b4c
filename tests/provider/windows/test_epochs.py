"""Epochs: a group whose topic was made anew begins again, and never goes back by itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.provider.windows.exploration import ClaimTry, History
from tests.provider.windows.world import ENTRY, World
from tubemq_provider.offsets.memory import MemoryOffsetStore
from tubemq_provider.windows.errors import IdentityMismatch
from tubemq_provider.windows.run.epochs import stored_epoch
from tubemq_provider.windows.run.kinds import window_run


@pytest.fixture
def world() -> World:
    world = World()
    world.log.append("1:0", 4)
    world.run().run()
    world.log.append("1:0", 2)
    return world


def order(world: World, **members: Any) -> None:
    """What ``airflow tubemq offsets epoch`` leaves."""
    world.journal.cursor = json.dumps(
        {"v": 1, "epoch": "2", "past": [""], "begin": "earliest", "seq": 0, "rev": 7, **members}
    )


def test_a_name_that_is_new_begins_at_the_beginning_whatever_the_first_epoch_began_with(
    world: World,
) -> None:
    world.begin("2")
    result = world.run(initial_position="stable").run()
    assert result.window_id == world.id(1)
    assert result.total == 6
    world.log.append("1:0")
    assert world.run().run().total == 1


def test_an_epoch_that_was_ordered_is_the_present_one_and_begins_where_it_was_told(
    world: World,
) -> None:
    order(world, begin={"1:0": ENTRY * 5, "1:1": 0, "2:0": 0})
    assert stored_epoch(MemoryOffsetStore(world.journal, task="t")) == "2"
    world.begin("2")
    assert world.run().run().total == 1
    assert stored_epoch(MemoryOffsetStore(world.journal, task="t")) == "2"


@pytest.mark.parametrize("lost", ["cursor", "events", "nothing"])
def test_an_epoch_that_has_ended_is_refused(world: World, lost: str) -> None:
    world.begin("2")
    world.run().run()
    if lost == "cursor":
        world.journal.cursor = None
    if lost == "events":
        world.journal.events.clear()
    assert stored_epoch(MemoryOffsetStore(world.journal, task="t")) == "2"
    world.begin("")
    with pytest.raises(IdentityMismatch, match="has ended: epoch '2' was begun after it"):
        world.run().run()


def test_all_that_ended_is_remembered(world: World) -> None:
    for epoch in ("2", "3"):
        world.begin(epoch)
        world.run().run()
        world.journal.cursor = None  # events remember as well
        world.log.append("1:0")
        world.run().run()
    for epoch in ("", "2"):
        world.begin(epoch)
        with pytest.raises(IdentityMismatch, match="'3' was begun after it"):
            world.run().run()


def test_a_run_of_an_epoch_that_ends_meanwhile_does_not_move_the_new_one(world: World) -> None:
    steps = world.run(task="old").steps()
    while next(steps) != ("publish", "published"):
        pass
    order(world)
    with pytest.raises(IdentityMismatch):
        for _ in steps:
            pass
    world.begin("2")
    assert world.run().run().total == 6


def test_progress_of_another_scope_is_refused_with_advice_that_leads_on(world: World) -> None:
    world.sink.identity = "memory:elsewhere"
    world.__post_init__()
    with pytest.raises(IdentityMismatch, match="airflow tubemq offsets epoch c1/orders/g1"):
        world.run().run()
    order(world)
    world.begin("2")
    assert world.run().run().total == 6


def test_a_claim_book_of_an_earlier_epoch_is_left_behind() -> None:
    history = History()
    world = history.world

    def run() -> Any:
        store = ClaimTry(world.journal, history, f"task-{len(world.journal.events)}")
        result = window_run(world.planner(), store, world.sink, world.engine, attempt="a").run()
        MemoryOffsetStore.emit(store, store.event or {})
        return result

    assert run().total == 4
    world.begin("2")
    assert run().total == 4
    order(world, epoch="3", past=["", "2"], pending={}, done={})
    world.begin("3")
    assert run().total == 4
    world.begin("2")
    with pytest.raises(IdentityMismatch):
        run()
