"""Local supervisor of a driver that runs in a cluster: ``python -m … supervisor``.

It starts `spark-submit` in cluster mode, maintains the application's folder as a local driver would
(progress, result, the lock that shows it runs), and has the application ended by its manager on
request. It survives the task; started again for the same folder, it resumes the application with
the folder's tag and submits no second one. This module must not publish or judge anything.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tubemq_provider.engines.applications import Application
from tubemq_provider.engines.cluster_documents import Exchange
from tubemq_provider.engines.outcome import error_document
from tubemq_provider.engines.submit_main import secrets_from
from tubemq_provider.engines.yarn import Yarn
from tubemq_provider.windows.errors import WindowError
from tubemq_provider.windows.plan import WindowPlan

__all__ = ["Supervisor", "end_driver", "main"]

log = logging.getLogger(__name__)

_POLL_S: Final = 1.0
_ASK_EVERY: Final = 5
"""Polls between two requests to the manager, while no `spark-submit` waits for the application."""

_PATIENCE: Final = 24
"""Consecutive requests without an answer, two minutes, after which an application counts as
lost."""


class Supervisor:
    """Supervisor of one application. Submits it with `command`, else watches the one that runs."""

    def __init__(
        self,
        application: Application,
        *,
        exchange: Exchange,
        yarn: Yarn,
        tag: str,
        command: list[str] | None,
        look_s: float = _POLL_S,
    ) -> None:
        self._application = application
        self._exchange = exchange
        self._yarn = yarn
        self._tag = tag
        self._command = command
        self._look_s = look_s
        self._child: subprocess.Popen[bytes] | None = None
        self._unknown = 0
        self._unread = 0
        self._polls = 0
        self.terminated = False

    def run(self) -> None:
        """Watch until there is an outcome, none can come any more, or a stop is requested.
        Blocks."""
        if self._command is not None:
            self._child = subprocess.Popen(self._command, stdin=subprocess.DEVNULL)
        try:
            while not self._is_over():
                # A signal handler sets a flag instead of an event, whose lock could deadlock there.
                threading.Event().wait(self._look_s)
        finally:
            if self._child is not None:
                self._child.kill()
                self._child.wait()

    def _is_over(self) -> bool:
        self._application.bound_log()
        if self.terminated or self._application.stop_requested:
            end_driver(self._exchange, self._yarn, self._tag)
            return True
        # In this order: a driver writes its result before it ends.
        gone = self._is_gone()
        try:
            progress_document, result = self._exchange.report, self._exchange.result
        except OSError as error:
            return self._is_out_of_reach(error, gone=gone)
        self._unread = 0
        if progress_document and progress_document != self._application.report:
            self._application.write_report(progress_document)
        if result is None and gone:
            with suppress(OSError):
                self._exchange.request_stop()  # the manager may just not have answered
            result = self._lost(
                f"its application ended in the cluster without a result, or {self._yarn} knows "
                f"none with the tag {self._tag}"
            )
        if result is not None:
            self._application.finish(result)
        return result is not None

    def _is_out_of_reach(self, error: OSError, *, gone: bool) -> bool:
        """Handle a store that does not answer. If it still fails long after the application has
        ended, for example with an expired token, the result counts as lost."""
        log.warning("%s", error)
        self._unread += gone
        if self._unread < _PATIENCE:
            return False
        why = f"its application ended in the cluster, and its result cannot be read: {error}"
        self._application.finish(self._lost(why))
        return True

    def _is_gone(self) -> bool:
        """Return True if the application has ended. While `spark-submit` runs, it waits for that;
        afterwards, or without it, the manager is asked. A manager that does not answer is asked for
        a while, unless `spark-submit` has already reported the end."""
        if self._child is not None and self._child.poll() is None:
            return False
        self._polls += 1
        if self._polls % _ASK_EVERY != 1:
            return False
        application = self._yarn.find(self._tag)
        self._unknown = 0 if application else self._unknown + 1
        return (
            application.over
            if application
            else self._unknown >= (_PATIENCE if self._child is None else 1)
        )

    def _lost(self, why: str) -> dict[str, Any]:
        order = self._application.order or {}
        plan = WindowPlan.from_document(order["plan"])
        text = (
            f"window {plan.window_id}: {why}; nothing of it is published, a retry reads the window "
            f"again. The log of spark-submit is {self._application.log}, and ends:\n"
            f"{self._application.log_tail()}"
        )
        return {"v": 1, "hash": plan.hash, "error": error_document(WindowError(text))}


def end_driver(exchange: Exchange | None, yarn: Yarn | None, tag: str) -> None:
    """End the driver with `tag`, by a stop request and through its manager: either is enough."""
    if exchange is not None:
        with suppress(OSError):
            exchange.request_stop()
    application = None if yarn is None else yarn.find(tag)
    if yarn is not None and application is not None and not application.over:
        agreed = yarn.kill(application.id)
        log.info("%s is %s", application.id, "killed" if agreed else "asked to end")


def main(
    folder: str, secrets: str, command: list[str], environment: Mapping[str, str] = os.environ
) -> None:
    """Supervise the application in `folder`; `secrets` is the file that the task has written."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    application = Application(Path(folder))
    order = application.order
    if order is None:
        raise SystemExit(f"{folder} has no order")
    cluster = order["cluster"]
    supervisor = Supervisor(
        application,
        exchange=Exchange(cluster["exchange"], secrets_from(secrets)["storage"]),
        yarn=Yarn.of(cluster["hadoop"], environment),
        tag=cluster["tag"],
        command=command or None,
    )

    def terminate(*_: object) -> None:
        supervisor.terminated = True

    signal.signal(signal.SIGTERM, terminate)
    supervisor.run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
