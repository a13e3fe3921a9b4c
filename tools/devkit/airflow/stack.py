"""Airflow's own components as child processes on loopback: start, use, stop.

`running_airflow` yields an `AirflowStack`: API server, scheduler (LocalExecutor), dag processor
and, on request, a triggerer. Log servers are never started, since they listen on every interface.
Each component leads a process group, and signals go to groups: a supervisor and its task end with
the scheduler that forked them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from tools.devkit.airflow.api import FINISHED, AirflowApi, AirflowApiError
from tools.devkit.airflow.commands import AirflowCommands, with_repository
from tools.devkit.airflow.database import DatabaseKind, metadata_database
from tools.devkit.airflow.home import AirflowHome
from tools.devkit.reaper import Reaper

__all__ = ["AirflowStack", "running_airflow"]

_COMMANDS: dict[str, tuple[str, ...]] = {
    "api-server": ("api-server", "--host", "127.0.0.1", "--workers", "1"),
    "dag-processor": ("dag-processor",),
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "triggerer": ("triggerer", "--skip-serve-logs"),
}
_FORKING = ("dag-processor", "scheduler")
"""Components that fork a process for each file or task."""
_WORKER = "worker-"
_STOP_SECONDS = 15.0


def _command(name: str) -> tuple[str, ...]:
    if not name.startswith(_WORKER):
        return _COMMANDS[name]
    # Its events would go through the broker, which has no listener for them.
    options = ("--celery-hostname", f"{name}@%h", "--concurrency", "2", "--skip-serve-logs")
    return ("celery", "worker", *options, "--without-mingle", "--without-gossip")


class AirflowStack:
    """A running Airflow. `api` is its client, `home` has its files."""

    def __init__(self, home: AirflowHome, reaper: Reaper) -> None:
        self.home = home
        self._reaper = reaper
        self.api = AirflowApi(home.url)
        self._commands = AirflowCommands(home.env(), home.root, reaper)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._killed: list[subprocess.Popen[bytes]] = []
        self._outputs: list[IO[bytes]] = []

    def migrate(self) -> None:
        """Create the tables. Blocks for some seconds."""
        self.cli("db", "migrate")

    def start(
        self,
        *,
        triggerer: bool = False,
        api_only: bool = False,
        workers: int = 0,
        timeout: float = 240.0,
    ) -> None:
        """Start the components, or the API server alone, and wait until the API answers. `workers`
        of Celery are called ``worker-1``, ``worker-2`` …"""
        for name in ("api-server",) if api_only else _COMMANDS:
            if name != "triggerer" or triggerer:
                self._spawn(name)
        for number in range(workers):
            self._spawn(f"{_WORKER}{number + 1}")
        self.api.wait(self._healthy, timeout, f"the API server at {self.home.url}")

    def stop(self) -> None:
        """Stop every component: terminate its process group, kill what remains."""
        self._commands.stop()
        for process in reversed(self._processes.values()):
            _signal_group(process, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_SECONDS
        for process in self._processes.values():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass
            _signal_group(process, signal.SIGKILL)
            process.wait(30)
            self._reaper.forget(process.pid)
        for process in self._killed:
            # Its leader is dead; the children may not be.
            _signal_group(process, signal.SIGKILL)
            self._reaper.forget(process.pid)
        self._processes.clear()
        self._killed.clear()
        for output in self._outputs:
            output.close()
        self._outputs.clear()
        self.api.close()

    def cli(self, *arguments: str, timeout: float = 240.0) -> str:
        """Run `airflow <arguments>` to its end; return its output. Raises with its last lines."""
        done = self._commands.run(arguments, timeout)
        if done.returncode:
            tail = "\n".join((done.stdout + done.stderr).splitlines()[-25:])
            raise AirflowApiError(
                f"airflow {' '.join(arguments)} exited {done.returncode}:\n{tail}"
            )
        return done.stdout

    def wait_for_dags(self, dag_ids: Sequence[str], timeout: float = 180.0) -> None:
        """Block until all Dags are parsed; import errors are raised as soon as they appear."""

        def parsed() -> bool:
            errors = self.api.import_errors()
            if errors:
                raise AirflowApiError("\n".join(str(e.get("stack_trace")) for e in errors))
            return all(self.api.dag_known(dag_id) for dag_id in dag_ids)

        self.api.wait(parsed, timeout, f"the Dags {', '.join(dag_ids)}", period=1.0)

    def watch(self, dag_id: str) -> None:
        """Unpause a Dag with watchers, and touch its file: watchers start when it is parsed."""
        self.api.pause(dag_id, paused=False)
        os.utime(self.home.dags_folder / f"{dag_id}.py")

    def run_dag(
        self, dag_id: str, conf: Mapping[str, Any] | None = None, *, timeout: float = 240.0
    ) -> str:
        """Trigger a run, wait for it, and return its id. Raises with the task logs if it failed."""
        run_id = self.api.trigger(dag_id, conf)
        self.expect_success(dag_id, run_id, timeout=timeout)
        return run_id

    def expect_success(self, dag_id: str, run_id: str, *, timeout: float = 240.0) -> None:
        """Block until the run is over; raise with its task logs unless it succeeded."""
        try:
            state = self.api.wait_for_run(dag_id, run_id, timeout)
        except AirflowApiError as exc:
            raise AirflowApiError(f"{exc}\n{self.logs(dag_id, run_id)}") from exc
        if state != "success":
            raise AirflowApiError(f"{dag_id} {run_id}: {state}\n{self.logs(dag_id, run_id)}")

    def backfill(
        self,
        dag_id: str,
        from_date: str,
        to_date: str,
        *,
        reprocess: str = "none",
        timeout: float = 240.0,
    ) -> list[dict[str, Any]]:
        """Run `airflow backfill create` and wait; return all backfill runs of the Dag.

        `reprocess` decides about intervals that have a run: ``none``, ``failed`` or ``completed``.
        The Dag must not be paused, or its backfill runs wait. Airflow closes a backfill up to half
        a minute after its last run, and refuses another one until then; therefore this waits for an
        earlier one to be closed, but not for its own.
        """
        self.api.wait(
            lambda: all(item["completed_at"] for item in self.api.backfills(dag_id)),
            timeout,
            f"an earlier backfill of {dag_id} to be closed",
            period=1.0,
        )
        self.cli(
            *("backfill", "create", "--dag-id", dag_id),
            *("--from-date", from_date, "--to-date", to_date),
            *("--reprocess-behavior", reprocess, "--max-active-runs", "2"),
        )

        def finished() -> list[dict[str, Any]] | None:
            runs = [run for run in self.api.runs(dag_id) if run["run_type"] == "backfill"]
            return runs if all(run["state"] in FINISHED for run in runs) else None

        return self.api.wait(finished, timeout, f"the backfill of {dag_id}", period=1.0)

    def logs(self, dag_id: str, run_id: str, task_id: str = "*") -> str:
        """Return the log text of all tries of the matching tasks of a run, from the log folder."""
        pattern = f"dag_id={dag_id}/run_id={run_id}/task_id={task_id}/*.log"
        files = sorted(self.home.log_folder.glob(pattern))
        return "\n".join(f"--- {f.parent.name} {f.name}\n{f.read_text()}" for f in files)

    def component_log(self, name: str) -> str:
        """Return the output of a component so far."""
        return self._log_file(name).read_text(errors="replace")

    def process_ids(self) -> dict[str, int]:
        """Return the process (and process group) id of each component."""
        return {name: process.pid for name, process in self._processes.items()}

    def kill_task(self, dag_id: str, run_id: str, task_id: str) -> int:
        """SIGKILL the process that runs the task right now; return its pid."""
        pid = int(self.api.task(dag_id, run_id, task_id)["pid"])
        os.kill(pid, signal.SIGKILL)
        return pid

    def ended(self) -> list[str]:
        """List components whose process has ended, for any reason."""
        return [name for name, process in self._processes.items() if process.poll() is not None]

    def kill(self, name: str, *, whole_group: bool = True) -> int:
        """SIGKILL a component; return its pid. `restart` starts it again.

        Without `whole_group` only the process itself dies: the workers of a scheduler stay behind
        without it, as after the out-of-memory killer, until the stack is stopped.
        """
        process = self._processes[name]
        if whole_group:
            _signal_group(process, signal.SIGKILL)
        else:
            process.kill()
        process.wait(30)
        return process.pid

    def restart(self, name: str) -> None:
        """Start a component that was killed. Returns at once."""
        self._killed.append(self._processes[name])
        self._spawn(name)

    def _spawn(self, name: str) -> None:
        output = self._log_file(name).open("ab")
        self._outputs.append(output)
        preloaded = (sys.executable, "-m", "tools.devkit.airflow.preloaded")
        airflow = preloaded if name in _FORKING else ("airflow",)
        process = self._processes[name] = subprocess.Popen(
            [*airflow, *_command(name)],
            env=with_repository(self.home.env()),
            cwd=self.home.root,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._reaper.watch(process.pid)

    def _log_file(self, name: str) -> Path:
        return self.home.root / f"{name}.out"

    def _healthy(self) -> bool:
        for name, process in self._processes.items():
            if process.poll() is not None:
                tail = "\n".join(self.component_log(name).splitlines()[-25:])
                raise AirflowApiError(f"airflow {name} exited {process.returncode}:\n{tail}")
        return self.api.alive()


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        pass


@contextmanager
def running_airflow(
    dags_folder: Path,
    *,
    database: DatabaseKind = "postgres",
    root: Path | None = None,
    triggerer: bool = False,
    api_only: bool = False,
    seed: Callable[[str], None] | None = None,
    **home_options: Any,
) -> Iterator[AirflowStack]:
    """Start a fresh Airflow over `dags_folder`; it is removed when the context ends.

    `seed` gets the URL of the metadata database before any component starts.

    `root` keeps its files (logs, configuration) after the end; without it they are deleted.
    `home_options` are the fields of `AirflowHome`: connections, variables, environment …
    """
    with ExitStack() as stack:
        if root is None:
            scratch = tempfile.TemporaryDirectory(prefix="airflow-", ignore_cleanup_errors=True)
            root = Path(stack.enter_context(scratch))
        root.mkdir(parents=True, exist_ok=True)
        reaper = Reaper()
        stack.callback(reaper.close)
        url = stack.enter_context(metadata_database(database, root, reaper))
        airflow = AirflowStack(AirflowHome(root, url, dags_folder, **home_options), reaper)
        stack.callback(airflow.stop)
        airflow.migrate()
        if seed is not None:
            seed(url)
        airflow.start(triggerer=triggerer, api_only=api_only)
        yield airflow
