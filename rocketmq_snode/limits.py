"""Limits over all clients of a node: connections, unfinished frames, unread answers.

When a limit is reached, the client that uses most of it loses its connection, not the one that came
last.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from rocketmq_snode.settings import SnodeSettings

__all__ = ["Limits"]

_RESERVE = 64
"""Descriptors reserved for connections to brokers, pages and files."""
_NEWCOMER_S = 1.0


class Counted(Protocol):
    """Client as limits see it. Times are on the loop's clock, seconds."""

    began: float
    introduced: bool
    unfinished: int
    unfinished_since: float
    queued: int

    def cut_off(self, why: str) -> None:
        """Cut the connection and release its bytes."""


class Limits:
    """Counts the bytes that clients hold. `others` returns the number of the process's other
    connections."""

    def __init__(
        self, settings: SnodeSettings, clients: Iterable[Any], others: Callable[[], int]
    ) -> None:
        self._clients = clients
        self._others = others
        self._most_clients = settings.max_clients
        self._most_unfinished = settings.max_unfinished_bytes
        self._most_queued = settings.max_queued_bytes
        # A quarter of the limit for one client, but at least two frames of the largest size.
        self._most_queued_each = max(settings.max_queued_bytes // 4, 2 * settings.max_frame_bytes)
        self._unfinished = 0
        self._queued = 0

    @property
    def unfinished(self) -> int:
        """Bytes of unfinished frames and of requests that wait for a later turn."""
        return self._unfinished

    @property
    def queued(self) -> int:
        """Bytes of answers that clients have not read."""
        return self._queued

    def admits(self, count: int, now: float) -> bool:
        """Return True if there is room for a client next to `count` others. A client without any
        request so far is cut off for a newcomer."""
        if count < self._most_clients and count + self._others() < _descriptors() - _reserve():
            return True
        silent = (c for c in self._clients if not c.introduced and now - c.began > _NEWCOMER_S)
        oldest = min(silent, key=lambda client: client.began, default=None)
        if oldest is not None:
            oldest.cut_off("it has sent no request, and the limit of clients is reached")
        return oldest is not None

    def may_connect(self, count: int) -> bool:
        """Return True if there is a descriptor for one more connection to a broker."""
        return count + self._others() < _descriptors() - _reserve() // 2

    def forget(self, client: Counted) -> None:
        """Release all bytes of the client."""
        self._unfinished -= client.unfinished
        self._queued -= client.queued
        client.unfinished = client.queued = 0

    def hold_unfinished(self, client: Counted, size: int) -> None:
        """Set the bytes of the client's unfinished frame and waiting requests."""
        self._unfinished += size - client.unfinished
        client.unfinished = size
        while self._unfinished > self._most_unfinished:
            holding = [one for one in self._clients if one.unfinished]
            average = self._unfinished // len(holding)
            large = (one for one in holding if one.unfinished >= average)
            oldest = min(large, key=lambda one: one.unfinished_since)
            oldest.cut_off("unfinished frames of all clients are too large (max_unfinished_bytes)")

    def hold_queued(self, client: Counted, size: int) -> None:
        """Set the bytes of answers that the client has not read."""
        self._queued += size - client.queued
        client.queued = size
        if size > self._most_queued_each:
            client.cut_off("it does not read its answers")
        while self._queued > self._most_queued:
            slowest = max(self._clients, key=lambda one: one.queued)
            slowest.cut_off("unread answers of all clients are too large (max_queued_bytes)")


def _descriptors() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


def _reserve() -> int:
    return min(_RESERVE, _descriptors() // 4)
