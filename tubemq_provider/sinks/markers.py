"""Windows whose records are kept elsewhere: only their markers are here.

For tasks that read a planned window themselves (own Spark, pandas, a function): what they wrote is
theirs, and this says which windows are done. A marker is created only if none is there, so of two
tries one wins. What that is worth is up to the task: records that were handed over before a crash
are handed over again, with the same window id, and a task that writes them under that id writes
them once. This module must not import airflow or pyspark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from tubemq_provider.sinks._marker_document import marker_document, read_marker
from tubemq_provider.sinks._storage import Storage, StorageBook
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

__all__ = ["MarkerSink"]


class MarkerSink(Sink):
    """Markers of windows in `book`; boundaries of time windows in `boundaries`, if there are any;
    `storage` has both, if they are files.

    `identity` is part of every window id. `exactly_once` says what this sink proves: a window is
    done once. See `Sink` for what each method promises; nothing is staged.
    """

    kind = "markers"

    def __init__(
        self,
        book: BoundaryBook,
        *,
        identity: str,
        boundaries: BoundaryBook | None = None,
        storage: Storage | None = None,
    ) -> None:
        self._book = book
        self._storage = storage
        self._boundaries = boundaries
        self.identity = identity

    @classmethod
    def at(
        cls, root: str | Path, *, storage_options: Mapping[str, str] | None = None
    ) -> MarkerSink:
        """Markers as files under `root`: a path, ``s3://…``, ``gs://…``, ``az://…``."""
        storage = storage_for(str(root), storage_options or {})
        return cls(
            StorageBook(storage, "windows"),
            identity=f"markers:{storage.url}",
            boundaries=StorageBook(storage, "_boundaries"),
            storage=storage,
        )

    def __repr__(self) -> str:
        return f"MarkerSink({self.identity!r})"

    @property
    def boundaries(self) -> BoundaryBook | None:
        """Boundaries fixed beside the markers; None: windows of time cannot be here."""
        return self._boundaries

    def marker(self, window_id: str) -> Marker | None:
        """Return the marker of a window that is done, or None."""
        document = self._book.read(window_id)
        return (
            None if document is None else read_marker(document, self._place(window_id), window_id)
        )

    def window_ids(self) -> Iterable[str]:
        """Ids of windows that are done."""
        return self._book.listing()

    def missing(self) -> str | None:
        """See `Sink.missing`."""
        return None if self._storage is None else self._storage.missing()

    def begin(self, plan: WindowPlan, attempt: str) -> Staging:
        """Nothing is staged here."""
        return Staging(plan.window_id, attempt, "")

    def publish(
        self,
        staging: Staging,
        plan: WindowPlan,
        counts: IngestCounts,
        progress: Progress,
    ) -> Publication:
        """Say that the window is done, unless another try has."""
        document = {**marker_document(plan, counts, ()), "try": staging.attempt}
        fixed = self._book.fix(plan.window_id, document)
        progress("marker written")
        marker = read_marker(fixed, self._place(plan.window_id), plan.window_id)
        return Publication(won=fixed.get("try") == staging.attempt, marker=marker)

    def discard(self, staging: Staging) -> None:
        """There is nothing to remove."""

    def tidy(self, window_id: str) -> None:
        """There is nothing to remove."""

    def _place(self, window_id: str) -> str:
        return f"{self.identity.partition(':')[2]}/{window_id}"
