"""Columns for an Avro schema: logical types, names, and fields that no column can hold.

A logical type is applied only to a base type that Avro's specification defines it for, and with
valid parameters; otherwise the base type is read, as the specification requires. This module must
not read bodies.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tubemq_client.errors import ConfigError, require_extra
from tubemq_client.json_text import load_unique_json
from tubemq_provider.rows import avro_columns as avro
from tubemq_provider.rows.spec import SUBJECT

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FieldResolution", "ReaderFields", "fingerprint_of", "record_column"]

_LOGICAL: Final = "__logical__"
"""Key that hides a schema's logical type while fastavro resolves names: it refuses some logical
types that the specification requires to ignore."""

_MAX_PRECISION: Final = 38
"""Maximal precision of a decimal, in Spark as in Parquet."""
_MAX_COLUMNS: Final = 10_000

_BASES: Final = {
    "decimal": ("bytes", "fixed"),
    "uuid": ("string", "fixed"),
    "date": ("int",),
    "time-millis": ("int",),
    **dict.fromkeys(
        [
            "time-micros",
            *(f"{kind}-{unit}" for kind in ("timestamp", "local-timestamp") for unit in
              ("millis", "micros", "nanos")),
        ],
        ("long",),
    ),
}  # fmt: skip
"""Logical types that have a column, and the types that they are defined for. Others (duration,
big-decimal, those of other tools) are read as their base type."""

_DAYS: Final = (-719_162, 2_932_896)
"""First and last day of the years 1 to 9999, the range of dates in Python and other systems, in
days since 1970."""
_SECONDS_OF_DAY: Final = 86_400
_LEAST_SECOND, _END_SECOND = (_DAYS[0] * _SECONDS_OF_DAY, (_DAYS[1] + 1) * _SECONDS_OF_DAY)


class _NoColumnError(Exception):
    """Type that no column can hold; `unsupported_fields` decides about the field that has it."""


def record_column(
    schema: str, *, unsupported_fields: str, nanoseconds: str, time_of_day: str
) -> tuple[avro.RecordColumn, ReaderFields]:
    """Return the column of the record `schema`, and the aliases and defaults of its fields.

    `unsupported_fields`, `nanoseconds` and `time_of_day` as in `DecodeSpec`. Raises `ConfigError`
    that names every field without a column, and `MissingExtraError` without fastavro.
    """
    document = _parsed(schema)
    if not isinstance(document, Mapping) or document.get("type") != "record":
        raise ConfigError("schema: the Avro schema is not a record's", subject=SUBJECT)
    maker = _ColumnBuilder(unsupported_fields, nanoseconds, time_of_day)
    try:
        column = maker.record(document, "")
    except _NoColumnError as error:
        raise ConfigError([f"schema: {error}"], subject=SUBJECT) from None
    if maker.problems:
        raise ConfigError(maker.problems, subject=SUBJECT)
    return column, ReaderFields(document["fields"], maker)


class ReaderFields:
    """Aliases and defaults of the fields of a reader's record, for schema resolution."""

    def __init__(self, fields: list[Mapping[str, Any]], maker: _ColumnBuilder) -> None:
        self._fields = {field["name"]: field for field in fields}
        self._maker = maker

    def aliases(self, name: str) -> list[str]:
        """Return names that the field may have in writers' schemas."""
        return list(self._fields[name].get("aliases", ()))

    def default(self, name: str) -> pa.Scalar[Any]:
        """Return the default of a field that the writer's schema does not have. Raises `KeyError`
        if there is none, and `ValueError` if it is not of the field's type."""
        field = self._fields[name]
        body = self._maker.encoded(field["type"], field["default"])
        column, read = self._maker.field(field, name)
        read(body, 0)
        if column is None:
            raise ValueError(f"field {name!r} has no column")
        return column.array()[0]

    def resolved(self, name: str, writer: ReaderFields, source: str) -> FieldResolution:
        """Return how values of the writer's field `source` become values of the field `name`."""
        reader_type, writer_type = self._fields[name]["type"], writer._fields[source]["type"]
        resolving = _Resolving(self._maker.resolved, writer._maker.resolved)
        problem = resolving.problem(reader_type, writer_type, top=True)
        own, others = resolving.both(reader_type, writer_type)
        null = own.null or not others.null
        return FieldResolution(problem, null, _symbols_of(own.rest, others.rest))


