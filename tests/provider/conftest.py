"""Embedded cluster and a hook connected to it; rooms with other fixtures override them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.kit.lakes import TOPIC
from tests.kit.servers import embedded_tubemq
from tubemq_client.embedded import EmbeddedTubeMQ, Switches, TopicSpec

if TYPE_CHECKING:
    from tubemq_provider.hooks.tubemq import TubeMQHook


# Records are flushed by hand only.
mq = embedded_tubemq(
    [TopicSpec(TOPIC, stores=2, partitions=2)],
    brokers=2,
    switches=Switches(flush_interval_ms=None, unflushed_records=None),
)


@pytest.fixture
def hook(mq: EmbeddedTubeMQ, monkeypatch: pytest.MonkeyPatch) -> TubeMQHook:
    """Return a hook whose connection comes from the environment."""
    from tubemq_provider.hooks.tubemq import TubeMQHook  # only these tests need Airflow

    connection = {"conn_type": "tubemq", "host": mq.masters, "extra": {"cluster": "test"}}
    monkeypatch.setenv("AIRFLOW_CONN_TUBEMQ_DEFAULT", json.dumps(connection))
    return TubeMQHook()
