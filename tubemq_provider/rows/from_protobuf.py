"""Protocol buffers, one message per body, by the installed protobuf and a file descriptor set.

Unknown fields are ignored, as Protobuf intends; bytes that are no message are bad, and so is one
without a required field. A field without presence has its default, one with presence is null where
it is not set. This module must not decide about bad bodies.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from tubemq_client.errors import ConfigError
from tubemq_provider.rows.bulk import BadBody, Decoded
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

_Cell = Callable[[Any], Any]
"""Conversion of a Protobuf value to one that Arrow takes."""


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
            struct, self._values = maker.struct(descriptor, (), "")
        except _NoColumnError as error:
            raise ConfigError(f"message: {error}", subject=SUBJECT) from None
        if maker.problems:
            raise ConfigError(maker.problems, subject=SUBJECT)
        self._has_required = _has_required(descriptor, set())
        self.schema = pa.schema(list(struct))

    def decode(self, records: pa.RecordBatch) -> Decoded:
        """See `BodyDecoder`."""
        mappings: list[Any] = []
        origin: list[int] = []
        bad: list[BadBody] = []
        for place, body in enumerate(records.column("value").to_pylist()):
            try:
                mappings.append(self._one(body))
                origin.append(place)
            except (self._error, ValueError, OverflowError) as error:
                bad.append(BadBody(place, str(error).splitlines()[0]))
        return decoded_rows(mappings, origin, bad, self.schema)

    def _one(self, body: bytes) -> dict[str, Any]:
        message = self._class.FromString(body[self._frames.start(body) :])
        if self._has_required and not message.IsInitialized():
            # FindInitializationErrors crashes the process on some messages (protobuf 7.36).
            raise ValueError("a required field is missing")
        return self._values(message)


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

    def struct(
        self, descriptor: Any, inside: tuple[str, ...], path: str
    ) -> tuple[pa.StructType, Callable[[Any], dict[str, Any]]]:
        """Return the type for messages, and a function from a message to a mapping; `path` ends
        with a dot."""
        import pyarrow as pa

        name = descriptor.full_name
        if name in inside:
            raise _NoColumnError(f"{name} contains itself, which has no column")
        if name in _ANY_JSON:
            raise _NoColumnError(f"{name} holds any JSON, which has no column")
        if not descriptor.fields:
            raise _NoColumnError(f"{name} has no fields, so it has no column")
        types: list[tuple[str, pa.DataType]] = []
        values: list[tuple[str, _Cell]] = []
        for item in descriptor.fields:
            column = self._field(item, (*inside, name), path + item.name)
            if column is not None:
                types.append((item.name, column[0]))
                values.append((item.name, column[1]))
        if not types and self._unsupported != "fail":
            raise _NoColumnError(f"{name} has no field with a column")

        def mapping(message: Any) -> dict[str, Any]:
            return {name: value(message) for name, value in values}

        return pa.struct(types), mapping

    def _field(
        self, item: Any, inside: tuple[str, ...], path: str
    ) -> tuple[pa.DataType, _Cell] | None:
        """Return the type of a field and the function that takes its value from a message; None to
        leave it out."""
        import pyarrow as pa

        try:
            if _is_map(item):
                entry = item.message_type.fields_by_name
                key, _ = self._single(entry["key"], inside, path)
                type_, cell = self._single(entry["value"], inside, path)
                return pa.map_(key, type_), _of_map(item.name, cell)
            type_, cell = self._single(item, inside, path)
        except _NoColumnError as error:
            if self._unsupported == "fail":
                self.problems.append(
                    f"message: {error} (field {path!r}); set unsupported_fields to 'json' to get "
                    "it as JSON text, or to 'leave_out'"
                )
            if self._unsupported != "json":
                return None
            return pa.string(), self._json(item)
        if item.is_repeated:
            return pa.list_(type_), _of_list(item.name, cell)
        return type_, _of_one(item, cell)

    def _single(
        self, item: Any, inside: tuple[str, ...], path: str
    ) -> tuple[pa.DataType, _Cell | None]:
        """Return the type of one value and its conversion, None for a value that stays as it is."""
        import pyarrow as pa

        if item.cpp_type == item.CPPTYPE_MESSAGE:
            if item.message_type.full_name == _TIMESTAMP:
                return pa.timestamp("us", tz="UTC"), self._instant
            return self.struct(item.message_type, inside, f"{path}.")
        if item.cpp_type == item.CPPTYPE_ENUM:
            names = {number: one.name for number, one in item.enum_type.values_by_number.items()}
            return pa.string(), lambda number: names.get(number) or str(number)
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
        return types[item.cpp_type], None

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
                    document: Any = {_key(key): plain(one) for key, one in value.items()}
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


def _of_one(item: Any, cell: _Cell | None) -> _Cell:
    name = item.name
    if not item.has_presence:
        if cell is None:
            return lambda message: getattr(message, name)
        return lambda message: cell(getattr(message, name))

    def value(message: Any) -> Any:
        if not message.HasField(name):
            return None
        field_value = getattr(message, name)
        return field_value if cell is None else cell(field_value)

    return value


def _of_list(name: str, cell: _Cell | None) -> _Cell:
    if cell is None:
        return lambda message: list(getattr(message, name))
    return lambda message: [cell(one) for one in getattr(message, name)]


def _of_map(name: str, cell: _Cell | None) -> _Cell:
    if cell is None:
        return lambda message: dict(getattr(message, name))
    return lambda message: {key: cell(one) for key, one in getattr(message, name).items()}


def _is_map(item: Any) -> bool:
    return bool(
        item.cpp_type == item.CPPTYPE_MESSAGE
        and item.is_repeated
        and item.message_type.GetOptions().map_entry
    )
