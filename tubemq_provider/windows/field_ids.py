"""Column numbers (field ids) that a sink wants in the files of a window.

Iceberg finds columns by number. The sink passes the numbers of its table in the staging place, and
writers put them into the files (`files.field_ids`). This module has values only: it must not import
pyarrow or do I/O.
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
"""Size of the number range for new columns: below those that Iceberg reserves (2147483447 on)."""


@dataclass(frozen=True, slots=True)
class FieldIds:
    """Column numbers `known` by path (``a``, ``a.part``, ``list.element``, ``map.key``,
    ``map.value``).

    `used` are numbers that no new column may get. `first`: the table has no columns yet, so new
    ones are numbered after the highest known number. Otherwise the number of a new column is a hash
    of its path: two concurrent windows that add the same column write equal numbers into their
    files, although neither sees the other.
    """

    known: Mapping[str, int]
    used: tuple[int, ...] = ()
    first: bool = False

    def of(self, paths: Iterable[str]) -> dict[str, int]:
        """Return a number for each of `paths`: all paths of a file's columns, in order."""
        numbers: dict[str, int] = {}
        taken = {*self.used, *self.known.values()}
        for path in paths:
            number = self.known.get(path)
            if number is None and self.first:
                number = max(taken, default=0) + 1
            elif number is None:
                number = _FIRST + int(sha256(path.encode()).hexdigest()[:12], 16) % _RANGE
                while number in taken:
                    number += 1
            numbers[path] = number
            taken.add(number)
        return numbers

    def to_json(self) -> str:
        """Serialise for tasks on other machines."""
        return json.dumps({"known": dict(self.known), "used": self.used, "first": self.first})

    @classmethod
    def from_json(cls, text: str) -> FieldIds:
        """Parse the text of `to_json`."""
        document = json.loads(text)
        return cls(document["known"], tuple(document["used"]), document["first"])
