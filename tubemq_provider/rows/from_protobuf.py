"""Protocol buffers, one message per body, by the installed protobuf and a file descriptor set.

Unknown fields are ignored, as Protobuf intends; bytes that are no message are bad, and so is one
without a required field. A field without presence has its default, one with presence is null where
it is not set. This module must not decide about bad bodies.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate, chain
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final

from tubemq_client.errors import ConfigError
from tubemq_provider.rows.bulk import BadBody, Decoded
from tubemq_provider.rows.compiled import compiled_reader
from tubemq_provider.rows.frames import Frames
from tubemq_provider.rows.plain import decoded_rows
from tubemq_provider.rows.spec import SUBJECT

if TYPE_CHECKING:
    import pyarrow as pa

    from tubemq_provider.rows.spec import DecodeSpec

__all__ = ["ProtobufBodies"]

_TIMESTAMP: Final = "google.protobuf.Timestamp"
_ANY_JSON: Final = {f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue")}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = 1_000_000_000

_KINDS: Final = {
    1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 6: "fixed64", 7: "fixed32",
    8: "bool", 9: "string", 12: "bytes", 13: "uint32", 15: "sfixed32", 16: "sfixed64",
    17: "sint32", 18: "sint64",
}  # fmt: skip
"""Kinds of the compiled reader by the number of a field's type."""

_Cell = Callable[[Any], Any]
"""Conversion of a Protobuf value to one that Arrow takes."""

_Column = Callable[[list[Any]], "pa.Array"]
"""Conversion of Protobuf values to a column."""

_Table = tuple[Any, ...]
"""Entry of the table by which the compiled reader reads; see `native/src/rows/protobuf.rs`."""


@dataclass(frozen=True, slots=True)
class _Value:
    """How the values of one type become Arrow's, one by one (`cell`, None: as they are), as a
    column (None among them where there is no value), and in the compiled reader (`table`, None: not
    by it)."""

    type: pa.DataType
    cell: Any
    column: _Column
    table: _Table | None
    members: tuple[_Column, ...] = ()
    """Of a message: its columns, of messages."""


class _NoColumnError(Exception):
    """Field that no column can hold."""


class ProtobufBodies:
    """Decoder of bodies that hold `spec.message` of the descriptor set after `spec.skip_bytes`, or
    after the frame of a schema registry, which names the message by its indexes in its file."""

    def __init__(self, spec: DecodeSpec) -> None:
        import pyarrow as pa
        from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

        pool = descriptor_pool.DescriptorPool()
        try:
            files = descriptor_pb2.FileDescriptorSet.FromString(
                base64.b64decode(spec.descriptor or "")
            )
            for file in files.file:
                pool.Add(file)
            descriptor = pool.FindMessageTypeByName(spec.message or "")
        except (message.DecodeError, ValueError, TypeError, KeyError) as error:
            raise ConfigError(
                f"schema_file: has no message {spec.message!r}: {error}", subject=SUBJECT
            ) from error
        self._class = message_factory.GetMessageClass(descriptor)
        self._error = message.Error
        self._frames = Frames(spec.skip_bytes, place=_place(descriptor))
        maker = _Columns(spec, pool)
        try:
            found = maker.struct(descriptor, (), "")
        except _NoColumnError as error:
            raise ConfigError(f"message: {error}", subject=SUBJECT) from None
        if maker.problems:
            raise ConfigError(maker.problems, subject=SUBJECT)
        self._has_required = _has_required(descriptor, set())
        self.schema = pa.schema(list(found.type))
        self._values, self._columns = found.cell, found.members
        self._compiled = compiled_reader(
            "protobuf",
            found.table and found.table[1],
            self.schema,
            skip=spec.skip_bytes,
            places=self._frames.places,
        )

    def decode(self, records: pa.RecordBatch) -> Decoded:
        """See `BodyDecoder`."""
        bodies = records.column("value")
        if self._compiled is not None:
            return self._compiled.decode(bodies, self._read)
        return self._read(bodies)

    def _read(self, bodies: pa.BinaryArray) -> Decoded:
        """Decode by columns; by records if a record has anything that a column does not take."""
        try:
            rows = self._rows(bodies.to_pylist())
        except Exception:  # noqa: BLE001 - the reason is found record by record
            return self._read_each(bodies.to_pylist())
        return Decoded(rows, range(len(bodies)))

    def _rows(self, bodies: list[bytes]) -> pa.RecordBatch:
        import pyarrow as pa

        messages = [self._message(body) for body in bodies]
        columns = [column(messages) for column in self._columns]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _read_each(self, bodies: list[bytes]) -> Decoded:
        mappings: list[Any] = []
        origin: list[int] = []
        bad: list[BadBody] = []
        for place, body in enumerate(bodies):
            try:
                mappings.append(self._values(self._message(body)))
                origin.append(place)
            except (self._error, ValueError, OverflowError) as error:
                bad.append(BadBody(place, str(error).splitlines()[0]))
        return decoded_rows(mappings, origin, bad, self.schema)

    def _message(self, body: bytes) -> Any:
        message = self._class.FromString(body[self._frames.start(body) :])
        if self._has_required and not message.IsInitialized():
            # FindInitializationErrors crashes the process on some messages (protobuf 7.36).
            raise ValueError("a required field is missing")
        return message