class FieldResolution(NamedTuple):
    """Resolution of a writer's field to a reader's. `problem`: why no value resolves, None if some
    do. `null`: False if the writer has nulls where the reader has none. `symbols`: for an enum, the
    reader's symbol of each of the writer's that it does not have itself; None without a default.
    """

    problem: str | None
    null: bool
    symbols: Mapping[str, str | None]


class _Members(NamedTuple):
    null: bool
    rest: list[Any]


class _Resolving:
    """Comparison of a reader's type with a writer's, by the rules of Avro's schema resolution that
    columns do not show: named types have the same name, fixed values the same size, and bytes,
    fixed values, enums and strings are no types of each other. `of_reader` and `of_writer` resolve
    names."""

    def __init__(self, of_reader: Callable[[Any], Any], of_writer: Callable[[Any], Any]) -> None:
        self._of_reader, self._of_writer = of_reader, of_writer
        self._compared: set[tuple[int, int]] = set()

    def both(self, reader: Any, writer: Any) -> tuple[_Members, _Members]:
        """Return the members of both types, each without null."""
        return _members(reader, self._of_reader), _members(writer, self._of_writer)

    def problem(self, reader: Any, writer: Any, *, top: bool = False) -> str | None:
        """Return why values of `writer` are no values of `reader`, or None. At the `top` of a
        column, nulls and symbols are compared by record."""
        own, others = self.both(reader, writer)
        if others.null and not own.null and not top:
            return "it may be null, and in 'schema' not"
        if len(own.rest) != len(others.rest):
            return f"it is a union of {len(others.rest)} types, of {len(own.rest)} in 'schema'"
        pairs = zip(own.rest, others.rest, strict=True)
        problems = (self._one(mine, theirs, top=top) for mine, theirs in pairs)
        return next(filter(None, problems), None)

    def _one(
        self, reader: Mapping[str, Any], writer: Mapping[str, Any], *, top: bool
    ) -> str | None:
        kind, other = reader["type"], writer["type"]
        if kind != other:
            # Numbers are compared as columns.
            numbers = {"int", "long", "float", "double"}
            return None if {kind, other} <= numbers else f"it is {other}, and {kind} in 'schema'"
        if kind in ("enum", "fixed") and not _same_name(reader, writer):
            return f"it is the {kind} {writer['name']!r}, and {reader['name']!r} in 'schema'"
        if kind == "fixed" and reader["size"] != writer["size"]:
            return f"it has {writer['size']} bytes, and {reader['size']} in 'schema'"
        if kind == "enum" and not top and (missing := {*writer["symbols"]} - {*reader["symbols"]}):
            return f"its symbol {min(missing)!r} is not in 'schema'"
        if kind == "record":
            # Named types live as long as their schema; ids of others may be used again.
            pair = (id(reader), id(writer))
            known = pair in self._compared
            self._compared.add(pair)
            return None if known else self._record(reader, writer)
        inner = {"array": "items", "map": "values"}.get(kind)
        return None if inner is None else self.problem(reader[inner], writer[inner])

    def _record(self, reader: Mapping[str, Any], writer: Mapping[str, Any]) -> str | None:
        theirs = {field["name"]: field["type"] for field in writer["fields"]}
        for field in reader["fields"]:
            name = field["name"]
            if name not in theirs and "default" not in field:
                return f"it has no member {name!r}"
            if name in theirs and (problem := self.problem(field["type"], theirs[name])):
                return f"member {name!r}: {problem}"
        return None


def _members(schema: Any, resolve: Callable[[Any], Any]) -> _Members:
    schema = resolve(schema)
    members = schema if isinstance(schema, list) else [schema]
    rest = [resolve(member) for member in members if not _is_null(member)]
    return _Members(len(rest) < len(members), rest)


