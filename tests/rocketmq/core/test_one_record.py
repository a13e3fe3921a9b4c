"""Look-up of one record: answers without the record are verified."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import pytest

from rocketmq_client import ClientSettings, errors
from rocketmq_client._core.cluster import Cluster
from rocketmq_client._core.ends import queue_ends
from rocketmq_client._core.one_record import pull_one
from rocketmq_client._wire import codes
from rocketmq_client._wire.bodies import BrokerData, QueueData, TopicRoute
from rocketmq_client._wire.commands import Command
from rocketmq_client._wire.records import StoredRecord
from tests.rocketmq.core.script import ADDRESS, QUEUE, asked, found, play, pulled, record, runtime

ROUTE = TopicRoute(
    "orders",
    {"broker-a": BrokerData("broker-a", "c", {0: ADDRESS})},
    (QueueData("broker-a", 1, 1, 6),),
)
RESET = pulled(21, "OFFSET_RESET", 0, (0, 10))
REMOVING = pulled(20, "MESSAGE_WAS_REMOVING", 9, (0, 10))
NOTHING = pulled(19, "OFFSET_FOUND_NULL", 9, (0, 10))
GONE = pulled(21, "OFFSET_TOO_SMALL", 7, (7, 10))
SHORT = pulled(19, "OFFSET_OVERFLOW_ONE", 5, (0, 5))


V4 = {"brokerVersionDesc": "V4_9_7", "commitLogMinOffset": "1048576"}


def look(
    *answers: Command, behind: Sequence[int] = (), info: Mapping[str, str] | None = None
) -> StoredRecord | None:
    """Return the result for offset 5; the last answer is repeated for ever."""
    left, lag = list(answers), iter(behind)

    def broker(method: object, request: object) -> Command:
        if method is codes.GET_BROKER_RUNTIME_INFO:
            return runtime(dispatchBehindBytes=str(next(lag, 0)), **(info or {}))
        assert asked(request) == (5, 1)
        return left.pop(0) if len(left) > 1 else left[0]

    cluster = Cluster(ClientSettings((ADDRESS,)))
    return play(pull_one(cluster, ADDRESS, QUEUE, "g", 5), broker) or None


@pytest.mark.parametrize("odd", [RESET, REMOVING, NOTHING, found([8])])
def test_a_pull_with_an_odd_answer_is_repeated(odd) -> None:
    assert look(odd, odd, found([5])).queue_offset == 5
    assert look(odd, odd, GONE) is None


def test_a_hole_that_stays_unexplained_counts_as_retention() -> None:
    assert look(found([8])) is None


def test_records_that_a_4_x_broker_keeps_removing_count_as_removed() -> None:
    """It keeps the minimum of an empty queue."""
    assert look(REMOVING, info=V4) is None
    assert look(REMOVING, REMOVING, found([5]), info=V4).queue_offset == 5
    with pytest.raises(errors.RangeStalled):
        look(REMOVING, info={**V4, "commitLogMinOffset": "0"})
    with pytest.raises(errors.RangeStalled):
        look(NOTHING, info=V4)


@pytest.mark.parametrize("stable", [True, False])
@pytest.mark.parametrize(
    ("info", "last", "low"),
    [
        (V4, REMOVING, 10),
        (V4, found([9]), 0),
        (V4, NOTHING, 0),
        (V4, pulled(0, "FOUND", 10, (0, 10), record(9, topic="other", physical_offset=2**20)), 10),
        (V4, pulled(0, "FOUND", 10, (0, 10), record(9, physical_offset=2**20)[:-9]), 10),
        ({**V4, "commitLogMinOffset": "0"}, None, 0),
        ({**V4, "brokerVersionDesc": "V5_5_0"}, None, 0),
    ],
)
def test_an_emptied_queue_begins_at_its_end(info, last, low, *, stable) -> None:
    pulls = []

    def broker(method: object, request: object) -> Command:
        if method is codes.GET_BROKER_RUNTIME_INFO:
            return runtime(commitLogMaxOffset="9999", **info)
        if method in {codes.GET_MIN_OFFSET, codes.GET_MAX_OFFSET}:
            return Command(
                0, 0, {"offset": "0" if method is codes.GET_MIN_OFFSET else "10"}, b"", 1
            )
        assert asked(request) == (9, 1)
        pulls.append(last)
        return last if last is not None and len(pulls) == 1 else found([9])

    cluster = Cluster(ClientSettings((ADDRESS,)))
    ends = play(queue_ends(cluster, ROUTE, [QUEUE], "g", stable=stable), broker)[QUEUE]
    assert (ends.min_offset, ends.max_offset, ends.latest_offset) == (low, 10, 10)
    assert len(pulls) == (last is not None) + (stable and low == 0)


@pytest.mark.parametrize(
    ("version", "stable", "looks"),
    [("V5_5_0", False, 1), ("V5_5_0", True, 3), ("V4_9_7", False, 3), ("", False, 3)],
)
def test_the_release_of_a_broker_is_requested_once(version, looks, *, stable) -> None:
    """A 5.x broker takes a tenth of a second for its runtime info; a lag sensor asks at every
    poke."""
    asked_for = []

    def broker(method: object, request: object) -> Command:
        if method is codes.GET_BROKER_RUNTIME_INFO:
            asked_for.append(method)
            return runtime(commitLogMaxOffset="9999", brokerVersionDesc=version)
        if method in {codes.GET_MIN_OFFSET, codes.GET_MAX_OFFSET}:
            return Command(0, 0, {"offset": "7"}, b"", 1)
        return found([9])

    cluster = Cluster(ClientSettings((ADDRESS,)))
    for _ in range(3):
        play(queue_ends(cluster, ROUTE, [QUEUE], "g", stable=stable), broker)
    assert len(asked_for) == looks


@pytest.mark.parametrize("odd", [RESET, REMOVING, NOTHING])
def test_an_unexplained_answer_is_a_retriable_error(odd) -> None:
    with pytest.raises(errors.RangeStalled, match="no progress at offset 5") as caught:
        look(odd)
    assert caught.value.retriable


def test_a_log_that_ends_before_is_short_once_its_index_is_built() -> None:
    assert look(SHORT, SHORT, found([5]), behind=[100, 50]).queue_offset == 5
    with pytest.raises(errors.LogTruncated):
        look(SHORT, behind=[100])


def test_a_damaged_record_has_a_position() -> None:
    seen = look(pulled(0, "FOUND", 6, (0, 10), record(5, crc=1)))
    assert (seen.queue_offset, seen.physical_offset, seen.store_ms) == (5, 500, 50)


def test_a_stable_end_is_not_beyond_the_disk_after_a_reset() -> None:
    """The first pull after an operator's reset of the reader's group is answered with 21."""
    resets = [RESET]

    def broker(method: object, request: object) -> Command:
        if method is codes.GET_BROKER_RUNTIME_INFO:
            return runtime(commitLogMaxOffset="600")
        if method in {codes.GET_MIN_OFFSET, codes.GET_MAX_OFFSET}:
            return Command(
                0, 0, {"offset": "0" if method is codes.GET_MIN_OFFSET else "10"}, b"", 1
            )
        return resets.pop() if resets else found([asked(request)[0]])

    cluster = Cluster(ClientSettings((ADDRESS,)))
    ends = play(queue_ends(cluster, ROUTE, [QUEUE], "g", stable=True), broker)
    assert ends[QUEUE].max_offset == 5


def test_a_queue_that_ends_before_is_shorter_though_its_broker_is_written_to() -> None:
    """It has something to index at every look; only the part of the first look must be indexed."""
    looks = itertools.count(1)

    def broker(method: object, request: object) -> Command:
        if method is codes.GET_BROKER_RUNTIME_INFO:
            written = str(next(looks) * 1_000)
            return runtime(commitLogMaxOffset=written, dispatchBehindBytes="700")
        return SHORT

    with pytest.raises(errors.LogTruncated):
        play(pull_one(Cluster(ClientSettings((ADDRESS,))), ADDRESS, QUEUE, "g", 5), broker)