def _place(descriptor: Any) -> tuple[int, ...]:
    """Return the indexes of the message in its file, as in a registry's frame."""
    if descriptor.containing_type is None:
        return (list(descriptor.file.message_types_by_name).index(descriptor.name),)
    outer = descriptor.containing_type
    return (*_place(outer), [one.name for one in outer.nested_types].index(descriptor.name))


def _has_required(descriptor: Any, visited: set[str]) -> bool:
    if descriptor.full_name in visited:
        return False
    visited.add(descriptor.full_name)
    return any(
        item.is_required
        or (item.message_type is not None and _has_required(item.message_type, visited))
        for item in descriptor.fields
    )


class _Columns:
    """Builder of column types and of the functions that take their values from messages. `problems`
    name the fields that no column can hold, unless the spec leaves them out or makes them JSON
    text."""

    def __init__(self, spec: DecodeSpec, pool: Any) -> None:
        self.problems: list[str] = []
        self._unsupported = spec.unsupported_fields
        self._cut = spec.nanoseconds == "cut"
        self._pool = pool

    def struct(self, descriptor: Any, inside: tuple[str, ...], path: str) -> _Value:
        """Return the conversion of messages to structs; `path` ends with a dot."""
        import pyarrow as pa

        name = descriptor.full_name
        if name in inside:
            raise _NoColumnError(f"{name} contains itself, which has no column")
        if name in _ANY_JSON:
            raise _NoColumnError(f"{name} holds any JSON, which has no column")
        if not descriptor.fields:
            raise _NoColumnError(f"{name} has no fields, so it has no column")
        fields: list[tuple[Any, _Value]] = []
        for item in descriptor.fields:
            found = self._field(item, (*inside, name), path + item.name)
            if found is not None:
                fields.append((item, found))
        if not fields and self._unsupported != "fail":
            raise _NoColumnError(f"{name} has no field with a column")
        type_ = pa.struct([(item.name, value.type) for item, value in fields])
        cells = [(item.name, value.cell) for item, value in fields]

        def mapping(message: Any) -> dict[str, Any]:
            return {name: value(message) for name, value in cells}

        members = tuple(value.column for _, value in fields)
        column = _struct_column(descriptor, type_, members)
        return _Value(type_, mapping, column, _message_table(descriptor, fields), members)

    def _field(self, item: Any, inside: tuple[str, ...], path: str) -> _Value | None:
        """Return the conversion of messages to the values of a field; None to leave it out."""
        import pyarrow as pa

        try:
            if _is_map(item):
                entry = item.message_type.fields_by_name
                key = self._single(entry["key"], inside, path)
                value = self._single(entry["value"], inside, path)
                return _map_of(item.name, key, value)
            value = self._single(item, inside, path)
        except _NoColumnError as error:
            if self._unsupported == "fail":
                self.problems.append(
                    f"message: {error} (field {path!r}); set unsupported_fields to 'json' to get "
                    "it as JSON text, or to 'leave_out'"
                )
            if self._unsupported != "json":
                return None
            text = self._json(item)
            return _Value(
                pa.string(), text, lambda some: pa.array(list(map(text, some)), pa.string()), None
            )
        return _list_of(item.name, value) if item.is_repeated else _one_of(item, value)

    def _single(self, item: Any, inside: tuple[str, ...], path: str) -> _Value:
        """Return the conversion of one value."""
        import pyarrow as pa

        if item.cpp_type == item.CPPTYPE_MESSAGE:
            if item.message_type.full_name == _TIMESTAMP:
                return self._time(item.message_type)
            return self.struct(item.message_type, inside, f"{path}.")
        if item.cpp_type == item.CPPTYPE_ENUM:
            return _enum(item.enum_type)
        types = {
            item.CPPTYPE_INT32: pa.int32(),
            item.CPPTYPE_INT64: pa.int64(),
            item.CPPTYPE_UINT32: pa.int64(),
            item.CPPTYPE_UINT64: pa.decimal128(20, 0),
            item.CPPTYPE_DOUBLE: pa.float64(),
            item.CPPTYPE_FLOAT: pa.float32(),
            item.CPPTYPE_BOOL: pa.bool_(),
            item.CPPTYPE_STRING: pa.binary() if item.type == item.TYPE_BYTES else pa.string(),
        }
        type_ = types[item.cpp_type]
        return _Value(type_, None, lambda some: pa.array(some, type_), (_KINDS[item.type],))

    def _time(self, descriptor: Any) -> _Value:
        import pyarrow as pa

        type_ = pa.timestamp("us", tz="UTC")
        fields = [(one.name, one.number, one.type) for one in descriptor.fields]
        usual = fields == [("seconds", 1, 3), ("nanos", 2, 5)]
        instant = self._instant

        def column(times: list[Any]) -> pa.Array:
            return pa.array([None if one is None else instant(one) for one in times], type_)

        return _Value(type_, instant, column, ("time", self._cut) if usual else None)

    def _instant(self, value: Any) -> datetime:
        if not 0 <= value.nanos < _SECOND:
            raise ValueError(
                f"a time has {value.nanos} nanoseconds; 0 to 999999999 are in a second"
            )
        if value.nanos % 1000 and not self._cut:
            raise ValueError(
                "a time has nanoseconds, and tables keep microseconds; set nanoseconds='cut' to "
                "cut it"
            )
        return _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)

    def _json(self, item: Any) -> _Cell:
        """Return a function from a message to the field's text in Protobuf's JSON format."""
        from google.protobuf import json_format

        def plain(value: Any) -> Any:
            return json_format.MessageToDict(
                value, preserving_proto_field_name=True, descriptor_pool=self._pool
            )

        def text(message: Any) -> str | None:
            if item.has_presence and not message.HasField(item.name):
                return None
            value = getattr(message, item.name)
            try:
                if _is_map(item):
                    document: Any = {_key(key): plain(one) for key, one in _sorted(value)}
                elif item.is_repeated:
                    document = [plain(one) for one in value]
                else:
                    document = plain(value)
            except (json_format.Error, RecursionError, TypeError) as error:
                raise ValueError(f"{item.name} has no JSON: {error}") from error
            return json.dumps(document, ensure_ascii=False)

        return text


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _sorted(entries: Any) -> list[tuple[Any, Any]]:
    """Return the entries of a map in the order of their keys: the runtime's order changes from
    process to process."""
    return sorted(entries.items(), key=itemgetter(0))


