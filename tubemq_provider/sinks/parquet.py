"""Windows as directories of Parquet files, published by one rename.

Layout under the root::

    window_id=<window id>/           a published window: data files and `_tubemq_window.json`;
                                     `_corrupt/` with corrupt records in quarantine
    _boundaries/<instant>-<h>.json   time boundaries, fixed once

Tries work in ``.<root's name>.tubemq-staging/<window id>.<attempt>/`` beside the root, or in
``_staging`` under it where nothing can be renamed from there. A window becomes visible, with its
marker, when its staging directory is renamed; everything in it is on disk by then. A rename onto a
window that is there fails, so of two tries one wins. Readers that know nothing of this see whole
windows too: Spark and pyarrow skip names that begin with ``_``, and what globs of DuckDB and polars
find (they skip nothing) is published. `read_windows` reads exactly that.

Works on paths of file systems whose `rename` of a directory is atomic. Object stores have none and
are refused, mounted ones too (`files.mounts`): `ObjectStoreSink` is for them. This module must not
import airflow or pyspark.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tubemq_provider.files.durable import (
    converted_os_errors,
    ensure_root,
    fsync_path,
    missing_root,
    read_document,
    replace_document,
)
from tubemq_provider.files.footers import count_rows
from tubemq_provider.files.locations import LocalLocation
from tubemq_provider.files.mounts import local_root, refuse_object_mounts
from tubemq_provider.files.quarantine import CORRUPT, quarantined_in
from tubemq_provider.files.staging import StagingArea, Verify, checked_verify, verified_files
from tubemq_provider.sinks._column_names import refuse_folder_column, refuse_folder_columns
from tubemq_provider.sinks._marker_document import has_files_of, marker_document, read_marker
from tubemq_provider.sinks._storage import LocalStorage, StorageBook
from tubemq_provider.windows.errors import CountMismatch, DocumentError, SinkDamaged
from tubemq_provider.windows.partitioning import PartitionBy
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.protocols import (
    BoundaryBook,
    Document,
    IngestCounts,
    Marker,
    Progress,
    Publication,
    Sink,
    Staging,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MARKER_NAME", "ParquetSink"]

MARKER_NAME: Final = "_tubemq_window.json"
"""The marker's file name inside a window's directory."""

_PREFIX: Final = "window_id="


class ParquetSink(Sink):
    """Exactly-once windows under `root`. See `Sink` for what each method promises.

    `identity` is part of every window id; by default it is the absolute path. Give it by hand
    where one place has several names (mounts), and never give two places the same. `staging_root`:
    where tries work, on the file system of `root`; by default beside it. `verify`: how files are
    checked before they are published (`files.staging.Verify`). `partition_by`: columns, ``day(…)``
    and ``hour(…)`` that partition the files, in folders inside the window's directory;
    `max_partitions`: the most that one task may make.
    """

    kind = "parquet"
    independent = True

    def __init__(
        self,
        root: str | PathLike[str],
        *,
        staging_root: str | Path | None = None,
        identity: str | None = None,
        verify: Verify = "facts",
        partition_by: Sequence[str] = (),
        max_partitions: int | None = None,
    ) -> None:
        self.root = local_root(root)
        self._verify = checked_verify(verify)
        self._by = PartitionBy.of(partition_by, "folders", max_partitions)
        self.identity = identity or f"parquet:{self.root}"
        self._judged = False
        self._staging = StagingArea.beside(self.root, Path(staging_root) if staging_root else None)

    def __repr__(self) -> str:
        return f"ParquetSink({str(self.root)!r})"

    @property
    def boundaries(self) -> BoundaryBook:
        """Boundaries fixed beside the data."""
        return self.book("_boundaries")

    def book(self, name: str) -> BoundaryBook:
        """See `Sink.book`."""
        return StorageBook(LocalStorage(self.root), name)

    def marker(self, window_id: str) -> Marker | None:
        """Return the marker of a published window, or None.

        Raises `SinkDamaged` if the window's place is taken by something without a valid marker.
        """
        place = self._place(window_id)
        document = _read_document(place)
        if document is None and _occupied(place):
            # It may have been published between the two looks.
            document = _read_document(place)
            if document is None:
                raise SinkDamaged(
                    f"{place} is not empty and has no {MARKER_NAME}: something else put it there; "
                    f"move it away, then run the window again"
                )
        if document is None:
            return None
        # A try may have died between rename and fsync; "written" promises that it is on disk.
        fsync_path(self.root)
        return read_marker(document, str(place), window_id)

    def recount(self, marker: Marker) -> Mapping[str, int]:
        """See `Sink.recount`: the files that the marker lists, by their footers."""
        place = LocalLocation(self._place(marker.plan.window_id))
        window, expected = marker.plan.window_id, marker.counts.records
        return count_rows(place, marker.files, window, expected)

    def quarantined(self, marker: Marker) -> Iterator[pa.Table]:
        """See `Sink.quarantined`."""
        place = LocalLocation(self._place(marker.plan.window_id))
        return quarantined_in(place, place.stored(CORRUPT))

    def holds(self, marker: Marker) -> bool:
        """See `Sink.holds`: False for a window whose files were removed, and not its marker."""
        place = LocalStorage(self._place(marker.plan.window_id))
        return not marker.files or has_files_of(marker, place.names(""))

    def window_ids(self) -> Iterable[str]:
        """Ids of the windows under the root."""
        with (
            suppress(FileNotFoundError),
            converted_os_errors(self.root),
            os.scandir(self.root) as entries,
        ):
            return [
                entry.name.removeprefix(_PREFIX)
                for entry in entries
                if entry.name.startswith(_PREFIX) and entry.is_dir()
            ]
        return []

    def later_window_ids(self, low: str) -> Iterable[str]:
        """See `Sink.later_window_ids`: one listing of names, of which few are looked at."""
        start = f"{_PREFIX}{low}"
        with suppress(FileNotFoundError), converted_os_errors(self.root):
            return [
                name.removeprefix(_PREFIX)
                for name in os.listdir(self.root)  # noqa: PTH208 (names alone are cheaper)
                if (name >= start or name < f"{_PREFIX}t-")
                and name.startswith(_PREFIX)
                and (self.root / name).is_dir()
            ]
        return []

    def missing(self) -> str | None:
        """See `Sink.missing`."""
        return missing_root(self.root)

    def begin(self, plan: WindowPlan, attempt: str) -> Staging:
        """Begin a try in a new staging directory, named after the window and the try."""
        if not self._judged:
            ensure_root(self.root)
            refuse_object_mounts(self.root)
            self._judged = True
        return replace(self._staging.begin(plan, attempt), partition_by=self._by)

    def check_columns(self, columns: pa.Schema) -> None:
        """Refuse a column with the name of the folders; see `Sink.check_columns`."""
        refuse_folder_column(columns.names)

    def publish(
        self, staging: Staging, plan: WindowPlan, counts: IngestCounts, progress: Progress
    ) -> Publication:
        """Verify, write the marker, force everything to disk, rename. See `Sink.publish`."""
        with converted_os_errors(self.root):
            return self._published(staging, plan, counts, progress)

    def _published(
        self, staging: Staging, plan: WindowPlan, counts: IngestCounts, progress: Progress
    ) -> Publication:
        try:
            self._seal(staging, plan, counts, progress)
            self._rename(Path(staging.path), self._place(plan.window_id))
        except (OSError, CountMismatch):
            # A window that is published may have taken this try's staging place away (`tidy`),
            # and its directory refuses the rename: either way the marker there is the answer.
            found = self.marker(plan.window_id)
            if found is None:
                raise
            return Publication(won=False, marker=found)
        progress("renamed")
        fsync_path(self.root)
        progress("root on disk")
        marker = self.marker(plan.window_id)
        if marker is None:
            raise SinkDamaged(f"window {plan.window_id} vanished right after it was published")
        return Publication(won=True, marker=marker)

    def discard(self, staging: Staging) -> None:
        """Remove a staging directory, if it is still there."""
        self._staging.discard(staging)

    def tidy(self, window_id: str) -> None:
        """Remove what other tries of a published window left in staging."""
        self._staging.tidy(window_id)

    # -- steps of publishing --------------------------------------------------------------------

    def _seal(
        self, staging: Staging, plan: WindowPlan, counts: IngestCounts, progress: Progress
    ) -> None:
        """Bring a staging directory into its final state, on disk."""
        files, _ = verified_files(staging, plan, counts, keeps_corrupt=True, verify=self._verify)
        refuse_folder_columns(files)
        progress("files verified")
        directory = Path(staging.path)
        replace_document(directory / MARKER_NAME, marker_document(plan, counts, files))
        progress("marker staged")
        for path in directory.rglob("*"):
            fsync_path(path)
        fsync_path(directory)
        progress("staging on disk")

    def _rename(self, staging: Path, place: Path) -> None:
        # Onto a directory that is not empty this fails; nothing has to be checked before.
        os.rename(staging, place)  # noqa: PTH104 (Path.rename says the same, less clearly)

    def _place(self, window_id: str) -> Path:
        return self.root / f"{_PREFIX}{window_id}"


def _read_document(place: Path) -> Document | None:
    try:
        return read_document(place / MARKER_NAME)
    except (DocumentError, NotADirectoryError) as exc:
        raise SinkDamaged(f"{place}: the marker cannot be read: {exc}") from exc


def _occupied(place: Path) -> bool:
    return place.exists() and any(place.iterdir())
