"""CPU time of decoding bodies into typed rows, by format: `python -m tools.benchmarks.rows`.

Bodies in memory, through `RowDecoder` as engines call it; the least time of all passes counts.
"""

from __future__ import annotations

import argparse
import json
import struct
import time
from typing import Any

import pyarrow as pa

from tubemq_client.model import CorruptRecords
from tubemq_provider.rows.decoding import BadRecords, RowDecoder
from tubemq_provider.rows.spec import DecodeSpec
from tubemq_provider.sources.tubemq.columns import RECORDS

__all__ = ["main"]

COUNT = 2_000
"""Records of a batch, about a broker's reply."""

DDL = "id bigint, name string, price decimal(12,2), rate double, at timestamp, kind int"


def main() -> int:
    """Parse options, decode every kind of body, print lines."""
    parser = argparse.ArgumentParser(prog="python -m tools.benchmarks.rows", description=__doc__)
    parser.add_argument("--passes", type=int, default=15, help="batches decoded of a kind (15)")
    parser.add_argument("--only", help="kinds whose name contains this text")
    options = parser.parse_args()
    for name, (spec, bodies) in kinds().items():
        if options.only and options.only not in name:
            continue
        decoder = RowDecoder(DecodeSpec.parse(spec), RECORDS)
        batch = _batch(bodies, decoder.read_schema)
        best = float("inf")
        for _ in range(options.passes):
            began = time.process_time_ns()
            rows = decoder.rows(batch, BadRecords(CorruptRecords.FAIL))
            best = min(best, (time.process_time_ns() - began) / COUNT / 1000)
            if rows.num_rows != COUNT:
                raise SystemExit("records are missing")
        print(f"{name:20} {best:7.3f} us of CPU a record", flush=True)
    return 0


def _batch(bodies: list[bytes], schema: pa.Schema) -> pa.RecordBatch:
    count = len(bodies)
    columns = {
        "topic": ["demo"] * count,
        "partition": ["1:0"] * count,
        "offset": [28 * i for i in range(count)],
        "batch_offset": [0] * count,
        "message_id": list(range(count)),
        "msg_time": [None] * count,
        "stream_id": [None] * count,
        "attributes": [None] * count,
        "value": bodies,
    }
    return pa.RecordBatch.from_pydict(columns, RECORDS.arrow_schema()).select(schema.names)


def kinds() -> dict[str, tuple[Any, list[bytes]]]:
    """Return a spec and bodies of each kind."""
    json_bodies = [
        json.dumps(
            {
                "id": i * 1001,
                "name": f"name of {i}",
                "price": f"{i}.25",
                "rate": i / 7,
                "at": "2026-11-21T08:15:00.125Z",
                "kind": i % 9,
            }
        ).encode()
        for i in range(COUNT)
    ]
    csv_bodies = [
        f"{i * 1001},name of {i},{i}.25,{i / 7},2026-11-21T08:15:00.125,{i % 9}".encode()
        for i in range(COUNT)
    ]
    quoted = [
        f'{i * 1001},"name, of {i}",{i}.25,{i / 7},2026-11-21T08:15:00.125,{i % 9}'.encode()
        for i in range(COUNT)
    ]
    return {
        "json": ({"format": "json", "schema": DDL}, json_bodies),
        "csv": ({"format": "csv", "schema": DDL}, csv_bodies),
        "csv quoted": ({"format": "csv", "schema": DDL}, quoted),
        "avro flat": ({"format": "avro", "schema": json.dumps(_AVRO)}, _avro_flat()),
        "avro nested": ({"format": "avro", "schema": json.dumps(_NESTED)}, _avro_nested()),
        "protobuf": (
            {"format": "protobuf", "message": "demo.Order", "descriptor": _descriptor()},
            [_message(i) for i in range(COUNT)],
        ),
    }


_AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
        },
        {"name": "rate", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B", "C"]}},
    ],
}
_NESTED = {
    "type": "record",
    "name": "Basket",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "numbers", "type": {"type": "array", "items": "int"}},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [
                        {"name": "sku", "type": "string"},
                        {"name": "n", "type": ["null", "int"]},
                    ],
                },
            },
        },
    ],
}


def _zigzag(number: int) -> bytes:
    rest, encoded = (number << 1) ^ (number >> 63), bytearray()
    while rest > 127:
        encoded.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*encoded, rest])


def _text(text: str) -> bytes:
    return _zigzag(len(text)) + text.encode()


def _avro_flat() -> list[bytes]:
    return [
        _zigzag(i * 1001)
        + b"\x02"
        + _text(f"name of {i}")
        + b"\x08"
        + (i * 100 + 25).to_bytes(4, "big")
        + struct.pack("<d", i / 7)
        + _zigzag(1_795_314_366_339 + i)
        + _zigzag(i % 3)
        for i in range(COUNT)
    ]


def _avro_nested() -> list[bytes]:
    line = _text("sku-1") + b"\x02\x0a"
    return [
        _zigzag(i)
        + _zigzag(20)
        + b"".join(_zigzag(i * k) for k in range(20))
        + b"\0"
        + _zigzag(2)
        + _text("a")
        + _text("x")
        + _text("b")
        + _text("y")
        + b"\0"
        + _zigzag(5)
        + line * 5
        + b"\0"
        for i in range(COUNT)
    ]


def _descriptor() -> str:
    import base64

    from google.protobuf import descriptor_pb2 as pb

    file = pb.FileDescriptorProto(name="demo.proto", package="demo", syntax="proto3")
    order = file.message_type.add(name="Order")
    for number, (name, type_) in enumerate(
        {
            "id": "TYPE_INT64",
            "name": "TYPE_STRING",
            "rate": "TYPE_DOUBLE",
            "kind": "TYPE_INT32",
        }.items(),
        start=1,
    ):
        order.field.add(name=name, number=number, type=type_, label="LABEL_OPTIONAL")
    order.field.add(name="tags", number=5, type="TYPE_STRING", label="LABEL_REPEATED")
    return base64.b64encode(pb.FileDescriptorSet(file=[file]).SerializeToString()).decode()


def _message(i: int) -> bytes:
    name = f"name of {i}".encode()
    return (
        b"\x08" + bytes([i % 127 + 1]) + b"\x12" + bytes([len(name)]) + name
        + b"\x19" + struct.pack("<d", i / 7) + b"\x20" + bytes([i % 9 + 1]) + b"\x2a\x01a\x2a\x01b"
    )  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
