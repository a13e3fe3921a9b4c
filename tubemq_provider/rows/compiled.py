"""Compiled reading of bodies into columns, where the client's compiled module is installed.

A `CompiledReader` reads what is usual in a format, all bodies at once and without a Python object
per record, and leaves every other body to the decoder of the format, which is the reference: it
reads such a body, or refuses it with the reason. So both ways give the same rows and bad records
(`tests/provider/rows/test_compiled.py`), and this module must not decide about a body.

The environment decides as for the client: `TUBEMQ_NATIVE=0` turns it off, and with
`TUBEMQ_NATIVE=1` its absence is an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tubemq_provider.files.arrays import int64s
from tubemq_provider.rows.bulk import Decoded, merged, moved

if TYPE_CHECKING:
    import pyarrow as pa

    from tubemq_client import _native

__all__ = ["CompiledReader", "Unpacked", "compiled_reader", "compiled_unpack", "text_fields"]


def compiled_reader(
    format_: str, table: Any, schema: pa.Schema, **start: Any
) -> CompiledReader | None:
    """Return a reader by the `table` of a format, for rows with `schema`.

    `start` says where the data of a body begins: `skip` bytes, the whole `mark` of bodies that
    begin with its first two bytes, `places` that follow a zero byte. None without the compiled
    module, or for a table that it does not know.
    """
    make = None if table is None else _compiled("Reader")
    if make is None:
        return None
    try:
        return CompiledReader(make(format_, table, **start), schema)
    except (ValueError, OverflowError):
        return None


def _compiled(name: str) -> Any:
    """Return a name of the compiled module; None without it."""
    if os.environ.get("TUBEMQ_NATIVE") == "0":
        return None
    try:
        from tubemq_client import _native

        return getattr(_native, name)
    except (ImportError, AttributeError):
        if os.environ.get("TUBEMQ_NATIVE") == "1":
            raise
        return None


def compiled_unpack() -> Callable[[pa.BinaryArray, int], Unpacked | None] | None:
    """Return the function that unpacks InLong's packs up to a number of records; None without the
    compiled module."""
    found = _compiled("unpack")
    if found is None:
        return None

    def unpack(bodies: pa.BinaryArray, most_records: int) -> Unpacked | None:
        import pyarrow as pa

        _, offsets, data = bodies.buffers()
        if bodies.null_count:
            return None
        unpacked = found(offsets, data, bodies.offset, len(bodies), most_records)
        if unpacked is None:
            return None
        schema = pa.schema(
            [
                ("origin", pa.int64()),
                ("index", pa.int32()),
                ("time", pa.timestamp("us", tz="UTC")),
                ("attributes", pa.int32()),
                ("value", pa.binary()),
            ]
        )
        return Unpacked(pa.record_batch(_WithSchema(unpacked[0], schema)), *unpacked[1:])

    return unpack


@dataclass(frozen=True, slots=True)
class Unpacked:
    """Records of packs: `rows` with the index of the pack, the index in it, its time, the number of
    the `attributes` and the body; indexes of packs that are `left` to the reference, and of `empty`
    ones."""

    rows: pa.RecordBatch
    attributes: list[bytes]
    left: list[int]
    empty: list[int]


class CompiledReader:
    """Reader of the bodies of one schema, with the reference for those that it does not read."""

    def __init__(self, reader: _native.Reader, schema: pa.Schema) -> None:
        self._reader = reader
        self._schema = schema

    def decode(
        self, bodies: pa.BinaryArray, reference: Callable[[pa.BinaryArray], Decoded]
    ) -> Decoded:
        """Decode all bodies; `reference` decodes those that are left to it."""
        import pyarrow as pa

        _, offsets, data = bodies.buffers()
        read = None
        if not bodies.null_count:
            read = self._reader.read(offsets, data, bodies.offset, len(bodies))
        if read is None:
            return reference(bodies)
        rows = pa.record_batch(_WithSchema(read[0], self._schema))
        if not read[1]:
            return Decoded(rows, range(len(bodies)))
        left = read[1]
        if len(left) == len(bodies):
            return reference(bodies)
        rest = reference(bodies.take(int64s(left)))
        missing = frozenset(left)
        origin = [place for place in range(len(bodies)) if place not in missing]
        return merged([Decoded(rows, origin), moved(rest, left)], self._schema)


class _WithSchema:
    """Rows with the schema that their columns have, for Arrow's C data interface."""

    def __init__(self, rows: _native.Rows, schema: pa.Schema) -> None:
        self._rows = rows
        self._schema = schema

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self._schema.__arrow_c_schema__(), self._rows.array()


def text_fields(fields: Iterable[pa.Field], *, binary: bool = False) -> list[Any] | None:
    """Return the table of columns whose values are texts; None for a type that the compiled reader
    does not read. `binary`: bytes are what the text is."""
    tables = [(item.name.encode(), _text_table(item.type, binary=binary)) for item in fields]
    return None if any(table is None for _, table in tables) else tables


def _text_table(type_: pa.DataType, *, binary: bool) -> tuple[Any, ...] | None:
    import pyarrow as pa
    import pyarrow.types as pt

    names = {pa.bool_(): "bool", pa.float32(): "float", pa.float64(): "double", pa.date32(): "date"}
    if type_ in names:
        return (names[type_],)
    if pt.is_string(type_) or (binary and pt.is_binary(type_)):
        return ("text",)
    if pt.is_signed_integer(type_):
        half = 1 << (type_.bit_width - 1)
        return ("int", -half, half - 1)
    if pt.is_decimal128(type_) and 0 <= type_.scale <= type_.precision:
        return ("decimal", type_.precision, type_.scale)
    if pt.is_timestamp(type_) and type_.unit == "us" and type_.tz in (None, "UTC"):
        return ("instant", type_.tz is not None)
    if pt.is_list(type_):
        item = _text_table(type_.value_type, binary=binary)
        return item and ("list", item)
    if pt.is_struct(type_) and len(type_):
        fields = text_fields(type_, binary=binary)
        return None if fields is None else ("struct", fields)
    return None