def _same_name(reader: Mapping[str, Any], writer: Mapping[str, Any]) -> bool:
    """Return True for the same name without a namespace, or an alias of the reader's."""
    names = {str(name).rpartition(".")[2] for name in [reader["name"], *reader.get("aliases", ())]}
    return writer["name"].rpartition(".")[2] in names


def _symbols_of(reader: list[Any], writer: list[Any]) -> Mapping[str, str | None]:
    if [member["type"] for member in (*reader, *writer)] != ["enum", "enum"]:
        return {}
    own = reader[0]
    missing = [symbol for symbol in writer[0]["symbols"] if symbol not in own["symbols"]]
    return dict.fromkeys(missing, own.get("default"))


def _parsed(schema: str) -> Any:
    """Parse the schema, with full names."""
    try:
        import fastavro
    except ImportError as error:
        raise require_extra("avro", error) from error
    try:
        return fastavro.parse_schema(_hide_logical_types(load_unique_json(schema)))
    except fastavro.schema.UnknownType as error:
        raise ConfigError(f"schema: unknown type {error}", subject=SUBJECT) from error
    except (
        ValueError, TypeError, KeyError, AttributeError, RecursionError,
        fastavro.schema.SchemaParseException,
    ) as error:  # fmt: skip
        raise ConfigError(f"schema: no Avro schema: {error}", subject=SUBJECT) from error


def fingerprint_of(schema: str) -> bytes:
    """Return the schema's CRC-64-AVRO fingerprint, as in the header of the single-object
    encoding."""
    from fastavro.schema import fingerprint, to_parsing_canonical_form

    form = to_parsing_canonical_form(_hide_logical_types(json.loads(schema)))
    return bytes.fromhex(fingerprint(form, "CRC-64-AVRO"))


def _hide_logical_types(document: Any) -> Any:
    if isinstance(document, list):
        return [_hide_logical_types(item) for item in document]
    if not isinstance(document, dict):
        return document
    changed = dict(document)
    if "logicalType" in changed:
        changed[_LOGICAL] = changed.pop("logicalType")
    for name in ("type", "items", "values"):
        if name in changed:
            changed[name] = _hide_logical_types(changed[name])
    if isinstance(fields := changed.get("fields"), list):
        changed["fields"] = [_hide_logical_types(item) for item in fields]
    return changed


