"""Epochs: a group whose topic was recreated begins again, and never goes back by itself."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.provider.windows.exploration import ClaimTry, History
from tests.provider.windows.new_lives import LivingEngine, LivingLog
from tests.provider.windows.world import ENTRY, TOPIC, World, memory_world
from tubemq_client.errors import ConfigError, LogReplaced
from tubemq_provider.ingest.maintenance import Epochs, epoch_document, epochs_of
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.windows.errors import IdentityMismatch, SinkHistoryLost
from tubemq_provider.windows.planning.standalone_planner import TimePlanner
from tubemq_provider.windows.run.epochs import stored_epoch
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.run.result import WindowResult
from tubemq_provider.windows.time_resolvers.boundaries import Boundaries

fresh = memory_world({"1:0": 4})


@pytest.fixture
def world(fresh: World) -> World:
    """With a window behind it, and records after that."""
    fresh.run().run()
    fresh.log.append("1:0", 2)
    return fresh


def order(world: World, **members: Any) -> None:
    """Leave what ``airflow tubemq offsets epoch`` leaves."""
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


def test_an_epoch_whose_offsets_miss_a_partition_says_how_to_begin(world: World) -> None:
    """It spoke of initial_position, which had nothing to do with it."""
    order(world, begin={"1:0": ENTRY * 5, "1:1": 0, "1:7": 0})
    world.begin("2")
    with pytest.raises(
        ConfigError, match=r"beginning of epoch '2':[^']*2:0 is not named"
    ) as caught:
        world.run().run()
    (begin,) = re.findall(r"offsets epoch c1/orders/g1 <name> --begin '(.*)'", str(caught.value))
    assert json.loads(begin) == {"1:0": ENTRY * 5, "1:1": 0, "2:0": "earliest"}
    order(world, begin=json.loads(begin))
    assert world.run().run().total == 1


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


def hour(world: World, number: int, task: str | None = None) -> WindowResult:
    """Run a window of time of three entries, in the world's epoch or the present one."""
    store = MemoryOffsetStore(world.journal, task=task or f"hour-{number}-{world.scope.epoch}")
    noon = datetime(2026, 11, 21, 12, tzinfo=UTC)
    given = {
        (noon + timedelta(hours=n)).isoformat(): {TOPIC: {"1:0": n * 3 * ENTRY}} for n in range(9)
    }
    planner = TimePlanner(
        world.scope,
        noon + timedelta(hours=number),
        noon + timedelta(hours=number + 1),
        Boundaries(given, TOPIC),
        world.log.ends,
    )
    return window_run(planner, store, world.sink, world.engine, attempt="a").run()


def command(world: World, name: str) -> Epochs:
    """Run ``airflow tubemq offsets epoch`` on what it sees."""
    store = MemoryOffsetStore(world.journal, task="operator")
    before = store.load_cursor()
    known = epochs_of(before, store.newest_position(), store.recent_events())
    names = ("c1", TOPIC, "g1")
    ordered = epoch_document(
        names, name, "earliest", known, before=before, by="operator", source="tubemq"
    )
    store.store_cursor(ordered)
    return known


@pytest.fixture
def hours() -> World:
    """Return a group of windows of time only, in its second epoch."""
    world = World()
    world.log.partitions = ["1:0"]
    world.log.append("1:0", 24)
    hour(world, 0)
    command(world, "2")
    world.begin("2")
    hour(world, 1)
    return world


def present(world: World) -> str:
    return stored_epoch(MemoryOffsetStore(world.journal, task="t"), chained=False)


def test_a_wipe_leaves_windows_of_time_their_epoch(hours: World) -> None:
    """Their events have no position, but tell the epoch and those that have ended."""
    hours.journal.cursor = None
    assert present(hours) == "2"
    hour(hours, 2)
    hours.begin("")
    with pytest.raises(IdentityMismatch, match="has ended: epoch '2' was begun after it"):
        hour(hours, 3)
    assert command(hours, "3") == Epochs("2", ("",))
    with pytest.raises(ConfigError, match="it had '', '2', '3'"):
        command(hours, "2")
    hours.begin("2")
    with pytest.raises(IdentityMismatch, match="'3' was begun after it"):
        hour(hours, 3)


def test_an_event_that_comes_late_does_not_bring_an_epoch_of_windows_of_time_back(
    hours: World,
) -> None:
    """A run of the epoch before ended after the first one of the new epoch."""
    hours.journal.events.append(hours.journal.events[0])
    hours.journal.cursor = None
    assert present(hours) == "2"


def test_an_epoch_that_only_tasks_name_is_known_to_commands(world: World) -> None:
    """Windows of time of a Dag with ``epoch="life-1"`` and later ``epoch="life-2"``."""
    world.journal = MemoryJournal()
    for number, epoch in enumerate(("life-1", "life-2")):
        world.begin(epoch)
        hour(world, number)
        assert present(world) == epoch
    world.begin("life-1")
    with pytest.raises(IdentityMismatch, match="pass epoch='life-2'"):
        hour(world, 2)
    for had in ("life-1", "life-2"):
        with pytest.raises(ConfigError, match="it had 'life-1', 'life-2'"):
            command(world, had)
    assert command(world, "life-3").present == "life-2"


