"""Windows that tasks read by their own means: planned, read, committed, each once."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from airflow.sdk import DAG, BaseOperator, CronPartitionTimetable
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowSkipException,
    DownstreamTasksSkipped,
)

from tests.provider.contexts import accept, fake_context
from tests.provider.offsets.accessors import LedgerState
from tubemq_client import OffsetRange, Partition, Record
from tubemq_client.embedded import EmbeddedTubeMQ
from tubemq_client.errors import ConfigError
from tubemq_provider.assets import offsets_asset
from tubemq_provider.decorators import tubemq_window_task
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.ingest.values import IngestPolicies
from tubemq_provider.offsets.ledger.tables import metadata
from tubemq_provider.operators.consume import TubeMQConsumeOperator
from tubemq_provider.operators.planning import (
    TubeMQCommitWindowOperator,
    TubeMQPlanWindowOperator,
)
from tubemq_provider.sinks.factory import sink_for
from tubemq_provider.sinks.read import published_windows

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60), pytest.mark.usefixtures("hook")]

TOPIC = "orders"
ASSET = offsets_asset("test", TOPIC, "report")
SKIP = IngestPolicies(gap_policy="skip")


@pytest.fixture
def given(tmp_path: Path) -> dict[str, Any]:
    return {
        "topic": TOPIC,
        "group": "report",
        "cluster": "test",
        "markers": str(tmp_path / "done"),
        "initial_position": "earliest",
    }


def execute(task: Any, context: Any) -> Any:
    """Run `task` outside of Airflow's task runner, which its guard would refuse."""
    method = type(task).execute
    return getattr(method, "__wrapped__", method)(task, context)


def send(mq: EmbeddedTubeMQ, hook: TubeMQHook, *bodies: bytes, key: str = "1:0") -> None:
    partition = Partition.from_key(TOPIC, key)
    list(hook.produce(TOPIC, [Record(body, partition=partition) for body in bodies]))
    for broker_id in (1, 2):
        for store in (0, 1):
            mq.broker(broker_id).store(TOPIC, store).flush()


def test_a_function_gets_every_record_of_a_window_once(
    mq: EmbeddedTubeMQ, hook: TubeMQHook, given: dict[str, Any]
) -> None:
    calls: list[tuple[list[bytes], str, str]] = []

    def store(messages: list[Any], run_id: str, window: Any) -> int:
        calls.append(([m.body for m in messages], run_id, window.window_id))
        return len(calls)

    kept: dict[Any, Any] = {}
    task = TubeMQConsumeOperator(task_id="c", apply_function=store, batch_size=2, **given)
    send(mq, hook, b"a", b"b", b"c")
    context = fake_context(task, kept)
    done = execute(task, context)
    accept(context, kept)
    assert [bodies for bodies, _, _ in calls] == [[b"a", b"b"], [b"c"]]
    assert (done["total"], done["returned"]) == (3, 2)
    assert {window_id for _, _, window_id in calls} == {done["window_id"]}
    assert execute(task, fake_context(task, kept))["replayed"], "a retry calls nobody"
    assert execute(task, fake_context(task, kept, run="r2"))["empty"]
    assert len(calls) == 2
    send(mq, hook, b"d")
    assert execute(task, fake_context(task, kept, run="r3"))["total"] == 1
    assert calls[-1][0] == [b"d"]


def test_a_function_that_fails_gets_the_same_window_again(
    mq: EmbeddedTubeMQ, hook: TubeMQHook, given: dict[str, Any]
) -> None:
    seen: list[list[bytes]] = []

    def once_down(messages: list[Any]) -> None:
        seen.append([m.body for m in messages])
        if len(seen) == 1:
            raise OSError("the database is down")

    kept: dict[Any, Any] = {}
    task = TubeMQConsumeOperator(task_id="c", apply_function=once_down, **given)
    send(mq, hook, b"a")
    with pytest.raises(OSError, match="down"):
        execute(task, fake_context(task, kept))
    send(mq, hook, b"b")
    execute(task, fake_context(task, kept, run="another"))
    assert seen == [[b"a"], [b"a"]]


