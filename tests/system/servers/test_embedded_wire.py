"""The embedded server answers like the genuine one, frame by frame."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.system.servers.suite import EMPTY, LONE, SHARED, Servers, WireSuite
from tubemq_client.embedded import EmbeddedTubeMQ, Switches, TopicSpec

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    topics = [TopicSpec(LONE), TopicSpec(SHARED, 1, 3), TopicSpec(EMPTY, 1, 2)]
    by_hand = Switches(flush_interval_ms=None, unflushed_records=None)
    with EmbeddedTubeMQ(1, topics, http=False, switches=by_hand) as embedded:
        yield Servers(embedded.masters, embedded.broker(1).address)


class TestEmbedded(WireSuite):
    """Everything in the suite."""
