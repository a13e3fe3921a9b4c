"""Column numbers (field ids) that a sink wants in the files of a window.

Iceberg finds columns by number. The sink puts the numbers of its table into the staging place,
writers of files put them into the files (`files.field_ids`). This module holds values only: it must
not import pyarrow or do I/O.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

__all__ = ["FieldIds"]

_FIRST: Final = 1_000_000
_RANGE: Final = 1_000_000_000
"""Numbers of new columns: far below those that Iceberg reserves (from 2147483447)."""


@dataclass(frozen=True, slots=True)
class FieldIds:
    """`known` numbers by path (``a``, ``a.part``, ``list.element``, ``map.key``, ``map.value``).
    `used` are numbers that no new column may get. `first`: the table has no columns of its own
    yet, so new ones are counted from the highest known one.

    Two windows that add columns at the same time do not see each other, and each has its numbers in
    its files by then. So the number of a new column follows from its path.
    """

    known: Mapping[str, int]
    used: tuple[int, ...] = ()
    first: bool = False

    def of(self, paths: Iterable[str]) -> dict[str, int]:
        """A number for each of `paths`, which are all paths of a file's columns, in order."""
        found: dict[str, int] = {}
        taken = {*self.used, *self.known.values()}
        for path in paths:
            number = self.known.get(path)
            if number is None and self.first:
                number = max(taken, default=0) + 1
            elif number is None:
                number = _FIRST + int(sha256(path.encode()).hexdigest()[:12], 16) % _RANGE
                while number in taken:
                    number += 1
            found[path] = number
            taken.add(number)
        return found

    def to_json(self) -> str:
        """For tasks on other machines."""
        return json.dumps({"known": dict(self.known), "used": self.used, "first": self.first})

    @classmethod
    def from_json(cls, text: str) -> FieldIds:
        """Inverse of `to_json`."""
        found = json.loads(text)
        return cls(found["known"], tuple(found["used"]), found["first"])
