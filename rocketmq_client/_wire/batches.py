"""Batches: several records in one send, and inner batches, which are stored as they were sent.

An element is ``size, magic 0, checksum 0, flag, body, properties`` (upstream's
`MessageDecoder.encodeMessages`). Brokers store a batch as ordinary records with consecutive
offsets, except on topics with `queue.type=BatchCQ`, where it stays one record.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from rocketmq_client import errors

__all__ = ["MAX_INNER_RECORDS", "BatchElement", "decode_batch", "encode_batch"]

MAX_INNER_RECORDS: Final = 32_767
"""Limit of records in one inner batch: a broker's index counts them in 16 bits
(`BatchConsumeQueue.java`)."""

_HEAD = struct.Struct(">iiiii")


class BatchElement(NamedTuple):
    """Record of a batch; `properties` as on the wire."""

    flag: int
    body: bytes
    properties: bytes


def encode_batch(elements: Iterable[BatchElement]) -> bytes:
    """Return the body of a batch send. Raises `ValueError` for more than 32 767 bytes of
    properties."""
    return b"".join(map(_encode, elements))


def _encode(element: BatchElement) -> bytes:
    flag, body, properties = element
    if len(properties) > 32_767:
        raise ValueError(f"{len(properties)} bytes of properties; at most 32767 fit")
    size = _HEAD.size + len(body) + 2 + len(properties)
    head = _HEAD.pack(size, 0, 0, flag, len(body))
    return b"".join((head, body, len(properties).to_bytes(2, "big"), properties))


def decode_batch(data: bytes, most: int | None = None) -> list[BatchElement]:
    """Return the records of a batch, at most `most`. Raises `errors.ProtocolViolation` for more,
    and when sizes do not add up."""
    elements: list[BatchElement] = []
    pos = 0
    while pos < len(data):
        if len(elements) == most:
            raise errors.ProtocolViolation(f"a batch has more than {most} records")
        if pos + _HEAD.size > len(data):
            raise errors.ProtocolViolation("a batch is cut short")
        size, _, _, flag, length = _HEAD.unpack_from(data, pos)
        start = pos + _HEAD.size
        stop = start + length
        properties = data[stop + 2 : stop + 2 + int.from_bytes(data[stop : stop + 2], "big")]
        if length < 0 or stop + 2 + len(properties) != pos + size or pos + size > len(data):
            raise errors.ProtocolViolation(f"a batch element of {size} bytes does not add up")
        elements.append(BatchElement(flag, data[start:stop], properties))
        pos += size
    return elements
