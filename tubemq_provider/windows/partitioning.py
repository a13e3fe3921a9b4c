"""Partitioning of files by columns, days and hours: the option `partition_by` of sinks.

A sink passes it in the staging place, writers partition their files by it, and the facts of each
file have the values that all of its rows share. This module has values only: it must not import
pyarrow or do I/O.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Final, Literal

from tubemq_client.errors import ConfigError

__all__ = ["MAX_PARTITIONS", "Layout", "PartitionBy", "PartitionField", "partition_problems"]

MAX_PARTITIONS: Final = 1000
"""Default of `max_partitions`: most partitions that one task may write of a window."""

Layout = Literal["folders", "values", "columns"]
"""Place of a file's partition values: folder names instead of columns (Hive), the commit and folder
names instead of columns (Delta), or columns as well (Iceberg)."""

_FIELD = re.compile(r"(day|hour)\(\s*([^()]+?)\s*\)|([^()]+)")


@dataclass(frozen=True, slots=True)
class PartitionField:
    """Partition field: a column, or the day or hour (UTC) of a column of instants."""

    column: str
    transform: Literal["identity", "day", "hour"] = "identity"

    @property
    def name(self) -> str:
        """Name of the partition: the column, ``<column>_day`` or ``<column>_hour``."""
        return self.column if self.transform == "identity" else f"{self.column}_{self.transform}"

    def __str__(self) -> str:
        return self.column if self.transform == "identity" else f"{self.transform}({self.column})"

    @classmethod
    def parse(cls, text: str) -> PartitionField:
        """Parse ``country``, ``day(msg_time)`` or ``hour(msg_time)``. Raises `ConfigError`."""
        match = _FIELD.fullmatch(text.strip())
        if match is None:
            raise ConfigError(
                f"{text!r} is neither a column nor day(<column>) nor hour(<column>)",
                subject="partition_by",
            )
        if match[3]:
            return cls(match[3])
        return cls(match[2], "day" if match[1] == "day" else "hour")


@dataclass(frozen=True, slots=True)
class PartitionBy:
    """Partitioning of files: rows with different values of `fields` are in different files.

    `limit` bounds the partitions that one task writes, each of which costs a file and memory."""

    fields: tuple[PartitionField, ...]
    layout: Layout
    limit: int = MAX_PARTITIONS

    @classmethod
    def of(
        cls, given: Sequence[str] | str, layout: Layout, limit: int | None = None
    ) -> PartitionBy | None:
        """Parse a user's option; None if it is empty. Raises `ConfigError` with every problem."""
        texts = [given] if isinstance(given, str) else list(given)
        if problems := partition_problems(texts, limit, folders=layout == "folders"):
            raise ConfigError(problems, subject="partition_by")
        if not texts:
            return None
        return cls(tuple(map(PartitionField.parse, texts)), layout, limit or MAX_PARTITIONS)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the partitions, in order."""
        return tuple(field.name for field in self.fields)

    @property
    def moved(self) -> frozenset[str]:
        """Columns that are left out of the files."""
        if self.layout == "columns":
            return frozenset()
        return frozenset(f.column for f in self.fields if f.transform == "identity")

    def __str__(self) -> str:
        return ", ".join(map(str, self.fields))

    def to_json(self) -> str:
        """Serialise for tasks on other machines."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> PartitionBy:
        """Parse the text of `to_json`."""
        document = json.loads(text)
        fields = tuple(PartitionField(**field) for field in document["fields"])
        return cls(fields, document["layout"], document["limit"])


def partition_problems(
    given: Iterable[str], limit: int | None = None, *, folders: bool = False
) -> list[str]:
    """Return problems of `partition_by` and `max_partitions` that need no schema. `folders`: the
    partitions name folders."""
    problems, names = [], []
    for text in given:
        try:
            names.append(PartitionField.parse(text).name)
        except ConfigError as exc:
            problems += exc.problems
    if twice := sorted({name for name in names if names.count(name) > 1}):
        problems.append(f"{', '.join(twice)} is named twice")
    problems += [
        f"{name} would be the name of a folder, and readers (Spark, pyarrow) skip folders whose "
        f"names begin with _ or a dot; rename the column in decode or transform"
        for name in names
        if folders and name.startswith(("_", "."))
    ]
    if limit is not None and limit < 1:
        problems.append(f"max_partitions {limit} is not >= 1")
    if limit is not None and not names and not problems:
        problems.append("max_partitions has no effect without partition_by")
    return problems
