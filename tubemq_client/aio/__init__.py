"""Asyncio API: `Metadata`, `RangeReader`, `Producer`, `AssignedConsumer`, `Consumer`, `Session`.

The same names, methods and meaning as in `sync`, awaited. Thin by rule: `_core` makes every
decision; this package waits, locks and connects the parts. Each object is an async context manager:
no task and no socket of it outlives the `async with`. Objects belong to the event loop that first
uses them; any number of its tasks may share one. Importing this package imports asyncio, which
`tubemq_client` does not.
"""

from tubemq_client.aio.assigned_consumer import AssignedConsumer
from tubemq_client.aio.consumer import Consumer
from tubemq_client.aio.metadata import Metadata
from tubemq_client.aio.producer import Producer
from tubemq_client.aio.ranges import RangeReader
from tubemq_client.aio.session import Session

__all__ = ["AssignedConsumer", "Consumer", "Metadata", "Producer", "RangeReader", "Session"]
