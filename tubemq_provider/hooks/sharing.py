"""One connection to each server for all look-ups of an event loop, for any kind of source.

A triggerer runs hundreds of triggers in one event loop: the first trigger of a cluster opens a
session, the last one to leave closes it. This module must not depend on a kind of source.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

ClientT = TypeVar("ClientT")


@dataclass(slots=True)
class _Shared:
    settings: Any
    session: Any
    users: int = 0


_open: WeakKeyDictionary[asyncio.AbstractEventLoop, list[_Shared]] = WeakKeyDictionary()
"""The sessions of each loop, opened by their first user and closed by their last."""


class Connected(Generic[ClientT]):
    """Client on the session that this loop shares for equal settings.

    `settings` are those of the cluster; `session` and `client` are the classes of its client
    package, so settings of different kinds of source are never equal. A class instead of an
    `asynccontextmanager`: closing an asynchronous generator that is inside one, which is how
    triggers end, would not exit it (Python raises no exception in such a generator).
    """

    def __init__(
        self,
        settings: Callable[[], Awaitable[Any]],
        session: Callable[[Any], Any],
        client: Callable[[Any], ClientT],
    ) -> None:
        self._settings = settings
        self._make_session = session
        self._make_client = client
        self._shared: _Shared | None = None
        self._client: Any = None

    async def __aenter__(self) -> ClientT:
        settings = await self._settings()
        sessions = _open.setdefault(asyncio.get_running_loop(), [])
        shared = next((s for s in sessions if s.settings == settings), None)
        if shared is None:
            shared = _Shared(settings, self._make_session(settings))
            sessions.append(shared)
        try:
            client = self._client = self._make_client(shared.session)
        except BaseException:
            if not shared.users:
                sessions.remove(shared)
                await shared.session.close()
            raise
        shared.users += 1
        self._shared = shared
        return client

    async def __aexit__(self, *_: object) -> None:
        shared, client = self._shared, self._client
        self._shared = self._client = None
        if shared is None or client is None:
            return
        shared.users -= 1
        if not shared.users:
            _open[asyncio.get_running_loop()].remove(shared)
        try:
            await client.close()
        finally:
            if not shared.users:
                await shared.session.close()
