"""`make test-spark-matrix`: the data source's tests on several releases of PySpark.

Each release gets an environment of its own in `build/spark-<release>`, with the locked versions of
everything else (pyspark and what it brings are resolved again). The tests are those of `make
test-spark` for the data source; streams are left out below 4.2, which has no limits for Python
sources. Prints a line for each release and exits with 1 if one of them failed, did not end in time
or ran no test.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from itertools import takewhile
from pathlib import Path
from xml.etree import ElementTree

from scripts.environments import ROOT, environment, locked, played

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
RELEASE = re.compile(r"\d+\.\d+")
NEW = re.compile(r"^(pyspark|py4j)\b")
LIMIT_S = 1500


def main() -> int:
    """Make the environments that are not there yet, and play the tests in each."""
    releases, only_setup, more = _arguments(sys.argv[1:])
    failed = False
    for release in releases:
        python = _environment(release)
        if not only_setup:
            failed |= not _play(release, python, more)
    return int(failed)


def _arguments(given: list[str]) -> tuple[list[str], bool, list[str]]:
    """Releases, whether to make environments only, and what is for pytest: `-k format` as well,
    whose second word argparse would take for a release."""
    usage = "make test-spark-matrix ARGS='[4.1 4.2 4.3] [--only-setup] [arguments of pytest]'"
    parser = argparse.ArgumentParser(usage=usage, description=__doc__)
    parser.add_argument("--only-setup", action="store_true", help="make the environments only")
    releases = list(takewhile(RELEASE.fullmatch, given))
    options, more = parser.parse_known_args(given[len(releases) :])
    if options.only_setup and more:
        parser.error(f"plays nothing that {' '.join(more)} could be for; releases come first")
    return releases or list(RELEASES), options.only_setup, more


def _environment(release: str) -> Path:
    constraints = [name for name in locked() if not NEW.match(name)]
    packages = [f"pyspark=={release}.*", *TOOLS]
    return environment(f"spark-{release}", EXTRAS, packages, constraints)


def _play(release: str, python: Path, more: list[str]) -> bool:
    report = ROOT / "build" / "reports" / f"spark-{release}.xml"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    without = ["--ignore-glob=*/test_stream*.py"] if release < "4.2" else []
    tests = ["tests/provider/spark", "-m", "spark and not (airflow or real or soak)", *without]
    variables = {
        "PYSPARK_PYTHON": str(python),
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
    }
    command = [str(python), "-m", "pytest", "-q", *tests, f"--junitxml={report}", *more]
    return _kept(release, played(command, LIMIT_S, variables), report)


def _kept(release: str, code: int, report: Path) -> bool:
    """Whether all passed; says what did, which of a run that broke off is not all."""
    ran = skipped = bad = 0
    if report.exists():
        # Written by the run.
        suite = ElementTree.parse(report).getroot().find("testsuite")  # noqa: S314
        assert suite is not None
        ran, skipped = int(suite.attrib["tests"]), int(suite.attrib["skipped"])
        bad = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
    counts = f"{ran - skipped - bad} passed, {bad} failed, {skipped} skipped"
    ended = "" if code in {0, 1} and report.exists() else f"; broke off with exit code {code}"
    print(f"PySpark {release}: {counts}{ended}", flush=True)
    return code == 0 and ran > skipped


if __name__ == "__main__":
    sys.exit(main())
