"""Claims kept in a directory: runs of one cursor group side by side, without a database.

The cursor of `FileOffsetStore` becomes a document that changes by compare-and-set: under a lock of
the file system, which a process that dies gives back. The directory must be on a file system whose
locks all hosts share (a local one, or NFS version 4). Plans and events lie where they always do, so
a group may go from one store to the other between runs. This module must not import a framework.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from tubemq_provider.files.durable import ensure_directory, read_document, replace_document
from tubemq_provider.offsets.file import FileOffsetStore
from tubemq_provider.windows.canonical import canonical_json
from tubemq_provider.windows.protocols import Document

__all__ = ["FileClaimStore"]

_CLAIMS = "claims.json"


class FileClaimStore(FileOffsetStore):
    """The store of one try of task `task`; see `ClaimStore`. `over` says of a task's name whether
    it will never write again: what such tasks claimed is taken over."""

    def __init__(
        self, directory: str | PathLike[str], *, task: str, over: Callable[[str], bool]
    ) -> None:
        super().__init__(directory, task=task)
        self._directory = Path(directory)
        self._over = over

    def load_cursor(self) -> Document | None:
        return read_document(self._directory / _CLAIMS)

    def store_cursor(self, document: Document) -> None:
        self.change_cursor(lambda _: document)

    def change_cursor(
        self, change: Callable[[Document | None], Document | None]
    ) -> Document | None:
        """See `ClaimStore`. Blocks while another process changes it."""
        with self._locked():
            before = self.load_cursor()
            after = change(before)
            if after is None:
                return before
            canonical_json(after)  # refuses what other stores would refuse or change
            replace_document(self._directory / _CLAIMS, after)
            return after

    def is_over(self, claimant: str) -> bool:
        return self._over(claimant)

    def previous_cursor(self) -> Document | None:
        return super().load_cursor()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        ensure_directory(self._directory)
        with (self._directory / "claims.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
