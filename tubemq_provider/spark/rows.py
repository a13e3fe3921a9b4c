"""Schema that Spark asks for, and joining of fetched batches into Arrow batches of a good size.

Spark checks the schema of a task's first Arrow batch exactly and the later ones not at all, so one
schema object, built from the requested schema, is used for every batch. pyspark and pyarrow are
imported inside functions: option checking and the zip on a cluster import this module too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from inspect import signature
from typing import TYPE_CHECKING

from tubemq_client.errors import ConfigError, require_extra
from tubemq_provider.rows.ddl import parse_ddl
from tubemq_provider.rows.decoding import BadRecords, FetchedBatch, RowDecoder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


def check_schema(schema: StructType, columns_ddl: str, name: str) -> None:
    """Raise `ConfigError` unless `schema` is a subset, in any order, of the columns of the format
    `name`, given as DDL.

    A user who selects fewer columns saves building the others. Types must be the source's own, and
    columns nullable: Spark would not convert or check anything.
    """
    problems = [] if schema.fields else ["the schema has no column"]
    types = {item.name: item.dataType.simpleString() for item in _struct(columns_ddl).fields}
    for field in schema.fields:
        expected = types.get(field.name)
        if expected is None:
            problems.append(_unknown_column(field.name, list(types)))
        elif field.dataType.simpleString() != expected:
            actual = field.dataType.simpleString()
            problems.append(
                f"column {field.name!r} is {expected}, not {actual}; cast it after load()"
            )
        elif not field.nullable:
            problems.append(f"column {field.name!r} must be nullable")
    if len(set(schema.names)) != len(schema.names):
        problems.append("a column is named twice")
    if problems:
        raise ConfigError(problems, subject=f'schema of format("{name}")')


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark compares the first batch with."""
    try:
        import pyarrow as pa  # noqa: F401 - Spark's own error for a missing one is less helpful
        from pyspark.sql.pandas.types import to_arrow_schema
    except ImportError as error:
        raise require_extra("spark", error) from error
    if "timezone" in signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)  # PySpark 4.1, in which timestamps are in UTC by default


def typed_batches(
    batches: Iterable[FetchedBatch],
    schema: pa.Schema,
    decoder: RowDecoder | None,
    bad_records: BadRecords,
) -> Iterator[pa.RecordBatch]:
    """Convert `batches` to Arrow with `schema`, a subset of the columns; to typed rows with a
    decoder, and records that do not decode to `bad_records`."""
    if decoder is None:
        yield from (batch.to_arrow(schema) for batch in batches)
        return
    for group in decoder.groups(batches):
        rows, _ = decoder.rows_of(group, bad_records)
        yield rows.select(schema.names).cast(schema)


def arrow_batches(batches: Iterable[pa.RecordBatch], batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Join `batches` until a batch has about `batch_bytes`.

    A broker's reply is some hundred KiB; Spark moves batches of 1 to 10 MiB fastest.
    """
    pending: list[pa.RecordBatch] = []
    size = 0
    for converted in batches:
        if converted.num_rows == 0:
            continue
        pending.append(converted)
        size += converted.nbytes
        if size >= batch_bytes:
            yield from _join(pending)
            pending, size = [], 0
    if pending:
        yield from _join(pending)


def _join(pending: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(pending) == 1:
        return pending
    import pyarrow as pa

    joined = pa.Table.from_batches(pending).combine_chunks()
    batches: list[pa.RecordBatch] = joined.to_batches()
    return batches


def _struct(ddl: str) -> StructType:
    """Parse DDL without a session: `StructType.fromDDL` would ask the JVM."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(parse_ddl(ddl))


def _unknown_column(name: str, columns: list[str]) -> str:
    close = get_close_matches(name.lower(), columns, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(columns)}"
    return f"unknown column {name!r}; {hint}"
