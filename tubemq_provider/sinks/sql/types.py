"""From Arrow columns to database columns, and rows of staged files into a table.

Strings become TEXT, integers BIGINT, floats DOUBLE PRECISION, booleans BOOLEAN, dates DATE,
decimals NUMERIC, binary BYTEA or BLOB, maps, structs and lists JSON (JSONB in PostgreSQL).
Timestamps become TIMESTAMP; with a zone TIMESTAMP WITH TIME ZONE, in UTC, and where a database has
no such type, as SQLite, UTC without saying so. Other types are refused. This module opens no
connection and decides nothing about windows; values are the matter of `values`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa  # noqa: TID253 (only reached by the sink that needs it)
import pyarrow.parquet as pq  # noqa: TID253
import pyarrow.types as pt  # noqa: TID253
import sqlalchemy as sa  # noqa: TID253
from sqlalchemy.dialects.postgresql import JSONB  # noqa: TID253

from tubemq_client.errors import ConfigError
from tubemq_provider.sinks.sql.address import name_problem
from tubemq_provider.sinks.sql.columns import keeps, longest_text, shown
from tubemq_provider.sinks.sql.values import conversion, json_form, text_of_at_most

if TYPE_CHECKING:
    from sqlalchemy.types import TypeEngine

__all__ = ["RowWriter", "sql_type"]

_WINDOW_ID: Final = "window_id"
_BATCH_ROWS: Final = 2_000
_BATCH_BYTES: Final = 8 * 1024 * 1024

_TYPES: Final[list[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], Any]]]] = [
    (lambda t: pt.is_string(t) or pt.is_large_string(t), lambda _: sa.Text()),
    (lambda t: pt.is_integer(t) and t != pa.uint64(), lambda _: sa.BigInteger()),
    (lambda t: bool(t == pa.uint64()), lambda _: sa.Numeric(20, 0)),
    (pt.is_boolean, lambda _: sa.Boolean()),
    (pt.is_floating, lambda _: sa.Double()),
    (pt.is_date32, lambda _: sa.Date()),
    (pt.is_decimal, lambda t: sa.Numeric(t.precision, t.scale)),
    (lambda t: pt.is_binary(t) or pt.is_large_binary(t), lambda _: sa.LargeBinary()),
    (
        lambda t: pt.is_timestamp(t) and t.unit != "ns",
        lambda t: sa.DateTime(timezone=t.tz is not None),
    ),
    (
        lambda t: pt.is_map(t) or pt.is_struct(t) or pt.is_list(t) or pt.is_large_list(t),
        lambda _: sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql"),
    ),
]


def sql_type(name: str, kind: pa.DataType) -> TypeEngine[Any]:
    """Return the database type of a column. Raises `ConfigError` for types that have none."""
    if pt.is_nested(kind):
        json_form(name, kind)  # refuses what is in it
    for fits, make in _TYPES:
        if fits(kind):
            database_type: TypeEngine[Any] = make(kind)
            return database_type
    raise ConfigError(
        f"column {name!r} is {kind}, which has no database type here; cast it in a transform",
        subject="staged files",
    )


class RowWriter:
    """Writes the rows of files with one schema into one table, with their window's id."""

    def __init__(
        self,
        name: str,
        schema_name: str | None,
        schema: pa.Schema,
        dialect: sa.Dialect,
        *,
        temporary: bool = False,
    ) -> None:
        sqlite = dialect.name == "sqlite"
        _refuse_names(schema, dialect)
        if sqlite:
            _refuse_exact_numbers(schema)
        # Parameters have names without a meaning: SQLAlchemy 2.0 makes one of those of ``a.b`` and
        # ``a_b``, and gives both columns the value of one.
        self._names = {f"column_{at}": field.name for at, field in enumerate(schema)}
        self.table = sa.Table(
            name,
            sa.MetaData(schema=schema_name),
            sa.Column(_WINDOW_ID, sa.String(255), nullable=False, index=not temporary),
            *(
                sa.Column(field.name, sql_type(field.name, field.type), key=key)
                for key, field in zip(self._names, schema, strict=True)
            ),
            prefixes=["TEMPORARY"] if temporary else [],
        )
        self._convert = {
            key: convert
            for key, field in zip(self._names, schema, strict=True)
            if (convert := conversion(field.name, field.type, sqlite=sqlite)) is not None
        }

    def check(self, engine: sa.Engine) -> None:
        """Check that the existing table has all columns and keeps their values unchanged. Raises
        `ConfigError`. Values are checked when they are written."""
        columns = sa.inspect(engine).get_columns(self.table.name, schema=self.table.schema)
        kinds = {column["name"]: column["type"] for column in columns}
        dialect = engine.dialect
        problems = []
        for column in self.table.columns:
            column_type = kinds.get(column.name)
            if column_type is None:
                problems.append(f"it has no column {column.name!r}")
            elif not keeps(column.type, column_type, dialect):
                problems.append(
                    f"its column {column.name!r} is {shown(column_type, dialect)}, which does not "
                    f"keep every value of {shown(column.type, dialect)} as it is; alter it to "
                    f"that, or cast it in a transform"
                )
            elif isinstance(column.type, sa.Text) and (most := longest_text(column_type, dialect)):
                self._convert[column.key] = text_of_at_most(column.name, most)
        if problems:
            raise ConfigError(problems, subject=f"table {self.table.fullname}")

    def check_given(self, engine: sa.Engine) -> None:
        """Check that the existing table accepts values for all columns. Raises `ConfigError` for
        columns that it fills itself; triggers and rules are not inspected."""
        problems = []
        for column in sa.inspect(engine).get_columns(self.table.name, schema=self.table.schema):
            identity = column.get("identity")
            made = "computed" in column or (identity is not None and identity["always"])
            if made and column["name"] in {*self._names.values(), _WINDOW_ID}:
                problems.append(
                    f"its column {column['name']!r} is generated always, and takes no value of a "
                    f"record; alter that, or rename the record's column in a transform"
                )
        if problems:
            raise ConfigError(problems, subject=f"table {self.table.fullname}")

    def is_there(self, engine: sa.Engine) -> bool:
        """Return True if a table of that name exists."""
        return bool(sa.inspect(engine).has_table(self.table.name, schema=self.table.schema))

    def write(self, connection: sa.Connection, path: Path, window_id: str) -> None:
        """Insert all rows of a file."""
        with pq.ParquetFile(path) as file:
            for batch in _small_batches(file):
                rows = self._rows(batch)
                for row in rows:
                    row[_WINDOW_ID] = window_id
                    for key, convert in self._convert.items():
                        if row[key] is not None:
                            row[key] = convert(row[key])
                if rows:
                    self._insert(connection, rows)

    def _rows(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        """Values by the keys of their columns. Raises `ConfigError` for times of other years."""
        columns = [_in_utc(column) for column in batch.columns]
        try:
            return list(pa.RecordBatch.from_arrays(columns, list(self._names)).to_pylist())
        except (OverflowError, ValueError):
            names = zip(self._names.values(), columns, strict=True)
            far = [name for name, column in names if not _is_sayable(column)]
            if not far:
                raise
        raise ConfigError(
            f"a record has a time in {', '.join(map(repr, far))} that is in no year from 1 to 9999 "
            f"(is its unit right?); change it in decode or transform, or use a sink of files (a "
            f"path, s3://…)",
            subject=f"table {self.table.fullname}",
        )

    def _insert(self, connection: sa.Connection, rows: list[dict[str, Any]]) -> None:
        try:
            connection.execute(self.table.insert(), rows)
        except (ValueError, sa.exc.StatementError):
            keys = {key for row in rows for key, value in row.items() if _has_nul(value)}
            names = [self._names.get(key, key) for key in keys]
            if connection.dialect.name != "postgresql" or not names:
                raise
        else:
            return
        raise ConfigError(
            f"a record has the character NUL in {', '.join(sorted(names))}, which PostgreSQL keeps "
            f"in no text; use a sink of files (a path, s3://…), or run the window with an engine "
            f"that takes it out (SessionEngine(transform=…), InlineEngine(columns=…))",
            subject=f"table {self.table.fullname}",
        )

    def count(self, connection: sa.Connection, window_id: str) -> int:
        """Rows of the window that this transaction sees."""
        counted = sa.select(sa.func.count()).where(self.table.c.window_id == window_id)
        return int(connection.scalar(counted) or 0)


def _small_batches(file: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    """Batches of a bounded size in rows and bytes: as Python values and as a statement,
    records take several times what they take in a file. pyarrow's own span row groups."""
    for group in range(file.num_row_groups):
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, row_groups=[group]):
            rows = max(1, batch.num_rows * _BATCH_BYTES // max(batch.nbytes, 1))
            for start in range(0, batch.num_rows, rows):
                yield batch.slice(start, rows)


def _in_utc(column: pa.Array) -> pa.Array:
    """Return the same instants in UTC: those at the ends of the calendar have no day elsewhere."""
    kind = column.type
    zoned = pt.is_timestamp(kind) and kind.tz is not None
    return column.cast(pa.timestamp(kind.unit, "UTC")) if zoned else column


def _is_sayable(column: pa.Array) -> bool:
    try:
        column.to_pylist()
    except (OverflowError, ValueError):
        return False
    return True


def _has_nul(value: object) -> bool:
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any(map(_has_nul, (*value.keys(), *value.values())))
    return isinstance(value, list) and any(map(_has_nul, value))


def _refuse_names(schema: pa.Schema, dialect: sa.Dialect) -> None:
    """SQLite takes names that differ in case for one; see `name_problem` for PostgreSQL."""
    problems, taken = [], {_WINDOW_ID: "the column in which the sink keeps the window's id"}
    for name in schema.names:
        if problem := name_problem(name, dialect.name):
            problems.append(f"column {name!r} {problem}; rename it in decode or transform")
        key = name.lower() if dialect.name == "sqlite" else name
        if key in taken:
            problems.append(f"column {name!r} has the name of {taken[key]}; rename it")
        taken.setdefault(key, f"column {name!r}")
    if problems:
        raise ConfigError(problems, subject="staged files")


def _refuse_exact_numbers(schema: pa.Schema) -> None:
    """SQLite would keep them as floats and lose digits."""
    problems = [
        f"column {field.name!r} is {field.type}, which SQLite cannot keep exactly; cast it to a "
        f"string in a transform"
        for field in schema
        if pt.is_decimal(field.type) or field.type == pa.uint64()
    ]
    if problems:
        raise ConfigError(problems, subject="staged files")
