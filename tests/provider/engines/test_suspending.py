"""A task that suspends while its application runs, and resumes: its view of the application, and
the work that is never done twice."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.spark_submit import fake_spark_home
from tubemq_client.config import ClientConfig
from tubemq_client.errors import CorruptRecord
from tubemq_client.model import Credentials
from tubemq_provider.engines.applications import Application
from tubemq_provider.engines.submit import SubmitEngine
from tubemq_provider.windows.errors import WindowError
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.protocols import (
    Document,
    IngestWatch,
    Staging,
    Suspended,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

SETTINGS = replace(
    ClientConfig.parse({"masters": "127.0.0.1:1"}).settings(), auth=Credentials("u", "hush-hush")
)
PLAN = WindowPlan.explicit(
    WindowScope("local", "orders", "etl", "parquet:/lake"), {"1:0": (0, 280), "1:1": (28, 56)}
)


class Machine:
    """Consecutive tasks on the same machine."""

    def __init__(self, root: Path) -> None:
        self.work = root / "work"
        self.staging = root / "staging"
        self.staging.mkdir()
        self.points: list[str] = []

    def task(self, ticket: Document | None = None, **given: object) -> SubmitEngine:
        """Run a try that may be deferred, or that resumes."""
        engine = SubmitEngine(SETTINGS, work_dir=self.work, **given)  # type: ignore[arg-type]
        engine.may_suspend()
        if ticket is not None:
            engine.expect(ticket)
        return engine

    def ingest(self, engine: SubmitEngine, name: str) -> tuple[Staging, int]:
        """Return the staging place, and the number of records."""
        (self.staging / name).mkdir()
        fresh = Staging(PLAN.window_id, name, str(self.staging / name))
        staging = engine.place(PLAN, fresh)
        self.points = []
        try:
            total = engine.ingest(PLAN, staging, IngestWatch(self.points.append)).total
        except BaseException as error:
            engine.leave(type(error))
            raise
        return staging, total

    def suspended(self, name: str = "first") -> Document:
        """Return the ticket of a deferred task."""
        with pytest.raises(Suspended) as caught:
            self.ingest(self.task(), name)
        return caught.value.ticket

    def folders(self) -> list[Path]:
        return list(self.work.iterdir())


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("SPARK_HOME", str(fake_spark_home(tmp_path)))
    monkeypatch.setenv("FAKE_SUBMIT", "slow")
    return Machine(tmp_path)


def let_go(ticket: Document) -> None:
    (Application.of_ticket(ticket).folder / "go").touch()


def wait_until_ended(ticket: Document) -> None:
    assert Application.of_ticket(ticket).wait_until_ended(60)


def test_a_task_suspends_and_resumes_with_the_files_of_its_application(
    machine: Machine,
) -> None:
    ticket = machine.suspended()
    application = Application.of_ticket(ticket)
    assert application.running
    assert "hush-hush" not in str(ticket)
    let_go(ticket)
    wait_until_ended(ticket)

    back = machine.task(ticket)
    staging, total = machine.ingest(back, "second")

    assert (staging.attempt, total) == ("first", 2)
    assert "application submitted" not in machine.points
    back.leave(None)
    assert not machine.folders()


def test_a_task_does_not_suspend_before_its_application_has_read_the_secrets(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The secrets are in the memory of the task."""
    monkeypatch.setenv("FAKE_SUBMIT", "mute")
    engine = machine.task()
    threading.Timer(1.5, engine.cancel).start()
    with pytest.raises(WindowError, match="was cancelled"):
        machine.ingest(engine, "first")


