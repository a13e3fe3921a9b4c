"""A broker's registrations: the right to read, one client per (group, topic, partition).

Pure state; time is an argument (ms). A lease is renewed by fetches and heartbeats, never by
commits, and ends by silence or by unregistering. The effect on a position is the caller's business.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tubemq_client._core.flow_control import Allowance
from tubemq_client.embedded.positions import PositionKey

__all__ = ["UNDEFINED_PRIORITY", "Lease", "Leases"]

UNDEFINED_PRIORITY = -2


@dataclass(slots=True)
class SentWindow:
    """Bytes sent since the window began; it restarts after `length_ms`."""

    length_ms: int
    start_ms: int = 0
    sent: int = 0

    def add(self, count: int, now_ms: int) -> None:
        self.sent = self.total(now_ms) + count

    def total(self, now_ms: int) -> int:
        """Return the sum so far, 0 if the window is over."""
        if now_ms - self.start_ms >= self.length_ms:
            self.start_ms, self.sent = now_ms, 0
        return self.sent


@dataclass(slots=True)
class Lease:
    """One registration. `query_priority` <= 0 means "the cluster's"; `warmed`: it has had a
    successful fetch, so the full byte budget applies; `data_reached`: the data offset at which that
    fetch ended. `allowance` is the rest of its limits under the cluster's flow rules."""

    client_id: str
    filters: tuple[str, ...] = ()
    key_codes: frozenset[int] = field(default_factory=frozenset)
    query_priority: int = UNDEFINED_PRIORITY
    seen_ms: int = 0
    expires_ms: int = 0
    warmed: bool = False
    data_reached: int | None = None
    allowance: Allowance = field(default_factory=Allowance)
    short_window: SentWindow = field(default_factory=lambda: SentWindow(5_000))
    long_window: SentWindow = field(default_factory=lambda: SentWindow(60_000))

    def sent(self, count: int, now_ms: int) -> None:
        """Count bytes of delivered records."""
        self.short_window.add(count, now_ms)
        self.long_window.add(count, now_ms)


class Leases:
    """The registrations of one broker."""

    def __init__(self, lease_ms: int) -> None:
        self._lease_ms = lease_ms
        self._leases: dict[PositionKey, Lease] = {}

    def __len__(self) -> int:
        return len(self._leases)

    def items(self) -> Iterator[tuple[PositionKey, Lease]]:
        return iter(list(self._leases.items()))

    def get(self, key: PositionKey) -> Lease | None:
        return self._leases.get(key)

    def occupant(self, key: PositionKey, client_id: str) -> str | None:
        """Return the other client that holds `key`, None if `client_id` may register."""
        lease = self._leases.get(key)
        return lease.client_id if lease is not None and lease.client_id != client_id else None

    def drop_expired(self, key: PositionKey, now_ms: int) -> bool:
        """Remove the lease of `key` if it has expired; return True if it was removed."""
        lease = self._leases.get(key)
        if lease is None or lease.expires_ms > now_ms:
            return False
        del self._leases[key]
        return True

    def grant(self, key: PositionKey, lease: Lease, now_ms: int) -> None:
        """Install `lease`, replacing an earlier one of the same client."""
        self._leases[key] = lease
        self.renew(lease, now_ms)

    def renew(self, lease: Lease, now_ms: int) -> None:
        lease.seen_ms = now_ms
        lease.expires_ms = now_ms + self._lease_ms

    def release(self, key: PositionKey) -> Lease | None:
        return self._leases.pop(key, None)

    def sweep(self, now_ms: int) -> list[PositionKey]:
        """Remove and return every expired lease."""
        expired = [key for key, lease in self._leases.items() if lease.expires_ms <= now_ms]
        for key in expired:
            del self._leases[key]
        return expired

    def clear(self) -> None:
        self._leases.clear()
