"""Batches of every mixture: what is delivered, what is set aside, and under which numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tubemq_client import Message, MessageBatch, Partition, _pb, errors
from tubemq_client._core.batch import CorruptEntry, DecodePolicy, RawBatch
from tubemq_client._wire.payload import checksum, encode_payload

PARTITION = Partition(1, "mixed", 0)
START = 2_800


class Sent(NamedTuple):
    """A record as a reply holds it, and what a reader should make of it."""

    data: bytes
    flag: int
    sound: bool
    body: bytes | None
    attributes: dict[str, str]


def plain(body: bytes) -> Sent:
    return Sent(body, 0, True, body, {})


def with_attributes(body: bytes, value: str) -> Sent:
    data, flag = encode_payload(body, {"key": value}, stream_id="stream")
    return Sent(data, flag, True, body, {"key": value})


def damaged(sent: Sent) -> Sent:
    return sent._replace(sound=False, body=None)


def misleading(prefix: bytes, body: bytes) -> Sent:
    """The flag promises attributes, and the length before them is none."""
    return Sent(prefix + body, 1, True, None, {})


bodies = st.binary(max_size=12)
good = bodies.map(plain) | st.builds(with_attributes, bodies, st.sampled_from(["a", "b"]))
bad = good.map(damaged) | st.builds(
    misleading, st.sampled_from([b"\xff\xff\xff\xff", b"\0\0\0\x7f", b"\0"]), st.just(b"")
)


def batch_of(records: Sequence[Sent], count: int, policy: DecodePolicy) -> MessageBatch:
    reply: Any = _pb.GetMessageResponseB2C()
    for number, sent in enumerate(records):
        reply.messages.add(
            messageId=number,
            checkSum=checksum(sent.data) ^ (not sent.sound),
            payLoadData=sent.data,
            flag=sent.flag,
        )
    raw = RawBatch(START, reply.messages)
    return MessageBatch(PARTITION, raw, end=None, count=count, exact=True, policy=policy)


@given(st.lists(good | bad, max_size=12), st.integers(0, 12))
def test_what_is_not_sound_is_set_aside_and_the_rest_keeps_its_numbers(
    records: list[Sent], count: int
) -> None:
    aside: list[CorruptEntry] = []
    policy = DecodePolicy("quarantine", aside.append)
    batch = batch_of(records, count, policy)
    counted = list(enumerate(records))[:count]
    assert list(batch.messages()) == [
        Message(sent.body, sent.attributes, stream_of(sent), None, number, START + 28 * number)
        for number, sent in counted
        if sent.body is not None
    ]
    assert [(entry.position, entry.message_id, entry.data) for entry in aside] == [
        (number, number, sent.data) for number, sent in counted if sent.body is None
    ]
    assert policy.corrupt == len(aside)


def stream_of(sent: Sent) -> str | None:
    return "stream" if sent.attributes else None


@pytest.mark.parametrize("before", [0, 1, 5])
def test_a_record_that_is_not_sound_fails_the_batch_by_default(before: int) -> None:
    records = [plain(b"good")] * before + [damaged(plain(b"bad"))]
    batch = batch_of(records, before + 1, DecodePolicy())
    with pytest.raises(errors.CorruptRecord, match=f"record {before} of the batch"):
        batch.decode()
