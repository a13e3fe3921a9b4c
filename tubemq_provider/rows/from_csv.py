"""Delimited text, one row per body, by Arrow's reader.

A body with a line break is parsed separately, so that an unclosed quote cannot affect its
neighbours; all others are parsed together. This module must not decide about bad bodies.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from tubemq_client.errors import ConfigError
from tubemq_provider.files.arrays import int64s, no_rows
from tubemq_provider.rows.bulk import BadBody, Decoded, joined_lines, merged, parse_bodies
from tubemq_provider.rows.compiled import compiled_reader, text_fields
from tubemq_provider.rows.numbers import check_texts, decimals_of_texts, is_odd_float
from tubemq_provider.rows.spec import SUBJECT
from tubemq_provider.rows.times import check_years, times_of_texts

if TYPE_CHECKING:
    import pyarrow as pa

    from tubemq_provider.rows.spec import DecodeSpec

__all__ = ["CsvBodies"]

_BOM: Final = b"\xef\xbb\xbf"
_LEADING_BOMS: Final = rb"^(?:\xef\xbb\xbf)+"
"""Byte order marks at the start of a body: Arrow drops one only at the start of its input, which is
many bodies."""


class CsvBodies:
    """Decoder of bodies that have the columns of `schema` in its order. Times may have a zone;
    without one they are UTC. A byte order mark and a trailing line break are not part of the
    row."""

    def __init__(self, schema: pa.Schema, spec: DecodeSpec) -> None:
        import pyarrow as pa

        self.schema = schema
        self._spec = spec
        if nested := [item.name for item in schema if pa.types.is_nested(item.type)]:
            raise ConfigError(
                f"schema: column {nested[0]!r} is nested, which delimited text cannot fill",
                subject=SUBJECT,
            )
        self._column_types = _column_types(schema)
        self._quote = spec.quote.encode()
        self._delimiter = spec.delimiter.encode()
        self._escape = (spec.escape or "").encode()
        self._sound, self._open, self._escaped = _quote_patterns(spec)
        self._texts = [
            item.name
            for item in schema
            if pa.types.is_string(item.type) or pa.types.is_binary(item.type)
        ]
        signs = [spec.quote + null + spec.quote for null in spec.null_values]
        self._quoted_nulls = [
            sign.encode() for sign in signs if len(self._texts) < len(schema.names)
        ]
        self._compiled = compiled_reader("csv", _table(schema, spec), schema)

    def decode(self, records: pa.RecordBatch) -> Decoded:
        """See `BodyDecoder`."""
        bodies = records.column("value")
        if self._compiled is not None:
            return self._compiled.decode(bodies, self._decode)
        return self._decode(bodies)

    def _decode(self, bodies: pa.BinaryArray) -> Decoded:
        import pyarrow.compute as pc

        raw = _raw(bodies)
        if _BOM in raw:
            bodies = pc.replace_substring_regex(bodies, _LEADING_BOMS, b"")
        broken = []
        if b"\n" in raw or b"\r" in raw:
            bodies = pc.replace_substring_regex(bodies, rb"\r?\n$|\A[\r\n]+\z", b"")
            odd = pc.match_substring_regex(bodies, rb"[\r\n]").to_pylist()
            broken = [place for place, is_odd in enumerate(odd) if is_odd]
        signs = self._quote in raw or (bool(self._escape) and self._escape in raw)
        reasons = self._reasons(bodies, quoted=signs)
        excluded = {*broken, *reasons}
        places = [place for place in range(len(bodies)) if place not in excluded]
        plain = bodies if not excluded else bodies.take(int64s(places))
        parts = [parse_bodies(plain, places, self._parse, self.schema)]
        for place in broken:
            if place not in reasons:
                one = bodies.slice(place, 1)
                parts.append(parse_bodies(one, [place], self._parse, self.schema))
        parts[0].bad += [BadBody(place, reason) for place, reason in reasons.items()]
        return merged(parts, self.schema)

    def _reasons(self, bodies: pa.BinaryArray, *, quoted: bool) -> dict[int, str]:
        """Return the bodies that Arrow must not read, with reasons: it makes a row of an empty body
        if there is one column, joins a quoted value with text after it, closes an open quote, and
        drops an escape that escapes nothing. `quoted`: there may be quotes or escapes."""
        import pyarrow.compute as pc

        reasons: dict[int, str] = {}
        empty = pc.equal(pc.binary_length(bodies), 0)
        if pc.any(empty).as_py():
            reasons = {p: "the body is empty" for p, is_it in enumerate(empty.to_pylist()) if is_it}
        if quoted:
            sound = pc.match_substring_regex(bodies, self._sound)
            if not pc.all(sound).as_py():
                broken = (place for place, is_it in enumerate(sound.to_pylist()) if not is_it)
                reasons |= {place: self._quote_problem(bodies[place].as_py()) for place in broken}
        return reasons

    def _quote_problem(self, body: bytes) -> str:
        for sign in self._escaped.findall(body) if self._escape else ():
            if not sign:
                return "the escape character at the end escapes nothing"
            if sign not in (self._quote, self._delimiter, self._escape, b"\r", b"\n"):
                return "an escape character is neither escaped nor before a character that needs it"
        if self._open.match(body):
            return "the quote of the last value is not closed"
        return "text follows the closing quote of a value"

    def _parse(self, bodies: pa.BinaryArray) -> pa.RecordBatch:
        import pyarrow as pa

        data = joined_lines(bodies)
        raw = data.to_pybytes()
        if raw.endswith(self._delimiter):
            # At the end of its input Arrow treats an empty value as quoted if the one before
            # it is quoted.
            data = pa.py_buffer(raw + b"\n")
        nulls = self._quote in raw and any(null in raw for null in self._quoted_nulls)
        rows = self._read_rows(data, nulls=nulls)
        hexadecimal = (b"x" in raw and b"0x" in raw) or (b"X" in raw and b"0X" in raw)
        self._check_numbers(data, rows, nulls=nulls, hexadecimal=hexadecimal)
        for column in rows.columns:
            check_years(column)
        return rows

    def _check_numbers(
        self, data: pa.Buffer, rows: pa.RecordBatch, *, nulls: bool, hexadecimal: bool
    ) -> None:
        """Raise an Arrow error for a number that its reader has changed; see `numbers`."""
        import pyarrow as pa

        suspects = [
            item.name
            for item in rows.schema
            if (hexadecimal and pa.types.is_integer(item.type))
            or (pa.types.is_floating(item.type) and is_odd_float(rows[item.name]))
        ]
        if not suspects:
            return
        texts = self._read(data, dict.fromkeys(suspects, pa.string()), suspects, nulls=nulls)
        for name in suspects:
            check_texts(rows[name], texts[name].combine_chunks())

    def _read_rows(self, data: pa.Buffer, *, nulls: bool) -> pa.RecordBatch:
        import pyarrow as pa

        *others, last = self._column_types
        for types in others:
            with suppress(pa.ArrowInvalid):
                return self._rows(self._read(data, types, nulls=nulls))
        return self._rows(self._read(data, last, nulls=nulls))

    def _rows(self, table: pa.Table) -> pa.RecordBatch:
        import pyarrow as pa

        rows = table.combine_chunks().to_batches()
        if not rows:
            return no_rows(self.schema)
        columns = [self._typed(rows[0].column(item.name), item.type) for item in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _typed(self, column: pa.Array, type_: pa.DataType) -> pa.Array:
        """Cast the column to its type; times without a zone are UTC."""
        import pyarrow as pa

        if pa.types.is_string(column.type) and pa.types.is_temporal(type_):
            return times_of_texts(_trimmed(column), type_, self._spec.nanoseconds)
        if pa.types.is_decimal(type_):
            return decimals_of_texts(_trimmed(column), type_)
        return column.cast(type_)

    def _read(
        self,
        data: pa.Buffer,
        types: dict[str, pa.DataType],
        names: Sequence[str] = (),
        *,
        nulls: bool,
    ) -> pa.Table:
        """Read the columns `names`, or all. With `nulls` one may be a quoted null value, which is a
        text in text columns, and null in others."""
        import pyarrow as pa

        names = list(names or self.schema.names)
        if not nulls:
            return self._read_some(data, types, names, quoted_nulls=False)
        texts = [name for name in names if name in self._texts]
        others = [name for name in names if name not in self._texts]
        tables = [
            self._read_some(data, types, some, quoted_nulls=some is others)
            for some in (texts, others)
            if some
        ]
        columns = {name: table[name] for table in tables for name in table.column_names}
        return pa.table({name: columns[name] for name in names})

    def _read_some(
        self,
        data: pa.Buffer,
        types: dict[str, pa.DataType],
        names: Sequence[str],
        *,
        quoted_nulls: bool,
    ) -> pa.Table:
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
                escape_char=self._spec.escape or False,
                newlines_in_values=True,
                ignore_empty_lines=False,
            ),
            convert_options=reader.ConvertOptions(
                column_types=types,
                include_columns=names,
                null_values=list(self._spec.null_values),
                strings_can_be_null=True,
                quoted_strings_can_be_null=quoted_nulls,
            ),
        )


def _table(schema: pa.Schema, spec: DecodeSpec) -> tuple[Any, ...] | None:
    """Return the table by which the compiled reader reads; see `native/src/rows/csv.rs`."""
    fields = text_fields(schema, binary=True)
    signs = [sign.encode() for sign in (spec.delimiter, spec.quote, spec.escape or "")]
    if not fields or any(len(sign) > 1 for sign in signs):
        return None
    delimiter, quote, escape = (sign[0] if sign else None for sign in signs)
    return fields, delimiter, quote, escape, [null.encode() for null in spec.null_values]


def _raw(bodies: pa.BinaryArray) -> bytes:
    """Return all bytes of the bodies, and maybe more: used to rule out special cases for the whole
    batch."""
    data = bodies.buffers()[2]
    return b"" if data is None else data.to_pybytes()


def _trimmed(texts: pa.Array) -> pa.Array:
    """Strip the blanks that Arrow's reader ignores."""
    import pyarrow.compute as pc

    return pc.ascii_trim(texts, characters=" \t")


