"""Protocol buffers, one message a body, by the installed protobuf and a file descriptor set.

Unknown fields are passed over, as Protobuf means it; bytes that are no message are bad. A field
without presence has its default, one with presence is null where it is not set. This module must
not decide what becomes of bad bodies.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from tubemq_client.errors import ConfigError
from tubemq_provider.rows.bulk import Bad, Decoded
from tubemq_provider.rows.plain import decoded_rows
from tubemq_provider.rows.spec import SUBJECT

if TYPE_CHECKING:
    import pyarrow as pa

    from tubemq_provider.rows.spec import DecodeSpec

__all__ = ["ProtobufBodies"]

_TIMESTAMP: Final = "google.protobuf.Timestamp"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ProtobufBodies:
    """Bodies that hold `spec.message` of the descriptor set, behind `spec.skip_bytes`."""

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
        self._error = message.DecodeError
        self._skip = spec.skip_bytes
        self.schema = pa.schema(list(_struct(descriptor, ())))

    def decode(self, records: pa.RecordBatch) -> Decoded:
        """See `BodyDecoder`."""
        made: list[Any] = []
        origin: list[int] = []
        bad: list[Bad] = []
        for place, body in enumerate(records.column("value").to_pylist()):
            if len(body) < self._skip:
                bad.append(Bad(place, f"it has {len(body)} bytes, {self._skip} are to be skipped"))
                continue
            try:
                made.append(_values(self._class.FromString(body[self._skip :])))
                origin.append(place)
            except (self._error, ValueError, OverflowError) as error:
                bad.append(Bad(place, str(error).splitlines()[0]))
        return decoded_rows(made, origin, bad, self.schema)


def _struct(descriptor: Any, inside: tuple[str, ...]) -> pa.DataType:
    import pyarrow as pa

    if descriptor.full_name in inside:
        raise ConfigError(
            f"message: {descriptor.full_name} contains itself, which has no column",
            subject=SUBJECT,
        )
    if not descriptor.fields:
        raise ConfigError(
            f"message: {descriptor.full_name} has no fields, so it has no column", subject=SUBJECT
        )
    inside = (*inside, descriptor.full_name)
    return pa.struct([(item.name, _type(item, inside)) for item in descriptor.fields])


def _type(item: Any, inside: tuple[str, ...]) -> pa.DataType:
    import pyarrow as pa

    if _is_map(item):
        entry = item.message_type.fields_by_name
        return pa.map_(_type(entry["key"], inside), _type(entry["value"], inside))
    one = _single(item, inside)
    return pa.list_(one) if item.is_repeated else one


def _single(item: Any, inside: tuple[str, ...]) -> pa.DataType:
    import pyarrow as pa

    if item.cpp_type == item.CPPTYPE_MESSAGE:
        if item.message_type.full_name == _TIMESTAMP:
            return pa.timestamp("us", tz="UTC")
        return _struct(item.message_type, inside)
    return {
        item.CPPTYPE_INT32: pa.int32(),
        item.CPPTYPE_INT64: pa.int64(),
        item.CPPTYPE_UINT32: pa.int64(),
        item.CPPTYPE_UINT64: pa.decimal128(20, 0),
        item.CPPTYPE_DOUBLE: pa.float64(),
        item.CPPTYPE_FLOAT: pa.float32(),
        item.CPPTYPE_BOOL: pa.bool_(),
        item.CPPTYPE_ENUM: pa.string(),
        item.CPPTYPE_STRING: pa.binary() if item.type == item.TYPE_BYTES else pa.string(),
    }[item.cpp_type]


def _values(message: Any) -> dict[str, Any]:
    return {item.name: _value(message, item) for item in message.DESCRIPTOR.fields}


def _value(message: Any, item: Any) -> Any:
    if _is_map(item):
        value = item.message_type.fields_by_name["value"]
        return {key: _cell(cell, value) for key, cell in getattr(message, item.name).items()}
    if item.is_repeated:
        return [_cell(cell, item) for cell in getattr(message, item.name)]
    if item.has_presence and not message.HasField(item.name):
        return None
    return _cell(getattr(message, item.name), item)


def _cell(value: Any, item: Any) -> Any:
    if item.cpp_type == item.CPPTYPE_ENUM:
        known = item.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if item.cpp_type != item.CPPTYPE_MESSAGE:
        return value
    if item.message_type.full_name == _TIMESTAMP:
        return _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    return _values(value)


def _is_map(item: Any) -> bool:
    return bool(
        item.cpp_type == item.CPPTYPE_MESSAGE
        and item.is_repeated
        and item.message_type.GetOptions().map_entry
    )
