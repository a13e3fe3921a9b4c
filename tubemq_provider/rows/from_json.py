"""JSON objects, one per body, by Arrow's reader.

That reader takes one value after the other, and crashes on some that are no objects (a bare
``null`` ends the process). So a body is passed to it only if it begins like an object and nothing
can follow that object; any other is parsed by Python first, and put on one line. This module must
not decide about bad bodies.
"""

from __future__ import annotations

import binascii
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tubemq_client.errors import ConfigError
from tubemq_provider.files.arrays import binaries, flags, int32s, no_rows
from tubemq_provider.rows.bulk import BadBody, Decoded, joined_lines, parse_bodies
from tubemq_provider.rows.compiled import compiled_reader, text_fields
from tubemq_provider.rows.ddl import MAX_NESTING
from tubemq_provider.rows.json_types import as_schema_type
from tubemq_provider.rows.numbers import wide_decimal
from tubemq_provider.rows.spec import SUBJECT
from tubemq_provider.rows.times import check_years, has_nanoseconds, times_of_texts

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["JsonBodies", "infer_schema"]

_OBJECT: Final = rb"^[ \t]*\{"
_SPACES: Final = {ord("\n"): " ", ord("\r"): " "}
_TRAILING: Final = rb"\}[ \t\r]*[^ \t\r,\]}]"
"""Anything but a comma, another bracket or the end after a closing brace, unless it is in a
string."""
_NESTING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)
_DEEPEST: Final = 1 + MAX_NESTING
"""Maximal nesting of a body; its outermost object is no type of a column."""
_STEP: Final = {b"{": 1, b"[": 1, b"}": -1, b"]": -1}
_NO_NUMBERS: Final = (rb"NaN[\s,\]}]", rb"Inf[\s,\]}i]")
"""Words that Arrow reads as numbers, though they are not JSON. Two searches, because RE2 is four
times as fast with a constant prefix."""


class JsonBodies:
    """Decoder of bodies that are JSON objects with the fields of `schema`; missing ones are null.

    Strings become times and dates, and Base64 becomes bytes, where the schema has such types. With
    `unknown_fields` ``fail`` an unknown field makes a body bad; ignored ones cost nothing.
    """

    def __init__(
        self, schema: pa.Schema, unknown_fields: str = "ignore", nanoseconds: str = "fail"
    ) -> None:
        import pyarrow as pa

        self.schema = schema
        if maps := [item.name for item in schema if "map<" in str(item.type)]:
            raise ConfigError(
                f"schema: column {maps[0]!r} is a map, which JSON bodies cannot fill; name its "
                "keys as a struct, or use a function",
                subject=SUBJECT,
            )
        self._read_as, self._read_as_texts = (
            pa.schema([item.with_type(_read_as(item.type, texts=texts)) for item in schema])
            for texts in (False, True)
        )
        self._nanoseconds = nanoseconds
        self._unknown = "error" if unknown_fields == "fail" else "ignore"
        fields = text_fields(schema)
        table = fields and (fields, unknown_fields == "fail")
        self._compiled = compiled_reader("json", table, schema)

    def decode(self, records: pa.RecordBatch) -> Decoded:
        """See `BodyDecoder`."""
        bodies = records.column("value")
        if self._compiled is not None:
            return self._compiled.decode(bodies, self._decode)
        return self._decode(bodies)

    def _decode(self, values: pa.BinaryArray) -> Decoded:
        bodies, places, bad = _readable(values)
        decoded = parse_bodies(bodies, places, self._parse, self.schema)
        bad += [replace(one, reason=_in_words(one.reason)) for one in decoded.bad]
        return Decoded(decoded.rows, decoded.origin, sorted(bad, key=_place))

    def _parse(self, bodies: pa.BinaryArray) -> pa.RecordBatch:
        import pyarrow as pa

        table = self._read(bodies).select(self.schema.names)
        rows = table.combine_chunks().to_batches()
        if not rows:
            return no_rows(self.schema)
        columns = [
            _as_type(rows[0].column(item.name), item.type, self._nanoseconds)
            for item in self.schema
        ]
        for column in columns:
            _check_cells(column)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _read(self, bodies: pa.BinaryArray) -> pa.Table:
        """Parse the bodies; instants are read as texts only where Arrow refuses their digits."""
        import pyarrow as pa

        try:
            return _read(bodies, self._read_as, self._unknown)
        except pa.ArrowInvalid:
            if self._read_as_texts.equals(self._read_as) or not has_nanoseconds(bodies):
                raise
        return _read(bodies, self._read_as_texts, self._unknown)


