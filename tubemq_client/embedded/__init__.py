"""A complete TubeMQ in one process: a master, brokers, and their HTTP administration.

For development, demonstrations and tests; loopback only, no replication. It
speaks the same bytes as a real cluster and imitates what a client can notice; `docs/embedded.md`
lists the differences. Importing this package imports neither starlette nor uvicorn.

    with EmbeddedTubeMQ(brokers=2, topics=[TopicSpec("demo", stores=2, partitions=3)]) as mq:
        print(mq.masters)
"""

from __future__ import annotations

from tubemq_client.embedded.handles import BrokerHandle, StoreHandle
from tubemq_client.embedded.options import ReadLimits, Security, ServerTls, Switches, TopicSpec
from tubemq_client.embedded.runtime import Ports
from tubemq_client.embedded.server import EmbeddedTubeMQ
from tubemq_client.embedded.store import Ends

__all__ = [
    "BrokerHandle",
    "EmbeddedTubeMQ",
    "Ends",
    "Ports",
    "ReadLimits",
    "Security",
    "ServerTls",
    "StoreHandle",
    "Switches",
    "TopicSpec",
]
