"""Version 4: the binary packet of a sender, embedded unchanged between the magics.

All its records share the packet's attributes; to these the header adds the data time, the count
and, unless they are texts, the group's and stream's numbers, under the names of the published Java
class. The count is reported but never trusted.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tubemq_client.tdmsg._reading import Cursor, Rules
from tubemq_client.tdmsg._values import Block, Layout, TDMsgPacket
from tubemq_client.tdmsg._walk import Span

__all__ = ["HEADER", "INNER_MAGIC", "MULTI_BODY", "added_attributes", "read_packet"]

HEADER: Final = struct.Struct(">iBHHHIHIi")
"""Total length, type, group, stream, extension, data time, count, unique id, body length."""

INNER_MAGIC: Final = b"\xee\x01"
MULTI_BODY: Final = 7
_TYPE_BITS: Final = 0x1F
_INDEX_BITS: Final = 0x18
_LENGTH_BYTES: Final = 4


def read_packet(cursor: Cursor, rules: Rules) -> tuple[TDMsgPacket, Block]:
    """Read the header and the only block of the packet at the cursor."""
    start, size = cursor.position, cursor.remaining
    total, *facts, body_size = cursor.fields(HEADER, "packet header")
    packet = TDMsgPacket(*facts)
    if rules.strict and total != size - _LENGTH_BYTES:
        cursor.fail(f"packet states {total} bytes and has {size - _LENGTH_BYTES}", at=start)
    _check_kind(cursor, packet, rules, start)
    span = _read_body(cursor, packet, rules, body_size)
    attributes = cursor.take(cursor.uint16("attribute length"), "attributes")
    magic = cursor.take(len(INNER_MAGIC), "inner magic")
    if rules.strict:
        if magic != INNER_MAGIC:
            cursor.fail(f"inner magic is {magic.hex(' ')}", at=cursor.position - len(INNER_MAGIC))
        if cursor.remaining:
            cursor.fail(f"{cursor.remaining} bytes behind the packet")
    return packet, Block(attributes, _layout(packet), span, added_attributes(packet))


def _check_kind(cursor: Cursor, packet: TDMsgPacket, rules: Rules, start: int) -> None:
    kind = packet.message_type & _TYPE_BITS
    if rules.strict and kind != MULTI_BODY:
        cursor.fail(f"packet of type {kind}, not {MULTI_BODY}", at=start + _LENGTH_BYTES)
    if packet.extension & _INDEX_BITS:
        cursor.fail("packet with an index, whose format is unknown", at=start + 9)
    if packet.encrypted and not rules.keep_encrypted:
        cursor.fail("the packet is encrypted", at=start + _LENGTH_BYTES)


def _read_body(cursor: Cursor, packet: TDMsgPacket, rules: Rules, size: int) -> Span:
    # An encrypted body was compressed before encryption; it is returned as it is.
    compressed = packet.compressed and not packet.encrypted
    return cursor.payload(size, rules, compressed=compressed)


def _layout(packet: TDMsgPacket) -> Layout:
    if packet.encrypted:
        return Layout.ENCRYPTED
    return Layout.RECORDS if packet.own_attributes else Layout.ITEMS


def added_attributes(packet: TDMsgPacket) -> Mapping[str, str]:
    """Return the pairs that the header adds to the attributes of every record."""
    pairs = {"dt": str(packet.data_time_s * 1000), "cnt": str(packet.declared_count)}
    if packet.numeric_ids:
        pairs |= {"groupId": str(packet.group_number), "streamId": str(packet.stream_number)}
    return MappingProxyType(pairs)
