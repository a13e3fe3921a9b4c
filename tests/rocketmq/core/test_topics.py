"""Kinds of topics for exact ranges, from route and settings."""

from __future__ import annotations

import json

import pytest

from rocketmq_client import ClientSettings, errors
from rocketmq_client._core.cluster import Cluster
from rocketmq_client._core.topics import check_kind
from rocketmq_client._wire.bodies import BrokerData, QueueData, TopicRoute
from rocketmq_client._wire.commands import Command
from tests.rocketmq.core.script import ADDRESS, play


def judge(topic: str = "orders", attributes: object = None, **known: object) -> None:
    """Run `check_kind` with a broker whose settings of the topic have `attributes`."""
    brokers = {"broker-a": BrokerData("broker-a", "c", {0: ADDRESS})}
    route = TopicRoute(topic, brokers, (QueueData("broker-a", 1, 1, 6),), **known)  # type: ignore[arg-type]

    def broker(method: object, request: object) -> Command:
        if isinstance(attributes, Exception):
            raise attributes
        return Command(0, 0, {}, json.dumps({"attributes": attributes}).encode(), 1)

    play(check_kind(Cluster(ClientSettings((ADDRESS,))), route), broker)


@pytest.mark.parametrize(
    ("kind", "topic", "attributes", "known"),
    [
        ("light queue", "%LMQ%clicks", None, {}),
        ("static", "orders", None, {"static": True}),
        ("batch", "orders", {"queue.type": "BatchCQ"}, {}),
        ("compacted", "orders", {"cleanup.policy": "COMPACTION"}, {}),
    ],
)
def test_kinds_whose_offsets_do_not_count_records_are_refused_by_name(
    kind, topic, attributes, known
) -> None:
    with pytest.raises(errors.UnsupportedTopic, match=f"of the kind {kind}"):
        judge(topic, attributes, **known)


@pytest.mark.parametrize(
    ("topic", "attributes"),
    [
        ("orders", None),
        ("orders", {}),
        ("orders", {"message.type": "DELAY"}),
        ("%RETRY%lake", None),
        ("%DLQ%lake", None),
        ("orders", errors.Unsupported(3, "of 4.9")),
        ("orders", errors.NoPermission(16, "an account that may only read")),
        ("orders", errors.ConnectError("away")),
        ("orders", errors.Busy(14, "snode: the broker is away")),
    ],
)
def test_other_topics_are_read(topic, attributes) -> None:
    judge(topic, attributes)
