"""Bodies decoded by a user's function, named by its dotted path.

It gets a record batch (the kept columns, ``value``, and the columns that identify a record) and
returns one with the same number of rows. A column ``_error`` of texts, null for valid rows, marks
bad ones. An exception fails the read: it is an error of the function, not of a record. This module
must not catch it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tubemq_client.errors import ConfigError
from tubemq_provider.files.arrays import no_rows
from tubemq_provider.rows.bulk import BadBody, Decoded
from tubemq_provider.rows.numbers import check_kept
from tubemq_provider.rows.spec import SUBJECT

if TYPE_CHECKING:
    import pyarrow as pa

    from tubemq_provider.rows.spec import DecodeSpec

__all__ = ["ERROR", "FunctionBodies"]

ERROR: Final = "_error"


class FunctionBodies:
    """Decoder that calls the function once per batch. Columns are cast to `schema` where Arrow can
    do so without loss; columns outside of the schema are left out."""

    def __init__(self, schema: pa.Schema, spec: DecodeSpec) -> None:
        self.schema = schema
        self._name = spec.function or ""
        self._arguments = dict(spec.arguments)
        self._function = _imported(self._name)

    def decode(self, records: pa.RecordBatch) -> Decoded:
        """See `BodyDecoder`."""
        import pyarrow as pa
        import pyarrow.compute as pc

        result = self._function(records, **self._arguments)
        rows = self._one_batch(result, records.num_rows)
        by_name = dict(zip(rows.schema.names, rows.columns, strict=True))
        if missing := [name for name in self.schema.names if name not in by_name]:
            raise ConfigError(f"{self._name} gave no column {missing[0]!r}", subject=SUBJECT)
        columns = [by_name[item.name].cast(item.type) for item in self.schema]
        for item, column in zip(self.schema, columns, strict=True):
            check_kept(by_name[item.name], column)
        decoded = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        if ERROR not in by_name:
            return Decoded(decoded, list(range(decoded.num_rows)))
        sound = pc.is_null(by_name[ERROR])
        reasons = enumerate(by_name[ERROR].to_pylist())
        bad = [BadBody(place, str(reason)) for place, reason in reasons if reason is not None]
        origin = [place for place, is_sound in enumerate(sound.to_pylist()) if is_sound]
        return Decoded(decoded.filter(sound), origin, bad)

    def _one_batch(self, result: Any, count: int) -> pa.RecordBatch:
        import pyarrow as pa

        if isinstance(result, pa.Table):
            batches = result.combine_chunks().to_batches()
            result = batches[0] if batches else no_rows(result.schema)
        if not isinstance(result, pa.RecordBatch) or result.num_rows != count:
            what = f"{result.num_rows} rows" if hasattr(result, "num_rows") else repr(type(result))
            raise ConfigError(
                f"{self._name} gave {what} for {count} records; return a RecordBatch with a row "
                f"for each, and a text in the column {ERROR!r} for those that are bad",
                subject=SUBJECT,
            )
        return result


def _imported(path: str) -> Any:
    module, _, name = path.rpartition(".")
    try:
        function = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"function: {path!r}: {error}", subject=SUBJECT) from error
    if not callable(function):
        raise ConfigError(f"function: {path!r} cannot be called", subject=SUBJECT)
    return function
