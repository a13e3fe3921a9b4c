"""The blocking shell: metadata, exact ranges, producers, pull consumers, administration.

Works in the caller's thread and starts none. `aio` has the same names for event loops; what either
decides is in `_core`.
"""

from rocketmq_client.sync.admin import Admin
from rocketmq_client.sync.metadata import Metadata
from rocketmq_client.sync.producer import Producer
from rocketmq_client.sync.pulling import PullConsumer
from rocketmq_client.sync.ranges import RangeReader
from rocketmq_client.sync.session import Session

__all__ = ["Admin", "Metadata", "Producer", "PullConsumer", "RangeReader", "Session"]
