"""`tools/scripts/bounded.py`: what `make test-…` runs under, heard by Ctrl-C and by its limit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tools.devkit.patience import PATIENCE, VARIABLE

ROOT = Path(__file__).parents[3]

# Prints its worker's pid, and how both ended.
COMMAND = """
import signal, subprocess, sys, time
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(worker.pid, flush=True)
try:
    time.sleep(60)
except KeyboardInterrupt:
    print("tidied", flush=True)
"""


def bounded(limit_s: float, *command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tools.scripts.bounded", str(limit_s), *command],
        cwd=ROOT,
        env=os.environ | {VARIABLE: "1"},
        stdout=subprocess.PIPE,
        text=True,
    )


def ended(pid: int) -> bool:
    """Return True if the process has ended, or is a zombie."""
    end = time.monotonic() + 10 * PATIENCE
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("code", [0, 3])
def test_a_command_that_ends_in_time_gives_its_exit_code(code: int) -> None:
    process = bounded(30, sys.executable, "-c", f"raise SystemExit({code})")
    process.communicate(timeout=30 * PATIENCE)
    assert process.returncode == code


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_lets_the_command_tidy_up_and_leaves_no_worker(
    number: signal.Signals, code: int
) -> None:
    process = bounded(60, sys.executable, "-c", COMMAND)
    assert process.stdout is not None
    worker = int(process.stdout.readline())
    process.send_signal(number)
    said, _ = process.communicate(timeout=30 * PATIENCE)
    assert (process.returncode, "tidied" in said) == (code, True)
    assert ended(worker)


def test_at_its_limit_the_command_is_interrupted_and_reports_it() -> None:
    process = bounded(2, sys.executable, "-c", COMMAND)
    said, _ = process.communicate(timeout=30 * PATIENCE)
    assert process.returncode == 124
    assert said.splitlines()[1:] == ["stopping after 2 s", "tidied"]
    assert ended(int(said.split()[0]))


def test_a_part_keeps_its_output_and_lets_the_others_continue(tmp_path: Path) -> None:
    make = tmp_path / "make"
    make.write_text('#!/bin/sh\necho "playing $1"\nexit 2\n')
    make.chmod(0o755)
    (tmp_path / "build" / "reports").mkdir(parents=True)
    done = subprocess.run(
        [ROOT / "tools" / "scripts" / "test-part", "unit"],
        cwd=tmp_path,
        env={**os.environ, "MAKE": str(make)},
        capture_output=True,
        text=True,
        check=False,
        timeout=30 * PATIENCE,
    )
    assert done.returncode == 0
    assert done.stdout.startswith("unit: playing test-unit\n=== unit: FAILED after ")
    assert (tmp_path / "build/reports/unit.log").read_text() == "playing test-unit\n"
