"""Timeline store in a directory, next to the progress of `FileOffsetStore`.

This module must not import airflow, and does not interpret the document.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from tubemq_provider.files.durable import read_document, replace_document
from tubemq_provider.windows.protocols import Document

__all__ = ["FileTimeline"]


class FileTimeline:
    """`TimelineStore` in the file `timeline.json` of `directory`, replaced atomically."""

    def __init__(self, directory: str | PathLike[str]) -> None:
        self._path = Path(directory) / "timeline.json"

    def load_timeline(self) -> Document | None:
        """Return the timeline, or None. Raises `DocumentError` if the file is invalid."""
        return read_document(self._path)

    def store_timeline(self, document: Document) -> None:
        """Replace the timeline; it is on disk on return."""
        replace_document(self._path, document)
