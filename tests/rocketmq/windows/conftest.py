"""Two embedded brokers with two queues each, and a topic for windows."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketmq_client.embedded import EmbeddedRocketMQ
from tests.kit.servers import embedded_rocketmq
from tests.rocketmq.windows.topics import Topic

rocketmq = embedded_rocketmq(2, brokers=2)


@pytest.fixture
def topic(rocketmq: EmbeddedRocketMQ, tmp_path: Path) -> Topic:
    return Topic(rocketmq.settings, "orders", tmp_path)
