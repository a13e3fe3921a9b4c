"""Ends process groups whose starter is gone, however it ended.

`Reaper` sends group ids to a small separate program (this file, run with `-S`) over a pipe. The
pipe closes even if the starter is killed hard; the program then terminates the groups still listed.
So no server, scheduler or database outlives the test run or the demo that started it. Imports
nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

__all__ = ["Reaper", "main"]

_GRACE_SECONDS = 5.0


class Reaper:
    """Watches process groups until `close`. One program per object, started at once."""

    def __init__(self) -> None:
        self._program = subprocess.Popen(
            [sys.executable, "-S", __file__], stdin=subprocess.PIPE, start_new_session=True
        )

    def watch(self, group: int) -> None:
        """End `group` when this process is gone."""
        self._send(f"+{group}\n")

    def forget(self, group: int) -> None:
        """Stop watching `group`: it has ended, or may continue."""
        self._send(f"-{group}\n")

    def close(self) -> None:
        """End the groups still watched, and the program. Safe to call twice."""
        if self._program.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._program.stdin.close()
        self._program.wait(2 * _GRACE_SECONDS)

    def _send(self, line: str) -> None:
        if self._program.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._program.stdin.write(line.encode("ascii"))
                self._program.stdin.flush()


def main() -> None:
    """Read ``+<group>`` and ``-<group>`` lines; at the end of input, end the groups still
    listed."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    listed: set[int] = set()
    for line in sys.stdin:
        change = listed.add if line.startswith("+") else listed.discard
        change(int(line[1:]))
    deadline = time.monotonic() + _GRACE_SECONDS
    alive = {group for group in listed if _signal(group, signal.SIGTERM)}
    while alive and time.monotonic() < deadline:
        time.sleep(0.2)
        alive = {group for group in alive if _signal(group, 0)}
    for group in alive:
        _signal(group, signal.SIGKILL)


def _signal(group: int, number: int) -> bool:
    """Send a signal; return False if there is no such group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)
        return True
    return False


if __name__ == "__main__":
    main()
