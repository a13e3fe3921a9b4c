"""A clock that stands still until a test moves it."""

from __future__ import annotations


class ManualClock:
    """Milliseconds since the epoch; call it to read it."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, ms: int) -> None:
        self.now_ms += ms
