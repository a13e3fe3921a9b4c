"""`TubeMQApplicationTrigger`: wait in the triggerer for a deferred task's Spark application.

It only polls the application's folder, and fires when the task should resume: the task then reads
the outcome itself, and publishes. This module must not publish or judge, and knows no secret.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from tubemq_provider.engines.applications import Application
from tubemq_provider.triggers._firing import arguments_of, class_path, jittered

__all__ = ["TubeMQApplicationTrigger"]


class TubeMQApplicationTrigger(BaseTrigger):
    """Fire once when an application has ended, with or without a result.

    :param ticket: folder and token of the application, from the task.
    :param deadline: end of the wait, in seconds since 1970; None for no limit.
    :param poll_interval: seconds between polls, with a jitter of a fifth.

    Fires ``{"status": "over"}``; ``{"status": "unseen"}`` if this user cannot read such a folder on
    this machine; or ``{"status": "timeout"}``. A trigger that restarts in another triggerer polls
    again, so nothing is missed. When a user ends or clears the deferred task, it ends the
    application, unless another task has resumed that. If the task is still deferred the
    application stays: Airflow also calls `on_kill` in a triggerer whose heartbeat was late, and
    which lost the trigger to another one.
    """

    def __init__(
        self,
        *,
        ticket: Mapping[str, Any],
        deadline: float | None = None,
        poll_interval: float = 5.0,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ticket = dict(ticket)
        self.deadline = deadline
        self.poll_interval = poll_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and its arguments."""
        return class_path(self), arguments_of(self, TubeMQApplicationTrigger)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll until there is an event to fire."""
        application = Application.of_ticket(self.ticket)
        self.log.info("waiting for the Spark application in %s", application.folder)
        while True:
            # The folder may be on a network file system, which must not block the other triggers.
            status = await asyncio.to_thread(_status, application)
            left = None if self.deadline is None else self.deadline - time.time()
            if status == "running" and left is not None and left <= 0:
                status = "timeout"
            if status != "running":
                yield TriggerEvent({"status": status})  # type: ignore[no-untyped-call]
                return
            pause = jittered(self.poll_interval)
            await asyncio.sleep(pause if left is None else min(pause, left))

    async def on_kill(self) -> None:
        """End the application if a user has ended or cleared the task.

        Where Airflow does not report that, the application keeps running; a later try resumes it.
        """
        if await self._is_awaited():
            self.log.info("the task is still deferred: %s keeps running", self.ticket["folder"])
            return
        ended = await asyncio.to_thread(_end, Application.of_ticket(self.ticket), self.ticket)
        self.log.info(
            "%s %s", self.ticket["folder"], "is ended" if ended else "is left to another task"
        )

    async def _is_awaited(self) -> bool:
        """Return True if the task is still deferred, or Airflow cannot tell."""
        if self.task_instance is None:
            return False
        try:
            return await self.task_state() == "deferred"
        except Exception as exc:  # noqa: BLE001 - an outage is not a user's decision
            self.log.warning("the state of the task is unknown: %s", exc)
            return True

    async def task_state(self) -> str | None:
        """Return the current state of the task instance; None if it is cleared or gone."""
        from airflow.sdk.execution_time.comms import GetTaskStates
        from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

        ti: Any = self.task_instance
        request = GetTaskStates(
            dag_id=ti.dag_id, run_ids=[ti.run_id], task_ids=[ti.task_id], map_index=ti.map_index
        )
        reply: Any = await SUPERVISOR_COMMS.asend(request)
        states = reply.task_states.get(ti.run_id, {})
        # The key of a mapped task instance contains its index.
        return next(iter(states.values()), None)


def _status(application: Application) -> str:
    try:
        # In this order: a process writes its result before it ends.
        running, result, order = application.running, application.result, application.order
    except OSError:
        return "unseen"
    if order is None:
        return "unseen"
    return "running" if running and result is None else "over"


def _end(application: Application, ticket: Mapping[str, Any]) -> bool:
    try:
        return application.end_for(ticket)
    except OSError:
        return False
