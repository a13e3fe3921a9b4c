"""CPU time of decoding bodies into typed rows beside libraries: `python -m tools.benchmarks.rows`.

Bodies in memory, through `RowDecoder` as engines call it, in turns with the same bodies through a
library alone; the least time of all passes counts. `TUBEMQ_NATIVE=0` measures the Python decoders.
polars is a twin where it is installed. The same records in batches of 200 show what a batch costs:
engines decode small batches together, and so does this program.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tubemq_client.model import CorruptRecords
from tubemq_client.tdmsg import TDMsgBuilder
from tubemq_provider.rows.decoding import BadRecords, RowDecoder
from tubemq_provider.rows.spec import DecodeSpec
from tubemq_provider.sources.tubemq.columns import RECORDS

__all__ = ["main"]

SMALL = 200
TYPES = ("bigint", "string", "double", "timestamp", "int")
"""Types of the columns, in turns."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Bodies of one format, the spec that decodes them, and twins that read the same bodies."""

    name: str
    spec: dict[str, Any]
    bodies: list[bytes]
    twins: dict[str, Callable[[list[bytes]], Any]]
    rows: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Records as a client has fetched them."""

    records: pa.RecordBatch
    nbytes: int

    def to_arrow(self, schema: pa.Schema) -> pa.RecordBatch:
        """Return the records with `schema`."""
        return self.records.select(schema.names)


def main() -> int:
    """Parse options, decode every kind of body, print lines."""
    parser = argparse.ArgumentParser(prog="python -m tools.benchmarks.rows", description=__doc__)
    parser.add_argument("--passes", type=int, default=5, help="turns of each kind (5)")
    parser.add_argument("--records", type=int, default=20_000, help="records of a kind (20000)")
    parser.add_argument("--only", help="kinds whose name contains this text")
    options = parser.parse_args()
    for kind in kinds(options.records):
        if options.only and options.only not in kind.name:
            continue
        print(line(kind, options.passes), flush=True)
    return 0


def line(kind: Kind, passes: int) -> str:
    """Measure in turns; return the microseconds of CPU a row, and the ratios."""
    decoder = RowDecoder(DecodeSpec.parse(kind.spec), RECORDS)
    whole = batches(kind.bodies, len(kind.bodies))
    small = batches(kind.bodies, SMALL)
    runs: dict[str, Callable[[], Any]] = {
        "ours": lambda: decode(decoder, whole),
        f"in batches of {SMALL}": lambda: decode(decoder, small),
        **{name: lambda twin=twin: twin(kind.bodies) for name, twin in kind.twins.items()},
    }
    least = dict.fromkeys(runs, float("inf"))
    for _ in range(passes):
        for name, run in runs.items():
            began = time.process_time_ns()
            run()
            spent = (time.process_time_ns() - began) / kind.rows / 1000
            least[name] = min(least[name], spent)
    if decode(decoder, small) != kind.rows:
        raise SystemExit(f"{kind.name}: records are missing")
    ours, *others = least.items()
    size = sum(map(len, kind.bodies)) // kind.rows
    ratios = ", ".join(f"{name} {spent:.3f} ({ours[1] / spent:.2f})" for name, spent in others)
    return f"{kind.name:12} {size:5} B  ours {ours[1]:.3f} us of CPU a row; ours ÷ {ratios}"


def decode(decoder: RowDecoder, fetched: list[Batch]) -> int:
    """Return the number of rows."""
    bad_records = BadRecords(CorruptRecords.FAIL)
    return sum(decoder.rows_of(group, bad_records)[0].num_rows for group in decoder.groups(fetched))


def batches(bodies: list[bytes], size: int) -> list[Batch]:
    """Cut `bodies` into fetched batches."""
    return [_batch(bodies[start : start + size]) for start in range(0, len(bodies), size)]


def _batch(bodies: list[bytes]) -> Batch:
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
    records = pa.RecordBatch.from_pydict(columns, RECORDS.arrow_schema())
    return Batch(records, sum(map(len, bodies)))


def kinds(records: int) -> Iterator[Kind]:
    """Yield the kinds with 10 and with 40 columns, and packs of 100 records."""
    for width in (10, 40):
        names = [f"column_{i}" for i in range(width)]
        types = [TYPES[i % len(TYPES)] for i in range(width)]
        values = [
            [_value(kind, i * width + k) for k, kind in enumerate(types)] for i in range(records)
        ]
        yield from _kinds(f"{width}", names, types, values)
    bodies = []
    for start in range(0, records, 100):
        builder = TDMsgBuilder()
        for i in range(start, start + 100):
            builder.add("groupId=g&streamId=s&dt=1795314366339", f"{i},a body of {i}".encode())
        bodies.append(builder.build(1_795_314_366_339))
    yield Kind("tdmsg", {"format": "tdmsg"}, bodies, {}, len(bodies) * 100)


def _kinds(
    width: str, names: list[str], types: list[str], values: list[list[Any]]
) -> Iterator[Kind]:
    ddl = ", ".join(f"{name} {kind}" for name, kind in zip(names, types, strict=True))
    count = len(values)
    bodies = [
        json.dumps(dict(zip(names, map(_written, row), strict=True))).encode() for row in values
    ]
    schema = RowDecoder(DecodeSpec.parse({"format": "json", "schema": ddl}), RECORDS).schema
    schema = pa.schema([schema.field(name) for name in names])
    twins = {"pyarrow.json": lambda some: _pyarrow_json(some, schema)} | _polars(schema)
    yield Kind(f"json {width}", {"format": "json", "schema": ddl}, bodies, twins, count)
    bodies = [",".join(str(_written(cell)) for cell in row).encode() for row in values]
    twins = {"pyarrow.csv": lambda some: _pyarrow_csv(some, schema)}
    yield Kind(f"csv {width}", {"format": "csv", "schema": ddl}, bodies, twins, count)
    yield _avro(width, names, types, values)
    yield _protobuf(width, names, types, values)


def _value(kind: str, number: int) -> Any:
    return {
        "bigint": number * 1001,
        "string": f"name of {number}",
        "double": number / 7,
        "timestamp": 1_795_314_366_339_000 + number,
        "int": number % 997,
    }[kind]


def _written(cell: Any) -> Any:
    """Return the form of a value in texts; large numbers are times."""
    if isinstance(cell, int) and cell > 10**15:
        return pa.scalar(cell, pa.timestamp("us")).as_py().isoformat(timespec="microseconds") + "Z"
    return cell


def _pyarrow_json(bodies: list[bytes], schema: pa.Schema) -> Any:
    from pyarrow import json as reader

    data = b"\n".join(bodies)
    return reader.read_json(
        io.BytesIO(data),
        read_options=reader.ReadOptions(use_threads=False, block_size=len(data) + 1),
        parse_options=reader.ParseOptions(explicit_schema=schema),
    )


def _pyarrow_csv(bodies: list[bytes], schema: pa.Schema) -> Any:
    from pyarrow import csv as reader

    data = b"\n".join(bodies)
    return reader.read_csv(
        io.BytesIO(data),
        read_options=reader.ReadOptions(
            use_threads=False, block_size=len(data) + 1, column_names=schema.names
        ),
        convert_options=reader.ConvertOptions(
            column_types={item.name: item.type for item in schema}
        ),
    )


def _polars(schema: pa.Schema) -> dict[str, Callable[[list[bytes]], Any]]:
    try:
        import polars
    except ImportError:
        return {}
    types = polars.from_arrow(schema.empty_table()).schema  # type: ignore[union-attr]
    texts = {name: polars.String if kind.is_temporal() else kind for name, kind in types.items()}

    def read(bodies: list[bytes]) -> Any:
        return polars.read_ndjson(io.BytesIO(b"\n".join(bodies)), schema=texts)

    return {"polars (times as texts)": read}


def _avro(width: str, names: list[str], types: list[str], values: list[list[Any]]) -> Kind:
    import fastavro

    words: dict[str, Any] = {
        "bigint": "long",
        "string": ["null", "string"],
        "double": "double",
        "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
        "int": "int",
    }
    fields = [{"name": n, "type": words[kind]} for n, kind in zip(names, types, strict=True)]
    schema = {"type": "record", "name": "Row", "fields": fields}
    parsed = fastavro.parse_schema(schema)

    def encoded(row: list[Any]) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, dict(zip(names, row, strict=True)))
        return stream.getvalue()

    def read(bodies: list[bytes]) -> Any:
        return [fastavro.schemaless_reader(io.BytesIO(body), parsed, None) for body in bodies]

    spec = {"format": "avro", "schema": json.dumps(schema)}
    return Kind(f"avro {width}", spec, list(map(encoded, values)), {"fastavro": read}, len(values))


def _protobuf(width: str, names: list[str], types: list[str], values: list[list[Any]]) -> Kind:
    from google.protobuf import descriptor_pb2 as pb
    from google.protobuf import descriptor_pool, message_factory

    words = {
        "bigint": "INT64", "string": "STRING", "double": "DOUBLE", "timestamp": "INT64",
        "int": "INT32",
    }  # fmt: skip
    file = pb.FileDescriptorProto(name="demo.proto", package="demo", syntax="proto3")
    made = file.message_type.add(name="Row")
    for number, (name, kind) in enumerate(zip(names, types, strict=True), start=1):
        made.field.add(name=name, number=number, type=f"TYPE_{words[kind]}", label="LABEL_OPTIONAL")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("demo.Row"))
    bodies = [message(**dict(zip(names, row, strict=True))).SerializeToString() for row in values]
    descriptor = pb.FileDescriptorSet(file=[file]).SerializeToString()
    spec = {
        "format": "protobuf", "message": "demo.Row",
        "descriptor": base64.b64encode(descriptor).decode(),
    }  # fmt: skip

    def read(some: list[bytes]) -> Any:
        return [message.FromString(body) for body in some]

    return Kind(f"protobuf {width}", spec, bodies, {"google.protobuf": read}, len(values))


if __name__ == "__main__":
    raise SystemExit(main())
