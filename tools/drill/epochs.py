"""Changes in mid-round: recreated logs, brokers with other disks, other schedules.

Between two epochs the drill lets its tasks end, kills the brokers, keeps the content of their files
for the audit, and empties the disk of one broker or of all. Then it acts as the operator: it
requests a window of every Dag, waits for the error that the group's progress belongs to other logs,
and follows that error's advice (`airflow tubemq offsets epoch`, then clear the failed task). A
window that succeeds instead is a finding. This module must not audit lakes.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tools.devkit.airflow.api import AirflowApiError
from tools.devkit.airflow.stack import AirflowStack
from tools.drill.cluster import BROKERS, TOPIC, Log, TubeMQ, Writer, read_log
from tools.drill.control import Control
from tools.drill.work import Boundaries, Quota, Work

__all__ = ["LogEpochs", "epoch_name"]

_REST_S = 300.0
_ADVICE_S = 240.0
_COMMAND_S = 120.0
_PARSED_S = 180.0
_LOOK_S = 1.0
_AT_ONCE = 3
_ADVICE = re.compile(r"airflow\s+tubemq\s+offsets\s+epoch\s+(\S+)")


def epoch_name(number: int) -> str:
    """Return the epoch that groups follow in the `number`-th life of a round; the first has no
    name."""
    return f"life-{number + 1}" if number else ""


class LogEpochs:
    """Logs of a round so far, one per epoch."""

    def __init__(
        self,
        airflow: AirflowStack,
        tubemq: TubeMQ,
        writer: Writer,
        control: Control,
        source: random.Random,
        life_file: Path,
    ) -> None:
        self._airflow = airflow
        self._tubemq = tubemq
        self._writer = writer
        self._control = control
        self._source = source
        self._life_file = life_file
        self.past: list[Log] = []
        self.changes: Counter[str] = Counter()
        self.problems: list[str] = []

    def end(self, boundaries: Boundaries, work: Work) -> None:
        """End the present epoch: its logs are kept for the audit, and new ones start."""
        self._tubemq.kill()
        self._writer.brokers_died()
        self.past.append(read_log(self._tubemq.data))
        emptied = list(range(1, BROKERS + 1))
        if self._source.random() < 0.5:
            emptied = [self._source.choice(emptied)]
            self.changes["disks replaced"] += 1
        else:
            self.changes["topics recreated"] += 1
        for broker in emptied:
            for store in self._tubemq.stores(broker):
                store.unlink()
        minutes = 2 if boundaries.lives[-1].minutes == 1 else 1
        life = {"minutes": minutes, "epoch": epoch_name(len(self.past))}
        self._life_file.write_text(json.dumps(life))
        self.changes["schedules changed"] += 1
        self._tubemq.start()
        boundaries.recreate_logs(minutes)
        work.recreate_logs()

    def await_schedule(self, names: list[str], minutes: int, step: Callable[[], object]) -> None:
        """Wait until Airflow knows the new schedule of these Dags."""
        for name in names:
            deadline = time.monotonic() + _PARSED_S
            while f"*/{minutes} " not in self._control.schedule(name):
                if time.monotonic() > deadline:
                    self.problems.append(f"{name}: the new schedule was never parsed")
                    break
                step()
                time.sleep(_LOOK_S)

    def follow_error_advice(
        self, todo: list[Quota], work: Work, step: Callable[[], object]
    ) -> None:
        """Request a window of every Dag, and follow the advice of its error."""
        before = {(run["dag_id"], run["dag_run_id"]) for run in self._control.failed()}
        # Explicit windows name the epoch themselves.
        waiting = {quota.dag_id: quota for quota in todo if quota.kind != "mapped"}
        for quota in waiting.values():
            work.request_one(quota)
        deadline = time.monotonic() + _ADVICE_S
        with ThreadPoolExecutor(_AT_ONCE, "operator") as operators:
            begun = []
            while waiting and time.monotonic() < deadline:
                step()
                for run in self._control.failed():
                    fresh = (run["dag_id"], run["dag_run_id"]) not in before
                    if fresh and run["dag_id"] in waiting:
                        del waiting[run["dag_id"]]
                        begun.append(operators.submit(self._follow, run))
                time.sleep(_LOOK_S)
            for done in begun:
                done.result()
        self.problems += [f"{name}: no error about the recreated logs" for name in waiting]

    def _follow(self, run: dict[str, Any]) -> None:
        dag_id, run_id = run["dag_id"], run["dag_run_id"]
        advice = _ADVICE.search(_plain(self._airflow.logs(dag_id, run_id)))
        if advice is None:
            self.problems.append(f"{dag_id} {run_id}: the error gives no advice")
            return
        epoch = epoch_name(len(self.past))
        command = ("tubemq", "offsets", "epoch", f"drill/{TOPIC}/{dag_id}", epoch, "--yes")
        for last in (False, True):  # A killed scheduler or database may refuse once.
            try:
                self._airflow.cli(*command, timeout=_COMMAND_S)
                break
            except AirflowApiError as error:
                if last:
                    self.problems.append(f"{dag_id}: {error}")
                    return
                time.sleep(_LOOK_S)
        self._control.clear(dag_id, run_id)
        self.changes["epochs begun"] += 1


def wait_until_idle(control: Control, step: Callable[[], object]) -> bool:
    """Wait until no run is active; return False after the time limit."""
    deadline = time.monotonic() + _REST_S
    while control.active():
        if time.monotonic() > deadline:
            return False
        step()
        time.sleep(_LOOK_S)
    return True


def _plain(log: str) -> str:
    """Return a log without the line breaks that wrap its errors, also in JSON."""
    return log.replace("\\n", " ").replace("\\t", " ")
