"""Sync and asyncio API of the RocketMQ client behind blocking calls, so that scenarios are written
once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rocketmq_client import aio, sync
from tests.system.behaviour.shells import LoopShell, OnLoop

NAMES = (
    *("Admin", "Consumer", "Metadata", "Producer", "PullConsumer", "RangeReader"),
    *("Requester", "TransactionalProducer"),
)


class Shell:
    """Builds clients of one API; each is a context manager with blocking methods."""

    Admin: Any
    Consumer: Any
    Metadata: Any
    Producer: Any
    PullConsumer: Any
    RangeReader: Any
    Requester: Any
    TransactionalProducer: Any

    def __init__(self, name: str, module: Any, wrap: Any = lambda made: made) -> None:
        self.name = name
        for kind in NAMES:
            setattr(self, kind, self._builder(getattr(module, kind), wrap))

    @staticmethod
    def _builder(kind: Any, wrap: Any) -> Any:
        return lambda *args, **options: wrap(kind(*args, **options))


@contextmanager
def shell_of(name: str) -> Iterator[Shell]:
    if name == "sync":
        yield Shell(name, sync)
        return
    with LoopShell() as loop:
        yield Shell(name, aio, lambda client: OnLoop(client, loop.wait))
