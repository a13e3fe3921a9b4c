"""An author who edits a Dag on a running Airflow, by hand:
``python -m tests.system.airflow.edits --edits 200 --seed 0``.

The histories are those of `tests.provider.edits.editor`, whose judgement they share: where windows
go, group, filters, mode, resolver, granularity, timetable and zone, the task's id and the store of
progress are edited between tries, clears and runs. Here the file of the Dag is rewritten below
Airflow's own processes on PostgreSQL, tries are killed at a point of their choice, and Airflow
tries them again. Edits come while a try stands at its point, or between two runs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.provider.edits.editor import TIMETABLES, Editor, Run, Wrong, topic_of_quarters
from tests.system.airflow.edited_dag import dag_file, edited_dag
from tools.devkit.airflow.api import FINISHED, AirflowApiError
from tools.devkit.airflow.stack import AirflowStack, running_airflow
from tubemq_client.errors import ConfigError
from tubemq_provider.operators.partitions import partition_end
from tubemq_provider.windows.canonical import rfc3339

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["AirflowEditor", "main"]

_EDITS_PER_HISTORY: Final = 10
_TRY_SECONDS: Final = 150.0


class AirflowEditor(Editor):
    """One history on a running Airflow, on a Dag, a folder of lakes and groups of its own."""

    def __init__(self, seed: int, root: Path, stack: AirflowStack) -> None:
        super().__init__(seed, root)
        self.stack = stack
        self.dag_id = f"edited_{seed}"
        self._written = 0
        self._run_ids: dict[str, str] = {}
        self._logs: dict[str, str] = {}
        """By run, the log that was judged already."""
        boundaries = root.parent / "boundaries.json"
        boundaries.write_text(json.dumps(self.boundaries))
        self._write()
        stack.api.pause(self.dag_id, paused=False)

    # -- the Dag

    def _edit(self, *, between_tries: bool = False) -> None:
        """Edit the file. Airflow does not end a run whose task is renamed between two tries."""
        before, task_id = self.edits.total(), self.dag["task_id"]
        super()._edit()
        if between_tries and self.dag["task_id"] != task_id:
            self.dag["task_id"] = task_id
        elif self.edits.total() != before:
            self._write()

    def _write(self) -> None:
        """Write the Dag's file, and wait until Airflow has parsed it."""
        self._written += 1
        number, api = self._written, self.stack.api
        file = self.stack.home.dags_folder / f"{self.dag_id}.py"
        file.with_suffix(".new").write_text(dag_file(self.dag_id, self.root, self.dag, number))
        file.with_suffix(".new").replace(file)

        def parsed() -> bool:
            if not api.dag_known(self.dag_id):
                return False
            tags = api.call("GET", f"/dags/{self.dag_id}")["tags"]
            tasks = api.call("GET", f"/dags/{self.dag_id}/tasks")["tasks"]
            return any(tag["name"] == f"edit-{number}" for tag in tags) and any(
                task["task_id"] == self.dag["task_id"] for task in tasks
            )

        api.wait(parsed, 120.0, f"edit {number} of {self.dag_id}")

    # -- a run

    def _attempt(self, run: Run, *, kill: str | None) -> None:
        stop, reached = self.root / "stop", self.root / "reached"
        reached.unlink(missing_ok=True)
        stop.unlink(missing_ok=True)
        if kill is not None:
            stop.write_text(kill)
        self._expect(run)
        what = self._begin(run)
        while not self._is_over(run, reached):
            pid = int(reached.read_text())
            reached.unlink()
            self.outcomes["killed"] += 1
            self.moves.append(f"{what}: stands at {kill}")
            for _ in range(self.random.randrange(3)):
                self._edit(between_tries=True)
            kill = self._point()
            if kill is not None:
                stop.write_text(kill)
            self._expect(run)
            os.kill(pid, signal.SIGKILL)
        self._judge_run(run, what)
        self._judge_sinks()

    def _expect(self, run: Run) -> None:
        """Keep the interval that the next try gets if it is the task's first."""
        if self.dag["mode"] != "time":
            return
        task_id = self.dag["task_id"]
        if run.span is not None:
            start, end = run.span
        else:
            dag = edited_dag(self.dag_id, str(self.root), self._plain(), 0)
            assert run.date is not None
            try:
                after = partition_end({"dag": dag}, run.date, self.dag["granularity"])
            except ConfigError:
                return  # refused before it has one
            if after is None:
                return
            start, end = run.date, after
        run.intervals.setdefault(task_id, (rfc3339(start), rfc3339(end)))

    def _plain(self) -> dict[str, Any]:
        hours = self.dag["granularity"]
        return {**self.dag, "granularity": hours and int(hours.total_seconds() // 3600)}

    def _begin(self, run: Run) -> str:
        """Trigger the run, or clear it."""
        api = self.stack.api
        if run.run_id not in self._run_ids:
            body: dict[str, Any] = {"dag_run_id": run.run_id}
            if run.date is not None:
                zone = getattr(TIMETABLES[self.dag["timetable"]], "_timezone", None)
                local: datetime = run.date if zone is None else run.date.astimezone(zone)
                body["partition_key"] = f"{local:%Y-%m-%dT%H:%M:%S}"
            else:
                assert run.span is not None
                start, end = (at.isoformat() for at in run.span)
                body |= {
                    "logical_date": start,
                    "data_interval_start": start,
                    "data_interval_end": end,
                }
            self._run_ids[run.run_id] = api.trigger(self.dag_id, **body)
            return f"{run.run_id} begins as {self.dag['task_id']}"
        clear = {"dry_run": False, "only_failed": False, "run_on_latest_version": True}
        api.call("POST", f"/dags/{self.dag_id}/dagRuns/{run.run_id}/clear", json=clear)
        run.clears += 1
        return f"{run.run_id} is cleared as {self.dag['task_id']}"

    def _is_over(self, run: Run, reached: Path) -> bool:
        """Wait until the run is over (True), or a try stands at its point."""
        deadline = time.monotonic() + _TRY_SECONDS
        while not reached.exists():
            if self.stack.api.run(self.dag_id, run.run_id)["state"] in FINISHED:
                return True
            if time.monotonic() > deadline:
                log = self.stack.logs(self.dag_id, run.run_id)[-4000:]
                raise AirflowApiError(f"run {run.run_id} of {self.dag_id} does not end\n{log}")
            time.sleep(0.2)
        return False

    # -- what must hold

    def _judge_run(self, run: Run, what: str) -> None:
        api, task_id = self.stack.api, self.dag["task_id"]
        state = api.task(self.dag_id, run.run_id, task_id)["state"]
        events = self._new_events(run, task_id)
        run.green = state == "success"
        if not run.green:
            reasons = [text for text in events if any(word in text for word in _REFUSALS)]
            if not reasons:
                raise Wrong(f"{run.run_id} ended {state} without a refusal: {events[-8:]}")
            kind = re.findall(
                r"\b[A-Z]\w+(?=: )", reasons[-1].replace("AirflowFailException: ", "")
            )
            self.outcomes[f"{state}: {kind[0] if kind else reasons[-1][:30]}"] += 1
            self.moves.append(f"{what}: {state}: {reasons[-1]}")
            if self.undo is not None and self.random.random() < 0.6:
                self.dag, self.undo = self.undo, None
                self.moves.append("the edit is taken back")
                self._write()
        else:
            result = api.xcom(self.dag_id, run.run_id, task_id)
            self.outcomes["green"] += 1
            self.moves.append(f"{what}: green {result['window_id']} {result['total']}")
            self.told |= {(low, high) for low, high in result["missing"]}
            task = edited_dag(self.dag_id, str(self.root), self._plain(), 0).get_task(task_id)
            self._judge_result(run, task, result)  # type: ignore[arg-type]
        self._judge_takeovers(events)

    def _new_events(self, run: Run, task_id: str) -> list[str]:
        """Return what the task has logged since it was judged last."""
        whole = self.stack.logs(self.dag_id, run.run_id, task_id)
        key = f"{run.run_id}/{task_id}"
        before, self._logs[key] = self._logs.get(key, ""), whole
        lines = whole.splitlines()[len(before.splitlines()) :]
        return [_event(line) for line in lines]

    def _judge_takeovers(self, events: list[str]) -> None:
        """Check that a window that a try takes over is the one that it reads."""
        taken: str | None = None
        for line in events:
            if "takes over window" in line:
                taken = line.partition("takes over window ")[2].partition(",")[0]
            elif ": window " in line and " -> " in line:
                if taken is not None and taken not in line:
                    raise Wrong(f"the log says that {taken} is taken over, and then {line!r}")
                taken = None


_REFUSALS: Final = ("AirflowFailException: ", "Process terminated by signal", "Retriable")


def _event(line: str) -> str:
    try:
        entry = json.loads(line)
    except ValueError:
        return line
    text = str(entry.get("event", line))
    for detail in entry.get("error_detail") or ():
        text += f" {detail.get('exc_type')}: {detail.get('exc_value')}"
    return text


def play(seed: int, edits: int, root: Path, stack: AirflowStack) -> AirflowEditor:
    """Play one history; what goes wrong is raised with its moves as a note."""
    editor = AirflowEditor(seed, root / f"h{seed}", stack)
    try:
        editor.play(edits)
    except Exception as error:
        error.add_note("\n".join(editor.moves))
        raise
    finally:
        stack.api.pause(editor.dag_id, paused=True)
    return editor


def main() -> int:
    """Play histories of ten edits each; the exit status is 1 if one went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edits", type=int, default=200, help="how many, over all histories")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    given = parser.parse_args()
    edits: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    wrong = 0
    ledger = "tubemq_provider.offsets.ledger"
    with tempfile.TemporaryDirectory() as directory, topic_of_quarters():
        root, dags = Path(directory), Path(directory, "dags")
        dags.mkdir()
        with running_airflow(
            dags,
            connections={"tubemq_default": json.loads(os.environ["AIRFLOW_CONN_TUBEMQ_DEFAULT"])},
            environment={
                "AIRFLOW__SCHEDULER__USE_JOB_SCHEDULE": "False",
                "AIRFLOW__STATE_STORE__BACKEND": f"{ledger}.backend.TubeMQStateBackend",
                "AIRFLOW__DATABASE__EXTERNAL_DB_MANAGERS": f"{ledger}.db_manager.LedgerDBManager",
            },
            parallelism=2,
            root=root / "airflow",
        ) as stack:
            for seed in range(given.seed, given.seed + -(-given.edits // _EDITS_PER_HISTORY)):
                try:
                    played = play(seed, _EDITS_PER_HISTORY, root, stack)
                except Exception as error:  # noqa: BLE001 - it is reported, and the others run
                    wrong += 1
                    notes = "\n".join(getattr(error, "__notes__", ()))
                    print(f"seed {seed}: {type(error).__name__}: {error}\n{notes}", flush=True)
                else:
                    edits += played.edits
                    outcomes += played.outcomes
                    print(f"seed {seed}: {dict(played.outcomes)}", flush=True)
    print(f"edits: {edits.total()} {dict(edits)}")
    print(f"tries: {outcomes.total()} {dict(outcomes)}")
    print(f"histories that went wrong: {wrong}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
