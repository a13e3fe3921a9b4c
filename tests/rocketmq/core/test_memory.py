"""What a reader holds at a time is bounded, whatever lies in the log: bombs, and tags far apart."""

from __future__ import annotations

from functools import cache

import pytest

from rocketmq_client import ClientSettings, QueueRange
from rocketmq_client._core.batch import DecodePolicy, RecordBatch
from rocketmq_client._core.cluster import Cluster
from rocketmq_client._core.filtered_read import FilteredRead
from rocketmq_client._core.range_read import RangeRead
from rocketmq_client._core.read_policy import ReadPolicy, ReadStats
from rocketmq_client._wire.commands import Command
from rocketmq_client._wire.compression import compress, compression_flags
from rocketmq_client._wire.records import scan
from tests.rocketmq.core.script import ADDRESS, QUEUE, asked, play, pulled, record

MIB = 2**20
TAG = b"TAGS\x01a\x02"


@cache
def bomb(offset: int) -> bytes:
    packed = compress(bytes(3 * MIB), "zlib")
    return record(offset, packed, TAG, sys_flag=compression_flags("zlib"))


@cache
def far_apart(offset: int) -> bytes:
    """Every tenth record is small and has the tag, the others are large and have none."""
    return record(offset, b"kept", TAG) if offset % 10 == 0 else record(offset, bytes(100_000))


def broker(make, count: int = 20):
    def answer(_method, request) -> Command:
        start, most = asked(request)
        stop = min(start + min(most, count), 200)
        return pulled(0, "FOUND", stop, (0, 200), b"".join(map(make, range(start, stop))))

    return answer


def batches(kind, make, end: int, *, tags: frozenset[bytes] = frozenset()) -> list[RecordBatch]:
    def find_address(_fresh):
        return ADDRESS
        yield

    read = kind(
        QueueRange(QUEUE, 0, end),
        Cluster(ClientSettings((ADDRESS,))),
        find_address,
        group="g",
        decode=DecodePolicy(tags=tags),
        policy=ReadPolicy(),
        stats=ReadStats(),
    )
    return play(read.conversation(), broker(make))


def offsets_of(found: list[RecordBatch]) -> list[int]:
    return [offset for batch in found for offset in batch.columns.offsets]


@pytest.mark.parametrize("kind", [RangeRead, FilteredRead])
def test_bodies_that_unpack_to_much_are_delivered_before_more_are_unpacked(kind) -> None:
    found = batches(kind, bomb, 50, tags=frozenset({b"a"}))

    assert offsets_of(found) == list(range(50))
    assert max(batch.nbytes for batch in found) <= 12 * MIB


def test_an_answer_is_read_up_to_the_bound_and_says_so() -> None:
    data = b"".join(map(bomb, range(10)))

    part = scan(data, "orders", 0)
    assert (part.offsets, part.cut) == ([0, 1, 2], True)
    assert scan(b"".join(map(bomb, range(3))), "orders", 0).cut is False


def test_answers_of_which_little_is_kept_are_not_held_without_bound() -> None:
    found = batches(RangeRead, far_apart, 200, tags=frozenset({b"a"}))

    assert offsets_of(found) == list(range(0, 200, 10))
    assert max(batch.columns.held_bytes for batch in found) <= 6 * MIB
    assert len(found) > 1
