"""Reading windows of Parquet files: those of `ParquetSink` and of `ObjectStoreSink`.

Reads files that markers list. Others (a user's own, half a copy, of a try that lost) are not read.
Tables of other sinks have their own readers. This module must not write.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from os import PathLike, fspath
from typing import TYPE_CHECKING, Final

from tubemq_client.errors import ConfigError, require_extra
from tubemq_provider.files.objects import explains_object_store_errors
from tubemq_provider.files.partitioned import NULL_FOLDER
from tubemq_provider.sinks._storage import LocalStorage, Storage, scheme_of
from tubemq_provider.sinks.object_store import ObjectStoreSink
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.windows.errors import SinkDamaged
from tubemq_provider.windows.protocols import Marker, Sink

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds

__all__ = ["published_windows", "read_windows"]

_EXACT: Final = {16: 2**11, 32: 2**24, 64: 2**53}
"""By bits: up to here a floating-point number has every integer."""

_NS_YEARS: Final = (1678, 2261)

_WINDOW: Final = re.compile("window_id=([^/]+)/")

Source = str | PathLike[str] | Sink
"""A sink of files, or its root: a path, or a URL of an object store."""


def published_windows(
    source: Source, *, storage_options: Mapping[str, str] | None = None
) -> list[Marker]:
    """Return the markers of all published windows: cursor windows by number, then the others by id.

    `source` may be any sink that has markers; `storage_options` are for URLs.
    """
    sink = _sink_of(source, storage_options)
    markers = [marker for name in sink.window_ids() if (marker := sink.marker(name))]
    return sorted(markers, key=lambda marker: (marker.plan.seq or 0, marker.plan.window_id))


def read_windows(
    source: Source,
    window_ids: Iterable[str] | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
) -> ds.Dataset:
    """Return the records of published windows (all, or those named) as a pyarrow dataset, with a
    `window_id` column and all columns that any of them has: the footer of every file is read.

    Columns that a sink keeps in the names of folders (`partition_by`) are among them, in their own
    types. Raises `ConfigError` for a window that is not published, and for a column whose types in
    two windows have none in common that has all of their values. Raises `SinkDamaged` if files
    of a window are gone.
    """
    try:
        import pyarrow as pa
        import pyarrow.dataset as ds
    except ImportError as exc:
        raise require_extra("arrow", exc) from exc
    sink = _sink_of(source, storage_options)
    storage = _storage_of(sink)
    markers = _selected(published_windows(sink), window_ids)
    files = [name for marker in markers for name in _names(sink, marker)]
    if not files:
        return ds.dataset(pa.table({"window_id": pa.array([], pa.string())}))
    filesystem, root = storage.filesystem()
    options = ds.FileSystemFactoryOptions(
        partitioning=ds.HivePartitioning(_folders(markers, files), null_fallback=NULL_FOLDER),
        partition_base_dir=root,
    )
    paths = [f"{root}/{name}" for name in files]
    factory = ds.FileSystemDatasetFactory(filesystem, paths, ds.ParquetFileFormat(), options)
    with explains_object_store_errors(storage.url):
        try:
            return _finished(factory)
        except FileNotFoundError as exc:
            from pyarrow.fs import FileType

            gone = [
                path for path in paths if filesystem.get_file_info(path).type == FileType.NotFound
            ]
            where = ", ".join(gone[:3]) or str(exc)
            raise SinkDamaged(
                f"{storage.url}: {len(gone)} files of published windows are gone: {where}. Bring "
                f"them back, or remove the markers of these windows if they are not to be read"
            ) from exc


def _finished(factory: ds.DatasetFactory) -> ds.Dataset:
    """With all columns. By default pyarrow looks at the first file only, and does not read columns
    of later ones."""
    import pyarrow as pa

    with suppress(pa.ArrowTypeError, pa.ArrowInvalid):
        return factory.finish(factory.inspect(promote_options="default", fragments=None))
    try:
        schema = factory.inspect(promote_options="permissive", fragments=None)
    except (pa.ArrowTypeError, pa.ArrowInvalid) as exc:
        fragments = [*factory.finish(pa.schema([])).get_fragments()]
        raise _differ([*_without_common_type(fragments)] or [str(exc)]) from exc
    dataset = factory.finish(schema)
    problems: dict[str, str] = {}
    for fragment in dataset.get_fragments():
        for name, problem in _losses(fragment, schema):
            problems.setdefault(name, problem)
    if problems:
        kinds = _kinds_of(dataset.get_fragments())
        others = {name: _in_words(kinds[name]) for name in problems}
        raise _differ(
            f"{name} is {others[name]}; {problem}" for name, problem in sorted(problems.items())
        )
    return dataset


def _losses(fragment: ds.ParquetFileFragment, schema: pa.Schema) -> Iterator[tuple[str, str]]:
    """Columns of a file whose values the type that all windows would have in common does not keep
    as they are. pyarrow makes double of decimals, and stops in the middle of reading at an integer
    that a type has not. Numbers are judged by what footers tell."""
    import pyarrow.types as pt

    for held in fragment.physical_schema:
        common = schema.field(held.name).type
        if _keeps_values(held.type, common):
            continue
        if pt.is_timestamp(held.type) and _fits_nanoseconds(fragment, held, common):
            continue
        largest = _largest(fragment, held.name) if pt.is_integer(held.type) else None
        if largest is not None and largest <= _whole_numbers(common):
            continue
        up_to = "" if largest is None else f" (up to ±{largest})"
        problem = f"the common type {common} has not all of them: {held.type}{up_to}"
        yield held.name, f"{problem} in {fragment.path}"


def _keeps_values(held: pa.DataType, common: pa.DataType) -> bool:
    """Return True if a column of type `common` represents every value of `held` unchanged."""
    import pyarrow.types as pt

    if held.equals(common) or pt.is_null(held):
        keeps = True
    elif pt.is_dictionary(held):
        keeps = _keeps_values(held.value_type, common)
    elif pt.is_integer(held):
        unsigned = pt.is_unsigned_integer(held) or not pt.is_unsigned_integer(common)
        keeps = unsigned and _whole_numbers(held) <= _whole_numbers(common)
    elif pt.is_floating(held):
        keeps = pt.is_floating(common) and common.bit_width >= held.bit_width
    elif pt.is_decimal(held):
        wider = pt.is_decimal(common) and common.scale >= held.scale
        keeps = wider and common.precision - common.scale >= held.precision - held.scale
    elif pt.is_timestamp(held):
        # Nanoseconds have the years 1677 to 2262 only.
        keeps = pt.is_timestamp(common) and held.tz == common.tz and common.unit != "ns"
    elif pt.is_nested(held):
        keeps = _keeps_parts(held, common)
    else:
        kinds = (pt.is_time, pt.is_date, pt.is_duration, _is_text, _is_bytes)
        keeps = any(is_kind(held) and is_kind(common) for is_kind in kinds)
    return bool(keeps)


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow.types as pt

    return bool(pt.is_string(kind) or pt.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    import pyarrow.types as pt

    return bool(pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind))


def _keeps_parts(held: pa.DataType, common: pa.DataType) -> bool:
    import pyarrow.types as pt

    if pt.is_struct(held) and pt.is_struct(common):
        names = {common.field(at).name: common.field(at).type for at in range(common.num_fields)}
        parts = [held.field(at) for at in range(held.num_fields)]
        return all(p.name in names and _keeps_values(p.type, names[p.name]) for p in parts)
    if pt.is_map(held) and pt.is_map(common):
        return _keeps_values(held.key_type, common.key_type) and _keeps_values(
            held.item_type, common.item_type
        )
    lists = (pt.is_list, pt.is_large_list, pt.is_fixed_size_list)
    if any(is_kind(held) for is_kind in lists) and any(is_kind(common) for is_kind in lists):
        return _keeps_values(held.value_type, common.value_type)
    return False


def _whole_numbers(kind: pa.DataType) -> int:
    """Up to here a type has every integer; -1 if it has none."""
    import pyarrow.types as pt

    if pt.is_floating(kind):
        return _EXACT[kind.bit_width]
    if pt.is_integer(kind):
        return int(2 ** (kind.bit_width - pt.is_signed_integer(kind)) - 1)
    if pt.is_decimal(kind):
        return int(10 ** (kind.precision - kind.scale) - 1)
    return -1


def _fits_nanoseconds(
    fragment: ds.ParquetFileFragment, held: pa.Field, common: pa.DataType
) -> bool:
    """Return True if, by the footer, all instants of a column are in years that nanoseconds
    have."""
    import pyarrow.types as pt

    if not pt.is_timestamp(common) or common.tz != held.type.tz:
        return False
    statistics = [(group.statistics or {}).get(held.name) for group in fragment.row_groups]
    return all(
        group_stats is not None
        and _NS_YEARS[0] <= group_stats["min"].year <= group_stats["max"].year <= _NS_YEARS[1]
        for group_stats in statistics
    )


def _largest(fragment: ds.ParquetFileFragment, name: str) -> int | None:
    """Return the largest absolute value of an integer column by its footer; None if unknown."""
    largest = 0
    for group in fragment.row_groups:
        group_stats = (group.statistics or {}).get(name)
        if group_stats is None:
            return None
        largest = max(largest, -int(group_stats["min"]), int(group_stats["max"]))
    return largest


def _without_common_type(fragments: Iterable[ds.ParquetFileFragment]) -> Iterator[str]:
    import pyarrow as pa

    for name, kinds in _kinds_of(fragments).items():
        try:
            pa.unify_schemas(
                [pa.schema([(name, kind)]) for kind in kinds], promote_options="permissive"
            )
        except (pa.ArrowTypeError, pa.ArrowInvalid):
            yield f"{name} is {_in_words(kinds)}"


def _kinds_of(
    fragments: Iterable[ds.ParquetFileFragment],
) -> dict[str, dict[pa.DataType, str]]:
    """Return the types of each column, each with a window that has it."""
    kinds: dict[str, dict[pa.DataType, str]] = {}
    for fragment in fragments:
        folder = _WINDOW.search(fragment.path)
        window = fragment.path if folder is None else folder[1]
        for field in fragment.physical_schema:
            kinds.setdefault(field.name, {}).setdefault(field.type, window)
    return kinds


def _in_words(kinds: Mapping[pa.DataType, str]) -> str:
    return ", and ".join(f"{kind} in window {window}" for kind, window in kinds.items())


def _differ(how: Iterable[str]) -> ConfigError:
    return ConfigError(
        [
            f"windows differ in the type of a column: {problem}; read windows of one kind by their "
            f"ids (window_ids=…), and cast them"
            for problem in how
        ],
        subject="windows",
    )


def _folders(markers: Iterable[Marker], files: Iterable[str]) -> pa.Schema:
    """Columns that are in the names of folders. Raises `ConfigError` if windows differ in one."""
    import pyarrow as pa

    kinds = {"window_id": "string"}
    if any("/partition=" in name for name in files):  # engines of others may make such
        kinds["partition"] = "string"
    for marker in markers:
        for name, kind in marker.partition_columns:
            if kinds.setdefault(name, kind) != kind:
                raise _differ(
                    [f"{name} is {kinds[name]}, and {kind} in window {marker.plan.window_id}"]
                )
    return pa.schema([(name, pa.type_for_alias(kind)) for name, kind in kinds.items()])


def _sink_of(source: Source, storage_options: Mapping[str, str] | None) -> Sink:
    if isinstance(source, Sink):
        return source
    root = fspath(source)
    if scheme_of(root) in ("", "file"):
        return ParquetSink(root)
    return ObjectStoreSink(root, storage_options=storage_options)


def _storage_of(sink: Sink) -> Storage:
    if isinstance(sink, ParquetSink):
        return LocalStorage(sink.root)
    if isinstance(sink, ObjectStoreSink):
        return sink.storage
    raise ConfigError(
        f"windows of a {sink.kind} sink are read with that system's own readers; see docs/sinks.md",
        subject="read_windows",
    )


def _names(sink: Sink, marker: Marker) -> Iterable[str]:
    """Return the window's files, relative to the sink's place."""
    if isinstance(sink, ParquetSink):
        return (f"window_id={marker.plan.window_id}/{name}" for name in marker.files)
    return marker.files


def _selected(markers: list[Marker], window_ids: Iterable[str] | None) -> list[Marker]:
    if window_ids is None:
        return markers
    selected = set(window_ids)
    missing = selected - {marker.plan.window_id for marker in markers}
    if missing:
        raise ConfigError(
            [f"window {name} is not published" for name in sorted(missing)], subject="windows"
        )
    return [marker for marker in markers if marker.plan.window_id in selected]
