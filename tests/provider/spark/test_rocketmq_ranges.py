"""Plans of `format("rocketmq")` on the driver: every named queue, or an error."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rocketmq_client import Admin, Producer
from rocketmq_client.embedded import EmbeddedRocketMQ
from rocketmq_client.model import Queue
from tests.kit.servers import embedded_rocketmq
from tubemq_client.errors import ConfigError, ConnectError, UnknownTopic
from tubemq_provider.spark.rocketmq import batch_reader
from tubemq_provider.windows.plan import WindowPlan, WindowScope

pytestmark = pytest.mark.timeout(60)

rocketmq = embedded_rocketmq(1, brokers=2)

QUEUES = ("broker-a:0", "broker-b:0")


def fill(rocketmq: EmbeddedRocketMQ) -> None:
    with Producer(rocketmq.settings) as producer:
        for key in QUEUES:
            for n in range(5):
                producer.send("orders", b"%d" % n, queue=Queue.from_key("orders", key))


def planned(rocketmq: EmbeddedRocketMQ, **more: str) -> list[str]:
    host, port = rocketmq.name_server
    reader = batch_reader({"nameServers": f"{host}:{port}", **more})
    return [str(found) for found in reader.planned_ranges]


def named(offset: int, *keys: str) -> str:
    return json.dumps({"orders": dict.fromkeys(keys, offset)})


def window(ranges: dict[str, Any]) -> str:
    scope = WindowScope("test", "orders", "lake", "sink", (), source="rocketmq")
    return WindowPlan.explicit(scope, ranges).canonical()


@pytest.mark.parametrize(
    ("stray", "away"), [("broker-b:0", True), ("broker-c:7", False), ("broker-a:1", False)]
)
@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_a_queue_that_is_named_and_cannot_be_read_is_refused_by_its_name(
    rocketmq: EmbeddedRocketMQ, option: str, stray: str, *, away: bool
) -> None:
    fill(rocketmq)
    if away:
        rocketmq.kill_broker("broker-b")
    with pytest.raises(ConfigError, match=rf"{option}: {stray} is no queue") as caught:
        planned(rocketmq, topic="orders", group="lake", **{option: named(0, *{*QUEUES, stray})})
    assert len(caught.value.problems) == 1


def test_queues_that_are_there_may_be_named(rocketmq: EmbeddedRocketMQ) -> None:
    fill(rocketmq)
    given = {"startingOffsets": named(1, *QUEUES), "endingOffsets": named(4, *QUEUES)}
    found = planned(rocketmq, topic="orders", group="lake", **given)
    assert found == ["orders@broker-a:0[1,4)", "orders@broker-b:0[1,4)"]


def given(start: Any = None, end: Any = None) -> dict[str, str]:
    """Return options with start and end of both queues."""
    sides = {"startingOffsets": start, "endingOffsets": end}
    texts = {
        name: side if isinstance(side, str) else json.dumps({"orders": dict.fromkeys(QUEUES, side)})
        for name, side in sides.items()
        if side is not None
    }
    return {"topic": "orders", "group": "lake", **texts}


def test_ranges_may_be_empty_on_request(rocketmq: EmbeddedRocketMQ) -> None:
    fill(rocketmq)
    assert planned(rocketmq, **given(5)) == ["orders@broker-a:0[5,5)", "orders@broker-b:0[5,5)"]
    assert planned(rocketmq, **given(3, 3)) == ["orders@broker-a:0[3,3)", "orders@broker-b:0[3,3)"]
    both = '{"orders": {"broker-a:0": "latest", "broker-b:0": "stable"}}'
    assert planned(rocketmq, **given("earliest", both)) == [
        "orders@broker-a:0[0,5)",
        "orders@broker-b:0[0,5)",
    ]


def test_a_window_and_other_names_beside_it_are_refused(rocketmq: EmbeddedRocketMQ) -> None:
    fill(rocketmq)
    whole = window(dict.fromkeys(QUEUES, (0, 5)))
    assert len(planned(rocketmq, window=whole, topic="orders", group="lake")) == 2
    for name, other in (("topic", "order"), ("group", "river")):
        with pytest.raises(ConfigError, match=f"{name}: '{other}' differs from the window's"):
            planned(rocketmq, window=whole, **{name: other})


def test_a_window_waits_for_its_brokers_and_needs_no_others(rocketmq: EmbeddedRocketMQ) -> None:
    fill(rocketmq)
    both = window(dict.fromkeys(QUEUES, (0, 5)))
    rocketmq.kill_broker("broker-b")
    with pytest.raises(ConnectError, match="broker-b") as caught:
        planned(rocketmq, window=both)
    assert caught.value.retriable
    assert planned(rocketmq, window=window({"broker-a:0": (0, 5), "broker-b:0": (3, 3)})) == [
        "orders@broker-a:0[0,5)"
    ]

    rocketmq.kill_broker("broker-a")
    with pytest.raises(ConnectError, match="'orders'"):
        planned(rocketmq, window=both)
    with pytest.raises(UnknownTopic):
        planned(rocketmq, topic="orders", group="lake")

    rocketmq.start_broker("broker-a")
    rocketmq.start_broker("broker-b")
    assert len(planned(rocketmq, window=both)) == 2


@pytest.mark.parametrize("tags", ["*", "paid || open", "paid,*"])
def test_tags_in_the_notation_of_subscriptions_are_refused(
    rocketmq: EmbeddedRocketMQ, tags: str
) -> None:
    with pytest.raises(ConfigError, match=r"tags: .* is no tag"):
        planned(rocketmq, topic="orders", group="lake", tags=tags)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"startingOffsets": named(6, *QUEUES)}, "startingOffsets: 6 of queue broker-a:0 .* end 5"),
        (
            {"startingOffsets": named(4, *QUEUES), "endingOffsets": named(2, *QUEUES)},
            "startingOffsets: 4 of queue broker-a:0 .* beyond the end 2",
        ),
        ({"endingOffsets": named(6, *QUEUES)}, "endingOffsets: 6 of queue broker-a:0 .* end 5"),
    ],
)
@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_read_that_lies_beyond_the_end_is_refused_as_in_the_other_format(
    rocketmq: EmbeddedRocketMQ, given: dict[str, str], problem: str, fails: str
) -> None:
    fill(rocketmq)
    with pytest.raises(ConfigError, match=problem) as caught:
        planned(rocketmq, topic="orders", group="lake", failOnDataLoss=fails, **given)
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize(
    "given",
    [
        {"startingOffsets": "latest"},
        {"startingOffsets": '{"orders": {"broker-a:0": "stable", "broker-b:0": 0}}'},
        {"endingOffsets": "earliest"},
    ],
)
def test_words_that_leave_nothing_to_read_are_refused(
    rocketmq: EmbeddedRocketMQ, given: dict[str, str]
) -> None:
    fill(rocketmq)
    with pytest.raises(ConfigError, match="makes no sense here"):
        planned(rocketmq, topic="orders", group="lake", **given)


def test_a_queue_named_twice_is_refused(rocketmq: EmbeddedRocketMQ) -> None:
    fill(rocketmq)
    twice = '{"orders": {"broker-a:0": 1, "broker-a:0": 4, "broker-b:0": 0}}'
    with pytest.raises(ConfigError, match="'broker-a:0' occurs twice"):
        planned(rocketmq, topic="orders", group="lake", startingOffsets=twice)


@pytest.mark.parametrize("topic", ["orders", "latest-orders"])
def test_each_queue_ends_where_its_own_word_says(rocketmq: EmbeddedRocketMQ, topic: str) -> None:
    with Admin(rocketmq.settings) as admin:
        admin.create_topic(topic, queues=1)
    for broker in ("broker-a", "broker-b"):
        rocketmq.hold_flush(broker=broker)
    with Producer(rocketmq.settings) as producer:
        for key in QUEUES:
            for n in range(5):
                producer.send(topic, b"%d" % n, queue=Queue.from_key(topic, key))
    words = {topic: {"broker-a:0": "stable", "broker-b:0": "latest"}}
    found = planned(rocketmq, topic=topic, group="lake", endingOffsets=json.dumps(words))
    assert found == [f"{topic}@broker-a:0[0,0)", f"{topic}@broker-b:0[0,5)"]
