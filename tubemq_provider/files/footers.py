"""Facts of finished Parquet files, from their footers.

Row counts come from footers. The partition of rows comes from statistics if a row group has one
partition, else from the `partition` column alone, or from a ``partition=…`` directory that Spark
created. A writer builds the `FileFact` of its file from the footer that it has just written, so
that not even the footer is read again. This module must not write or remove anything: `data_file`
writes.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from zoneinfo import ZoneInfo

from tubemq_client.errors import require_extra
from tubemq_provider.files.locations import Location, Stored
from tubemq_provider.files.objects import StoreFailed
from tubemq_provider.windows.errors import SinkDamaged
from tubemq_provider.windows.facts import FileFact, LeafFact

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

__all__ = [
    "arrow_schema_of",
    "count_rows",
    "data_names",
    "fact_from_json",
    "fact_of",
    "fact_to_json",
    "inspect",
    "leaf_paths",
    "leaves_of",
    "schema_in_file",
]

_COLUMN = "partition"

_EPOCH = datetime(1970, 1, 1, tzinfo=ZoneInfo("UTC"))
_UNITS = {"milliseconds": timedelta(milliseconds=1), "microseconds": timedelta(microseconds=1)}


def data_names(stored: Mapping[str, Stored]) -> list[str]:
    """Return the files that readers of a directory see. Spark and pyarrow skip paths with a name
    that begins with ``_`` or ``.``."""
    return sorted(
        name for name in stored if not any(p.startswith(("_", ".")) for p in name.split("/"))
    )


def inspect(location: Location, name: str, stored: Stored) -> FileFact:
    """Read the facts in a file's footer. Raises pyarrow's errors for a file that is no Parquet."""
    try:
        import pyarrow.parquet as pq
    except ImportError as exc:
        raise require_extra("arrow", exc) from exc
    with location.open(name) as source, pq.ParquetFile(source) as file:
        partitions = _partitions(file, PurePosixPath(name))
        return fact_of(name, stored, file.metadata, partitions=partitions)


def fact_of(
    name: str,
    stored: Stored,
    footer: pq.FileMetaData,
    *,
    partitions: Mapping[str, int] | None = None,
    nulls: Mapping[str, int] | None = None,
) -> FileFact:
    """Return the facts of a file from its `footer` and the given values."""
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    leaves = [_leaf([group.column(at) for group in groups]) for at in range(footer.num_columns)]
    names = [footer.schema.column(at).path for at in range(footer.num_columns)]
    schema = footer.schema.to_arrow_schema().remove_metadata()
    return FileFact(
        path=name,
        rows=footer.num_rows,
        size=stored.size,
        partitions=partitions,
        tag=stored.tag,
        schema=schema.serialize().to_pybytes(),
        leaves=_by_path(names, leaves) if groups else {},
        nulls=dict(nulls or {}),
        splits=tuple(_start_of(group.column(0)) for group in groups),
    )


def arrow_schema_of(fact: FileFact) -> pa.Schema:
    """Return the Arrow schema of a file."""
    import pyarrow as pa

    return pa.ipc.read_schema(pa.py_buffer(fact.schema))


def leaves_of(fact: FileFact) -> Iterator[tuple[pa.Field, pa.DataType, str, LeafFact]]:
    """Yield the leaves of a file, each with its column, type and path.

    They are matched by order, since a column ``a.b`` and the part ``b`` of a column ``a`` have the
    same path. Yields nothing if the facts do not have all leaves."""
    if not fact.schema:
        return
    types = [(field, kind) for field in arrow_schema_of(fact) for kind in _leaf_types(field.type)]
    if len(types) != len(fact.leaves):
        return
    for (field, kind), (path, leaf) in zip(types, fact.leaves.items(), strict=True):
        yield field, kind, path, leaf


def _leaf_types(kind: Any) -> Iterator[pa.DataType]:
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        yield from _leaf_types(kind.storage_type)
    elif pa.types.is_dictionary(kind):
        yield from _leaf_types(kind.value_type)
    elif pa.types.is_map(kind):
        yield from _leaf_types(kind.key_type)
        yield from _leaf_types(kind.item_type)
    elif pa.types.is_nested(kind):
        for index in range(kind.num_fields):
            yield from _leaf_types(kind.field(index).type)
    else:
        yield kind


def schema_in_file(schema: pa.Schema) -> pa.Schema | None:
    """Return the schema that a Parquet file of `schema` has, which may differ: Parquet has no
    seconds, for example. None for columns that Parquet cannot store."""
    import pyarrow as pa

    try:
        return _empty_footer(schema).schema.to_arrow_schema().remove_metadata()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def leaf_paths(schema: pa.Schema) -> list[str]:
    """Return the Parquet paths of columns and of their parts."""
    footer = _empty_footer(schema)
    return [footer.schema.column(at).path for at in range(footer.num_columns)]


def _empty_footer(schema: pa.Schema) -> pq.FileMetaData:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pa.BufferOutputStream()
    pq.ParquetWriter(file, schema).close()
    return pq.read_metadata(pa.BufferReader(file.getvalue()))


def _by_path(names: list[str], leaves: list[LeafFact]) -> dict[str, LeafFact]:
    """Return leaves by path, without ambiguous paths: the part ``b`` of a column ``a`` and a column
    ``a.b``."""
    times = Counter(names)
    return {name: leaf for name, leaf in zip(names, leaves, strict=True) if times[name] == 1}


def _leaf(chunks: list[Any]) -> LeafFact:
    """Combine a leaf's statistics over all row groups; unknown in one is unknown in all."""
    size = sum(chunk.total_compressed_size for chunk in chunks)
    values = sum(chunk.num_values for chunk in chunks)
    physical = chunks[0].physical_type if chunks else ""
    statistics = [chunk.statistics for chunk in chunks if chunk.is_stats_set]
    if len(statistics) < len(chunks) or not all(each.has_null_count for each in statistics):
        return LeafFact(physical, size, values)
    nulls = sum(each.null_count for each in statistics)
    some = [
        each
        for chunk, each in zip(chunks, statistics, strict=True)
        if each.null_count < chunk.num_values
    ]
    if not some or not all(each.has_min_max for each in some):
        return LeafFact(physical, size, values, nulls)
    low, high = _bounds(some)
    return LeafFact(physical, size, values, nulls, low, high)


