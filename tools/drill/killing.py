"""Kills from outside: the brokers, Airflow's components, and tasks at any moment.

The time of a kill depends on progress (windows published so far), victim and moment on the seed. A
killed component is started again by a timer of the drill, as an init system or Kubernetes would;
that is no repair. Windows whose task runs at that moment count as hit. Nothing here requests work
or audits.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from tools.devkit.airflow.stack import AirflowStack
from tools.drill.cluster import TubeMQ, Writer
from tools.drill.control import Control
from tools.drill.kill_plan import KillLog

__all__ = ["Killing"]

_EVERY = {"broker": 25, "api-server": 60, "scheduler": 90, "dag-processor": 120, "task": 12}
"""One kill per this many windows, and at least one of each in a round."""

_MAX_DOWN_S = 2.0
_LAST_TRY = 3


class Killing:
    """Kills due victims (see `step`), and restarts them a moment later, on a separate thread:
    callers of the API server wait for its return."""

    def __init__(
        self,
        airflow: AirflowStack,
        tubemq: TubeMQ,
        writer: Writer,
        control: Control,
        log: KillLog,
        source: random.Random,
    ) -> None:
        self._airflow = airflow
        self._tubemq = tubemq
        self._writer = writer
        self._control = control
        self._log = log
        self._source = source
        self._due: list[tuple[int, str]] = []
        self._restart: Future[None] | None = None
        self._starter = ThreadPoolExecutor(1, "restart")

    def plan(self, windows: int) -> None:
        """Spread the kills of a round over its `windows`, each at a random position in its part."""
        for victim, every in _EVERY.items():
            count = max(1, round(windows / every))
            part = windows / count
            self._due += [
                (int((number + self._source.random()) * part), victim) for number in range(count)
            ]
        self._due.sort()

    def step(self, published: int) -> None:
        """Kill one victim that is due by now, if any. Raises the error of a failed restart."""
        if self._restart is not None and self._restart.done():
            self.rest()
        if self._restart is None:
            self._revive()
        if self._due and self._due[0][0] <= published and self._restart is None:
            _, victim = self._due.pop(0)
            if victim == "task":
                self._kill_a_task()
            else:
                self._kill_component(victim)

    def _revive(self) -> None:
        """Start components that ended without a kill, as Airflow's scheduler does when its database
        reports a deadlock."""
        for name in self._airflow.ended():
            self._log.add(victim=f"{name} by itself", pid=0, running=[])
            self._airflow.restart(name)

    def rest(self) -> None:
        """Wait until everything that was killed runs again."""
        if self._restart is not None:
            self._restart.result()
            self._restart = None

    def revive(self) -> None:
        """Kill nothing; start components that ended without a kill."""
        if self._restart is None or self._restart.done():
            self.rest()
            self._revive()

    def stop(self) -> None:
        """Stop killing; a killed component is started again first."""
        self._due.clear()
        self._starter.shutdown()
        self._restart = None

    def _kill_a_task(self) -> None:
        """Kill any process that Airflow reports for a running task; it may have ended meanwhile."""
        running = [
            task
            for task in self._control.running_tasks()
            if task["pid"] and task["try_number"] <= _LAST_TRY
        ]
        if not running:
            return
        chosen = self._source.choice(running)
        try:
            os.kill(int(chosen["pid"]), signal.SIGKILL)
        except ProcessLookupError:
            return
        self._log.add(victim="task", where="from outside", **_task_key(chosen))

    def _kill_component(self, victim: str) -> None:
        bystanders = self._control.running_tasks()
        down_s = self._source.random() * _MAX_DOWN_S
        back: Callable[[], None]
        if victim == "broker":
            pid = self._tubemq.kill()
            self._writer.brokers_died()
            back = self._tubemq.start
        else:
            # Half of the schedulers die alone, and leave workers with tasks behind.
            whole = victim != "scheduler" or self._source.random() < 0.5
            pid = self._airflow.kill(victim, whole_group=whole)
            back = lambda: self._airflow.restart(victim)  # noqa: E731
        self._log.add(victim=victim, pid=pid, running=[_task_key(task) for task in bystanders])
        self._restart = self._starter.submit(_run_after, down_s, back)


def _run_after(seconds: float, act: Callable[[], None]) -> None:
    time.sleep(seconds)
    act()


def _task_key(task: dict[str, Any]) -> dict[str, Any]:
    return {
        "dag_id": task["dag_id"],
        "run_id": task["dag_run_id"],
        "map_index": task["map_index"],
        "try_number": task["try_number"],
    }
