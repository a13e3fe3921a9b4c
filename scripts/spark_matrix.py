"""`make test-spark-matrix`: the data source's tests on several releases of PySpark.

Each release gets an environment of its own in `build/spark-<release>`, with the locked versions of
everything else (pyspark and what it brings are resolved again). The tests are those of `make
test-spark` for the data source; streams are left out below 4.2, which has no limits for Python
sources. Prints a line for each release and exits with 1 if one of them failed or ran no test.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from scripts.environments import ROOT, environment, locked

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
)
NEW = re.compile(r"^(pyspark|py4j)\b")
LIMIT_S = 1500


def main() -> int:
    """Make the environments that are not there yet, and play the tests in each."""
    parser = argparse.ArgumentParser(prog="make test-spark-matrix", description=__doc__)
    parser.add_argument("releases", nargs="*", default=RELEASES, help="4.1 4.2 4.3")
    parser.add_argument("--only-setup", action="store_true", help="make the environments only")
    options, more = parser.parse_known_args()
    failed = False
    for release in options.releases:
        python = _environment(release)
        if not options.only_setup:
            failed |= not _play(release, python, more)
    return int(failed)


def _environment(release: str) -> Path:
    constraints = [name for name in locked() if not NEW.match(name)]
    packages = [f"pyspark=={release}.*", *TOOLS]
    return environment(f"spark-{release}", EXTRAS, packages, constraints)


def _play(release: str, python: Path, more: list[str]) -> bool:
    report = ROOT / "build" / "reports" / f"spark-{release}.xml"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    marks = "spark and not (airflow or real or soak)"
    without = ["--ignore-glob=*/test_stream*.py"] if release < "4.2" else []
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": str(python),
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
    }
    subprocess.run(
        [
            str(python),
            "-m",
            "pytest",
            "-q",
            "tests/provider/spark",
            "-m",
            marks,
            *without,
            f"--junitxml={report}",
            *more,
        ],
        cwd=ROOT,
        env=environment,
        timeout=LIMIT_S,
        check=False,
    )
    # Written by the line above.
    suite = ElementTree.parse(report).getroot().find("testsuite")  # noqa: S314
    assert suite is not None
    ran, skipped = int(suite.attrib["tests"]), int(suite.attrib["skipped"])
    bad = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
    print(
        f"PySpark {release}: {ran - skipped - bad} passed, {bad} failed, {skipped} skipped",
        flush=True,
    )
    return not bad and ran > skipped


if __name__ == "__main__":
    sys.exit(main())
