"""Columns of records: names, types, and Parquet encodings.

Spark's schema, Arrow's schema and the writer's encodings follow from one table per kind of source,
so a column is added in one place. This module must not name a kind or import pyspark, and imports
pyarrow only to build a schema: option checks and tasks on a cluster use it too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from tubemq_client.errors import require_extra
from tubemq_provider.windows.spaces import source_package

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Column", "ColumnSet", "columns_of"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column. All are nullable; times are UTC microseconds.

    `repeating` are paths of its Parquet leaves with few distinct values, which get a dictionary;
    other leaves are written plain. `ranged`: readers can skip row groups by its minimum and
    maximum, so it gets statistics.
    """

    name: str
    spark: str
    repeating: tuple[str, ...] = ()
    ranged: bool = False


class ColumnSet:
    """Columns in the order of the full schema.

    `place` are the columns that identify a record within its partition: the offset of its batch,
    and the broker's number for it. By default both are its offset."""

    def __init__(
        self, columns: Iterable[Column], *, place: tuple[str, str] = ("offset", "offset")
    ) -> None:
        self.place = place
        self._columns = {column.name: column for column in columns}

    def __repr__(self) -> str:
        return f"ColumnSet({', '.join(self._columns)})"

    def __iter__(self) -> Iterator[Column]:
        return iter(self._columns.values())

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all columns, in order."""
        return tuple(self._columns)

    def spark_type(self, name: str) -> str | None:
        """Return the Spark SQL type, or None for a name that is not a column."""
        column = self._columns.get(name)
        return None if column is None else column.spark

    def ddl(self, names: Iterable[str] | None = None, *, instants: str = "timestamp") -> str:
        """Return the Spark SQL schema of `names` (by default all); `instants` is the type of
        instants."""
        chosen = [self._columns[name] for name in (self.names if names is None else names)]
        types = [instants if each.spark == "timestamp" else each.spark for each in chosen]
        return ", ".join(f"{each.name} {type_}" for each, type_ in zip(chosen, types, strict=True))

    def arrow_schema(self, names: Iterable[str] | None = None) -> pa.Schema:
        """Return the Arrow schema of `names` (by default all). Needs the `arrow` extra."""
        try:
            import pyarrow as pa
        except ImportError as exc:
            raise require_extra("arrow", exc) from exc
        types = {
            "string": pa.string(),
            "bigint": pa.int64(),
            "timestamp": pa.timestamp("us", tz="UTC"),
            "map<string,string>": pa.map_(pa.string(), pa.string()),
            "array<struct<key:string,value:binary>>": pa.list_(
                pa.struct([("key", pa.string()), ("value", pa.binary())])
            ),
            "binary": pa.binary(),
        }
        chosen = self.names if names is None else names
        return pa.schema([(name, types[self._columns[name].spark]) for name in chosen])

    def repeating(self, present: Iterable[str]) -> list[str]:
        """Return Parquet paths of the columns `present` that get a dictionary."""
        return [path for column in self._of(present) for path in column.repeating]

    def ranged(self, present: Iterable[str]) -> list[str]:
        """Return the columns `present` that get statistics."""
        return [column.name for column in self._of(present) if column.ranged]

    def _of(self, present: Iterable[str]) -> list[Column]:
        names = set(present)
        return [column for column in self if column.name in names]


@cache
def columns_of(source: str) -> ColumnSet:
    """Return the columns of a kind of source. Raises `ConfigError` for an unknown kind."""
    columns: ColumnSet = import_module(f"{source_package(source)}.columns").COLUMNS
    return columns
