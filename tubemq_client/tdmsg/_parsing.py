"""Parsing: recognition of a packed body, and the blocks of versions 0 to 3.

The whole message is checked before any record is returned; there is no partial result. Version 4
wraps one packet of the sender and is read by `_packet`.
"""

from __future__ import annotations

from typing import Final, NoReturn

from tubemq_client import errors
from tubemq_client.tdmsg import _packet
from tubemq_client.tdmsg._reading import TRAILER_BYTES, Cursor, Rules
from tubemq_client.tdmsg._values import DEFAULT_MAX_BYTES, Block, Layout, TDMsg

__all__ = ["is_tdmsg", "parse_tdmsg"]

_MAGIC: Final = 0x0F
_PACKET_VERSION: Final = 4
_SHORTEST: Final = 4
_RAW, _SNAPPY = 0, 1

BytesLike = bytes | bytearray | memoryview


def is_tdmsg(data: BytesLike) -> bool:
    """Return True if `data` starts and ends like a packed body; the rest is not checked."""
    view = memoryview(data)
    if view.nbytes < _SHORTEST:
        return False
    return _marked(bytes(view[:TRAILER_BYTES]), bytes(view[-TRAILER_BYTES:]))


def _marked(start: bytes, end: bytes) -> bool:
    return start == end and start[0] == _MAGIC and start[1] <= _PACKET_VERSION


def parse_tdmsg(
    data: BytesLike,
    *,
    strict: bool = True,
    max_bytes: int = DEFAULT_MAX_BYTES,
    keep_encrypted: bool = False,
) -> TDMsg:
    """Parse the packed body in `data`, checked to its last byte.

    `max_bytes` bounds the message and, separately, the sum of its payloads after decompression; the
    size is checked before anything is allocated for it. With `strict=False` these are tolerated:
    bytes before the trailer that belong to no block, a block count above the blocks present, other
    compression flags (read as snappy), and in version 4 another message type, total length or inner
    magic. A truncated or overlong record never is. `keep_encrypted` returns the body of an
    encrypted packet as one record, as it is.

    Raises `errors.UnreadableTDMsg` (a `ProtocolViolation`) with the byte offset, and
    `errors.MissingExtraError` for a compressed message without pyarrow.
    """
    message = data if isinstance(data, bytes) else bytes(memoryview(data))
    if len(message) > max_bytes:
        _refuse(f"message of {len(message)} bytes exceeds the {max_bytes} allowed", max_bytes)
    if len(message) < _SHORTEST:
        _refuse(f"{len(message)} bytes are too short for a packed body", len(message))
    if not _marked(message[:TRAILER_BYTES], message[:TRAILER_BYTES]):
        _refuse(f"no packed body begins with {message[:TRAILER_BYTES].hex(' ')}", 0)
    if message[-TRAILER_BYTES:] != message[:TRAILER_BYTES]:
        _refuse("the first two bytes are not repeated at the end", len(message) - TRAILER_BYTES)
    rules = Rules(strict=strict, keep_encrypted=keep_encrypted, bytes_left=max_bytes)
    cursor, version = Cursor(message), message[1]
    if version == _PACKET_VERSION:
        packet, block = _packet.read_packet(cursor, rules)
        created, declared = packet.data_time_s * 1000, packet.declared_count
        return TDMsg(version, created, declared, packet, (block,), _count((block,)))
    created_at = cursor.int64("create time") if version >= 1 else None
    claimed = cursor.int32("message count") if version >= 2 else None
    blocks = _read_blocks(cursor, version, rules)
    return TDMsg(version, created_at, claimed, None, blocks, _count(blocks))


def _refuse(what: str, offset: int) -> NoReturn:
    raise errors.UnreadableTDMsg(what, offset=offset)


def _count(blocks: tuple[Block, ...]) -> int:
    """Count the records in `blocks`; the walk that counts them also checks their lengths."""
    return sum(1 for block in blocks for _ in block.bounds())


def _read_blocks(cursor: Cursor, version: int, rules: Rules) -> tuple[Block, ...]:
    expected = cursor.int32("block count")
    if expected < 0:
        cursor.fail(f"block count is {expected}")
    blocks: list[Block] = []
    while len(blocks) < expected and (rules.strict or cursor.remaining):
        blocks.append(_read_block(cursor, version, rules))
    if rules.strict and cursor.remaining:
        cursor.fail(f"{cursor.remaining} bytes belong to none of the {expected} blocks")
    return tuple(blocks)


def _read_block(cursor: Cursor, version: int, rules: Rules) -> Block:
    attributes = cursor.take(cursor.uint16("attribute length"), "attributes")
    if version == 2:
        cursor.int32("record count of the block")
    size = cursor.int32("block length")
    if size < 1 or size > cursor.remaining:
        cursor.fail(f"block of {size} bytes where {cursor.remaining} are left")
    flag = cursor.take(1, "compression flag")[0]
    if rules.strict and flag not in {_RAW, _SNAPPY}:
        cursor.fail(f"unknown compression flag {flag}", at=cursor.position - 1)
    span = cursor.payload(size - 1, rules, compressed=flag != _RAW)
    return Block(attributes, Layout.RUNS if version == 3 else Layout.ITEMS, span)
