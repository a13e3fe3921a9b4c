"""Samples of ends kept in a directory, beside the progress of `FileOffsetStore`.

This module must not import airflow, and knows nothing about what the document means.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from tubemq_provider.files.durable import read_document, replace_document
from tubemq_provider.windows.protocols import Document

__all__ = ["FileTimeline"]


class FileTimeline:
    """A `TimelineStore`: the file `timeline.json` in `directory`, replaced in one step."""

    def __init__(self, directory: str | PathLike[str]) -> None:
        self._path = Path(directory) / "timeline.json"

    def load_timeline(self) -> Document | None:
        """The timeline, or None. Raises `DocumentError` if the file holds something else."""
        return read_document(self._path)

    def store_timeline(self, document: Document) -> None:
        """Replace the timeline; on disk on return."""
        replace_document(self._path, document)
