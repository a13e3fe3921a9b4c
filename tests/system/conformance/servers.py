"""The two servers that the tables are run against."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.system.conformance.playing import Server
from tests.system.conformance.tables import TOPIC_SHAPES
from tools.devkit.tubemq.genuine import TopicSpec as GenuineTopic
from tubemq_client.embedded import EmbeddedTubeMQ, Switches, TopicSpec
from tubemq_client.testing.clock import ManualClock

__all__ = ["GENUINE_TOPICS", "embedded_server", "genuine_server"]

_STEP_MS = 250
_ROUND_MS = 3_000

_SOON_ON_DISK = {"memCacheFlushIntvl": 4000, "unflushThreshold": 1}
_LONG_IN_MEMORY = {"memCacheFlushIntvl": 20000, "memCacheMsgSizeInMB": 16, "unflushThreshold": 1}
_READ_FROM_FILES = ("conf_w4", "conf_w11")
"""Of the worked sequences; in the others what is read must not move to a file meanwhile."""

_PLAIN = ("conf_http", "conf_http7", "conf_life", "conf_grow")
"""Topics whose properties are queried: those without any option."""


def _options(topic: str) -> dict[str, int]:
    if topic.startswith("conf_w") and topic not in _READ_FROM_FILES:
        return _LONG_IN_MEMORY
    return {} if topic in _PLAIN else _SOON_ON_DISK


GENUINE_TOPICS = tuple(
    GenuineTopic(name, partitions=count, options=_options(name))
    for name, count in TOPIC_SHAPES.items()
)

_SWITCHES = Switches(
    flush_interval_ms=None,
    unflushed_records=None,
    lease_scan_ms=None,
    balance_period_ms=None,
    create_undeclared_stores=True,
)


@contextmanager
def embedded_server() -> Iterator[Server]:
    """Start an embedded server whose time passes only during waits."""
    clock = ManualClock()
    topics = [TopicSpec(name, 1, count) for name, count in TOPIC_SHAPES.items()]
    with EmbeddedTubeMQ(1, topics, switches=_SWITCHES, clock=clock) as mq:
        broker, began = mq.broker(1), clock()

        def wait(ms: int) -> None:
            for _ in range(max(1, ms // _STEP_MS)):
                clock.advance(_STEP_MS)
                broker.flush()
                if (clock() - began) % _ROUND_MS == 0:
                    mq.tick()

        assert mq.master_web is not None
        assert broker.web is not None
        yield Server(mq.masters, broker.address, mq.master_web, broker.web, "abc", wait)


def genuine_server(cluster: Any) -> Server:
    """Return a genuine cluster that has the topics."""
    host, port = cluster.broker_address
    return Server(
        cluster.masters,
        f"{host}:{port}",
        cluster.master_web,
        cluster.broker_web,
        cluster.admin_token,
        lambda ms: time.sleep(ms / 1000),
    )