def infer_schema(bodies: pa.BinaryArray) -> pa.Schema:
    """Infer the schema of JSON objects with Arrow; bad bodies are ignored, and so are fields that
    never have a value. Raises `ConfigError` for fields that no column can hold, and for bodies that
    nest deeper than schemas can express."""
    import pyarrow as pa

    sound, _, _ = _readable(bodies)
    depths = [_depth(body) for body in sound.to_pylist()]
    if any(depth is not None and depth > _DEEPEST for depth in depths):
        raise ConfigError(
            f"schema: a record nests too deep for one, with at most {MAX_NESTING} types in "
            f"each other",
            subject=SUBJECT,
        )
    sound = sound.filter(flags(depth is not None for depth in depths))
    schema = pa.schema([])
    pending = [(0, len(sound))] if len(sound) else []
    while pending:
        start, end = pending.pop()
        try:
            read = _read(sound.slice(start, end - start), None, "infer").schema
            schema = pa.unify_schemas([schema, read], promote_options="permissive")
        except pa.ArrowException:
            if end - start > 1:
                middle = (start + end) // 2
                pending += [(middle, end), (start, middle)]
    return as_schema_type(schema, sound)


def _depth(body: bytes) -> int | None:
    """Return the nesting of objects and lists; None for unbalanced brackets. Checked before Arrow
    infers a type, whose recursion crashes the process at some thousands."""
    deepest = depth = 0
    for sign in _NESTING.finditer(body):
        depth += _STEP.get(sign[0], 0)
        deepest = max(deepest, depth)
    return None if depth else deepest


def _read(bodies: pa.BinaryArray, schema: pa.Schema | None, unknown: str) -> pa.Table:
    import pyarrow as pa
    from pyarrow import json as reader

    bodies.cast(pa.string())  # refuse invalid UTF-8, which Arrow's reader accepts
    data = joined_lines(bodies)
    return reader.read_json(
        pa.BufferReader(data),
        read_options=reader.ReadOptions(use_threads=False, block_size=data.size + 1),
        parse_options=reader.ParseOptions(
            explicit_schema=schema, newlines_in_values=False, unexpected_field_behavior=unknown
        ),
    )


def _readable(bodies: pa.BinaryArray) -> tuple[pa.BinaryArray, list[int], list[BadBody]]:
    """Return the bodies that Arrow may read, their indexes in the batch, and the bodies that are no
    objects."""
    import pyarrow.compute as pc

    odd = pc.match_substring(bodies, b"\n")
    for pattern in (_TRAILING, *_NO_NUMBERS):
        odd = pc.or_(odd, pc.match_substring_regex(bodies, pattern))
    plain = pc.and_not(pc.match_substring_regex(bodies, _OBJECT), odd)
    if pc.all(plain).as_py():
        return bodies, list(range(len(bodies))), []
    readable: list[bytes] = []
    places: list[int] = []
    bad: list[BadBody] = []
    for place, (body, is_plain) in enumerate(
        zip(bodies.to_pylist(), plain.to_pylist(), strict=True)
    ):
        try:
            readable.append(body if is_plain else _one_line(body))
            places.append(place)
        except (ValueError, TypeError, RecursionError) as error:
            bad.append(BadBody(place, str(error).splitlines()[0]))
    return binaries(readable), places, bad


