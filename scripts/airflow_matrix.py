"""`make test-airflow-matrix`: what is promised for Airflow 3.1 and 3.2, each on the real thing.

Each release gets an environment of its own in `build/airflow-<release>`. Airflow pins little of
what it stands on, so what has changed under it since its release is pinned here. What is played
there is `devkit.airflow.older`. Exits with 1 if a promise is not kept.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from typing import Final

from scripts.environments import ROOT, environment

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
LIMIT_S: Final = 600


def main() -> int:
    """Make the environments that are not there yet, and play in each."""
    parser = argparse.ArgumentParser(prog="make test-airflow-matrix", description=__doc__)
    parser.add_argument("releases", nargs="*", default=list(PINS), help="3.1 3.2")
    failed = False
    for release in parser.parse_args().releases:
        python = environment(f"airflow-{release}", EXTRAS, [*PINS[release], *TOOLS])
        with tempfile.TemporaryDirectory(prefix="tubemq-airflow-") as home:
            found = subprocess.run(
                [str(python), "-m", "devkit.airflow.older"],
                cwd=ROOT,
                env={**os.environ, "AIRFLOW_HOME": home},
                timeout=LIMIT_S,
                check=False,
            )
        failed |= bool(found.returncode)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
