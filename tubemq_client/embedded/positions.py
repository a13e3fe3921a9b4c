"""Group positions at one broker: confirmed offset and the distance delivered beyond it.

Pure state. Per (group, topic, partition) a broker keeps a *confirmed* offset and an *in-flight*
distance (fetched, not confirmed). This module chooses the start of a registration and of a fetch,
and records what a fetch delivered; it neither reads records nor checks leases (`leases` does).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from tubemq_client.embedded.store import Ends, round_down

__all__ = ["FetchMode", "Position", "PositionKey", "Positions", "Start"]

REACHED_MAX = "The request offset reached maxOffset!"
REACHED_CACHE_MAX = "Request offset reached cache maxOffset"


class PositionKey(NamedTuple):
    """Key of a position: group, topic and partition."""

    group: str
    topic: str
    partition_id: int

    def __str__(self) -> str:
        return f"{self.group}:{self.topic}:{self.partition_id}"


@dataclass(slots=True)
class Position:
    """`confirmed` is an offset, `in_flight` a distance (may be negative after a lost log)."""

    confirmed: int
    in_flight: int = 0

    def confirm(self) -> None:
        self.confirmed += self.in_flight
        self.in_flight = 0


class FetchMode(NamedTuple):
    """Flags of a fetch: confirm the previous batch first; read ahead without confirming."""

    last_consumed: bool = False
    manual: bool = False


class Start(NamedTuple):
    """Start of a fetch; `refusal` is the text of a 404 if there is nothing to read."""

    offset: int
    refusal: str = ""
    wait_ms: int = 0


class Positions:
    """All positions at one broker. Offsets only ever move through these methods."""

    def __init__(self, *, reset_beyond_max: bool = True) -> None:
        self._positions: dict[PositionKey, Position] = {}
        self._reset_beyond_max = reset_beyond_max
        self._online: dict[str, None] = {}
        self._booked: dict[str, None] = {}
        self.version = 0
        """Incremented with every change of a confirmed offset, so that savers can detect it."""

    def get(self, key: PositionKey) -> Position | None:
        return self._positions.get(key)

    def items(self) -> Iterator[tuple[PositionKey, Position]]:
        return iter(list(self._positions.items()))

    def all_keys(self) -> list[PositionKey]:
        return list(self._positions)

    def groups(self) -> list[str]:
        """Return the names of booked groups, those with removed positions included (until a
        restart)."""
        return list(dict.fromkeys((*self._booked, *(key.group for key in self._positions))))

    def online_groups(self) -> list[str]:
        """Return the names of groups that have used a position since the broker started."""
        return list(self._online)

    def open(self, key: PositionKey, ends: Ends, *, read_status: int, requested: int) -> int:
        """Return the confirmed offset after a registration; drops what was in flight.

        `read_status`: 0 a new group starts at min, 1 at max, 2 every group at max. `requested` < 0
        means none; otherwise it is clamped to `[min, max]` and rounded down, unless `read_status`
        is 2.
        """
        has_position = key in self._positions
        if read_status == 2:
            target: int | None = ends.memory
        elif requested >= 0:
            target = round_down(max(ends.min, min(requested, ends.memory)))
        elif has_position:
            target = None
        else:
            target = ends.memory if read_status == 1 else ends.min
        if target is not None:
            self.set(key, target)
        position = self._at(key)
        position.in_flight = 0
        return position.confirmed

    def begin(self, key: PositionKey, mode: FetchMode, ends: Ends) -> Start:
        """Return the start of the next fetch; `mode` may confirm the previous batch first."""
        position = self._at(key)
        if mode.manual:
            start = position.confirmed + round_down(position.in_flight)
        elif mode.last_consumed:
            self._confirm(position)
            start = position.confirmed
        else:
            start = position.confirmed
        if start >= ends.memory:
            return self._beyond(position, start, mode, ends)
        if start < ends.min:
            # Retention: the reader is moved forward without an error; only its next start shows it.
            position.confirmed, position.in_flight = ends.min, 0
            self.version += 1
            start = ends.min
        return Start(start)

    def record_fetch(
        self, key: PositionKey, mode: FetchMode, advance: int, *, delivered: bool
    ) -> None:
        """Record that a fetch scanned `advance` beyond its start.

        Without records to confirm, an automatic fetch moves the confirmed offset at once.
        """
        position = self._at(key)
        if advance <= 0:
            return
        if mode.manual:
            position.in_flight += advance
            return
        position.in_flight = advance
        if not delivered:
            self._confirm(position)

    def commit(self, key: PositionKey, *, consumed: bool) -> int:
        """Confirm what is in flight, or drop it; return the confirmed offset afterwards."""
        position = self._at(key)
        if consumed:
            self._confirm(position)
        else:
            position.in_flight = 0
        return position.confirmed

    def confirm(self, key: PositionKey) -> None:
        """Confirm what is in flight, if the group has a position at all."""
        position = self._positions.get(key)
        if position is not None:
            self._confirm(position)

    def drop_in_flight(self, key: PositionKey) -> None:
        """Drop what is in flight, if the group has a position at all."""
        position = self._positions.get(key)
        if position is not None:
            position.in_flight = 0

    def set(self, key: PositionKey, offset: int) -> int:
        """Put the confirmed offset at `offset` (rounded down) and drop what is in flight.

        Returns the former offset, or the new one for a new key.
        """
        position = self._at(key, round_down(offset))
        former = position.confirmed
        position.confirmed, position.in_flight = round_down(offset), 0
        self.version += 1
        return former

    def remove(self, key: PositionKey) -> None:
        """Drop a position; the group's name stays booked, as it does on a real broker."""
        if self._positions.pop(key, None) is not None:
            self._booked[key.group] = None
            self.version += 1

    def ensure(self, key: PositionKey) -> Position:
        """Return the position, created at 0 if the group has none."""
        return self._at(key)

    def commit_all(self) -> None:
        """Confirm everything in flight, as a broker does when it stops in order."""
        for position in self._positions.values():
            self._confirm(position)

    def drop_all_in_flight(self) -> None:
        """Drop everything in flight, as a crash does."""
        for position in self._positions.values():
            position.in_flight = 0
        self._online.clear()
        self._booked.clear()

    def dump(self) -> list[list[Any]]:
        """Return confirmed offsets as plain JSON values."""
        return [[*key, position.confirmed] for key, position in self._positions.items()]

    def load(self, rows: list[list[Any]]) -> None:
        """Replace all positions by the result of `dump`."""
        self._positions = {
            PositionKey(str(group), str(topic), int(part)): Position(int(offset))
            for group, topic, part, offset in rows
        }
        self.version += 1

    def _beyond(self, position: Position, start: int, mode: FetchMode, ends: Ends) -> Start:
        if start == 0 and ends.memory == 0:
            return Start(start, REACHED_CACHE_MAX)
        if start > ends.memory and self._reset_beyond_max:
            position.in_flight = ends.memory - start
            if not mode.manual:
                self._confirm(position)
        return Start(start, REACHED_MAX, wait_ms=-1)

    def _confirm(self, position: Position) -> None:
        if position.in_flight:
            self.version += 1
        position.confirm()

    def _at(self, key: PositionKey, initial: int = 0) -> Position:
        self._online[key.group] = None
        position = self._positions.get(key)
        if position is None:
            position = self._positions[key] = Position(initial)
            self.version += 1
        return position
