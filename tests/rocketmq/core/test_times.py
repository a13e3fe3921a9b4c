"""From an instant to an offset: the first record that is not before it, once that is final."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_client import ClientSettings, errors
from rocketmq_client._core.cluster import Cluster
from rocketmq_client._core.times import boundary_at, check_final
from rocketmq_client._wire import codes
from rocketmq_client._wire.bodies import BrokerData, QueueData, TopicRoute
from rocketmq_client._wire.commands import Command
from rocketmq_client.model import QueueEnds, TimeBoundary
from tests.rocketmq.core.script import ADDRESS, QUEUE, asked, play, pulled, record, runtime

ROUTE = TopicRoute(
    "orders",
    {"broker-a": BrokerData("broker-a", "c", {0: ADDRESS})},
    (QueueData("broker-a", 1, 1, 6),),
)


@given(
    st.lists(st.integers(1, 40), max_size=40).map(sorted),
    st.integers(0, 8),
    st.integers(0, 41),
    st.integers(-1, 41),
)
def test_it_is_the_first_record_held_that_is_not_before_the_instant(
    times, gone, instant, earliest
) -> None:
    """Also with several records of one millisecond, and with records removed by retention. If it
    may have removed records stored at or after the instant, the result has a flag."""
    first = min(gone, len(times))

    def broker(method: object, request: object) -> Command:
        if method is codes.GET_BROKER_RUNTIME_INFO:
            return runtime(earliestMessageTimeStamp=str(earliest))
        at, _ = asked(request)
        assert first <= at < len(times)
        body = record(at, store_ms=times[at])
        return pulled(0, "FOUND", at + 1, (first, len(times)), body)

    ends = QueueEnds(QUEUE, first, len(times), False, len(times))
    cluster = Cluster(ClientSettings((ADDRESS,)))
    boundary = play(boundary_at(cluster, ROUTE, ends, instant, "g"), broker)

    held = next((n for n in range(first, len(times)) if times[n] >= instant), len(times))
    assert boundary.offset == held
    assert boundary.lost_to_retention == (held == first > 0 and not 0 < earliest < instant)


def test_a_record_removed_during_the_search_leaves_the_boundary_open() -> None:
    """The record before the answer is removed before it is read: its time is unknown."""

    def broker(method: object, request: object) -> Command:
        if method is codes.GET_BROKER_RUNTIME_INFO:
            return runtime(earliestMessageTimeStamp="-1")
        at, _ = asked(request)
        if at < 6:
            return pulled(21, "OFFSET_TOO_SMALL", 6, (6, 10))
        return pulled(0, "FOUND", at + 1, (6, 10), record(at, store_ms=50))

    ends = QueueEnds(QUEUE, 0, 10, False, 10)
    cluster = Cluster(ClientSettings((ADDRESS,)))
    boundary = play(boundary_at(cluster, ROUTE, ends, 40, "g"), broker)

    assert boundary == TimeBoundary(6, lost_to_retention=True)


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

    def broker(*_: object) -> Command:
        return runtime(**info)

    cluster = Cluster(ClientSettings((ADDRESS,)))
    judged = check_final(cluster, ADDRESS, "broker-a", 10_000, 2_000)
    if why is None:
        play(judged, broker)
    else:
        with pytest.raises(errors.TimeNotFinal, match=why):
            play(judged, broker)


@pytest.mark.parametrize("indexes", [True, False])
def test_constant_writes_do_not_delay_a_final_time(*, indexes: bool) -> None:
    """Only the records present at the first look count, not later ones."""
    looks = itertools.count(1)

    def broker(*_: object) -> Command:
        written = next(looks) * 1_000
        behind = 700 if indexes else written
        return runtime(commitLogMaxOffset=str(written), dispatchBehindBytes=str(behind))

    judged = check_final(Cluster(ClientSettings((ADDRESS,))), ADDRESS, "broker-a", 10_000, 2_000)
    if indexes:
        play(judged, broker)
    else:
        with pytest.raises(errors.TimeNotFinal, match="its indexes lack 1000 bytes"):
            play(judged, broker)
    assert next(looks) < 10
