"""Unsigned integers in files for tables that know none: whether all values fit the signed type.

Delta has as many bits for them, Iceberg 32 or 64. A file with a larger value is one that no reader
of the table can open again. Judged by the bounds in footers, so no record is read. This module
knows files' facts and no table format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from tubemq_provider.files.footers import leaves_of
from tubemq_provider.windows.facts import FileFact, LeafFact

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["unsigned_problems"]

_MOST_BITS: Final = 64


def unsigned_problems(files: Sequence[FileFact], bits_of: Callable[[int], int]) -> list[str]:
    """Return a line for each unsigned column whose values exceed the table's signed type, which has
    `bits_of` the column's bits."""
    problems_by_column: dict[str, str] = {}
    for file in files:
        for path, kind, leaf in _unsigned(file):
            bits = bits_of(kind.bit_width)
            most = 2 ** (bits - 1) - 1
            if leaf.nulls == leaf.values:
                continue
            if leaf.high is not None and int(leaf.high) <= most:
                continue
            has = "values that its footer does not tell" if leaf.high is None else str(leaf.high)
            wider = "bigint" if kind.bit_width < _MOST_BITS else "decimal(20, 0)"
            problems_by_column[path] = (
                f"column {path!r} is {kind} and has {has}; the table has no unsigned integers, and "
                f"its {bits} bits go to {most}: cast it to {wider} in decode or transform"
            )
    return list(problems_by_column.values())


def _unsigned(file: FileFact) -> Iterator[tuple[str, pa.DataType, LeafFact]]:
    import pyarrow as pa

    for _, kind, path, leaf in leaves_of(file):
        if pa.types.is_unsigned_integer(kind):
            yield path, kind, leaf
