"""Kill plans: the tries to hit, the victim and the time; and the killer inside the task's process.

A plan depends on the seed and the task's name alone, so a seed gives the same victims again
(whether they are reached at the same moment is up to the machine). Half of the kills come at points
between two actions of a window run, the other half at any moment. This module must not import
Airflow: Dags use it, and so do tests.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

__all__ = ["KillLog", "KillPlan", "Killer", "TaskKey", "plan_of"]

POINTS = 30
"""Approximate number of points that a window run passes; a later one is struck at the end."""

_LATER_TRIES = {2: 0.5, 3: 0.25}
_MOMENT_S = 0.7
_SPARK_MOMENT_S = 12.0
_PATIENCE_S = 60.0
_LOOK_S = 0.05


@dataclass(frozen=True)
class TaskKey:
    """A try of a task of a run."""

    dag_id: str
    run_id: str
    map_index: int
    try_number: int


@dataclass(frozen=True)
class KillPlan:
    """`victim` is ``task``, ``supervisor``, ``jvm`` or ``python-worker``; struck at the `point`-th
    point of the run or, without one, `after_s` seconds after it began (or was seen)."""

    victim: str
    point: int | None
    after_s: float


def plan_of(seed: str, share: float, task: TaskKey, *, spark: bool) -> KillPlan | None:
    """Return the plan of a try, or None.

    About `share` of first tries are hit, fewer second and third ones, and no later ones, so that
    every task ends.
    """
    source = random.Random(f"{seed}|{task}")  # noqa: S311 - repeatable on purpose
    odds = share if task.try_number == 1 else share * _LATER_TRIES.get(task.try_number, 0.0)
    if source.random() >= odds:
        return None
    kinds = {"task": 4, "supervisor": 1}
    if spark:
        kinds = {"task": 3, "supervisor": 1, "jvm": 4, "python-worker": 4}
    victim = source.choices(list(kinds), list(kinds.values()))[0]
    point = source.randrange(POINTS) if source.random() < 0.5 else None
    moment = source.random() * (_SPARK_MOMENT_S if spark else _MOMENT_S)
    if victim in {"jvm", "python-worker"}:
        return KillPlan(victim, None, source.random() * 3)
    return KillPlan(victim, point, moment)


class KillLog:
    """A file that every process of a drill appends lines to; one `write` each, so none is torn."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    def add(self, **line: Any) -> None:
        """Append a line; it survives a kill after this returns."""
        text = json.dumps({"at": round(time.time(), 3), **line}) + "\n"
        with self._path.open("ab", buffering=0) as file:
            file.write(text.encode())

    def lines(self) -> list[dict[str, Any]]:
        """Return all lines so far."""
        if not self._path.exists():
            return []
        return [json.loads(line) for line in self._path.read_text().splitlines()]


class Killer:
    """A step observer that executes a plan on the process it runs in, or on its children."""

    def __init__(self, inner: Any, plan: KillPlan | None, log: KillLog, task: TaskKey) -> None:
        self._inner = inner
        self._plan = plan
        self._log = log
        self._task = task
        self._passed = 0
        self._struck = plan is None
        if plan is not None and plan.point is None:
            threading.Thread(target=self._wait_and_strike, name="drill", daemon=True).start()

    def at(self, step: Any, point: str) -> None:
        """Handle a point of the run; the inner observer may raise here."""
        self._inner.at(step, point)
        if not self._struck and self._plan is not None and self._plan.point == self._passed:
            self._strike(f"{step}: {point}")
        self._passed += 1

    def finish(self) -> None:
        """Handle the end of the run, before its success is reported: the last chance to strike."""
        if not self._struck and self._plan is not None and self._plan.point is not None:
            self._strike("after the run")

    def _wait_and_strike(self) -> None:
        assert self._plan is not None
        if self._plan.victim in {"task", "supervisor"}:
            time.sleep(self._plan.after_s)
            self._strike(f"after {self._passed} points")
            return
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            if _children(self._plan.victim):
                time.sleep(self._plan.after_s)
                self._strike(f"after {self._passed} points")
                return
            time.sleep(_LOOK_S)

    def _strike(self, where: str) -> None:
        assert self._plan is not None
        self._struck = True
        victim = self._plan.victim
        pids = {"task": [os.getpid()], "supervisor": [os.getppid()]}.get(victim)
        if pids is None:
            pids = _children(victim)
        if pids:
            pid = pids[self._task.try_number % len(pids)]
            self._log.add(victim=victim, pid=pid, where=where, **asdict(self._task))
            os.kill(pid, signal.SIGKILL)


def _children(victim: str) -> list[int]:
    """Return pids of the JVM, or of Spark's Python processes (workers, or the daemon that forks
    them), below this process."""
    pids = []
    for child in psutil.Process().children(recursive=True):
        try:
            name, words = child.name(), " ".join(child.cmdline())
        except psutil.Error:
            continue
        if name == "java" if victim == "jvm" else "pyspark" in words and name != "java":
            pids.append(child.pid)
    return pids
