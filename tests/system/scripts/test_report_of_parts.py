"""The report of `make test`: what passes, what fails a run, and what a reader sees."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path("tools/scripts/test_report.py")
GOOD = '<testcase classname="t" name="good"/>'
BAD = '<testcase classname="t" name="bad"><failure message="first line\nrest"/></testcase>'
CURED = '<testcase classname="t" name="bad"/>'
CRASHED = '<testcase classname="t" name="bad"><error message="worker crashed"/></testcase>'


def write(folder: Path, name: str, *cases: str) -> None:
    failures = sum("<failure" in case for case in cases)
    errors = sum("<error" in case for case in cases)
    counts = f'tests="{len(cases)}" failures="{failures}" errors="{errors}" skipped="0"'
    suite = f"<testsuite {counts}>{''.join(cases)}</testsuite>"
    (folder / f"{name}.xml").write_text(f"<testsuites>{suite}</testsuites>")


def report(folder: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, SCRIPT, folder, "unit"], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout


def test_a_failed_test_fails_the_run_and_is_named(tmp_path: Path) -> None:
    write(tmp_path, "unit", GOOD, BAD)
    code, text = report(tmp_path)
    assert code == 1
    assert "failed in unit: t::bad: first line" in text
    assert "total: 1 passed, 1 failed, 0 skipped" in text


def test_one_that_passes_the_second_time_is_named(tmp_path: Path) -> None:
    write(tmp_path, "unit", GOOD, BAD)
    write(tmp_path, "unit-again", CURED)
    code, text = report(tmp_path)
    assert code == 0
    assert "passed only the second time in unit: t::bad" in text
    assert "total: 2 passed, 0 failed, 0 skipped" in text


def test_one_that_fails_twice_or_was_not_played_again_fails_the_run(tmp_path: Path) -> None:
    write(tmp_path, "unit", GOOD, BAD)
    write(tmp_path, "unit-again", BAD)
    assert report(tmp_path)[0] == 1
    write(tmp_path, "unit-again", GOOD)
    assert report(tmp_path)[0] == 1


def test_a_crash_is_shown_with_the_functions_it_was_in(tmp_path: Path) -> None:
    write(tmp_path, "unit", CRASHED, CURED, GOOD)
    log = "Fatal Python error: Aborted\n\nThread 0x1:\n  File a\nCurrent thread 0x2:\n  File b\n"
    (tmp_path / "unit.log").write_text(log)
    code, text = report(tmp_path)
    assert code == 0
    assert "crashed in unit: Current thread 0x2:\ncrashed in unit:   File b" in text


@pytest.mark.parametrize("log", ["", "!!!!! KeyboardInterrupt !!!!!\n"])
def test_an_interrupted_part_fails_the_run(tmp_path: Path, log: str) -> None:
    write(tmp_path, "unit", GOOD)
    (tmp_path / "unit.log").write_text(log)
    code, text = report(tmp_path)
    assert code == bool(log)
    assert ("unit was interrupted" in text) == bool(log)
