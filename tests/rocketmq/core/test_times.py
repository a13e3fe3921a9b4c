"""From an instant to an offset: the first record that is not before it, once that is final."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_client import ClientSettings, errors
from rocketmq_client._core.cluster import Cluster
from rocketmq_client._core.times import check_final, offset_at
from rocketmq_client._wire.bodies import BrokerData, QueueData, TopicRoute
from rocketmq_client._wire.commands import Command
from rocketmq_client.model import QueueEnds
from tests.rocketmq.core.script import ADDRESS, QUEUE, asked, play, pulled, record

ROUTE = TopicRoute(
    "orders",
    {"broker-a": BrokerData("broker-a", "c", {0: ADDRESS})},
    (QueueData("broker-a", 1, 1, 6),),
)


@given(
    st.lists(st.integers(0, 40), max_size=40).map(sorted), st.integers(0, 8), st.integers(-1, 41)
)
def test_it_is_the_first_record_that_is_not_before_the_instant(times, gone, instant) -> None:
    """Several records of one millisecond, and what retention has taken, among them."""
    first = min(gone, len(times))

    def broker(_method: object, request: object) -> Command:
        at, _ = asked(request)
        assert first <= at < len(times)
        body = record(at, store_ms=times[at])
        return pulled(0, "FOUND", at + 1, (first, len(times)), body)

    ends = QueueEnds(QUEUE, first, len(times), False, len(times))
    cluster = Cluster(ClientSettings((ADDRESS,)))
    found = play(offset_at(cluster, ROUTE, ends, instant, "g"), broker)

    assert found == next((n for n in range(first, len(times)) if times[n] >= instant), len(times))


@pytest.mark.parametrize(
    ("info", "why"),
    [
        (
            {"runtime": "[ 0 days, 0 hours, 0 minutes, 11 seconds ]"},
            "its clock is 1000 ms before that",
        ),
        ({"dispatchBehindBytes": "7"}, "its indexes lack 7 bytes"),
        ({"pageCacheLockTimeMills": "2001"}, "an append has taken 2001 ms"),
        ({}, None),
    ],
)
def test_an_instant_is_final_when_nothing_before_it_can_come(info, why) -> None:
    table = {
        "commitLogMaxOffset": "0",
        "remainHowManyDataToFlush": "0 B",
        "bootTimestamp": "0",
        "runtime": "[ 0 days, 0 hours, 0 minutes, 12 seconds ]",
        "dispatchBehindBytes": "0",
        "pageCacheLockTimeMills": "0",
        **info,
    }

    def broker(*_: object) -> Command:
        return Command(0, 0, {}, json.dumps({"table": table}).encode(), 1)

    cluster = Cluster(ClientSettings((ADDRESS,)))
    judged = check_final(cluster, ADDRESS, "broker-a", 10_000, 2_000)
    if why is None:
        play(judged, broker)
    else:
        with pytest.raises(errors.TimeNotFinal, match=why):
            play(judged, broker)
