"""The blocking shell: `Metadata`, `RangeReader`, `Producer`, `AssignedConsumer`, `Consumer`,
`Session`.

Thin by rule: every decision is made in `_core`; a shell waits, locks and wires. Each object is a
context manager; nothing outlives its `with`. The module names are those of `aio`. Consumers are
imported when they are asked for: Spark's executors only read ranges, and are not sent them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tubemq_client.sync.metadata import Metadata
from tubemq_client.sync.producer import Producer
from tubemq_client.sync.ranges import RangeReader
from tubemq_client.sync.session import Session

if TYPE_CHECKING:
    from tubemq_client.sync.balanced import Consumer
    from tubemq_client.sync.consumer import AssignedConsumer

__all__ = ["AssignedConsumer", "Consumer", "Metadata", "Producer", "RangeReader", "Session"]

_HOMES = {
    "AssignedConsumer": "tubemq_client.sync.consumer",
    "Consumer": "tubemq_client.sync.balanced",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
