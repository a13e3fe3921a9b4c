"""What a sink wants files to be apart by: columns, days and hours, as `partition_by` says them.

A sink says it in the staging place, writers of files obey, and each file comes back with the
values that all of its rows share. This module holds values only: it must not import pyarrow or do
I/O.
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
"""The most partitions one task may write of a window, unless `max_partitions` says otherwise."""

Layout = Literal["folders", "values", "columns"]
"""Where a file's values are: in the names of folders and not in the file, as Hive has it; in the
commit and in the names of folders, as Delta has it; in the file's columns too, as Iceberg has
it."""

_FIELD = re.compile(r"(day|hour)\(\s*([^()]+?)\s*\)|([^()]+)")


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A column, or the day or hour (UTC) of one that holds instants."""

    column: str
    transform: Literal["identity", "day", "hour"] = "identity"

    @property
    def name(self) -> str:
        """What the partition is called: the column, ``<column>_day`` or ``<column>_hour``."""
        return self.column if self.transform == "identity" else f"{self.column}_{self.transform}"

    def __str__(self) -> str:
        return self.column if self.transform == "identity" else f"{self.transform}({self.column})"

    @classmethod
    def parse(cls, text: str) -> PartitionField:
        """``country``, ``day(msg_time)``, ``hour(msg_time)``. Raises `ConfigError`."""
        found = _FIELD.fullmatch(text.strip())
        if found is None:
            raise ConfigError(
                f"{text!r} is neither a column nor day(<column>) nor hour(<column>)",
                subject="partition_by",
            )
        if found[3]:
            return cls(found[3])
        return cls(found[2], "day" if found[1] == "day" else "hour")


@dataclass(frozen=True, slots=True)
class PartitionBy:
    """Rows that differ in `fields` are in different files. `limit` bounds the partitions that one
    task writes: each costs a file and memory."""

    fields: tuple[PartitionField, ...]
    layout: Layout
    limit: int = MAX_PARTITIONS

    @classmethod
    def of(
        cls, given: Sequence[str] | str, layout: Layout, limit: int | None = None
    ) -> PartitionBy | None:
        """What a user says; None if it is nothing. Raises `ConfigError` with every problem."""
        texts = [given] if isinstance(given, str) else list(given)
        if problems := partition_problems(texts, limit, folders=layout == "folders"):
            raise ConfigError(problems, subject="partition_by")
        if not texts:
            return None
        return cls(tuple(map(PartitionField.parse, texts)), layout, limit or MAX_PARTITIONS)

    @property
    def names(self) -> tuple[str, ...]:
        """What the partitions are called, in order."""
        return tuple(field.name for field in self.fields)

    @property
    def moved(self) -> frozenset[str]:
        """Columns that are not in the files."""
        if self.layout == "columns":
            return frozenset()
        return frozenset(f.column for f in self.fields if f.transform == "identity")

    def __str__(self) -> str:
        return ", ".join(map(str, self.fields))

    def to_json(self) -> str:
        """For tasks on other machines."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> PartitionBy:
        """What `to_json` wrote."""
        found = json.loads(text)
        fields = tuple(PartitionField(**field) for field in found["fields"])
        return cls(fields, found["layout"], found["limit"])


def partition_problems(
    given: Iterable[str], limit: int | None = None, *, folders: bool = False
) -> list[str]:
    """What is wrong with `partition_by` and `max_partitions`, as far as words tell. `folders`: they
    are called by the names of the partitions."""
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
