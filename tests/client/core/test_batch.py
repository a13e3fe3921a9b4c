"""Batches of every mixture: delivered records, corrupt ones, and their offsets."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tubemq_client import COLUMNS, Message, MessageBatch, Partition, _pb, errors
from tubemq_client._core.batch import CorruptEntry, DecodePolicy, RawBatch
from tubemq_client._wire.fetching import FetchReply
from tubemq_client._wire.payload import checksum, encode_payload

PARTITION = Partition(1, "mixed", 0)
START = 2_800


class Sent(NamedTuple):
    """Record in a reply, and the reader's expected result."""

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
    """Return data whose flag announces attributes, with an invalid length before them."""
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
    reply.success, reply.errCode = True, errors.SUCCESS
    raw = RawBatch(START, FetchReply(reply.SerializeToString()).parse().messages)
    return MessageBatch(PARTITION, raw, end=None, count=count, exact=True, policy=policy)


@given(st.lists(good | bad, max_size=12), st.integers(0, 12))
def test_corrupt_records_are_quarantined_and_the_rest_keeps_its_offsets(
    records: list[Sent], count: int
) -> None:
    corrupt: list[CorruptEntry] = []
    policy = DecodePolicy("quarantine", corrupt.append)
    batch = batch_of(records, count, policy)
    counted = list(enumerate(records))[:count]
    assert list(batch.messages()) == [
        Message(sent.body, sent.attributes, stream_of(sent), None, number, START + 28 * number)
        for number, sent in counted
        if sent.body is not None
    ]
    assert [(entry.position, entry.message_id, entry.data) for entry in corrupt] == [
        (number, number, sent.data) for number, sent in counted if sent.body is None
    ]
    assert policy.corrupt == len(corrupt)


def stream_of(sent: Sent) -> str | None:
    return "stream" if sent.attributes else None


@pytest.mark.parametrize("word", ["fail", "Fail", "quarantine"])
@pytest.mark.parametrize("before", [0, 1, 5])
def test_a_corrupt_record_fails_the_batch_unless_it_is_quarantined(before: int, word: str) -> None:
    records = [plain(b"good")] * before + [damaged(plain(b"bad"))]
    batch = batch_of(records, before + 1, DecodePolicy(word))
    with pytest.raises(errors.CorruptRecord, match=f"record {before} of the batch"):
        batch.decode()


def test_an_emptied_batch_has_every_column() -> None:
    batch = batch_of([damaged(plain(b"bad"))], 1, DecodePolicy("drop"))
    attributes = pa.field("attributes", pa.map_(pa.string(), pa.string()))
    schema = pa.schema([attributes, pa.field("msg_time", pa.timestamp("us", "UTC"))])
    arrow = batch.to_arrow(schema)
    assert (arrow.num_rows, arrow.schema) == (0, schema)


def arrow_column(batch: MessageBatch, name: str, type_: Any) -> list[Any]:
    column: list[Any] = batch.to_arrow(pa.schema([(name, type_)])).column(0).to_pylist()
    return column


@pytest.mark.parametrize(
    "text", ["20261121", "2026112108", "202613211200", "٢٠٢٦١١٢١١٢٠٠", "x" * 12]
)
def test_only_twelve_digits_that_name_a_minute_are_a_message_time(text: str) -> None:
    raw = f"$msgTime$={text}".encode()
    data = len(raw).to_bytes(4, "big") + raw
    good, flag = encode_payload(b"", stream_id="s", msg_time="202611211200")
    batch = batch_of(
        [Sent(data, 1, True, b"", {}), Sent(good, flag, True, b"", {})], 2, DecodePolicy()
    )
    column = arrow_column(batch, "msg_time", pa.timestamp("us", "UTC"))
    assert column == [None, datetime(2026, 11, 21, 12, tzinfo=UTC)]


@pytest.mark.parametrize(
    "text",
    [
        lambda number: b"k=" + number.to_bytes(4, "big").hex().encode() * (1 << 17),
        lambda number: b",".join(b"%x=" % (number << 16 | i) for i in range(4_000)),
        lambda number: b"%x=" % number,
    ],
    ids=["long values", "many items", "many texts"],
)
@pytest.mark.parametrize("columns", [True, False], ids=["columns", "messages"])
def test_a_reader_keeps_little_of_attributes_whatever_producers_choose(
    text: Callable[[int], bytes], columns: bool
) -> None:
    policy, schema = DecodePolicy(), pa.schema([("attributes", pa.map_(pa.string(), pa.string()))])
    tracemalloc.start()
    try:
        for number in range(40):
            each = range(number * 1000, number * 1000 + (1000 if len(text(0)) < 10 else 1))
            raws = [text(i) for i in each]
            sent = [Sent(len(raw).to_bytes(4, "big") + raw, 1, True, b"", {}) for raw in raws]
            batch = batch_of(sent, len(sent), policy)
            if columns:
                batch.to_arrow(schema)
            else:
                assert sum(1 for _ in batch.messages()) == len(sent)
            del raws, sent, batch
        memory_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert memory_bytes < 12 << 20


@pytest.mark.parametrize("count", [0, 3])
def test_a_record_batch_without_a_schema_has_all_columns(count: int) -> None:
    sent = [plain(b"a"), with_attributes(b"b", "v"), plain(b"c")]
    batch = batch_of(sent, count, DecodePolicy("fail"))
    arrow = batch.to_arrow()
    assert tuple(arrow.schema.names) == COLUMNS
    assert arrow.column("value").to_pylist() == [b"a", b"b", b"c"][:count]
    assert arrow.column("message_id").to_pylist() == [0, 1, 2][:count]
    assert arrow.equals(batch.to_arrow(arrow.schema))
