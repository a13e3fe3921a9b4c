"""The broker's tag filter: odd answers do not give the next offset."""

from __future__ import annotations

import pytest

from rocketmq_client import ClientSettings, QueueRange, errors
from rocketmq_client._core.batch import DecodePolicy
from rocketmq_client._core.cluster import Cluster
from rocketmq_client._core.filtered_read import FilteredRead
from rocketmq_client._core.read_policy import Gap, ReadPolicy, ReadStats
from rocketmq_client._wire import codes
from rocketmq_client._wire.commands import Command
from tests.rocketmq.core.script import ADDRESS, QUEUE, asked, play, pulled, record, runtime


def find_address(_fresh):
    return ADDRESS
    yield


class Reading:
    """Twelve records with the tag; the broker returns four per pull."""

    def __init__(
        self,
        *odd: Command,
        gap_policy: str = "fail",
        behind: int = 0,
        decode: DecodePolicy | None = None,
    ) -> None:
        self.odd = list(odd)
        self.behind = behind
        self.log_start = 0
        self.stats = ReadStats()
        self.read = FilteredRead(
            QueueRange(QUEUE, 0, 12),
            Cluster(ClientSettings((ADDRESS,))),
            find_address,
            group="g",
            decode=decode or DecodePolicy(tags=frozenset([b"a"])),
            policy=ReadPolicy(gap_policy, 60_000, 1),
            stats=self.stats,
        )

    def offsets(self) -> list[int]:
        batches = play(self.read.conversation(), self.broker)
        return [offset for batch in batches for offset in batch.columns.offsets]

    def broker(self, method: object, request: object) -> Command:
        if method is codes.GET_BROKER_RUNTIME_INFO:
            self.behind = max(0, self.behind - 1)
            start = str(self.log_start)
            return runtime(dispatchBehindBytes=str(self.behind), commitLogMinOffset=start)
        at, _ = asked(request)
        if self.odd and at == 4:
            return self.odd.pop(0)
        tagged = [record(n, properties=b"TAGS\x01a\x02") for n in range(at, at + 4)]
        return pulled(0, "FOUND", at + 4, (0, 12), b"".join(tagged))


@pytest.mark.parametrize(
    "odd",
    [
        pulled(21, "OFFSET_RESET", 9, (0, 12)),
        pulled(19, "OFFSET_FOUND_NULL", 9, (0, 12)),
        pulled(20, "MESSAGE_WAS_REMOVING", 9, (0, 12)),
        pulled(20, "NO_MATCHED_MESSAGE", 4, (0, 12)),
        pulled(19, "OFFSET_OVERFLOW_ONE", 4, (0, 4)),
    ],
    ids=["an operator's reset", "nothing", "removing", "no progress", "no index yet"],
)
def test_temporary_errors_are_retried(odd) -> None:
    reading = Reading(odd, odd, behind=3)
    assert reading.offsets() == list(range(12))
    assert reading.stats.gaps == []


def test_a_read_continues_where_nothing_matches() -> None:
    reading = Reading(pulled(20, "NO_MATCHED_MESSAGE", 8, (0, 12)))
    assert reading.offsets() == [0, 1, 2, 3, 8, 9, 10, 11]


def test_a_log_that_ends_before_the_range_is_truncated() -> None:
    short = pulled(19, "OFFSET_OVERFLOW_ONE", 4, (0, 4))
    with pytest.raises(errors.LogTruncated):
        Reading(short, short, short, short).offsets()


def test_reported_retention_is_a_loss_or_a_gap() -> None:
    gone = pulled(21, "OFFSET_TOO_SMALL", 6, (6, 12))
    with pytest.raises(errors.DataLoss):
        Reading(gone).offsets()
    reading = Reading(gone, gap_policy="skip")
    assert reading.offsets() == [0, 1, 2, 3, *range(6, 12)]
    assert reading.stats.gaps == [Gap("broker-a:0", 4, 6)]


def test_an_error_in_quarantine_ends_the_read() -> None:
    def aside(entry: object) -> None:
        raise errors.RpcTimeout("no answer about the copy")

    bad = [record(n, properties=b"TAGS\x01a\x02", crc=1) for n in range(4, 8)]
    policy = DecodePolicy("quarantine", aside, frozenset([b"a"]))
    with pytest.raises(errors.RpcTimeout, match="copy"):
        Reading(pulled(0, "FOUND", 8, (0, 12), b"".join(bad)), decode=policy).offsets()


@pytest.mark.parametrize(
    "odd",
    [
        pulled(0, "FOUND", 6, (0, 12), record(9, properties=b"TAGS\x01a\x02")),
        pulled(0, "FOUND", 5, (0, 12), record(8, topic="other")),
    ],
    ids=["far ahead", "another queue's"],
)
def test_a_pull_with_bytes_in_place_of_a_removed_record_is_repeated(odd) -> None:
    reading = Reading(odd, odd)
    reading.log_start = 100
    assert reading.offsets() == list(range(12))

    gone = pulled(21, "OFFSET_TOO_SMALL", 6, (6, 12))
    reading = Reading(odd, gone, gap_policy="skip")
    reading.log_start = 100
    assert reading.offsets() == [0, 1, 2, 3, *range(6, 12)]


def test_another_queues_record_in_a_whole_log_breaks_the_protocol() -> None:
    with pytest.raises(errors.ProtocolViolation, match="light queues"):
        Reading(pulled(0, "FOUND", 5, (0, 12), record(8, topic="other"))).offsets()
