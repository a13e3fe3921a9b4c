"""Writer of staged Parquet files that are partitioned by columns: `partition_by` of a sink.

Counterpart of `writer.StagedWriter` for such sinks, used by the same engines. A file has rows of
one combination of values only, and its facts have these values. Memory is bounded: pending rows,
open files and partitions of one task have limits, the last of which a user can set. This module
must not plan windows, read brokers, or import pyspark.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote

from tubemq_client.errors import ConfigError
from tubemq_provider.files.data_file import DataFile
from tubemq_provider.files.field_ids import with_field_ids
from tubemq_provider.files.writer import ROW_GROUP_BYTES, FilePart, StagedWriter, rows_by_key

if TYPE_CHECKING:
    import pyarrow as pa

    from tubemq_provider.files.columns import ColumnSet
    from tubemq_provider.files.locations import Location
    from tubemq_provider.windows.facts import FileFact, Key
    from tubemq_provider.windows.field_ids import FieldIds
    from tubemq_provider.windows.partitioning import PartitionBy, PartitionField

__all__ = ["NULL_FOLDER", "PartitionedWriter", "folder_of", "staged_writer"]

NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"
"""Folder name of null values in Hive, Spark, pyarrow and DuckDB."""

_OPEN_FILES: Final = 48
_PENDING_GROUPS: Final = 4
"""Most row groups of pending rows, over all partitions."""

_LONGEST: Final = 240
"""Most bytes of a folder name; file systems allow 255."""

_ESCAPED: Final = frozenset("\"#%'*/:=?\\\x7f{[]^<>|`~&+,;$!()@") | {chr(n) for n in range(32)}

_ASCII: Final = "".join(map(chr, range(0x21, 0x7F)))

_YEAR: Final = re.compile(r"(?!0000)\d{4}-")

Values = tuple[str | None, ...]


def staged_writer(
    location: Location,
    stem: str,
    schema: pa.Schema,
    by: PartitionBy | None,
    ids: FieldIds | None = None,
    **options: Any,
) -> StagedWriter | PartitionedWriter:
    """Create the writer for a staging place; `options` are those of `StagedWriter`."""
    schema = with_field_ids(schema, ids)
    if by is None:
        return StagedWriter(location, stem, schema, **options)
    return PartitionedWriter(location, stem, schema, by, **options)


@dataclass(slots=True)
class _Partition:
    """Partition of one combination of values: its pending rows and its open file."""

    keys: tuple[Key, ...]
    folder: str
    pending: list[pa.RecordBatch] = field(default_factory=list)
    pending_bytes: int = 0
    name: str = ""
    file: DataFile | None = None
    used: int = 0


class PartitionedWriter:
    """Writer of files ``[<folders>/]<stem>-<number>.parquet`` in `location`, partitioned by `by`;
    otherwise like `StagedWriter`.

    Rows of a range are in several files, so `pieces` have an entry for the range that was read, and
    the rows of each file by partition key, without offsets. Without `begin_range`, rows may be of
    any partition key, by their column ``partition``.

    Raises `ConfigError` if `schema` lacks a column of `by`, or has it with an unsupported type;
    later also for more partitions than the limit, and for values that no folder name can have.
    """

    def __init__(
        self,
        location: Location,
        stem: str,
        schema: pa.Schema,
        by: PartitionBy,
        *,
        target_bytes: int | None = None,
        row_group_bytes: int = ROW_GROUP_BYTES,
        compression: str = "snappy",
        columns: ColumnSet | None = None,
    ) -> None:
        import pyarrow as pa

        self.pieces: list[FilePart] = []
        self.files: list[FileFact] = []
        self._location, self._stem, self._by = location, stem, by
        self._kinds = _kinds(by, schema)
        self._kept = [name for name in schema.names if name not in by.moved]
        self._schema = pa.schema([schema.field(name) for name in self._kept])
        self._target = target_bytes
        self._limit = min(row_group_bytes, target_bytes or row_group_bytes)
        self._compression, self._columns = compression, columns
        self._number = self._clock = self._waiting = 0
        self._partitions: dict[Values, _Partition] = {}
        self._range: Any | None = None
        self._rows: Counter[tuple[str, str]] = Counter()
        self._bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.end_range()
            for partition in self._partitions.values():
                self._close(partition)
        else:
            self._abandon()

    def begin_range(self, range_: Any) -> None:
        """Begin a range: the next records are of `range_`."""
        self._range, self._bytes = range_, 0

    def end_range(self) -> None:
        """End the range, which is complete. Idempotent."""
        range_, self._range = self._range, None
        at = 0 if range_ is None else range_.end
        for (name, key), rows in sorted(self._rows.items()):
            self.pieces.append(FilePart(name, key, at, at, rows, 0))
        self._rows.clear()
        if range_ is not None:
            key = range_.partition.key
            self.pieces.append(FilePart("", key, range_.start, range_.end, 0, self._bytes))

    def add(self, batch: pa.RecordBatch, body_bytes: int, start: int | None = None) -> bool:  # noqa: ARG002
        """Add records of the range; return True if a row group was written."""
        if not batch.num_rows:
            return False
        self._bytes += body_bytes
        written = False
        for values, rows in _split(batch, self._by):
            partition = self._partitions.get(values) or self._begun(values)
            written = self._take(partition, rows) or written
        while self._waiting >= self._limit * _PENDING_GROUPS:
            self._flush(max(self._partitions.values(), key=lambda each: each.pending_bytes))
            written = True
        return written

    def _begun(self, values: Values) -> _Partition:
        if len(self._partitions) >= self._by.limit:
            raise ConfigError(
                f"{self._by} makes more than {self._by.limit} partitions in one task of the "
                f"window, each with its own file; take coarser columns, as day(…) of an "
                f"instant, or raise max_partitions",
                subject="partition_by",
            )
        names = self._by.names
        keys = tuple(zip(names, self._kinds, values, strict=True))
        folder = ""
        _refuse_unreadable(keys, self._by)
        if self._by.layout != "columns":
            # In Delta too: the log has the values, but some readers (polars) parse the path.
            _refuse_unnameable(keys)
            name_of = folder_of if self._by.layout == "folders" else _delta_folder_of
            folder = "".join(f"{name_of(name, text)}/" for name, _, text in keys)
        made = self._partitions[values] = _Partition(keys, folder)
        return made

    def _take(self, partition: _Partition, rows: pa.RecordBatch) -> bool:
        """Add rows to a partition; return True if a row group was written. They may begin a new
        file, after closing a full one."""
        if partition.file is not None and self._is_full(partition):
            self._close(partition)
        if not partition.name:
            partition.name = f"{partition.folder}{self._stem}-{self._number}.parquet"
            self._number += 1
        for key, count in self._counted(rows):
            self._rows[partition.name, key] += count
        selected = rows.select(self._kept)
        partition.pending.append(selected)
        partition.pending_bytes += selected.nbytes
        self._waiting += selected.nbytes
        if partition.pending_bytes < self._limit:
            return False
        self._flush(partition)
        return True

    def _counted(self, rows: pa.RecordBatch) -> Iterator[tuple[str, int]]:
        if self._range is not None:
            yield self._range.partition.key, rows.num_rows
            return
        yield from rows_by_key(rows)

    def _is_full(self, partition: _Partition) -> bool:
        file = partition.file
        full = self._target is not None and file is not None and file.size >= self._target
        return full and not partition.pending

    def _flush(self, partition: _Partition) -> None:
        if not partition.pending:
            return
        self._clock += 1
        partition.used = self._clock
        if partition.file is None:
            self._make_room()
            partition.file = DataFile(
                self._location, partition.name, self._schema, self._compression, self._columns
            )
        partition.file.write(partition.pending)
        self._waiting -= partition.pending_bytes
        partition.pending, partition.pending_bytes = [], 0

    def _make_room(self) -> None:
        """Close the least recently written file if too many are open. Later rows of its partition
        go into a new file."""
        opened = [each for each in self._partitions.values() if each.file is not None]
        if len(opened) >= _OPEN_FILES:
            self._close(min(opened, key=lambda each: each.used))

    def _close(self, partition: _Partition) -> None:
        self._flush(partition)
        file, partition.file, partition.name = partition.file, None, ""
        if file is not None:
            self.files.append(replace(file.close(), keys=partition.keys))

    def _abandon(self) -> None:
        for partition in self._partitions.values():
            file, partition.file = partition.file, None
            if file is not None:
                file.abandon()
        self._partitions.clear()


def folder_of(name: str, text: str | None) -> str:
    """Return a folder name in Hive's and Spark's form. Characters with a meaning in paths and URLs
    are escaped; letters are not, since Spark reads escapes as characters and not as bytes."""
    return f"{_escaped(name)}={NULL_FOLDER if text is None else _escaped(text)}"


def _delta_folder_of(name: str, text: str | None) -> str:
    """Return a folder name of a Delta table. Spaces and non-ASCII letters are escaped too, if the
    name is not too long: deltalake (1.6) names files in object stores by half-escaped URLs, under
    which polars does not find them. Readers that parse folder names decode UTF-8."""
    folder = folder_of(name, text)
    escaped = quote(folder, safe=_ASCII)
    return escaped if len(escaped) <= _LONGEST else folder


def _escaped(text: str) -> str:
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in text)


def _refuse_unreadable(keys: Sequence[Key], by: PartitionBy) -> None:
    """Raise `ConfigError` for values that readers of a table cannot parse. A single one in a commit
    would make a Delta table unreadable."""
    for item, (name, kind, text) in zip(by.fields, keys, strict=True):
        problem = ""
        if text is None:
            continue
        if (kind == "date32[day]" or item.transform != "identity") and not _YEAR.match(text):
            problem = f"{text}, and readers know the years 0001 to 9999 (is its unit right?)"
        elif kind.startswith("uint") and by.layout != "folders" and int(text) > _most(kind, by):
            problem = f"{text}, and the table has no unsigned integers; cast it to a wider type"
        if problem:
            raise ConfigError(
                f"partition {name!r} has the value {problem}; change it in decode or transform, or "
                f"leave {item} out of partition_by",
                subject="partition_by",
            )


def _most(kind: str, by: PartitionBy) -> int:
    """Return the largest integer of the table's signed type: equal width in Delta, 32 or 64 bits in
    Iceberg."""
    bits = int(kind.removeprefix("uint"))
    return int(2 ** (max(bits, 32 if by.layout == "columns" else 8) - 1) - 1)


def _refuse_unnameable(keys: Sequence[Key]) -> None:
    """Raise `ConfigError` for values that a folder name cannot represent."""
    for name, _, text in keys:
        if text is None:
            continue
        problem = ""
        if text in ("", NULL_FOLDER):
            problem = f"the text {text!r}, which readers of partitions cannot tell from null"
        elif len(folder_of(name, text).encode()) > _LONGEST:
            problem = f"a text of {len(text)} characters, too long for the name of a folder"
        if problem:
            raise ConfigError(
                f"column {name!r} has {problem}; change it in decode or transform, or leave the "
                f"column out of partition_by",
                subject="partition_by",
            )


# -- values of columns ----------------------------------------------------------------------------


def _kinds(by: PartitionBy, schema: pa.Schema) -> tuple[str, ...]:
    """Return the Arrow types of the values. Raises `ConfigError` with every problem."""
    problems, kinds = [], []
    for item in by.fields:
        if item.column not in schema.names:
            names = ", ".join(schema.names)
            problems.append(f"there is no column {item.column!r}, only {names}")
            continue
        kind = _kind(item, schema.field(item.column).type)
        if kind is None:
            type_ = schema.field(item.column).type
            problems.append(
                f"{item}: {item.column} is {type_}; "
                + (
                    "take a column of texts, integers, booleans or days, or day(…) of an instant"
                    if item.transform == "identity"
                    else "instants have days and hours"
                )
            )
        kinds.append(kind or "")
        if item.transform != "identity" and item.name in schema.names:
            problems.append(f"{item}: there is a column {item.name!r} already; name it instead")
    if not problems and not {*schema.names} - by.moved:
        problems.append("no column would be left in the files")
    if problems:
        raise ConfigError(problems, subject="partition_by")
    return tuple(kinds)


def _kind(item: PartitionField, kind: pa.DataType) -> str | None:
    import pyarrow.types as pt

    if item.transform == "day":
        return "date32[day]" if pt.is_timestamp(kind) else None
    if item.transform == "hour":
        return "string" if pt.is_timestamp(kind) else None
    if pt.is_string(kind) or pt.is_large_string(kind):
        return "string"
    plain = pt.is_integer(kind) or pt.is_boolean(kind) or pt.is_date32(kind)
    return str(kind) if plain else None


def _split(batch: pa.RecordBatch, by: PartitionBy) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """Group rows by their values; rows keep their order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = [_texts(batch.column(item.column), item) for item in by.fields]
    codes: Any = None
    for column in texts:
        encoded = column.dictionary_encode(null_encoding="encode")
        each = encoded.indices.cast(pa.int64())
        codes = (
            each
            if codes is None
            else pc.add(pc.multiply(codes, len(encoded.dictionary)), each)
            .dictionary_encode()
            .indices.cast(pa.int64())
        )
    if pc.min_max(codes)["min"] == pc.min_max(codes)["max"]:
        yield tuple(column[0].as_py() for column in texts), batch
        return
    order = pc.sort_indices(codes)
    at = 0
    for item in codes.take(order).value_counts().to_pylist():
        first, mine = order[at].as_py(), order.slice(at, item["counts"])
        # A copy: a pending slice would keep all rows of the batch in memory.
        yield tuple(column[first].as_py() for column in texts), batch.take(mine)
        at += item["counts"]


def _texts(column: pa.Array, item: PartitionField) -> pa.Array:
    """Return values as text; days as ``2026-11-22``, hours as ``2026-11-22-13``, both in UTC."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if item.transform == "identity":
        return column.cast(pa.string())
    plain = _microseconds(column).cast(pa.timestamp("us"))
    if item.transform == "day":
        return pc.floor_temporal(plain, unit="day").cast(pa.date32()).cast(pa.string())
    hours = pc.utf8_slice_codeunits(pc.cast(plain, pa.string()), 0, 13)
    return pc.replace_substring(hours, " ", "-")


def _microseconds(column: pa.Array) -> pa.Array:
    """Return instants as microseconds since 1970 in UTC. Nanoseconds are rounded down; a cast would
    round towards 1970."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.type.unit != "ns":
        zone = column.type.tz and "UTC"
        return column.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64())
    ns = column.cast(pa.int64())
    cut = pc.divide(ns, 1000)
    return pc.subtract(cut, pc.less(ns, pc.multiply(cut, 1000)).cast(pa.int64()))