class _ColumnBuilder:
    """Builder of columns and readers for the types of one schema, in which every name is a full
    one."""

    def __init__(self, unsupported_fields: str, nanoseconds: str, time_of_day: str) -> None:
        self.problems: list[str] = []
        self._unsupported = unsupported_fields
        self._nanoseconds = nanoseconds
        self._time_of_day = time_of_day
        self._named: dict[str, Mapping[str, Any]] = {}
        self._open: list[str] = []
        self._count = 0
        self._readers: dict[str, avro.ValueReader] = {}

    # -- columns

    def record(self, schema: Mapping[str, Any], path: str) -> avro.RecordColumn:
        """Create the column of a record; `path` ends with a dot, or is empty."""
        name = schema["name"]
        self._named[name] = schema
        if name in self._open:
            raise _NoColumnError(f"record {name!r} contains itself, which has no column")
        if not schema["fields"]:
            raise _NoColumnError(f"record {name!r} has no fields, so it has no column")
        names = [field["name"] for field in schema["fields"]]
        if duplicates := sorted(
            {field_name for field_name in names if names.count(field_name) > 1}
        ):
            raise ConfigError(
                f"schema: record {name!r} has the field {duplicates[0]!r} twice", subject=SUBJECT
            )
        self._open.append(name)
        columns: dict[str, avro.Column] = {}
        reads: list[avro.Read] = []
        for field in schema["fields"]:
            column, read = self.field(field, path + field["name"])
            reads.append(read)
            if column is not None:
                columns[field["name"]] = column
        self._open.pop()
        if not columns and self._unsupported != "fail":
            raise _NoColumnError(f"record {name!r} has no field with a column")
        return avro.RecordColumn(columns, reads)

    def field(self, field: Mapping[str, Any], path: str) -> tuple[avro.Column | None, avro.Read]:
        """Create the field's column, and the reader that fills it."""
        import pyarrow as pa

        open_, self._open = self._open, self._open[:]
        try:
            return self._column(field["type"], f"{path}.")
        except _NoColumnError as error:
            self._open = open_
            if self._unsupported == "fail":
                self.problems.append(
                    f"schema: field {path!r}: {error}; set unsupported_fields to 'json' to get it "
                    "as JSON text, or to 'leave_out'"
                )
        read_value = self._reader(field["type"])
        if self._unsupported == "json":
            text = avro.PlainColumn(pa.string(), read_value, avro.json_text)
            return text, text.read

        def skip(body: bytes, at: int) -> int:
            return read_value(body, at)[1]

        return None, skip

    def _column(self, schema: Any, path: str) -> tuple[avro.Column, avro.Read]:
        """Create a column of the type, and the reader that appends to it, which also handles
        null."""
        self._count += 1
        if self._count > _MAX_COLUMNS:
            raise ConfigError(
                f"schema: it makes more than {_MAX_COLUMNS} columns, members of records counted",
                subject=SUBJECT,
            )
        schema = self.resolved(schema)
        if isinstance(schema, list):
            return self._union(schema, path)
        column = self._one(schema, path)
        return column, column.read

    def resolved(self, schema: Any) -> Any:
        """Return the definition of a type that is referenced by name."""
        if isinstance(schema, str):
            return self._named.get(schema, {"type": schema})
        if isinstance(schema, Mapping) and not isinstance(schema["type"], str):
            return self.resolved(schema["type"])
        if isinstance(schema, Mapping) and schema["type"] in self._named:
            return self._named[schema["type"]]
        if isinstance(schema, Mapping) and "name" in schema:
            self._named[schema["name"]] = schema
        return schema

    def _union(self, members: list[Any], path: str) -> tuple[avro.Column, avro.Read]:
        rest = [index for index, member in enumerate(members) if not _is_null(member)]
        if len(rest) != 1:
            raise _NoColumnError(
                f"a union of {len(rest)} types has no column; null and one other has"
            )
        column, read = self._column(members[rest[0]], path)
        if len(members) == 1:
            column.table = column.table and ("only", column.table)
            return column, _only_member(read)
        column.table = column.table and ("nullable", 1 - rest[0], column.table)
        return column, avro.nullable(column, read, 1 - rest[0])

    def _one(self, schema: Mapping[str, Any], path: str) -> avro.Column:
        import pyarrow as pa

        kind = schema["type"]
        if kind == "record":
            return self.record(schema, path)
        if kind == "array":
            return avro.ListColumn(*self._column(schema["items"], path))
        if kind == "map":
            return avro.MapColumn(*self._column(schema["values"], path))
        if logical := _logical_type(schema):
            return self._logical_column(logical, schema)
        plain = {
            "boolean": pa.bool_(),
            "int": pa.int32(),
            "long": pa.int64(),
            "float": pa.float32(),
            "double": pa.float64(),
            "string": pa.string(),
            "bytes": pa.binary(),
            "enum": pa.string(),
            "fixed": pa.binary(),
        }
        if kind not in plain:
            raise _NoColumnError(f"type {kind!r} has no column")
        details = {"fixed": "size", "enum": "symbols"}.get(kind)
        table = (kind,) if details is None else (kind, schema[details])
        return avro.PlainColumn(plain[kind], self._reader(schema), table=table)

    def _logical_column(self, logical: str, schema: Mapping[str, Any]) -> avro.Column:
        import pyarrow as pa

        read = self._reader(schema)
        if logical == "decimal":
            precision = schema["precision"]
            if precision > _MAX_PRECISION:
                raise _NoColumnError(
                    f"a decimal with precision {precision} has no column; 1 to "
                    f"{_MAX_PRECISION} have"
                )
            return avro.DecimalColumn(
                pa.decimal128(precision, schema.get("scale", 0)), read, size=schema.get("size")
            )
        if logical == "uuid":
            if schema["type"] == "string":
                return avro.PlainColumn(pa.string(), read, table=("string",))
            return avro.PlainColumn(pa.string(), read, _uuid_text, table=("uuid",))
        if logical == "date":
            check = _within(*_DAYS, "date of the years 1 to 9999")
            table: avro.Table = ("scaled", 32, *_DAYS, 1, 1, False)
            return avro.PlainColumn(pa.date32(), read, check, table=table)
        if logical.startswith("time-"):
            factor = 1000 if logical == "time-millis" else 1
            most = _SECONDS_OF_DAY * 1_000_000 // factor - 1
            if self._time_of_day == "number":
                type_ = pa.int32() if schema["type"] == "int" else pa.int64()
                return avro.PlainColumn(type_, read, table=(schema["type"],))
            check = _within(0, most, "time of day", factor)
            table = ("scaled", 32 if schema["type"] == "int" else 64, 0, most, factor, 1, True)
            return avro.PlainColumn(pa.time64("us"), read, check, table=table)
        return self._instants(logical, read)

    def _instants(self, logical: str, read: avro.ValueReader) -> avro.Column:
        """Create a column of instants. Tables keep microseconds, so nanoseconds are kept as a
        number unless they are to be cut."""
        import pyarrow as pa

        unit = logical.rpartition("-")[2]
        if unit == "nanos" and self._nanoseconds != "cut":
            return avro.PlainColumn(pa.int64(), read, table=("long",))
        per_second = {"millis": 1000, "micros": 1_000_000, "nanos": 1_000_000_000}[unit]
        bounds = (_LEAST_SECOND * per_second, _END_SECOND * per_second - 1)
        units = (1000 if unit == "millis" else 1, 1000 if unit == "nanos" else 1)
        check = _within(*bounds, "time of the years 1 to 9999", *units)
        zone = None if logical.startswith("local-") else "UTC"
        table = _scaled(bounds, units)
        return avro.PlainColumn(pa.timestamp("us", tz=zone), read, check, table=table)

    # -- defaults

    def encoded(self, schema: Any, value: Any) -> bytes:
        """Encode the default `value` of a field: bytes are texts of U+0000 to U+00FF, a union is
        encoded as its first matching member. Raises `ValueError` if it is not of the type."""
        schema = self.resolved(schema)
        if isinstance(schema, list):
            for index, member in enumerate(schema):
                with suppress(ValueError):
                    return _zigzag(index) + self.encoded(member, value)
            raise ValueError(f"{value!r} is of no type of the union")
        kind = schema["type"]
        if kind == "record" and isinstance(value, Mapping):
            return b"".join(self._encoded_field(item, value) for item in schema["fields"])
        if kind == "array" and isinstance(value, list):
            return _block([self.encoded(schema["items"], item) for item in value])
        if kind == "map" and isinstance(value, Mapping):
            return _block(
                [
                    _sized(key.encode()) + self.encoded(schema["values"], v)
                    for key, v in value.items()
                ]
            )
        return _encoded_value(kind, schema, value)

    def _encoded_field(self, field: Mapping[str, Any], values: Mapping[str, Any]) -> bytes:
        name = field["name"]
        if name not in values and "default" not in field:
            raise ValueError(f"it has no field {name!r}")
        return self.encoded(field["type"], values.get(name, field.get("default")))

    # -- readers of values

    def _reader(self, schema: Any) -> avro.ValueReader:
        """Return a reader of values of any type."""
        schema = self.resolved(schema)
        if isinstance(schema, list):
            return avro.union_reader([self._reader(member) for member in schema])
        kind = schema["type"]
        by_schema = {
            "record": lambda: self._record_reader(schema),
            "array": lambda: avro.list_reader(self._reader(schema["items"])),
            "map": lambda: avro.map_reader(self._reader(schema["values"])),
            "enum": lambda: avro.enum_reader(schema["symbols"]),
            "fixed": lambda: avro.fixed_reader(schema["size"]),
        }
        if kind in by_schema:
            return by_schema[kind]()
        plain: dict[str, avro.ValueReader] = {
            "null": avro.null_reader,
            "boolean": avro.boolean_reader,
            "int": avro.number_reader(32),
            "long": avro.number_reader(64),
            "float": avro.float_reader("<f"),
            "double": avro.float_reader("<d"),
            "bytes": avro.bytes_reader,
            "string": avro.text_reader,
        }
        return plain[kind]

    def _record_reader(self, schema: Mapping[str, Any]) -> avro.ValueReader:
        """Return one reader per name, so that a record may contain itself."""
        name = schema["name"]
        if name not in self._readers:
            fields: dict[str, avro.ValueReader] = {}
            self._readers[name] = avro.record_reader(fields)
            fields |= {field["name"]: self._reader(field["type"]) for field in schema["fields"]}
        return self._readers[name]


