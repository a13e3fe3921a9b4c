"""Interface of body decoders; parsing many bodies at once, with bad ones found by bisection.

Arrow's readers accept or refuse a whole block. A refused block is split in two until a single body
is left, whose error is its reason: the number of parses is small while few bodies are bad. This
module must not know a format.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from tubemq_provider.files.arrays import binaries, int32s, int64s, no_rows

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "BadBody",
    "BodyDecoder",
    "Decoded",
    "joined_lines",
    "merged",
    "moved",
    "parse_bodies",
    "parse_by_bisection",
]


@dataclass(frozen=True, slots=True)
class BadBody:
    """Body that does not decode: its index in the batch, the reason, and its bytes if they are only
    a part of the record's body."""

    index: int
    reason: str
    data: bytes | None = None


@dataclass(slots=True)
class Decoded:
    """Decoded rows, and for each the index of its record in the batch, ascending. `empty` are the
    indexes of valid bodies without a row, such as an empty pack; `notices` counts those that are
    worth a report by kind."""

    rows: pa.RecordBatch
    origin: Sequence[int]
    bad: list[BadBody] = field(default_factory=list)
    empty: list[int] = field(default_factory=list)
    notices: Mapping[str, int] = field(default_factory=Counter)


class BodyDecoder(Protocol):
    """Decoder of one format, configured with one schema."""

    @property
    def schema(self) -> pa.Schema:
        """Decoded columns."""

    def decode(self, records: pa.RecordBatch) -> Decoded:
        """Decode the column ``value`` of `records`. Raises for errors that are not caused by a
        record."""


def joined_lines(bodies: pa.BinaryArray) -> pa.Buffer:
    """Join the bodies with newlines, without a Python object per body."""
    import pyarrow as pa
    import pyarrow.compute as pc

    lines = pa.ListArray.from_arrays(int32s([0, len(bodies)]), bodies)
    return pc.binary_join(lines, binaries([b"\n"])[0])[0].as_buffer()


def parse_bodies(
    bodies: pa.BinaryArray,
    places: list[int],
    parse: Callable[[pa.BinaryArray], pa.RecordBatch],
    schema: pa.Schema,
) -> Decoded:
    """Parse bodies by bisection. `parse` returns exactly one row for each valid body, or raises an
    Arrow error. `places` are the indexes of the bodies in the batch."""
    return parse_by_bisection(
        places, lambda start, end: parse(bodies.slice(start, end - start)), schema
    )


def parse_by_bisection(
    places: list[int], parse: Callable[[int, int], pa.RecordBatch], schema: pa.Schema
) -> Decoded:
    """Parse bodies of any representation by bisection: `parse` takes a half-open range of their
    numbers."""
    import pyarrow as pa

    parsed: list[pa.RecordBatch] = []
    origin: list[int] = []
    bad: list[BadBody] = []
    pending = [(0, len(places))] if places else []
    while pending:
        start, end = pending.pop()
        reason = "it does not hold exactly one row"
        try:
            rows = parse(start, end)
        except (pa.ArrowException, OverflowError) as error:
            rows, reason = None, str(error).splitlines()[0]
        if rows is not None and rows.num_rows == end - start:
            parsed.append(rows)
            origin += places[start:end]
        elif end - start == 1:
            bad.append(BadBody(places[start], reason))
        else:
            middle = (start + end) // 2
            pending += [(middle, end), (start, middle)]
    table = pa.Table.from_batches(parsed, schema).combine_chunks()
    batches = table.to_batches()
    rows = batches[0] if batches else no_rows(schema)
    return Decoded(rows, origin, bad)


def moved(decoded: Decoded, places: Sequence[int]) -> Decoded:
    """Return the outcome of some bodies with their indexes in the batch, which are `places`."""
    return Decoded(
        decoded.rows,
        [places[index] for index in decoded.origin],
        [replace(bad, index=places[bad.index]) for bad in decoded.bad],
        [places[index] for index in decoded.empty],
    )


def merged(parts: Sequence[Decoded], schema: pa.Schema) -> Decoded:
    """Merge the outcomes of parts of a batch, in the order of their records."""
    import pyarrow as pa

    bad = sorted((one for part in parts for one in part.bad), key=lambda one: one.index)
    empty = sorted(place for part in parts for place in part.empty)
    parts = [part for part in parts if part.rows.num_rows] or parts[:1]
    if len(parts) == 1:
        return Decoded(parts[0].rows, parts[0].origin, bad, empty)
    origin = [place for part in parts for place in part.origin]
    order = sorted(range(len(origin)), key=origin.__getitem__)
    table = pa.Table.from_batches([part.rows for part in parts], schema)
    rows = table.take(int64s(order)).combine_chunks().to_batches()[0]
    return Decoded(rows, [origin[index] for index in order], bad, empty)
