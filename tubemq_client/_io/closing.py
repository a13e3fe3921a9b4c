"""Objects that are closed at the end of a `with` block, in either API and for any protocol.

Bases of clients and sessions, which implement `close`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["AsyncClosing", "Closing"]


class Closing:
    """Context manager that closes itself on exit."""

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
        """Close; may be called twice."""
        raise NotImplementedError


class AsyncClosing:
    """Asynchronous context manager that closes itself on exit."""

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
        """Close; may be called twice."""
        raise NotImplementedError