def _enum(descriptor: Any) -> _Value:
    import pyarrow as pa

    names = {number: one.name for number, one in descriptor.values_by_number.items()}

    def name(number: int) -> str:
        return names.get(number) or str(number)

    def column(numbers: list[Any]) -> pa.Array:
        return pa.array([None if one is None else name(one) for one in numbers], pa.string())

    return _Value(pa.string(), name, column, ("enum", names))


def _one_of(item: Any, value: _Value) -> _Value:
    name, cell, column = item.name, value.cell, value.column
    take = attrgetter(name)
    if not item.has_presence:
        of_message = take if cell is None else lambda message: cell(take(message))
        return replace(value, cell=of_message, column=lambda some: column(list(map(take, some))))

    def one(message: Any) -> Any:
        if not message.HasField(name):
            return None
        return take(message) if cell is None else cell(take(message))

    def of_messages(messages: list[Any]) -> pa.Array:
        return column([take(one) if one.HasField(name) else None for one in messages])

    return replace(value, cell=one, column=of_messages)


def _list_of(name: str, value: _Value) -> _Value:
    import pyarrow as pa

    type_, cell, take = pa.list_(value.type), value.cell, attrgetter(name)

    def one(message: Any) -> list[Any]:
        return list(take(message)) if cell is None else [cell(one) for one in take(message)]

    def column(messages: list[Any]) -> pa.Array:
        lists = list(map(take, messages))
        items = value.column(list(chain.from_iterable(lists)))
        return pa.ListArray.from_arrays(_ends(lists), items, type_)

    return _Value(type_, one, column, value.table)


