"""From what Arrow finds in JSON objects to a schema that can be written down and read again.

Arrow finds structs without members, fields without a name, names that Spark takes for one, and
makes doubles of whole numbers beyond 64 bits. What has no value is left out, wide
whole numbers become decimals, and the rest is refused by its name. This module must not read or
write files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from tubemq_client.errors import ConfigError
from tubemq_provider.rows.spec import SUBJECT

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["sayable"]

_BIGINT: Final = range(-(2**63), 2**63)
_DECIMALS: Final = (20, 38)
"""Digits of decimals for whole numbers: those of 64 bits without a sign, and the most there are."""


def sayable(found: pa.Schema, bodies: pa.BinaryArray) -> pa.Schema:
    """`found` in the `bodies`, as schemas can say it. Times are UTC microseconds; fields that never
    had a value are left out. Raises `ConfigError` that names every field without a column."""
    import pyarrow as pa

    maker = _Maker()
    objects = _objects(bodies) if any("double" in str(item.type) for item in found) else []
    fields = maker.fields([item for item in found if not pa.types.is_null(item.type)], objects, "")
    if maker.problems:
        raise ConfigError(maker.problems, subject=SUBJECT)
    return pa.schema(fields)


def _objects(bodies: pa.BinaryArray) -> list[Any]:
    found = []
    for body in bodies.to_pylist():
        try:
            found.append(json.loads(body))
        except (ValueError, RecursionError):
            continue  # a bad body counts for nothing
    return found


class _Maker:
    """Types for fields and what they hold, and what is wrong with them."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def fields(self, found: Iterable[pa.Field], objects: list[Any], inside: str) -> list[pa.Field]:
        """The fields that have a type; `objects` are what the bodies have in this place."""
        import pyarrow as pa

        made: dict[str, pa.Field] = {}
        for item in found:
            values = [one[item.name] for one in objects if _has(one, item.name)]
            type_ = self._type(item.type, values, inside + item.name)
            if type_ is None:
                continue
            key = item.name.lower()
            if not key:
                self.problems.append(
                    f"schema: a field of {inside[:-1] or 'the object'} has no name"
                )
            elif key in made:
                first = inside + made[key].name
                self.problems.append(
                    f"schema: {first!r} and {inside + item.name!r} are one name to a table"
                )
            made[key] = pa.field(item.name, type_)
        return list(made.values())

    def _type(self, type_: pa.DataType, values: list[Any], path: str) -> pa.DataType | None:
        """None for what has nothing in it; unknown is a string."""
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
        """A `double`, if not all of them are whole numbers that need more digits than it has."""
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
