"""Reading windows of Parquet files: those of `ParquetSink` and of `ObjectStoreSink`.

Goes by the markers: files that a marker does not list (a user's own, half a copy, a try that
lost) are not read. Tables of other sinks have readers of their own. This module must not write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike, fspath
from typing import TYPE_CHECKING

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
    two windows have none in common.
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
    try:
        # By default only the first file is looked at, and columns of later ones are not read.
        with refusals_told(storage.url):
            schema = factory.inspect(promote_options="permissive", fragments=None)
    except (pa.ArrowTypeError, pa.ArrowInvalid) as exc:
        raise ConfigError(
            f"windows differ in the type of a column: {exc}; read windows of one kind by their ids "
            f"(window_ids=…), and cast them",
            subject="windows",
        ) from exc
    return factory.finish(schema)


def _folders(markers: Iterable[Marker], files: Iterable[str]) -> pa.Schema:
    """Columns that are in the names of folders. Raises `ConfigError` if windows differ in one."""
    import pyarrow as pa

    found = {"window_id": "string"}
    if any("/partition=" in name for name in files):  # engines of others may make such
        found["partition"] = "string"
    for marker in markers:
        for name, kind in marker.partition_columns:
            if found.setdefault(name, kind) != kind:
                raise ConfigError(
                    f"windows differ in the type of a column: {name} is {found[name]}, and {kind} "
                    f"in window {marker.plan.window_id}; read windows of one kind by their ids "
                    f"(window_ids=…), and cast them",
                    subject="windows",
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
