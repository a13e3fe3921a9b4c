"""Schema of the rows in change records: from the envelope's schema, or inferred from their JSON.

Debezium's envelope with a schema names each field's type; Canal, Maxwell and plain Debezium bring
values only, whose JSON is inferred like that of other bodies. This module must not keep a schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tubemq_provider.rows.changes.envelopes import Notice, parse_body
from tubemq_provider.rows.changes.values import json_text
from tubemq_provider.rows.from_json import infer_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from tubemq_provider.rows.spec import DecodeSpec

__all__ = ["infer_rows"]


def infer_rows(spec: DecodeSpec, bodies: pa.BinaryArray) -> pa.Schema:
    """Infer the schema of the rows that `bodies` change; bad bodies are ignored."""
    import pyarrow as pa

    rows: list[bytes] = []
    kinds: dict[str, Mapping[str, Any]] = {}
    for body in bodies.to_pylist():
        try:
            parsed = parse_body(spec.format, body or b"")
        except ValueError:
            continue
        for change in () if isinstance(parsed, Notice) else parsed:
            full = f"{change.database}.{change.table}" if change.database else change.table
            if spec.tables and full not in spec.tables:
                continue
            kinds.update(change.kinds)
            rows.append(json_text(dict(change.row)).encode())
    if kinds:
        return pa.schema([(name, _type_of(kind)) for name, kind in kinds.items()])
    return infer_schema(pa.array(rows, pa.binary()))


def _type_of(kind: Mapping[str, Any]) -> pa.DataType:
    """Return the column's type for a field of the envelope's schema."""
    import pyarrow as pa

    name, type_ = str(kind.get("name") or ""), kind.get("type")
    if name == "org.apache.kafka.connect.data.Decimal":
        parameters = kind.get("parameters") or {}
        scale = int(parameters.get("scale", 0))
        precision = int(parameters.get("connect.decimal.precision", 38))
        return pa.decimal128(min(precision, 38), scale)
    if name in ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date"):
        return pa.date32()
    if name == "io.debezium.time.ZonedTimestamp":
        return pa.timestamp("us", tz="UTC")
    if name.rpartition(".")[2] in ("Timestamp", "MicroTimestamp", "NanoTimestamp"):
        return pa.timestamp("us")
    if name.rpartition(".")[2] in ("Time", "MicroTime", "NanoTime"):
        return pa.time64("us")
    if type_ == "struct":
        members = [(str(one["field"]), _type_of(one)) for one in kind.get("fields") or ()]
        return pa.struct(members)
    if type_ == "array":
        return pa.list_(_type_of(kind.get("items") or {"type": "string"}))
    if type_ == "map":
        item = _type_of(kind.get("values") or {"type": "string"})
        return pa.map_(pa.string(), item)
    simple = {
        "boolean": pa.bool_(),
        "int8": pa.int8(),
        "int16": pa.int16(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "bytes": pa.binary(),
    }
    return simple.get(str(type_), pa.string())
