"""Compiled reading of bodies into columns, where the client's compiled module is installed.

A `CompiledReader` reads what is usual in a format, all bodies at once and without a Python object
per record, and leaves every other body to the decoder of the format, which is the reference: it
reads such a body, or refuses it with the reason. So both ways give the same rows and bad records
(`tests/provider/rows/test_compiled.py`), and this module must not decide about a body.

The environment decides as for the client: `TUBEMQ_NATIVE=0` turns it off.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tubemq_provider.rows.bulk import Decoded, merged, moved

if TYPE_CHECKING:
    import pyarrow as pa

    from tubemq_client import _native

__all__ = ["CompiledReader", "compiled_reader"]


def compiled_reader(
    format_: str, table: Any, schema: pa.Schema, **start: Any
) -> CompiledReader | None:
    """Return a reader by the `table` of a format, for rows with `schema`.

    `start` says where the data of a body begins: `skip` bytes, the whole `mark` of bodies that
    begin with its first two bytes, `places` that follow a zero byte. None without the compiled
    module, or for a table that it does not know.
    """
    if table is None or os.environ.get("TUBEMQ_NATIVE") == "0":
        return None
    try:
        from tubemq_client import _native

        return CompiledReader(_native.Reader(format_, table, **start), schema)
    except (ImportError, AttributeError, ValueError, OverflowError):
        return None


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
        rest = reference(bodies.take(pa.array(left, pa.int64())))
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
