"""Stored records, batches, properties, compression, tags: bytes to values and back."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rocketmq_client import Queue, errors
from rocketmq_client._core.pulling import message_of
from rocketmq_client._wire.batches import BatchElement, decode_batch, encode_batch
from rocketmq_client._wire.compression import compress, compression_flags, decompress
from rocketmq_client._wire.properties import (
    decode_properties,
    encode_properties,
    find_property,
    tag_hash,
)
from rocketmq_client._wire.records import (
    INNER_BATCH,
    StoredRecord,
    body_crc,
    encode_record,
    offset_id,
    parse_record,
    parse_records,
    plain_messages,
    scan,
)

INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)
PORT = st.integers(0, 65535)
HOST = st.tuples(st.ip_addresses().map(str), PORT)
NAMES = st.text("abcXYZ%-_9", min_size=1, max_size=200)


@st.composite
def records(draw, topic=NAMES, queue_id=INT):
    body = draw(st.binary(max_size=80))
    return StoredRecord(
        queue_id=draw(queue_id),
        flag=draw(INT),
        queue_offset=draw(LONG),
        physical_offset=draw(LONG),
        sys_flag=draw(st.sampled_from([0, 8])),
        born_ms=draw(LONG),
        born_host=draw(HOST),
        store_ms=draw(LONG),
        store_host=draw(HOST),
        reconsume_times=draw(INT),
        prepared_offset=draw(LONG),
        body=body,
        topic=draw(topic),
        properties=draw(st.binary(max_size=60)),
        crc=body_crc(body),
    )


QUEUE = Queue("broker-a", "orders", 3)
HERE = ("127.0.0.1", 1)
PLAIN = StoredRecord(0, 0, 5, 9, 0, 1, HERE, 2, HERE, 0, 0, b"x", "orders", b"", body_crc(b"x"))


def same(found: StoredRecord, wanted: StoredRecord) -> None:
    assert found._replace(size=0, sys_flag=found.sys_flag & ~0x30) == wanted
    assert found.size == len(encode_record(wanted))


@settings(deadline=None)
@given(st.lists(records(), max_size=4))
def test_records_are_read_as_they_were_written(wanted) -> None:
    parsed = parse_records(b"".join(map(encode_record, wanted)))

    assert len(parsed) == len(wanted)
    for one, other in zip(parsed, wanted, strict=True):
        same(one, other)
        assert one.is_sound


@settings(deadline=None)
@given(st.lists(records(st.just("orders"), st.just(3)), max_size=6), st.integers(0, 6))
def test_scanning_gives_the_same_as_reading_one_by_one(wanted, limit) -> None:
    data = b"".join(map(encode_record, wanted))
    columns = scan(data, "orders", 3, limit)
    expected = wanted[:limit]

    assert columns.offsets == [record.queue_offset for record in expected]
    assert columns.bodies == [record.body for record in expected]
    assert columns.properties == [record.properties for record in expected]
    assert columns.store_ms == [record.store_ms for record in expected]
    assert columns.corrupt == []
    for index, record in enumerate(expected):
        same(columns.stored(index), record)


@settings(deadline=None)
@given(st.lists(records(), max_size=5), st.binary(max_size=30), st.integers(0, 6), st.data())
def test_messages_are_those_of_records_read_one_by_one(wanted, tail, limit, data) -> None:
    written = bytearray(b"".join(map(encode_record, wanted)) + tail)
    if written and data.draw(st.booleans()):
        written[data.draw(st.integers(0, len(written) - 1))] ^= data.draw(st.integers(1, 255))
    stored = bytes(written)
    found, end = plain_messages(QUEUE, stored, 0, limit)

    pos = 0
    for message in found:
        record, pos = parse_record(stored, pos)
        assert record.is_sound
        assert message == message_of(QUEUE, record, record.body)
    assert pos == end
    assert len(found) <= limit


def test_messages_end_before_a_record_that_is_not_plain() -> None:
    packed = PLAIN._replace(sys_flag=compression_flags("zlib"))
    inner = PLAIN._replace(sys_flag=INNER_BATCH)
    damaged = PLAIN._replace(crc=PLAIN.crc ^ 1)
    far = PLAIN._replace(store_host=("::1", 1))
    first = encode_record(PLAIN)
    for other in (packed, inner, damaged, far):
        found, end = plain_messages(QUEUE, first + encode_record(other) + first, 0, 9)
        assert ([message.offset for message in found], end) == ([5], len(first))


def test_a_message_reads_its_properties_when_they_are_asked_for() -> None:
    raw = b"TAGS\x01red\x02KEYS\x01a  b\x02UNIQ_KEY\x01ID\x02color\x01\xc3\xa9\x02"
    record = PLAIN._replace(properties=raw)
    [message], _ = plain_messages(QUEUE, encode_record(record), 0, 1)
    copy = pickle.loads(pickle.dumps(message))

    assert (message.tags, message.keys, message.message_id) == ("red", ("a", "b"), "ID")
    assert message.properties == {"TAGS": "red", "KEYS": "a  b", "UNIQ_KEY": "ID", "color": "é"}
    assert message.offset_id == "7F000001000000010000000000000009"
    assert copy == message
    assert copy.properties == message.properties
    assert "properties={'TAGS': 'red'" in repr(copy)
    [bare], _ = plain_messages(QUEUE, encode_record(PLAIN), 0, 1)
    assert (bare.tags, bare.keys, bare.message_id, bare.properties) == (None, (), None, {})


@settings(max_examples=200, deadline=None)
@given(records(st.just("orders"), st.just(3)), st.data())
def test_a_damaged_record_is_noticed_or_harmless(record, data) -> None:
    sound = encode_record(record)
    at = data.draw(st.integers(0, len(sound) - 1))
    damaged = bytearray(sound)
    damaged[at] ^= data.draw(st.integers(1, 255))
    try:
        columns = scan(bytes(damaged), "orders", 3)
    except errors.ProtocolViolation:
        return
    assert columns.bodies == [record.body] or columns.corrupt == [0]


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_garbage_is_a_violation_or_records(garbage) -> None:
    for read in (parse_records, decode_batch, lambda data: scan(data, "t", 0)):
        try:
            read(garbage)
        except errors.ProtocolViolation:
            pass


@settings(deadline=None)
@given(records(), st.integers(1, 200))
@example(PLAIN, 1)
@example(PLAIN, 2)
def test_a_cut_record_is_a_violation(record, cut) -> None:
    data = encode_record(record)[:-cut]
    if data:
        with pytest.raises(errors.ProtocolViolation):
            parse_records(data)
        with pytest.raises(errors.ProtocolViolation):
            scan(data, record.topic, record.queue_id)


@settings(deadline=None)
@given(st.lists(st.builds(BatchElement, INT, st.binary(max_size=50), st.binary(max_size=50))))
def test_batches_are_read_as_they_were_written(elements) -> None:
    assert decode_batch(encode_batch(elements)) == elements


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), max_size=9)


@settings(deadline=None)
@given(st.dictionaries(TEXT, TEXT, max_size=5), st.booleans())
def test_properties_are_read_as_they_were_written(pairs, bare_end) -> None:
    raw = encode_properties(pairs).encode()
    raw = raw[:-1] if bare_end and raw else raw  # 4.x leaves the last separator away

    assert decode_properties(raw) == pairs
    for name, value in pairs.items():
        assert find_property(raw, name.encode()) == value.encode()
    assert find_property(raw, b"absent-for-sure") is None


@settings(deadline=None)
@given(st.binary())
def test_properties_of_garbage_are_read(raw) -> None:
    assert isinstance(decode_properties(raw), dict)


@pytest.mark.parametrize("method", ["zlib", "lz4", "zstd"])
@settings(deadline=None)
@given(body=st.binary(max_size=300))
def test_bodies_are_unpacked_as_they_were_packed(method, body) -> None:
    assert decompress(compress(body, method), compression_flags(method)) == body


@settings(deadline=None)
@given(st.binary(max_size=100), st.integers(0, 7))
def test_unpacking_garbage_raises_value_error(garbage, kind) -> None:
    try:
        decompress(garbage, 1 | kind << 8)
    except ValueError:
        pass


@pytest.mark.parametrize("method", ["zlib", "lz4", "zstd"])
def test_a_bomb_is_not_unpacked(method) -> None:
    packed = compress(bytes(10_000_000), method)

    with pytest.raises(ValueError, match="more than 1000000 bytes"):
        decompress(packed, compression_flags(method), limit=1_000_000)


def test_tags_hash_as_in_java() -> None:
    assert tag_hash("Aa") == tag_hash("BB") == 2112
    assert tag_hash("") == 0
    assert tag_hash("😀") == 0xD83D * 31 + 0xDE00


def test_the_brokers_message_id() -> None:
    assert offset_id(("127.0.0.1", 10911), 0x1234) == "7F00000100002A9F0000000000001234"


def test_a_record_of_a_strange_queue_or_kind_is_refused_by_name() -> None:
    record = StoredRecord(
        *(3, 0, 5, 0, 0, 0, ("127.0.0.1", 1), 0, ("127.0.0.1", 1), 0, 0, b"x", "other", b""),
        crc=body_crc(b"x"),
    )
    with pytest.raises(errors.ProtocolViolation, match="%LMQ%"):
        scan(encode_record(record), "orders", 3)
    with pytest.raises(errors.ProtocolViolation, match="BatchCQ"):
        scan(encode_record(record._replace(topic="orders", sys_flag=0xC0)), "orders", 3)


def test_of_a_property_that_comes_twice_the_first_counts() -> None:
    raw = b"UNIQ_KEY\x01own\x02TAGS\x01a\x02UNIQ_KEY\x01the batch's"

    assert decode_properties(raw) == {"UNIQ_KEY": "own", "TAGS": "a"}
    assert find_property(raw, b"UNIQ_KEY") == b"own"
