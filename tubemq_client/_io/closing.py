"""Objects that are closed at the end of a `with` block, in either shell and for any protocol.

Bases of clients and sessions. `close` is theirs to write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["AsyncClosing", "Closing"]


class Closing:
    """Leaving the context closes."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Safe to call twice."""
        raise NotImplementedError


class AsyncClosing:
    """Leaving the context closes."""

    __slots__ = ()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Safe to call twice."""
        raise NotImplementedError
