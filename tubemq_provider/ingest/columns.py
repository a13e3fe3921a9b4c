"""Which columns an ingest will write, where that can be told before a record is read.

A table that has other columns refuses a window when it is published, after all of it was read. What
is known here is asked of the sink first. This module must not read records, and decides nothing:
engines have the same from the same two places.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tubemq_client.errors import ConfigError, MissingExtraError
from tubemq_provider.files.columns import columns_of
from tubemq_provider.files.footers import schema_in_file
from tubemq_provider.rows.spec import DecodeSpec

if TYPE_CHECKING:
    import pyarrow as pa

    from tubemq_provider.files.columns import ColumnSet
    from tubemq_provider.ingest.arguments import IngestArguments

__all__ = ["expected_columns"]


def expected_columns(arguments: IngestArguments, source: str) -> pa.Schema | None:
    """The columns that files have of rows from a source of that kind; None where a transform or the
    first records decide, and where only tasks elsewhere can decode."""
    if arguments.transform is not None or arguments.sql is not None:
        return None
    if arguments.direct_write == "off":
        return None  # Spark's own writer has types of its own.
    records = columns_of(source)
    if arguments.decode is None:
        return _of_records(records)
    spec = DecodeSpec.parse(arguments.decode)
    if spec.format == "json" and spec.schema is None:
        kept = Path(spec.schema_file or "")
        if not kept.is_file():
            return None
        spec = replace(spec, schema=kept.read_text(encoding="utf-8").strip())
    from tubemq_provider.rows.decoding import RowDecoder

    try:
        return schema_in_file(RowDecoder(spec, records).schema)
    except (ConfigError, MissingExtraError):
        # Decoded elsewhere, with modules and packages of that place; if not, the engine says so.
        return None


def _of_records(records: ColumnSet) -> pa.Schema | None:
    try:
        return schema_in_file(records.arrow_schema(records.names))
    except MissingExtraError:
        return None  # A driver that only publishes what others write needs no pyarrow.
