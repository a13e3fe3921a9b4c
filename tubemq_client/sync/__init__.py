"""The blocking shell: `Metadata`, `RangeReader`, `Producer`, `AssignedConsumer`, `Consumer`,
`Session`.

Thin by rule: every decision is made in `_core`; a shell waits, locks and wires. Each object is a
context manager; nothing outlives its `with`. The module names are the ones `aio` will use.
"""

from tubemq_client.sync.balanced import Consumer
from tubemq_client.sync.consumer import AssignedConsumer
from tubemq_client.sync.metadata import Metadata
from tubemq_client.sync.producer import Producer
from tubemq_client.sync.ranges import RangeReader
from tubemq_client.sync.session import Session

__all__ = ["AssignedConsumer", "Consumer", "Metadata", "Producer", "RangeReader", "Session"]
