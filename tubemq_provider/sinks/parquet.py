"""Windows as directories of Parquet files, published by one rename.

Layout under the root::

    window_id=<window id>/           a published window: data files and `_tubemq_window.json`
    _staging/<window id>.<attempt>/  a try at work; never read, removed once the window is published
    _boundaries/<instant>-<h>.json   time boundaries, fixed once

A window becomes visible, with its marker, when its staging directory is renamed; everything in it
is on disk by then. A rename onto a window that is there fails, so of two tries one wins. Readers
that know nothing of this (Spark, pyarrow, DuckDB) see whole windows too, because they skip names
that begin with ``_``; `read_windows` is for those who want exactly the published ones.

Works on paths of file systems whose `rename` of a directory is atomic. Object stores have none and
are refused. This module must not import airflow or pyspark.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any, Final

from tubemq_client.errors import ConfigError
from tubemq_provider.offsets.durable_files import (
    create_document,
    ensure_directory,
    fsync_path,
    read_document,
    replace_document,
)
from tubemq_provider.sinks._parquet_files import StagedFile, data_files, inspect
from tubemq_provider.windows.errors import CountMismatch, DocumentError, SinkDamaged
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.protocols import (
    BoundaryBook,
    Document,
    IngestCounts,
    Marker,
    Progress,
    Publication,
    Staging,
)
from tubemq_provider.windows.verify import check_staged

__all__ = ["MARKER_NAME", "ParquetSink", "local_root"]

MARKER_NAME: Final = "_tubemq_window.json"
"""The marker's file name inside a window's directory."""

_PREFIX: Final = "window_id="
_MARKER_VERSION: Final = 1
_TWINS: Final = 100


def local_root(root: str | PathLike[str]) -> Path:
    """The local path meant by `root` (a path, or a ``file://`` URL), absolute.

    Raises `ConfigError` for URLs of other schemes, with what to do instead.
    """
    text = os.fspath(root)
    scheme, separator, rest = text.partition("://")
    if not separator:
        return Path(os.path.abspath(text))  # noqa: PTH100 (resolve() would follow links)
    if scheme == "file":
        return Path("/" + rest.lstrip("/"))
    raise ConfigError(
        f"{text!r}: the parquet sink publishes a window by renaming its directory, which {scheme} "
        f"cannot do in one step; use a local or mounted path",
        subject="sink",
    )


class ParquetSink:
    """Exactly-once windows under `root`. See `Sink` for what each method promises.

    `identity` is part of every window id; by default it is the absolute path. Give it by hand
    where one place has several names (mounts), and never give two places the same.
    """

    kind = "parquet"
    exactly_once = True

    def __init__(self, root: str | PathLike[str], *, identity: str | None = None) -> None:
        self.root = local_root(root)
        self.identity = identity or f"parquet:{self.root}"

    def __repr__(self) -> str:
        return f"ParquetSink({str(self.root)!r})"

    @property
    def boundaries(self) -> BoundaryBook:
        """Boundaries fixed beside the data."""
        return _DirectoryBook(self.root / "_boundaries")

    def marker(self, window_id: str) -> Marker | None:
        """The marker of a published window, or None.

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
        # A try may have died between rename and fsync; who is told "written" may rely on it.
        fsync_path(self.root)
        return _read_marker(document, place, window_id)

    def window_ids(self) -> Iterable[str]:
        """Ids of the windows under the root."""
        with suppress(FileNotFoundError):
            for entry in os.scandir(self.root):
                if entry.name.startswith(_PREFIX) and entry.is_dir():
                    yield entry.name.removeprefix(_PREFIX)

    def begin(self, plan: WindowPlan, attempt: str) -> Staging:
        """A fresh staging directory named after the window and the try."""
        parent = self.root / "_staging"
        ensure_directory(parent)
        safe = re.sub(r"[^A-Za-z0-9_-]", "-", attempt)[:80] or "try"
        for twin in range(_TWINS):
            path = parent / f"{plan.window_id}.{safe}{f'.{twin}' if twin else ''}"
            with suppress(FileExistsError):
                path.mkdir()
                return Staging(plan.window_id, attempt, str(path))
        raise SinkDamaged(f"{parent} holds {_TWINS} tries named {safe!r} of one window")

    def publish(
        self, staging: Staging, plan: WindowPlan, counts: IngestCounts, progress: Progress
    ) -> Publication:
        """Verify, write the marker, force everything to disk, rename. See `Sink.publish`."""
        try:
            self._seal(Path(staging.path), plan, counts, progress)
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
        shutil.rmtree(staging.path, ignore_errors=True)

    def tidy(self, window_id: str) -> None:
        """Remove what other tries of a published window left in staging."""
        for path in (self.root / "_staging").glob(f"{window_id}.*"):
            shutil.rmtree(path, ignore_errors=True)

    # -- steps of publishing --------------------------------------------------------------------

    def _seal(
        self, staging: Path, plan: WindowPlan, counts: IngestCounts, progress: Progress
    ) -> None:
        """Bring a staging directory into its final state, on disk."""
        _sweep(staging)
        files = [inspect(staging, path) for path in data_files(staging)]
        check_staged(plan, counts, _by_partition(files), sum(file.rows for file in files))
        progress("files verified")
        replace_document(staging / MARKER_NAME, _marker_document(plan, counts, files))
        progress("marker staged")
        for path in staging.rglob("*"):
            fsync_path(path)
        fsync_path(staging)
        progress("staging on disk")

    def _rename(self, staging: Path, place: Path) -> None:
        # Onto a directory that is not empty this fails; nothing has to be checked before.
        os.rename(staging, place)  # noqa: PTH104 (Path.rename says the same, less clearly)

    def _place(self, window_id: str) -> Path:
        return self.root / f"{_PREFIX}{window_id}"


class _DirectoryBook:
    """A `BoundaryBook` of one file per boundary."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self, key: str) -> Document | None:
        return read_document(self._directory / f"{key}.json")

    def fix(self, key: str, document: Document) -> Document:
        path = self._directory / f"{key}.json"
        create_document(path, document)
        found = read_document(path)
        if found is None:
            raise SinkDamaged(f"{path} vanished right after it was written")
        return found


def _read_document(place: Path) -> Document | None:
    try:
        return read_document(place / MARKER_NAME)
    except (DocumentError, NotADirectoryError) as exc:
        raise SinkDamaged(f"{place}: the marker cannot be read: {exc}") from exc


def _occupied(place: Path) -> bool:
    return place.exists() and any(place.iterdir())


def _sweep(staging: Path) -> None:
    """Remove what Spark leaves beside its files: `_SUCCESS`, `_temporary`, checksums."""
    for path in sorted(staging.rglob("[._]*"), reverse=True):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _by_partition(files: Iterable[StagedFile]) -> dict[str, int] | None:
    counted: dict[str, int] = {}
    for file in files:
        if file.partitions is None:
            return None
        for key, rows in file.partitions.items():
            counted[key] = counted.get(key, 0) + rows
    return counted


def _marker_document(
    plan: WindowPlan, counts: IngestCounts, files: Iterable[StagedFile]
) -> Document:
    return {
        "v": _MARKER_VERSION,
        "plan": plan.to_document(),
        "hash": plan.hash,
        "records": dict(counts.records),
        "bytes": counts.bytes,
        "corrupt": counts.corrupt,
        "gaps": {key: [list(gap) for gap in gaps] for key, gaps in counts.gaps.items()},
        "files": [{"path": file.path, "rows": file.rows} for file in files],
    }


def _read_marker(document: Document, place: Path, window_id: str) -> Marker:
    where = f"marker of {place}"
    if document.get("v") != _MARKER_VERSION:
        raise SinkDamaged(f"{where} has version {document.get('v')!r}, which is unknown here")
    try:
        plan = WindowPlan.from_document(document.get("plan"), where=where)
        marker = Marker(plan, _read_counts(document), str(place), _read_files(document))
    except (DocumentError, KeyError, TypeError, ValueError) as exc:
        raise SinkDamaged(f"{where} is not valid: {exc}") from exc
    if plan.window_id != window_id or plan.hash != document.get("hash"):
        raise SinkDamaged(f"{where} is that of window {plan.window_id}")
    return marker


def _read_counts(document: Document) -> IngestCounts:
    records: dict[str, int] = {key: int(found) for key, found in dict(document["records"]).items()}
    return IngestCounts(records, int(document["bytes"]), document["gaps"], int(document["corrupt"]))


def _read_files(document: Document) -> tuple[str, ...]:
    entries: list[dict[str, Any]] = document["files"]
    return tuple(str(entry["path"]) for entry in entries)
