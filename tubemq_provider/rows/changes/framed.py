"""Change records in the frame of a schema registry, in Avro or JSON as the schema of the id says.

An Avro envelope becomes the document that its JSON would be, with values of Avro's logical types;
what Debezium says of a field beside its type (``connect.name``) becomes the field's kind, as in the
schema of a JSON envelope. This module must not know what a change means.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tubemq_client.errors import ConfigError
from tubemq_provider.rows.changes.values import BadValue
from tubemq_provider.rows.frames import Frames
from tubemq_provider.rows.registry import registry_of
from tubemq_provider.rows.spec import SUBJECT, DecodeSpec

__all__ = ["FramedDocuments"]

_IMAGES: Final = ("before", "after")


class FramedDocuments:
    """Reader of framed bodies with the schemas of the registry that `spec` names."""

    def __init__(self, spec: DecodeSpec) -> None:
        self._spec = spec
        self._name = str(spec.schema_registry)
        self._writers: dict[int, _AvroWriter | None] = {}

    def read(self, body: bytes) -> bytes | dict[str, Any]:
        """Return the JSON of a body, or the document of one in Avro. Raises `ValueError` for a
        body that is bad, `RegistryUnavailable`, and `ConfigError` for a schema that is not read."""
        if not body:
            return body
        id_ = Frames.id_of(body)
        if id_ not in self._writers:
            self._writers[id_] = self._writer(id_)
        writer = self._writers[id_]
        return body[Frames.SIZE :] if writer is None else writer.read(body)

    def _writer(self, id_: int) -> _AvroWriter | None:
        schema = registry_of(self._name).schema(id_)
        if schema.kind == "JSON":
            return None
        if schema.kind != "AVRO" or self._spec.format != "debezium":
            raise BadValue(f"its schema is {schema.kind}, in which {self._spec.format} is not read")
        try:
            return _AvroWriter(schema.text, self._spec.nanoseconds)
        except ConfigError as error:
            raise ConfigError(
                [f"schema_registry: schema {id_}: {problem}" for problem in error.problems],
                subject=SUBJECT,
            ) from error


class _AvroWriter:
    """Reader of envelopes that one Avro schema wrote."""

    def __init__(self, schema: str, nanoseconds: str) -> None:
        from tubemq_provider.rows.avro_schema import record_column

        self._columns, _ = record_column(
            schema, unsupported_fields="fail", nanoseconds=nanoseconds, time_of_day="time"
        )
        fields = _Kinds().of(json.loads(schema)).get("fields") or ()
        self._schema = {"fields": [one for one in fields if one["field"] in _IMAGES]}

    def read(self, body: bytes) -> dict[str, Any]:
        from tubemq_provider.rows.from_avro import end_problem, reason_of

        try:
            end = self._columns.read(body, Frames.SIZE)
            row: dict[str, Any] = self._columns.array()[0].as_py()
        except Exception as error:
            self._columns.truncate(0)
            raise BadValue(reason_of(error)) from error
        if end != len(body):
            raise BadValue(end_problem(body, end))
        return {"schema": self._schema, "payload": row}


class _Kinds:
    """Kinds of fields, in the words of a JSON envelope's schema."""

    def __init__(self) -> None:
        self._named: dict[str, dict[str, Any]] = {}

    def of(self, type_: Any) -> dict[str, Any]:
        """Return the kind of a value of the Avro type."""
        if isinstance(type_, list):
            return next((self.of(one) for one in type_ if one != "null"), {})
        if not isinstance(type_, Mapping):
            return self._named.get(str(type_).rpartition(".")[2], {})
        if isinstance(type_["type"], (list, Mapping)):
            return self.of(type_["type"])
        kind: dict[str, Any] = {}
        if "logicalType" not in type_ and "connect.name" in type_:
            kind["name"] = type_["connect.name"]
        if type_["type"] == "record":
            self._named[str(type_["name"]).rpartition(".")[2]] = kind
            kind["fields"] = list(self._fields(type_["fields"]))
        for member in ("items", "values"):
            if member in type_:
                kind[member] = self.of(type_[member])
        return kind

    def _fields(self, fields: Any) -> Iterator[dict[str, Any]]:
        for field in fields:
            yield {"field": field["name"], **self.of(field["type"])}