def _map_of(name: str, key: _Value, value: _Value) -> _Value:
    import pyarrow as pa

    type_, cell, take = pa.map_(key.type, value.type), value.cell, attrgetter(name)

    def one(message: Any) -> dict[Any, Any]:
        return {key: one if cell is None else cell(one) for key, one in _sorted(take(message))}

    def column(messages: list[Any]) -> pa.Array:
        maps = [_sorted(take(message)) for message in messages]
        entries = list(chain.from_iterable(maps))
        keys = key.column([entry[0] for entry in entries])
        values = value.column([entry[1] for entry in entries])
        return pa.MapArray.from_arrays(_ends(maps), keys, values, type_)

    table = None
    if key.table and value.table:
        # The runtime knows which name an enum has that is not set.
        shape = "required" if value.table[0] == "enum" else "plain"
        entry = [(1, "plain", key.table, [], ""), (2, shape, value.table, [], "")]
        table = ("message", entry)
    return _Value(type_, one, column, table)


def _ends(lists: list[Any]) -> pa.Array:
    import pyarrow as pa

    return pa.array(accumulate(map(len, lists), initial=0), pa.int32())


def _struct_column(descriptor: Any, type_: pa.StructType, members: tuple[_Column, ...]) -> _Column:
    from google.protobuf import message_factory

    nothing = message_factory.GetMessageClass(descriptor)()

    def column(messages: list[Any]) -> pa.Array:
        import pyarrow as pa

        missing = [one is None for one in messages]
        mask = pa.array(missing, pa.bool_()) if any(missing) else None
        some = messages if mask is None else [nothing if one is None else one for one in messages]
        arrays = [member(some) for member in members]
        return pa.StructArray.from_arrays(arrays, fields=list(type_), mask=mask)

    return column


def _message_table(descriptor: Any, fields: list[tuple[Any, _Value]]) -> _Table | None:
    """Return the table of a message; None for what the compiled reader does not know: fields
    without a column, groups, and extensions, which the runtime may parse."""
    if len(fields) != len(descriptor.fields) or descriptor.is_extendable:
        return None
    places = {item.name: place for place, (item, _) in enumerate(fields)}
    entries = []
    for item, value in fields:
        if value.table is None or item.type == item.TYPE_GROUP:
            return None
        choice = item.containing_oneof
        others = [] if choice is None else [one.name for one in choice.fields if one is not item]
        rivals = [places[name] for name in others if name != item.name]
        default = "" if item.has_presence else _enum_default(item)
        entries.append((item.number, _shape(item), value.table, rivals, default))
    return "message", entries


def _enum_default(item: Any) -> str:
    if item.cpp_type != item.CPPTYPE_ENUM or item.is_repeated:
        return ""
    return str(_enum(item.enum_type).cell(item.default_value))


def _shape(item: Any) -> str:
    if item.is_repeated:
        return "map" if _is_map(item) else "list"
    if item.is_required:
        return "required"
    return "optional" if item.has_presence else "plain"


def _is_map(item: Any) -> bool:
    return bool(
        item.cpp_type == item.CPPTYPE_MESSAGE
        and item.is_repeated
        and item.message_type.GetOptions().map_entry
    )
