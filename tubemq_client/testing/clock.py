"""A clock that stands still until a test moves it: time as data.

The embedded server takes one as its `clock`; drivers of this kit sleep by moving it. It starts at a
fixed moment, so that the output of a test is the same every time.
"""

from __future__ import annotations

__all__ = ["ManualClock"]


class ManualClock:
    """Milliseconds since the epoch; call it to read it. Not safe to move from several threads."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = now_ms

    def __repr__(self) -> str:
        return f"ManualClock({self.now_ms})"

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, ms: int) -> None:
        """Let `ms` milliseconds pass. Raises `ValueError` for a step back."""
        if ms < 0:
            raise ValueError(f"time does not go back by {-ms} ms")
        self.now_ms += ms
