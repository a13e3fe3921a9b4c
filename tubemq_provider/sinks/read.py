"""Reading windows of Parquet files: those of `ParquetSink` and of `ObjectStoreSink`.

Goes by the markers: files that a marker does not list (a user's own, half a copy, a try that
lost) are not read. Tables of other sinks have readers of their own. This module must not write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from os import PathLike, fspath
from typing import TYPE_CHECKING, Final

from tubemq_client.errors import ConfigError, require_extra
from tubemq_provider.files.objects import refusals_told
from tubemq_provider.files.partitioned import NULL_FOLDER
from tubemq_provider.sinks._storage import LocalStorage, Storage, scheme_of
from tubemq_provider.sinks.object_store import ObjectStoreSink
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.windows.protocols import Marker, Sink

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds

__all__ = ["published_windows", "read_windows"]

_EXACT: Final = {16: 2**11, 32: 2**24, 64: 2**53}
"""By bits: up to here a floating-point number has every integer."""

Source = str | PathLike[str] | Sink
"""A sink of files, or its root: a path, or a URL of an object store."""


def published_windows(
    source: Source, *, storage_options: Mapping[str, str] | None = None
) -> list[Marker]:
    """The markers of all published windows: cursor windows by number, then the others by id.

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
    """The records of published windows (all, or those named) as a pyarrow dataset, with a
    `window_id` column and all columns that any of them has: the footer of every file is read.

    Columns that a sink keeps in the names of folders (`partition_by`) are among them, in their own
    types. Raises `ConfigError` for a window that is not published, and for a column whose types in
    two windows have none in common that has all of their values.
    """
    try:
        import pyarrow as pa
        import pyarrow.dataset as ds
    except ImportError as exc:
        raise require_extra("arrow", exc) from exc
    sink = _sink_of(source, storage_options)
    storage = _storage_of(sink)
    markers = _wanted(published_windows(sink), window_ids)
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
    with refusals_told(storage.url):
        return _finished(factory)


def _finished(factory: ds.DatasetFactory) -> ds.Dataset:
    """With all columns. By default pyarrow looks at the first file only, and does not read columns
    of later ones."""
    import pyarrow as pa

    with suppress(pa.ArrowTypeError, pa.ArrowInvalid):
        return factory.finish(factory.inspect(promote_options="default", fragments=None))
    try:
        schema = factory.inspect(promote_options="permissive", fragments=None)
    except (pa.ArrowTypeError, pa.ArrowInvalid) as exc:
        raise _differ(str(exc)) from exc
    dataset = factory.finish(schema)
    _refuse_rounding(dataset)
    return dataset


def _refuse_rounding(dataset: ds.Dataset) -> None:
    """Integers that became floating-point numbers are read as such, and pyarrow stops in the middle
    of reading at one that they do not have. Judged by what footers tell. Raises `ConfigError`."""
    import pyarrow.types as pt

    exact = {
        field.name: _EXACT[field.type.bit_width]
        for field in dataset.schema
        if pt.is_floating(field.type)
    }
    for fragment in dataset.get_fragments() if exact else ():
        held = fragment.physical_schema
        names = {n for n in exact if n in held.names and pt.is_integer(held.field(n).type)}
        for group in fragment.row_groups if names else ():
            told = {n: found for n, found in (group.statistics or {}).items() if n in names}
            for name, found in told.items():
                largest = max(-found["min"], found["max"])
                if largest > exact[name]:
                    kinds = f"{held.field(name).type} (up to ±{largest}) in {fragment.path}"
                    other = f"{dataset.schema.field(name).type} in others"
                    raise _differ(f"{name} is {kinds}, and {other}, which has not all of them")


def _differ(how: str) -> ConfigError:
    return ConfigError(
        f"windows differ in the type of a column: {how}; read windows of one kind by their ids "
        f"(window_ids=…), and cast them",
        subject="windows",
    )


def _folders(markers: Iterable[Marker], files: Iterable[str]) -> pa.Schema:
    """Columns that are in the names of folders. Raises `ConfigError` if windows differ in one."""
    import pyarrow as pa

    found = {"window_id": "string"}
    if any("/partition=" in name for name in files):  # engines of others may make such
        found["partition"] = "string"
    for marker in markers:
        for name, kind in marker.partition_columns:
            if found.setdefault(name, kind) != kind:
                raise _differ(
                    f"{name} is {found[name]}, and {kind} in window {marker.plan.window_id}"
                )
    return pa.schema([(name, pa.type_for_alias(kind)) for name, kind in found.items()])


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
    """The window's files, relative to the sink's place."""
    if isinstance(sink, ParquetSink):
        return (f"window_id={marker.plan.window_id}/{name}" for name in marker.files)
    return marker.files


def _wanted(markers: list[Marker], window_ids: Iterable[str] | None) -> list[Marker]:
    if window_ids is None:
        return markers
    wanted = set(window_ids)
    missing = wanted - {marker.plan.window_id for marker in markers}
    if missing:
        raise ConfigError(
            [f"window {name} is not published" for name in sorted(missing)], subject="windows"
        )
    return [marker for marker in markers if marker.plan.window_id in wanted]
