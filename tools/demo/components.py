"""Components of the demo: a server process, an Airflow, and the commands a user would type.

Everything listens on loopback and lives in one work folder. Every process is started here, in a new
session (so that Ctrl-C at the terminal reaches only the demo, which then stops them in order), and
is stopped by its pid.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from rich.console import Console

from tools.devkit.quick_java import QUICK_JAVA

__all__ = ["DemoFailed", "Folder", "airflow_environment", "run_command", "say", "serving", "step"]

REPOSITORY = Path(__file__).resolve().parents[2]
TOPIC = "flights"
GROUP = "lake_flights"

_START_S = 60.0
_STOP_S = 20.0

console = Console(highlight=False)
_started = time.monotonic()


class DemoFailed(RuntimeError):
    """A step failed; the message names it and the log to read."""


def say(text: str) -> None:
    """Print one line of progress."""
    console.print(text, markup=False, soft_wrap=True)


def step(title: str) -> None:
    """Print the title of a step, with the seconds since the start."""
    seconds = time.monotonic() - _started
    console.print(f"\n[bold]{title}[/bold]  [dim]{seconds:.0f} s[/dim]", soft_wrap=True)


class Folder:
    """The work folder. `claim` empties it; a second demo in it is refused."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.flights = self.root / "flights.csv"
        self.boundaries = self.root / "boundaries.json"
        self.lake = self.root / "lake" / TOPIC
        self.airflow = self.root / "airflow"
        self.task_logs = self.airflow / "logs"
        self.server_log = self.root / "server.log"
        self._lock: IO[str] | None = None

    def claim(self) -> None:
        """Lock and empty the folder. Raises `DemoFailed` while another demo runs in it."""
        self.root.mkdir(parents=True, exist_ok=True)
        self._lock = (self.root / "lock").open("a")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoFailed(f"another demo is running in {self.root}") from None
        for path in (self.flights, self.boundaries, self.server_log, self.root / "ready.json"):
            path.unlink(missing_ok=True)
        for directory in (self.lake.parent, self.airflow):
            shutil.rmtree(directory, ignore_errors=True)
        # A sink creates only its own directory: a missing parent may be an unmounted volume.
        self.lake.parent.mkdir()


def run_command(
    name: str, command: Sequence[str], arguments: Sequence[object], environment: Mapping[str, str]
) -> Any:
    """Run a command like a user would, show it as `name`, and return its JSON output."""
    words = [str(word) for word in arguments]
    say(f"$ {name} " + " ".join(_short(word) for word in words))
    done = subprocess.run(
        [*command, *words, "--output", "jsonl"],
        env=dict(environment),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise DemoFailed(f"{name} {words[0]} ended with code {done.returncode}")
    return json.loads(done.stdout)


@contextmanager
def serving(folder: Folder, command: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Run a server as a separate process; yield the content of its ready file. It is stopped when
    the context ends."""
    ready = folder.root / "ready.json"
    with folder.server_log.open("w") as log:
        process = subprocess.Popen(
            [*command, "--ready-file", str(ready)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _wait_for(ready, process, folder.server_log)
            yield json.loads(ready.read_text())
        finally:
            _stop(process)


def airflow_environment(folder: Folder, every: str, engine: str, variables: str) -> dict[str, str]:
    """Return variables of the example Dags (topic, paths, schedule), prefixed with `variables`, and
    Airflow settings for a demo."""
    return {
        # Only the runs that the demo requests, none for yesterday.
        "AIRFLOW__SCHEDULER__USE_JOB_SCHEDULE": "False",
        # A JVM that lives for seconds should not spend them on optimisation.
        "SPARK_SUBMIT_OPTS": QUICK_JAVA,
        f"{variables}_TOPIC": TOPIC,
        f"{variables}_INTERVAL_GROUP": GROUP,
        f"{variables}_INTERVAL_PATH": str(folder.lake),
        f"{variables}_BOUNDARIES": str(folder.boundaries),
        f"{variables}_SCHEDULE": {"day": "@daily", "week": "@weekly", "month": "@monthly"}[every],
        f"{variables}_ENGINE": engine,
    }


def _wait_for(ready: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while not ready.exists():
        if process.poll() is not None:
            raise DemoFailed(f"the server ended with code {process.returncode}; see {log}")
        if time.monotonic() > deadline:
            raise DemoFailed(f"the server was not ready within {_START_S:.0f} s; see {log}")
        time.sleep(0.1)


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_STOP_S)


def _short(word: str) -> str:
    """Return paths below the repository as a reader would type them."""
    path = Path(word)
    return str(path.relative_to(REPOSITORY)) if path.is_relative_to(REPOSITORY) else word
