"""Column builders that read Avro's binary encoding strictly.

Each column reads its value at a position of a body and returns the position after it. Damage that
lenient readers turn into a value raises `ValueError` here: an index outside its union or enum, a
boolean that is neither 0 nor 1, a number of too many bytes or bits, a size that reaches beyond the
body, a text that is not UTF-8. A body that raises leaves half a row, which `truncate` removes. This
module must not read schemas.
"""

from __future__ import annotations

import json
import math
import struct
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Column",
    "DecimalColumn",
    "ListColumn",
    "MapColumn",
    "PlainColumn",
    "Read",
    "RecordColumn",
    "Table",
    "ValueReader",
    "boolean_reader",
    "bytes_reader",
    "enum_reader",
    "fixed_reader",
    "float_reader",
    "json_text",
    "list_reader",
    "map_reader",
    "null_reader",
    "nullable",
    "number_reader",
    "record_reader",
    "text_reader",
    "union_reader",
]

Read = Callable[[bytes, int], int]
"""Function that takes a body and a position, appends a value to a column, and returns the position
after the value."""

Table = tuple[Any, ...]
"""Entry of the table by which the compiled reader reads a field: its kind, and details."""

ValueReader = Callable[[bytes, int], tuple[Any, int]]
"""Function that takes a body and a position, and returns the value and the position after it."""


class Column(Protocol):
    """Builder for the values of one field, row by row."""

    read: Read
    type: pa.DataType
    table: Table | None
    """None: the compiled reader cannot read it."""

    def add_null(self) -> None:
        """Add a row without a value."""

    def truncate(self, count: int) -> None:
        """Keep the first `count` rows."""

    def array(self) -> pa.Array:
        """Return the rows as Arrow, and clear the builder."""


# -- values ----------------------------------------------------------------------------------------


