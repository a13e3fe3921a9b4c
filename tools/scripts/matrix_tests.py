"""Tests in the environments of a matrix: selection, and result.

Used by the matrices of Spark and of Python; an aborted run is no success.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from xml.etree import ElementTree

from tools.scripts import environments

__all__ = ["parse_selection", "passed"]


def parse_selection(
    arguments: list[str], choices: Sequence[str], *, command: str, description: str | None
) -> tuple[list[str], bool, list[str]]:
    """Parse the command line: names, setup only, and arguments of pytest.

    Names come first, all that are `choices` if there are none. The rest is for pytest, also `-k
    format`, whose second word argparse would take for a name.
    """
    usage = f"{command} ARGS='[{' '.join(choices)}] [--only-setup] [arguments of pytest]'"
    parser = argparse.ArgumentParser(usage=usage, description=description)
    parser.add_argument("--only-setup", action="store_true", help="create the environments only")
    names = list(takewhile(lambda word: not word.startswith("-"), arguments))
    options, more = parser.parse_known_args(arguments[len(names) :])
    if unknown := [name for name in names if name not in choices]:
        parser.error(f"{', '.join(unknown)}: not one of {', '.join(choices)}")
    if options.only_setup and more:
        parser.error(
            f"--only-setup runs no tests: {' '.join(more)} has no effect; names come first"
        )
    return names or list(choices), options.only_setup, more


def passed(title: str, python: Path, report: str, tests: Sequence[str], limit_s: float) -> bool:
    """Run `tests`, the arguments of pytest, on `python`; return True if all ran and passed.

    Prints a line with counts, which are partial if the run was aborted. `report` is a name in the
    reports.
    """
    file = environments.ROOT / "build" / "reports" / f"{report}.xml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    variables = {
        "PYSPARK_PYTHON": str(python),
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
    }
    command = [str(python), "-m", "pytest", "-q", f"--junitxml={file}", *tests]
    code = environments.run_bounded(command, limit_s, variables)
    ran = skipped = bad = 0
    if file.exists():
        # Written by the run.
        suite = ElementTree.parse(file).getroot().find("testsuite")  # noqa: S314
        assert suite is not None
        ran, skipped = int(suite.attrib["tests"]), int(suite.attrib["skipped"])
        bad = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
    counts = f"{ran - skipped - bad} passed, {bad} failed, {skipped} skipped"
    ended = "" if code in {0, 1} and file.exists() else f"; aborted with exit code {code}"
    print(f"{title}: {counts}{ended}", flush=True)
    return code == 0 and ran > skipped
