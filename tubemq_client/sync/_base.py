"""Base of every blocking client object: settings, a driver, an identity, a context manager.

Private to `sync`; `aio._base` is its counterpart. Nothing here decides anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeVar

from tubemq_client._io.client_base import ClientBase
from tubemq_client._io.closing import Closing
from tubemq_client._io.driver import BlockingDriver
from tubemq_client._io.routines import Apply, Do, Wait
from tubemq_client._io.thread_sync import play
from tubemq_client.sync.session import Session

if TYPE_CHECKING:
    from tubemq_client._core.effects import Conversation
    from tubemq_client._io.routines import Routine, Step
    from tubemq_client.model import ClientSettings

__all__ = ["BlockingClient"]

T = TypeVar("T")


class BlockingClient(Closing, ClientBase):
    """Base of the classes of the blocking API. Opens nothing until first used."""

    _driver: BlockingDriver

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings)
        shared = settings.connections if isinstance(settings, Session) else None
        self._driver = BlockingDriver(settings, shared)

    def start(self) -> None:
        """Start the client; entering the context does it too.

        Raises `errors.ConfigError` the second time.
        """
        self._begin()

    def __enter__(self) -> Self:
        self.start()
        return self

    def close(self) -> None:
        """Close every connection that is not a session's; may be called twice."""
        self._driver.close()

    def _do(self, conversation: Conversation[T]) -> T:
        return self._driver.run(conversation)

    def _play(self, routine: Routine[T]) -> T:
        return play(routine, self._take)

    def _take(self, step: Step) -> Any:
        if isinstance(step, Do):
            return self._do(step.conversation)
        if isinstance(step, Wait):
            return step.notifier.wait(step.seen, step.timeout_s)
        if isinstance(step, Apply):
            return step.function(step.argument)
        return self._do(step.conversation)
