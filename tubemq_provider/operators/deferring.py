"""Deferral of an ingest task: wait for a Spark application without a worker slot.

A deferred task has no process. The Spark application keeps running in its own process, a trigger
polls its folder, and the resumed task runs the same steps as the first time: it finds its plan, its
marker or its application. So only the steps of a window run decide what is published.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tubemq_provider._airflow import AirflowTaskTimeout, TaskDeferred, conf
from tubemq_provider.engines.applications import Application
from tubemq_provider.ingest.options import DEFERRABLE_ENGINES
from tubemq_provider.windows.protocols import Suspended

if TYPE_CHECKING:
    from tubemq_provider.ingest.arguments import IngestArguments
    from tubemq_provider.ingest.job import IngestJob
    from tubemq_provider.windows.protocols import Document

__all__ = ["TryState"]

_GRACE_S = 120.0
"""Seconds that Airflow's timeout of a deferral leaves to the trigger's, which ends in the task."""


@dataclass
class TryState:
    """State of a try across its deferrals: its start, and the application that it waited for.

    - `limit`: seconds that the try may take, deferrals included; None for no limit.
    - `started`: when the try began, in seconds since 1970.
    - `ticket`: ticket of the application that it waited for, if it was deferred.
    - `status`: status in the trigger event.
    """

    limit: float | None
    started: float
    ticket: Document | None = None
    status: str = ""

    @classmethod
    def fresh(cls, limit: timedelta | None) -> TryState:
        """Return the state of a try that begins."""
        return cls(None if limit is None else limit.total_seconds(), time.time())

    @classmethod
    def resumed(
        cls, limit: timedelta | None, event: Mapping[str, Any], started: float, ticket: Document
    ) -> TryState:
        """Return the state of a try that resumes after a deferral."""
        resumed = cls.fresh(limit)
        resumed.started, resumed.ticket, resumed.status = (
            started,
            ticket,
            str(event.get("status", "")),
        )
        return resumed

    @property
    def left(self) -> float | None:
        """Seconds left of the limit; None without one."""
        return None if self.limit is None else self.limit - (time.time() - self.started)

    def prepare(self, job: IngestJob, arguments: IngestArguments, log: Any) -> None:
        """Let `job` suspend, or give it the application to resume."""
        if self.ticket is not None:
            if self.status == "unseen":
                log.warning(
                    "the triggerer cannot read %s, so this task waits itself; name a "
                    "spark_work_dir that workers and triggerers share",
                    self.ticket["folder"],
                )
            job.expect(self.ticket)
        elif _is_deferrable(arguments):
            job.may_suspend()

    @contextmanager
    def defer_when_suspended(self, log: Any) -> Iterator[None]:
        """Run the body, and defer the task where it suspends.

        A resumed task gets only the rest of its time.
        """
        self._refuse_late()
        try:
            if self.ticket is None or self.left is None:
                yield
            else:
                with _alarm(self.left):
                    yield
        except Suspended as suspended:
            log.info(
                "the Spark application keeps running without this task, in %s; the triggerer "
                "waits for it",
                suspended.ticket["folder"],
            )
            raise self._deferred(suspended.ticket) from None

    def _deferred(self, ticket: Document) -> TaskDeferred:
        from tubemq_provider.triggers.applications import TubeMQApplicationTrigger

        left = self.left
        return TaskDeferred(
            trigger=TubeMQApplicationTrigger(
                ticket=ticket, deadline=None if left is None else time.time() + left
            ),
            method_name="execute_complete",
            kwargs={"started": self.started, "ticket": ticket},
            timeout=None if left is None else timedelta(seconds=max(left, 0.0) + _GRACE_S),
        )

    def _refuse_late(self) -> None:
        """Raise `AirflowTaskTimeout`, and end the application, if the time is over."""
        if self.ticket is None or self.limit is None:
            return
        if self.status == "timeout" or (self.left or 0.0) <= 0:
            Application.of_ticket(self.ticket).end_for(self.ticket)
            raise AirflowTaskTimeout(f"the task took longer than {self.limit:.0f} s in all")


def _is_deferrable(arguments: IngestArguments) -> bool:
    """Return True if the task waits in the triggerer.

    Its author decides, else Airflow's configuration.
    """
    if arguments.engine not in DEFERRABLE_ENGINES:
        return False
    if arguments.deferrable is not None:
        return arguments.deferrable
    return bool(conf.getboolean("operators", "default_deferrable", fallback=False))


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Arm Airflow's alarm; Airflow's own one counts from the moment when the task resumed."""
    from airflow.sdk.execution_time.timeout import timeout

    with timeout(seconds):  # type: ignore[no-untyped-call]
        yield
