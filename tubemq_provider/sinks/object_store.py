"""Windows as Parquet files in an object store, made visible by one manifest object each.

Layout under the root URL::

    data/window_id=<window id>/<token>/   files of a try; not read without a manifest
    _tubemq/windows/<window id>.json      the manifest: marker, token and files of the winner
    quarantine/window_id=<id>/<token>/    corrupt records in quarantine
    _boundaries/<instant>-<h>.json        time boundaries, fixed once

Engines, and Spark tasks on other machines, write the files of a try right where they stay, under
its token; publishing only lists them (with a `staging_root`, files come from a local directory).
An object store has no rename, so the manifest takes its place: it is written last, in one request
that the store refuses if there is one already. Of two tries one wins; the other's files stay
unlisted until `tidy`. A try that finds the window published when it begins is there to replace it,
and notes its token in the manifest before anything is written, so that `tidy` does not take its
files for leftovers. Readers must go through the manifests
(`read_windows` does): a listing of ``data/`` shows files of losing and dead tries too. This module
must not import airflow or pyspark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from tubemq_provider.files.footers import count_rows
from tubemq_provider.files.locations import location_at
from tubemq_provider.files.quarantine import quarantined_in
from tubemq_provider.files.staging import (
    FinalArea,
    StagingArea,
    Verify,
    checked_verify,
    verified_files,
)
from tubemq_provider.sinks._column_names import refuse_folder_column, refuse_folder_columns
from tubemq_provider.sinks._marker_document import has_files_of, marker_document, read_marker
from tubemq_provider.sinks._storage import Storage, StorageBook
from tubemq_provider.sinks._storage_for import storage_for
from tubemq_provider.windows.errors import (
    CountMismatch,
    DocumentError,
    SinkDamaged,
    StoreConflict,
)
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

__all__ = ["ObjectStoreSink"]

_MANIFESTS: Final = "_tubemq/windows"
_DATA: Final = "data"
_QUARANTINE: Final = "quarantine"
_REPLACING: Final = "replacing"
"""Member of a manifest: the token of the try that is about to replace it."""


class ObjectStoreSink(Sink):
    """Exactly-once windows under a URL such as ``s3://bucket/orders``. See `Sink`.

    - `storage_options`: endpoint, region, credentials …; by default the environment's.
    - `staging_root`: a local directory where engines write before files are uploaded from there; by
      default they write into the store themselves, with the same `storage_options`.
    - `identity`: part of every window id; by default the URL.
    - `verify`: how files are checked before they are published (`files.staging.Verify`).
    - `partition_by`: columns, ``day(…)`` and ``hour(…)`` that partition the files, in folders below
      the try's prefix; `max_partitions`: the most that one task may make.

    A local path works too, for tests and for users of the layout of manifests.
    """

    kind = "object_store"
    can_replace = True
    independent = True

    def __init__(
        self,
        url: str,
        *,
        storage_options: Mapping[str, str] | None = None,
        staging_root: str | Path | None = None,
        identity: str | None = None,
        verify: Verify = "facts",
        partition_by: Sequence[str] = (),
        max_partitions: int | None = None,
    ) -> None:
        self.storage: Storage = storage_for(url, storage_options or {})
        self._location = location_at(self.storage.url, storage_options or {})
        self.identity = identity or f"object_store:{self.storage.url}"
        self._verify = checked_verify(verify)
        self._by = PartitionBy.of(partition_by, "folders", max_partitions)
        self._final = None if staging_root else FinalArea(self.storage.url, storage_options or {})
        # Without a root only files of earlier releases are removed there.
        self._local = (
            StagingArea(Path(staging_root))
            if staging_root
            else StagingArea.of_machine(self.identity)
        )

    def __repr__(self) -> str:
        return f"ObjectStoreSink({self.storage.url!r})"

    @property
    def boundaries(self) -> BoundaryBook:
        """Boundaries fixed beside the data."""
        return self.book("_boundaries")

    def book(self, name: str) -> BoundaryBook:
        """See `Sink.book`."""
        return StorageBook(self.storage, name)

    def marker(self, window_id: str) -> Marker | None:
        """Return the marker in the window's manifest, or None."""
        manifest = self._manifest(window_id)
        return None if manifest is None else self._marker(manifest, window_id)

    def recount(self, marker: Marker) -> Mapping[str, int]:
        """See `Sink.recount`: the files that the manifest lists, by their footers."""
        window, expected = marker.plan.window_id, marker.counts.records
        return count_rows(self._location, marker.files, window, expected)

    def quarantined(self, marker: Marker) -> Iterator[pa.Table]:
        """See `Sink.quarantined`."""
        names = self.storage.names(_corrupt_of(marker.plan.window_id))
        return quarantined_in(self._location, names)

    def holds(self, marker: Marker) -> bool:
        """See `Sink.holds`: False for a window whose files a rule has expired, and not its
        manifest. One listing of the window's prefix."""
        if not marker.files:
            return True
        return has_files_of(marker, self.storage.names(_data_of(marker.plan.window_id)))

    def window_ids(self) -> Iterable[str]:
        """One listing of the manifests."""
        return _window_ids(self.storage.names(_MANIFESTS))

    def later_window_ids(self, low: str) -> Iterable[str]:
        """See `Sink.later_window_ids`: listings that begin at `low`."""
        start, end = f"{_MANIFESTS}/t-", f"{_MANIFESTS}/{low}"
        return _window_ids(self.storage.names_outside(_MANIFESTS, start, end))

    def missing(self) -> str | None:
        """See `Sink.missing`."""
        return self.storage.missing()

    def begin(self, plan: WindowPlan, attempt: str) -> Staging:
        """Begin a try: a new prefix of the store, or a new directory of `staging_root`."""
        return replace(self._begun(plan, attempt), partition_by=self._by)

    def _begun(self, plan: WindowPlan, attempt: str) -> Staging:
        if self._final is None:
            return self._local.begin(plan, attempt)
        window_id, token = plan.window_id, uuid4().hex
        published = self._manifest(window_id)
        if published is not None:
            self.storage.swap(
                _manifest_name(window_id), published, {**published, _REPLACING: token}
            )
        return self._final.begin(plan, attempt, _data_of(window_id), token)

    def check_columns(self, columns: pa.Schema) -> None:
        """Refuse a column with the name of the folders; see `Sink.check_columns`."""
        refuse_folder_column(columns.names)

    def publish(
        self, staging: Staging, plan: WindowPlan, counts: IngestCounts, progress: Progress
    ) -> Publication:
        """Verify, bring in what is not there yet, then put the manifest if there is none."""
        token = _token_of(staging)
        try:
            manifest = self._manifest_of(staging, plan, counts, token, progress)
        except (OSError, CountMismatch):
            # The try that published may have taken this try's staging place away (`tidy`).
            found = self.marker(plan.window_id)
            if found is None:
                raise
            return Publication(won=False, marker=found)
        self.storage.create(_manifest_name(plan.window_id), manifest)
        progress("manifest written")
        # Not the answer of the put decides: a repeated request is refused because of its first.
        winner = self._manifest(plan.window_id)
        if winner is None:
            raise SinkDamaged(f"window {plan.window_id} vanished right after it was published")
        won = winner.get("token") == token
        if not won:
            self.storage.remove(_listed(manifest))
        return Publication(won, self._marker(winner, plan.window_id))

    def replace(
        self, staging: Staging, plan: WindowPlan, counts: IngestCounts, progress: Progress
    ) -> Publication:
        """Swap the manifest, which has the token of this try noted, for a new one; in one request,
        which the store refuses if the manifest is another by then. See `Sink.replace`."""
        window_id, token = plan.window_id, _token_of(staging)
        before = self._manifest(window_id)
        if before is None:
            return self.publish(staging, plan, counts, progress)
        noted = {**before, _REPLACING: token}
        if before != noted and not staging.final:
            self.storage.swap(_manifest_name(window_id), before, noted)
        progress("replacement noted")
        winner = self._replaced(window_id)
        # Files that stay were written since `begin`: a try that has noted a token since may have
        # let them be tidied away.
        if winner == noted:
            manifest = self._manifest_of(staging, plan, counts, token, progress)
            self.storage.swap(_manifest_name(window_id), noted, manifest)
            progress("manifest replaced")
            winner = self._replaced(window_id)
            if winner.get("token") != token:
                self.storage.remove(_listed(manifest))
        if winner.get("token") == before.get("token"):
            # The old records are still there, and the other try may die: nothing was replaced.
            raise StoreConflict(
                f"{self.storage.url}: another try has begun to replace window {window_id}, which "
                f"is as it was; a retry checks its state and replaces it again"
            )
        return Publication(winner.get("token") == token, self._marker(winner, window_id))

    def discard(self, staging: Staging) -> None:
        """Remove what the try wrote, unless the window's manifest is its own. A store that does not
        answer hides no other error: `tidy` finds what is left."""
        if self._final is None or not staging.final:
            self._local.discard(staging)
            return
        with suppress(Exception):
            if (self._manifest(staging.window_id) or {}).get("token") != _token_of(staging):
                self._final.discard(staging)

    def tidy(self, window_id: str) -> None:
        """Remove files that the window's manifest does not list, and local staging directories."""
        self._local.tidy(window_id)
        # Listed before the manifest is read: whose files are in the list has noted his token.
        data = list(self.storage.names(_data_of(window_id), at_work=True))
        quarantined = list(self.storage.names(_corrupt_of(window_id), at_work=True))
        manifest = self._manifest(window_id)
        if manifest is None:
            return
        listed = set(_listed(manifest))
        coming = f"{_data_of(window_id)}/{manifest.get(_REPLACING)}/"
        self.storage.remove(n for n in data if n not in listed and not n.startswith(coming))
        tokens = (manifest.get("token"), manifest.get(_REPLACING))
        kept_prefixes = tuple(f"{_corrupt_of(window_id)}/{token}/" for token in tokens)
        self.storage.remove(name for name in quarantined if not name.startswith(kept_prefixes))

    def _manifest_of(
        self,
        staging: Staging,
        plan: WindowPlan,
        counts: IngestCounts,
        token: str,
        progress: Progress,
    ) -> Document:
        """Verify and upload the files of a try; return the manifest that makes them visible."""
        staged, quarantined = verified_files(
            staging, plan, counts, keeps_corrupt=True, verify=self._verify
        )
        refuse_folder_columns(staged)
        progress("files verified")
        prefix = f"{_data_of(plan.window_id)}/{token}"
        files = [replace(file, path=f"{prefix}/{file.path}") for file in staged]
        if staging.final:
            self.storage.keep_files(file.path for file in files)
            progress("files settled")
        else:
            for source, file in zip(staged, files, strict=True):
                self.storage.put_file(Path(staging.path) / source.path, file.path)
                progress("file uploaded")
        for name in quarantined:
            target = f"{_corrupt_of(plan.window_id)}/{token}/{name.rpartition('/')[2]}"
            if staging.final:
                self.storage.rename(f"{prefix}/{name}", target)
            else:
                self.storage.put_file(Path(staging.path) / name, target)
        return marker_document(plan, counts, files, token=token)

    def _replaced(self, window_id: str) -> Document:
        """Return the manifest of a window that was replaced by this try."""
        manifest = self._manifest(window_id)
        if manifest is None:
            raise SinkDamaged(f"window {window_id} vanished while it was replaced")
        return manifest

    def _manifest(self, window_id: str) -> Document | None:
        try:
            return self.storage.read(_manifest_name(window_id))
        except DocumentError as exc:
            raise SinkDamaged(
                f"{self.storage.url}: the manifest of window {window_id} cannot be read: {exc}"
            ) from exc

    def _marker(self, manifest: Document, window_id: str) -> Marker:
        return read_marker(manifest, f"{self.storage.url}/{_manifest_name(window_id)}", window_id)


def _token_of(staging: Staging) -> str:
    """Return the token that names the files of a try."""
    return staging.path.rpartition("/")[2] if staging.final else uuid4().hex


def _window_ids(names: Iterable[str]) -> Iterable[str]:
    return (name.removeprefix(f"{_MANIFESTS}/").removesuffix(".json") for name in names)


def _manifest_name(window_id: str) -> str:
    return f"{_MANIFESTS}/{window_id}.json"


def _data_of(window_id: str) -> str:
    return f"{_DATA}/window_id={window_id}"


def _corrupt_of(window_id: str) -> str:
    return f"{_QUARANTINE}/window_id={window_id}"


def _listed(manifest: Document) -> list[str]:
    return [str(entry["path"]) for entry in manifest["files"]]
