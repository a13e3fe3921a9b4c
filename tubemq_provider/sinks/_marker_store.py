"""Marker documents beside a table, for sinks whose table format decides which try won.

A table commit has room for a few short words, not for a whole plan that must outlive log clean-up
and snapshot expiry. So each try first writes its marker document under its own *token*, and
the commit names the token: the document whose token the table confirms is the marker. Once
confirmed, it is copied to its final name (*confirmed*), so that the next question costs one read.

Layout under the table's location::

    _tubemq/<table id>/tries/<window id>/<token>.json
    _tubemq/<table id>/windows/<window id>.json

The table id keeps a table that was dropped and made again from believing in windows of its
predecessor. This module must not know table formats or decide which try won.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tubemq_provider.sinks._storage import Storage
from tubemq_provider.windows.errors import DocumentError, SinkDamaged
from tubemq_provider.windows.protocols import Document

__all__ = ["MarkerStore"]

_ROOT: Final = "_tubemq"


class MarkerStore:
    """The marker documents of one table."""

    def __init__(self, storage: Storage, table_id: str) -> None:
        self._storage = storage
        self._tries = f"{_ROOT}/{table_id}/tries"
        self._confirmed = f"{_ROOT}/{table_id}/windows"

    def stage(self, window_id: str, token: str, document: Document) -> None:
        """Keep the document of a try that is about to commit."""
        self._storage.create(f"{self._tries}/{window_id}/{token}.json", document)

    def staged(self, window_id: str, token: str) -> Document | None:
        """Return the document of a try, or None."""
        return self._read(f"{self._tries}/{window_id}/{token}.json")

    def tokens(self, window_id: str) -> list[str]:
        """Tokens of all tries of a window that came as far as committing."""
        prefix = f"{self._tries}/{window_id}/"
        names = self._storage.names(prefix.rstrip("/"))
        return [name.removeprefix(prefix).removesuffix(".json") for name in names]

    def confirm(self, window_id: str, document: Document) -> None:
        """Note the document that the table has confirmed; each try would note the same one."""
        self._storage.create(f"{self._confirmed}/{window_id}.json", document)

    def confirmed(self, window_id: str) -> Document | None:
        """Return the confirmed document, or None if no process has confirmed it yet."""
        return self._read(f"{self._confirmed}/{window_id}.json")

    def confirmed_ids(self, low: str = "") -> set[str]:
        """Ids of windows with a confirmed document; without time windows before `low`."""
        return {name.removesuffix(".json") for name in self._listed(self._confirmed, low)}

    def tried_ids(self, low: str = "") -> set[str]:
        """Ids of windows that some try came to commit, whether or not it did; without time windows
        before `low`."""
        return {name.partition("/")[0] for name in self._listed(self._tries, low)}

    def clear(self, window_id: str, tokens: Iterable[str]) -> None:
        """Remove documents of tries that lost."""
        self._storage.remove(f"{self._tries}/{window_id}/{token}.json" for token in tokens)

    def _listed(self, directory: str, low: str) -> Iterable[str]:
        prefix = f"{directory}/"
        names = (
            self._storage.names_outside(directory, f"{prefix}t-", f"{prefix}{low}")
            if low
            else self._storage.names(directory)
        )
        return (name.removeprefix(prefix) for name in names)

    def _read(self, name: str) -> Document | None:
        try:
            return self._storage.read(name)
        except DocumentError as exc:
            raise SinkDamaged(f"{self._storage.url}/{name} cannot be read: {exc}") from exc
