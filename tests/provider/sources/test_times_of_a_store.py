"""Times of a topic whose first records are gone, though its broker continues listing them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tubemq_client import Producer
from tubemq_client.config import ClientConfig
from tubemq_client.embedded import EmbeddedTubeMQ, Switches, TopicSpec
from tubemq_client.errors import ConfigError
from tubemq_provider.sources.tubemq.source import open_source

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TOPIC = "orders"


@pytest.fixture
def mq() -> Iterator[EmbeddedTubeMQ]:
    switches = Switches(unflushed_records=1)
    with EmbeddedTubeMQ(topics=[TopicSpec(TOPIC)], http=False, switches=switches) as server:
        with Producer(ClientConfig(masters=server.masters).settings()) as producer:
            for minute in range(20):
                time = (NOON + timedelta(minutes=minute)).strftime("%Y%m%d%H%M")
                producer.send(TOPIC, b"x", stream_id="s", msg_time=time)
        yield server


@pytest.mark.parametrize("expire", ["expire_to", "expire_data_to"])
def test_an_instant_before_the_first_record_has_no_boundary(
    mq: EmbeddedTubeMQ, expire: str
) -> None:
    getattr(mq.broker(1).store(TOPIC), expire)(28 * 10)
    settings = ClientConfig(masters=mq.masters).settings()
    with open_source(settings, identity="local", topic=TOPIC, group="g") as source:
        resolver = source.resolver("message_time", {})
        with pytest.raises(ConfigError, match="retention has removed"):
            resolver.offsets_at(NOON + timedelta(minutes=5))
        assert resolver.offsets_at(NOON + timedelta(minutes=15)) == {"1:0": 28 * 15}
