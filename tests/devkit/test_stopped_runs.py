"""A run of tests that is stopped leaves no report to be counted; one with a failure does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools.devkit.patience import PATIENCE

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("second", "reported"),
    [("raise KeyboardInterrupt", False), ("assert False", True), ("pass", True)],
)
def test_only_a_run_that_ended_leaves_a_report(
    tmp_path: Path, second: str, *, reported: bool
) -> None:
    file, report = tmp_path / "test_played.py", tmp_path / "report.xml"
    file.write_text(f"def test_first():\n    pass\n\n\ndef test_second():\n    {second}\n")
    options = ["-p", "tests.kit.stopped_runs", "-p", "no:cacheprovider", "-x"]
    place = [f"--rootdir={tmp_path}", f"--confcutdir={tmp_path}", "-c", "/dev/null"]
    subprocess.run(
        [sys.executable, "-m", "pytest", *options, *place, f"--junitxml={report}", str(file)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        timeout=120 * PATIENCE,
    )
    assert report.exists() is reported
