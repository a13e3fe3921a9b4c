"""What every blocking client object has: settings, a driver, an identity, a closing brace.

Private to `sync`; `aio._base` is its twin. Nothing here decides anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from tubemq_client._io.driver import BlockingDriver
from tubemq_client._io.faces import ClientFace
from tubemq_client.sync.session import Session

if TYPE_CHECKING:
    from types import TracebackType

    from tubemq_client.model import ClientSettings

__all__ = ["BlockingClient"]


class BlockingClient(ClientFace):
    """Base of the blocking shell's classes. Opens nothing until first used."""

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings)
        shared = settings.connections if isinstance(settings, Session) else None
        self._driver = BlockingDriver(settings, shared)

    def start(self) -> None:
        """Begin; entering the context does it too. Raises `errors.ConfigError` the second time."""
        self._begin()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection that is not a session's. Safe to call twice."""
        self._driver.close()
