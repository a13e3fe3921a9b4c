"""A task that leaves its application alone and comes back: what it finds, and what it never does
twice."""

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
from tubemq_provider.windows.protocols import Document, Staging, Suspended, SuspendingEngine

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

SETTINGS = replace(
    ClientConfig.parse({"masters": "127.0.0.1:1"}).settings(), auth=Credentials("u", "hush-hush")
)
PLAN = WindowPlan.explicit(
    WindowScope("local", "orders", "etl", "parquet:/lake"), {"1:0": (0, 280), "1:1": (28, 56)}
)


class Machine:
    """One task after the other over the same machine."""

    def __init__(self, root: Path) -> None:
        self.work = root / "work"
        self.staging = root / "staging"
        self.staging.mkdir()
        self.points: list[str] = []

    def task(self, ticket: Document | None = None, **given: object) -> SubmitEngine:
        """A try that may be deferred, or one that is back."""
        engine = SubmitEngine(SETTINGS, work_dir=self.work, **given)  # type: ignore[arg-type]
        assert isinstance(engine, SuspendingEngine)
        engine.may_suspend()
        if ticket is not None:
            engine.expect(ticket)
        return engine

    def ingest(self, engine: SubmitEngine, name: str) -> tuple[Staging, int]:
        """Where it writes, and how many records it has."""
        (self.staging / name).mkdir()
        fresh = Staging(PLAN.window_id, name, str(self.staging / name))
        staging = engine.place(PLAN, fresh)
        self.points = []
        try:
            total = engine.ingest(PLAN, staging, self.points.append).total
        except BaseException as error:
            engine.leave(type(error))
            raise
        return staging, total

    def suspended(self, name: str = "first") -> Document:
        """The ticket of a task that was deferred."""
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


def until_over(ticket: Document) -> None:
    assert Application.of_ticket(ticket).until_over(60)


def test_a_task_leaves_its_application_running_and_takes_up_what_that_wrote(
    machine: Machine,
) -> None:
    ticket = machine.suspended()
    application = Application.of_ticket(ticket)
    assert application.running
    assert "hush-hush" not in str(ticket)
    let_go(ticket)
    until_over(ticket)

    back = machine.task(ticket)
    staging, total = machine.ingest(back, "second")

    assert (staging.attempt, total) == ("first", 2)
    assert "application submitted" not in machine.points
    back.leave(None)
    assert not machine.folders()


def test_it_is_not_left_alone_before_it_has_read_its_secrets(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The secrets are in the memory of the task."""
    monkeypatch.setenv("FAKE_SUBMIT", "mute")
    engine = machine.task()
    threading.Timer(1.5, engine.cancel).start()
    with pytest.raises(WindowError, match="was cancelled"):
        machine.ingest(engine, "first")


def test_what_is_done_at_once_suspends_nothing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticket = machine.suspended()
    let_go(ticket)
    until_over(ticket)
    retry = machine.task()  # of a task that died instead of coming back
    assert machine.ingest(retry, "second")[1] == 2


def test_an_application_that_failed_meanwhile_fails_the_task_and_no_other_is_started(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SUBMIT", "fails")
    ticket = machine.suspended()
    let_go(ticket)
    until_over(ticket)
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
    until_over(ticket)
    with pytest.raises(WindowError, match="without a result"):
        machine.ingest(machine.task(ticket), "second")
    assert "application submitted" not in machine.points
    # The next try begins anew, and may be deferred again.
    assert machine.suspended("third")["folder"] != ticket["folder"]


def test_a_task_that_is_back_waits_itself_for_what_still_runs(machine: Machine) -> None:
    """The triggerer may have seen nothing, as it is on another machine."""
    ticket = machine.suspended()
    back = machine.task(ticket)

    def go(point: str) -> None:
        let_go(ticket)

    machine.points = []
    (machine.staging / "second").mkdir()
    fresh = Staging(PLAN.window_id, "second", str(machine.staging / "second"))
    staging = back.place(PLAN, fresh)
    assert back.ingest(PLAN, staging, go).total == 2
    assert staging.attempt == "first"
    back.leave(None)


def test_a_task_that_is_back_on_another_machine_reads_the_window_itself(
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


def test_what_could_not_be_published_is_there_for_the_next_try(machine: Machine) -> None:
    ticket = machine.suspended()
    let_go(ticket)
    until_over(ticket)
    back = machine.task(ticket)
    machine.ingest(back, "second")
    back.leave(OSError)
    retry = machine.task()
    assert machine.ingest(retry, "third")[0].attempt == "first"


def test_a_cleared_task_takes_up_what_the_deferred_one_has_left(machine: Machine) -> None:
    first = machine.suspended()
    second = machine.suspended("second")
    assert second["folder"] == first["folder"]
    # Whoever ends the first deferral late must not end what the second waits for.
    application = Application.of_ticket(first)
    assert not application.end_for(first)
    assert application.running
    assert Application.of_ticket(second).end_for(second)
    assert not application.running


def test_what_another_task_waits_for_is_not_ended(machine: Machine) -> None:
    ticket = machine.suspended()
    other = Application.of_ticket(ticket)
    assert other.claim()
    assert not Application.of_ticket(ticket).end_for(ticket)
    other.release()
    assert Application.of_ticket(ticket).end_for(ticket)


def test_a_window_that_replaces_another_is_waited_for(machine: Machine) -> None:
    """Nothing of an earlier try is taken up there, so that it would be read twice."""
    engine = machine.task()
    (machine.staging / "first").mkdir()
    staging = Staging(PLAN.window_id, "first", str(machine.staging / "first"))

    def go(point: str) -> None:
        for folder in machine.folders():
            (folder / "go").touch()

    assert engine.ingest(PLAN, staging, go).total == 2
    engine.leave(None)


def test_how_long_it_took_is_what_the_application_says(machine: Machine) -> None:
    ticket = machine.suspended()
    let_go(ticket)
    until_over(ticket)
    application = Application.of_ticket(ticket)
    result = application.result
    assert result is not None
    result["counts"]["took_ms"] = 3_600_000
    application.finish(result)
    back = machine.task(ticket)
    (machine.staging / "second").mkdir()
    fresh = Staging(PLAN.window_id, "second", str(machine.staging / "second"))
    assert back.ingest(PLAN, back.place(PLAN, fresh), machine.points.append).took_ms == 3_600_000