def test_a_finished_application_does_not_suspend_its_task(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticket = machine.suspended()
    let_go(ticket)
    wait_until_ended(ticket)
    retry = machine.task()  # of a task that died instead of resuming
    assert machine.ingest(retry, "second")[1] == 2


def test_an_application_that_failed_meanwhile_fails_the_task_and_no_other_is_started(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SUBMIT", "fails")
    ticket = machine.suspended()
    let_go(ticket)
    wait_until_ended(ticket)
    with pytest.raises(CorruptRecord, match=r"(?s)at 28: wrong.checksum"):
        machine.ingest(machine.task(ticket), "second")
    assert machine.points == ["application", "session started"]
    assert not machine.folders()


def test_an_application_that_was_killed_meanwhile_fails_the_task_and_no_other_is_started(
    machine: Machine,
) -> None:
    ticket = machine.suspended()
    process = Application.of_ticket(ticket).process
    assert process is not None
    os.killpg(process, signal.SIGKILL)
    wait_until_ended(ticket)
    with pytest.raises(WindowError, match="without a result"):
        machine.ingest(machine.task(ticket), "second")
    assert "application submitted" not in machine.points
    # The next try starts from scratch, and may be deferred again.
    assert machine.suspended("third")["folder"] != ticket["folder"]


def test_a_resumed_task_waits_for_a_running_application(machine: Machine) -> None:
    """The triggerer may not have seen the application, as it is on another machine."""
    ticket = machine.suspended()
    back = machine.task(ticket)

    def go(point: str) -> None:
        let_go(ticket)

    machine.points = []
    (machine.staging / "second").mkdir()
    fresh = Staging(PLAN.window_id, "second", str(machine.staging / "second"))
    staging = back.place(PLAN, fresh)
    assert back.ingest(PLAN, staging, IngestWatch(go)).total == 2
    assert staging.attempt == "first"
    back.leave(None)


def test_a_task_resumed_on_another_machine_reads_the_window_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ticket = machine.suspended()
    monkeypatch.setenv("FAKE_SUBMIT", "good")
    first, machine.work = machine.work, machine.work.with_name("elsewhere")
    staging, total = machine.ingest(machine.task(ticket), "second")
    assert (staging.attempt, total) == ("second", 2)
    assert "spark_work_dir that all their workers share" in caplog.text
    assert first.exists()
    Application.of_ticket(ticket).end()


def test_an_unpublished_result_is_left_for_the_next_try(machine: Machine) -> None:
    ticket = machine.suspended()
    let_go(ticket)
    wait_until_ended(ticket)
    back = machine.task(ticket)
    machine.ingest(back, "second")
    back.leave(OSError)
    retry = machine.task()
    assert machine.ingest(retry, "third")[0].attempt == "first"


def test_a_cleared_task_resumes_the_application_of_the_deferred_one(machine: Machine) -> None:
    first = machine.suspended()
    second = machine.suspended("second")
    assert second["folder"] == first["folder"]
    # A late end of the first deferral must not end the application of the second.
    application = Application.of_ticket(first)
    assert not application.end_for(first)
    assert application.running
    assert Application.of_ticket(second).end_for(second)
    assert not application.running


def test_an_application_claimed_by_another_task_is_not_ended(machine: Machine) -> None:
    ticket = machine.suspended()
    other = Application.of_ticket(ticket)
    assert other.claim()
    assert not Application.of_ticket(ticket).end_for(ticket)
    other.release()
    assert Application.of_ticket(ticket).end_for(ticket)


def test_a_window_that_replaces_another_is_waited_for(machine: Machine) -> None:
    """A replacement resumes no earlier try, so that a suspended one would be read twice."""
    engine = machine.task()
    (machine.staging / "first").mkdir()
    staging = Staging(PLAN.window_id, "first", str(machine.staging / "first"))

    def go(point: str) -> None:
        for folder in machine.folders():
            (folder / "go").touch()

    assert engine.ingest(PLAN, staging, IngestWatch(go)).total == 2
    engine.leave(None)


def test_the_duration_is_that_of_the_application(machine: Machine) -> None:
    ticket = machine.suspended()
    let_go(ticket)
    wait_until_ended(ticket)
    application = Application.of_ticket(ticket)
    result = application.result
    assert result is not None
    result["counts"]["took_ms"] = 3_600_000
    application.finish(result)
    back = machine.task(ticket)
    (machine.staging / "second").mkdir()
    fresh = Staging(PLAN.window_id, "second", str(machine.staging / "second"))
    assert (
        back.ingest(PLAN, back.place(PLAN, fresh), IngestWatch(machine.points.append)).took_ms
        == 3_600_000
    )