def _one_line(body: bytes | None) -> bytes:
    """Return the object in UTF-8 on one line; numbers stay as written, since floats have fewer
    digits than decimals. A line break within a string is not JSON."""
    text = (body or b"").decode(json.detect_encoding(body or b""))
    document = json.loads(text, parse_constant=_refuse, parse_float=str, parse_int=str)
    if not isinstance(document, dict):
        raise TypeError(f"it is JSON of another kind ({type(document).__name__}), not an object")
    return text.translate(_SPACES).encode()


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _in_words(reason: str) -> str:
    """Return why Arrow does not parse a body, in terms of its columns instead of Arrow's rows."""
    changed = re.match(r"JSON parse error: Column\(/(.+)\) changed from (\w+) to (\w+)", reason)
    if changed:
        path, wanted, found = changed.groups()
        column = path.replace("/[]", "[]").replace("/", ".")
        return f"column {column!r} has the JSON type {found}, and needs {wanted}"
    return re.sub(r"^JSON parse error: (.+?)\.? in row \d+$", r"it is not JSON: \1", reason)


def _place(bad: BadBody) -> int:
    return bad.index


def _read_as(type_: pa.DataType, *, texts: bool) -> pa.DataType:
    """Return the type to read a column with. Dates are read as texts and cast, because Arrow
    accepts numbers as days. So are times of day, bytes, and instants without a zone, because Arrow
    converts those that have one to UTC; with `texts` all instants. Decimals are read with room for
    every number and cast, because Arrow changes numbers that do not fit."""
    import pyarrow as pa

    if pa.types.is_timestamp(type_) and type_.tz is not None and not texts:
        return type_
    if pa.types.is_temporal(type_) or pa.types.is_binary(type_):
        return pa.string()
    if pa.types.is_decimal128(type_):
        return wide_decimal(type_)
    if pa.types.is_list(type_):
        return pa.list_(_read_as(type_.value_type, texts=texts))
    if pa.types.is_struct(type_):
        return pa.struct([item.with_type(_read_as(item.type, texts=texts)) for item in type_])
    return type_


def _as_type(column: pa.Array, type_: pa.DataType, nanoseconds: str) -> pa.Array:
    """Cast the column to the type of the schema. Arrow's own cast also parses the values under
    nulls, which are no dates."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.type.equals(type_):
        return column
    if pa.types.is_list(type_):
        lengths = pc.fill_null(pc.list_value_length(column), 0)
        offsets = pa.concat_arrays([int32s([0]), pc.cumulative_sum(lengths)])
        cells = _as_type(column.flatten(), type_.value_type, nanoseconds)
        return pa.ListArray.from_arrays(offsets, cells, type_, mask=column.is_null())
    if pa.types.is_struct(type_):
        children = zip(column.flatten(), type_, strict=True)
        cells = [_as_type(child, item.type, nanoseconds) for child, item in children]
        return pa.StructArray.from_arrays(cells, fields=list(type_), mask=column.is_null())
    if pa.types.is_timestamp(type_) or pa.types.is_time(type_):
        return times_of_texts(column, type_, nanoseconds)
    if pa.types.is_binary(type_):
        return _bytes(column)
    return column.cast(type_)


def _bytes(texts: pa.Array) -> pa.Array:
    """Decode Base64 texts, the usual form of bytes in JSON."""
    import pyarrow as pa

    try:
        cells = [
            None if text is None else binascii.a2b_base64(text.encode(), strict_mode=True)
            for text in texts.to_pylist()
        ]
    except binascii.Error as error:
        raise pa.ArrowInvalid(f"a text is no Base64, in which JSON holds bytes: {error}") from error
    return binaries(cells)


def _check_cells(column: pa.Array) -> None:
    """Refuse what Arrow lets through: it makes a number infinite that is too big for its column
    (without an exponent above 308, also in a `double`), and accepts the year 0."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_list(column.type):
        _check_cells(column.flatten())
    elif pa.types.is_struct(column.type):
        for child in column.flatten():
            _check_cells(child)
    elif pa.types.is_floating(column.type) and pc.any(pc.is_inf(column)).as_py():
        advice = "; make it a double" if pa.types.is_float32(column.type) else ""
        raise pa.ArrowInvalid(f"a number is too big to be stored in a {column.type}{advice}")
    check_years(column)
