"""Unsigned integers in files for tables that know none: whether all values fit the signed type.

Delta has as many bits for them, Iceberg 32 or 64. A file with a larger value is one that no reader
of the table can open again. Judged by the bounds in footers, so no record is read. This module
knows files' facts and no table format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from tubemq_provider.files.footers import arrow_schema_of
from tubemq_provider.windows.facts import FileFact, LeafFact

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["unsigned_problems"]

_MOST_BITS: Final = 64


def unsigned_problems(files: Sequence[FileFact], bits_of: Callable[[int], int]) -> list[str]:
    """Why values of unsigned columns do not fit the table, whose signed type for so many bits has
    `bits_of` them; a line for each column."""
    found: dict[str, str] = {}
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
            found[path] = (
                f"column {path!r} is {kind} and has {has}; the table has no unsigned integers, and "
                f"its {bits} bits go to {most}: cast it to {wider} in decode or transform"
            )
    return list(found.values())


def _unsigned(file: FileFact) -> Iterator[tuple[str, pa.DataType, LeafFact]]:
    """Unsigned leaves of a file: footers have leaves in the order of the schema."""
    import pyarrow as pa

    if not file.schema:
        return
    kinds = [kind for field in arrow_schema_of(file) for kind in _leaves(field.type)]
    if len(kinds) != len(file.leaves):
        return
    for kind, (path, leaf) in zip(kinds, file.leaves.items(), strict=True):
        if pa.types.is_unsigned_integer(kind):
            yield path, kind, leaf


def _leaves(kind: Any) -> Iterator[pa.DataType]:
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        yield from _leaves(kind.storage_type)
    elif pa.types.is_dictionary(kind):
        yield from _leaves(kind.value_type)
    elif pa.types.is_map(kind):
        yield from _leaves(kind.key_type)
        yield from _leaves(kind.item_type)
    elif pa.types.is_nested(kind):
        for index in range(kind.num_fields):
            yield from _leaves(kind.field(index).type)
    else:
        yield kind
