"""Dags that are edited between the tries of a run.

Each run ends correctly, or is refused with advice, and the log has the reason.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, CronDataIntervalTimetable, CronPartitionTimetable

from tests.kit.lakes import TOPIC
from tests.provider.contexts import accept, data_interval, fake_context
from tests.provider.grouped import grouped
from tubemq_client import Partition, Record
from tubemq_client.embedded import EmbeddedTubeMQ
from tubemq_provider._airflow import AirflowFailException
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.offsets.commit_events import commit_event
from tubemq_provider.operators.ingest import TubeMQWindowIngestOperator
from tubemq_provider.operators.planning import TubeMQPlanWindowOperator
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.sinks.read import read_windows
from tubemq_provider.windows.errors import IntervalMissing, StoreConflict
from tubemq_provider.windows.plan import WindowScope
from tubemq_provider.windows.planning.boundary_book import ScopeBook

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(120)]

DAY = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAILY = CronPartitionTimetable("0 0 * * *", timezone="UTC")
HOURLY = CronPartitionTimetable("0 * * * *", timezone="UTC")
ENTRY = 28


class Killed(BaseException):
    """Error that ends a try like SIGKILL: no code of the product catches it."""


class Stopped(TubeMQWindowIngestOperator):
    """The operator; `act` is called at a point between two actions of a run."""

    act: Any = None

    def observer(self, context: Any, progress_logger: Any) -> Any:
        def at(step: Any, point: str) -> None:
            progress_logger.at(step, point)
            if self.act is not None:
                self.act(f"{step}:{point}")

        return SimpleNamespace(at=at)


def killed_at(point: str) -> Any:
    def act(here: str) -> None:
        if here == point:
            raise Killed(point)

    return act


class World:
    """A topic with a record for every quarter of an hour of two days, and what tries leave."""

    def __init__(self, mq: EmbeddedTubeMQ, hook: TubeMQHook, root: Path) -> None:
        self.mq, self.hook, self.root = mq, hook, root
        self.kept: dict[Any, Any] = {}
        only = Partition(1, TOPIC, 0)
        list(hook.produce(TOPIC, [Record(b"%d" % i, partition=only) for i in range(192)]))
        mq.broker(1).flush()
        self.boundaries = {
            (DAY + HOUR * hour).isoformat(): {TOPIC: {"1:0": 4 * hour * ENTRY}}
            for hour in range(49)
        }

    def task(self, schedule: Any = None, **arguments: Any) -> Stopped:
        given: dict[str, Any] = {
            "task_id": "ingest",
            "topic": TOPIC,
            "group": "lake",
            "cluster": "test",
            "path": str(self.root / "lake"),
            "engine": "inline",
            "boundaries": self.boundaries,
        }
        with DAG("edited", schedule=schedule):
            return Stopped(**grouped(**{**given, **arguments}))

    def attempt(
        self,
        task: Stopped,
        run: str,
        *,
        number: int = 1,
        clears: int = 0,
        act: Any = None,
        **more: Any,
    ) -> dict[str, Any]:
        context = fake_context(task, self.kept, run=run, dag=task.dag, **more)
        context["ti"].try_number = number
        context["ti"].max_tries = task.retries or 0
        context["dag_run"].clear_number = clears
        task.act = act
        found: dict[str, Any] = type(task).execute.__wrapped__(task, context)  # type: ignore[attr-defined]
        accept(context, self.kept)
        return found

    def records(self, path: str = "lake") -> list[int]:
        table = read_windows(self.root / path).to_table(columns=["value"])
        return sorted(int(value) for value in table["value"].to_pylist())

    def events(self, task: Stopped) -> list[dict[str, Any]]:
        told = self.kept.get("events", {}).get(task.offsets_asset, [])
        return [event for event in map(commit_event, told) if event]


@pytest.fixture
def world(mq: EmbeddedTubeMQ, hook: TubeMQHook, tmp_path: Path) -> World:
    return World(mq, hook, tmp_path)


def test_the_tries_of_a_cleared_task_do_not_store_its_window_in_two_places(world: World) -> None:
    """Each clear may write the window to another place; its tries after a kill may not."""
    first, other = (world.task(DAILY, path=str(world.root / name)) for name in ("b", "c"))
    day: dict[str, Any] = {"run": "r0", "partition_date": DAY}
    world.attempt(world.task(DAILY), **day)
    with pytest.raises(Killed):
        world.attempt(first, **day, number=2, clears=1, act=killed_at("publish:published"))
    with pytest.raises(AirflowFailException, match="IdentityMismatch"):
        world.attempt(other, **day, number=3, clears=1)
    assert not (world.root / "c").exists()
    assert world.attempt(first, **day, number=4, clears=1)["total"] == 96
    assert world.attempt(other, **day, number=5, clears=2)["total"] == 96
    assert world.records("b") == world.records("c") == list(range(96))


@pytest.mark.parametrize(
    "edited",
    [
        {"schedule": HOURLY},
        {"schedule": CronPartitionTimetable("0 0 * * *", timezone="Europe/Berlin")},
        {"schedule": None, "granularity": HOUR},
        {"schedule": CronDataIntervalTimetable("@hourly", timezone="UTC")},
    ],
    ids=["hours", "zone", "granularity", "data-intervals"],
)
@pytest.mark.parametrize("point", ["plan:begin", "plan:task plan stored", "publish:begin"])
@pytest.mark.parametrize("again", [{"number": 2}, {"number": 2, "clears": 1}])
def test_a_partition_keeps_its_interval_when_the_timetable_is_edited(
    world: World,
    edited: dict[str, Any],
    point: str,
    again: dict[str, int],
    capfd: pytest.CaptureFixture[str],
) -> None:
    day = world.task(DAILY)
    with pytest.raises(Killed):
        world.attempt(day, "r1", partition_date=DAY, act=killed_at(point))
    result = world.attempt(world.task(**edited), "r1", partition_date=DAY, **again)
    assert (result["start"], result["end"]) == ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")
    assert world.records() == list(range(96))
    said = capfd.readouterr().out
    assert "was edited since this run began: it keeps its interval" in said
    assert ("takes over window" in said) == (point != "plan:begin")


def test_a_new_partition_has_the_interval_of_the_edited_timetable(world: World) -> None:
    world.attempt(world.task(DAILY), "r1", partition_date=DAY)
    hour = world.attempt(world.task(HOURLY), "r2", partition_date=DAY + 24 * HOUR)
    assert hour["total"] == 4
    assert hour["missing"] == []


def test_a_window_that_was_planned_is_not_dropped_for_another(world: World) -> None:
    """Also where the interval is the task's own arguments."""
    said = {"start": DAY.isoformat(), "end": (DAY + 24 * HOUR).isoformat()}
    with pytest.raises(Killed):
        world.attempt(world.task(**said), "r1", act=killed_at("publish:begin"))
    shorter = said | {"end": (DAY + HOUR).isoformat()}
    for again in ({"number": 2}, {"number": 2, "clears": 1}):
        with pytest.raises(AirflowFailException, match="set start='2026-01-01T00:00:00Z' and end="):
            world.attempt(world.task(**shorter), "r1", **again)
    assert world.attempt(world.task(**said), "r1", number=3)["total"] == 96
    assert world.records() == list(range(96))


