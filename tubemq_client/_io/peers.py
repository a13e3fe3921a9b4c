"""What the pools of both shells know of each address, and the decisions that need no waiting.

Base of `pool.BlockingPool` and `asyncio_pool.AsyncPool`, which own the locks and the connecting.
When to open and close is decided in `_core.connections`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tubemq_client import errors
from tubemq_client._core.connections import ConnectionRules, NameRules
from tubemq_client._io.exchange import Exchange, Traffic
from tubemq_client._io.forks import watch
from tubemq_client._io.host import now_ms
from tubemq_client._wire.codec import TUBEMQ
from tubemq_client.model import address_text

if TYPE_CHECKING:
    from tubemq_client._io.codec import Codec
    from tubemq_client.model import Address, ClientSettings, ConnectionStats

__all__ = ["QUIET_MS", "Peer", "Peers"]

QUIET_MS = 100
"""After so long without traffic a connection is looked at before it is used again."""

C = TypeVar("C", bound=Exchange)


@dataclass(slots=True)
class Peer(Generic[C]):
    """An address: the caller that holds `lock` connects, the others wait and share what comes of
    it.

    `leaving` are connections that were replaced while requests on them were under way. The host
    `avoid`, which its name leads to, is connected to last. `connecting`: an attempt is under way
    beside the caller that asked to `reach` it; `failure` is what came of the last attempt of that
    kind.
    """

    lock: Any
    connection: C | None = None
    leaving: list[C] = field(default_factory=list)
    avoid: str | None = None
    connecting: bool = False
    failure: errors.TubeMQError | None = None
    traffic: Traffic = field(default_factory=Traffic)

    def connections(self) -> list[C]:
        """All that are open."""
        return [found for found in (self.connection, *self.leaving) if found is not None]

    def take_all(self) -> list[C]:
        """The same, which are about to be closed for good; what they counted stays."""
        found, self.connection, self.leaving = self.connections(), None, []
        return found

    def adopt(self, connection: C) -> C:
        """What was opened is the connection from now on, and counts with those before it."""
        connection.traffic = self.traffic
        self.traffic.opened += 1
        self.connection = connection
        return connection

    def options(self) -> dict[str, str]:
        """How to connect, beyond address and settings."""
        return {"avoid": self.avoid} if self.avoid else {}

    def is_elsewhere(self, hosts: frozenset[str]) -> bool:
        """Whether its name leads to `hosts`, of which none is where its connection goes."""
        found = self.connection
        return bool(found and hosts and found.host not in hosts)

    def move(self, hosts: frozenset[str]) -> bool:
        """It is not what it should be: connect to another of `hosts` next, if there is one."""
        found = self.connection
        if found is None or not hosts - {found.host}:
            return False
        self.avoid, found.retired = found.host, True
        return True

    def take_failure(self) -> None:
        """Raise what the last attempt beside the caller came to, once."""
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure


class Peers(Generic[C]):
    """The peers of a pool, and the rules for them. Times are monotonic ms."""

    def __init__(self, settings: ClientSettings, codec: Codec = TUBEMQ) -> None:
        self._settings = settings
        self.codec = codec
        self._peers: dict[Address, Peer[C]] = {}
        self._rules, self._names = ConnectionRules.of(settings), NameRules.of(settings)
        watch(self)

    def stats(self) -> dict[str, ConnectionStats]:
        """What went over the connections to each address, those that were replaced included."""
        return {
            address_text(address): peer.traffic.view(
                is_open=peer.connection is not None and peer.connection.usable,
                in_flight=sum(found.in_flight for found in peer.connections()),
            )
            for address, peer in sorted(self._peers.copy().items())
        }

    def _in_use(self, address: Address, now: int) -> C | None:
        """The connection that was in use just now: neither idle nor hung up, no lock is needed."""
        peer = self._peers.get(address)
        found = peer.connection if peer is not None else None
        if found is not None and found.good and now - found.used_at * 1000 < QUIET_MS:
            return found
        return None

    def _to_look_up(self, address: Address) -> Peer[C] | None:
        """The peer that is not what it should be, if its name is worth a look."""
        peer = self._peers.get(address)
        if peer and peer.connection and self._names.worth_it(address, now_ms()):
            return peer
        return None

    def _take_idle(self, peer: Peer[C], now: int) -> list[C]:
        """What is to be closed because it is idle, or replaced and done."""
        found = peer.connection
        if found and found.retired:
            peer.leaving.append(found)
            found = peer.connection = None
        done = [old for old in peer.leaving if old.in_flight == 0]
        peer.leaving = [old for old in peer.leaving if old not in done]
        if found and self._rules.is_idle(round(found.used_at * 1000), found.in_flight, now):
            peer.connection = None
            done.append(found)
        return done

    def _could_not_connect(self, address: Address) -> None:
        chance = random.random()  # noqa: S311 - spreads attempts, guards nothing
        self._rules.failed(address, now_ms(), chance)

    def _tried(self, address: Address, failure: errors.TubeMQError | None) -> None:
        """An attempt beside the caller that asked to reach `address` is over."""
        peer = self._peers.get(address)
        if peer is not None:
            peer.failure, peer.connecting = failure, False
