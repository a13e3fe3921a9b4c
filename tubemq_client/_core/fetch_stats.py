"""Counters of one member's fetches, and the view of them that users get.

The fetch engine counts here (`balance_fetch`); no decision depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubemq_client import errors
from tubemq_client.model import ConsumerStats

if TYPE_CHECKING:
    from tubemq_client._core.breaker import Breaker
    from tubemq_client.model import ConnectionStats

__all__ = ["FetchStats"]


@dataclass(slots=True)
class FetchStats:
    """Counts since the member was created; see `ConsumerStats`."""

    fetches: int = 0
    batches: int = 0
    records: int = 0
    empty: int = 0
    limited: int = 0
    refused: int = 0
    unanswered: int = 0

    def note(self, code: int) -> None:
        """Count a fetch that was answered with `code` and no records."""
        if code == errors.NOT_FOUND:
            self.empty += 1
        elif code == errors.SPEED_LIMIT:
            self.limited += 1
        else:
            self.refused += 1

    def view(
        self, breaker: Breaker, now: int, connections: dict[str, ConnectionStats]
    ) -> ConsumerStats:
        """Return the counts of now, and the brokers that are avoided at `now` (monotonic ms)."""
        return ConsumerStats(
            self.fetches,
            self.batches,
            self.records,
            self.empty,
            self.limited,
            self.refused,
            self.unanswered,
            breaker.left_alone(now),
            connections,
        )
