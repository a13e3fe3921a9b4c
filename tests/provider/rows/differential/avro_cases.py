"""Generator of Avro schemas, data and their encoding, valid or damaged, from a seed."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from random import Random
from typing import Any

__all__ = ["AvroCase", "avro_case"]

_LOGICALS = [
    *("date", "time-millis", "time-micros", "timestamp-millis", "timestamp-micros"),
    *("timestamp-nanos", "local-timestamp-millis", "local-timestamp-micros"),
    *("local-timestamp-nanos", "uuid", "duration", "decimal", "io.debezium.time.Date", "big"),
]
_RIGHT_BASES = {
    "date": "int", "time-millis": "int", "uuid": "string", "duration": "fixed", "decimal": "bytes",
}  # fmt: skip
_TEXTS = ["", "a", "é", "\U0001f600", "x" * 70, "\ufeff", "\0", '"', "a,b\n"]


@dataclass(frozen=True, slots=True)
class AvroCase:
    """Record schema and bodies."""

    schema: str
    bodies: list[bytes]


def avro_case(random: Random, bodies: int = 4) -> AvroCase:
    """Generate a schema with some bodies, about half of which are damaged."""
    maker = _Schemas(random)
    schema = maker.record(2)
    made = []
    for _ in range(bodies):
        body = encode(random, schema, maker.named)
        made.append(body if random.random() < 0.5 else damaged(random, body))
    return AvroCase(json.dumps(schema), made)


def zigzag(number: int) -> bytes:
    """Return the shortest encoding."""
    rest, made = (number << 1) ^ (number >> 63), bytearray()
    while rest > 127:
        made.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*made, rest])


def damaged(random: Random, body: bytes) -> bytes:
    """Damage the body, possibly without an effect."""
    where = random.randrange(len(body) + 1)
    kind = random.randrange(6)
    if kind == 0:
        return body[:where]
    if kind == 1:
        return body + random.randbytes(random.randrange(1, 3))
    if kind == 2:
        return (
            body[:where] + bytes([random.choice([0, 1, 2, 3, 127, 128, 255])]) + body[where + 1 :]
        )
    if kind == 3:
        return body[:where] + b"\x80" * random.randrange(1, 12) + body[where:]
    if kind == 4:
        return body[:where] + b"\xff" * random.randrange(1, 12) + body[where:]
    return body[:where] + random.randbytes(1) + body[where + 1 :]


class _Schemas:
    def __init__(self, random: Random) -> None:
        self._random = random
        self.named: dict[str, Any] = {}
        self._done: list[str] = []

    def _name(self) -> str:
        return f"N{len(self.named)}"

    def record(self, depth: int) -> dict[str, Any]:
        name = self._name()
        made: dict[str, Any] = {"type": "record", "name": name, "fields": []}
        self.named[name] = made
        made["fields"] = [
            {"name": f"f{i}", "type": self.type(depth)} for i in range(self._random.randrange(1, 5))
        ]
        self._done.append(name)
        return made

    def type(self, depth: int) -> Any:
        pick = self._random.random()
        if depth and pick < 0.08:
            return self.record(depth - 1)
        if depth and pick < 0.18:
            return {"type": "array", "items": self.type(depth - 1)}
        if depth and pick < 0.26:
            return {"type": "map", "values": self.type(depth - 1)}
        if pick < 0.45:
            return self._union(depth)
        if pick < 0.5 and self._done:
            return self._random.choice(self._done)
        if pick < 0.53 and len(self.named) > len(self._done):
            return ["null", next(name for name in self.named if name not in self._done)]
        return self._simple()

    def _union(self, depth: int) -> Any:
        kind = self._random.randrange(8)
        if kind == 0:
            return ["null", "int", "string"]
        inner = self.type(depth - 1 if depth else 0)
        if isinstance(inner, list):
            return inner
        if kind == 1:
            return [inner]
        return ["null", inner] if kind < 6 else [inner, "null"]

    def _simple(self) -> Any:
        kind = self._random.choice(
            ["boolean", "int", "long", "float", "double", "string", "bytes", "enum", "fixed"]
        )
        made: dict[str, Any] = {"type": kind}
        logical = None
        if self._random.random() < 0.4:
            logical = self._random.choice(_LOGICALS)
            if self._random.random() < 0.7:
                made["type"] = kind = _RIGHT_BASES.get(logical, "long")
                if logical in ("uuid", "decimal") and self._random.random() < 0.5:
                    made["type"] = kind = "fixed"
            made["logicalType"] = logical
        if logical == "decimal":
            made |= self._random.choice(
                [
                    {"precision": 5, "scale": 2},
                    {"precision": 38, "scale": 38},
                    {"precision": 10},
                    {"precision": 40, "scale": 2},
                    {"precision": 3, "scale": 5},
                    {"precision": 0},
                ]
            )
        if kind == "enum":
            made |= {
                "name": self._name(),
                "symbols": ["A", "B", "C"][: self._random.randrange(1, 4)],
            }
        if kind == "fixed":
            size = {"uuid": 16, "duration": 12}.get(logical or "", self._random.choice([1, 4, 16]))
            if self._random.random() < 0.1:
                size = 5
            made |= {"name": self._name(), "size": size}
        if kind in ("enum", "fixed"):
            self.named[made["name"]] = made
            self._done.append(made["name"])
        return made if len(made) > 1 or self._random.random() < 0.3 else kind


def encode(random: Random, schema: Any, named: dict[str, Any], deep: int = 0) -> bytes:
    """Encode a value of the type."""
    if isinstance(schema, list):
        index = random.randrange(len(schema))
        if deep > 8 and "null" in schema:
            index = schema.index("null")
        return zigzag(index) + encode(random, schema[index], named, deep + 1)
    if isinstance(schema, str):
        schema = named.get(schema, {"type": schema})
    kind = schema["type"]
    if kind == "record":
        parts = [encode(random, field["type"], named, deep + 1) for field in schema["fields"]]
        return b"".join(parts)
    if kind in ("array", "map"):
        return _blocks(random, schema, named, deep)
    return _plain(random, kind, schema)


def _blocks(random: Random, schema: Any, named: dict[str, Any], deep: int) -> bytes:
    made = b""
    for block in range(random.choice([0, 1, 1, 2]) if deep < 8 else 0):
        items = []
        for item in range(random.randrange(1, 3)):
            key = _text(f"k{block}{item}") if schema["type"] == "map" else b""
            inner = schema["values" if schema["type"] == "map" else "items"]
            items.append(key + encode(random, inner, named, deep + 1))
        data = b"".join(items)
        if random.random() < 0.3:
            made += zigzag(-len(items)) + zigzag(len(data)) + data
        else:
            made += zigzag(len(items)) + data
    return made + b"\0"


def _text(text: str) -> bytes:
    return zigzag(len(text.encode())) + text.encode()


def _plain(random: Random, kind: str, schema: Any) -> bytes:
    if kind == "boolean":
        return random.choice([b"\0", b"\1"])
    if kind in ("int", "long"):
        top = 2**31 if kind == "int" else 2**63
        near = [0, 1, -1, 63, 64, -65, 1_709_200, top - 1, -top, random.randrange(-top, top)]
        return zigzag(random.choice([*near, random.randrange(86_400_000)]))
    if kind == "float":
        return struct.pack("<f", random.choice([0.0, -0.0, 1.5, float("nan"), float("-inf")]))
    if kind == "double":
        return struct.pack("<d", random.choice([0.0, 0.1, 1e300, float("nan"), float("inf")]))
    if kind == "string":
        return _text(random.choice(_TEXTS))
    if kind == "bytes":
        data = random.randbytes(random.choice([0, 1, 2, 16, 17]))
        return zigzag(len(data)) + data
    if kind == "enum":
        return zigzag(random.randrange(len(schema["symbols"])))
    if kind == "null":
        return b""
    return random.randbytes(schema["size"])
