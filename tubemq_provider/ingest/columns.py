"""Columns that an ingest will write, as far as they are known before reading.

A table with other columns refuses a window when it is published, after all of it was read. So the
known columns are checked with the sink first. This module must not read records, and decides
nothing: engines get the same columns from the same two modules.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tubemq_client.errors import ConfigError, MissingExtraError
from tubemq_provider.files.columns import columns_of
from tubemq_provider.files.footers import schema_in_file
from tubemq_provider.rows.changes.reduction import reduced_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from tubemq_provider.files.columns import ColumnSet
    from tubemq_provider.ingest.arguments import IngestArguments

__all__ = ["expected_columns"]


def expected_columns(arguments: IngestArguments, source: str) -> pa.Schema | None:
    """Return the schema of files with rows from a source of that kind.

    None if a transform or the first records decide, or if only remote tasks can decode.
    """
    if arguments.routes is not None:
        return None  # each table is asked with its first record
    if arguments.transform is not None or arguments.sql is not None:
        return None
    if arguments.direct_write == "off":
        return None  # Spark's own writer uses other types.
    records = columns_of(source)
    if arguments.decode is None or arguments.decoding is None:
        return _of_records(records)
    spec = arguments.decoding
    if spec.infers:
        schema_file = Path(spec.schema_file or "")
        if not schema_file.is_file():
            return None
        spec = replace(spec, schema=schema_file.read_text(encoding="utf-8").strip())
    from tubemq_provider.rows.decoding import RowDecoder

    try:
        schema = reduced_schema(RowDecoder(spec, records).schema, arguments.following)
        return schema_in_file(schema)
    except (ConfigError, MissingExtraError):
        # Decoded elsewhere, with the modules and packages there; otherwise the engine reports it.
        return None


def _of_records(records: ColumnSet) -> pa.Schema | None:
    try:
        return schema_in_file(records.arrow_schema(records.names))
    except MissingExtraError:
        return None  # A driver that only publishes files of others needs no pyarrow.
