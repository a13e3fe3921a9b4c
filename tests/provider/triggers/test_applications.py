"""Trigger of a deferred ingest: its events, restarts and clean-up."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tubemq_provider.engines.applications import Application, Applications
from tubemq_provider.triggers.applications import TubeMQApplicationTrigger

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]


class Deferred:
    """Application in a separate process, left by a deferred task."""

    def __init__(self, work: Path) -> None:
        self.application = Applications(work).make("c-1-x", {"plan": {}})
        lock = self.application.lock()
        self.process = subprocess.Popen(
            ["/bin/sleep", "300"], pass_fds=(lock,), start_new_session=True
        )
        os.close(lock)
        self.application.process = self.process.pid
        self.ticket = self.application.suspend()
        self.application.release()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def deferred(tmp_path: Path) -> Iterator[Deferred]:
    found = Deferred(tmp_path / "work")
    yield found
    found.end()


def trigger(ticket: dict[str, Any], **given: Any) -> TubeMQApplicationTrigger:
    """Return a trigger as a triggerer creates it, from the stored arguments."""
    made = TubeMQApplicationTrigger(ticket=ticket, **{"poll_interval": 0.05, **given})
    path, arguments = made.serialize()
    module, _, name = path.rpartition(".")
    again = getattr(importlib.import_module(module), name)(**json.loads(json.dumps(arguments)))
    assert isinstance(again, TubeMQApplicationTrigger)
    return again


async def first(trigger: TubeMQApplicationTrigger) -> Any:
    """Return the first event."""
    async for event in trigger.run():
        return event.payload
    return None


def fired(trigger: TubeMQApplicationTrigger) -> Any:
    return asyncio.run(first(trigger))


def test_it_fires_when_there_is_a_result(deferred: Deferred) -> None:
    async def scene() -> Any:
        waiting = asyncio.ensure_future(first(trigger(deferred.ticket)))
        for _ in range(5):
            await asyncio.sleep(0.02)
        assert not waiting.done()
        deferred.application.finish({"v": 1})
        return await waiting

    assert asyncio.run(scene()) == {"status": "over"}


def test_it_fires_when_the_process_is_gone_without_a_result(deferred: Deferred) -> None:
    deferred.end()
    assert fired(trigger(deferred.ticket)) == {"status": "over"}


def test_a_restarted_triggerer_misses_nothing(deferred: Deferred) -> None:
    async def shut_down() -> None:
        waiting = asyncio.ensure_future(first(trigger(deferred.ticket)))
        await asyncio.sleep(0.1)
        waiting.cancel("Supervisor closed")
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(shut_down())
    assert deferred.application.running, "a restart is no kill"
    deferred.application.finish({"v": 1})
    assert fired(trigger(deferred.ticket)) == {"status": "over"}


def test_without_the_folder_the_task_polls_itself(tmp_path: Path) -> None:
    ticket = {"folder": str(tmp_path / "elsewhere"), "token": "t"}
    assert fired(trigger(ticket)) == {"status": "unseen"}
    asyncio.run(trigger(ticket).on_kill())


def test_its_deadline_is_that_of_the_task(deferred: Deferred) -> None:
    assert fired(trigger(deferred.ticket, deadline=1.0)) == {"status": "timeout"}
    deferred.application.finish({"v": 1})
    assert fired(trigger(deferred.ticket, deadline=1.0)) == {"status": "over"}


def test_a_user_who_ends_the_task_ends_the_application(deferred: Deferred) -> None:
    asyncio.run(trigger(deferred.ticket).on_kill())
    deferred.process.wait(30)
    assert deferred.application.stop_requested
    assert not deferred.application.running


def test_an_application_resumed_by_a_cleared_task_is_left_to_it(deferred: Deferred) -> None:
    again = Application(deferred.application.folder)
    assert again.claim()
    asyncio.run(trigger(deferred.ticket).on_kill())
    again.suspend()
    again.release()
    asyncio.run(trigger(deferred.ticket).on_kill())
    assert deferred.process.poll() is None
    assert not deferred.application.stop_requested


class Lost(TubeMQApplicationTrigger):
    """A trigger of a task whose state Airflow tells, or does not."""

    answer: str | Exception | None = None

    async def task_state(self) -> str | None:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("answer", ["deferred", RuntimeError("the database is away")])
def test_a_triggerer_that_lost_the_trigger_to_another_ends_nothing(
    deferred: Deferred, answer: str | Exception
) -> None:
    lost = Lost(ticket=deferred.ticket)
    lost.answer = answer
    lost.task_instance = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1)
    asyncio.run(lost.on_kill())
    assert deferred.process.poll() is None
    assert not deferred.application.stop_requested
    lost.answer = "failed"
    asyncio.run(lost.on_kill())
    assert deferred.application.stop_requested
