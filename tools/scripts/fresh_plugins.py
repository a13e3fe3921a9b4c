"""`make test-plugins`: plug-ins of all six kinds, from wheels, in an environment with nothing else.

Builds the pure wheel of this project and one of each example under `plugins/examples`, installs
them into `build/fresh-plugins`, and there, without the repository on the path: lists the words,
lets a running Airflow run a Dag whose tasks use a plug-in of each kind, and materialises assets
that do, each twice.
Exits with 1 if a window is not there exactly once.

The second half of this file runs in that environment, and so imports nothing of the repository.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "build" / "fresh-plugins"
EXTRAS: Final = "airflow,lake,dagster"
WORDS: Final = {
    "source": "text_lines",
    "sink": "folder",
    "engine": "logging",
    "offset_store": "files",
    "resolver": "everything",
    "decoder": "words",
}
_PORT: Final = 28431
_DAG: Final = """
from datetime import UTC, datetime

from airflow.sdk import DAG

from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator, TubeMQWindowIngestOperator

GIVEN = {
    "source": "text_lines", "topic": "orders", "tubemq_conn_id": "lines", "cluster": "main",
    "engine": "logging", "decode": "words", "offset_store": "files",
    "plugin_options": {"sink": {"below": "raw"}},
}

with DAG("plugins", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)):
    TubeMQCursorIngestOperator(
        task_id="cursor", group="cursor", sink="folder:cursor", initial_position="earliest", **GIVEN
    ) >> TubeMQWindowIngestOperator(
        task_id="window", group="window", sink="folder:window", resolver="everything",
        start="1990-01-01T00:00:00Z", end="2026-01-01T00:00:00Z", **GIVEN
    )
