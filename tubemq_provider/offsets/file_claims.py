"""Claim store in a directory: concurrent runs of one cursor group without a database.

The cursor of `FileOffsetStore` becomes a document that changes by compare-and-set, under a file
lock that the kernel releases when a process dies. The directory must be on a file system whose
locks all hosts share (a local one, or NFS version 4). Plans and events are those of the plain
store, so a group may move between the two stores between runs, once no window is claimed. A claim
book that is behind the plain store's cursor counts as none, and the next run rebuilds it. This
module must not import a framework.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from tubemq_provider.files.durable import ensure_directory, read_document, replace_document
from tubemq_provider.offsets.file import CLAIMS_FILE, CURSOR_FILE, FileOffsetStore
from tubemq_provider.windows.canonical import canonical_json
from tubemq_provider.windows.cursor import is_ahead
from tubemq_provider.windows.errors import StoreConflict
from tubemq_provider.windows.protocols import Document

__all__ = ["FileClaimStore", "claims_lead"]

_ATTEMPTS = 100


class FileClaimStore(FileOffsetStore):
    """Claim store of one try of task `task`; see `ClaimStore`.

    `over` returns True for the name of a task that will never write again: other runs adopt its
    claims."""

    def __init__(
        self, directory: str | PathLike[str], *, task: str, over: Callable[[str], bool]
    ) -> None:
        super().__init__(directory, task=task)
        self._directory = Path(directory)
        self._over = over
        self._cursor_seen: list[Document | None] = []
        self._plans_seen: dict[str, Document | None] = {}

    def load_cursor(self) -> Document | None:
        self._cursor_seen = [self._read()]
        return self._cursor_seen[0]

    def store_cursor(self, document: Document) -> None:
        """Replace the cursor loaded last. Raises `StoreConflict` if it was changed since."""
        before = self._cursor_seen[0] if self._cursor_seen else self._read()
        if not self._replace(before, document):
            raise StoreConflict(f"the claims in {self._directory} were changed by another run")
        self._cursor_seen = [document]

    def change_cursor(
        self, change: Callable[[Document | None], Document | None]
    ) -> Document | None:
        """Change the cursor as `ClaimStore` says. Blocks shortly while other processes write."""
        for _ in range(_ATTEMPTS):
            before = self.load_cursor()
            after = change(before)
            if after is None:
                return before
            if self._replace(before, after):
                self._cursor_seen = [after]
                return after
        raise StoreConflict(f"the claims in {self._directory} are changed by others all the time")

    def is_over(self, claimant: str) -> bool:
        return self._over(claimant)

    def previous_cursor(self) -> Document | None:
        return self._cursor()

    def load_plan(self, window_id: str) -> Document | None:
        self._plans_seen[window_id] = super().load_plan(window_id)
        return self._plans_seen[window_id]

    def store_plan(self, window_id: str, document: Document) -> None:
        """Store a plan, unless another run has stored one since the last load."""
        with self._locked():
            current = super().load_plan(window_id)
            if self._plans_seen.get(window_id, current) == current:
                super().store_plan(window_id, document)
                current = document
        self._plans_seen[window_id] = current

    def _read(self) -> Document | None:
        """Return the claim book; None if the plain store's cursor is ahead of it."""
        behind = claims_lead(self._directory) is False
        return None if behind else read_document(self._directory / CLAIMS_FILE)

    def _replace(self, before: Document | None, after: Document) -> bool:
        """Replace `before` by `after`; return False if another document is stored."""
        canonical_json(after)  # raises for values that other stores would refuse or alter
        with self._locked():
            if self._read() != before:
                return False
            replace_document(self._directory / CLAIMS_FILE, after)
            return True

    @contextmanager
    def _locked(self) -> Iterator[None]:
        ensure_directory(self._directory)
        with (self._directory / "claims.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def claims_lead(directory: str | PathLike[str]) -> bool | None:
    """Return True if the claim book in `directory` is ahead of the plain store's cursor there,
    False if it is behind, None if neither is ahead."""
    book = read_document(Path(directory) / CLAIMS_FILE)
    plain = read_document(Path(directory) / CURSOR_FILE)
    if book is None or plain is None:
        return None if book is plain else plain is None
    if book.get("pending") or book.get("done") or is_ahead(book, plain):
        return True
    return False if is_ahead(plain, book) else None
