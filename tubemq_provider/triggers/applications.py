"""`TubeMQApplicationTrigger`: waits in the triggerer for the Spark application of a deferred task.

It looks at the application's folder and nowhere else, and only says when a worker slot is worth it:
the task then reads the outcome itself, and publishes. This module must not publish or judge, and
knows no secret.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from tubemq_provider.engines.applications import Application
from tubemq_provider.triggers._watch import jittered

__all__ = ["TubeMQApplicationTrigger"]


class TubeMQApplicationTrigger(BaseTrigger):
    """Fire once when an application is over: when it has left a result, or is gone without one.

    :param ticket: what the task has left for it: folder and token.
    :param deadline: when to give up waiting, in seconds since 1970; None never.
    :param poll_interval: seconds between looks, a fifth more or less.

    Fires ``{"status": "over"}``; ``{"status": "unseen"}`` if there is no such folder on this
    machine that this user may look at; or ``{"status": "timeout"}``. A trigger that begins anew, in
    another triggerer, looks anew: nothing that happened meanwhile is missed. When a user ends or
    clears the deferred task, it ends the application, unless another task has taken that up. A task
    that is still deferred keeps it: Airflow also calls `on_kill` in a triggerer that has lost the
    trigger to another one, as its heart stood still for a while.
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
        """The class and its arguments."""
        arguments = {
            "ticket": self.ticket,
            "deadline": self.deadline,
            "poll_interval": self.poll_interval,
        }
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look until there is something to say."""
        application = Application.of_ticket(self.ticket)
        self.log.info("waiting for the Spark application in %s", application.folder)
        while True:
            # A folder may be on a network file system, which must not stop the other triggers.
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
        """A user has ended or cleared the task: nobody will publish what the application writes.
        Where Airflow does not say so, the application goes on; a next try takes it up."""
        if await self._is_awaited():
            self.log.info("the task is still deferred: %s goes on", self.ticket["folder"])
            return
        ended = await asyncio.to_thread(_end, Application.of_ticket(self.ticket), self.ticket)
        self.log.info(
            "%s %s", self.ticket["folder"], "is ended" if ended else "is left to another task"
        )

    async def _is_awaited(self) -> bool:
        """Whether the task is deferred all the same, or Airflow cannot say."""
        if self.task_instance is None:
            return False
        try:
            return await self.task_state() == "deferred"
        except Exception as exc:  # noqa: BLE001 - a database that is away is no word of a user
            self.log.warning("no word on the state of the task: %s", exc)
            return True

    async def task_state(self) -> str | None:
        """What Airflow says of the task instance now; None for one that is cleared or gone."""
        from airflow.sdk.execution_time.comms import GetTaskStates
        from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

        ti: Any = self.task_instance
        asked = GetTaskStates(
            dag_id=ti.dag_id, run_ids=[ti.run_id], task_ids=[ti.task_id], map_index=ti.map_index
        )
        found: Any = await SUPERVISOR_COMMS.asend(asked)
        states = found.task_states.get(ti.run_id, {})
        # One that is mapped is named with its index.
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
