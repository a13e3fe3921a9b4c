"""Reading what the Parquet sink has published, and nothing else.

Goes by the markers: files that a marker does not list (somebody's own, or half a copy) are not
read. This module must not write.
"""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from typing import TYPE_CHECKING

from tubemq_client.errors import ConfigError, require_extra
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.windows.protocols import Marker

if TYPE_CHECKING:
    import pyarrow.dataset as ds

__all__ = ["published_windows", "read_windows"]


def published_windows(root: str | PathLike[str]) -> list[Marker]:
    """The markers of all published windows: cursor windows by number, then the others by id."""
    sink = ParquetSink(root)
    markers = [marker for name in sink.window_ids() if (marker := sink.marker(name))]
    return sorted(markers, key=lambda marker: (marker.plan.seq or 0, marker.plan.window_id))


def read_windows(root: str | PathLike[str], window_ids: Iterable[str] | None = None) -> ds.Dataset:
    """The records of published windows (all, or those named) as a pyarrow dataset, with a
    `window_id` column. Raises `ConfigError` for a window that is not published."""
    try:
        import pyarrow as pa
        import pyarrow.dataset as ds
    except ImportError as exc:
        raise require_extra("arrow", exc) from exc
    sink = ParquetSink(root)
    wanted = None if window_ids is None else set(window_ids)
    markers = published_windows(root)
    if wanted is not None:
        missing = wanted - {marker.plan.window_id for marker in markers}
        if missing:
            raise ConfigError(
                [f"window {name} is not published" for name in sorted(missing)], subject="windows"
            )
        markers = [marker for marker in markers if marker.plan.window_id in wanted]
    files = [f"{marker.ref}/{name}" for marker in markers for name in marker.files]
    if not files:
        return ds.dataset(pa.table({"window_id": pa.array([], pa.string())}))
    return ds.dataset(
        files,
        format="parquet",
        partitioning=ds.partitioning(flavor="hive"),
        partition_base_dir=str(sink.root),
    )
