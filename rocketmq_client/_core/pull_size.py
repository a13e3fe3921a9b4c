"""Number of records per pull, adapted to the broker's answers.

A broker limits an answer to a number of records and of bytes that no request reports (32 and 256
KiB by default, fewer from cold storage). Pulls in flight together must not overlap and should not
leave remainders, so each asks for as many records as the last ones returned, and now and then for
more.

Source: `docs/rocketmq-protocol/exact-ranges.md#pulls-on-their-way`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rocketmq_client._core.read_policy import ReadPolicy

__all__ = ["PullSize"]

_MOST: Final = 1_000
_FULL_ANSWERS: Final = 32


class PullSize:
    """Pull size of one read, learned from its answers."""

    def __init__(self) -> None:
        self._count = 0
        self._full = 0

    def __repr__(self) -> str:
        return f"<PullSize {self._count or 'unknown'}>"

    def ahead(self, policy: ReadPolicy) -> int:
        """Return the number of pulls that may be in flight: one until the size of answers is
        known."""
        return policy.in_flight if self._count else 1

    def next(self) -> int:
        """Return the number of records to ask for; after many full answers more, to find a higher
        limit."""
        if self._count and self._full >= _FULL_ANSWERS:
            self._full = 0
            return min(self._count * 2, _MOST)
        return self._count or _MOST

    def learn(self, asked: int, given: int) -> None:
        """Record the size of an answer with records."""
        if given < asked or given > self._count:
            self._count = given
            self._full = 0
        else:
            self._full += 1