def _bounds(statistics: list[Any]) -> tuple[Any, Any]:
    """Return minimum and maximum; None if pyarrow cannot read them, or Python has no such instant.
    Decimals stored as integers are returned as unscaled integers, as Iceberg's writer requires."""
    logical = statistics[0].logical_type
    raw = logical.type == "DECIMAL" and statistics[0].physical_type.startswith("INT")
    try:
        if (unit := _utc_unit(logical)) is not None:
            # As pyarrow would return them, which imports pandas for an instant with a time zone.
            low, high = min(f.min_raw for f in statistics), max(f.max_raw for f in statistics)
            return _EPOCH + low * unit, _EPOCH + high * unit
        if raw:
            return min(f.min_raw for f in statistics), max(f.max_raw for f in statistics)
        return min(f.min for f in statistics), max(f.max for f in statistics)
    except (NotImplementedError, OverflowError, ValueError):
        return None, None


def _utc_unit(logical: Any) -> timedelta | None:
    """Return the unit of instants in UTC that Python has; None for any other type."""
    if logical.type != "TIMESTAMP":
        return None
    about = json.loads(logical.to_json())
    return _UNITS.get(about["timeUnit"]) if about["isAdjustedToUTC"] else None


def _start_of(chunk: Any) -> int:
    if chunk.has_dictionary_page and chunk.dictionary_page_offset < chunk.data_page_offset:
        return int(chunk.dictionary_page_offset)
    return int(chunk.data_page_offset)


# -- on the way from a task to the driver ---------------------------------------------------------


def fact_to_json(fact: FileFact) -> str:
    """Serialise to one line of text. Bounds that are not numbers, texts or times are left out."""
    return json.dumps(
        {
            "path": fact.path,
            "rows": fact.rows,
            "size": fact.size,
            "tag": fact.tag,
            "schema": base64.b64encode(fact.schema).decode(),
            "leaves": {
                name: [f.physical, f.size, f.values, f.nulls, _plain(f.low), _plain(f.high)]
                for name, f in fact.leaves.items()
            },
            "nulls": dict(fact.nulls),
            "splits": list(fact.splits),
            "keys": [list(key) for key in fact.keys],
        },
        separators=(",", ":"),
    )


