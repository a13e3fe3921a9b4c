"""Ends process groups whose starter is gone, however that ended.

`Reaper` hands group ids to a small program of its own (this file, run with `-S`) over a pipe. The
pipe closes even if the starter is killed hard; the program then terminates what is still listed. So
no server, scheduler or database outlives the test run or the demo that wanted it. Imports nothing
but the standard library.
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
    """Watches over process groups until `close`. One program per object, started at once."""

    def __init__(self) -> None:
        self._program = subprocess.Popen(
            [sys.executable, "-S", __file__], stdin=subprocess.PIPE, start_new_session=True
        )

    def watch(self, group: int) -> None:
        """End `group` when this process is gone."""
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        """`group` has ended, or may go on."""
        self._tell(f"-{group}\n")

    def close(self) -> None:
        """End what is still watched, and the program. Safe to call twice."""
        if self._program.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._program.stdin.close()
        self._program.wait(2 * _GRACE_SECONDS)

    def _tell(self, line: str) -> None:
        if self._program.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._program.stdin.write(line.encode("ascii"))
                self._program.stdin.flush()


def main() -> None:
    """Read ``+<group>`` and ``-<group>`` lines; at the end of input, end what is still listed."""
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
    """Whether there was such a group to signal."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)
        return True
    return False


if __name__ == "__main__":
    main()
