"""Kills the processes on its list when whoever started it is gone, however that ended.

A program of its own, run with `-S` and no import of this project. It reads lines ``+<pid>`` and
``-<pid>`` from standard input, and at the end of input sends SIGKILL to the pids still listed. The
pipe closes even if the starter was killed hard, so no server outlives the test run that wanted it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

__all__ = ["main"]


def main() -> None:
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    listed: set[int] = set()
    for line in sys.stdin:
        change = listed.add if line.startswith("+") else listed.discard
        change(int(line[1:]))
    for pid in listed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
