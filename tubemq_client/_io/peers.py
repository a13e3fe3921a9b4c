"""State of the pools of both APIs by address, and the decisions that need no waiting.

Base of `pool.BlockingPool` and `asyncio_pool.AsyncPool`, which own the locks and the connecting.
`_core.connections` decides when to open and close.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tubemq_client import errors
from tubemq_client._core.connections import ConnectionRules, NameRules
from tubemq_client._io.connection_state import ConnectionCounters, Exchange
from tubemq_client._io.forks import watch
from tubemq_client._io.host import now_ms
from tubemq_client._wire.codec import TUBEMQ
from tubemq_client.model import address_text

if TYPE_CHECKING:
    from tubemq_client._io.codec import Codec
    from tubemq_client.model import Address, ClientSettings, ConnectionStats

__all__ = ["QUIET_MS", "Peer", "Peers"]

QUIET_MS = 100
"""Time without traffic after which a connection is checked before it is used again."""

C = TypeVar("C", bound=Exchange)


@dataclass(slots=True)
class Peer(Generic[C]):
    """Connections of one address: the holder of `lock` connects, other callers share the result.

    `leaving` are connections that were replaced while requests on them were in flight. `avoid` is a
    host of the name that is tried last. `connecting`: an attempt that `reach` started is under way
    in the background; `failure` is the error of the last such attempt.
    """

    lock: Any
    connection: C | None = None
    leaving: list[C] = field(default_factory=list)
    avoid: str | None = None
    connecting: bool = False
    failure: errors.TubeMQError | None = None
    traffic: ConnectionCounters = field(default_factory=ConnectionCounters)

    def connections(self) -> list[C]:
        """Return all open connections."""
        return [
            connection for connection in (self.connection, *self.leaving) if connection is not None
        ]

    def take_all(self) -> list[C]:
        """Remove and return all connections, which are about to be closed; counts are kept."""
        connections, self.connection, self.leaving = self.connections(), None, []
        return connections

    def adopt(self, connection: C) -> C:
        """Make a new connection the current one; its traffic adds to the earlier ones'."""
        connection.traffic = self.traffic
        self.traffic.opened += 1
        self.connection = connection
        return connection

    def options(self) -> dict[str, str]:
        """Return options of `connect` beyond address and settings."""
        return {"avoid": self.avoid} if self.avoid else {}

    def is_elsewhere(self, hosts: frozenset[str]) -> bool:
        """Return whether the name leads to `hosts`, and the connection to none of them."""
        connection = self.connection
        return bool(connection and hosts and connection.host not in hosts)

    def move(self, hosts: frozenset[str]) -> bool:
        """Connect to another of `hosts` next time, if there is one; return whether there is."""
        connection = self.connection
        if connection is None or not hosts - {connection.host}:
            return False
        self.avoid, connection.retired = connection.host, True
        return True

    def take_failure(self) -> None:
        """Raise the failure of the last background attempt, once."""
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure


class Peers(Generic[C]):
    """Peers of a pool, and the rules for them. Times are monotonic ms."""

    def __init__(self, settings: ClientSettings, codec: Codec = TUBEMQ) -> None:
        self._settings = settings
        self.codec = codec
        self._peers: dict[Address, Peer[C]] = {}
        self._rules, self._names = ConnectionRules.of(settings), NameRules.of(settings)
        watch(self)

    def stats(self) -> dict[str, ConnectionStats]:
        """Return the traffic of each address, replaced connections included."""
        return {
            address_text(address): peer.traffic.view(
                is_open=peer.connection is not None and peer.connection.usable,
                in_flight=sum(connection.in_flight for connection in peer.connections()),
            )
            for address, peer in sorted(self._peers.copy().items())
        }

    def _in_use(self, address: Address, now: int) -> C | None:
        """Return a connection that was used just now: neither idle nor hung up, without a lock."""
        peer = self._peers.get(address)
        connection = peer.connection if peer is not None else None
        if (
            connection is not None
            and connection.good
            and now - connection.used_at * 1000 < QUIET_MS
        ):
            return connection
        return None

    def _to_look_up(self, address: Address) -> Peer[C] | None:
        """Return the peer that is not an active master, if its name should be looked up."""
        peer = self._peers.get(address)
        if peer and peer.connection and self._names.should_look_up(address, now_ms()):
            return peer
        return None

    def _take_idle(self, peer: Peer[C], now: int) -> list[C]:
        """Return connections to close: idle ones, and replaced ones that are done."""
        connection = peer.connection
        if connection and connection.retired:
            peer.leaving.append(connection)
            connection = peer.connection = None
        done = [old for old in peer.leaving if old.in_flight == 0]
        peer.leaving = [old for old in peer.leaving if old not in done]
        if connection and self._rules.is_idle(
            round(connection.used_at * 1000), connection.in_flight, now
        ):
            peer.connection = None
            done.append(connection)
        return done

    def _could_not_connect(self, address: Address) -> None:
        chance = random.random()  # noqa: S311 - spreads attempts, guards nothing
        self._rules.failed(address, now_ms(), chance)

    def _tried(self, address: Address, failure: errors.TubeMQError | None) -> None:
        """Record the end of a background attempt that `reach` started."""
        peer = self._peers.get(address)
        if peer is not None:
            peer.failure, peer.connecting = failure, False
