"""Progress shown and set from a Dag, with the rules of the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from airflow.sdk.exceptions import AirflowFailException

from tests.provider.contexts import accept, fake_context
from tests.provider.offsets.accessors import LedgerState
from tubemq_client import Partition, Record
from tubemq_client.embedded import EmbeddedTubeMQ
from tubemq_client.errors import ConfigError, ConnectError
from tubemq_provider.assets import offsets_asset
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.offsets.ledger.tables import metadata
from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator, TubeMQWindowIngestOperator
from tubemq_provider.operators.offsets import TubeMQOffsetsOperator

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60), pytest.mark.usefixtures("hook")]

TOPIC = "orders"
ASSET = offsets_asset("test", TOPIC, "lake")


def offsets(**arguments: Any) -> TubeMQOffsetsOperator:
    given = {"topic": TOPIC, "group": "lake", "cluster": "test", **arguments}
    return TubeMQOffsetsOperator(task_id="offsets", **given)


def execute(task: Any, context: Any) -> Any:
    return type(task).execute.__wrapped__(task, context)


def produce(hook: TubeMQHook, mq: EmbeddedTubeMQ, count: int) -> None:
    partition = Partition.from_key(TOPIC, "1:0")
    list(hook.produce(TOPIC, [Record(b"x", partition=partition)] * count))
    mq.broker(1).store(TOPIC, 0).flush()


def ingest(tmp_path: Path, **arguments: Any) -> TubeMQCursorIngestOperator:
    return TubeMQCursorIngestOperator(
        task_id="ingest",
        topic=TOPIC,
        group="lake",
        cluster="test",
        path=str(tmp_path / "lake"),
        engine="inline",
        initial_position="earliest",
        **arguments,
    )


@pytest.fixture
def state(mq: EmbeddedTubeMQ, hook: TubeMQHook, tmp_path: Any) -> dict[str, Any]:
    """Progress after one window of 5 records in 1:0."""
    produce(hook, mq, 5)
    kept: dict[str, Any] = {}
    task = ingest(tmp_path)
    assert execute(task, fake_context(task, kept))["total"] == 5
    return kept


def test_it_shows_the_position_of_a_group(state: dict[str, Any]) -> None:
    task = offsets()
    assert (task.inlets, task.outlets) == ([ASSET], [ASSET])
    shown = execute(task, fake_context(task, state))
    assert shown["before"]["1:0"] == shown["after"]["1:0"] == 140
    assert (shown["lag"], shown["changed"]) == (0, False)


def test_it_sets_a_group_and_a_dry_run_does_not(state: dict[str, Any]) -> None:
    task = offsets(action="set", to="earliest", dry_run=True)
    shown = execute(task, fake_context(task, state))
    assert (shown["after"]["1:0"], shown["lag"], shown["changed"]) == (0, 5, False)
    assert state[ASSET].get("cursor")["next"]["1:0"] == 140
    task = offsets(action="set", to="earliest")
    assert execute(task, fake_context(task, state))["changed"]
    assert state[ASSET].get("cursor")["next"]["1:0"] == 0
    assert state[ASSET].get("cursor")["rev"] == 2
    after = execute(offsets(), fake_context(offsets(), state))
    assert after["lag"] == 5


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, []),
        ({"action": "mirror"}, []),
        ({"action": "set", "to": "earliest", "dry_run": True}, []),
        ({"action": "set", "to": "stable"}, []),
        ({"action": "set", "to": "earliest"}, [ASSET]),
    ],
)
def test_only_a_change_is_an_event_of_the_offsets_asset(
    state: dict[str, Any], arguments: dict[str, Any], told: list[Any]
) -> None:
    task = offsets(**arguments)
    execute(task, fake_context(task, state))
    assert (task.inlets, task.outlets) == ([ASSET], told)


class Killed(BaseException):
    """A task that dies."""


def set_and_die(state: dict[str, Any], *, written: bool) -> None:
    """Run a try that dies before or after its write."""
    kept, task = state[ASSET], offsets(action="set", to="earliest")
    store = kept.set

    def die(key: str, value: Any) -> None:
        if written:
            store(key, value)
        raise Killed

    kept.set = die
    with pytest.raises(Killed):
        execute(task, fake_context(task, state))
    kept.set = store


@pytest.mark.parametrize("written", [False, True])
def test_a_retry_moves_a_group_once(state: dict[str, Any], *, written: bool) -> None:
    set_and_die(state, written=written)
    task = offsets(action="set", to="earliest")
    shown = execute(task, fake_context(task, state))
    assert (shown["before"]["1:0"], shown["after"]["1:0"], shown["changed"]) == (140, 0, True)
    assert task.outlets == [ASSET]
    assert state[ASSET].get("cursor")["rev"] == 2


@pytest.mark.parametrize("written", [False, True])
def test_a_retry_does_not_undo_later_progress(state: dict[str, Any], *, written: bool) -> None:
    set_and_die(state, written=written)
    cursor = state[ASSET].get("cursor")
    beyond = {**cursor, "rev": 3, "next": {**cursor["next"], "1:0": 168}, "by": "d|r2|ingest|-1"}
    state[ASSET].set("cursor", beyond)
    task = offsets(action="set", to="earliest")
    with pytest.raises(AirflowFailException, match="clear this task to move it again"):
        execute(task, fake_context(task, state))
    assert state[ASSET].get("cursor") == beyond
    context = fake_context(task, state)
    context["dag_run"].clear_number = 1
    assert execute(task, context)["after"]["1:0"] == 0


def test_a_task_that_is_cleared_without_its_run_moves_the_group_again(
    state: dict[str, Any],
) -> None:
    """A REST request with ``"reset_dag_runs": false``: the task was green, or failed with the
    advice to clear it."""
    task = offsets(action="set", to="earliest", retries=2)
    context = fake_context(task, state)
    context["ti"].max_tries = 2
    assert execute(task, context)["changed"]
    cursor = state[ASSET].get("cursor")
    beyond = {**cursor, "rev": 3, "next": {**cursor["next"], "1:0": 168}, "by": "d|r2|ingest|-1"}
    state[ASSET].set("cursor", beyond)
    again = fake_context(task, state)
    again["ti"].max_tries = 3
    shown = execute(task, again)
    assert (shown["before"]["1:0"], shown["after"]["1:0"]) == (168, 0)


@pytest.mark.parametrize("named", ["events", "asset_state"])
def test_a_group_that_keeps_no_cursor_is_moved_by_the_tasks_event(
    named: str, hook: TubeMQHook, mq: EmbeddedTubeMQ, tmp_path: Path
) -> None:
    """The task made a cursor that no run looked at."""
    kept: dict[Any, Any] = {}

    def run(task: Any, name: str) -> Any:
        context = fake_context(task, kept, run=name)
        found = execute(task, context)
        accept(context, kept)
        return found

    produce(hook, mq, 5)
    assert run(ingest(tmp_path, offset_store="events"), "r1")["total"] == 5
    task = offsets(action="set", to="earliest", offset_store=named)
    shown = run(task, "r2")
    assert (shown["before"]["1:0"], shown["after"]["1:0"], shown["changed"]) == (140, 0, True)
    assert run(offsets(), "r3")["lag"] == 5
    again = run(ingest(tmp_path, offset_store="events", filters=()), "r4")
    assert (again["total"], again["window_id"][:4]) == (5, "c-2-")


def test_an_outdated_cursor_is_not_the_base_of_a_change(
    state: dict[str, Any], hook: TubeMQHook, mq: EmbeddedTubeMQ, tmp_path: Path
) -> None:
    """Of a partition that only events knew nothing was left: it was new, and read once more."""
    cursor = state[ASSET].get("cursor")
    behind = {**cursor, "seq": 0, "next": {"1:0": 0}}
    event = {
        **{name: cursor[name] for name in ("cluster", "topic", "group")},
        "v": 1,
        "position": {name: cursor[name] for name in ("h", "seq", "next")},
    }
    state[ASSET].set("cursor", behind)
    state["events"] = {ASSET: [{"tubemq": event}]}
    task = offsets(action="set", to={"1:0": 28})
    with pytest.raises(AirflowFailException, match="name every partition of the group; missing"):
        execute(task, fake_context(task, state))
    for store in ("events", "asset_state"):
        task = offsets(action="set", to="earliest", offset_store=store)
        shown = execute(task, fake_context(task, state, run=store))
        assert shown["before"] == cursor["next"]
    moved = state[ASSET].get("cursor")
    assert (moved["seq"], moved["rev"]) == (cursor["seq"], cursor["rev"] + 1)
    assert moved["next"].keys() == cursor["next"].keys()


def test_a_position_that_was_set_outlives_a_wipe_of_asset_state(
    state: dict[str, Any], tmp_path: Path
) -> None:
    cursor = state[ASSET].get("cursor")
    position = {name: cursor[name] for name in ("h", "seq", "next")}
    names = {name: cursor[name] for name in ("cluster", "topic", "group")}
    before = {"v": 1, **names, "kind": "cursor", "position": position, "pace": [5, 7]}
    state["events"] = {ASSET: [{"tubemq": before}]}
    task = offsets(action="set", to="earliest")
    context = fake_context(task, state)
    execute(task, context)
    accept(context, state)
    told = state["events"][ASSET][-1]["tubemq"]
    assert (told["position"]["seq"], told["position"]["next"]["1:0"]) == (1, 0)
    assert told["pace"] == [5, 7]
    state[ASSET].clear()
    task = ingest(tmp_path)
    assert execute(task, fake_context(task, state, run="r3"))["total"] == 5


def test_windows_without_an_event_are_left_to_the_next_run(
    state: dict[str, Any],
) -> None:
    """The run died behind its window; an event of this task would hide that from the sink."""
    task = offsets(action="set", to="earliest")
    context = fake_context(task, state)
    assert execute(task, context)["changed"]
    accept(context, state)
    assert state["events"][ASSET] == [{}]


@pytest.mark.parametrize(("used", "named"), [("ledger", "asset_state"), ("asset_state", "ledger")])
def test_a_position_is_not_set_in_an_unused_store(
    used: str, named: str, hook: TubeMQHook, mq: EmbeddedTubeMQ, tmp_path: Path
) -> None:
    """The task said that it had moved the group, and the next run continued where it was."""
    engine = sa.create_engine(f"sqlite:///{tmp_path}/airflow.db")
    metadata.create_all(engine)
    kept: dict[Any, Any] = {ASSET: LedgerState(engine)}
    for run in ("r1", "r2"):
        produce(hook, mq, 5)
        task = ingest(tmp_path, offset_store=used)
        context = fake_context(task, kept, run=run)
        assert execute(task, context)["total"] == 5
        accept(context, kept)

    def moving(store: str) -> Any:
        task = offsets(action="set", to="earliest", offset_store=store)
        return execute(task, fake_context(task, kept, run="r3"))

    with pytest.raises(AirflowFailException, match=f"set offset_store='{used}'"):
        moving(named)
    assert moving(used)["after"]["1:0"] == 0


def test_reads_do_not_make_a_group_forget_its_epoch(
    hook: TubeMQHook, mq: Any, tmp_path: Path
) -> None:
    """In the first epoch, which has ended, the window would be stored a second time."""
    partition = Partition.from_key(TOPIC, "1:0")
    list(hook.produce(TOPIC, [Record(b"x", partition=partition)] * 5))
    mq.broker(1).store(TOPIC, 0).flush()
    hours = {f"2026-01-01T0{h}:00:00Z": {TOPIC: {"1:0": at}} for h, at in ((0, 0), (1, 140))}
    kept: dict[Any, Any] = {}

    def hour(**arguments: Any) -> Any:
        task = TubeMQWindowIngestOperator(
            task_id="hour",
            topic=TOPIC,
            group="lake",
            cluster="test",
            path=str(tmp_path / "lake"),
            engine="inline",
            resolver="boundaries",
            boundaries=hours,
            start="2026-01-01T00:00:00Z",
            end="2026-01-01T01:00:00Z",
            **arguments,
        )
        context = fake_context(task, kept, run=str(len(kept)))
        done = execute(task, context)
        accept(context, kept)
        return done

    first = hour(epoch="second")
    for look in range(40):
        task = offsets()
        context = fake_context(task, kept, run=f"look {look}")
        execute(task, context)
        # Events of looks are there from releases that emitted them.
        kept["events"][ASSET].append({})
        accept(context, kept)
    again = hour()
    assert (again["window_id"], again["replayed"]) == (first["window_id"], True)


def test_an_unreachable_broker_affects_only_its_partitions(
    state: dict[str, Any], mq: EmbeddedTubeMQ
) -> None:
    mq.broker(2).stop()
    for action in ("show", "mirror"):
        task = offsets(action=action, fail_above=0)
        shown = execute(task, fake_context(task, state))
        assert shown["lag"] == 0
        assert shown["away"] == ["2:0", "2:1", "2:10000", "2:10001"]
    task = offsets(action="set", to="earliest")
    with pytest.raises(ConnectError):
        execute(task, fake_context(task, state))
    assert state[ASSET].get("cursor")["next"]["1:0"] == 140


def test_a_removed_partition_does_not_affect_others(
    state: dict[str, Any], mq: EmbeddedTubeMQ
) -> None:
    """A broker is retired, a partition taken away: the position keeps them."""
    cursor = state[ASSET].get("cursor")
    cursor["next"] = {"1:0": 140, "1:7": 28, "9:0": 28}
    state[ASSET].set("cursor", cursor)
    task = offsets(action="mirror")
    assert execute(task, fake_context(task, state))["away"] == ["1:7", "9:0"]
    assert mq.broker(1).position("lake", TOPIC, 0) == 140


def test_invalid_offsets_are_refused(state: dict[str, Any]) -> None:
    task = offsets(action="set", to={"1:0": 28})
    with pytest.raises(AirflowFailException, match="name every partition of the group; missing"):
        execute(task, fake_context(task, state))
    with pytest.raises(ConfigError, match=r"action='set' needs to="):
        offsets(action="set")
    with pytest.raises(ConfigError, match=r"action='show' takes no to="):
        offsets(to="earliest")
    with pytest.raises(ConfigError, match="dry_run has no effect"):
        offsets(dry_run=True)
    with pytest.raises(ConfigError, match="a task that fails has moved nothing"):
        offsets(action="set", to="earliest", offset_store="events", fail_above=5)
