"""Base of every client object of both APIs, without waiting: identity, settings, statistics.

Base of the blocking and of the asyncio classes alike, so that nothing is written twice; members of
groups, producers and readers add to it (`consumer_base`, `producer_base`, `reader_base`). Nothing
here sends, sleeps or decides; state belongs to the sessions of `_core`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tubemq_client import errors
from tubemq_client._core.limits import no_settings
from tubemq_client._core.master import MasterSession
from tubemq_client._io.forks import watch
from tubemq_client._io.host import client_ids, first_nonce
from tubemq_client.model import ClientSettings

if TYPE_CHECKING:
    from tubemq_client._io.requests import Requests
    from tubemq_client.model import ConnectionStats

__all__ = ["ClientBase"]


class ClientBase:
    """Identity and settings of a client object."""

    _driver: Requests[Any]
    _begun = False

    @property
    def settings(self) -> ClientSettings:
        """Settings of the client."""
        return self._settings

    @property
    def connections(self) -> dict[str, ConnectionStats]:
        """Traffic of the connections to each server; on a session, of those of all its clients."""
        return self._driver.connections()

    @property
    def _pool_id(self) -> int:
        """Identity of the pool: equal for clients that share one session."""
        return self._driver.pool_id

    def _begin(self) -> None:
        if self._begun:
            raise errors.ConfigError(
                f"this {type(self).__name__} was started before, and lives once: make another",
                subject="start",
            )
        self._begun = True

    def __init__(self, settings: ClientSettings) -> None:
        if not isinstance(settings, ClientSettings):
            raise errors.ConfigError(no_settings(settings), subject="settings")
        self._settings = settings
        self._ids = client_ids()
        self._session = MasterSession.of(settings, self._ids.host, first_nonce())
        watch(self)
