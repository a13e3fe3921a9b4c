"""Fetch replies that a producer, a newer broker or a broken one could cause.

`Choices` is the source of randomness: Hypothesis draws where failures should shrink, `random` where
a million replies are needed. Records are written by hand, field by field, so that they can be
wrong.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

from tubemq_client._wire.payload import checksum

T = TypeVar("T")

DELIVERING = b"\x08\x01\x10\xc8\x01"


class Choices(Protocol):
    """Source of random choices."""

    def integer(self, low: int, high: int) -> int: ...

    def choice(self, items: Sequence[T]) -> T: ...

    def some_bytes(self, most: int) -> bytes: ...


class RandomChoices:
    """Choices by `random`."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def choice(self, items: Sequence[T]) -> T:
        return items[int(self._random.random() * len(items))]

    def some_bytes(self, most: int) -> bytes:
        return self._random.randbytes(self._random.randint(0, most))


PIECES = [
    *(b",", b"=", b"$msgType$", b"$msgTime$", b"$msgType$=stream", b"$msgTime$=202611211200"),
    *(
        b"k=v",
        b"k=w",
        b"key=",
        b"=value",
        b"a=b=c",
        b" ",
        b"\x1c",
        b"\x1f",
        b"\xc2\x85",
        b"\xc2\xa0",
    ),
    *(
        b"\xe2\x80\x83",
        b"\xe3\x80\x80",
        b"$msgT",
        b"$",
        b"20261121",
        b"000101010000",
        b"999912312359",
    ),
    *(b"202602290000", b"\xff", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\xc0\xaf", b"\xf4\x90\x80\x80"),
    *(b"other", "é=ü".encode(), "٢٠٢٦".encode(), b"\0", b"1", b"k1=1,k2=2,k3=3"),
]
USUAL = [
    b"$msgType$=stream,$msgTime$=202611211200",
    b"$msgType$=stream,$msgTime$=202611211200,id=1",
    b"$msgType$=other,$msgTime$=202611211201,id=2,at=3",
    b"id=4",
    b"dt=1,cnt=2",
]


def attribute_text(chance: Choices) -> bytes:
    kind = chance.integer(0, 5)
    if kind < 2:
        return chance.choice(USUAL)
    if kind == 2:
        many = chance.choice([1, 15, 16, 17, 40])
        return b",".join(b"k%d=%d" % (chance.integer(0, many), i) for i in range(many + 1))
    return b"".join(
        chance.choice(PIECES) if chance.integer(0, 5) else chance.some_bytes(4)
        for _ in range(chance.integer(0, 8))
    )


def varint(value: int, longer: int = 0) -> bytes:
    """Encode in two's complement of 64 bits; `longer` adds redundant bytes."""
    value &= (1 << 64) - 1
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    for _ in range(longer):
        encoded[-1] |= 0x80
        encoded.append(0)
    return bytes(encoded)


def number(chance: Choices, field: int, value: int) -> bytes:
    longer = 0 if chance.integer(0, 40) else chance.integer(1, 9)
    return varint(field << 3) + varint(value, longer)


def piece(field: int, content: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content


def unknown(chance: Choices) -> bytes:
    """Return a field of a newer protocol, or of no protocol."""
    field = chance.choice([0, 1, 3, 4, 5, 11, 19, 1000, 1 << 28])
    kind = chance.integer(0, 7)
    content = {
        0: varint(chance.integer(0, 1 << 40)),
        1: bytes(8),
        2: varint(3) + b"abc",
        3: varint(field << 3 | 4),
        5: bytes(4),
    }.get(kind, b"")
    return varint(field << 3 | kind) + content


def record(chance: Choices) -> bytes:
    body = chance.some_bytes(12)
    flag = chance.choice([0, 0, 1, 1, 1, 2, 3, -1, 1 << 31])
    data = body
    if flag & 1:
        text = attribute_text(chance)
        data = len(text).to_bytes(4, "big") + text + body
        if not chance.integer(0, 30):
            data = chance.choice([b"", b"\xff\xff\xff\xff", b"\0\0\0\x7f", b"\0\0", b"\0\0\0\0"])
    crc = checksum(data)
    if not chance.integer(0, 30):
        crc = chance.choice([crc ^ 1, crc | 1 << 31, crc + (1 << 32), 0])
    fields = [
        number(chance, 1, chance.choice([1, -1, 1 << 62, -(1 << 63), 1_795_314_366_339_874])),
        number(chance, 2, crc),
        piece(3, data),
        number(chance, 4, flag),
    ]
    return spoiled(chance, fields)


def spoiled(chance: Choices, fields: list[bytes]) -> bytes:
    """Return the fields as a message, at times reordered, with one missing, doubled or unknown."""
    if chance.integer(0, 12) == 0:
        change, at = chance.integer(0, 3), chance.integer(0, len(fields) - 1)
        if change == 0:
            fields.append(fields.pop(at))
        elif change == 1:
            fields.pop(at)
        elif change == 2:
            fields.append(fields[at])
        else:
            fields.insert(at, unknown(chance))
    return b"".join(fields)


def reply(chance: Choices, most: int = 6) -> bytes:
    """Return a reply that begins like one with records, most of them intact."""
    records = [piece(4, record(chance)) for _ in range(chance.integer(0, most))]
    if records and not chance.integer(0, 3):
        records += [chance.choice(records)] * 2
    tail = [
        piece(3, chance.choice([b"OK!", b"", b"\xff"]) if not chance.integer(0, 9) else b"OK!"),
        number(chance, 5, chance.choice([0, 2_800, 1 << 50])),
        number(chance, 10, 1 << 60),
    ]
    data = DELIVERING + spoiled(chance, [*records, *tail])
    if chance.integer(0, 15) == 0:
        at = chance.integer(0, len(data) - 1)
        data = chance.choice(
            [
                data[:at],
                data[:at] + bytes([chance.integer(0, 255)]) + data[at + 1 :],
                data[:at] + chance.some_bytes(6) + data[at:],
                data[:at] + data[at + 1 :],
                data + number(chance, 1, 0),
                DELIVERING + chance.some_bytes(40),
            ]
        )
    return data
