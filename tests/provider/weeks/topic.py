"""Topic as its two brokers hold it, in all its epochs; each record has a distinct number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tubemq_client import Partition

ENTRY = 28
BROKERS = (1, 2)

Entry = tuple[str, bytes]


@dataclass
class Life:
    """One log of a store: the records at its offsets, and the first that still exists."""

    entries: list[Entry] = field(default_factory=list)
    low: int = 0
    stable: int = 0

    @property
    def end(self) -> int:
        return len(self.entries) * ENTRY

    def between(self, key: str, start: int, end: int) -> list[bytes]:
        inside = self.entries[start // ENTRY : end // ENTRY]
        return [body for owner, body in inside if owner == key]


class Topic:
    """Logs of one store for each broker, and their changes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.partitions, self.away = 1, set[int]()
        self.lives: dict[int, list[Life]] = {broker: [Life()] for broker in BROKERS}
        self.count = 0

    def life(self, broker: int) -> Life:
        return self.lives[broker][-1]

    def places(self) -> list[str]:
        return [f"{broker}:{n}" for broker in BROKERS for n in range(self.partitions)]

    def alive(self) -> Iterator[tuple[str, int, bytes]]:
        """Every record that can be read: key, offset, body."""
        for broker in BROKERS:
            life = self.life(broker)
            for index, (key, body) in enumerate(life.entries):
                if index * ENTRY >= life.low:
                    yield key, index * ENTRY, body

    # -- what happens -----------------------------------------------------------------------

    def produce(self, keys: Sequence[str]) -> None:
        """Append a record for each key whose broker is up."""
        for key in keys:
            place = Partition.from_key(self.name, key)
            if place.broker_id in self.away:
                continue
            self.count += 1
            body = b"r%d" % self.count
            self.life(place.broker_id).entries.append((key, body))

    def flush(self, broker: int) -> None:
        if broker not in self.away:
            self.life(broker).stable = self.life(broker).end

    def expire(self, broker: int, offset: int) -> None:
        if broker not in self.away:
            self.flush(broker)
            life = self.life(broker)
            life.low = max(life.low, min(offset, life.end))

    def crash(self, broker: int) -> None:
        """Crash and restart the broker: records not on its disk are lost."""
        if broker in self.away:
            return
        self._cut(broker, self.life(broker).stable)

    def truncate(self, broker: int, offset: int) -> None:
        if broker not in self.away:
            life = self.life(broker)
            offset = max(life.low, min(offset, life.end))
            self._cut(broker, offset)

    def _cut(self, broker: int, offset: int) -> None:
        life = self.life(broker)
        if offset < life.end:
            self.lives[broker].append(Life(life.entries[: offset // ENTRY], life.low, offset))
        self.life(broker).stable = self.life(broker).end

    def begin_anew(self, broker: int) -> None:
        if broker in self.away:
            return
        self.lives[broker].append(Life())

    def leave(self, broker: int) -> None:
        """Shut the broker down in order: its records are on disk."""
        if not self.away:
            self.flush(broker)
            self.away.add(broker)

    def come_back(self) -> None:
        self.away.clear()
