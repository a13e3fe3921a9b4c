"""What the Airflow tests share: an embedded cluster, a connection to it, and a real Airflow."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tubemq_client.embedded import EmbeddedTubeMQ, Switches, TopicSpec
from tubemq_provider.hooks.tubemq import TubeMQHook

TOPIC = "orders"


@pytest.fixture
def mq() -> Iterator[EmbeddedTubeMQ]:
    """Two brokers, two stores of two partitions each; records are flushed by hand only."""
    topics = [TopicSpec(TOPIC, stores=2, partitions=2)]
    switches = Switches(flush_interval_ms=None, unflushed_records=None)
    with EmbeddedTubeMQ(brokers=2, topics=topics, switches=switches, http=False) as server:
        yield server


@pytest.fixture
def hook(mq: EmbeddedTubeMQ, monkeypatch: pytest.MonkeyPatch) -> TubeMQHook:
    """A hook whose connection comes from the environment, as Airflow allows."""
    connection = {"conn_type": "tubemq", "host": mq.masters, "extra": {"cluster": "test"}}
    monkeypatch.setenv("AIRFLOW_CONN_TUBEMQ_DEFAULT", json.dumps(connection))
    return TubeMQHook()
