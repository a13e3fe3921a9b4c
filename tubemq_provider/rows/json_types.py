"""From the schema that Arrow infers for JSON objects to one that DDL can express.

Arrow infers structs without members, fields without a name, names that Spark considers equal, and
doubles for whole numbers beyond 64 bits. Fields without a value are left out, wide whole numbers
become decimals, and the rest is refused by name. This module must not read or write files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from tubemq_client.errors import ConfigError
from tubemq_provider.rows.spec import SUBJECT

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["as_schema_type"]

_BIGINT: Final = range(-(2**63), 2**63)
_DECIMALS: Final = (20, 38)
"""Precisions of decimals for whole numbers: those of unsigned 64 bits, and the maximum."""


def as_schema_type(inferred: pa.Schema, bodies: pa.BinaryArray) -> pa.Schema:
    """Convert the schema inferred from `bodies` to one that DDL can express. Times are UTC
    microseconds; fields that never have a value are left out. Raises `ConfigError` that names every
    field without a column."""
    import pyarrow as pa

    maker = _TypeBuilder()
    objects = _objects(bodies) if any("double" in str(item.type) for item in inferred) else []
    fields = maker.fields(
        [item for item in inferred if not pa.types.is_null(item.type)], objects, ""
    )
    if maker.problems:
        raise ConfigError(maker.problems, subject=SUBJECT)
    return pa.schema(fields)


def _objects(bodies: pa.BinaryArray) -> list[Any]:
    objects = []
    for body in bodies.to_pylist():
        try:
            objects.append(json.loads(body))
        except (ValueError, RecursionError):
            continue  # bad bodies are ignored
    return objects


class _TypeBuilder:
    """Builder of field types; collects problems."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def fields(
        self, inferred: Iterable[pa.Field], objects: list[Any], inside: str
    ) -> list[pa.Field]:
        """Return the fields that have a type; `objects` are the values of the bodies at this
        path."""
        import pyarrow as pa

        fields: dict[str, pa.Field] = {}
        for item in inferred:
            values = [one[item.name] for one in objects if _has(one, item.name)]
            type_ = self._type(item.type, values, inside + item.name)
            if type_ is None:
                continue
            key = item.name.lower()
            if not key:
                self.problems.append(
                    f"schema: a field of {inside[:-1] or 'the object'} has no name"
                )
            elif key in fields:
                first = inside + fields[key].name
                self.problems.append(
                    f"schema: {first!r} and {inside + item.name!r} are one name to a table"
                )
            fields[key] = pa.field(item.name, type_)
        return list(fields.values())

    def _type(self, type_: pa.DataType, values: list[Any], path: str) -> pa.DataType | None:
        """Return the type of a value, None if it is empty; a string if it is unknown."""
        import pyarrow as pa

        if pa.types.is_struct(type_):
            members = self.fields(type_, values, f"{path}.")
            return pa.struct(members) if members else None
        if pa.types.is_list(type_):
            items = [item for one in values if isinstance(one, list) for item in one]
            inner = self._type(type_.value_type, items, f"{path}[]")
            return None if inner is None else pa.list_(inner)
        if pa.types.is_float64(type_):
            return self._number(values, path)
        if pa.types.is_timestamp(type_):
            return pa.timestamp("us", tz="UTC")
        if pa.types.is_null(type_) or pa.types.is_time(type_):
            return pa.string()
        return type_

    def _number(self, values: list[Any], path: str) -> pa.DataType:
        """Return `double`, or a decimal if all numbers are whole and one needs more digits."""
        import pyarrow as pa

        numbers = [one for one in values if isinstance(one, (int, float))]
        wide = [one for one in numbers if isinstance(one, int) and one not in _BIGINT]
        if not wide or any(isinstance(one, float) for one in numbers):
            return pa.float64()
        digits = max(len(str(abs(one))) for one in wide)
        for precision in _DECIMALS:
            if digits <= precision:
                return pa.decimal128(precision, 0)
        self.problems.append(f"schema: {path!r} has whole numbers of {digits} digits")
        return pa.float64()


def _has(value: Any, name: str) -> bool:
    return isinstance(value, dict) and name in value
