"""Columns of an existing table that keep values of a wanted type unchanged.

A list of what does, by wanted type; what is not on it is refused, because databases round, cut, pad
or rewrite values without a word: a day of an instant, blanks at the end of a text, keys of JSON.
Where the form of a value would depend on settings of the server (instants, days and floats as
text), it is not on the list either. What a column answers with an error may be on it. This module
sees types only: no values and no connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa  # noqa: TID253 (only reached by the sink that needs it)
from sqlalchemy.dialects.postgresql import DOMAIN, JSON, JSONB  # noqa: TID253
from sqlalchemy.types import NullType  # noqa: TID253

if TYPE_CHECKING:
    from sqlalchemy.types import TypeEngine

__all__ = ["keeps", "longest_text", "shown"]

_MICROSECONDS: Final = 6
_BITS_OF_REAL: Final = 24


def keeps(wanted: TypeEngine[Any], found: TypeEngine[Any], dialect: sa.Dialect) -> bool:
    """Return True if a column of type `found` keeps each value of `wanted` unchanged, or refuses it
    with an error. For texts in a column of limited length see `longest_text`."""
    found = _base(found)
    if dialect.name == "sqlite":
        return _sqlite_keeps(wanted, found)
    if isinstance(wanted, sa.Boolean) and not dialect.supports_native_boolean:
        return isinstance(found, sa.Boolean | sa.Integer | sa.Numeric)
    for kind, compatible in _KEPT:
        if isinstance(wanted, kind):
            return compatible(wanted, found)
    return False


def longest_text(found: TypeEngine[Any], dialect: sa.Dialect) -> int | None:
    """Return the maximum length of a text in characters, None without a limit. Blanks beyond it are
    cut off without an error. SQLite knows no limits."""
    length = getattr(found, "length", None)
    limited = _is_text(found) and isinstance(length, int) and dialect.name != "sqlite"
    return length if limited else None


def shown(kind: TypeEngine[Any], dialect: sa.Dialect) -> str:
    """Return the database's name of the type."""
    if type(kind) is sa.String:
        return 'name or "char"'
    try:
        return str(kind.compile(dialect=dialect))
    except sa.exc.CompileError:  # a NullType, perhaps in an array
        return "of a type that is not known here"


def _base(found: TypeEngine[Any]) -> TypeEngine[Any]:
    """Return the base type of a domain. Its length or precision is not known, so types that depend
    on them count as unknown."""
    if not isinstance(found, DOMAIN):
        return found
    base = _base(found.data_type)
    hidden = (
        (isinstance(base, sa.VARCHAR) and base.length is None)
        or (_is_exact(base) and getattr(base, "scale", None) is None)
        or (isinstance(base, sa.DateTime) and getattr(base, "precision", None) is None)
    )
    return NullType() if hidden else base


def _sqlite_keeps(wanted: TypeEngine[Any], found: TypeEngine[Any]) -> bool:
    """SQLite keeps what it is given, except that it makes numbers of texts wherever a column's type
    is no word for text or bytes, texts of 15 digits of numbers, and that its REAL has eight
    bytes."""
    if isinstance(wanted, sa.Text):
        return isinstance(found, sa.String | sa.LargeBinary | NullType)
    if isinstance(wanted, sa.BigInteger):
        return not _is_float(found)
    return not (isinstance(wanted, sa.Double) and isinstance(found, sa.String))


def _is_text(found: TypeEngine[Any]) -> bool:
    """Return False for types that pad (CHAR), and for PostgreSQL's `name` and `"char"`, which
    truncate and have no separate type here."""
    no_text = isinstance(found, sa.CHAR | sa.NCHAR | sa.Enum) or type(found) is sa.String
    return isinstance(found, sa.String) and not no_text


def _is_float(found: TypeEngine[Any]) -> bool:
    return isinstance(found, sa.Float | sa.REAL)


def _is_exact(found: TypeEngine[Any]) -> bool:
    return isinstance(found, sa.Numeric) and not _is_float(found)


def _has_digits(found: TypeEngine[Any], digits: int) -> bool:
    """Return True for an exact number with that many digits after the point."""
    if isinstance(found, sa.Integer):
        return digits <= 0
    scale = getattr(found, "scale", None)
    return _is_exact(found) and (scale is None or scale >= digits)


def _keeps_text(_: TypeEngine[Any], found: TypeEngine[Any]) -> bool:
    as_written = isinstance(found, JSON) and not isinstance(found, JSONB)
    return _is_text(found) or isinstance(found, sa.Enum) or as_written


def _keeps_double(_: TypeEngine[Any], found: TypeEngine[Any]) -> bool:
    bits = getattr(found, "precision", None)
    wide = not isinstance(found, sa.REAL) and (bits is None or bits > _BITS_OF_REAL)
    return _is_float(found) and wide


def _keeps_decimal(wanted: TypeEngine[Any], found: TypeEngine[Any]) -> bool:
    return _is_text(found) or _has_digits(found, getattr(wanted, "scale", None) or 0)


def _keeps_instant(_: TypeEngine[Any], found: TypeEngine[Any]) -> bool:
    precision = getattr(found, "precision", None)
    return isinstance(found, sa.DateTime) and (precision is None or precision >= _MICROSECONDS)


# The first that fits counts: a Double is a Numeric in SQLAlchemy 2.0, and none in 2.1.
_KEPT: Final[list[tuple[Any, Callable[[TypeEngine[Any], TypeEngine[Any]], bool]]]] = [
    (sa.String, _keeps_text),
    (sa.BigInteger, lambda _, found: _is_text(found) or _has_digits(found, 0)),
    (sa.Double, _keeps_double),
    (sa.Numeric, _keeps_decimal),
    (sa.Boolean, lambda _, found: isinstance(found, sa.Boolean) or _is_text(found)),
    (sa.Date, lambda _, found: isinstance(found, sa.Date | sa.DateTime)),
    (sa.DateTime, _keeps_instant),
    (sa.LargeBinary, lambda _, found: isinstance(found, sa.LargeBinary | sa.VARBINARY)),
    (sa.JSON, lambda _, found: isinstance(found, sa.JSON) or _is_text(found)),
]
