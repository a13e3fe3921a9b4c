"""A small RocketMQ in one process: a name server and brokers, for demonstrations and tests.

Loopback only, nothing on disk, no replication. It answers the requests of this client like a
genuine 5.5.0 (`tests/rocketmq/embedded` compares it with recorded answers); `docs/rocketmq.md`
lists the differences.

    with EmbeddedRocketMQ(topics={"demo": 4}) as mq:
        print(mq.settings)
"""

from __future__ import annotations

from rocketmq_client.embedded.server import EmbeddedRocketMQ

__all__ = ["EmbeddedRocketMQ"]
