"""Base of the triggers of deferred sensors: poll, pause, and fire once.

Errors that may pass are waited out with growing pauses and logged once; permanent errors are fired.
Subclasses define the connection and the condition. Private to this room.
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
from tubemq_provider.triggers._firing import Backoff, class_path, jittered
from tubemq_provider.windows.errors import is_final

_READY: Final = {"status": "ready"}

_PACKED: Final = "zlib"
_MOST_UNPACKED: Final = 64 << 20
_PLAIN: Final = 200
"""Offsets of more partitions are compressed: MySQL has 64 KiB for a trigger's arguments,
encrypted."""


class WaitingTrigger(BaseTrigger):
    """Trigger that fires ``{"status": "ready"}`` or ``{"status": "error", "message"}`` once.

    `until`, `min_lag` and `stable` are for `is_ready`, `topic` also for logs; `poll_interval` is
    in seconds, with a jitter of a fifth, and so are `first_look_after` and `look_again_after`, when
    it fires in any case and the task checks. For a topic that does not exist it waits or, without
    `wait_for_topic`, fires, and the task reports it.
    """

    def __init__(
        self,
        *,
        topic: str,
        until: Mapping[str, int] | None,
        min_lag: int,
        stable: bool,
        poll_interval: float,
        first_look_after: float = 0.0,
        look_again_after: float | None = None,
        wait_for_topic: bool,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.topic = topic
        self.until = unpacked(until)
        self.min_lag = min_lag
        self.stable = stable
        self.poll_interval = poll_interval
        self.first_look_after = first_look_after
        self.look_again_after = look_again_after
        self.wait_for_topic = wait_for_topic
        self._hook: Any = None

    @abstractmethod
    def make_hook(self) -> Any:
        """Return a hook that has not read the connection yet."""

    def connected(self) -> AbstractAsyncContextManager[Any]:
        """Return a client for one check, on the connection that this loop shares."""
        if self._hook is None:
            self._hook = self.make_hook()
        client: AbstractAsyncContextManager[Any] = self._hook.connected()
        return client

    @abstractmethod
    async def is_ready(self, client: Any) -> bool:
        """Check once. Raises `errors.TubeMQError` like the clients."""

    @abstractmethod
    def arguments(self) -> dict[str, Any]:
        """Return the arguments of an equal trigger; no secrets."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and its arguments; offsets of many partitions are compressed."""
        arguments = {name: _packed(value) for name, value in self.arguments().items()}
        return class_path(self), arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll until there is an event to fire."""
        await asyncio.sleep(jittered(self.first_look_after))
        backoff = Backoff()
        deadline = time.monotonic() + jittered(self.look_again_after or math.inf)
        while True:
            pause = jittered(self.poll_interval)
            verdict: dict[str, str] | None = None
            try:
                async with self.connected() as client:
                    ready = await self.is_ready(client) or time.monotonic() >= deadline
                    verdict = _READY if ready else None
                if backoff.worked():
                    self.log.info("topic %s: reachable again", self.topic)
            except errors.UnknownTopic as exc:
                self._hook = None
                self.log.warning("not yet: %s", exc)
                verdict = None if self.wait_for_topic else _READY
            except Exception as exc:  # noqa: BLE001 - also errors of the API server
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
    """Return offsets by partition key from a trigger's argument, plain or compressed."""
    argument = dict(offsets or {})
    if argument.keys() != {_PACKED}:
        return argument
    decompressor = zlib.decompressobj()
    text = decompressor.decompress(b85decode(argument[_PACKED]), _MOST_UNPACKED)
    if not decompressor.eof:
        raise ValueError(f"packed offsets have no end within {_MOST_UNPACKED} bytes")
    offsets_there: dict[str, int] = json.loads(text)
    return offsets_there


def _packed(value: Any) -> Any:
    if not isinstance(value, dict) or len(value) <= _PLAIN:
        return value
    text = json.dumps(value, separators=(",", ":"), sort_keys=True)
    return {_PACKED: b85encode(zlib.compress(text.encode(), 9)).decode()}
