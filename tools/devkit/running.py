"""Servers of the kit that run for the length of a `with` block.

Bases only: this module must not start a process itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Running"]


class Running:
    """Base of servers: entering the context starts, leaving it stops; a failed start is
    cleaned up."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> object:
        """Start the servers, and wait until they answer."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop the servers; safe to call twice, and before `start`."""
        raise NotImplementedError
