"""How many records to ask for at a time, learnt from what the broker gives.

A broker cuts an answer at a number of records and at a number of bytes of its own, which no request
tells (32 and 256 KiB by default, fewer from cold storage). Pulls that are to be on their way
together must not overlap and should not leave remainders, so each asks for what the last ones gave,
and now and then for more.

Source: `docs/rocketmq-protocol/exact-ranges.md#pulls-on-their-way`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rocketmq_client._core.read_policy import ReadPolicy

__all__ = ["Stride"]

_MOST: Final = 1_000
_FULL_ANSWERS: Final = 32


class Stride:
    """Pure; one per read."""

    def __init__(self) -> None:
        self._count = 0
        self._full = 0

    def __repr__(self) -> str:
        return f"<Stride {self._count or 'unknown'}>"

    def ahead(self, policy: ReadPolicy) -> int:
        """Pulls that may be on their way: one until it is known what they give."""
        return policy.in_flight if self._count else 1

    def next(self) -> int:
        """How many records to ask for. After many full answers more, to find a higher limit."""
        if self._count and self._full >= _FULL_ANSWERS:
            self._full = 0
            return min(self._count * 2, _MOST)
        return self._count or _MOST

    def learn(self, asked: int, given: int) -> None:
        """What came of a pull that found records."""
        if given < asked or given > self._count:
            self._count = given
            self._full = 0
        else:
            self._full += 1