def test_own_tasks_stand_between_plan_and_commit(
    mq: EmbeddedTubeMQ, hook: TubeMQHook, given: dict[str, Any]
) -> None:
    kept: dict[Any, Any] = {}

    def planning(run: str) -> Any:
        task = TubeMQPlanWindowOperator(task_id="plan", **given)
        context = fake_context(task, kept, run=run)
        document = execute(task, context)
        accept(context, kept)
        return document

    send(mq, hook, b"a", b"b")
    planned = planning("r1")
    assert not kept.get("events"), "nothing is accepted before it is committed"
    assert planned["ranges"]["1:0"] == [0, 56]
    assert planned["ending_offsets"][TOPIC]["1:0"] == 56
    send(mq, hook, b"later")
    assert planning("r2") == planned, "a run that died leaves its window to the next"
    ranges = {
        key: OffsetRange(Partition.from_key(TOPIC, key), *bounds)
        for key, bounds in planned["ranges"].items()
    }
    read = {key: list(hook.read_range(found, group="report")) for key, found in ranges.items()}
    records = {key: len(messages) for key, messages in read.items()}
    commit = TubeMQCommitWindowOperator(task_id="commit", plan=planned, records=records, **given)
    context = fake_context(commit, kept)
    done = execute(commit, context)
    accept(context, kept)
    assert (done["window_id"], done["total"]) == (planned["window_id"], 2)
    assert kept["events"][ASSET][0]["tubemq"]["position"]["next"]["1:0"] == 56
    assert execute(commit, fake_context(commit, kept))["replayed"]
    assert planning("r3")["ranges"]["1:0"] == [56, 84]


@pytest.fixture
def ledger(tmp_path: Path) -> LedgerState:
    engine = sa.create_engine(f"sqlite:///{tmp_path}/airflow.db")
    metadata.create_all(engine)
    return LedgerState(engine)


def under_way(task: Any, kept: dict[Any, Any], run: str) -> Any:
    """Return the context of a task in a Dag run that has not ended, nor have any others."""
    context = fake_context(task, kept, run=run)
    context["ti"].get_dagrun_state = lambda *_: "running"
    context["ti"].get_task_states = lambda *_, **__: {run: {"plan": "success"}}
    return context


def test_overlapping_runs_have_separate_windows_with_the_ledger(
    mq: EmbeddedTubeMQ, hook: TubeMQHook, given: dict[str, Any], ledger: LedgerState
) -> None:
    kept: dict[Any, Any] = {ASSET: ledger}
    options = given | {"offset_store": "ledger"}

    def planning(run: str) -> Any:
        task = TubeMQPlanWindowOperator(task_id="plan", **options)
        return execute(task, under_way(task, kept, run))

    def commit(run: str, plan: Any, count: int) -> Any:
        task = TubeMQCommitWindowOperator(
            task_id="commit", plan=plan, records={"1:0": count}, **options
        )
        context = under_way(task, kept, run)
        done = execute(task, context)
        accept(context, kept)
        return done

    send(mq, hook, b"a", b"b")
    one = planning("r1")
    send(mq, hook, b"c")
    two = planning("r2")
    assert (one["ranges"]["1:0"], two["ranges"]["1:0"]) == ([0, 56], [56, 84])
    send(mq, hook, b"d")
    assert commit("r2", two, 1)["window_id"] == two["window_id"]
    assert commit("r1", one, 2)["window_id"] == one["window_id"]
    assert kept["events"][ASSET][-1]["tubemq"]["position"]["next"]["1:0"] == 84
    assert commit("r1", one, 2)["replayed"], "a commit that is repeated finds it done"
    assert commit("r3", one, 2)["replayed"], "also where a task of another run had it"
    book = ledger.get("tubemq-ledger/cursor")["doc"]
    assert (book["seq"], book["pending"]) == (2, {}), "no commit claims a window for itself"
    assert planning("r4")["ranges"]["1:0"] == [84, 112]


