"""What staged Parquet files hold, counted without reading the records.

Row counts come from footers. The partition of the rows comes from the footer's statistics where a
row group has one partition, else from the `partition` column alone, or from a ``partition=…``
directory that Spark made. This module must not write or remove anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from tubemq_client.errors import require_extra
from tubemq_provider.windows.errors import SinkDamaged

if TYPE_CHECKING:
    import pyarrow.parquet as pq
    from pyarrow import fs

__all__ = ["StagedFile", "count_rows", "data_files", "inspect"]

_COLUMN = "partition"


@dataclass(frozen=True, slots=True)
class StagedFile:
    """One data file: its path relative to the window, its rows, and rows by partition key (None if
    the file does not say)."""

    path: str
    rows: int
    partitions: dict[str, int] | None


def data_files(directory: Path) -> Iterator[Path]:
    """Files that readers of the directory see: none whose path has a name with ``_`` or ``.`` in
    front, as Spark and pyarrow skip those."""
    for path in sorted(directory.rglob("*")):
        if path.is_file() and not any(
            name.startswith(("_", ".")) for name in path.relative_to(directory).parts
        ):
            yield path


def inspect(directory: Path, path: Path) -> StagedFile:
    """Count one file. Raises what pyarrow raises for a file that is no Parquet."""
    try:
        import pyarrow.parquet as pq
    except ImportError as exc:
        raise require_extra("arrow", exc) from exc
    relative = path.relative_to(directory)
    with pq.ParquetFile(path) as file:
        rows = file.metadata.num_rows
        return StagedFile(relative.as_posix(), rows, _partitions(file, relative))


def count_rows(
    filesystem: fs.FileSystem, root: str, names: Iterable[str], window: str
) -> dict[str, int]:
    """Rows by partition in the files `names` below `root`, from footers, or else the `partition`
    column. Raises `SinkDamaged` if a file of the window `window` is missing or no Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    counted: Counter[str] = Counter()
    for name in names:
        try:
            with pq.ParquetFile(filesystem.open_input_file(f"{root}/{name}")) as file:
                counted.update(_partitions(file, Path(name)) or {})
        except (OSError, pa.ArrowInvalid) as exc:
            raise SinkDamaged(f"window {window}: {root}/{name} cannot be read: {exc}") from exc
    return dict(counted)


def _partitions(file: pq.ParquetFile, relative: Path) -> dict[str, int] | None:
    if _COLUMN in file.schema_arrow.names:
        return dict(_by_column(file))
    return _by_directory(relative, file.metadata.num_rows)


def _by_directory(relative: Path, rows: int) -> dict[str, int] | None:
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
