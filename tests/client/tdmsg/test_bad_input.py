"""Malformed and unusual packed bodies, among them each that misleads a published parser."""

from __future__ import annotations

import tracemalloc

import pyarrow
import pytest

from tests.client.tdmsg.raw import A, block, message, packet, sized
from tubemq_client import parse_tdmsg
from tubemq_client.errors import ProtocolViolation, UnreadableTDMsg

pytestmark = pytest.mark.timeout(60)


def snappy(data: bytes) -> bytes:
    return pyarrow.Codec("snappy").compress(data, asbytes=True)


def shown(data: bytes, **options: object) -> list[tuple[str, bytes]]:
    return [(record.attribute_text, record.body) for record in parse_tdmsg(data, **options)]


def mapped(data: bytes, **options: object) -> list[tuple[dict[str, str], bytes]]:
    return [(dict(record.attributes), record.body) for record in parse_tdmsg(data, **options)]


TWO_RUNS = sized(sized(b"a", b"k=1"), sized(b"b", b"k=2"))
ADDED = {"dt": "1700000000000", "cnt": "3", "groupId": "10", "streamId": "20"}
COMMON = {"rt": "1"} | ADDED

REFUSED = [
    ("empty", b"", 0, "0 bytes are too short"),
    ("three bytes", b"\x0f\x01\x0f", 3, "too short"),
    ("only the magics", b"\x0f\x01\x0f\x01", 2, "create time of 8 bytes where 0 are left"),
    ("wrong magic", b"\x0e" + A[1:], 0, "begins with 0e 01"),
    ("version 5", b"\x0f\x05" + A[2:-2] + b"\x0f\x05", 0, "begins with 0f 05"),
    ("trailer of another version", A[:-1] + b"\x02", 29, "not repeated at the end"),
    ("a block too few", message(block(), count=2), 29, "attribute length of 2 bytes where 0"),
    ("negative block count", message(block(), count=-1), 14, "block count is -1"),
    ("endless block count", message(block(), count=0x7FFFFFFF), 29, "where 0 are left"),
    ("a block too many", message(block(), count=0), 14, "15 bytes belong to none"),
    ("stray bytes", message(block(), tail=b"xy"), 29, "2 bytes belong to none"),
    ("attributes past the end", A[:14] + b"\xff" + A[15:], 16, "attributes of 65283 bytes"),
    ("block eats the trailer", message(block(length=7)), 23, "block of 7 bytes where 6"),
    ("block of no bytes", message(block(length=0)), 23, "block of 0 bytes"),
    ("block too short", message(block(length=5)), 28, "1 bytes belong to none"),
    ("block of negative length", message(block(length=-1)), 23, "block of -1 bytes"),
    ("bytes after the last item", message(block(b"\0\0\0\1axx")), 29, "item: the length is cut"),
    ("item past its payload", message(block(b"\0\0\0\2a")), 24, "item of 2 bytes where 1"),
    ("item of negative length", message(block(b"\xff\xff\xff\xffa")), 24, "item of -1 bytes"),
    ("unknown flag", message(block(flag=2)), 23, "unknown compression flag 2"),
    ("flag 255", message(block(snappy(b"\0\0\0\0"), flag=255)), 23, "compression flag 255"),
    ("damaged snappy", message(block(b"\x05\x10" + b"a" * 4, flag=1)), 24, "damaged snappy"),
    ("empty snappy", message(block(b"", flag=1)), 24, "without a readable size"),
    ("endless snappy size", message(block(b"\xff" * 9, flag=1)), 24, "without a readable size"),
    ("snappy and more", message(block(snappy(b"\0\0\0\0") + b"x", flag=1)), 24, "damaged snappy"),
    (
        "snappy claims 2 GiB",
        message(block(b"\xff\xff\xff\xff\x07", flag=1)),
        24,
        "5 bytes claims to hold 2147483647",
    ),
    (
        "item cut inside snappy",
        message(block(snappy(b"\0\0\0\5" + b"a" * 4), flag=1)),
        24,
        "item of 5 bytes where 4 are left, 0 bytes into the decompressed block",
    ),
    ("run too long", message(block(b"\0\0\0\x0d" + TWO_RUNS[4:16]), version=3), 28, "run of rec"),
    ("run too short", message(block(b"\0\0\0\x0b" + TWO_RUNS[4:16]), version=3), 37, "attributes"),
    ("record without attributes", message(block(sized(sized(b"a"))), version=3), 37, "is cut off"),
    ("packet without header", b"\x0f\x04" + b"\0" * 24 + b"\x0f\x04", 2, "packet header of 25"),
    ("packet total too small", packet(off_total=-1), 2, "states 33 bytes and has 34"),
    ("packet total too large", packet(off_total=1), 2, "states 35 bytes and has 34"),
    ("inner magic", packet(magic=b"\xee\x02"), 38, "inner magic is ee 02"),
    ("body too long", packet(off_body=1), 35, "attributes of 1138 bytes"),
    ("body past the end", packet(off_body=90), 27, "payload of 95 bytes where 13"),
    ("negative body", packet(off_body=-9), 27, "payload of -4 bytes"),
    ("packet attributes too long", packet(attribute_bytes=9), 34, "attributes of 9 bytes"),
    ("packet attributes just too long", packet(attribute_bytes=5), 39, "inner magic of 2"),
    ("packet attributes endless", packet(attribute_bytes=0xFFFF), 34, "attributes of 65535"),
    ("packet attributes too short", packet(attribute_bytes=3), 37, "inner magic is 31 ee"),
    ("item past the body", packet(b"\0\0\0\2a"), 27, "item of 2 bytes where 1"),
    ("packet's record cut", packet(sized(b"a"), extension=1), 32, "is cut off"),
    ("encrypted", packet(kind=0x47), 6, "encrypted"),
    ("encrypted and compressed", packet(kind=0x67), 6, "encrypted"),
    ("indexed", packet(extension=8), 11, "index"),
    ("another packet type", packet(kind=8), 6, "type 8, not 7"),
    ("packet of damaged snappy", packet(b"\x05\x10aaaa", kind=0x27), 27, "damaged snappy"),
]


