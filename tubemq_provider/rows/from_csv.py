"""Delimited text, one row a body, by Arrow's reader.

A body with a line break is read by itself, so that a quote that is not closed cannot take its
neighbours along; all others are read together. This module must not decide what becomes of bad
bodies.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tubemq_client.errors import ConfigError
from tubemq_provider.rows.bulk import Bad, Decoded, joined, parse_halving
from tubemq_provider.rows.numbers import check_texts
from tubemq_provider.rows.spec import SUBJECT

if TYPE_CHECKING:
    import pyarrow as pa

    from tubemq_provider.rows.spec import DecodeSpec

__all__ = ["CsvBodies"]

_MARKS: Final = rb"^(?:\xef\xbb\xbf)+"
"""Arrow drops a byte order mark at the beginning of what it reads, which is many bodies."""


class CsvBodies:
    """Bodies that have the columns of `schema` in its order. Times may carry a zone; without one
    they are UTC. A byte order mark and a trailing line break are not part of the row."""

    def __init__(self, schema: pa.Schema, spec: DecodeSpec) -> None:
        import pyarrow as pa

        self.schema = schema
        self._spec = spec
        if nested := [item.name for item in schema if pa.types.is_nested(item.type)]:
            raise ConfigError(
                f"schema: column {nested[0]!r} is nested, which delimited text cannot fill",
                subject=SUBJECT,
            )
        self._readings = _readings(schema)

    def decode(self, records: pa.RecordBatch) -> Decoded:
        """See `BodyDecoder`."""
        import pyarrow as pa
        import pyarrow.compute as pc

        bodies = pc.replace_substring_regex(records.column("value"), _MARKS, b"")
        bodies = pc.replace_substring_regex(bodies, rb"\r?\n$", b"")
        broken = pc.match_substring_regex(bodies, rb"[\r\n]")
        blank = pc.equal(pc.binary_length(bodies), 0)
        odd = pc.or_(broken, blank).to_pylist()
        places = [place for place, is_odd in enumerate(odd) if not is_odd]
        found = parse_halving(
            bodies.take(pa.array(places, pa.int64())), places, self._parse, self.schema
        )
        parts, bad = (
            [found],
            [Bad(p, "the body is empty") for p, b in enumerate(blank.to_pylist()) if b],
        )
        for place, is_broken in enumerate(broken.to_pylist()):
            if is_broken:
                one = bodies.slice(place, 1)
                parts.append(parse_halving(one, [place], self._parse, self.schema))
        return _merged(parts, bad)

    def _parse(self, bodies: pa.BinaryArray) -> pa.RecordBatch:
        data = joined(bodies)
        rows = self._read_rows(data)
        self._check_numbers(data, rows)
        return rows

    def _check_numbers(self, data: pa.Buffer, rows: pa.RecordBatch) -> None:
        """Raise what Arrow raises for a number that its reader has changed; see `numbers`."""
        import pyarrow as pa
        import pyarrow.compute as pc

        wanted = [
            item.name
            for item in rows.schema
            if pa.types.is_decimal(item.type)
            or (pa.types.is_floating(item.type) and pc.any(pc.is_inf(rows[item.name])).as_py())
        ]
        if not wanted:
            return
        texts = self._read(data, dict.fromkeys(wanted, pa.string()), wanted)
        for name in wanted:
            check_texts(rows[name], texts[name].combine_chunks())

    def _read_rows(self, data: pa.Buffer) -> pa.RecordBatch:
        import pyarrow as pa

        *others, last = self._readings
        for types in others:
            with suppress(pa.ArrowInvalid):
                return self._rows(self._read(data, types))
        return self._rows(self._read(data, last))

    def _rows(self, table: pa.Table) -> pa.RecordBatch:
        import pyarrow as pa

        rows = table.combine_chunks().to_batches()
        if not rows:
            return pa.RecordBatch.from_pylist([], self.schema)
        columns = [_typed(rows[0].column(item.name), item.type) for item in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _read(
        self, data: pa.Buffer, types: dict[str, pa.DataType], names: Sequence[str] = ()
    ) -> pa.Table:
        """The columns `names`, or all."""
        import pyarrow as pa
        from pyarrow import csv as reader

        return reader.read_csv(
            pa.BufferReader(data),
            read_options=reader.ReadOptions(
                use_threads=False, block_size=data.size + 1, column_names=self.schema.names
            ),
            parse_options=reader.ParseOptions(
                delimiter=self._spec.delimiter,
                quote_char=self._spec.quote,
                newlines_in_values=True,
                ignore_empty_lines=False,
            ),
            convert_options=reader.ConvertOptions(
                column_types=types,
                include_columns=list(names),
                null_values=list(self._spec.null_values),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )


def _readings(schema: pa.Schema) -> list[dict[str, pa.DataType]]:
    """Types to read columns with, to be tried in turn: Arrow wants a zone of all times in a column,
    or of none. With several columns of instants some may have it and some not, so that they are
    read as texts at last."""
    import pyarrow as pa

    given = {item.name: item.type for item in schema}
    instants = [
        item.name
        for item in schema
        if pa.types.is_timestamp(item.type) and item.type.tz is not None
    ]
    readings = [given]
    if instants:
        readings.insert(0, given | dict.fromkeys(instants, pa.timestamp("us")))
    if len(instants) > 1:
        readings.append(given | dict.fromkeys(instants, pa.string()))
    return readings


def _typed(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """The column with its type; times without a zone are UTC."""
    import pyarrow as pa

    if pa.types.is_string(column.type) and pa.types.is_timestamp(type_):
        try:
            return column.cast(type_)
        except pa.ArrowInvalid:
            column = column.cast(pa.timestamp("us"))
    return column.cast(type_)


def _merged(parts: list[Decoded], bad: list[Bad]) -> Decoded:
    """Rows of all parts, in the order of their records."""
    import pyarrow as pa

    if len(parts) == 1:
        return Decoded(parts[0].rows, parts[0].origin, sorted(bad + parts[0].bad, key=_place))
    rows = pa.Table.from_batches([part.rows for part in parts]).combine_chunks()
    origin = [place for part in parts for place in part.origin]
    order = sorted(range(len(origin)), key=origin.__getitem__)
    batches = rows.take(pa.array(order, pa.int64())).combine_chunks().to_batches()
    found = batches[0] if batches else parts[0].rows
    for part in parts:
        bad = bad + part.bad
    return Decoded(found, [origin[i] for i in order], sorted(bad, key=_place))


def _place(bad: Bad) -> int:
    return bad.index