def test_counts_of_a_window_that_is_not_next_are_refused(
    mq: EmbeddedTubeMQ, hook: TubeMQHook, given: dict[str, Any]
) -> None:
    kept: dict[Any, Any] = {}
    plan = TubeMQPlanWindowOperator(task_id="plan", **given)
    send(mq, hook, b"a", b"b")
    planned = execute(plan, fake_context(plan, kept))

    def commit(plan: Any, records: Any) -> Any:
        task = TubeMQCommitWindowOperator(task_id="commit", plan=plan, records=records, **given)
        return execute(task, fake_context(task, kept))

    with pytest.raises(AirflowFailException, match="counts are of another window"):
        commit({**planned, "hash": "f" * 64}, {"1:0": 2})
    with pytest.raises(Exception, match="1:0 has 3 records, but at most 2 fit"):
        commit(planned, {"1:0": 3})
    with pytest.raises(AirflowFailException, match="not the XCom of a TubeMQPlanWindowOperator"):
        commit(None, {})
    with pytest.raises(AirflowFailException, match="not counts by partition"):
        commit(planned, 2)
    assert commit(planned, {"1:0": 2})["total"] == 2


def test_nothing_to_read_skips_downstream_tasks(given: dict[str, Any]) -> None:
    plan = TubeMQPlanWindowOperator(task_id="plan", **given)
    with pytest.raises(AirflowSkipException, match="nothing to read"):
        execute(plan, fake_context(plan, {}))
    lenient = TubeMQPlanWindowOperator(task_id="plan", skip_if_empty=False, **given)
    assert execute(lenient, fake_context(lenient, {}))["window_id"] is None


def test_a_plan_without_records_stores_the_initial_position(
    mq: EmbeddedTubeMQ, hook: TubeMQHook, given: dict[str, Any]
) -> None:
    """Skipped without an event: otherwise every run would begin at its current end."""
    kept: dict[Any, Any] = {}
    options = given | {"initial_position": "stable"}

    def planning(run: str) -> Any:
        task = TubeMQPlanWindowOperator(task_id="plan", **options)
        return execute(task, fake_context(task, kept, run=run))

    send(mq, hook, b"before")
    for run in ("r1", "r2"):
        with pytest.raises(AirflowSkipException):
            planning(run)
    send(mq, hook, b"a", b"b", b"c")
    planned = planning("r3")
    assert planned["ranges"]["1:0"] == [28, 112]
    commit = TubeMQCommitWindowOperator(
        task_id="commit", plan=planned, records={"1:0": 3}, **options
    )
    assert execute(commit, fake_context(commit, kept))["total"] == 3


def expire(mq: EmbeddedTubeMQ, upto: int) -> None:
    """Retention takes what partition 1:0 has below an offset."""
    mq.broker(1).store(TOPIC, 0).expire_to(upto)


@pytest.mark.parametrize("kind", ["asset_state", "ledger"])
def test_own_tasks_continue_after_a_window_without_entries(
    kind: str, mq: EmbeddedTubeMQ, hook: TubeMQHook, given: dict[str, Any], ledger: LedgerState
) -> None:
    """Retention took all unread records: no task reads such a window, so the plan finishes it."""
    kept: dict[Any, Any] = {ASSET: ledger} if kind == "ledger" else {}
    options = given | {"offset_store": kind, "policies": SKIP}

    def planning(run: str) -> Any:
        with DAG("loads", schedule=None):
            task = TubeMQPlanWindowOperator(task_id="plan", **options)
        context = under_way(task, kept, run)
        document = execute(task, context)
        accept(context, kept)
        return document

    def commit(run: str, plan: Any, count: int) -> None:
        counts = {"1:0": count}
        task = TubeMQCommitWindowOperator(task_id="commit", plan=plan, records=counts, **options)
        context = under_way(task, kept, run)
        assert execute(task, context)["total"] == count
        accept(context, kept)

    send(mq, hook, b"a", b"b")
    commit("r1", planning("r1"), 2)
    send(mq, hook, b"c", b"d")
    expire(mq, 4 * 28)
    with pytest.raises(DownstreamTasksSkipped):
        planning("r2")
    send(mq, hook, b"e", b"f", b"g")
    expire(mq, 7 * 28)
    send(mq, hook, b"h")
    third = planning("r3")
    assert third["ranges"]["1:0"] == [4 * 28, 8 * 28], "what is lost is the beginning of a window"
    assert planning("r3") == third, "a retry hands over the same"
    commit("r3", third, 1)
    assert kept["events"][ASSET][-1]["tubemq"]["position"]["next"]["1:0"] == 8 * 28


