"""From the facts of a file to Iceberg's entry for it, as pyiceberg's `add_files` makes it.

pyiceberg only knows how to read a footer for that. What it takes from one is given to it as a
footer with a single row group that represents the whole file, so its own code decides about
columns, bounds and partitions. This module opens no file and commits nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tubemq_provider.files.footers import arrow_schema_of
from tubemq_provider.sinks.iceberg.spec import partition_of
from tubemq_provider.windows.facts import FileFact, LeafFact

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table.metadata import TableMetadata

__all__ = ["data_file_of"]


def data_file_of(metadata: TableMetadata, path: str, fact: FileFact) -> DataFile:
    """Return the manifest entry of the file at `path`. Raises `ValueError` if it does not fit the
    table."""
    from pyiceberg.io.pyarrow import (
        _check_pyarrow_schema_compatible,
        compute_statistics_plan,
        data_file_statistics_from_parquet_metadata,
        parquet_path_to_id_mapping,
    )
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

    schema = metadata.schema()
    _check_pyarrow_schema_compatible(
        schema, arrow_schema_of(fact), format_version=metadata.format_version
    )
    footer: Any = _Footer(fact.rows, fact.leaves)
    statistics = replace(
        data_file_statistics_from_parquet_metadata(
            parquet_metadata=footer,
            stats_columns=compute_statistics_plan(schema, metadata.properties),
            parquet_column_mapping=parquet_path_to_id_mapping(schema),
        ),
        split_offsets=list(fact.splits),
    )
    spec = metadata.spec()
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition_of(spec, schema, fact.keys)
        if fact.keys
        else statistics.partition(spec, schema),
        file_size_in_bytes=fact.size,
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


class _Footer:
    """Subset of `pyarrow.parquet.FileMetaData` that pyiceberg reads."""

    num_row_groups = 1

    def __init__(self, rows: int, leaves: Mapping[str, LeafFact]) -> None:
        self.num_rows = rows
        self.num_columns = len(leaves)
        self._columns = [_Chunk(path, leaf) for path, leaf in leaves.items()]

    def row_group(self, index: int) -> _Footer:  # noqa: ARG002 (there is one)
        return self

    def column(self, index: int) -> _Chunk:
        return self._columns[index]


class _Chunk:
    """Subset of a column chunk's metadata that pyiceberg reads."""

    has_dictionary_page = False
    dictionary_page_offset = None
    data_page_offset = 0

    def __init__(self, path: str, leaf: LeafFact) -> None:
        self.path_in_schema = path
        self.total_compressed_size = leaf.size
        self.num_values = leaf.values
        # Bounds that some row group does not tell are no bounds.
        self.is_stats_set = leaf.nulls == leaf.values or leaf.low is not None
        self.statistics = _Statistics(leaf.nulls, leaf.physical, leaf.low, leaf.high)


@dataclass(frozen=True, slots=True)
class _Statistics:
    null_count: int | None
    physical_type: str
    min: Any
    max: Any

    @property
    def has_null_count(self) -> bool:
        return self.null_count is not None

    @property
    def min_raw(self) -> Any:
        return self.min

    @property
    def max_raw(self) -> Any:
        return self.max
