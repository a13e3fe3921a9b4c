"""Packed bodies composed by hand, right or wrong: independent of the builders."""

from __future__ import annotations

import struct

CREATED = 1_700_000_000_000
A = bytes.fromhex("0f010000018bcfe568000000000100036d3d30000000060000000001610f01")


def sized(*parts: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(part)) + part for part in parts)


def block(
    payload: bytes = b"\0\0\0\1a",
    *,
    attributes: bytes = b"m=0",
    flag: int = 0,
    count: int | None = None,
    length: int | None = None,
) -> bytes:
    """One block; `length` lies about its length, `count` is version 2's."""
    counted = b"" if count is None else struct.pack(">i", count)
    length = len(payload) + 1 if length is None else length
    return b"".join(
        (
            *(struct.pack(">H", len(attributes)), attributes, counted),
            *(struct.pack(">i", length), bytes((flag,)), payload),
        )
    )


def message(
    *blocks: bytes, version: int = 1, count: int | None = None, declared: int = 1, tail: bytes = b""
) -> bytes:
    """Versions 0 to 3; `count` is a wrong number of blocks, `tail` precedes the trailer."""
    magic = bytes((0x0F, version))
    created = struct.pack(">q", CREATED) if version else b""
    claimed = struct.pack(">i", declared) if version >= 2 else b""
    number = struct.pack(">i", len(blocks) if count is None else count)
    return b"".join((magic, created, claimed, number, *blocks, tail, magic))


def packet(
    body: bytes = b"\0\0\0\1a",
    *,
    attributes: bytes = b"rt=1",
    kind: int = 7,
    ids: tuple[int, int] = (10, 20),
    extension: int = 0,
    time_s: int = CREATED // 1000,
    count: int = 3,
    off_total: int = 0,
    off_body: int = 0,
    attribute_bytes: int | None = None,
    magic: bytes = b"\xee\x01",
) -> bytes:
    """Version 4; the `off_…` are added to a length, `attribute_bytes` replaces one."""
    size = len(attributes) if attribute_bytes is None else attribute_bytes
    head = struct.pack(">BHHHIHI", kind, *ids, extension, time_s, count, 9)
    stored = struct.pack(">i", len(body) + off_body) + body
    rest = head + stored + struct.pack(">H", size) + attributes + magic
    return b"".join((b"\x0f\x04", struct.pack(">i", len(rest) + off_total), rest, b"\x0f\x04"))