@pytest.mark.parametrize(
    ("edited", "said"),
    [
        ({"path": "other"}, "for another sink than parquet:"),
        ({"filters": ["s1"]}, r"filters \(\), now \('s1',\)"),
        ({"group": "other"}, "group 'lake', now 'other'"),
        ({"epoch": "second"}, "epoch '', now 'second'"),
    ],
)
def test_a_retry_of_another_scope_is_refused_and_a_clear_begins_it(
    world: World, edited: dict[str, Any], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    hour = data_interval(DAY, DAY + HOUR)
    with pytest.raises(Killed):
        world.attempt(world.task(), "r1", act=killed_at("advance:begin"), **hour)
    if "path" in edited:
        edited = {"path": str(world.root / edited["path"])}
    with pytest.raises(AirflowFailException, match=said):
        world.attempt(world.task(**edited), "r1", number=2, **hour)
    assert "takes over" not in capfd.readouterr().out
    if "path" in edited:
        world.attempt(world.task(**edited), "r1", number=3, clears=1, **hour)
        assert world.records("other") == list(range(4))
        out = capfd.readouterr().out
        assert "is not taken over" in out
        assert "takes over" not in out
    else:
        assert world.attempt(world.task(), "r1", number=4, **hour)["replayed"]
    assert world.records() == list(range(4))


def test_a_hole_between_two_windows_is_in_log_result_and_event(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    """Hours that become two hours while an odd hour runs: the next run begins one hour later."""
    for hour in (1, 2):
        one = data_interval(DAY + HOUR * hour, DAY + HOUR * (hour + 1))
        assert world.attempt(world.task(), f"h{hour}", **one)["missing"] == []
    capfd.readouterr()
    two = data_interval(DAY + 4 * HOUR, DAY + 6 * HOUR)
    fails = world.task(on_missing_interval="fail")
    with pytest.raises(IntervalMissing, match="03:00:00Z to 2026-01-01T04:00:00Z"):
        world.attempt(fails, "two", **two)
    assert world.records() == list(range(4, 12))
    result = world.attempt(world.task(), "two", **two)
    hole = [["2026-01-01T03:00:00Z", "2026-01-01T04:00:00Z"]]
    assert result["missing"] == hole
    assert "no published window has 2026-01-01T03:00:00Z to" in result["warnings"][0]
    assert "no published window has 2026-01-01T03:00:00Z to" in capfd.readouterr().out
    assert world.events(fails)[-1]["missing"] == hole
    filled = {"start": hole[0][0], "end": hole[0][1], "on_missing_interval": "fail"}
    assert world.attempt(world.task(**filled), "fill")["missing"] == []
    assert world.records() == list(range(4, 24))


def test_a_window_before_others_reports_the_hole_after_it(world: World) -> None:
    world.attempt(world.task(), "day", **data_interval(DAY + 24 * HOUR, DAY + 25 * HOUR))
    first = world.attempt(world.task(), "hour", **data_interval(DAY, DAY + HOUR))
    assert first["missing"] == [["2026-01-01T01:00:00Z", "2026-01-02T00:00:00Z"]]


def test_removing_a_boundary_stops_a_window_that_is_being_read(world: World) -> None:
    sink = ParquetSink(world.root / "lake")
    scope = WindowScope("test", TOPIC, "lake", sink.identity)
    eleven = DAY + 11 * HOUR
    later = dict(world.boundaries) | {eleven.isoformat(): {TOPIC: {"1:0": 46 * ENTRY}}}

    def unfixed(here: str) -> None:
        if here == "ingest:ingested":
            assert sink.boundaries is not None
            ScopeBook(sink.boundaries, scope).withdraw(eleven)
            beside = world.task(boundaries=later)
            world.attempt(beside, "next", **data_interval(eleven, eleven + HOUR))

    ten = data_interval(eleven - HOUR, eleven)
    with pytest.raises(StoreConflict, match="the next try plans the window anew"):
        world.attempt(world.task(), "r1", act=unfixed, **ten)
    assert world.attempt(world.task(boundaries=later), "r1", number=2, **ten)["total"] == 6
    assert world.records() == list(range(40, 48))


def test_a_planned_window_is_committed_after_the_timetable_was_edited(world: World) -> None:
    """Days become hours while the tasks between read the day."""

    def both(schedule: Any) -> tuple[Any, Any]:
        with DAG("own", schedule=schedule):
            plan = TubeMQPlanWindowOperator(
                task_id="plan",
                topic=TOPIC,
                group="own",
                cluster="test",
                mode="time",
                boundaries=world.boundaries,
                markers=str(world.root / "done"),
            )
            return plan, plan.committed(records={"1:0": 96})

    def execute(task: Any) -> dict[str, Any]:
        context = fake_context(task, world.kept, dag=task.dag, partition_date=DAY)
        found: dict[str, Any] = type(task).execute.__wrapped__(task, context)
        return found

    plan, _ = both(DAILY)
    planned = execute(plan)
    assert planned["entries"] == 96
    _, commit = both(HOURLY)
    commit.plan = planned
    assert execute(commit)["end"] == "2026-01-02T00:00:00Z"
