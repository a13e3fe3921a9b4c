"""Triggers on the test's own event loop, against an embedded cluster."""

from __future__ import annotations

import json

import pytest

from tests.kit.servers import embedded_tubemq
from tubemq_client.embedded import EmbeddedTubeMQ, Switches, TopicSpec
from tubemq_provider.hooks.tubemq import TubeMQHook

mq = embedded_tubemq(
    [TopicSpec("orders", stores=1, partitions=2)],
    brokers=2,
    switches=Switches(unflushed_records=1),
)


@pytest.fixture
def hook(mq: EmbeddedTubeMQ, monkeypatch: pytest.MonkeyPatch) -> TubeMQHook:
    """Return a hook whose connection comes from the environment."""
    connection = {
        "conn_type": "tubemq",
        "host": mq.masters,
        "extra": {"cluster": "test", "rpc_timeout_ms": 2000, "connect_timeout_ms": 1000},
    }
    monkeypatch.setenv("AIRFLOW_CONN_TUBEMQ_DEFAULT", json.dumps(connection))
    return TubeMQHook()
