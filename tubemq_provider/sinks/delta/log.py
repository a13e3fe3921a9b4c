"""Commits of a Delta table that add files, and columns with the first files that have them.

delta-rs adds files in one commit and columns in another; a reader between the two, or a crash,
would see half of it. And it adds files only to a table whose files it has loaded, which costs more
with every window. So the sink puts such commits into the log itself, each as the one object that
Delta's protocol makes it: created only if no other commit has its number. This module makes bytes;
it must not store anything.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from tubemq_provider.sinks.delta.stats import stats_of
from tubemq_provider.windows.facts import FileFact

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "DURABLE",
    "LoadedTable",
    "Shape",
    "commit_of",
    "contains_type",
    "grown",
    "log_durable_before",
    "log_name",
    "new_type_problems",
    "shape_of",
    "values_of",
]

_FEATURES = {"timestamp_ntz": "timestampNtz", "variant": "variantType"}
_IMPLIED = ("appendOnly", "invariants")

DURABLE = "tubemqDurable"
"""In the metadata of a window's commit: up to which version the log was on disk before it."""


class LoadedTable(Protocol):
    """State of a table at a version: deltalake's `DeltaTable`, or a `Snapshot` of the log."""

    def version(self) -> int:
        """Return the version of the newest commit."""

    def metadata(self) -> Any:
        """Return deltalake's `Metadata`, or an object with its attributes."""

    def schema(self) -> Any:
        """Return deltalake's `Schema`."""

    def protocol(self) -> Any:
        """Return deltalake's `ProtocolVersions`."""

    def transaction_version(self, app_id: str) -> int | None:
        """Return the version that an application has committed last, or None."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Columns of a table, as deltalake's fields, and those it is partitioned by. `first`: it had
    none before that anybody has seen, so its readers can be asked to know their types."""

    fields: tuple[Any, ...]
    partition_columns: tuple[str, ...]
    first: bool = False


def shape_of(table: LoadedTable) -> Shape:
    """Return the current columns and partition columns of the table."""
    return Shape(tuple(table.schema().fields), tuple(table.metadata().partition_columns))


def grown(shape: Shape, schema: pa.Schema) -> Shape:
    """`shape` with the columns of `schema` that it has not, which may be null."""
    from deltalake import Field, Schema

    names = {field.name for field in shape.fields}
    more = [
        Field(field.name, field.type, nullable=True)
        for field in Schema.from_arrow(schema).fields
        if field.name not in names
    ]
    return replace(shape, fields=(*shape.fields, *more))


def new_type_problems(table: LoadedTable, shape: Shape) -> list[str]:
    """Return a line for each new column whose type needs a feature that the table lacks."""
    if shape.first:
        return []
    old = {field.name for field in table.schema().fields}
    return [
        f"column {field.name!r} is {field.type}, and the table has not the feature {feature}; cast "
        f"it (an instant with a zone needs none), or add the feature to the table"
        for field, feature in _lacking(table, shape)
        if field.name not in old
    ]


def contains_type(said: Any, word: str) -> bool:
    """Return True if a field or a schema of deltalake has a type that begins with `word`, nested
    types included; a column name does not count."""
    return re.search(f'[tT]ype":"{word}', said.to_json()) is not None


def log_name(version: int) -> str:
    """Return the name of a commit's file, relative to the table."""
    return f"_delta_log/{version:020}.json"


def log_durable_before(commit: bytes | None) -> int | None:
    """Return the version up to which the log was on disk before a commit; None if the commit does
    not record it."""
    for line in (commit or b"").splitlines():
        if line.startswith(b'{"commitInfo"'):
            try:
                return int(json.loads(line)["commitInfo"][DURABLE])
            except (ValueError, KeyError, TypeError):
                return None
    return None


def commit_of(
    table: LoadedTable,
    shape: Shape | None,
    files: Sequence[FileFact],
    transactions: Mapping[str, int],
    metadata: Mapping[str, str],
) -> bytes:
    """Return the commit that adds files to the table, and gives it this shape unless that is None;
    `metadata` goes into its ``commitInfo``."""
    now_ms = time.time_ns() // 1_000_000
    by = list((shape or shape_of(table)).partition_columns)
    commit_info = {
        "timestamp": now_ms,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": json.dumps(by)},
        **metadata,
    }
    actions: list[dict[str, Any]] = [{"commitInfo": commit_info}]
    if shape is not None:
        actions += [*_protocol(table, shape), {"metaData": _metadata(table, shape)}]
    actions += [
        {"txn": {"appId": name, "version": number, "lastUpdated": now_ms}}
        for name, number in transactions.items()
    ]
    actions += [
        {
            "add": {
                # A URI, as deltalake writes it: the escapes in names of folders are escaped again.
                "path": quote(file.path, safe="/="),
                "partitionValues": values_of(file),
                "size": file.size,
                "modificationTime": now_ms,
                "dataChange": True,
                "stats": stats_of(file),
            }
        }
        for file in files
    ]
    # Unescaped: deltalake joins two escapes of a character beyond U+FFFF to another character.
    return "".join(f"{json.dumps(action, ensure_ascii=False)}\n" for action in actions).encode()


def _protocol(table: LoadedTable, shape: Shape) -> list[dict[str, Any]]:
    """Return the protocol action for features that the first columns of a table need and the table
    lacks."""
    features = _missing_features(table, shape)
    if not features:
        return []
    protocol = table.protocol()
    # What an old version implied is said by name from version 7 on.
    writers = _IMPLIED if protocol.writer_features is None else protocol.writer_features
    asked = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": sorted({*(protocol.reader_features or ()), *features}),
        "writerFeatures": sorted({*writers, *features}),
    }
    return [{"protocol": asked}]


def _missing_features(table: LoadedTable, shape: Shape) -> set[str]:
    return {feature for _, feature in _lacking(table, shape)}


def _lacking(table: LoadedTable, shape: Shape) -> Iterator[tuple[Any, str]]:
    """Columns, each with a feature that it takes and the table has not."""
    protocol = table.protocol()
    table_features = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
    for field in shape.fields:
        for word, feature in _FEATURES.items():
            if contains_type(field, word) and feature not in table_features:
                yield field, feature


def values_of(file: FileFact) -> dict[str, str | None]:
    """Return the partition values of a file, as Delta writes them."""
    return {name: text for name, _, text in file.keys}


def _metadata(table: LoadedTable, shape: Shape) -> dict[str, Any]:
    from deltalake import Schema

    metadata = table.metadata()
    return {
        "id": str(metadata.id),
        "name": metadata.name,
        "description": metadata.description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": Schema(list(shape.fields)).to_json(),
        "partitionColumns": list(shape.partition_columns),
        "configuration": dict(metadata.configuration),
        "createdTime": metadata.created_time,
    }