@pytest.mark.parametrize(
    ("data", "offset", "said"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_what_does_not_add_up_is_refused_at_its_byte(data: bytes, offset: int, said: str):
    with pytest.raises(UnreadableTDMsg) as refusal:
        parse_tdmsg(data)
    assert said in str(refusal.value)
    assert refusal.value.offset == offset
    assert isinstance(refusal.value, ProtocolViolation)


ACCEPTED = [
    ("empty attributes", message(block(attributes=b"")), [("", b"a")]),
    ("no blocks", message(), []),
    ("bytes that are no text", message(block(attributes=b"k=\xff")), [("k=\ufffd", b"a")]),
    (
        "ordinary UTF-8",
        message(block(attributes="k=\U0001f600".encode())),
        [("k=\U0001f600", b"a")],
    ),
    ("a raw zero byte", message(block(attributes=b"k=\0z")), [("k=\0z", b"a")]),
    (
        "one attribute in two blocks",
        message(block(), block(sized(b"b"), attributes=b"x=1"), block(sized(b"c"))),
        [("m=0", b"a"), ("x=1", b"b"), ("m=0", b"c")],
    ),
    ("no items", message(block(b"")), []),
    ("no items, compressed", message(block(b"\0", flag=1)), []),
    ("an item of no bytes", message(block(sized(b"", b"a"))), [("m=0", b""), ("m=0", b"a")]),
    ("version 0", message(block(), version=0), [("m=0", b"a")]),
    ("version 3", message(block(sized(sized(b"a", b"k=1"))), version=3), [("m=0&k=1", b"a")]),
    (
        "version 3, several runs",
        message(block(TWO_RUNS), version=3),
        [("m=0&k=1", b"a"), ("m=0&k=2", b"b")],
    ),
    (
        "version 3, empty body and attributes",
        message(block(sized(sized(b"", b"k=1", b"b", b""))), version=3),
        [("m=0&k=1", b""), ("m=0", b"b")],
    ),
    (
        "version 3, empty runs",
        message(block(sized(b"", sized(b"a", b"k=1"), b"")), version=3),
        [("m=0&k=1", b"a")],
    ),
    (
        "false counts",
        message(block(count=9), version=2, declared=-5),
        [("m=0", b"a")],
    ),
]


@pytest.mark.parametrize(
    ("data", "records"), [row[1:] for row in ACCEPTED], ids=[row[0] for row in ACCEPTED]
)
def test_what_adds_up_is_read_as_written(data: bytes, records: list[tuple[str, bytes]]):
    assert shown(data) == records
    assert len(parse_tdmsg(data)) == len(records)


PACKETS = [
    ("plain", packet(), [(COMMON, b"a")]),
    ("no attributes", packet(attributes=b""), [(ADDED, b"a")]),
    ("no pair", packet(attributes=b"flag"), [(ADDED, b"a")]),
    ("no equals sign", packet(attributes=b"rt=1&x"), [(COMMON, b"a")]),
    ("second equals sign", packet(attributes=b"rt=1=2"), [(COMMON | {"rt": "1=2"}, b"a")]),
    ("repeated key", packet(attributes=b"rt=0&rt=1&"), [(COMMON, b"a")]),
    ("count 0", packet(count=0), [(COMMON | {"cnt": "0"}, b"a")]),
    (
        "count below",
        packet(sized(b"a", b"b"), count=1),
        [(COMMON | {"cnt": "1"}, b) for b in (b"a", b"b")],
    ),
    ("items of no bytes", packet(sized(b"", b"")), [(COMMON, b""), (COMMON, b"")]),
    (
        "records of no bytes",
        packet(sized(b"", b"k=1", b"b", b""), extension=1),
        [(COMMON | {"k": "1"}, b""), (COMMON, b"b")],
    ),
    (
        "common attributes win over a record's",
        packet(sized(b"a", b"rt=2&k=1"), extension=1),
        [(COMMON | {"k": "1"}, b"a")],
    ),
    (
        "texts as ids",
        packet(extension=4, attributes=b"groupId=g&streamId=s"),
        [({"dt": ADDED["dt"], "cnt": "3", "groupId": "g", "streamId": "s"}, b"a")],
    ),
    (
        "unsigned numbers",
        packet(ids=(40_000, 50_000), count=60_000, time_s=4_000_000_000),
        [
            (
                COMMON
                | {"dt": "4000000000000", "cnt": "60000"}
                | {"groupId": "40000", "streamId": "50000"},
                b"a",
            )
        ],
    ),
    ("with an authentication bit", packet(kind=0x87), [(COMMON, b"a")]),
]


@pytest.mark.parametrize(
    ("data", "records"), [row[1:] for row in PACKETS], ids=[row[0] for row in PACKETS]
)
def test_packets_are_read_by_their_lengths_and_never_by_their_count(
    data: bytes, records: list[tuple[dict[str, str], bytes]]
):
    assert mapped(data) == records


def test_bytes_that_are_no_text_are_kept():
    (record,) = parse_tdmsg(message(block(attributes=b"k=\xff")))
    assert record.raw_attributes == b"k=\xff"
    (record,) = parse_tdmsg(packet(attributes=b"flag"))
    assert record.raw_attributes == b"flag"


TOLERATED = [
    ("stray bytes", message(block(), tail=b"xy")),
    ("a block too few", message(block(), count=2)),
    ("flag 2", message(block(snappy(sized(b"a")), flag=2))),
    ("packet total", packet(off_total=1)),
    ("inner magic", packet(magic=b"\xee\x02")),
    ("packet type", packet(kind=3)),
]


@pytest.mark.parametrize("data", [row[1] for row in TOLERATED], ids=[row[0] for row in TOLERATED])
def test_small_disorder_is_tolerated_only_on_request(data: bytes):
    with pytest.raises(UnreadableTDMsg):
        parse_tdmsg(data)
    assert [body for _, body in shown(data, strict=False)] == [b"a"]


@pytest.mark.parametrize(
    "data",
    [
        message(block(b"\0\0\0\2a")),
        message(block(b"\xff\xff\xff\xffa")),
        message(block(length=7)),
        message(block(), count=-1),
        message(block(b"\0\0\0\1axx")),
        message(block(sized(sized(b"a"))), version=3),
        packet(attribute_bytes=0xFFFF),
        packet(sized(b"a"), extension=1),
        packet(extension=16),
    ],
)
def test_a_cut_record_is_never_tolerated(data: bytes):
    with pytest.raises(UnreadableTDMsg):
        parse_tdmsg(data, strict=False)


def test_an_encrypted_packet_is_one_untouched_body_on_request():
    data = packet(b"\x01sealed", kind=0x67)
    assert mapped(data, keep_encrypted=True) == [(COMMON, b"\x01sealed")]
    parsed = parse_tdmsg(data, keep_encrypted=True)
    assert parsed.packet is not None
    assert parsed.packet.encrypted


def test_the_limit_holds_for_the_message_and_for_all_payloads_together():
    data = message(block(), block())
    assert len(parse_tdmsg(data, max_bytes=len(data))) == 2
    with pytest.raises(UnreadableTDMsg, match=f"message of {len(data)} bytes exceeds"):
        parse_tdmsg(data, max_bytes=len(data) - 1)
    packed = block(snappy(sized(bytes(500))), flag=1)
    assert len(parse_tdmsg(message(packed), max_bytes=504)) == 1
    with pytest.raises(UnreadableTDMsg, match="payload of 504 bytes exceeds the 99 allowed"):
        parse_tdmsg(message(packed, packed), max_bytes=603)


def test_what_a_compressed_size_claims_is_judged_before_memory_is_taken():
    honest = snappy(bytes(60_000_000))
    liar = b"\x80\xc6\x86\x8f\x01" + honest[4:]
    tracemalloc.start()
    pyarrow_before = pyarrow.total_allocated_bytes()
    try:
        for body in (liar, honest):
            with pytest.raises(UnreadableTDMsg):
                parse_tdmsg(message(block(body, flag=1)), max_bytes=10_000_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 12_000_000
    assert pyarrow.total_allocated_bytes() == pyarrow_before


def test_empty_records_cost_no_memory_each():
    data = message(block(bytes(400_000)))
    tracemalloc.start()
    try:
        parsed = parse_tdmsg(data)
        assert sum(1 for _ in zip(parsed, range(1000), strict=False)) == 1000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(parsed) == 100_000
    assert peak < 100_000


def test_attributes_that_all_differ_take_no_memory_each():
    common = b"&".join(b"%x=%d" % (n, n) for n in range(12000))[:65535]
    records = sized(sized(*(part for n in range(60) for part in (b"", b"~%d=1" % n))))
    data = message(block(records, attributes=common), version=3)
    tracemalloc.start()
    try:
        assert sum(1 for _ in parse_tdmsg(data)) == 60
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20