def _number(body: bytes, at: int, size: int = 10, bits: int = 64) -> tuple[int, int]:
    """Return the zigzag number of at most `size` bytes and `bits` bits."""
    number = shift = 0
    for _ in range(size):
        byte = body[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            if number >> bits:
                raise ValueError(f"a number has more than {bits} bits")
            return (number >> 1) ^ -(number & 1), at
        shift += 7
    raise ValueError(f"a number has more than {size} bytes")


def number_reader(bits: int) -> ValueReader:
    """Read an ``int`` (32 bits) or a ``long`` (64)."""
    size = 5 if bits == 32 else 10

    def read(body: bytes, at: int) -> tuple[int, int]:
        byte = body[at]
        if byte < 128:
            return (byte >> 1) ^ -(byte & 1), at + 1
        return _number(body, at, size, bits)

    return read


def null_reader(body: bytes, at: int) -> tuple[None, int]:  # noqa: ARG001 - a null has no bytes
    """Read a ``null``."""
    return None, at


def boolean_reader(body: bytes, at: int) -> tuple[bool, int]:
    """Read a ``boolean``."""
    byte = body[at]
    if byte > 1:
        raise ValueError(f"a boolean is {byte}, neither 0 nor 1")
    return byte == 1, at + 1


def float_reader(form: str) -> ValueReader:
    """Read a ``float`` (``<f``) or a ``double`` (``<d``)."""
    unpack, size = struct.Struct(form).unpack_from, struct.calcsize(form)

    def read(body: bytes, at: int) -> tuple[float, int]:
        return unpack(body, at)[0], at + size

    return read


def bytes_reader(body: bytes, at: int) -> tuple[bytes, int]:
    """Read ``bytes``."""
    byte = body[at]
    if byte < 128:
        size, at = (byte >> 1) ^ -(byte & 1), at + 1
    else:
        size, at = _number(body, at)
    end = at + size
    if size < 0:
        raise ValueError(f"a length is negative ({size})")
    if end > len(body):
        raise ValueError(f"{end - len(body)} bytes are missing")
    return body[at:end], end


def text_reader(body: bytes, at: int) -> tuple[str, int]:
    """Read a ``string``."""
    data, at = bytes_reader(body, at)
    return str(data, "utf-8"), at


def fixed_reader(size: int) -> ValueReader:
    """Read a ``fixed``."""

    def read(body: bytes, at: int) -> tuple[bytes, int]:
        end = at + size
        if end > len(body):
            raise ValueError(f"{end - len(body)} bytes are missing")
        return body[at:end], end

    return read


def _index(body: bytes, at: int, count: int, what: str) -> tuple[int, int]:
    index, at = _number(body, at, 5, 32)
    if not 0 <= index < count:
        raise ValueError(f"{what} {index} is not one of {count}")
    return index, at


def enum_reader(symbols: Sequence[str]) -> ValueReader:
    """Read an ``enum`` as its symbol."""
    count = len(symbols)

    def read(body: bytes, at: int) -> tuple[str, int]:
        index, at = _index(body, at, count, "symbol")
        return symbols[index], at

    return read


def union_reader(members: Sequence[ValueReader]) -> ValueReader:
    """Read a value of a union, without its member's name."""
    count = len(members)

    def read(body: bytes, at: int) -> tuple[Any, int]:
        index, at = _index(body, at, count, "the member of a union")
        return members[index](body, at)

    return read


def list_reader(item: ValueReader) -> ValueReader:
    """Read an ``array``."""

    def read(body: bytes, at: int) -> tuple[list[Any], int]:
        items: list[Any] = []

        def add(body: bytes, at: int) -> int:
            value, at = item(body, at)
            items.append(value)
            return at

        _, at = _blocks(body, at, add)
        return items, at

    return read


def map_reader(value: ValueReader) -> ValueReader:
    """Read a ``map``."""

    def read(body: bytes, at: int) -> tuple[dict[str, Any], int]:
        entries: dict[str, Any] = {}

        def add(body: bytes, at: int) -> int:
            key, at = text_reader(body, at)
            if key in entries:
                raise ValueError(f"a map has the key {key!r} twice")
            entries[key], at = value(body, at)
            return at

        _, at = _blocks(body, at, add)
        return entries, at

    return read


def record_reader(fields: Mapping[str, ValueReader]) -> ValueReader:
    """Read a ``record``."""

    def read(body: bytes, at: int) -> tuple[dict[str, Any], int]:
        values = {}
        for name, field in fields.items():
            values[name], at = field(body, at)
        return values, at

    return read


def _blocks(body: bytes, at: int, item: Read) -> tuple[int, int]:
    """Read the blocks of an array or map; return the number of items and the position.

    The number of items is limited to the number of bytes of the body: items of zero bytes could be
    endless.
    """
    total = 0
    while True:
        count, at = _number(body, at)
        if not count:
            return total, at
        end = None
        if count < 0:
            size, at = _number(body, at)
            count, end = -count, at + size
        if count > len(body):
            raise ValueError(f"{count} items cannot be in a body of {len(body)} bytes")
        for _ in range(count):
            at = item(body, at)
        if end is not None and at != end:
            raise ValueError("a block of items has another size than it says")
        total += count


def json_text(value: Any) -> str:
    """Write a value as JSON: bytes in Base64, numbers that JSON does not have as texts."""
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


# -- columns ---------------------------------------------------------------------------------------


class PlainColumn:
    """Column of values that Arrow accepts as they are, or after `convert`."""

    def __init__(
        self,
        type_: pa.DataType,
        read_value: ValueReader,
        convert: Callable[[Any], Any] | None = None,
        *,
        table: Table | None = None,
    ) -> None:
        self.type = type_
        self.table = table
        self.values: list[Any] = []
        self.read = self._reader(read_value, convert)

    def _reader(self, read_value: ValueReader, convert: Callable[[Any], Any] | None) -> Read:
        append = self.values.append

        def read(body: bytes, at: int) -> int:
            value, at = read_value(body, at)
            append(value)
            return at

        def read_converted(body: bytes, at: int) -> int:
            value, at = read_value(body, at)
            append(convert(value))  # type: ignore[misc]
            return at

        return read if convert is None else read_converted

    def add_null(self) -> None:
        """See `Column`."""
        self.values.append(None)

    def truncate(self, count: int) -> None:
        """See `Column`."""
        del self.values[count:]

    def array(self) -> pa.Array:
        """See `Column`."""
        import pyarrow as pa

        array = pa.array(self.values, self.type)
        self.values.clear()
        return array


class DecimalColumn(PlainColumn):
    """Decimals from the bytes of their unscaled values."""

    def __init__(
        self, type_: pa.Decimal128Type, read_value: ValueReader, *, size: int | None = None
    ) -> None:
        limit = 10**type_.precision

        def unscaled(data: bytes) -> bytes:
            if not data:
                raise ValueError("a decimal has no byte")
            number = int.from_bytes(data, "big", signed=True)
            if not -limit < number < limit:
                raise ValueError(f"a decimal has more digits than the precision {type_.precision}")
            return number.to_bytes(16, "little", signed=True)

        super().__init__(type_, read_value, unscaled, table=("decimal", size, type_.precision))

    def array(self) -> pa.Array:
        """See `Column`."""
        import pyarrow as pa

        cells = pa.array(self.values, pa.binary(16))
        self.values.clear()
        return pa.Array.from_buffers(self.type, len(cells), cells.buffers())


class RecordColumn:
    """Struct column with a column for each field. `reads` are the readers of all fields in their
    order, including fields without a column."""

    def __init__(self, columns: Mapping[str, Column], reads: Sequence[Read]) -> None:
        import pyarrow as pa

        self.columns = columns
        self.type = pa.struct([(name, column.type) for name, column in columns.items()])
        self.table = _record_table([column.table for column in columns.values()], len(reads))
        self._missing: list[bool] = []
        self.read = self._reader(tuple(reads))

    def _reader(self, reads: tuple[Read, ...]) -> Read:
        append = self._missing.append

        def read(body: bytes, at: int) -> int:
            for field in reads:
                at = field(body, at)
            append(False)
            return at

        return read

    def add_null(self) -> None:
        """See `Column`."""
        for column in self.columns.values():
            column.add_null()
        self._missing.append(True)

    def truncate(self, count: int) -> None:
        """See `Column`."""
        for column in self.columns.values():
            column.truncate(count)
        del self._missing[count:]

    def array(self) -> pa.Array:
        """See `Column`."""
        import pyarrow as pa

        mask = pa.array(self._missing, pa.bool_()) if any(self._missing) else None
        self._missing.clear()
        arrays = [column.array() for column in self.columns.values()]
        return pa.StructArray.from_arrays(arrays, fields=list(self.type), mask=mask)


def _record_table(fields: list[Table | None], count: int) -> Table | None:
    """Return the table of a record of `count` fields, of which `fields` have a column."""
    return ("record", fields) if None not in fields and len(fields) == count else None


class ListColumn:
    """List column over the items of another column, which `read_item` reads."""

    def __init__(self, item: Column, read_item: Read) -> None:
        import pyarrow as pa

        self.type: pa.DataType = pa.list_(item.type)
        self.table = item.table and ("list", item.table)
        self._parts: tuple[Column, ...] = (item,)
        self._ends = [0]
        self._missing: set[int] = set()
        self.read = self._reader(read_item)

    def _reader(self, item: Read) -> Read:
        ends = self._ends

        def read(body: bytes, at: int) -> int:
            count, at = _blocks(body, at, item)
            ends.append(ends[-1] + count)
            return at

        return read

    def add_null(self) -> None:
        """See `Column`."""
        self._missing.add(len(self._ends) - 1)
        self._ends.append(self._ends[-1])

    def truncate(self, count: int) -> None:
        """See `Column`."""
        for part in self._parts:
            part.truncate(self._ends[count])
        del self._ends[count + 1 :]
        self._missing = {place for place in self._missing if place < count}

    def array(self) -> pa.Array:
        """See `Column`. A null offset marks a null list."""
        import pyarrow as pa

        offsets: list[int | None] = list(self._ends)
        for place in self._missing:
            offsets[place] = None
        del self._ends[1:]
        self._missing.clear()
        arrays = [part.array() for part in self._parts]
        return self._joined(pa.array(offsets, pa.int32()), arrays)

    def _joined(self, offsets: pa.Array, arrays: list[pa.Array]) -> pa.Array:
        import pyarrow as pa

        return pa.ListArray.from_arrays(offsets, arrays[0])


class MapColumn(ListColumn):
    """Map column from texts to the values of another column, which `read_value` reads."""

    def __init__(self, value: Column, read_value: Read) -> None:
        import pyarrow as pa

        keys = PlainColumn(pa.string(), text_reader)
        super().__init__(value, read_value)
        self.type = pa.map_(pa.string(), value.type)
        self.table = value.table and ("map", value.table)
        self._parts = (keys, value)
        self.read = self._map_reader(keys, read_value)

    def _map_reader(self, keys: PlainColumn, value: Read) -> Read:
        ends, key, key_values = self._ends, keys.read, keys.values

        def entry(body: bytes, at: int) -> int:
            return value(body, key(body, at))

        def read(body: bytes, at: int) -> int:
            start = len(key_values)
            count, at = _blocks(body, at, entry)
            if len(set(key_values[start:])) != count:
                raise ValueError("a map has a key twice")
            ends.append(ends[-1] + count)
            return at

        return read

    def _joined(self, offsets: pa.Array, arrays: list[pa.Array]) -> pa.Array:
        import pyarrow as pa

        return pa.MapArray.from_arrays(offsets, *arrays)


def nullable(column: Column, read_value: Read, null_index: int) -> Read:
    """Read a union of null, which is its member `null_index`, and the type that `column` holds."""
    add_null = column.add_null
    null_byte, value_byte = null_index * 2, 2 - null_index * 2

    def read(body: bytes, at: int) -> int:
        byte = body[at]
        if byte == value_byte:
            return read_value(body, at + 1)
        if byte == null_byte:
            add_null()
            return at + 1
        index, at = _index(body, at, 2, "the member of a union")
        if index != null_index:
            return read_value(body, at)
        add_null()
        return at

    return read
