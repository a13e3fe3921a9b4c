"""What every trigger of a deferred sensor does: look, pause, look again, fire once.

Trouble that may pass is waited out with growing pauses and said once; what no waiting cures is
fired as an error. A trigger says how it connects and when it is content. Private to this room.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
import zlib
from abc import abstractmethod
from base64 import b85decode, b85encode
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from airflow.triggers.base import BaseTrigger, TriggerEvent

from tubemq_client import errors
from tubemq_provider.triggers._watch import Backoff, jittered
from tubemq_provider.windows.errors import is_final

__all__ = ["WaitingTrigger", "unpacked"]

_READY: Final = {"status": "ready"}

_PACKED: Final = "zlib"
_MOST_UNPACKED: Final = 64 << 20
_PLAIN: Final = 200
"""Offsets of more partitions are packed: MySQL has 64 KiB for a trigger's arguments, encrypted."""


class WaitingTrigger(BaseTrigger):
    """Fires ``{"status": "ready"}``, or ``{"status": "error", "message"}``, and ends.

    `topic` is named in the log; `poll_interval` is in seconds, a fifth more or less, and so are
    `first_look_after` and `look_again_after`, when the task looks itself whatever there is. A topic
    that does not exist is waited for, or else the task looks, and says what is wrong.
    """

    def __init__(
        self,
        *,
        topic: str,
        poll_interval: float,
        first_look_after: float = 0.0,
        look_again_after: float | None = None,
        wait_for_topic: bool = True,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.topic = topic
        self.poll_interval = poll_interval
        self.first_look_after = first_look_after
        self.look_again_after = look_again_after
        self.wait_for_topic = wait_for_topic
        self._hook: Any = None

    @abstractmethod
    def make_hook(self) -> Any:
        """A hook that has not read the connection yet."""

    def connected(self) -> AbstractAsyncContextManager[Any]:
        """A client for one look, on the connection that this loop shares."""
        if self._hook is None:
            self._hook = self.make_hook()
        found: AbstractAsyncContextManager[Any] = self._hook.connected()
        return found

    @abstractmethod
    async def is_ready(self, client: Any) -> bool:
        """One look. Raises `errors.TubeMQError` as the clients do."""

    @abstractmethod
    def arguments(self) -> dict[str, Any]:
        """What makes another trigger like this one; no secrets."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and its arguments; offsets of very many partitions are packed."""
        arguments = {name: _packed(value) for name, value in self.arguments().items()}
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look until there is something to say."""
        await asyncio.sleep(jittered(self.first_look_after))
        backoff = Backoff()
        over = time.monotonic() + jittered(self.look_again_after or math.inf)
        while True:
            pause = jittered(self.poll_interval)
            verdict: dict[str, str] | None = None
            try:
                async with self.connected() as client:
                    ready = await self.is_ready(client) or time.monotonic() >= over
                    verdict = _READY if ready else None
                if backoff.worked():
                    self.log.info("topic %s: reachable again", self.topic)
            except errors.UnknownTopic as exc:
                self._hook = None
                self.log.warning("not yet: %s", exc)
                verdict = None if self.wait_for_topic else _READY
            except Exception as exc:  # noqa: BLE001 - also the API server, which has the connection
                if isinstance(exc, errors.TubeMQError) and is_final(exc):
                    verdict = {"status": "error", "message": f"{type(exc).__name__}: {exc}"}
                else:
                    self._hook = None  # the connection may be edited meanwhile
                    pause = min(pause, backoff.failed())
                    if backoff.failures == 1:
                        self.log.warning("not yet: %s", exc)
            if verdict is not None:
                yield TriggerEvent(verdict)  # type: ignore[no-untyped-call]
                return
            await asyncio.sleep(pause)


def unpacked(offsets: Mapping[str, Any] | None) -> dict[str, int]:
    """Offsets by partition key as a trigger is given them: by a task, or packed by `serialize`."""
    found = dict(offsets or {})
    if found.keys() != {_PACKED}:
        return found
    unpacking = zlib.decompressobj()
    text = unpacking.decompress(b85decode(found[_PACKED]), _MOST_UNPACKED)
    if not unpacking.eof:
        raise ValueError(f"packed offsets have no end within {_MOST_UNPACKED} bytes")
    whole: dict[str, int] = json.loads(text)
    return whole


def _packed(value: Any) -> Any:
    if not isinstance(value, dict) or len(value) <= _PLAIN:
        return value
    text = json.dumps(value, separators=(",", ":"), sort_keys=True)
    return {_PACKED: b85encode(zlib.compress(text.encode(), 9)).decode()}
