"""What a decoder of bodies is and gives back; many bodies in one parse, the bad ones by halving.

Arrow's readers take a whole block or refuse it. So a block that is refused is cut in two until what
is left is one body, whose error is its reason: as many parses as a few bad bodies cost. This module
must not know a format.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Bad", "BodyDecoder", "Decoded", "by_halves", "joined", "parse_halving"]


@dataclass(frozen=True, slots=True)
class Bad:
    """A body that is no row: its place in the batch, why, and its bytes if they are only a part of
    the record's body."""

    index: int
    reason: str
    data: bytes | None = None


@dataclass(slots=True)
class Decoded:
    """Rows, and for each the place of its record in the batch, ascending. `empty` are the places of
    sound bodies that hold no row at all, as an empty pack does."""

    rows: pa.RecordBatch
    origin: list[int]
    bad: list[Bad] = field(default_factory=list)
    empty: list[int] = field(default_factory=list)


class BodyDecoder(Protocol):
    """One format, set up for one schema."""

    @property
    def schema(self) -> pa.Schema:
        """The decoded columns."""

    def decode(self, records: pa.RecordBatch) -> Decoded:
        """The rows in the column ``value`` of `records`, and what is bad. Raises for faults that
        are not a record's."""


def joined(bodies: pa.BinaryArray) -> pa.Buffer:
    """The bodies, a newline between each two, without an object per body."""
    import pyarrow as pa
    import pyarrow.compute as pc

    lines = pa.ListArray.from_arrays(pa.array([0, len(bodies)], pa.int32()), bodies)
    return pc.binary_join(lines, b"\n")[0].as_buffer()


def parse_halving(
    bodies: pa.BinaryArray,
    places: list[int],
    parse: Callable[[pa.BinaryArray], pa.RecordBatch],
    schema: pa.Schema,
) -> Decoded:
    """`parse` makes exactly one row of each sound body, or raises what Arrow raises. `places` says
    where in the batch each body is."""
    return by_halves(places, lambda start, end: parse(bodies.slice(start, end - start)), schema)


def by_halves(
    places: list[int], parse: Callable[[int, int], pa.RecordBatch], schema: pa.Schema
) -> Decoded:
    """The same with bodies in any shape: `parse` takes those from a number up to another."""
    import pyarrow as pa

    found: list[pa.RecordBatch] = []
    origin: list[int] = []
    bad: list[Bad] = []
    waiting = [(0, len(places))] if places else []
    while waiting:
        start, end = waiting.pop()
        reason = "it does not hold exactly one row"
        try:
            rows = parse(start, end)
        except (pa.ArrowException, OverflowError) as error:
            rows, reason = None, str(error).splitlines()[0]
        if rows is not None and rows.num_rows == end - start:
            found.append(rows)
            origin += places[start:end]
        elif end - start == 1:
            bad.append(Bad(places[start], reason))
        else:
            middle = (start + end) // 2
            waiting += [(middle, end), (start, middle)]
    table = pa.Table.from_batches(found, schema).combine_chunks()
    batches = table.to_batches()
    rows = batches[0] if batches else pa.RecordBatch.from_pylist([], schema)
    return Decoded(rows, origin, bad)
