"""Limits of a producer: records under way, and brokers to avoid for a while.

Plain counters, without locks: the sync and asyncio APIs wait for room, `sending` asks which
brokers are open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_client import errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketmq_client.model import ProducerSettings, Queue

__all__ = ["Room", "SlowBrokers", "no_room"]

_PENALTIES: Final = (
    (15_000, 30_000),
    (5_000, 10_000),
    (3_000, 6_000),
    (1_800, 5_000),
    (550, 2_000),
)
"""Time of a send from which its broker is avoided, and for how long (ms), as Java's 5.x producers
have it."""

_FAILED_MS: Final = 10_000
"""Time for which a broker is avoided that did not answer, as theirs."""


class Room:
    """Room for records that are sent in the background. One record always fits in an empty one."""

    def __init__(self, settings: ProducerSettings) -> None:
        self._most, self._most_bytes = settings.max_in_flight, settings.max_in_flight_bytes
        self.records = self.bytes = 0

    def has(self, size: int) -> bool:
        """Return whether a record of `size` bytes may be sent now."""
        fits = self.records < self._most and self.bytes + size <= self._most_bytes
        return fits or not self.records

    def take(self, size: int) -> None:
        """Count a record."""
        self.records += 1
        self.bytes += size

    def give(self, size: int) -> None:
        """Count a record no longer."""
        self.records -= 1
        self.bytes -= size


def no_room(room: Room, timeout_ms: int) -> errors.TooManyInFlight:
    """Return the error of a record for which no room was made in time."""
    return errors.TooManyInFlight(
        f"{room.records} records ({room.bytes} bytes) are under way, and none was stored within "
        f"timeout_ms={timeout_ms}: wait for receipts, or raise max_in_flight or max_in_flight_bytes"
    )


class SlowBrokers:
    """Brokers that are avoided for a while, because they answered late or not at all."""

    def __init__(self) -> None:
        self._until: dict[str, int] = {}

    def answered(self, broker: str, took_ms: int, now: int) -> None:
        """Note how long a send took."""
        penalty = next((pause for least, pause in _PENALTIES if took_ms >= least), 0)
        if penalty:
            self._until[broker] = now + penalty
        else:
            self._until.pop(broker, None)

    def failed(self, broker: str, now: int) -> None:
        """Note a broker that did not answer, or refused for load."""
        self._until[broker] = now + _FAILED_MS

    def open(self, queues: Sequence[Queue], now: int) -> list[Queue]:
        """Return the queues of brokers that are not avoided."""
        return [queue for queue in queues if self._until.get(queue.broker, 0) <= now]
