"""Lines of a task's log: range, progress and result of a run; errors in short lines."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from tests.kit.engines import inline_engine
from tests.kit.lakes import TOPIC
from tubemq_client import Partition, Record
from tubemq_client.embedded import EmbeddedTubeMQ
from tubemq_client.errors import ConfigError, ConnectError, ProtocolViolation
from tubemq_provider.hooks.failures import ErrorContext, explained, fatal_errors_fail_the_task
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.ingest import progress as progress_module
from tubemq_provider.ingest.progress import ProgressLogger
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.protocols import IngestCounts, Step
from tubemq_provider.windows.run.result import WindowResult

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]


class Lines(list[str]):
    """A log in memory."""

    def info(self, event: str, /, *args: Any) -> None:
        self.append(event % args)

    def debug(self, event: str, /, *args: Any, **_: Any) -> None:
        self.append("debug: " + event % args)

    error = warning = info


@pytest.fixture
def shown_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "SHOWN_AFTER_S", 0.0)


def test_a_window_is_shown_when_it_has_been_read_for_a_second() -> None:
    scope = WindowScope("test", TOPIC, "lake", "parquet:/lake")
    plan = WindowPlan.cursor(scope, 1, {"1:0": (0, 1200 * 28)})
    clock, progress = [0.0], list[dict[str, Any]]()
    told = ProgressLogger(Lines(), threading.Event(), "/lake", clock=lambda: clock[0])
    told.on_progress = progress.append
    watch = told.watch()
    watch.on_begin(plan)
    for clock[0] in (0.5, 0.9):
        told.check_silence()
    watch.on_end(plan, IngestCounts({"1:0": 1}))
    told.check_silence()
    assert [one["state"] for one in progress] == ["done"]  # each is a request to Airflow
    progress.clear()
    watch.on_begin(plan)
    for clock[0] in (2.0, 3.0):
        told.check_silence()
    watch.on_end(plan, IngestCounts({"1:0": 1}))
    assert [(one["state"], one["read"]) for one in progress] == [("reading", 0), ("done", 1)]


@pytest.mark.usefixtures("shown_at_once")
def test_silence_is_told_every_ten_seconds_in_log_and_page() -> None:
    scope = WindowScope("test", TOPIC, "lake", "parquet:/lake")
    plan = WindowPlan.cursor(scope, 1, {"1:0": (0, 1200 * 28)})
    lines, clock, progress = Lines(), [0.0], list[dict[str, Any]]()
    told = ProgressLogger(lines, threading.Event(), "/lake", clock=lambda: clock[0])
    told.on_progress = progress.append
    watch = told.watch()
    told.check_silence()
    watch.on_begin(plan)
    del lines[:], progress[:]
    for clock[0] in (9.0, 10.0, 11.0, 19.0, 20.0):
        told.check_silence()
    assert [line.partition(":")[0] for line in lines] == [
        "no record for 10 s",
        "no record for 20 s",
    ]
    assert [(one["state"], one["silent"]) for one in progress] == [("waiting", 10), ("waiting", 20)]
    clock[0] = 25.0
    watch.on_read(plan, "1:0", 10, 10)
    for clock[0] in (29.0, 34.0, 35.0):
        told.check_silence()
    assert "no record for 10 s" in lines[-1]
    watch.on_end(plan, IngestCounts({"1:0": 1}))
    clock[0] = 99.0
    count = len(lines)
    told.check_silence()
    assert len(lines) == count


def test_silence_is_looked_for_while_a_run_lasts() -> None:
    told = ProgressLogger(Lines(), threading.Event(), "/lake")
    with told.telling_silence():
        assert "tubemq-silence" in {thread.name for thread in threading.enumerate()}
    assert "tubemq-silence" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.usefixtures("shown_at_once")
def test_a_run_logs_range_progress_and_result(
    hook: TubeMQHook, mq: EmbeddedTubeMQ, tmp_path: Path
) -> None:
    partition = Partition.from_key(TOPIC, "1:0")
    list(hook.produce(TOPIC, [Record(b"x", partition=partition)] * 1200))
    mq.broker(1).store(TOPIC, 0).flush()
    sink = ParquetSink(str(tmp_path / "lake"))
    scope = WindowScope("test", TOPIC, "lake", sink.identity)
    plan = WindowPlan.cursor(scope, 1, {"1:0": (0, 1200 * 28), "1:1": (0, 0)})
    lines, now = Lines(), iter(range(0, 100_000, 11))
    told = ProgressLogger(lines, threading.Event(), "/lake", clock=lambda: next(now))
    progress: list[dict[str, Any]] = []
    told.on_progress = progress.append
    engine = inline_engine(hook.get_settings(), policies=Policies())
    staging = sink.begin(plan, "try")
    watch = told.watch()
    watch.on_begin(plan)
    counts = engine.ingest(plan, staging, watch)
    watch.on_end(plan, counts)
    told.done(WindowResult("cursor", TOPIC, "lake", plan.window_id, records=counts.records))
    assert lines[0] == (
        f"orders -> /lake: window {plan.window_id}, 1 of 2 partitions, at most 1 200 records, "
        f"group lake @ test (cursor)"
    )
    assert lines[1].startswith("partition 1:0: ")
    assert "of at most 1 200 records; in all" in lines[1]
    assert "orders -> /lake: 1 200 records, 0 bytes in " in lines[-1]
    assert {(now["window"], now["entries"]) for now in progress} == {(plan.window_id, 1200)}
    assert [(now["state"], now["read"]) for now in (progress[0], progress[-1])] == [
        ("reading", 0),
        ("done", 1200),
    ]
    assert all(0 < now["read"] <= 1200 and now["rate"] > 0 for now in progress[1:-1])


def test_partitions_and_bad_records_are_logged_at_the_end() -> None:
    scope = WindowScope("test", TOPIC, "lake", "parquet:/lake")
    plan = WindowPlan.cursor(scope, 1, {"1:0": (0, 280), "1:1": (28, 280), "2:0": (0, 0)})
    lines, now = Lines(), iter(range(0, 1000, 2))
    told = ProgressLogger(lines, threading.Event(), "/lake", "quarantined", clock=lambda: next(now))
    counts = IngestCounts(
        {"1:0": 7, "1:1": 9, "2:0": 0},
        bytes=4_000_000,
        corrupt=3,
        read={"1:0": 10, "1:1": 9, "2:0": 0},
    )
    told.counted(plan, counts)
    assert lines == [
        "partition 1:0: offsets [0, 280): 10 records of at most 10, 7 rows",
        "partition 1:1: offsets [28, 280): 9 records of at most 9, 9 rows",
        "read 19 records, 2.0 MB/s; 16 rows, 3 bad records, quarantined",
    ]


def test_tasks_of_a_job_are_logged_every_ten_seconds() -> None:
    scope = WindowScope("test", TOPIC, "lake", "parquet:/lake")
    plan = WindowPlan.cursor(scope, 1, {"1:0": (0, 280)})
    lines, now = Lines(), iter([0.0, 5.0, 20.0, 21.0])
    told = ProgressLogger(lines, threading.Event(), "/lake", clock=lambda: next(now))
    for done in (1, 5, 6):
        told.tasks(plan, done, 20)
    assert lines == ["5 of 20 tasks are done, of at most 10 records in all, about 60 s left"]


def test_inner_steps_are_for_debugging_and_a_killed_run_ends_at_the_next() -> None:
    lines, cancelled = Lines(), threading.Event()
    told = ProgressLogger(lines, cancelled, "/lake")
    told.at(Step.LOAD, "begin")
    told.at(Step.LOAD, "marker read")
    assert lines == ["debug: load: marker read"]
    cancelled.set()
    with pytest.raises(Exception, match="the task was killed at plan: plan stored"):
        told.at(Step.PLAN, "plan stored")


def test_an_empty_run_is_logged() -> None:
    lines = Lines()
    ProgressLogger(lines, threading.Event(), "/lake").done(
        WindowResult("cursor", TOPIC, "g", empty=True)
    )
    assert lines == ["orders -> /lake: nothing to read for group g"]


def test_errors_are_logged_in_short_lines_with_a_command() -> None:
    lines = Lines()
    said = "a sentence that goes on and on; " * 12 + "set gap_policy='skip' to go on"
    with (
        pytest.raises(AirflowFailException, match="set gap_policy='skip'") as caught,
        fatal_errors_fail_the_task(lines, about=ErrorContext("main", "orders")),
    ):
        raise ConfigError(said, subject="window")
    told = lines[0].splitlines()
    assert max(map(len, told)) <= 80
    assert told[-2:] == [
        "connection 'main', topic 'orders'",
        "to look further: airflow tubemq check --conn-id main",
    ]
    assert caught.value.__suppress_context__


def test_another_protocol_is_not_retried_and_network_errors_are() -> None:
    with pytest.raises(AirflowFailException), fatal_errors_fail_the_task():
        raise ProtocolViolation("frame starts with 48545450")
    with pytest.raises(ConnectError), fatal_errors_fail_the_task():
        raise ConnectError("connection refused")


def test_long_words_stay_whole_and_lists_stay_lists() -> None:
    path = "/" + "lake" * 40
    told = explained(ConfigError([f"{path} is wrong", "the other too"], subject="sink"))
    assert path in told
    assert "\n" in told