"""


def main() -> int:
    """Make the environment unless it is there, and run the checks in it."""
    parser = argparse.ArgumentParser(prog="make test-plugins", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="keep the packages of the last time")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.inside:
        return _check(Path(chosen.inside))
    python = _environment(keep=chosen.keep)
    with tempfile.TemporaryDirectory(prefix="tubemq-plugins-") as folder:
        command = [str(python), "-I", __file__, "--inside", folder]
        return subprocess.run(command, cwd=folder, check=False, timeout=7200).returncode


def _environment(*, keep: bool) -> Path:
    """Return the Python of the new environment, with the wheels."""
    wheels, place = FOLDER / "wheels", FOLDER / "venv"
    python = place / "bin" / "python"
    uv = str(Path(sys.executable).with_name("uv"))
    shutil.rmtree(wheels, ignore_errors=True)
    build = "from hatchling.build import build_wheel; import sys; build_wheel(sys.argv[1])"
    for project in (ROOT, *sorted((ROOT / "plugins" / "examples").iterdir())):
        wheels.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [sys.executable, "-c", build, str(wheels)],
            cwd=project,
            env={**os.environ, "TUBEMQ_NATIVE": "0"},
            check=True,
        )
    (own,) = wheels.glob("airflow_provider_tubemq-*.whl")
    others = sorted(map(str, set(wheels.glob("*.whl")) - {own}))
    install = [uv, "pip", "install", "--quiet", "--python", str(python)]
    if not (keep and python.exists()):
        limits = FOLDER / "limits.txt"
        lines = (ROOT / "requirements" / "all.lock").read_text().splitlines()
        pins = [line.split("\\")[0].strip() for line in lines if "==" in line and line[0] != " "]
        limits.write_text("\n".join(pins) + "\n")
        make = [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(place)]
        subprocess.run(make, check=True)
        subprocess.run([*install, "--constraint", str(limits), f"{own}[{EXTRAS}]"], check=True)
    again = [*install, "--reinstall", "--no-deps", str(own), *others]
    subprocess.run(again, check=True)
    return python


# In the new environment ----------------------------------------------------------------------


def _check(folder: Path) -> int:
    """Run all checks; return the exit code."""
    topic = folder / "cluster" / "orders"
    topic.mkdir(parents=True)
    (topic / "p0").write_text("apple 1\npear 2\n")
    (topic / "p1").write_text("plum 3\n")
    os.environ |= _settings(folder)
    results = {
        "words": _words(folder),
        "a Dag": _dag(folder),
        "assets": _assets(folder),
    }
    for name, problem in results.items():
        print(f"{name}: {problem or 'as promised'}", flush=True)
    return int(any(results.values()))


def _settings(folder: Path) -> dict[str, str]:
    """Return the environment of the processes of Airflow, and of the plug-ins."""
    connection = {
        "conn_type": "text_lines",
        "extra": {"root": str(folder / "cluster"), "cluster": "main"},
    }
    return {
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PARALLELISM": "2",
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{_PORT}/execution/",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder}/airflow.db",
        "AIRFLOW_CONN_LINES": json.dumps(connection),
        "DAGSTER_HOME": "",
        "EXAMPLE_LAKE": str(folder / "lake"),
        "EXAMPLE_STORE": str(folder / "store"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }


def _words(folder: Path) -> str:
    """Return what is missing among the words that the command lists; "" for nothing."""
    _airflow(folder, "db", "migrate")
    listed = _airflow(folder, "tubemq", "plugins", "-o", "json")
    rows = json.loads(listed[listed.index("[") :])
    known = {(row["kind"], row["word"]) for row in rows if row["state"] == "ok"}
    missing = [f"{kind} {word}" for kind, word in WORDS.items() if (kind, word) not in known]
    return f"not listed: {', '.join(missing)}" if missing else ""


def _dag(folder: Path) -> str:
    """Return the problem of a Dag that a running Airflow runs twice; "" for none."""
    file = folder / "dags" / "plugins.py"
    file.parent.mkdir()
    file.write_text(_DAG)
    (folder / "lake" / "raw").mkdir(parents=True)
    with _running_airflow(folder):
        _airflow(folder, "dags", "reserialize")
        _airflow(folder, "dags", "unpause", "plugins")
        for run_id in ("first", "second"):
            _airflow(folder, "dags", "trigger", "plugins", "--run-id", run_id)
            if (state := _state_of(run_id, folder)) != "success":
                logs = sorted((folder / "airflow" / "logs").rglob("*.log"))
                texts = [log.read_text()[-1500:] for log in logs if run_id in str(log)]
                return f"run {run_id}: {state}\n" + "\n".join(texts)
    return _written(folder / "lake" / "raw", "cursor", "window")


@contextmanager
def _running_airflow(folder: Path) -> Iterator[None]:
    """Run an API server, a scheduler and a Dag processor on loopback."""
    components = (
        ("api-server", "--host", "127.0.0.1", "--port", str(_PORT), "--workers", "1"),
        ("scheduler", "--skip-serve-logs"),
        ("dag-processor",),
    )
    started = []
    try:
        for words in components:
            output = (folder / f"{words[0]}.out").open("wb")
            command = [str(Path(sys.executable).with_name("airflow")), *words]
            started.append(
                subprocess.Popen(
                    command, cwd=folder, stdout=output, stderr=output, start_new_session=True
                )
            )
        _wait_for_api()
        yield
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGTERM)
        for process in started:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _wait_for_api() -> None:
    """Wait two minutes for the API server to answer. Raises `OSError` if it does not."""
    for seconds_left in reversed(range(120)):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{_PORT}/api/v2/version", timeout=10).close()
        except OSError:
            if not seconds_left:
                raise
            time.sleep(1)
        else:
            return


def _airflow(folder: Path, *words: str) -> str:
    """Run a command of Airflow; return what it printed. Raises `CalledProcessError`."""
    command = [str(Path(sys.executable).with_name("airflow")), *words]
    return subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout


def _state_of(run_id: str, folder: Path) -> str:
    """Wait five minutes for a run to end; return its state."""
    state = "not there"
    for _ in range(300):
        with closing(sqlite3.connect(folder / "airflow.db")) as database:
            found = database.execute("SELECT state FROM dag_run WHERE run_id = ?", (run_id,))
            state = (found.fetchone() or (state,))[0]
        if state in ("success", "failed"):
            break
        time.sleep(1)
    return state


def _assets(folder: Path) -> str:
    """Return the problem of assets that are materialised twice; "" for none."""
    import dagster as dg

    from tubemq_provider.dagster import PluginResource, build_tubemq_asset

    resource = PluginResource(
        kind="text_lines",
        cluster="main",
        offsets_dir=str(folder / "offsets"),
        offset_store="files",
        options={"root": str(folder / "cluster")},
    )
    given: dict[str, Any] = {
        "source": "text_lines",
        "topic": "orders",
        "engine": "logging",
        "decode": "words",
        "resource_key": "lines",
        "plugin_options": {"sink": {"below": "assets"}},
    }
    (folder / "lake" / "assets").mkdir()
    cursor = build_tubemq_asset(
        "cursor", group="cursor", sink="folder:cursor", initial_position="earliest", **given
    )
    ages = dg.TimeWindowPartitionsDefinition(
        start="1990-01-01", end="2026-01-01", fmt="%Y-%m-%d", cron_schedule="0 0 1 1 *"
    )
    window = build_tubemq_asset(
        "window",
        group="window",
        sink="folder:window",
        partitions_def=ages,
        resolver="everything",
        **given,
    )
    for _ in range(2):
        resources = {"lines": resource}
        dg.materialize([cursor], resources=resources)
        # The year in which the ends change from the logs' starts to their ends.
        dg.materialize([window], partition_key="1999-01-01", resources=resources)
    return _written(folder / "lake" / "assets", "cursor", "window")


def _written(lake: Path, *names: str) -> str:
    """Return which lake has other words than the topic, each once; "" for none."""
    import pyarrow.parquet as pq

    for name in names:
        files = sorted((lake / name).rglob("part*.parquet"))
        words = [row["word"] for file in files for row in pq.ParquetFile(file).read().to_pylist()]
        if sorted(words) != ["apple", "pear", "plum"]:
            return f"{name} has {sorted(words)}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
