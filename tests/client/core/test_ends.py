"""Look-ups of the ends of logs: the requests to brokers, step by step."""

from __future__ import annotations

from tubemq_client._core.ends import store_ends
from tubemq_client._core.master import MasterSession, fetch_topic_metadata
from tubemq_client.embedded import TopicSpec
from tubemq_client.testing.memory import MemoryTubeMQ
from tubemq_client.testing.scripted import ScriptedDriver


def look_up(mq: MemoryTubeMQ) -> ScriptedDriver:
    """Look up a topic and its ends; return the driver with its trace."""
    driver = mq.driver()
    session = MasterSession((mq.master_address,))
    metadata = driver.run(fetch_topic_metadata(session, "orders", "g_1-1-1-1-Meta", "g"))
    ends = store_ends(
        metadata.partitions, metadata.brokers, "g", stable=True, access=session.access
    )
    assert len(driver.run(ends)) == 8
    return driver


def test_the_same_steps_at_the_same_moments_every_time() -> None:
    traces = [look_up(MemoryTubeMQ(2, [TopicSpec("orders", 2, 2)])).trace for _ in range(2)]
    assert traces[0] == traces[1]
    assert len(traces[0]) == 3 + 2 * 4, "metadata, then two requests for each of four stores"
