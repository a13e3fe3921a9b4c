"""Records beyond the cluster's size limit: refused by producers, hidden in memory, read by windows.

On a topic with a wider limit than the cluster's. Both servers acknowledge such a record and skip it
for every reader that they serve from memory; a window ends at a stable end, which is on disk. The
exact limit is in `tests/system/conformance`, row W12.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.system.behaviour.sites import LARGE, bodies, eventually, new_group
from tests.system.behaviour.windows import settings_for
from tools.devkit.patience import PATIENCE
from tools.devkit.tubemq.genuine import GenuineTubeMQ
from tubemq_client import (
    AssignedConsumer,
    ClientSettings,
    Metadata,
    OffsetRange,
    Partition,
    Producer,
    ProducerSettings,
    RangeReader,
    errors,
)
from tubemq_client.admin import AdminClient
from tubemq_client.embedded import EmbeddedTubeMQ, Switches, TopicSpec

PARTITION = Partition(1, LARGE, 0)
FITS, HIDDEN = 2**20 + 10 * 1024 - 52, 2**20 + 10 * 1024 - 51
SEND = ProducerSettings(large_records="send")
ON_DISK_WITHIN_S = 100.0

Place = tuple[ClientSettings, str, str, Callable[[], None]]
"""Settings, address and token of the HTTP side, and what brings records to disk."""


@pytest.fixture
def embedded() -> Iterator[Place]:
    by_hand = Switches(flush_interval_ms=None, unflushed_records=None)
    with EmbeddedTubeMQ(1, [TopicSpec(LARGE)], switches=by_hand) as mq:
        assert mq.master_web is not None
        yield settings_for(mq.masters), mq.master_web, "abc", mq.broker(1).flush


@pytest.fixture(params=["embedded", pytest.param("genuine", marks=pytest.mark.real)])
def place(request: pytest.FixtureRequest) -> Place:
    if request.param == "embedded":
        found: Place = request.getfixturevalue("embedded")
        return found
    cluster: GenuineTubeMQ = request.getfixturevalue("genuine")
    settings = replace(settings_for(cluster.masters), heartbeat_period_ms=1_000)
    return settings, cluster.master_web, cluster.admin_token, lambda: None


def widen(place: Place) -> None:
    """Allow the topic 2 MiB; producers and the broker hear of it with heartbeats of theirs."""
    settings, web, token, _ = place
    with AdminClient(web, token=token) as admin:
        (control,) = [c for c in admin.topic_controls() if c.topic == LARGE]
        if control.max_message_mb != 2:
            admin.set_topic_control(LARGE, max_message_mb=2)
    with Producer(replace(settings, heartbeat_period_ms=1_000), producer=SEND) as producer:

        def accepted() -> bool | None:
            try:
                producer.send(LARGE, bytes(HIDDEN))
            except (errors.ConfigError, errors.ServerError):
                return None
            return True

        eventually(accepted)


def read_from_memory(settings: ClientSettings, start: int) -> list[int]:
    """Sizes of what a reader finds that keeps up, until the small record that comes last."""
    found: list[int] = []
    with AssignedConsumer(settings, new_group(), {LARGE: ()}) as consumer:
        consumer.assign(PARTITION, start)

        def last_seen() -> bool | None:
            batch = consumer.pull(PARTITION, timeout_ms=200)
            found.extend(map(len, bodies(batch)))
            if batch is not None:
                consumer.confirm(batch)
            return True if found[-1:] == [1] else None

        eventually(last_seen)
    return found


def read_window(settings: ClientSettings, start: int, end: int) -> list[int]:
    """Sizes of the records of a window, once its end is stable."""
    deadline = time.monotonic() + ON_DISK_WITHIN_S * PATIENCE
    with Metadata(settings) as metadata:
        while metadata.ends(LARGE, "large_ends")[PARTITION].max_offset < end:
            assert time.monotonic() < deadline, f"not on disk within {ON_DISK_WITHIN_S} s"
            time.sleep(0.2)
    with RangeReader(settings, group=new_group()) as reader:
        batches = list(reader.read(OffsetRange(PARTITION, start, end)))
    return [len(body) for batch in batches for body in bodies(batch)]


@pytest.mark.slow
def test_what_groups_may_never_get_is_refused_or_left_to_windows(place: Place) -> None:
    settings, _, _, flush = place
    widen(place)
    flush()
    with Producer(settings) as producer:
        with pytest.raises(errors.ConfigError, match="large_records"):
            producer.send(LARGE, bytes(HIDDEN))
        assert producer.stats.stored == 0
    with Producer(settings, producer=SEND) as producer:
        sizes = (1, HIDDEN, FITS, 1)
        start, *_, last = (producer.send(LARGE, bytes(size)).offset for size in sizes)
    assert read_from_memory(settings, start + 28) == [FITS, 1]
    flush()
    assert read_window(settings, start, last + 28) == list(sizes)
