"""What is known of a data file that was written: enough to publish it without reading it again.

The task that wrote a file says it, or its footer does. Facts are a few hundred bytes a file,
however many records it has, so a driver that collects them moves no records. This module holds
values only: it must not import pyarrow or do I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["FileFact", "Key", "LeafFact", "Piece", "rows_by_partition"]

Piece = tuple[str, int, int, int]
"""Part of a file: partition key, offsets `[start, end)` of the sub-range, rows."""

Key = tuple[str, str, str | None]
"""A value that all rows of a file share by `partition_by`: name, Arrow type, and the value as text
(None: null)."""


@dataclass(frozen=True, slots=True)
class LeafFact:
    """A leaf column of a whole Parquet file: its physical type, compressed bytes, values (nulls
    among them), and what its row groups tell together. `nulls`, `low`, `high` are None where some
    row group does not tell, `low` and `high` also where there are nulls alone."""

    physical: str
    size: int
    values: int
    nulls: int | None = None
    low: Any = None
    high: Any = None

    @property
    def told(self) -> bool:
        """Whether every row group has a least and a largest value and no null, or nulls alone."""
        return self.nulls == self.values or (self.nulls == 0 and self.low is not None)


@dataclass(frozen=True, slots=True)
class FileFact:
    """One data file: its path relative to the staging place (or the window), rows, bytes.

    `partitions` are rows by partition key, None if the file does not say. `pieces` are the
    sub-ranges in it where a task of ours wrote it, `tag` the store's name for just these bytes (an
    ETag; empty where there is none). `schema` is Arrow's, serialised; `leaves` go by Parquet path,
    `nulls` by column, as far as they were counted; `splits` are the places of row groups.
    `keys` are what the rows share, where the sink wants files to be apart by it.
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
        """Nulls of a top-level column; None if they were not counted."""
        counted = self.nulls.get(column)
        leaf = self.leaves.get(column)
        return leaf.nulls if counted is None and leaf is not None else counted


def rows_by_partition(facts: Iterable[FileFact]) -> dict[str, int] | None:
    """Rows of all files by partition key; None if one of them does not say."""
    counted: dict[str, int] = {}
    for fact in facts:
        if fact.partitions is None:
            return None
        for key, rows in fact.partitions.items():
            counted[key] = counted.get(key, 0) + rows
    return counted
