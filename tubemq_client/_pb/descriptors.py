"""Builds protobuf message classes of a private descriptor pool from the tables of `schema`.

TubeMQ's messages have bare names without a package, so a second copy of them in the default pool
(another client, a user's generated code) would clash. A private pool cannot.

This module knows protobuf and nothing of TubeMQ; it must not register anything globally.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["build_classes"]

_Field = descriptor_pb2.FieldDescriptorProto

_LABELS: Final = {
    "!": _Field.LABEL_REQUIRED,
    "?": _Field.LABEL_OPTIONAL,
    "*": _Field.LABEL_REPEATED,
}
_SCALARS: Final = {
    "bool": _Field.TYPE_BOOL,
    "bytes": _Field.TYPE_BYTES,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "string": _Field.TYPE_STRING,
}


def build_classes(tables: Mapping[str, str], file_name: str) -> dict[str, type[Any]]:
    """Return the message classes (proto2, no package) of `tables`, built in a new pool.

    Raises `KeyError` for a label or type that no table defines.
    """
    file = descriptor_pb2.FileDescriptorProto(name=file_name, syntax="proto2")
    for name, table in tables.items():
        message = file.message_type.add(name=name)
        for line in filter(None, map(str.strip, table.splitlines())):
            message.field.append(_field(line, tables))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in tables
    }


def _field(line: str, tables: Mapping[str, str]) -> descriptor_pb2.FieldDescriptorProto:
    number, label, kind, name = line.split()
    field = _Field(name=name, number=int(number), label=_LABELS[label])
    if kind in tables:
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f".{kind}"
    else:
        field.type = _SCALARS[kind]
    return field