def fact_from_json(text: str) -> FileFact:
    """Parse the text of `fact_to_json`."""
    document = json.loads(text)
    leaves = {
        name: LeafFact(physical, size, values, nulls, _restored(low), _restored(high))
        for name, (physical, size, values, nulls, low, high) in document["leaves"].items()
    }
    return FileFact(
        path=document["path"],
        rows=document["rows"],
        size=document["size"],
        tag=document["tag"],
        schema=base64.b64decode(document["schema"]),
        leaves=leaves,
        nulls=document["nulls"],
        splits=tuple(document["splits"]),
        keys=tuple((name, kind, text) for name, kind, text in document.get("keys", ())),
    )


def _plain(bound: Any) -> Any:
    if isinstance(bound, datetime):
        return {"t": bound.isoformat()}
    return bound if isinstance(bound, int | str) else None


def _restored(bound: Any) -> Any:
    return datetime.fromisoformat(bound["t"]) if isinstance(bound, dict) else bound


# -- counting -------------------------------------------------------------------------------------


def count_rows(
    location: Location, names: Iterable[str], window: str, said: Mapping[str, int]
) -> Mapping[str, int]:
    """Count rows by partition in the files `names` in `location`, from footers, else from the
    `partition` column.

    If a file has neither that column nor a folder for it, only the total is compared with that of
    `said`, which is returned. Raises `SinkDamaged` if totals differ, or if a file of the window is
    missing or no Parquet, and `StoreFailed` if the storage does not answer."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    counted: Counter[str] = Counter()
    total, all_partitioned = 0, True
    for name in names:
        where = f"window {window}: {location.url}/{name}"
        try:
            source = location.open(name)
        except FileNotFoundError as exc:
            raise SinkDamaged(
                f"{where} cannot be read: it is missing; bring it back, or have the window written "
                f"again (on_clear='rewrite' where the sink can)"
            ) from exc
        try:
            with source, pq.ParquetFile(source) as file:
                rows = _partitions(file, PurePosixPath(name))
                total += file.metadata.num_rows
        except StoreFailed:
            raise
        except (OSError, pa.ArrowInvalid) as exc:
            raise SinkDamaged(f"{where} cannot be read: {exc}") from exc
        counted.update(rows or {})
        all_partitioned = all_partitioned and rows is not None
    if all_partitioned:
        return counted
    if total != sum(said.values()):
        raise SinkDamaged(
            f"window {window} ({location.url}) is no longer what was published: {total} rows in "
            f"the sink, {sum(said.values())} were published; restore it, or have it written again "
            f"(on_clear='rewrite' where the sink can)"
        )
    return said


def _partitions(file: pq.ParquetFile, relative: PurePosixPath) -> dict[str, int] | None:
    if _COLUMN in file.schema_arrow.names:
        return dict(_by_column(file))
    return _by_directory(relative, file.metadata.num_rows)


def _by_directory(relative: PurePosixPath, rows: int) -> dict[str, int] | None:
    for name in relative.parts[:-1]:
        column, separator, value = name.partition("=")
        if separator and column == _COLUMN:
            return {unquote(value): rows}
    return None


def _by_column(file: pq.ParquetFile) -> Counter[str]:
    import pyarrow.compute as pc

    counted: Counter[str] = Counter()
    for group in range(file.metadata.num_row_groups):
        metadata = file.metadata.row_group(group)
        single = _single_value(metadata)
        if single is not None:
            counted[single] += metadata.num_rows
            continue
        column = file.read_row_group(group, columns=[_COLUMN]).column(_COLUMN)
        for item in pc.value_counts(column):
            counted[str(item["values"])] += item["counts"].as_py()
    return counted


def _single_value(row_group: Any) -> str | None:
    """Return the partition of all rows of a row group, if statistics prove that it has only one."""
    for index in range(row_group.num_columns):
        column = row_group.column(index)
        if column.path_in_schema != _COLUMN:
            continue
        bounds = column.statistics
        if bounds is None or not bounds.has_min_max or bounds.min != bounds.max:
            return None
        exact = bounds.has_null_count and bounds.null_count == 0
        return str(bounds.min) if exact else None
    return None
