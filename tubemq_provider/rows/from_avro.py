"""Avro data without a container, one datum a body, by fastavro (extra ``avro``).

The schema is the writers'; a body with another one is bad, or not to be told apart, as is Avro's
way. This module must not decide what becomes of bad bodies.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from tubemq_client.errors import ConfigError, require_extra
from tubemq_provider.rows.bulk import Bad, Decoded
from tubemq_provider.rows.plain import decoded_rows
from tubemq_provider.rows.spec import SUBJECT

if TYPE_CHECKING:
    import pyarrow as pa

    from tubemq_provider.rows.spec import DecodeSpec

__all__ = ["AvroBodies"]


class AvroBodies:
    """Bodies that hold one datum of the record schema `spec.schema`, behind `spec.skip_bytes`."""

    def __init__(self, spec: DecodeSpec) -> None:
        try:
            import fastavro
        except ImportError as error:
            raise require_extra("avro", error) from error
        try:
            document = json.loads(spec.schema or "")
            self._parsed = fastavro.parse_schema(document)
        except (ValueError, TypeError, fastavro.schema.SchemaParseException) as error:
            raise ConfigError(f"schema: no Avro schema: {error}", subject=SUBJECT) from error
        except fastavro.schema.UnknownType as error:
            raise ConfigError(f"schema: unknown type {error}", subject=SUBJECT) from error
        self._skip = spec.skip_bytes
        self._read = fastavro.schemaless_reader
        self.schema = _Types().record_schema(self._parsed)

    def decode(self, records: pa.RecordBatch) -> Decoded:
        """See `BodyDecoder`."""
        made: list[Any] = []
        origin: list[int] = []
        bad: list[Bad] = []
        for place, body in enumerate(records.column("value").to_pylist()):
            try:
                made.append(self._one(body))
                origin.append(place)
            except Exception as error:  # noqa: BLE001 - fastavro raises what comes, of any class
                bad.append(Bad(place, f"{type(error).__name__}: {error}".splitlines()[0]))
        return decoded_rows(made, origin, bad, self.schema)

    def _one(self, body: bytes) -> Any:
        stream = BytesIO(body)
        stream.seek(self._skip)
        datum = self._read(stream, self._parsed, None)
        rest = len(body) - stream.tell()
        if rest:
            raise ValueError(f"{abs(rest)} bytes {'are left' if rest > 0 else 'are missing'}")
        return datum


_SIMPLE: Final = {
    "boolean": "bool",
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "binary",
    "enum": "string",
    "fixed": "binary",
}
_MOST_DIGITS: Final = 38
"""Of a decimal, in Spark as in Parquet."""


class _Types:
    """Arrow types of a schema that fastavro has parsed, in which every name is a full one: the same
    simple name in two namespaces is two types. Names defined before can be used again."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}

    def record_schema(self, document: Any) -> pa.Schema:
        import pyarrow as pa

        if not isinstance(document, Mapping) or document.get("type") != "record":
            raise ConfigError("schema: the Avro schema is not a record's", subject=SUBJECT)
        return pa.schema(list(self._type(document)))

    def _type(self, avro: Any) -> pa.DataType:
        if isinstance(avro, list):
            return self._union(avro)
        if isinstance(avro, str):
            return self._by_name(avro)
        if avro["type"] in ("record", "enum", "fixed"):
            return self._named_type(avro["type"], avro)
        if "logicalType" in avro:
            return self._logical(avro)
        return self._nested(avro["type"], avro)

    def _nested(self, kind: Any, avro: Mapping[str, Any]) -> pa.DataType:
        import pyarrow as pa

        if kind == "array":
            return pa.list_(self._type(avro["items"]))
        if kind == "map":
            return pa.map_(pa.string(), self._type(avro["values"]))
        return self._type(kind)

    def _named_type(self, kind: str, avro: Mapping[str, Any]) -> pa.DataType:
        import pyarrow as pa

        self._named[avro["name"]] = None  # a type within itself has no end
        if "logicalType" in avro:
            made = self._logical(avro)
        elif kind == "record":
            made = pa.struct([(f["name"], self._type(f["type"])) for f in avro["fields"]])
            if not made.num_fields:
                raise ConfigError(
                    f"schema: record {avro['name']!r} has no fields, so it has no column",
                    subject=SUBJECT,
                )
        else:
            made = pa.type_for_alias(_SIMPLE[kind])
        self._named[avro["name"]] = made
        return made

    def _union(self, avro: list[Any]) -> pa.DataType:
        rest = [member for member in avro if member != "null"]
        if len(rest) != 1:
            raise ConfigError(
                f"schema: a union of {len(rest)} types has no column; null and one other has",
                subject=SUBJECT,
            )
        return self._type(rest[0])

    def _by_name(self, name: str) -> pa.DataType:
        import pyarrow as pa

        if name in _SIMPLE:
            return pa.type_for_alias(_SIMPLE[name])
        known = self._named.get(name)
        if known is None:
            raise ConfigError(f"schema: type {name!r} has no column", subject=SUBJECT)
        return known

    def _logical(self, avro: Mapping[str, Any]) -> pa.DataType:
        import pyarrow as pa

        logical = avro["logicalType"]
        if logical == "decimal":
            return _decimal(avro)
        known = {
            "date": pa.date32(),
            "timestamp-millis": pa.timestamp("us", tz="UTC"),
            "timestamp-micros": pa.timestamp("us", tz="UTC"),
            "local-timestamp-millis": pa.timestamp("us"),
            "local-timestamp-micros": pa.timestamp("us"),
            "uuid": pa.string(),
        }
        if logical not in known:
            raise ConfigError(f"schema: logical type {logical!r} has no column", subject=SUBJECT)
        return known[logical]


def _decimal(avro: Mapping[str, Any]) -> pa.DataType:
    import pyarrow as pa

    precision, scale = avro.get("precision"), avro.get("scale", 0)
    if precision is None or precision > _MOST_DIGITS:
        raise ConfigError(
            f"schema: a decimal with precision {precision} has no column; 1 to {_MOST_DIGITS} have",
            subject=SUBJECT,
        )
    return pa.decimal128(precision, scale)
