"""The suite that every source passes, on a genuine broker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tubemq_provider.testing.source_suite import SourceSuite, SourceTopic

pytestmark = pytest.mark.timeout(1800)
SECRET = "correct-horse"


class TestKafka(SourceSuite):
    """Records go to two partitions, each second batch of them in a transaction."""

    topics: Any

    @pytest.fixture(autouse=True)
    def broker(self, topics: Any) -> None:
        self.topics = topics

    def make(self, tmp_path: Path) -> SourceTopic:
        topics, topic = self.topics, self.topics.create()

        def produce(bodies: Sequence[bytes]) -> None:
            half = len(bodies) // 2
            topics.send(topic, bodies[:half])
            topics.transaction(topic, ["aborted"], 1, commit=False)
            topics.transaction(topic, bodies[half:], 1)

        options = {"bootstrap.servers": topics.address, "sasl.password": SECRET}
        return SourceTopic("kafka", options, topic, produce, secrets=(SECRET,))
