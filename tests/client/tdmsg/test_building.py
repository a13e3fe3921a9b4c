"""Built messages: read back equal, have the promised size, and refuse records that would be
lost."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.tdmsg.raw import CREATED, A
from tests.client.tdmsg.test_attributes import PAIRS
from tubemq_client import TDMsgBuilder, TDMsgPacketBuilder, parse_tdmsg
from tubemq_client.errors import ConfigError
from tubemq_client.tdmsg import format_attributes

pytestmark = pytest.mark.timeout(60)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
BODIES = st.binary(max_size=30) | st.integers(0, 300).map(lambda size: b"z" * size)


class Added(NamedTuple):
    attributes: str
    own: str
    body: bytes


RECORDS = st.lists(st.builds(Added, TEXTS, TEXTS.filter(bool), BODIES.filter(bool)), max_size=12)


def grouped(records: list[tuple[str, bytes]]) -> list[tuple[str, list[bytes]]]:
    groups: dict[str, list[bytes]] = {}
    for attributes, body in records:
        groups.setdefault(attributes, []).append(body)
    return list(groups.items())


@settings(deadline=None)
@given(st.sampled_from([0, 1, 2]), st.booleans(), st.lists(st.tuples(TEXTS, BODIES), max_size=12))
def test_records_come_back_grouped(version: int, compress: bool, records: list[tuple[str, bytes]]):
    builder = TDMsgBuilder(version, compress=compress)
    for attributes, body in records:
        builder.add(attributes, body)
    built = builder.build(CREATED if version else None)
    parsed = parse_tdmsg(built)
    groups = [(group.attribute_text, group.bodies) for group in parsed.groups()]
    assert groups == grouped(records)
    assert parsed.create_time_ms == (CREATED if version else None)
    assert parsed.declared_count == (len(records) if version == 2 else None)
    assert len(parsed) == len(builder) == len(records)
    assert len(built) <= builder.size_bytes
    assert compress or len(built) == builder.size_bytes


@settings(deadline=None)
@given(st.booleans(), RECORDS)
def test_records_of_version_3_come_back_with_both_attributes(compress: bool, records: list[Added]):
    builder = TDMsgBuilder(3, compress=compress)
    for attributes, own, body in records:
        builder.add(attributes, body, record_attributes=own)
    built = builder.build(CREATED)
    parsed = parse_tdmsg(built)
    blocks = grouped([(added.attributes, added) for added in records])
    assert [(record.attribute_text, record.body) for record in parsed] == [
        (f"{added.attributes}&{added.own}", added.body) for _, block in blocks for added in block
    ]
    assert parsed.declared_count == len(records)
    assert len(built) <= builder.size_bytes


@settings(deadline=None)
@given(
    st.booleans(),
    PAIRS,
    st.none() | st.tuples(st.integers(0, 0x7FFF), st.integers(0, 0x7FFF)),
    st.integers(0, 0x7FFFFFFF),
    st.lists(st.tuples(BODIES.filter(bool), PAIRS.filter(bool)), max_size=8),
    st.booleans(),
)
def test_a_packet_comes_back(compress, common, ids, time_s, records, own):
    # A prefix each keeps the generated names from those that the header or the packet use.
    common = {f"c{key}": value for key, value in common.items()}
    builder = TDMsgPacketBuilder(
        data_time_s=time_s, attributes=common, numeric_ids=ids, unique_id=7, compress=compress
    )
    added = {"dt": str(time_s * 1000), "cnt": str(len(records))}
    if ids is not None:
        added |= {"groupId": str(ids[0]), "streamId": str(ids[1])}
    expected = []
    for body, pairs in records:
        mine = {f"o{key}": value for key, value in pairs.items()} if own else None
        builder.add(body, mine)
        expected.append((common | added | (mine or {}), body))
    built = builder.build()
    parsed = parse_tdmsg(built)
    assert [(dict(record.attributes), record.body) for record in parsed] == expected
    assert parsed.packet is not None
    assert (parsed.packet.unique_id, parsed.packet.numeric_ids) == (7, ids is not None)
    assert parsed.create_time_ms == time_s * 1000
    assert len(built) <= builder.size_bytes
    assert compress or len(built) == builder.size_bytes


def test_a_known_message_to_the_byte():
    builder = TDMsgBuilder(compress=False)
    builder.add({"m": "0"}, b"a")
    assert builder.build(CREATED) == A
    assert builder.build(CREATED) == A
    builder.reset()
    assert len(builder) == 0
    assert list(parse_tdmsg(builder.build(CREATED))) == []


def test_a_packet_builder_starts_afresh_after_a_reset():
    builder = TDMsgPacketBuilder(data_time_s=1)
    empty = builder.size_bytes
    builder.add(b"old", {"k": "1"})
    builder.reset()
    assert (len(builder), builder.size_bytes) == (0, empty)
    builder.add(b"new")
    assert [record.body for record in parse_tdmsg(builder.build())] == [b"new"]


@pytest.mark.parametrize("body", [b"", b"x", bytes(range(256))])
def test_compression_never_makes_a_message_larger(body: bytes):
    for builder in (TDMsgBuilder(2), TDMsgPacketBuilder(data_time_s=1)):
        if isinstance(builder, TDMsgBuilder):
            builder.add("k=1", body)
            assert len(builder.build(0)) <= builder.size_bytes
        else:
            builder.add(body)
            assert len(builder.build()) <= builder.size_bytes


def test_a_record_without_room_is_refused_and_not_half_added():
    builder = TDMsgBuilder(compress=False, max_bytes=60)
    builder.add("k=1", b"a")
    before = builder.build(0)
    assert not builder.fits("k=1", bytes(100))
    with pytest.raises(ValueError, match="has no room for 104 more: 60 are allowed"):
        builder.add("k=1", bytes(100))
    assert builder.build(0) == before
    assert builder.fits("k=1", bytes(60 - len(before) - 4))
    builder.add("k=1", bytes(60 - len(before) - 4))
    assert len(builder.build(0)) == builder.size_bytes == 60


def test_a_full_packet_refuses():
    builder = TDMsgPacketBuilder(data_time_s=1, compress=False)
    for _ in range(0x7FFF):
        builder.add(b"a")
    assert not builder.fits(b"a")
    with pytest.raises(ValueError, match="at most 32767 records"):
        builder.add(b"a")
    assert len(parse_tdmsg(builder.build())) == 0x7FFF
    small = TDMsgPacketBuilder(data_time_s=1, compress=False, max_bytes=39)
    with pytest.raises(ValueError, match="has no room for 7 more: 39 are allowed"):
        small.add(b"abc")
    assert len(small) == 0


def test_attributes_may_take_65535_bytes_and_no_more():
    builder = TDMsgBuilder(compress=False)
    builder.add("k" * 65_535, b"a")
    assert len(next(iter(parse_tdmsg(builder.build(0)))).raw_attributes) == 65_535
    with pytest.raises(ValueError, match="attributes of 65538 bytes"):
        builder.add("\0" * 32_769, b"a")
    assert len(builder) == 1


def test_records_that_java_would_lose_are_refused():
    nested = TDMsgBuilder(3, compress=False)
    for body, own in ((b"", "k=1"), (b"a", ""), (b"a", None)):
        with pytest.raises(ValueError, match="version 3 loses records"):
            nested.add("m=0", body, record_attributes=own)
    with pytest.raises(ValueError, match="version 1 has no attributes for single records"):
        TDMsgBuilder(compress=False).add("m=0", b"a", record_attributes="k=1")
    builder = TDMsgPacketBuilder(
        data_time_s=1, attributes={"m": "0"}, numeric_ids=(1, 2), compress=False
    )
    for body, own, said in (
        (b"", {"k": "1"}, "must have some, and a body"),
        (b"a", {}, "must have some, and a body"),
        (b"a", {"m": "1", "cnt": "2"}, "own cnt, m would win"),
        (b"a", {"streamId": "2"}, "own streamId would win"),
    ):
        with pytest.raises(ValueError, match=said):
            builder.add(body, own)
    builder.add(b"a", {"k": "1"})
    with pytest.raises(ValueError, match="every record of a packet"):
        builder.add(b"b")
    assert len(builder) == 1


def test_wrong_options_are_named_together():
    with pytest.raises(ConfigError) as wrong:
        TDMsgPacketBuilder(
            data_time_s=1 << 31,
            attributes={"dt": "1", "a&b": ""},
            numeric_ids=(40_000, -1),
            unique_id=-1,
            max_bytes=3,
        )
    assert [problem.split(" is ")[0] for problem in wrong.value.problems] == [
        "data_time_s 2147483648",
        "group number 40000",
        "stream number -1",
        "unique_id -1",
        "attribute 'dt' comes from the header",
        "attributes: key 'a&b' contains &",
        "max_bytes 3",
    ]
    with pytest.raises(ConfigError, match="32768 bytes exceed 32767"):
        TDMsgPacketBuilder(data_time_s=1, attributes={"k": "v" * 32_766})
    with pytest.raises(ConfigError, match="build it with TDMsgPacketBuilder"):
        TDMsgBuilder(4)
    with pytest.raises(ConfigError, match="version 5 is not 0, 1, 2 or 3"):
        TDMsgBuilder(5)


def test_a_create_time_is_given_exactly_where_there_is_one():
    with pytest.raises(ValueError, match="version 1: create_time_ms is None"):
        TDMsgBuilder(1, compress=False).build()
    with pytest.raises(ValueError, match="version 0: create_time_ms is 1"):
        TDMsgBuilder(0, compress=False).build(1)
    with pytest.raises(ValueError, match="no signed 64-bit number"):
        TDMsgBuilder(1, compress=False).build(1 << 63)
    assert parse_tdmsg(TDMsgBuilder(1, compress=False).build(-1)).create_time_ms == -1


def test_pairs_and_their_text_are_the_same_group():
    builder = TDMsgBuilder(compress=False)
    pairs = {"groupId": "g", "streamId": "s"}
    builder.add(pairs, b"a")
    builder.add(format_attributes(pairs), b"b")
    (group,) = parse_tdmsg(builder.build(0)).groups()
    assert group.bodies == [b"a", b"b"]
