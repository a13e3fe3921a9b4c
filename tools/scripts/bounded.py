"""Runs a command with a time limit: ``python -m tools.scripts.bounded SECONDS COMMAND…``.

The command gets a new process group. At the limit, and when this process is interrupted or
terminated, the whole group is interrupted once, so that tests stop what they started, and killed if
that takes over a minute. The limit is longer on a busy machine (`tools.devkit.patience`). Unlike
`timeout` it exists on every system, and handles Ctrl-C, while make only waits for its commands
then. Exit code: the command's, 124 at the limit, 130 when interrupted, 143 when terminated.
Standard library only.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from tools.devkit.patience import PATIENCE

GRACE_S = 60.0
TIMED_OUT = 124


def run(
    command: Sequence[str],
    limit_s: float,
    grace_s: float = GRACE_S,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Run the command; return its exit code, or that of a stop (see the module)."""
    asked: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: asked.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        return _code(
            subprocess.Popen(command, env=environment, process_group=0), limit_s, grace_s, asked
        )
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _code(
    process: subprocess.Popen[bytes], limit_s: float, grace_s: float, asked: list[int]
) -> int:
    """Wait for the end, for a signal (added to `asked`), and for the limit."""
    end = time.monotonic() + limit_s
    while process.poll() is None and not asked and time.monotonic() < end:
        # Python resumes a sleep after a signal: hence short ones.
        time.sleep(0.1)
    if process.returncode is not None:
        return process.returncode if process.returncode >= 0 else 128 - process.returncode
    print(f"stopping after {limit_s:g} s" if not asked else "interrupted: stopping", flush=True)
    _signal_group(process.pid, signal.SIGINT)
    try:
        process.wait(timeout=grace_s)
    except subprocess.TimeoutExpired:
        print(f"killing processes that have not stopped within {grace_s:g} s", flush=True)
    # Workers of a command that has ended are in its group as well.
    _signal_group(process.pid, signal.SIGKILL)
    process.wait()
    return 128 + asked[0] if asked else TIMED_OUT


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        pass


if __name__ == "__main__":
    sys.exit(run(sys.argv[2:], float(sys.argv[1]) * PATIENCE))