def test_windows_of_time_beside_a_cursor_do_not_end_its_epoch(world: World) -> None:
    """Nor is their name free for another life."""
    world.begin("other")
    hour(world, 0)
    world.begin("")
    assert stored_epoch(MemoryOffsetStore(world.journal, task="t")) == ""
    assert world.run().run().total == 2
    assert command(world, "2") == Epochs("", ("other",), world.id(2))


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


def replaced(world: World) -> str:
    """Recreate the topic past the position; return the window that the error names."""
    log = world.log
    assert isinstance(log, LivingLog)
    log.begin_anew(*log.entries)
    log.append("1:0", 9)
    with pytest.raises(LogReplaced) as caught:
        world.run(witness=log).run()
    (seen,) = re.findall(r"offsets epoch c1/orders/g1 <name> --seen (\S+)", str(caught.value))
    assert f"epoch='<name>', epoch_seen='{seen}'" in str(caught.value)
    return str(seen)


@pytest.mark.parametrize("through", ["the command", "the task"])
@pytest.mark.parametrize("claims", [False, True], ids=["cursor", "claims"])
def test_an_epoch_that_was_decided_on_an_error_of_yesterday_reads_nothing_twice(
    through: str, claims: bool
) -> None:
    """Between the error and the epoch another run took the new log, as a policy allowed it."""
    log = LivingLog()
    world = World(log=log)
    world.engine = LivingEngine(log, world.sink)
    history = History()

    def run(**options: Any) -> Any:
        if not claims:
            return world.run(witness=log, **options).run()
        store = ClaimTry(world.journal, history, f"task-{len(world.journal.events)}")
        planner = world.planner(witness=log, **options)
        result = window_run(planner, store, world.sink, world.engine, attempt="a").run()
        MemoryOffsetStore.emit(store, store.event or {})
        return result

    log.append("1:0", 4)
    run()
    seen = replaced(world)
    assert seen == world.id(1)
    assert run(policies={"on_offset_regression": "reset_to_start"}).total == 9
    log.append("1:0", 3)
    given: dict[str, Any] = {"epoch_seen": seen}
    if through == "the command":
        given = {}
        order(world, seen=seen)
    world.begin("2")
    assert run(**given).total == 3
    assert max(world.sink.records().values()) == 1
    # And a life that is another one once more is known by the records of the epoch before.
    second = replace(world.scope, epoch="2")
    world.begin("3")
    log.begin_anew(*log.entries)
    log.append("1:0", 30)
    order(world, epoch="3", past=["", "2"], seen=f"c-0-{second.scope_hash}")
    with pytest.raises(LogReplaced):
        run()
    order(world, epoch="3", past=["", "2"], seen=f"c-1-{second.scope_hash}")
    assert run().total == 30


def test_an_epoch_over_a_hole_of_the_one_before_is_refused_with_the_way_on(world: World) -> None:
    """Of windows side by side the second was published after the error, and the first never."""
    world.run().run()
    later = world.sink.windows[world.id(2)]
    world.sink.windows[world.id(3)] = later
    del world.sink.windows[world.id(2)]
    order(world, seen=world.id(1))
    world.begin("2")
    with pytest.raises(SinkHistoryLost, match=r"c-2-.* before it was not") as caught:
        world.run().run()
    (begin,) = re.findall(r"<name> --begin '(.*)'", str(caught.value))
    order(world, epoch="3", past=["", "2"], begin=json.loads(begin))
    world.begin("3")
    world.log.append("1:0")
    assert world.run().run().total == 1


def test_a_run_with_claims_that_meets_an_epoch_says_so() -> None:
    history = History()
    world = history.world
    store = ClaimTry(world.journal, history, "task")
    steps = window_run(world.planner(), store, world.sink, world.engine, attempt="a").steps()
    while next(steps) != ("plan", "plan claimed"):
        pass
    order(world)
    with pytest.raises((SinkHistoryLost, IdentityMismatch), match="begun"):
        for _ in steps:
            pass


def test_an_epoch_that_begins_at_offsets_begins_there_whatever_was_published(world: World) -> None:
    order(world, begin={"1:0": 0, "1:1": 0, "2:0": 0}, seen=f"c-0-{world.scope.scope_hash}")
    world.begin("2")
    assert world.run().run().total == 6


@pytest.mark.parametrize("word", ["stable", "latest"])
def test_an_epoch_may_begin_at_the_end(word: str, world: World) -> None:
    order(world, begin=word)
    world.begin("2")
    assert world.run().run().empty
    world.log.append("1:0")
    assert world.run().run().total == 1


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
