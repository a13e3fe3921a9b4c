"""Rows for PostgreSQL's COPY, made of Arrow columns without a Python object per value.

COPY takes lines of text whose fields are divided by tabs. Numbers, texts and times are written by
Arrow; only bytes and JSON pass through Python. A field is what the type's input reads, so a column
keeps the value that an insert would have given it. This module knows no windows.
"""

from __future__ import annotations

import io
import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa  # noqa: TID253 (only reached by the sink that needs it)
import pyarrow.compute as pc  # noqa: TID253
import pyarrow.types as pt  # noqa: TID253
import sqlalchemy as sa  # noqa: TID253

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tubemq_provider.sinks.sql.values import Convert

__all__ = ["can_copy", "copy", "lines_of"]

_CALENDAR: Final = (datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999))  # noqa: DTZ001
"""First and last instant that Python and PostgreSQL's drivers can say."""

_NULL: Final = "\\N"
_ESCAPES: Final = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))

_PLAIN_TABLE: Final = """
SELECT c.relkind IN ('r', 'p') AND NOT c.relhasrules AND NOT c.relrowsecurity AND NOT EXISTS (
  SELECT FROM pg_catalog.pg_attribute AS a
  WHERE a.attrelid = c.oid AND a.attnum > 0 AND (a.attidentity = 'a' OR a.attgenerated <> ''))
FROM pg_catalog.pg_class AS c WHERE c.oid = pg_catalog.to_regclass(:name)
"""
"""COPY passes rules and the security of rows by, and gives values to columns that an insert may
not."""


def can_copy(connection: sa.Connection, table: sa.Table) -> bool:
    """Return whether a COPY into the table does what an insert would, and the driver has one."""
    dialect = connection.dialect
    if dialect.name != "postgresql" or dialect.driver not in ("psycopg2", "psycopg"):
        return False
    name = _quoted(table)
    return bool(connection.scalar(sa.text(_PLAIN_TABLE), {"name": name}))


def copy(connection: sa.Connection, table: sa.Table, lines: pa.Buffer) -> None:
    """Send lines of all columns of the table, in their order, in the connection's transaction.

    Raises SQLAlchemy's error, as its own statements do.
    """
    columns = ", ".join(_quote(column.name) for column in table.columns)
    statement = f"COPY {_quoted(table)} ({columns}) FROM STDIN (ENCODING 'UTF8')"
    driver: Any = connection.dialect.dbapi
    raw: Any = connection.connection
    cursor = raw.cursor()
    try:
        if connection.dialect.driver == "psycopg2":
            cursor.copy_expert(statement, io.BytesIO(lines))
        else:
            with cursor.copy(statement) as sent:
                sent.write(lines)
    except driver.Error as error:
        raise sa.exc.DBAPIError.instance(
            "COPY", None, error, driver.Error, hide_parameters=True, dialect=connection.dialect
        ) from None
    finally:
        cursor.close()


def lines_of(
    columns: Sequence[pa.Array], window_id: str, converts: Sequence[Convert | None]
) -> pa.Buffer | None:
    """Return a line for each row of the columns, beginning with the window's id.

    `converts` has for each column the function that its values pass before, if any. None if COPY
    cannot say a value: the character NUL, or a time in no year from 1 to 9999.
    """
    rows = len(columns[0])
    tab, newline = pa.scalar("\t", pa.large_string()), pa.scalar("\n", pa.large_string())
    fields = [pa.repeat(pa.scalar(_escaped_text(window_id), pa.large_string()), rows)]
    for column, convert in zip(columns, converts, strict=True):
        if _is_far(column) or (made := _fields(column, convert)) is None:
            return None
        fields.append(made)
    fields[-1] = pc.binary_join_element_wise(fields[-1], pa.scalar("", pa.large_string()), newline)
    return _data(pc.binary_join_element_wise(*fields, tab))


def _data(texts: pa.LargeStringArray) -> pa.Buffer:
    """Return the characters of all texts, one after another."""
    _, offsets, data = texts.buffers()
    ends = memoryview(offsets).cast("q")
    return data.slice(ends[texts.offset], ends[texts.offset + len(texts)] - ends[texts.offset])


def _fields(column: pa.Array, convert: Convert | None) -> pa.Array | None:
    """Return the column as fields of COPY; None if there is a NUL in its texts."""
    kind = column.type
    if pt.is_binary(kind) or pt.is_large_binary(kind):
        values = [None if body is None else f"\\\\x{body.hex()}" for body in column.to_pylist()]
        return pc.fill_null(pa.array(values, pa.large_string()), _NULL)
    if pt.is_nested(kind):
        try:
            values = column.to_pylist()
        except (OverflowError, ValueError):
            return None  # a time in no year
        of = convert or (lambda value: value)
        texts = [None if value is None else json.dumps(of(value)) for value in values]
        if any(text is not None and "\\u0000" in text for text in texts):
            return None
        return _escaped(pa.array(texts, pa.large_string()))
    if pt.is_string(kind) or pt.is_large_string(kind):
        if convert is not None:  # refuses what a column of limited length would cut
            for text in column.to_pylist():
                if text is not None:
                    convert(text)
        texts = column.cast(pa.large_string())
        return None if pc.any(pc.match_substring(texts, "\0")).as_py() else _escaped(texts)
    if pt.is_floating(kind):  # as the double that the column keeps
        column = column.cast(pa.float64())
    return pc.fill_null(column.cast(pa.large_string()), _NULL)


def _is_far(column: pa.Array) -> bool:
    """Return whether a time is in no year from 1 to 9999."""
    kind = column.type
    if not (pt.is_timestamp(kind) or pt.is_date32(kind)):
        return False
    first, last = (
        pa.scalar(end, pa.timestamp("us")).cast(_without_zone(kind), safe=False)
        for end in _CALENDAR
    )
    plain = column.cast(_without_zone(kind))
    return bool(pc.any(pc.or_(pc.less(plain, first), pc.greater(plain, last))).as_py())


def _without_zone(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp(kind.unit) if pt.is_timestamp(kind) else kind


def _escaped(texts: pa.Array) -> pa.Array:
    for character, escape in _ESCAPES:
        texts = pc.replace_substring(texts, character, escape)
    return pc.fill_null(texts, _NULL)


def _escaped_text(text: str) -> str:
    for character, escape in _ESCAPES:
        text = text.replace(character, escape)
    return text


def _quoted(table: sa.Table) -> str:
    names = (table.schema, table.name) if table.schema else (table.name,)
    return ".".join(map(_quote, names))


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
