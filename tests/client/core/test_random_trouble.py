"""Any schedule of faults: the range arrives complete, or the read raises, in bounded time.

Each request of a read meets the next fault of a drawn list: its reply is lost, never arrives or is
a refusal, the lease expires or is stolen, the broker restarts. No real time passes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.core.conftest import BESIDE, PARTITION, SMALL_READS, TOPIC, bodies
from tubemq_client import OffsetRange, Record, errors
from tubemq_client._core.batch import DecodePolicy
from tubemq_client._core.identity import ClientIds, ReaderPool
from tubemq_client._core.master import MasterSession
from tubemq_client._core.range_read import RangeRead
from tubemq_client._core.read_stats import ReadPolicy, ReadStats
from tubemq_client._core.sending import ProducerSession
from tubemq_client.embedded import Switches, TopicSpec
from tubemq_client.testing.memory import MemoryTubeMQ
from tubemq_client.testing.scripted import TracedRequest

FAULTS = ("none", "lost", "silent", "411", "412", "500", "503", "expire", "restart")
COUNT = 60


def filled() -> tuple[MemoryTubeMQ, ClientIds]:
    switches = Switches(reads=SMALL_READS, flush_interval_ms=None, unflushed_records=1)
    memory = MemoryTubeMQ(1, [TopicSpec(TOPIC, 1, 2)], switches=switches)
    ids = ClientIds("127.0.0.1", 1, 1_700_000_000_000, itertools.count(1))
    producer = ProducerSession(MasterSession((memory.master_address,)), ids.producer())
    producer.topics.add(TOPIC)
    driver = memory.driver()
    driver.run(producer.register())
    driver.run(producer.heartbeat())
    records = [Record(b"%02d" % n, partition=BESIDE if n % 3 else PARTITION) for n in range(COUNT)]
    driver.run(producer.send_all(TOPIC, records, 0, 8))
    return memory, ids


def meddler(memory: MemoryTubeMQ, faults: list[str]) -> Callable[[TracedRequest, Any], Any]:
    """Return a function that applies one fault per request until none is left."""
    left = iter(faults)

    def meddle(_: TracedRequest, reply: Any) -> Any:
        fault = next(left, "none")
        if fault == "lost":
            raise errors.ConnectionLost("cut")
        if fault == "expire":
            memory.elapse(31_000)
        if fault == "restart":
            memory.stop_broker(1)
            memory.start_broker(1)
        if fault.isdecimal():
            return type(reply)(success=False, errCode=int(fault), errMsg="")
        return None if fault == "silent" else reply

    return meddle


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from(FAULTS), max_size=30),
    st.integers(0, COUNT),
    st.integers(0, COUNT),
)
def test_every_record_of_the_range_arrives_once_under_any_faults(
    faults: list[str], one: int, other: int
) -> None:
    memory, ids = filled()
    memory.tamper = meddler(memory, faults)
    range_ = OffsetRange(PARTITION, 28 * min(one, other), 28 * max(one, other))
    read = RangeRead(
        range_,
        memory.node(1),
        pool=ReaderPool("group", 4),
        ids=ids,
        decode=DecodePolicy(),
        policy=ReadPolicy(deadline_ms=3_600_000),
        stats=ReadStats(),
    )
    driver = memory.driver(rpc_timeout_ms=1_000, max_effects=5_000)
    got = bodies(list(driver.stream(read.conversation(), read.release())))
    expected = [n for n in range(min(one, other), max(one, other)) if n % 3 == 0]
    assert got == [b"%02d" % n for n in expected]