def _quote_patterns(
    spec: DecodeSpec,
) -> tuple[bytes, re.Pattern[bytes], re.Pattern[bytes]]:
    """Return a pattern of bodies whose quotes are closed and followed by a delimiter only, and
    whose escapes are before a character that needs one, for Arrow; one of bodies that end in an
    unclosed quote, and one that finds each escaped character, for Python."""
    quote, delimiter = (re.escape(sign.encode()) for sign in (spec.quote, spec.delimiter))
    escape = re.escape(spec.escape.encode()) if spec.escape else b""
    pair = b"|%b[%b%b%b\r\n]" % (escape, quote, delimiter, escape) if escape else b""
    plain = b"(?:(?:[^%b%b%b]%b)(?:[^%b%b]%b)*)?" % (
        quote, delimiter, escape, pair, delimiter, escape, pair,
    )  # fmt: skip
    inside = b"%b(?:[^%b%b]|%b%b%b)*" % (quote, quote, escape, quote, quote, pair)
    value = b"(?:%b|%b%b)" % (plain, inside, quote)
    before = rb"(?s)\A(?:%b%b)*" % (value, delimiter)
    sound = before + rb"%b[\r\n]*\z" % value
    return sound, re.compile(before + inside + rb"\Z"), re.compile(rb"(?s)%b(.?)" % escape)


def _column_types(schema: pa.Schema) -> list[dict[str, pa.DataType]]:
    """Return types to read columns with, to be tried in turn. Decimals are read as texts, since
    Arrow's reader changes numbers that do not fit. It requires a zone in all times of a column or
    in none, and at most six digits of a second. So times are read as texts in the last attempt."""
    import pyarrow as pa

    types = {
        item.name: pa.string() if pa.types.is_decimal(item.type) else item.type for item in schema
    }
    instants = [
        item.name
        for item in schema
        if pa.types.is_timestamp(item.type) and item.type.tz is not None
    ]
    readings = [types]
    if instants:
        readings.insert(0, types | dict.fromkeys(instants, pa.timestamp("us")))
    if times := [item.name for item in schema if _has_seconds(item.type)]:
        readings.append(types | dict.fromkeys(times, pa.string()))
    return readings


def _has_seconds(type_: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_timestamp(type_) or pa.types.is_time(type_))
