"""Servers of the kit that run for the length of a `with` block.

Bases only: this module must not start a process itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Running"]


class Running:
    """Entering the context starts, leaving it stops; what has failed to start is stopped, too."""

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
        """Start all of it, and wait until it answers."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop all of it; safe to call twice, and before `start`."""
        raise NotImplementedError
