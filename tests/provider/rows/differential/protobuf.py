"""Protobuf: the product against an encoder that knows the values, and against protobuf's JSON.

Valid bodies are encoded here, byte by byte, from generated values, so the row is known. Damaged
ones are compared with protobuf's own JSON of the message that the runtime parses.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

from tests.provider.rows.decoded import decode

__all__ = ["run"]

_VARINTS = {
    "INT32": 32, "INT64": 64, "UINT32": 32, "UINT64": 64, "SINT32": 32, "SINT64": 64, "BOOL": 1,
}  # fmt: skip
_FIXED = {
    "FIXED32": "<I", "FIXED64": "<Q", "SFIXED32": "<i", "SFIXED64": "<q", "FLOAT": "<f",
    "DOUBLE": "<d",
}  # fmt: skip
_KINDS = [*_VARINTS, *_FIXED, "STRING", "BYTES", "ENUM", "MESSAGE", "TIMESTAMP", "GROUP", "MAP"]
_TIMES = [(0, 0), (1_795_314_366, 123_456_000), (-1, 999_999_000), (253_402_300_799, 0), (5, 7)]


class _Schemas:
    """File with messages, as descriptors and as input of the encoder."""

    def __init__(self, random: Random) -> None:
        from google.protobuf import descriptor_pb2 as pb

        self.random = random
        self.proto2 = random.random() < 0.5
        syntax = "proto2" if self.proto2 else "proto3"
        self.file = pb.FileDescriptorProto(name="x.proto", package="x", syntax=syntax)
        self.file.dependency.append("google/protobuf/timestamp.proto")
        color = self.file.enum_type.add(name="Color")
        for number, name in enumerate(("RED", "GREEN", "BLUE")):
            color.value.add(name=name, number=number)
        self.count = 0
        self.root = self._message(2)

    def _message(self, depth: int, parent: Any = None) -> tuple[str, list[Any]]:
        name = f"M{self.count}"
        self.count += 1
        made = (self.file.message_type if parent is None else parent.nested_type).add(name=name)
        fields = []
        for number in self.random.sample(range(1, 40), self.random.randrange(1, 5)):
            kind = self.random.choice(_KINDS)
            if kind in ("MESSAGE", "GROUP") and (
                not depth or (kind == "GROUP" and not self.proto2)
            ):
                kind = "INT32"
            label = self.random.choice(["OPTIONAL", "OPTIONAL", "REPEATED"])
            if kind == "MAP":
                label = "REPEATED"
            elif self.proto2 and label == "OPTIONAL" and self.random.random() < 0.15:
                label = "REQUIRED"
            fields.append(self._field(made, number, kind, label, depth, name))
        return f"x.{name}" if parent is None else name, fields

    def _field(self, made: Any, number: int, kind: str, label: str, depth: int, outer: str) -> Any:
        name = f"f{number}"
        item = made.field.add(name=name, number=number, label=f"LABEL_{label}")
        inner: Any = None
        if kind == "MESSAGE":
            item.type_name, inner = "." + (found := self._message(depth - 1))[0], found[1]
        elif kind == "TIMESTAMP":
            item.type_name = ".google.protobuf.Timestamp"
        elif kind == "ENUM":
            item.type_name = ".x.Color"
        elif kind == "GROUP":
            found = self._message(0)
            item.type_name, inner = f".{found[0]}", found[1]
        elif kind == "MAP":
            entry = made.nested_type.add(name=f"F{number}Entry")
            entry.options.map_entry = True
            key = self.random.choice(["STRING", "INT32", "SINT64", "FIXED32"])
            inner = (key, self.random.choice([*_VARINTS, *_FIXED, "STRING", "BYTES"]))
            for place, type_ in enumerate(inner, start=1):
                entry.field.add(
                    name=("key", "value")[place - 1], number=place, type=f"TYPE_{type_}",
                    label="LABEL_OPTIONAL",
                )  # fmt: skip
            item.type_name = f".x.{outer}.F{number}Entry"
        item.type = "TYPE_" + {"TIMESTAMP": "MESSAGE", "MAP": "MESSAGE"}.get(kind, kind)
        explicit = False
        if not self.proto2 and label == "OPTIONAL" and kind not in ("MESSAGE", "TIMESTAMP"):
            explicit = self.random.random() < 0.3
            if explicit:
                item.proto3_optional = True
                item.oneof_index = len(made.oneof_decl)
                made.oneof_decl.add(name=f"_{name}")
        return name, number, kind, label, inner, explicit

    def descriptor(self) -> str:
        """Return the descriptor set, in base64."""
        from google.protobuf import descriptor_pb2 as pb
        from google.protobuf import timestamp_pb2

        known = pb.FileDescriptorProto()
        timestamp_pb2.DESCRIPTOR.CopyToProto(known)
        files = pb.FileDescriptorSet(file=[known, self.file])
        return base64.b64encode(files.SerializeToString()).decode()


def varint(number: int) -> bytes:
    """Return the shortest encoding of a number of 64 bits."""
    number &= 2**64 - 1
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])


def scalar(random: Random, kind: str) -> tuple[Any, bytes, int]:
    """Return a value as its column has it, its bytes and their wire type."""
    if kind in _VARINTS:
        bits = _VARINTS[kind]
        signed = not kind.startswith("U") and bits > 1
        top = 2 ** (bits - 1) if signed else 2**bits
        number = random.choice([0, 1, top - 1, -top if signed else 0, random.randrange(top)])
        data = varint((number << 1) ^ (number >> 63) if kind.startswith("SINT") else number)
        value: Any = bool(number) if kind == "BOOL" else number
        return (Decimal(number) if kind == "UINT64" else value), data, 0
    if kind in _FIXED:
        form = _FIXED[kind]
        if kind in ("FLOAT", "DOUBLE"):
            made: Any = random.choice([0.0, 1.5, -2.25, math.inf, math.nan])
        else:
            top = 2 ** (struct.calcsize(form) * 8 - (form[1].islower()))
            made = random.choice([0, 1, top - 1])
        data = struct.pack(form, made)
        return (Decimal(made) if kind == "FIXED64" else made), data, 5 if len(data) == 4 else 1
    if kind == "STRING":
        text = random.choice(["", "a", "é", "\U0001f600", "x" * 200])
        return text, varint(len(text.encode())) + text.encode(), 2
    if kind == "BYTES":
        data = random.randbytes(random.randrange(4))
        return data, varint(len(data)) + data, 2
    number = random.randrange(3)
    return ("RED", "GREEN", "BLUE")[number], varint(number), 0


class _BadRowError(Exception):
    """Message that must be refused."""


def message(random: Random, fields: list[Any], proto2: bool) -> tuple[dict[str, Any], bytes, bool]:
    """Return the row, the bytes, and whether it is valid."""
    row: dict[str, Any] = {}
    parts: list[bytes] = []
    sound = True
    for name, number, kind, label, inner, explicit in fields:
        if label == "REPEATED":
            row[name], made, ok = _repeated(random, number, kind, inner, proto2)
        elif random.random() < 0.3:
            presence = proto2 or explicit or kind in ("MESSAGE", "TIMESTAMP", "GROUP")
            row[name], made, ok = None if presence else _default(kind), b"", label != "REQUIRED"
        else:
            row[name], made, ok = _one(random, number, kind, inner, proto2)
            if random.random() < 0.1 and kind not in ("MESSAGE", "GROUP", "TIMESTAMP"):
                row[name], more, _ = _one(random, number, kind, inner, proto2)
                made += more  # the last one counts
        sound &= ok
        parts.append(made)
    if random.random() < 0.2:
        parts.append(varint(100 << 3 | 2) + b"\x03abc")  # an unknown field
    random.shuffle(parts)
    return row, b"".join(parts), sound


def _default(kind: str) -> Any:
    if kind in ("UINT64", "FIXED64"):
        return Decimal(0)
    return {
        "STRING": "",
        "BYTES": b"",
        "ENUM": "RED",
        "BOOL": False,
        "FLOAT": 0.0,
        "DOUBLE": 0.0,
    }.get(kind, 0)


def _one(
    random: Random, number: int, kind: str, inner: Any, proto2: bool
) -> tuple[Any, bytes, bool]:
    if kind == "MESSAGE":
        row, data, ok = message(random, inner, proto2)
        return row, varint(number << 3 | 2) + varint(len(data)) + data, ok
    if kind == "GROUP":
        row, data, ok = message(random, inner, proto2)
        return row, varint(number << 3 | 3) + data + varint(number << 3 | 4), ok
    if kind == "TIMESTAMP":
        seconds, nanos = random.choice(_TIMES)
        data = b"\x08" + varint(seconds) + b"\x10" + varint(nanos)
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(
            seconds=seconds, microseconds=nanos // 1000
        )
        return at, varint(number << 3 | 2) + varint(len(data)) + data, nanos % 1000 == 0
    value, data, wire = scalar(random, kind)
    return value, varint(number << 3 | wire) + data, True


def _repeated(
    random: Random, number: int, kind: str, inner: Any, proto2: bool
) -> tuple[Any, bytes, bool]:
    count = random.randrange(3)
    if kind == "MAP":
        found, made = {}, b""
        for _ in range(count):
            key, key_data, key_wire = scalar(random, inner[0])
            value, data, wire = scalar(random, inner[1])
            entry = varint(8 | key_wire) + key_data + varint(16 | wire) + data
            made += varint(number << 3 | 2) + varint(len(entry)) + entry
            found[key] = value
        return found, made, True
    if kind in (*_VARINTS, *_FIXED, "ENUM") and random.random() < 0.5:  # packed
        cells = [scalar(random, kind) for _ in range(count)]
        data = b"".join(cell[1] for cell in cells)
        made = varint(number << 3 | 2) + varint(len(data)) + data if count else b""
        return [cell[0] for cell in cells], made, True
    ones = [_one(random, number, kind, inner, proto2) for _ in range(count)]
    return [one[0] for one in ones], b"".join(one[1] for one in ones), all(o[2] for o in ones)


def same(ours: Any, other: Any) -> bool:
    """Compare at any depth; NaN equals itself, a map has no order."""
    if isinstance(other, dict):
        found = dict(ours) if isinstance(ours, (dict, list)) else {}
        return found.keys() == other.keys() and all(same(found[k], other[k]) for k in other)
    if isinstance(ours, list) and isinstance(other, list):
        return len(ours) == len(other) and all(map(same, ours, other))
    if isinstance(ours, float) and isinstance(other, float) and math.isnan(ours):
        return math.isnan(other)
    return bool(ours == other) and isinstance(ours, bool) == isinstance(other, bool)


def run(inputs: int, seed: int, jars: Path | None) -> tuple[int, list[str]]:
    """Compare `inputs` bodies; `jars` are not used."""
    random, problems, count = Random(seed), [], 0
    while count < inputs:
        made = _Schemas(random)
        name, fields = made.root
        spec = {"format": "protobuf", "message": name, "descriptor": made.descriptor()}
        cases = [message(random, fields, made.proto2) for _ in range(20)]
        rows, bad = decode(spec, [case[1] for case in cases])
        reasons = {entry.position: entry.reason for entry in bad}
        ours = {row["offset"] // 28: row for row in rows}
        for place, (wanted, body, sound) in enumerate(cases):
            found = ours.get(place)
            row = found and {n: v for n, v in found.items() if n != "offset"}
            if (row is not None) != sound or (row is not None and not same(row, wanted)):
                problems.append(f"{body.hex()}\n  {reasons.get(place, row)}\n  {wanted} {sound}")
        damaged = [_damaged(random, case[1]) for case in cases]
        problems += _differences(spec, damaged)
        count += 2 * len(cases)
    return count, problems


def _damaged(random: Random, body: bytes) -> bytes:
    where = random.randrange(len(body) + 1)
    return random.choice(
        [body[:where], body[:where] + random.randbytes(1) + body[where + 1 :], body + b"\x08"]
    )


def _differences(spec: dict[str, Any], bodies: list[bytes]) -> list[str]:
    """Return differences between rows and protobuf's JSON, field by field where both exist."""
    from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
    from google.protobuf.message import Error

    pool = descriptor_pool.DescriptorPool()
    files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(spec["descriptor"]))
    for file in files.file:
        pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(spec["message"]))
    rows, _ = decode(spec, bodies)
    problems = []
    read = {row["offset"] // 28: row for row in rows}
    for place, body in enumerate(bodies):
        try:
            parsed = kind.FromString(body)
            said = json_format.MessageToDict(parsed, preserving_proto_field_name=True)
        except (Error, json_format.Error, ValueError):
            said = None
        row = read.get(place)
        if row is None:
            continue
        if said is None:
            problems.append(f"read, and protobuf's JSON refuses it: {body.hex()}\n  {row}")
            continue
        for name, value in said.items():
            if isinstance(value, (bool, str, int)) and not _agrees(row[name], value):
                problems.append(f"{name}: {body.hex()}\n  {row[name]!r}\n  {value!r}")
    return problems


def _agrees(ours: Any, said: Any) -> bool:
    """Compare with the form that JSON has for the value."""
    if isinstance(ours, bytes):
        return bool(base64.b64encode(ours).decode() == said)
    if isinstance(ours, datetime):
        return ours == datetime.fromisoformat(said[:26].rstrip("Z")).replace(tzinfo=UTC)
    if isinstance(ours, float):
        return bool(math.isnan(ours) if said == "NaN" else ours == float(said))
    if isinstance(ours, (int, Decimal)) and not isinstance(ours, bool):
        return int(ours) == int(said)
    if isinstance(ours, str) and isinstance(said, int):
        return ours == str(said)  # an enum's number without a name
    return ours == said or json.dumps(ours) == json.dumps(said)
