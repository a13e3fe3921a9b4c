"""`airflow` commands in forks of one process, which has imported Airflow.

Starting `airflow` costs five seconds of a processor, a fork some milliseconds. Each command still
has a separate process, with its own memory, connections and exit code.

    python -m tools.devkit.airflow.commands    reads a JSON list of words per line, answers per line
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from tools.devkit.reaper import Reaper

__all__ = ["AirflowCommands", "with_repository"]

_REPOSITORY: Final = Path(__file__).resolve().parents[3]
_IMPORTS: Final = (
    "airflow.__main__",
    "tubemq_provider.cli.checks",
    "tubemq_provider.cli.offsets",
    "tubemq_provider.cli.windows",
)


def with_repository(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process that runs a module of `tools`."""
    path = filter(None, [str(_REPOSITORY), environment.get("PYTHONPATH")])
    return {**environment, "PYTHONPATH": os.pathsep.join(path)}


class AirflowCommands:
    """The process, started by the first command. Not for use by two threads at once."""

    def __init__(self, environment: Mapping[str, str], folder: Path, reaper: Reaper) -> None:
        self._environment = dict(environment)
        self._folder = folder
        self._reaper = reaper
        self._process: subprocess.Popen[str] | None = None

    def run(self, words: Sequence[str], timeout: float) -> subprocess.CompletedProcess[str]:
        """Run `airflow <words>` to its end. Raises `TimeoutExpired` and stops the process then."""
        process = self._process = self._process or self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(list(words)) + "\n")
        process.stdin.flush()
        readable, _, _ = select.select([process.stdout], [], [], timeout)
        if not readable:
            self.stop()
            raise subprocess.TimeoutExpired(["airflow", *words], timeout)
        line = process.stdout.readline()
        if not line:
            self.stop()
            raise RuntimeError(f"the process for commands ended before airflow {' '.join(words)}")
        code, output, errors = json.loads(line)
        return subprocess.CompletedProcess(["airflow", *words], code, output, errors)

    def stop(self) -> None:
        """Stop the process and a command that still runs."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.communicate(timeout=30)
        self._reaper.forget(process.pid)

    def _started(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tools.devkit.airflow.commands"],
            env=with_repository(self._environment),
            cwd=self._folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._reaper.watch(process.pid)
        return process


def main() -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what imports print is no answer
    for name in _IMPORTS:
        importlib.import_module(name)
    importlib.import_module("airflow.cli.cli_parser").get_parser()
    importlib.import_module("airflow.models").import_all_models()
    importlib.import_module("sqlalchemy.orm").configure_mappers()
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line))), file=answers, flush=True)


def _answer(words: list[str]) -> tuple[int, str, str]:
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        pid = os.fork()
        if pid == 0:
            os._exit(_run(words, output, errors))
        _, status = os.waitpid(pid, 0)
        output.seek(0)
        errors.seek(0)
        return os.waitstatus_to_exitcode(status), output.read(), errors.read()


def _run(words: list[str], output: IO[str], errors: IO[str]) -> int:
    """Run the command in this process; return its exit code."""
    run_airflow = importlib.import_module("airflow.__main__").main
    os.dup2(output.fileno(), 1)
    os.dup2(errors.fileno(), 2)
    sys.argv = ["airflow", *words]
    code: object = 0
    try:
        run_airflow()
    except SystemExit as exc:
        code = exc.code
    except BaseException:  # noqa: BLE001 - printed and counted as Python does at its end
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    main()
