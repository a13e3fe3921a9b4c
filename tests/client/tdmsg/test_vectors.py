"""Well-formed packed bodies: those the published Java class wrote, and a few by hand."""

from __future__ import annotations

import pytest

from tests.client.tdmsg import published
from tests.client.tdmsg.published import Reading, comparable
from tests.client.tdmsg.raw import CREATED, A, packet
from tubemq_client import is_tdmsg, parse_tdmsg

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("vector", published.committed(), ids=lambda vector: vector.name)
def test_what_java_wrote_is_read_as_java_reads_it(vector: Reading):
    parsed = parse_tdmsg(vector.message)
    assert is_tdmsg(vector.message)
    assert (parsed.version, parsed.create_time_ms) == (vector.version, vector.created)
    assert (parsed.declared_count or 0) == vector.count
    assert comparable(parsed) == vector.groups
    assert len(parsed) == sum(len(bodies) for bodies in (vector.groups or {}).values())


def test_records_come_in_the_order_of_the_wire():
    (vector,) = (vector for vector in published.committed() if vector.name == "v3-one-call-snappy")
    records = [(record.attribute_text, record.body) for record in parse_tdmsg(vector.message)]
    assert records == [("m=0&k=1", b"a"), ("m=0&k=2", b"bc"), ("m=0&k=1", b"d")]


def test_version_0_has_no_create_time():
    parsed = parse_tdmsg(b"\x0f\x00" + A[10:-2] + b"\x0f\x00")
    assert parsed.create_time_ms is None
    assert parsed.declared_count is None
    assert [record.body for record in parsed] == [b"a"]


def test_a_packet_shows_its_header():
    parsed = parse_tdmsg(packet(extension=0x24, attributes=b"groupId=g&streamId=s"))
    header = parsed.packet
    assert header is not None
    assert (header.lines_joined, header.numeric_ids, header.own_attributes) == (True, False, False)
    assert (header.compressed, header.encrypted, header.unique_id) == (False, False, 9)
    assert parsed.declared_count == 3
    assert len(parsed) == 1
    (record,) = parsed
    assert (record.group_id, record.stream_id) == ("g", "s")


def test_one_order_of_pairs_or_another_is_one_group_of_a_packet():
    body = b"".join(
        len(part).to_bytes(4, "big") + part for part in (b"a", b"x=1&y=2", b"b", b"y=2&x=1")
    )
    (group,) = parse_tdmsg(packet(body, extension=1)).groups()
    assert group.bodies == [b"a", b"b"]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_taken_even_a_slice_of_a_larger_one(kind: type):
    data = memoryview(kind(b"xx" + A + b"yy"))[2:-2]
    parsed = parse_tdmsg(data)
    assert is_tdmsg(data)
    assert [record.body for record in parsed] == [b"a"]
    data.release()
    assert [record.body for record in parsed] == [b"a"]


def test_is_tdmsg_looks_at_the_ends_only():
    assert is_tdmsg(b"\x0f\x04\x0f\x04")
    assert not is_tdmsg(b"\x0f\x04\x0f")
    assert not is_tdmsg(b"\x0f\x05..\x0f\x05")
    assert not is_tdmsg(b"\x0f\x01..\x0f\x02")
    assert not is_tdmsg(b"")


def test_what_a_message_says_of_itself():
    assert repr(parse_tdmsg(A)) == f"<TDMsg version 1: 1 records, created {CREATED} ms>"
    with pytest.raises(TypeError):
        next(iter(parse_tdmsg(A))).attributes["m"] = "1"  # type: ignore[index]
