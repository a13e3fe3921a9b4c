"""Rules for connections: when to reconnect after a failure, and when to replace an open one.

Both drivers own the sockets and ask here for decisions. A peer that refuses is tried again after a
growing, jittered pause, so that a thousand clients of a restarted broker do not return in step. An
idle connection is replaced before its next use, because firewalls and load balancers drop idle ones
without notice; one on which a request got no answer, and that received nothing since, is replaced
for the next request. A master's name is looked up again periodically, as it may lead to another
host. Time and random numbers are arguments.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tubemq_client.model import Address, ClientSettings

__all__ = ["ConnectionRules", "NameRules", "is_host_name"]

_LOOK_UP_PAUSE_MS = 1_000
"""Minimum pause between look-ups, for masters that answer stand-by to one request after the
other."""


def is_host_name(host: str) -> bool:
    """Return whether `host` must be looked up: it is not an IP address."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return True
    return False


@dataclass(slots=True)
class ConnectionRules:
    """Failures by address. Times are milliseconds of the caller's monotonic clock.

    After the n-th failure in a row the pause is between half and all of
    `first_pause_ms * 2 ** (n - 1)`, at most `longest_pause_ms`. It is short because callers
    wait for it inside a call, so it must stay below any deadline a person would set.
    """

    idle_ms: int
    first_pause_ms: int = 100
    longest_pause_ms: int = 2_000
    _failures: dict[Address, int] = field(default_factory=dict)
    _not_before: dict[Address, int] = field(default_factory=dict)
    _sweep_at: int = 0

    @classmethod
    def of(cls, settings: ClientSettings) -> ConnectionRules:
        """Create the rules of the options."""
        return cls(
            settings.idle_connection_ms,
            settings.reconnect_pause_ms,
            settings.longest_reconnect_pause_ms,
        )

    def wait_ms(self, address: Address, now: int) -> int:
        """Return the wait before the next attempt to connect to `address`; 0 for none."""
        return max(0, self._not_before.get(address, now) - now)

    def failed(self, address: Address, now: int, chance: float) -> None:
        """Count a failed attempt. `chance` is uniform in [0, 1)."""
        count = self._failures[address] = self._failures.get(address, 0) + 1
        pause = min(self.first_pause_ms << min(count - 1, 16), self.longest_pause_ms)
        self._not_before[address] = now + round(pause * (1 + chance) / 2)

    def opened(self, address: Address) -> None:
        self._failures.pop(address, None)
        self._not_before.pop(address, None)

    def is_idle(self, used_at: int, in_flight: int, now: int) -> bool:
        """Return whether to close a connection last used at `used_at`.

        One with a pending reply stays open: its reader may be slow on purpose, with the reply
        waiting in the socket buffer.
        """
        return in_flight == 0 and now - used_at >= self.idle_ms

    def sweep_due(self, now: int) -> bool:
        """Return whether to check for idle connections now; true about four times per `idle_ms`."""
        if now < self._sweep_at:
            return False
        self._sweep_at = now + self.idle_ms // 4
        return True

    @staticmethod
    def is_unresponsive(received_at: float, deadline: float, patience: float) -> bool:
        """Return whether a connection no longer answers.

        A request had `patience` to be answered, until `deadline`, and nothing at all was received
        since it was sent. All in one unit.
        """
        return received_at < deadline - patience


@dataclass(slots=True)
class NameRules:
    """Rules for looking up names of `masters` again: every `period_ms` in which they are used."""

    masters: frozenset[Address]
    period_ms: int
    _due_at: dict[Address, int] = field(default_factory=dict)
    _looked_at: dict[Address, int] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: ClientSettings) -> NameRules:
        """Create the rules of the options."""
        named = (address for address in settings.masters if is_host_name(address[0]))
        return cls(frozenset(named), settings.dns_refresh_ms)

    def due(self, address: Address, now: int) -> bool:
        """Return whether to look up this name now, concurrently with the next request.

        The period begins with the first call, as the name was looked up to connect.
        """
        if address not in self.masters:
            return False
        due_at = self._due_at.setdefault(address, now + self.period_ms)
        if now < due_at:
            return False
        self._due_at[address] = now + self.period_ms
        return True

    def should_look_up(self, address: Address, now: int) -> bool:
        """Return whether to look up this name now because its host does not answer as a master."""
        last = self._looked_at.get(address)
        if not is_host_name(address[0]) or (last is not None and now - last < _LOOK_UP_PAUSE_MS):
            return False
        self._looked_at[address] = now
        return True
