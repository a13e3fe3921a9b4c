"""A small RocketMQ in one process: a name server and brokers, for demonstrations and tests.

Loopback only, nothing on disk, no replication. It answers what this client asks as a genuine 5.5.0
does (`tests/rocketmq/embedded` holds it against recorded answers); `docs/rocketmq.md` says where it
does not.

    with EmbeddedRocketMQ(topics={"demo": 4}) as mq:
        print(mq.settings)
"""

from __future__ import annotations

from rocketmq_client.embedded.server import EmbeddedRocketMQ

__all__ = ["EmbeddedRocketMQ"]
