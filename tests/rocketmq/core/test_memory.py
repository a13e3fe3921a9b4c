"""Readers hold bounded memory with any log: compression bombs, and tags far apart."""

from __future__ import annotations

from functools import cache

import pytest

from rocketmq_client import ClientSettings, PullResult, QueueRange, errors
from rocketmq_client._core.batch import DecodePolicy, RecordBatch
from rocketmq_client._core.cluster import Cluster
from rocketmq_client._core.filtered_read import FilteredRead
from rocketmq_client._core.pulling import pull
from rocketmq_client._core.range_read import RangeRead
from rocketmq_client._core.read_policy import ReadPolicy, ReadStats
from rocketmq_client._wire.batches import BatchElement, encode_batch
from rocketmq_client._wire.commands import Command
from rocketmq_client._wire.compression import compress, compression_flags
from rocketmq_client._wire.records import INNER_BATCH, scan
from tests.rocketmq.core.script import ADDRESS, QUEUE, asked, play, pulled, record

MIB = 2**20
TAG = b"TAGS\x01a\x02"


@cache
def bomb(offset: int) -> bytes:
    packed = compress(bytes(3 * MIB), "zlib")
    return record(offset, packed, TAG, sys_flag=compression_flags("zlib"))


@cache
def far_apart(offset: int) -> bytes:
    """Return the record at an offset: every tenth is small and has the tag, the others are large
    and have none."""
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
    delivered = batches(kind, bomb, 50, tags=frozenset({b"a"}))

    assert offsets_of(delivered) == list(range(50))
    assert max(batch.nbytes for batch in delivered) <= 12 * MIB


def test_an_answer_is_read_up_to_the_bound_and_says_so() -> None:
    data = b"".join(map(bomb, range(10)))

    part = scan(data, "orders", 0)
    assert (part.offsets, part.cut) == ([0, 1, 2], True)
    assert scan(b"".join(map(bomb, range(3))), "orders", 0).cut is False


def test_answers_with_few_kept_records_are_held_within_a_bound() -> None:
    delivered = batches(RangeRead, far_apart, 200, tags=frozenset({b"a"}))

    assert offsets_of(delivered) == list(range(0, 200, 10))
    assert max(batch.columns.held_bytes for batch in delivered) <= 6 * MIB
    assert len(delivered) > 1


def one_pull(make, offset: int, count: int, sent: int) -> PullResult:
    """Pull `count` records from `offset`; the broker answers with `sent` of them."""
    bodies = b"".join(map(make, range(offset, offset + sent)))
    answer = pulled(0, "FOUND", offset + sent, (0, 200), bodies)
    asking = pull(Cluster(ClientSettings((ADDRESS,))), ADDRESS, QUEUE, "g", offset, count)
    results: list[PullResult] = []

    def conversation():
        results.append((yield from asking))

    play(conversation(), lambda _method, _request: answer)
    return results[0]


def test_a_pull_returns_what_was_unpacked_within_the_bound_and_where_the_rest_begins() -> None:
    offsets: list[int] = []
    at = 0
    while at < 20:
        result = one_pull(bomb, at, 32, 20 - at)
        assert sum(len(message.body) for message in result.messages) <= 12 * MIB
        offsets += [message.offset for message in result.messages]
        at = result.next_offset

    assert offsets == list(range(20))


def test_a_pull_returns_no_more_records_than_it_asked_for() -> None:
    result = one_pull(lambda offset: record(offset, b"", TAG), 7, 32, 5_000)

    assert [message.offset for message in result.messages] == list(range(7, 39))
    assert result.next_offset == 39


def test_a_filtered_read_takes_no_more_records_of_an_answer_than_it_asked_for() -> None:
    def answer(_method, request) -> Command:
        start, _ = asked(request)
        bodies = b"".join(record(at, b"", TAG) for at in range(start, 5_000))
        return pulled(0, "FOUND", 5_000, (0, 5_000), bodies)

    def find_address(_fresh):
        return ADDRESS
        yield

    read = FilteredRead(
        QueueRange(QUEUE, 0, 5_000),
        Cluster(ClientSettings((ADDRESS,))),
        find_address,
        group="g",
        decode=DecodePolicy(tags=frozenset({b"a"})),
        policy=ReadPolicy(),
        stats=ReadStats(),
    )
    delivered = play(read.conversation(), answer)

    assert [len(batch) for batch in delivered] == [1_000] * 5
    assert offsets_of(delivered) == list(range(5_000))


def test_an_inner_batch_of_more_records_than_an_index_can_count_is_refused() -> None:
    packed = compress(encode_batch([BatchElement(0, b"", b"")] * 40_000), "zlib")
    flags = compression_flags("zlib") | INNER_BATCH

    with pytest.raises(errors.ProtocolViolation, match="more than 32767 records"):
        one_pull(lambda offset: record(offset, packed, TAG, sys_flag=flags), 0, 32, 1)