def _encoded_value(kind: str, schema: Mapping[str, Any], value: Any) -> bytes:
    if kind == "null" and value is None:
        return b""
    if kind == "boolean" and isinstance(value, bool):
        return bytes([value])
    bits = {"int": 31, "long": 63}.get(kind)
    if bits and _is_whole(value) and -(2**bits) <= value < 2**bits:
        return _zigzag(value)
    if kind in ("float", "double") and (_is_whole(value) or isinstance(value, float)):
        try:
            return struct.pack("<f" if kind == "float" else "<d", value)
        except OverflowError as error:
            raise ValueError(f"{value!r} is no {kind}") from error
    if kind == "string" and isinstance(value, str):
        return _sized(value.encode())
    if kind in ("bytes", "fixed") and isinstance(value, str):
        data = value.encode("latin-1")
        if kind == "bytes" or len(data) == schema["size"]:
            return _sized(data) if kind == "bytes" else data
    if kind == "enum" and value in schema["symbols"]:
        return _zigzag(schema["symbols"].index(value))
    raise ValueError(f"{value!r} is no {kind}")


def _block(items: list[bytes]) -> bytes:
    return (_zigzag(len(items)) + b"".join(items) if items else b"") + b"\0"


def _sized(data: bytes) -> bytes:
    return _zigzag(len(data)) + data


