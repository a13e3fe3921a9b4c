"""Adds up the JUnit reports of the test parts and decides if the whole run counts as passed.

Used by `make test` and `.ci/run` as ``python tools/scripts/test_report.py DIRECTORY PART…``; each
part has one report ``DIRECTORY/PART.xml``. A part without a readable report was killed or never
started, and an empty one proves nothing: both fail the run, as any failed test does. A part that
was skipped whole passes for a developer without its tools, but not if TUBEMQ_REQUIRE_GENUINE is
set, as in CI. A part that was interrupted fails: not all of its tests were run.

Failed tests are named at the end with the first line of what they say, and a process that crashed
with the functions it was in (``DIRECTORY/PART.log``). Failed tests that all passed when CI played
them again (``PART-again.xml``) count as passed and are named too: each is a fault to look at, of a
test or of the product. Standard library only, and it starts nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET


class Counts(NamedTuple):
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def plus(self, other: Counts) -> Counts:
        return Counts(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def read_counts(report: Path) -> Counts | None:
    """Return the counts of a JUnit report; errors count as failures. None without a whole
    report."""
    try:
        suites = ET.parse(report).getroot().iter("testsuite")  # noqa: S314 - pytest wrote it
    except (OSError, ET.ParseError):
        return None
    total = Counts()
    for suite in suites:
        tests, failures, errors, skipped = (
            int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")
        )
        failed = failures + errors
        # A test that fails and whose teardown errs is one test with two marks.
        total = total.plus(Counts(max(0, tests - failed - skipped), failed, skipped))
    return total


def read_failures(report: Path) -> list[str]:
    """Return a line for each failed test of a JUnit report: its name and what it says first."""
    try:
        cases = ET.parse(report).getroot().iter("testcase")  # noqa: S314 - pytest wrote it
    except (OSError, ET.ParseError):
        return []
    return [
        f"{case.get('classname')}::{case.get('name')}: {_first_line(mark.get('message') or '')}"
        for case in cases
        for mark in (*case.findall("failure"), *case.findall("error"))
    ]


def outcomes(report: Path) -> dict[str, list[bool]]:
    """Return for each test of a JUnit report whether it passed, in each of its turns: one that was
    running when its process crashed has two. Empty without a whole report."""
    try:
        cases = ET.parse(report).getroot().iter("testcase")  # noqa: S314 - pytest wrote it
    except (OSError, ET.ParseError):
        return {}
    turns: dict[str, list[bool]] = {}
    for case in cases:
        passed = case.find("failure") is None and case.find("error") is None
        turns.setdefault(f"{case.get('classname')}::{case.get('name')}", []).append(passed)
    return turns


def passed_again(report: Path, again: Path) -> list[str]:
    """Return the failed tests of a report if every one of them passed in a second turn."""
    first, second = outcomes(report), outcomes(again)
    names = [name for name, turns in first.items() if not all(turns)]
    return names if all(any(first[name] + second.get(name, [])) for name in names) else []


def read_log(log: Path) -> list[str]:
    """Return the lines of a part's log, none without one."""
    try:
        return log.read_text(errors="replace").splitlines()
    except OSError:
        return []


def crash_in(text: list[str], lines: int = 12) -> list[str]:
    """Return where a process crashed: the thread that faulthandler calls the current one."""
    found = (number for number, line in enumerate(text) if line.startswith("Current thread"))
    if not any(line.startswith("Fatal Python error") for line in text):
        return []
    start = next(found, len(text))
    return text[start : start + lines]


def _first_line(message: str) -> str:
    return message.partition("\n")[0][:200]


def main(arguments: Sequence[str]) -> int:
    """Print one line per part and a total; return 1 if a part is missing, empty or has failures."""
    strict = bool(os.environ.get("TUBEMQ_REQUIRE_GENUINE"))
    directory, parts = Path(arguments[0]), arguments[1:]
    total, problems = Counts(), []
    for part in parts:
        counts = read_counts(directory / f"{part}.xml")
        if counts is None:
            problems.append(f"{part} left no report: it did not start or was stopped")
            continue
        if not counts.passed and (strict or not counts.skipped):
            problems.append(f"{part} ran no test")
        names = passed_again(directory / f"{part}.xml", directory / f"{part}-again.xml")
        for name in names:
            print(f"passed only the second time in {part}: {name}")
        if names:
            counts = Counts(counts.passed + len(names), 0, counts.skipped)
        print(f"{part}: {counts}")
        total = total.plus(counts)
    for part in parts:
        for failure in read_failures(directory / f"{part}.xml"):
            print(f"failed in {part}: {failure}")
        log = read_log(directory / f"{part}.log")
        if any("! KeyboardInterrupt !" in line for line in log):
            problems.append(f"{part} was interrupted before all of its tests had run")
        for line in crash_in(log):
            print(f"crashed in {part}: {line}")
    for problem in problems:
        print(f"incomplete: {problem}")
    print(f"total: {total}")
    return 1 if problems or total.failed or not total.passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
