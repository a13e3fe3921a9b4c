"""Schedule of heartbeats: the one place that decides when to send, with the time as an argument.

Masters forget a client after 30 s of silence and brokers a partition after 30 to 35 s, so the
period must stay well below half of that. After `max_failures` failures in a row the schedule slows
down instead of hammering a failing peer.

Source: `docs/protocol/balance.md#heartbeats`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tubemq_client.model import ClientSettings

__all__ = ["HeartbeatSchedule"]


@dataclass(slots=True)
class HeartbeatSchedule:
    """Schedule with times in milliseconds of the caller's monotonic clock."""

    period_ms: int = 10_000
    period_after_failures_ms: int = 60_000
    max_failures: int = 5
    _next_at: int = 0
    _failures: int = 0

    @classmethod
    def of(cls, settings: ClientSettings) -> HeartbeatSchedule:
        """Create the schedule of the options."""
        return cls(
            settings.heartbeat_period_ms,
            settings.heartbeat_period_after_failures_ms,
            settings.max_heartbeat_failures,
        )

    def due(self, now: int) -> bool:
        return now >= self._next_at

    def late_ms(self, now: int) -> int:
        """Return the delay of the heartbeat that is due, if that is more than a period; else 0."""
        late = now - self._next_at
        return late if self._next_at and late > self.period_ms else 0

    def wait_ms(self, now: int) -> int:
        return max(0, self._next_at - now)

    def make_due(self) -> None:
        """Make the next heartbeat due at once: there is news to report."""
        self._next_at = 0

    def succeeded(self, now: int) -> None:
        self._failures = 0
        self._next_at = now + self.period_ms

    def failed(self, now: int) -> None:
        self._failures += 1
        tired = self._failures > self.max_failures
        self._next_at = now + (self.period_after_failures_ms if tired else self.period_ms)
