"""Facts of a written data file, sufficient to publish it without reading it again.

They come from the task that wrote the file, or from its footer. Facts take a few hundred bytes a
file, independent of its records, so a driver that collects them moves no records. This module has
values only: it must not import pyarrow or do I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["FileFact", "Key", "LeafFact", "Piece", "rows_by_partition"]

Piece = tuple[str, int, int, int]
"""Part of a file: partition key, offsets `[start, end)` of the sub-range, number of rows."""

Key = tuple[str, str, str | None]
"""Partition value that all rows of a file share: name, Arrow type, and the value as text (None:
null)."""


@dataclass(frozen=True, slots=True)
class LeafFact:
    """Statistics of a leaf column over a whole Parquet file: physical type, compressed bytes,
    number of values (with nulls), nulls, minimum and maximum. `nulls`, `low` and `high` are None if
    a row group has no statistics, `low` and `high` also if all values are null."""

    physical: str
    size: int
    values: int
    nulls: int | None = None
    low: Any = None
    high: Any = None

    @property
    def told(self) -> bool:
        """True if every row group has minimum, maximum and no null, or nulls alone."""
        return self.nulls == self.values or (self.nulls == 0 and self.low is not None)


@dataclass(frozen=True, slots=True)
class FileFact:
    """One data file: path relative to the staging place (or the window), rows, size in bytes.

    `partitions` are rows by partition key, None if unknown. `pieces` are the sub-ranges in it, if a
    task of this package wrote it. `tag` is the store's ETag ("" without one). `schema` is Arrow's,
    serialised. `leaves` are by Parquet path, `nulls` by column if counted, `splits` the offsets of
    row groups. `keys` are the partition values of its rows, if the sink partitions files.
    """

    path: str
    rows: int
    size: int = 0
    partitions: Mapping[str, int] | None = None
    pieces: tuple[Piece, ...] = ()
    tag: str = ""
    schema: bytes = field(default=b"", repr=False)
    leaves: Mapping[str, LeafFact] = field(default_factory=dict, repr=False)
    nulls: Mapping[str, int] = field(default_factory=dict, repr=False)
    splits: tuple[int, ...] = field(default=(), repr=False)
    keys: tuple[Key, ...] = ()

    def null_count(self, column: str) -> int | None:
        """Return the nulls of a top-level column; None if they were not counted."""
        counted = self.nulls.get(column)
        leaf = self.leaves.get(column)
        return leaf.nulls if counted is None and leaf is not None else counted


def rows_by_partition(facts: Iterable[FileFact]) -> dict[str, int] | None:
    """Return rows of all files by partition key; None if unknown for one of them."""
    counted: dict[str, int] = {}
    for fact in facts:
        if fact.partitions is None:
            return None
        for key, rows in fact.partitions.items():
            counted[key] = counted.get(key, 0) + rows
    return counted
