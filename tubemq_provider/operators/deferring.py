"""How an ingest task waits without a worker slot: what it leaves, and what it is when it is back.

A task that is deferred has no process. The Spark application goes on in its own, a trigger looks at
its folder, and the task that comes back takes the same steps as at first: it finds its plan, its
marker or its application, and so nothing but the steps of a window run decides what is published.
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
from tubemq_provider.ingest.engine_arguments import DEFERRABLE_ENGINES
from tubemq_provider.windows.protocols import Suspended

if TYPE_CHECKING:
    from tubemq_provider.ingest.arguments import IngestArguments
    from tubemq_provider.ingest.job import IngestJob
    from tubemq_provider.windows.protocols import Document

__all__ = ["Attendance"]

_GRACE_S = 120.0
"""Airflow's own limit on a deferral is so much later than the trigger's, which ends in the task."""


@dataclass
class Attendance:
    """What a try of a task knows of its own past: since when it runs, and what it waited for.

    - `limit`: seconds that the try may take over all its deferrals; None for any time.
    - `started`: when the try began, in seconds since 1970.
    - `ticket`: of the application that it waited for, if it was deferred.
    - `status`: what the trigger said.
    """

    limit: float | None
    started: float
    ticket: Document | None = None
    status: str = ""

    @classmethod
    def begins(cls, limit: timedelta | None) -> Attendance:
        """A try begins."""
        return cls(None if limit is None else limit.total_seconds(), time.time())

    @classmethod
    def goes_on(
        cls, limit: timedelta | None, event: Mapping[str, Any], started: float, ticket: Document
    ) -> Attendance:
        """A deferred try is back."""
        again = cls.begins(limit)
        again.started, again.ticket, again.status = started, ticket, str(event.get("status", ""))
        return again

    @property
    def left(self) -> float | None:
        """Seconds that are left of the limit; None without one."""
        return None if self.limit is None else self.limit - (time.time() - self.started)

    def prepare(self, job: IngestJob, arguments: IngestArguments, log: Any) -> None:
        """Tell `job` whether it may suspend, or what it goes on with."""
        if self.ticket is not None:
            if self.status == "unseen":
                log.warning(
                    "the triggerer cannot look into %s, so this task waits itself; name a "
                    "spark_work_dir that workers and triggerers share",
                    self.ticket["folder"],
                )
            job.expect(self.ticket)
        elif _wanted(arguments):
            job.may_suspend()

    @contextmanager
    def attending(self, log: Any) -> Iterator[None]:
        """The body is the run: where it suspends, the task is deferred; a deferred task that is
        back has what is left of its time."""
        self._refuse_late()
        try:
            if self.ticket is None or self.left is None:
                yield
            else:
                with _alarm(self.left):
                    yield
        except Suspended as suspended:
            log.info(
                "the Spark application goes on without this task, in %s; the triggerer waits for "
                "it",
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
            raise AirflowTaskTimeout(f"the task took longer than {self.limit:.0f} s, all told")


def _wanted(arguments: IngestArguments) -> bool:
    """Whether the task waits in the triggerer: as its author says, or Airflow's configuration."""
    if arguments.engine not in DEFERRABLE_ENGINES:
        return False
    if arguments.deferrable is not None:
        return arguments.deferrable
    return bool(conf.getboolean("operators", "default_deferrable", fallback=False))


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Airflow's own alarm counts from the moment when the task came back."""
    from airflow.sdk.execution_time.timeout import timeout

    with timeout(seconds):  # type: ignore[no-untyped-call]
        yield