def test_a_window_without_entries_is_announced_by_the_planning_task(
    mq: EmbeddedTubeMQ, hook: TubeMQHook, given: dict[str, Any]
) -> None:
    kept: dict[Any, Any] = {}
    options = given | {"policies": SKIP, "skip_if_empty": False}
    send(mq, hook, b"a", b"b")
    expire(mq, 2 * 28)
    task = TubeMQPlanWindowOperator(task_id="plan", **options)
    context = fake_context(task, kept)
    assert execute(task, context)["window_id"] is None
    accept(context, kept)
    assert not kept.get("events"), "a group that begins behind a loss has lost nothing"
    send(mq, hook, b"c")
    expire(mq, 3 * 28)
    task = TubeMQPlanWindowOperator(task_id="plan", **options)
    context = fake_context(task, kept, run="r2")
    assert execute(task, context)["window_id"] is None
    accept(context, kept)
    (event,) = kept["events"][ASSET]
    assert event["tubemq"]["gaps"]["1:0"] == [[2 * 28, 3 * 28]]
    assert event["tubemq"]["position"]["seq"] == 1


def test_a_loss_is_announced_though_downstream_tasks_are_skipped(
    mq: EmbeddedTubeMQ, hook: TubeMQHook, given: dict[str, Any]
) -> None:
    """Airflow drops the event of a skipped task, and no other one tells of those offsets."""
    kept: dict[Any, Any] = {}

    def planning(run: str) -> Any:
        with DAG("loads", schedule=None):
            task = TubeMQPlanWindowOperator(task_id="plan", policies=SKIP, **given)
            task >> BaseOperator(task_id="read")
            task >> BaseOperator(task_id="clean_up", trigger_rule="all_done")
        context = fake_context(task, kept, run=run)
        try:
            return execute(task, context)
        finally:
            accept(context, kept)

    send(mq, hook, b"a", b"b")
    plan = planning("r1")
    commit = TubeMQCommitWindowOperator(
        task_id="commit", plan=plan, records={"1:0": 2}, policies=SKIP, **given
    )
    context = fake_context(commit, kept, run="r1")
    execute(commit, context)
    accept(context, kept)
    send(mq, hook, b"c")
    expire(mq, 3 * 28)
    with pytest.raises(DownstreamTasksSkipped) as skipped:
        planning("r2")
    assert skipped.value.tasks == ["read"]
    told = kept["events"][ASSET][-1]["tubemq"]
    assert told["gaps"]["1:0"] == [[2 * 28, 3 * 28]]
    assert told["position"]["next"]["1:0"] == 3 * 28
    count = len(kept["events"][ASSET])
    with pytest.raises(AirflowSkipException, match="nothing to read"):
        planning("r3")
    assert len(kept["events"][ASSET]) == count


def test_an_empty_window_of_time_is_done_when_it_is_planned(
    hook: TubeMQHook, given: dict[str, Any]
) -> None:
    times = ["2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"]
    here = dict.fromkeys((found.key for found in hook.partitions(TOPIC)), 0)
    del given["initial_position"]
    options = given | {
        "mode": "time",
        "resolver": "boundaries",
        "boundaries": {time: {TOPIC: here} for time in times},
        "start": times[0],
        "end": times[1],
    }
    kept: dict[Any, Any] = {}
    for run in ("r1", "r1", "r2"):
        task = TubeMQPlanWindowOperator(task_id="plan", **options)
        with pytest.raises(AirflowSkipException, match="nothing to read"):
            execute(task, fake_context(task, kept, run=run))
    (done,) = published_windows(sink_for(f"markers:{given['markers']}"))
    assert done.plan.time == tuple(times)
    assert done.counts.total == 0


