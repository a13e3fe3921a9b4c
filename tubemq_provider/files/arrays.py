"""Arrow arrays of Python values, made from buffers.

`pyarrow.array` and `pyarrow.scalar` ask pandas about the values, and import it for that where it is
installed: 0.4 s of processor time of every task. What a window makes of its own values (places of
records, texts of the quarantine) is made here. This module must not convert values: each function
has one type of element.
"""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

__all__ = ["binaries", "flags", "int32s", "int64", "int64s", "no_rows", "texts"]

_MOST_BYTES = 2**31 - 1


def int64s(values: Iterable[int]) -> pa.Array:
    """Return an array of `int64`."""
    import pyarrow as pa

    return _numbers(pa.int64(), array("q", values))


def int32s(values: Iterable[int]) -> pa.Array:
    """Return an array of `int32`."""
    import pyarrow as pa

    return _numbers(pa.int32(), array("i", values))


def int64(value: int) -> pa.Scalar:
    """Return a scalar of `int64`."""
    return int64s([value])[0]


def flags(values: Iterable[bool]) -> pa.Array:
    """Return an array of `bool`."""
    import pyarrow as pa

    return _numbers(pa.int8(), array("b", values)).cast(pa.bool_())


def binaries(values: Sequence[bytes | None]) -> pa.Array:
    """Return an array of `binary`."""
    import pyarrow as pa

    if sum(len(value) for value in values if value) > _MOST_BYTES:
        return pa.array(values, pa.binary())  # raises the error of a column that is too long
    return _joined(pa.binary(), values)


def texts(values: Sequence[str | None]) -> pa.Array:
    """Return an array of `string`."""
    import pyarrow as pa

    return _joined(pa.string(), [None if value is None else value.encode() for value in values])


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch without rows."""
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([pa.nulls(0, item.type) for item in schema], schema=schema)


def _numbers(type_: pa.DataType, numbers: array[int]) -> pa.Array:
    import pyarrow as pa

    return pa.Array.from_buffers(type_, len(numbers), [None, pa.py_buffer(numbers)])


def _joined(type_: pa.DataType, values: Sequence[bytes | None]) -> pa.Array:
    import pyarrow as pa

    present = None
    if None in values:
        present = flags(value is not None for value in values).buffers()[1]
    ends = array("i", accumulate((len(value or b"") for value in values), initial=0))
    data = pa.py_buffer(b"".join(value or b"" for value in values))
    return pa.Array.from_buffers(type_, len(values), [present, pa.py_buffer(ends), data])
