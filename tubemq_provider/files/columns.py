"""Columns of records: names, types, and what Parquet gains from each.

Spark's schema, Arrow's schema and the writer's choices follow from one table that each kind of
source has, so a column is added in one place and no two readers disagree about it. This module must
not name a kind or import pyspark, and imports pyarrow only where a schema is made: option checking
and tasks on a cluster use it too.
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

    `repeating` are the paths of its Parquet leaves that have few values, for which a dictionary
    pays; other leaves are written as they are. `ranged` says that its least and largest value help
    readers to skip row groups.
    """

    name: str
    spark: str
    repeating: tuple[str, ...] = ()
    ranged: bool = False


class ColumnSet:
    """Columns in the order of the full schema. `place` are those by whose numbers a record is named
    beside its partition: the offset of its batch, and the broker's number for it. By default a
    record is a batch of its own, and named by its offset."""

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
        """All names, in order."""
        return tuple(self._columns)

    def spark_type(self, name: str) -> str | None:
        """The type as Spark SQL writes it, or None for a name that is not a column."""
        column = self._columns.get(name)
        return None if column is None else column.spark

    def ddl(self, names: Iterable[str] | None = None, *, instants: str = "timestamp") -> str:
        """The schema of `names` (all by default) as Spark SQL writes it; `instants` is the word for
        those."""
        chosen = [self._columns[name] for name in (self.names if names is None else names)]
        types = [instants if each.spark == "timestamp" else each.spark for each in chosen]
        return ", ".join(f"{each.name} {type_}" for each, type_ in zip(chosen, types, strict=True))

    def arrow_schema(self, names: Iterable[str] | None = None) -> pa.Schema:
        """The Arrow schema of `names` (all by default). Needs the `arrow` extra."""
        try:
            import pyarrow as pa
        except ImportError as exc:
            raise require_extra("arrow", exc) from exc
        types = {
            "string": pa.string(),
            "bigint": pa.int64(),
            "timestamp": pa.timestamp("us", tz="UTC"),
            "map<string,string>": pa.map_(pa.string(), pa.string()),
            "binary": pa.binary(),
        }
        chosen = self.names if names is None else names
        return pa.schema([(name, types[self._columns[name].spark]) for name in chosen])

    def repeating(self, present: Iterable[str]) -> list[str]:
        """Parquet paths of the columns `present` that a dictionary is written for."""
        return [path for column in self._of(present) for path in column.repeating]

    def ranged(self, present: Iterable[str]) -> list[str]:
        """The columns `present` that statistics are written for."""
        return [column.name for column in self._of(present) if column.ranged]

    def _of(self, present: Iterable[str]) -> list[Column]:
        names = set(present)
        return [column for column in self if column.name in names]


@cache
def columns_of(source: str) -> ColumnSet:
    """The columns of a kind of source. Raises `ConfigError` for one that is not known here."""
    found: ColumnSet = import_module(f"{source_package(source)}.columns").COLUMNS
    return found
