"""Windows chosen by a user who may trigger a run, but may not edit its Dag."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import (
    DAG,
    CronDataIntervalTimetable,
    CronPartitionTimetable,
    CronTriggerTimetable,
    DeltaDataIntervalTimetable,
)

from tests.provider.contexts import data_interval
from tubemq_client.errors import ConfigError
from tubemq_provider.ingest.values import IngestPolicies
from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator, TubeMQWindowIngestOperator
from tubemq_provider.operators.intervals import run_interval

pytestmark = pytest.mark.airflow

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
HOURLY = CronDataIntervalTimetable("0 * * * *", timezone="UTC")


def run(
    *,
    conf: dict[str, Any] | None = None,
    params: dict[str, Any] | None = None,
    schedule: Any = HOURLY,
    run_type: str = "manual",
    **more: Any,
) -> dict[str, Any]:
    return {
        "dag": DAG("d", schedule=schedule),
        "dag_run": SimpleNamespace(conf=conf, run_type=run_type),
        "params": params or {},
        **more,
    }


def window(start: datetime, end: datetime) -> dict[str, Any]:
    return {"tubemq_window": {"start": start.isoformat(), "end": end.isoformat()}}


@pytest.mark.parametrize("where", ["conf", "params"])
@pytest.mark.parametrize("run_type", ["manual", "scheduled", "operator_triggered", "backfill"])
def test_a_run_chooses_no_window_unless_the_author_allows_it(where: str, run_type: str) -> None:
    asked: dict[str, Any] = {where: window(NOON, NOON + HOUR)}
    context = run(**asked, run_type=run_type, **data_interval(NOON, NOON + HOUR))
    with pytest.raises(ConfigError, match="allows it with max_run_window"):
        run_interval(context, None)
    assert run_interval(context, None, longest=HOUR) == (NOON, NOON + HOUR)


@pytest.mark.parametrize(
    ("start", "end", "said"),
    [
        (NOON - HOUR / 2, NOON + HOUR / 2, "start 2026-01-01T11:30:00Z is not where"),
        (NOON, NOON + HOUR / 2, "end 2026-01-01T12:30:00Z is not where"),
        (NOON, NOON + timedelta(seconds=3600, microseconds=1), "end 2026-01-01T13:00:00.000001Z"),
        (datetime(1, 1, 1, tzinfo=UTC), NOON, "is longer than max_run_window allows"),
        (NOON - DAY - HOUR, NOON, "is longer than max_run_window allows"),
    ],
)
def test_what_the_author_allows_is_of_the_dags_own_grid(
    start: datetime, end: datetime, said: str
) -> None:
    for given in (run(conf=window(start, end)), run(**data_interval(start, end))):
        with pytest.raises(ConfigError, match=said):
            run_interval(given, None, longest=DAY)
    assert run_interval(run(conf=window(NOON - DAY, NOON)), None, longest=DAY) == (NOON - DAY, NOON)


@pytest.mark.parametrize(
    ("schedule", "granularity", "fits", "not_fits"),
    [
        (CronTriggerTimetable("30 * * * *", timezone="UTC"), None, NOON + HOUR / 2, NOON),
        (CronPartitionTimetable("0 */6 * * *", timezone="UTC"), None, NOON, NOON + HOUR),
        (None, timedelta(minutes=20), NOON + HOUR / 3, NOON + HOUR / 4),
        (CronDataIntervalTimetable("0 0 * * *", timezone="Asia/Kathmandu"), None, None, NOON),
    ],
)
def test_the_grid_is_the_timetables_or_multiples_of_granularity(
    schedule: Any, granularity: timedelta | None, fits: datetime | None, not_fits: datetime
) -> None:
    step = timedelta(hours=6)
    if fits is not None:
        asked = run(conf=window(fits, fits + step), schedule=schedule)
        assert run_interval(asked, granularity, longest=DAY) == (fits, fits + step)
    asked = run(conf=window(not_fits, not_fits + step), schedule=schedule)
    with pytest.raises(ConfigError, match="tubemq_window"):
        run_interval(asked, granularity, longest=DAY)


def test_a_dag_without_any_grid_needs_a_granularity() -> None:
    asked = run(conf=window(NOON, NOON + HOUR), schedule=None)
    with pytest.raises(ConfigError, match="give the task a granularity"):
        run_interval(asked, None, longest=DAY)
    assert run_interval(asked, HOUR, longest=DAY) == (NOON, NOON + HOUR)


def test_a_data_interval_that_a_trigger_names_is_judged_alike() -> None:
    one = run(**data_interval(NOON, NOON + HOUR))
    assert run_interval(one, None) == (NOON, NOON + HOUR)
    for start, end in ((NOON, NOON + 2 * HOUR), (NOON + HOUR / 2, NOON + 3 * HOUR / 2)):
        with pytest.raises(ConfigError, match="trigger it with a logical date only"):
            run_interval(run(**data_interval(start, end)), None)
        # The scheduler's own runs keep what they have, also after the timetable was edited.
        for kind in ("scheduled", "backfill"):
            kept = run(run_type=kind, **data_interval(start, end))
            assert run_interval(kept, None) == (start, end)
    assert run_interval(run(**data_interval(NOON, NOON + DAY)), None, longest=DAY)


@pytest.mark.parametrize("kind", ["manual", "asset_materialization"])
@pytest.mark.parametrize(
    ("schedule", "granularity", "fits"),
    [
        (HOURLY, None, True),
        (DeltaDataIntervalTimetable(HOUR), None, True),
        (None, HOUR, True),
        (None, None, False),
    ],
)
def test_no_trigger_reads_all_of_retention_by_its_data_interval(
    kind: str, schedule: Any, granularity: timedelta | None, *, fits: bool
) -> None:
    """For manual runs and for assets materialized by hand, where a user may set the interval."""

    def asked(start: datetime, end: datetime, longest: timedelta | None = None) -> Any:
        given = run(schedule=schedule, run_type=kind, **data_interval(start, end))
        return run_interval(given, granularity, longest=longest)

    with pytest.raises(ConfigError, match="the task allow others with max_run_window"):
        asked(datetime(1, 1, 1, tzinfo=UTC), NOON)
    with pytest.raises(ConfigError, match="longer than max_run_window"):
        asked(datetime(1, 1, 1, tzinfo=UTC), NOON, DAY)
    assert asked(NOON - DAY, NOON, DAY) == (NOON - DAY, NOON)
    if fits:
        assert asked(NOON, NOON + HOUR) == (NOON, NOON + HOUR)
    else:
        with pytest.raises(ConfigError, match="none of the Dag's own"):
            asked(NOON, NOON + HOUR)


def test_a_data_interval_lies_on_the_grid_of_granularity() -> None:
    between = run(schedule=None, **data_interval(NOON + HOUR / 2, NOON + 3 * HOUR / 2))
    for longest in (None, DAY):
        with pytest.raises(ConfigError, match=r"none of the Dag's own|no multiple of gran"):
            run_interval(between, HOUR, longest=longest)


def test_a_partition_that_a_trigger_names_begins_where_others_do() -> None:
    for kind, date, fits in (
        ("manual", NOON, True),
        ("manual", NOON + HOUR / 2, False),
        ("asset_materialization", NOON + HOUR / 2, False),
        ("asset_triggered", NOON + HOUR / 2, True),
    ):
        given = run(schedule=None, run_type=kind, partition_date=date)
        if fits:
            assert run_interval(given, HOUR) == (date, date + HOUR)
        else:
            with pytest.raises(ConfigError, match="no multiple of granularity 1:00:00"):
                run_interval(given, HOUR)


def test_the_author_says_it_in_the_dag_and_nowhere_else() -> None:
    common: dict[str, Any] = {
        "task_id": "t",
        "topic": "orders",
        "group": "g1",
        "path": "/lake",
        "cluster": "c1",
    }
    allowed = IngestPolicies(max_run_window="PT6H")
    window = TubeMQWindowIngestOperator(resolver="message_time", policies=allowed, **common)
    assert window._arguments()["max_run_window"] == "PT6H"
    assert "max_run_window" not in window.template_fields
    templated = IngestPolicies(max_run_window="{{ params.most }}")
    with pytest.raises(ConfigError, match="max_run_window: cannot be a template"):
        TubeMQWindowIngestOperator(resolver="message_time", policies=templated, **common)
    with pytest.raises(ConfigError, match="max_run_window has no effect with mode='cursor'"):
        TubeMQCursorIngestOperator(policies=allowed, **common)
