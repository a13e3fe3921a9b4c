"""Values of Arrow columns as a database gets them, and those that it would change without a word.

Maps, structs and lists become JSON: maps objects, days and instants ISO 8601 (with a zone in UTC),
decimals and bytes (Base64) strings. NaN, infinity and a key that is there twice have no JSON. A
conversion takes a value that is not null and gives what is inserted, or raises `ConfigError` with
the name of the column, and without the value. This module knows no tables and no statements.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa  # noqa: TID253 (only reached by the sink that needs it)
import pyarrow.types as pt  # noqa: TID253

from tubemq_client.errors import ConfigError

__all__ = ["Convert", "conversion", "json_form", "text_of_at_most"]

Convert = Callable[[Any], Any]


def conversion(name: str, kind: pa.DataType, *, sqlite: bool) -> Convert | None:
    """Return the function that converts values for an insert; None if they need no conversion."""
    if pt.is_nested(kind):
        return json_form(name, kind)
    if pt.is_timestamp(kind) and kind.tz is not None:
        return lambda instant: instant.astimezone(UTC)
    if pt.is_floating(kind) and sqlite:
        return _number(name)
    return None


def json_form(name: str, kind: pa.DataType) -> Convert | None:
    """Return the function that converts values for JSON; None if they need no conversion. Raises
    `ConfigError` for types that JSON cannot represent."""
    if pt.is_map(kind):
        return _object_of_map(name, kind)
    if pt.is_struct(kind):
        return _object_of_struct(name, kind)
    if _is_list(kind):
        item = json_form(name, kind.value_type)
        return item and (lambda values: [_of(item, value) for value in values])
    if pt.is_dictionary(kind):
        return json_form(name, kind.value_type)
    if pt.is_floating(kind):
        return _json_number(name)
    for fits, convert in _JSON:
        if fits(kind):
            return convert
    raise ConfigError(
        f"column {name!r} has {kind} in it, which has no form in JSON here; cast it in a transform",
        subject="staged files",
    )


def text_of_at_most(name: str, length: int) -> Convert:
    """Texts that a column of `length` characters keeps whole: of longer ones, databases cut blanks
    off without an error, as the standard demands."""

    def whole(text: str) -> str:
        if len(text) <= length:
            return text
        raise ConfigError(
            f"a record has more than {length} characters in {name!r}, which is as many as the "
            f"table's column takes; alter it to text, or cut it in a transform",
            subject="records",
        )

    return whole


def _number(name: str) -> Convert:
    def number(value: float) -> float:
        if not math.isnan(value):
            return value
        raise ConfigError(
            f"a record has NaN in {name!r}, of which SQLite would make NULL; make it null in a "
            f"transform, or use PostgreSQL or a sink of files (a path, s3://…)",
            subject="records",
        )

    return number


def _is_list(kind: pa.DataType) -> bool:
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind))


def _of(convert: Convert | None, value: Any) -> Any:
    return value if value is None or convert is None else convert(value)


def _object_of_map(name: str, kind: pa.MapType) -> Convert:
    if pt.is_nested(kind.key_type):
        raise ConfigError(
            f"column {name!r} has a map with keys of {kind.key_type}, and JSON has texts only; "
            f"cast them in a transform",
            subject="staged files",
        )
    of_key, of_item = json_form(name, kind.key_type), json_form(name, kind.item_type)

    def as_object(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
        made = {_of(of_key, key): _of(of_item, item) for key, item in pairs}
        if len(made) == len(pairs):
            return made
        raise _no_json(name, "a map with a key twice")

    return as_object


def _object_of_struct(name: str, kind: pa.StructType) -> Convert | None:
    fields = {field.name: json_form(name, field.type) for field in kind}
    if len(fields) < kind.num_fields:
        raise ConfigError(
            f"column {name!r} has a struct with two fields of one name; rename one in a transform",
            subject="staged files",
        )
    if not any(fields.values()):
        return None
    return lambda found: {key: _of(fields[key], value) for key, value in found.items()}


def _json_number(name: str) -> Convert:
    def number(value: float) -> float:
        if math.isfinite(value):
            return value
        raise _no_json(name, "NaN or infinity")

    return number


def _no_json(name: str, what: str) -> ConfigError:
    return ConfigError(
        f"a record has {what} in {name!r}, which JSON cannot say; take it out in a transform, or "
        f"use a sink of files (a path, s3://…)",
        subject="records",
    )


def _iso_in_utc(instant: datetime) -> str:
    return (instant.astimezone(UTC) if instant.tzinfo else instant).isoformat()


_JSON: Final[list[tuple[Callable[[pa.DataType], bool], Convert | None]]] = [
    (lambda t: pt.is_string(t) or pt.is_large_string(t) or pt.is_string_view(t), None),
    (lambda t: pt.is_integer(t) or pt.is_boolean(t) or pt.is_null(t), None),
    (lambda t: pt.is_timestamp(t) and t.unit != "ns", _iso_in_utc),
    (pt.is_date32, lambda day: day.isoformat()),
    (pt.is_decimal, lambda number: f"{number:f}"),
    (
        lambda t: pt.is_binary(t) or pt.is_large_binary(t) or pt.is_fixed_size_binary(t),
        lambda body: base64.b64encode(body).decode(),
    ),
]
