"""What finished Parquet files hold, told by their footers without reading a record.

Row counts come from footers. The partition of the rows comes from the footer's statistics where a
row group has one partition, else from the `partition` column alone, or from a ``partition=…``
directory that Spark made. A writer makes the `FileFact` of its file from the footer that it has
just written, so that not even the footer is read again. This module must not write or remove
anything: `data_file` writes.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

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


def data_names(stored: Mapping[str, Stored]) -> list[str]:
    """Files that readers of a directory see: none whose path has a name with ``_`` or ``.`` in
    front, as Spark and pyarrow skip those."""
    return sorted(
        name for name in stored if not any(p.startswith(("_", ".")) for p in name.split("/"))
    )


def inspect(location: Location, name: str, stored: Stored) -> FileFact:
    """What a file's footer says. Raises what pyarrow raises for a file that is no Parquet."""
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
    """The facts of a file with `footer`; the rest is known from elsewhere."""
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
    """The columns of a file."""
    import pyarrow as pa

    return pa.ipc.read_schema(pa.py_buffer(fact.schema))


def leaves_of(fact: FileFact) -> Iterator[tuple[pa.Field, pa.DataType, str, LeafFact]]:
    """The leaves of a file with the column that each is in, its own type and its path. Footers have
    them in the order of the schema, which is what tells a column ``a.b`` from the part ``b`` of a
    column ``a``. None if the file does not tell all."""
    if not fact.schema:
        return
    found = [(field, kind) for field in arrow_schema_of(fact) for kind in _leaf_types(field.type)]
    if len(found) != len(fact.leaves):
        return
    for (field, kind), (path, leaf) in zip(found, fact.leaves.items(), strict=True):
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
    """How files of rows with `schema` say their columns: Parquet has no seconds, for one. None for
    columns that no file can have."""
    import pyarrow as pa

    try:
        return _empty_footer(schema).schema.to_arrow_schema().remove_metadata()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def leaf_paths(schema: pa.Schema) -> list[str]:
    """The Parquet paths of columns and of their parts."""
    footer = _empty_footer(schema)
    return [footer.schema.column(at).path for at in range(footer.num_columns)]


def _empty_footer(schema: pa.Schema) -> pq.FileMetaData:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pa.BufferOutputStream()
    pq.ParquetWriter(file, schema).close()
    return pq.read_metadata(pa.BufferReader(file.getvalue()))


def _by_path(names: list[str], leaves: list[LeafFact]) -> dict[str, LeafFact]:
    """Without those whose path another has too: the part ``b`` of a column ``a`` beside a column
    ``a.b``."""
    times = Counter(names)
    return {name: leaf for name, leaf in zip(names, leaves, strict=True) if times[name] == 1}


def _leaf(chunks: list[Any]) -> LeafFact:
    """One leaf over all row groups; unknown in one is unknown in all."""
    size = sum(chunk.total_compressed_size for chunk in chunks)
    values = sum(chunk.num_values for chunk in chunks)
    physical = chunks[0].physical_type if chunks else ""
    known = [chunk.statistics for chunk in chunks if chunk.is_stats_set]
    if len(known) < len(chunks) or not all(found.has_null_count for found in known):
        return LeafFact(physical, size, values)
    nulls = sum(found.null_count for found in known)
    some = [
        found
        for chunk, found in zip(chunks, known, strict=True)
        if found.null_count < chunk.num_values
    ]
    if not some or not all(found.has_min_max for found in some):
        return LeafFact(physical, size, values, nulls)
    low, high = _bounds(some)
    return LeafFact(physical, size, values, nulls, low, high)


def _bounds(known: list[Any]) -> tuple[Any, Any]:
    """Least and largest value; None where pyarrow cannot read them, or Python has no such instant.
    Decimals that are stored as integers are those integers, unscaled, as Iceberg's writer asks."""
    raw = known[0].logical_type.type == "DECIMAL" and known[0].physical_type.startswith("INT")
    try:
        if raw:
            return min(f.min_raw for f in known), max(f.max_raw for f in known)
        return min(f.min for f in known), max(f.max for f in known)
    except (NotImplementedError, OverflowError, ValueError):
        return None, None


def _start_of(chunk: Any) -> int:
    if chunk.has_dictionary_page and chunk.dictionary_page_offset < chunk.data_page_offset:
        return int(chunk.dictionary_page_offset)
    return int(chunk.data_page_offset)


# -- on the way from a task to the driver ---------------------------------------------------------


def fact_to_json(fact: FileFact) -> str:
    """One line of text; bounds that are neither numbers, texts nor times are left out."""
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
    """What `fact_to_json` wrote."""
    found = json.loads(text)
    leaves = {
        name: LeafFact(physical, size, values, nulls, _restored(low), _restored(high))
        for name, (physical, size, values, nulls, low, high) in found["leaves"].items()
    }
    return FileFact(
        path=found["path"],
        rows=found["rows"],
        size=found["size"],
        tag=found["tag"],
        schema=base64.b64decode(found["schema"]),
        leaves=leaves,
        nulls=found["nulls"],
        splits=tuple(found["splits"]),
        keys=tuple((name, kind, text) for name, kind, text in found.get("keys", ())),
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
    """Rows by partition in the files `names` in `location`, from footers, or else the `partition`
    column. Where a file has neither that column nor a folder for it, the rows of all are compared
    with those of `said`, which then hold. Raises `SinkDamaged` if they differ, or a file of the
    window `window` is missing or no Parquet, and `StoreFailed` if nobody can say so now."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    counted: Counter[str] = Counter()
    total, all_say = 0, True
    for name in names:
        where = f"window {window}: {location.url}/{name}"
        try:
            source = location.open(name)
        except FileNotFoundError as exc:
            raise SinkDamaged(f"{where} cannot be read: it is missing") from exc
        try:
            with source, pq.ParquetFile(source) as file:
                found = _partitions(file, PurePosixPath(name))
                total += file.metadata.num_rows
        except StoreFailed:
            raise
        except (OSError, pa.ArrowInvalid) as exc:
            raise SinkDamaged(f"{where} cannot be read: {exc}") from exc
        counted.update(found or {})
        all_say = all_say and found is not None
    if all_say:
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
    """The partition of all rows of a row group, if its statistics prove that there is only one."""
    for index in range(row_group.num_columns):
        column = row_group.column(index)
        if column.path_in_schema != _COLUMN:
            continue
        known = column.statistics
        if known is None or not known.has_min_max or known.min != known.max:
            return None
        exact = known.has_null_count and known.null_count == 0
        return str(known.min) if exact else None
    return None