def _zigzag(number: int) -> bytes:
    rest, encoded = (number << 1) ^ (number >> 63), bytearray()
    while rest > 127:
        encoded.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*encoded, rest])


def _is_null(member: Any) -> bool:
    return member == "null" or (isinstance(member, Mapping) and member.get("type") == "null")


def _only_member(read: avro.Read) -> avro.Read:
    def read_member(body: bytes, at: int) -> int:
        if body[at]:
            raise ValueError("the member of a union is not its only one")
        return read(body, at + 1)

    return read_member


def _logical_type(schema: Mapping[str, Any]) -> str | None:
    """Return the logical type that applies, None for the base type."""
    logical, kind = schema.get(_LOGICAL), schema["type"]
    if not isinstance(logical, str) or kind not in _BASES.get(logical, ()):
        return None
    if logical == "uuid" and kind == "fixed" and schema["size"] != 16:
        return None
    if logical == "decimal" and not _is_sound_decimal(schema):
        return None
    return logical


def _is_sound_decimal(schema: Mapping[str, Any]) -> bool:
    """Return True if precision and scale are valid."""
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not (_is_whole(precision) and _is_whole(scale) and 0 <= scale <= precision and precision):
        return False
    if schema["type"] == "fixed":
        bits = 8 * schema["size"] - 1
        return bool(bits > 0 and precision <= math.floor(math.log10(2**bits - 1)))
    return True


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _uuid_text(data: bytes) -> str:
    text = data.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _scaled(bounds: tuple[int, int], units: tuple[int, int]) -> avro.Table:
    """Return the table of a long within bounds, as far as they are a long's."""
    least, most = bounds
    return ("scaled", 64, max(least, -(2**63)), min(most, 2**63 - 1), *units, True)


def _within(
    least: int, most: int, what: str, factor: int = 1, divisor: int = 1
) -> Callable[[int], int]:
    """Return a check that a number is in the range, and its conversion to another unit."""

    def check(number: int) -> int:
        if not least <= number <= most:
            raise ValueError(f"{number} is no {what}")
        return number * factor // divisor

    return check
