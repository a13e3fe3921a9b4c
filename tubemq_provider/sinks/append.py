"""Files added to a directory or a prefix, without proof: the one sink that is not exactly-once.

For places where nothing better is possible or wanted. A window's files appear one after the other
under unique names; there is no marker, so a run that dies between the first file and its
cursor is repeated and its records are there twice. Nothing is ever lost by this sink. It has to be
asked for with `exactly_once=False`, and every result of a run into it says ``exactly_once: false``.
This module must not import airflow or pyspark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from uuid import uuid4

from tubemq_client.errors import ConfigError
from tubemq_provider.files.durable import ensure_root
from tubemq_provider.files.staging import StagingArea, verified_files
from tubemq_provider.sinks._storage import LocalStorage, StorageBook
from tubemq_provider.sinks._storage_for import storage_for
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.protocols import (
    BoundaryBook,
    IngestCounts,
    Marker,
    Progress,
    Publication,
    Sink,
    Staging,
)

__all__ = ["AppendSink"]


class AppendSink(Sink):
    """At-least-once: Parquet files added under `root` (a path, ``s3://…``, ``gs://…``, ``az://…``).

    `exactly_once` has no default and must be False: the call says what it gives.
    Files are named after their window, so duplicates of a window can be found by name. Markers are
    never found, so a cleared task whose window counts as done is refused by the run.
    """

    kind = "append"
    exactly_once = False

    def __init__(
        self,
        root: str | Path,
        *,
        exactly_once: bool,
        storage_options: Mapping[str, str] | None = None,
        staging_root: str | Path | None = None,
        identity: str | None = None,
    ) -> None:
        if exactly_once:
            raise ConfigError(
                "appending cannot be exactly-once; say exactly_once=False, or use another sink",
                subject="append sink",
            )
        self._storage = storage_for(str(root), storage_options or {})
        self.identity = identity or f"append:{self._storage.url}"
        if staging_root is not None:
            self._staging = StagingArea(Path(staging_root))
        elif isinstance(self._storage, LocalStorage):
            self._staging = StagingArea.beside(self._storage.root)
        else:
            self._staging = StagingArea.of_machine(self.identity)

    def __repr__(self) -> str:
        return f"AppendSink({self._storage.url!r}, exactly_once=False)"

    @property
    def boundaries(self) -> BoundaryBook:
        """Boundaries fixed beside the data."""
        return StorageBook(self._storage, "_boundaries")

    def marker(self, window_id: str) -> Marker | None:  # noqa: ARG002
        """Return None: without markers nothing is proven."""
        return None

    def window_ids(self) -> Iterable[str]:
        """Return no ids."""
        return ()

    def missing(self) -> str | None:
        """See `Sink.missing`."""
        return self._storage.missing()

    def begin(self, plan: WindowPlan, attempt: str) -> Staging:
        """Begin a try in a new local directory."""
        if isinstance(self._storage, LocalStorage):
            ensure_root(self._storage.root)
        return self._staging.begin(plan, attempt)

    def publish(
        self, staging: Staging, plan: WindowPlan, counts: IngestCounts, progress: Progress
    ) -> Publication:
        """Verify, then bring in one file after the other; each is visible at once. Always wins."""
        directory, token = Path(staging.path), uuid4().hex[:8]
        names = []
        for index, file in enumerate(verified_files(staging, plan, counts)[0]):
            name = f"{plan.window_id}-{token}-{index}.parquet"
            self._storage.put_file(directory / file.path, name)
            names.append(name)
            progress("file appended")
        self._staging.discard(staging)
        return Publication(won=True, marker=Marker(plan, counts, self._storage.url, tuple(names)))

    def discard(self, staging: Staging) -> None:
        """Remove the local directory."""
        self._staging.discard(staging)

    def tidy(self, window_id: str) -> None:
        """Remove what other tries left in staging; what they appended stays."""
        self._staging.tidy(window_id)
