"""Connections and answers that all look-ups of an event loop share, for any kind of source.

A triggerer runs hundreds of triggers in one event loop: the first trigger of a cluster opens a
session, the last one to leave closes it. Of triggers that wait for the same topic one looks, and
the others take its answer (`Looks`). This module must not depend on a kind of source.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from dataclasses import dataclass
from time import monotonic
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

ClientT = TypeVar("ClientT")
T = TypeVar("T")


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


@dataclass(slots=True)
class _Look:
    began: float
    task: asyncio.Task[Any]


class Looks:
    """Answers to questions about one cluster, by question."""

    def __init__(self) -> None:
        self._looks: dict[Hashable, _Look] = {}

    async def get(
        self, question: Hashable, max_age_s: float, ask: Callable[[], Coroutine[Any, Any, T]]
    ) -> T:
        """Return the answer of a look that is under way, or began at most `max_age_s` ago.

        Else `ask` makes one, which continues for the others if its caller is cancelled. A failure
        is raised for all that wait for it, and not kept.
        """
        look = self._looks.get(question)
        if look is None or (look.task.done() and monotonic() - look.began > max_age_s):
            task = asyncio.get_running_loop().create_task(ask())
            look = self._looks[question] = _Look(monotonic(), task)
            task.add_done_callback(lambda done: self._note_end(question, done))
        answer: T = await asyncio.shield(look.task)
        return answer

    def forget(self, question: Hashable) -> None:
        """Let the next caller look again."""
        self._looks.pop(question, None)

    def _note_end(self, question: Hashable, task: asyncio.Task[Any]) -> None:
        look = self._looks.get(question)
        failed = task.cancelled() or task.exception() is not None
        if failed and look is not None and look.task is task:
            del self._looks[question]


_looks: WeakKeyDictionary[asyncio.AbstractEventLoop, list[tuple[Any, Looks]]] = WeakKeyDictionary()


def looks_at(settings: Any) -> Looks:
    """Return the answers that this loop shares for equal settings."""
    clusters = _looks.setdefault(asyncio.get_running_loop(), [])
    for known, looks in clusters:
        if known == settings:
            return looks
    clusters.append((settings, looks := Looks()))
    return looks
