"""The exact reader with all observed answers of genuine brokers, and worse ones."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_client import ClientSettings, QueueRange, errors
from rocketmq_client._core.batch import DecodePolicy
from rocketmq_client._core.cluster import Cluster
from rocketmq_client._core.range_read import RangeRead
from rocketmq_client._core.read_policy import Gap, ReadPolicy, ReadStats
from rocketmq_client._wire import codes
from rocketmq_client._wire.commands import Command
from tests.rocketmq.core.script import ADDRESS, QUEUE, asked, found, play, pulled, record


def find_address(_fresh):
    return ADDRESS
    yield


class Reading:
    def __init__(self, start, end, *, decode=None, in_flight=4, gap_policy="fail", deadline=60_000):
        self.stats = ReadStats()
        self.read = RangeRead(
            QueueRange(QUEUE, start, end),
            Cluster(ClientSettings((ADDRESS,))),
            find_address,
            group="g",
            decode=decode or DecodePolicy(),
            policy=ReadPolicy(gap_policy, deadline, in_flight),
            stats=self.stats,
        )

    def offsets(self, broker) -> list[int]:
        batches = play(self.read.conversation(), broker)
        return [offset for batch in batches for offset in batch.columns.offsets]


def plain(limit=32, end=1000):
    """Return a broker with records `[0, end)` and up to `limit` per answer."""

    def answer(method, request) -> Command:
        assert method is codes.PULL_MESSAGE
        offset, count = asked(request)
        return found(range(offset, min(offset + min(count, limit), end)), ends=(0, end))

    return answer


def in_turn(*odd, then=None, info=None):
    """Return a broker that gives the odd answers to the first pulls, and correct ones
    afterwards."""
    waiting, then = list(odd), then or plain()

    def answer(method, request) -> Command:
        if method is codes.GET_BROKER_RUNTIME_INFO:
            return runtime(0, **(info or {}))
        if waiting:
            item = waiting.pop(0)
            if isinstance(item, Exception):
                raise item
            return item
        return then(method, request)

    return answer


def runtime(behind: int, **changes: str) -> Command:
    table = {
        "commitLogMaxOffset": "0",
        "remainHowManyDataToFlush": "0 B",
        "bootTimestamp": "0",
        "dispatchBehindBytes": str(behind),
        **changes,
    }
    return Command(0, 0, {}, json.dumps({"table": table}).encode(), 1)


@settings(deadline=None)
@given(
    st.integers(0, 500),
    st.integers(0, 500),
    st.integers(1, 40),
    st.integers(1, 8),
    st.sets(st.integers(0, 30)),
    st.lists(st.integers(1, 40), min_size=1),
)
def test_every_offset_once_whatever_an_answer_holds(
    one, two, limit, in_flight, cuts, sizes
) -> None:
    start, end = sorted((one, two))
    pulls = itertools.count()

    def broker(method, request) -> Command:
        if (pull := next(pulls)) in cuts:
            raise errors.ConnectionLost("cut")
        return plain(min(limit, sizes[pull % len(sizes)]))(method, request)

    reading = Reading(start, end, in_flight=in_flight)

    assert reading.offsets(broker) == list(range(start, end))


@pytest.mark.parametrize(
    "odd",
    [
        found([26, 27], following=28),
        found([3504], following=500),
        pulled(20, "MESSAGE_WAS_REMOVING", 500, (0, 1000)),
        pulled(19, "OFFSET_FOUND_NULL", 500, (0, 1000)),
        pulled(21, "OFFSET_RESET", 700, (0, 1000)),
        pulled(0, "FOUND", 0, (0, 1000)),
        errors.ConnectionLost("cut"),
        errors.RpcTimeout("silent"),
        errors.Busy(2, "busy"),
        errors.BrokerFailure(1, "something"),
    ],
    ids=lambda odd: getattr(odd, "remark", None) or type(odd).__name__,
)
def test_temporary_errors_are_retried(odd) -> None:
    reading = Reading(0, 100)

    assert reading.offsets(in_turn(odd)) == list(range(100))
    assert reading.stats.restarts == 1
    assert reading.stats.gaps == []


def test_a_hole_that_the_minimum_explains_is_a_loss() -> None:
    lost = pulled(21, "OFFSET_TOO_SMALL", 60, (60, 1000))
    with pytest.raises(errors.DataLoss, match=r"\[0, 60\).*gap_policy='skip'") as caught:
        Reading(0, 100).offsets(in_turn(lost, lost))
    assert (caught.value.start, caught.value.available) == (0, 60)

    reading = Reading(0, 100, gap_policy="skip")
    assert reading.offsets(in_turn(lost)) == list(range(60, 100))
    assert reading.stats.gaps == [Gap("broker-a:0", 0, 60)]


def test_a_hole_that_stays_unexplained_is_a_loss_of_what_is_missing() -> None:
    def broker(method, request) -> Command:
        offset, count = asked(request)
        offset = 40 if 10 <= offset < 40 else offset
        stop = 10 if offset < 10 else 1000
        return found(range(offset, min(offset + count, offset + 32, stop)))

    with pytest.raises(errors.DataLoss, match=r"\[10, 40\)"):
        Reading(0, 100).offsets(broker)

    reading = Reading(0, 100, gap_policy="skip")
    assert reading.offsets(broker) == [*range(10), *range(40, 100)]
    assert reading.stats.gaps == [Gap("broker-a:0", 10, 40)]


def test_a_hole_without_end_stalls_and_never_skips() -> None:
    gone = pulled(20, "MESSAGE_WAS_REMOVING", 500, (0, 1000))

    with pytest.raises(errors.RangeStalled, match="nothing at offset 0"):
        Reading(0, 100, gap_policy="skip", deadline=20_000).offsets(in_turn(then=lambda *_: gone))


BEGUN = {"commitLogMinOffset": "4096"}
V4 = {**BEGUN, "brokerVersionDesc": "V4_9_7"}
CUT = record(700, physical_offset=4096)[:-9]
STRANGER = record(700, physical_offset=4096, topic="other")


def removed(odd: Command, until: int, info: dict[str, str]):
    """Return a broker that gives the odd answer below `until` and keeps reporting the minimum 0."""

    def answer(method, request) -> Command:
        if method is codes.GET_BROKER_RUNTIME_INFO:
            return runtime(0, **info)
        return odd if asked(request)[0] < until else plain()(method, request)

    return answer


@pytest.mark.parametrize(
    ("odd", "until"),
    [
        (pulled(20, "MESSAGE_WAS_REMOVING", 50, (0, 1000)), 50),
        (pulled(0, "FOUND", 1, (0, 1000), CUT), 1),
        (pulled(0, "FOUND", 1, (0, 1000), STRANGER), 1),
    ],
)
def test_records_removed_by_a_4_x_broker_are_lost_with_an_old_minimum(odd, until) -> None:
    with pytest.raises(errors.DataLoss, match=rf"\[0, {until}\)"):
        Reading(0, 100).offsets(removed(odd, until, V4))
    reading = Reading(0, 100, gap_policy="skip")
    assert reading.offsets(removed(odd, until, V4)) == [*range(until, 100)]
    assert reading.stats.gaps == [Gap("broker-a:0", 0, until)]


@pytest.mark.parametrize("body", [CUT, STRANGER])
def test_bytes_in_place_of_the_first_record_of_a_log_are_not_an_answer(body) -> None:
    odd = pulled(0, "FOUND", 1, (0, 1000), body)
    late = in_turn(odd, odd, pulled(21, "OFFSET_TOO_SMALL", 50, (50, 1000)), info=BEGUN)
    with pytest.raises(errors.DataLoss, match=r"\[0, 50\)"):
        Reading(0, 100).offsets(late)
    with pytest.raises(errors.RangeStalled):
        Reading(0, 100, deadline=20_000).offsets(removed(odd, 1, BEGUN))
    with pytest.raises(errors.ProtocolViolation):
        Reading(0, 100).offsets(removed(odd, 1, {}))


@pytest.mark.parametrize(
    ("code", "remark", "log_end"),
    [
        (19, "OFFSET_OVERFLOW_ONE", 50),
        (19, "NO_MESSAGE_IN_QUEUE", 0),
        (21, "OFFSET_OVERFLOW_BADLY", 40),
    ],
)
def test_a_log_that_ends_before_the_range_waits_for_the_index_and_then_fails(
    code, remark, log_end
) -> None:
    behind = [500, 20, 0, 0]
    asked_for_info = []

    def broker(method, request) -> Command:
        if method is codes.GET_BROKER_RUNTIME_INFO:
            asked_for_info.append(behind[min(len(asked_for_info), 3)])
            return runtime(asked_for_info[-1])
        if asked(request)[0] < 50 and log_end:
            return plain(end=50)(method, request)
        return pulled(code, remark, log_end, (0, log_end))

    with pytest.raises(errors.LogTruncated, match=f"ends at {log_end}"):
        Reading(0, 100).offsets(broker)
    assert asked_for_info == behind


def test_an_index_that_catches_up_is_no_truncation() -> None:
    state = {"end": 50}

    def broker(method, request) -> Command:
        if method is codes.GET_BROKER_RUNTIME_INFO:
            state["end"] = 1000
            return runtime(7)
        offset, _ = asked(request)
        if offset >= state["end"]:
            return pulled(19, "OFFSET_OVERFLOW_ONE", 50, (0, 50))
        return plain(end=state["end"])(method, request)

    assert Reading(0, 100).offsets(broker) == list(range(100))


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        (errors.UnknownTopic(17, "gone"), "gone"),
        (errors.NoPermission(16, "no"), "no"),
        (errors.UnknownGroup(24, "who"), "who"),
        (errors.IllegalRequest(29, "what"), "what"),
    ],
)
def test_errors_that_need_an_operator_are_raised_at_once(refusal, message) -> None:
    with pytest.raises(type(refusal), match=message):
        Reading(0, 100).offsets(in_turn(refusal))


def test_a_broker_that_stays_away_stalls_the_read() -> None:
    def broker(*_) -> Command:
        raise errors.ConnectError("refused")

    with pytest.raises(errors.RangeStalled, match=r"deadline_ms=5000.*refused"):
        Reading(0, 100, deadline=5_000).offsets(broker)


def test_a_record_before_the_asked_one_is_a_violation() -> None:
    with pytest.raises(errors.ProtocolViolation, match="BatchCQ"):
        Reading(2, 100).offsets(in_turn(found([0])))


def damaged(offset: int) -> Command:
    def body(at: int) -> bytes:
        return record(at, crc=1) if at == offset else record(at)

    return pulled(0, "FOUND", 0, (0, 1000), b"".join(map(body, range(20))))


def test_damaged_records_follow_the_policy() -> None:
    with pytest.raises(errors.CorruptRecord, match="offset 7"):
        Reading(0, 100).offsets(in_turn(damaged(7)))

    quarantined = []
    for policy in (DecodePolicy("drop"), DecodePolicy("quarantine", quarantined.append)):
        reading = Reading(0, 100, decode=policy)
        assert reading.offsets(in_turn(damaged(7))) == [n for n in range(100) if n != 7]
        assert reading.stats.corrupt == 1
    assert [(entry.offset, entry.data) for entry in quarantined] == [(7, b"record 7")]


def test_an_error_in_quarantine_ends_the_read() -> None:
    def aside(entry: object) -> None:
        raise errors.RpcTimeout("no answer about the copy")

    with pytest.raises(errors.RpcTimeout, match="copy"):
        Reading(0, 100, decode=DecodePolicy("quarantine", aside)).offsets(in_turn(damaged(7)))


@pytest.mark.parametrize("word", ["Fail", "quarantine"])
def test_the_policy_of_damaged_records_is_validated_at_once(word: str) -> None:
    with pytest.raises(errors.ConfigError, match="corrupt_records"):
        DecodePolicy(word)


def test_tags_are_compared_after_density_was_proved() -> None:
    def broker(method, request) -> Command:
        offset, count = asked(request)
        tags = (b"TAGS\x01Aa\x02", b"TAGS\x01BB\x02", b"X\x01TAGS\x02", b"")
        body = b"".join(record(n, properties=tags[n % 4]) for n in range(offset, offset + count))
        return pulled(0, "FOUND", 0, (0, 1000), body)

    reading = Reading(0, 40, decode=DecodePolicy(tags=frozenset({b"Aa"})))

    assert reading.offsets(broker) == list(range(0, 40, 4))


def test_limits_that_a_broker_raises_while_it_runs_are_used() -> None:
    limits = iter([32] * 5)
    counts = []

    def broker(method, request) -> Command:
        counts.append(asked(request)[1])
        return plain(next(limits, 500), end=100_000)(method, request)

    assert Reading(0, 20_000).offsets(broker) == list(range(20_000))
    assert max(counts[-40:]) > 32


def test_a_hole_is_as_old_as_it_was_seen_without_a_break() -> None:
    """After a long outage in between, the broker has another five seconds."""

    def away(_method, _request) -> Command:
        raise errors.ConnectError("connection refused")

    hole = lambda *_: found([8], ends=(0, 1000))  # noqa: E731 - one of several in a row
    answers = [hole, *[away] * 8, hole, plain()]

    def broker(method, request) -> Command:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        return answer(method, request)

    reading = Reading(0, 10, in_flight=1)
    assert reading.offsets(broker) == list(range(10))