@pytest.mark.parametrize("mode", ["cursor", "time", "explicit"])
def test_a_partition_without_end_fails_only_tasks_that_need_it(
    mode: str, mq: EmbeddedTubeMQ, hook: TubeMQHook, given: dict[str, Any]
) -> None:
    send(mq, hook, b"a")
    keys = [found.key for found in hook.partitions(TOPIC)]
    starts = {TOPIC: dict.fromkeys(keys, 0)}
    times = ["2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"]
    more: dict[str, dict[str, Any]] = {
        "cursor": {"initial_position": "earliest"},
        "time": {
            "mode": "time",
            "boundaries": dict(zip(times, (starts, starts), strict=True)),
            "start": times[0],
            "end": times[1],
        },
        "explicit": {"mode": "time", "starting_offsets": starts, "ending_offsets": starts},
    }
    del given["initial_position"]
    task = TubeMQConsumeOperator(task_id="c", apply_function=lambda _: None, **given, **more[mode])
    # A partition that begins in the middle of one of the timetable's.
    timetable = CronPartitionTimetable("0 0 * * *", timezone="UTC")
    odd = {
        "dag": SimpleNamespace(timetable=timetable),
        "partition_date": datetime(2026, 1, 1, 5, tzinfo=UTC),
    }
    assert execute(task, fake_context(task, {}, **odd))["total"] == (mode == "cursor")
    if mode == "time":
        del more["time"]["start"], more["time"]["end"]
        asks = TubeMQConsumeOperator(
            task_id="asks", apply_function=lambda _: None, **given, **more[mode]
        )
        with pytest.raises(AirflowFailException, match="give start and end"):
            execute(asks, fake_context(asks, {}, **odd))


def test_the_commit_of_a_plan_has_its_arguments(given: dict[str, Any]) -> None:
    with DAG("d", schedule=None):
        plan = TubeMQPlanWindowOperator(task_id="plan", max_records=5, **given)
        commit = plan.committed(records={"1:0": 1})
    assert commit.upstream_task_ids == {"plan"}
    for name in ("topic", "group", "cluster", "sink", "max_records", "initial_position", "mode"):
        assert getattr(commit, name) == getattr(plan, name)
    assert commit.outlets[0] == ASSET


def test_a_decorated_function_gets_the_window(
    mq: EmbeddedTubeMQ, hook: TubeMQHook, given: dict[str, Any]
) -> None:
    @tubemq_window_task(**given)
    def report(factor: int, window: Any, run_id: Any = None) -> dict[str, Any]:
        bodies = [m.body.decode() for m in window.messages()]
        return {"bodies": bodies * factor, "run": run_id}

    with DAG("d", schedule=None) as dag:
        report(2)
    task: Any = dag.get_task("report")
    send(mq, hook, b"a")
    kept: dict[Any, Any] = {}
    done = execute(task, fake_context(task, kept))
    assert done["returned"] == {"bodies": ["a", "a"], "run": "r1"}
    assert done["total"] == 1
    assert execute(task, fake_context(task, kept))["returned"] is None, "it is done"


def test_the_window_may_precede_required_arguments(
    mq: EmbeddedTubeMQ, hook: TubeMQHook, given: dict[str, Any]
) -> None:
    @tubemq_window_task(**given)
    def report(window: Any, table: str, *, mark: str, **others: Any) -> list[str]:
        return [f"{table}{mark}{m.body.decode()}{others['run_id']}" for m in window.messages()]

    with DAG("d", schedule=None) as dag:
        report("t", mark="-")
        report(table="u", mark="+")
    kept: dict[Any, Any] = {}
    for name, found in (("report", "t-ar1"), ("report__1", "u+ar1")):
        send(mq, hook, b"a")
        task: Any = dag.get_task(name)
        assert execute(task, fake_context(task, kept))["returned"] == [found]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"markers": None}, "markers is needed"),
        ({"path": "/lake"}, "path has no effect"),
        ({"engine": "session"}, "engine has no effect"),
        ({"compression": "zstd"}, "compression has no effect"),
        ({"markers": "done"}, "relative"),
        ({"batch_size": 0}, "batch_size"),
        ({"group": "{{ ds }}"}, "group: cannot be a template"),
    ],
)
def test_mistakes_show_when_the_dag_is_parsed(
    wrong: dict[str, Any], said: str, given: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match=said):
        TubeMQConsumeOperator(task_id="c", apply_function=print, **{**given, **wrong})


def test_a_function_without_a_place_for_the_window_is_refused(given: dict[str, Any]) -> None:
    @tubemq_window_task(**given)
    def report() -> None:
        """Read nothing."""

    with pytest.raises(TypeError, match="must have a parameter 'window'"):
        report()
