"""Blocking API: the clients in `__all__`.

Thin by rule: `_core` makes every decision; this package waits, locks and connects the parts. Each
object is a context manager. Consumers are imported lazily: Spark's executors do not need them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubemq_client._lazy import lazy_names
from tubemq_client.sync.metadata import Metadata
from tubemq_client.sync.producer import Producer
from tubemq_client.sync.ranges import RangeReader
from tubemq_client.sync.session import Session

if TYPE_CHECKING:
    from tubemq_client.sync.assigned_consumer import AssignedConsumer
    from tubemq_client.sync.consumer import Consumer

__all__ = ["AssignedConsumer", "Consumer", "Metadata", "Producer", "RangeReader", "Session"]
__getattr__ = lazy_names(
    __name__, {".assigned_consumer": ("AssignedConsumer",), ".consumer": ("Consumer",)}
)
