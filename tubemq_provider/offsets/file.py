"""Offset store in a directory: for the command line, Dagster on one host, and drills.

One directory per (cluster, topic, group). Every write is a whole file that is fsynced and renamed
into place, so a kill at any moment leaves the old document or the new one. Layout::

    cursor.json   win/<window id>.json   tasks/<task>.json   events/<number>.json

`claims.json` in the same directory is written by `file_claims` and only read here: windows that
were claimed there, or published after a claimed one, lie beyond this store's position.

This module must not import airflow, and does not interpret documents otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Final
from urllib.parse import quote

from tubemq_client.errors import ConfigError
from tubemq_provider.files.durable import create_document, read_document, replace_document
from tubemq_provider.windows.canonical import canonical_json
from tubemq_provider.windows.planning.claims import windows_beyond
from tubemq_provider.windows.protocols import Document

__all__ = ["CLAIMS_FILE", "CURSOR_FILE", "FileOffsetStore"]

CURSOR_FILE: Final = "cursor.json"
CLAIMS_FILE: Final = "claims.json"
"""File with the claim book of a group whose runs claim windows."""
_EVENT_DIGITS = 12
_ATTEMPTS = 1000
_RECENT = 25


class FileOffsetStore:
    """Offset store of one try of task `task`; see `OffsetStore`.

    Events are stored at once, not in one transaction with the task's success: a run that is killed
    right after its event counts as accepted. Runs may overlap; the last writer of cursor or plan
    wins. Files of old tasks and events stay until a user removes them.
    """

    def __init__(self, directory: str | PathLike[str], *, task: str) -> None:
        self._root = Path(directory)
        self._task = task

    @property
    def writer(self) -> str:
        return self._task

    def load_cursor(self) -> Document | None:
        """Return the cursor, or None.

        Raises `errors.ConfigError` if the group has claimed windows: a run that does not use claims
        would store their records a second time."""
        book = read_document(self._root / CLAIMS_FILE) or {}
        if windows := windows_beyond(book):
            raise ConfigError(
                f"{self._root / CLAIMS_FILE} has windows of this group that are claimed or wait "
                f"for a claimed one ({', '.join(windows)}): let runs with claims=True finish them, "
                f"or remove the file if all of them are known to be in the sink",
                subject="claims",
            )
        return self._cursor()

    def _cursor(self) -> Document | None:
        return read_document(self._root / CURSOR_FILE)

    def store_cursor(self, document: Document) -> None:
        _replace(self._root / CURSOR_FILE, document)

    def load_plan(self, window_id: str) -> Document | None:
        return read_document(self._plan(window_id))

    def store_plan(self, window_id: str, document: Document) -> None:
        _replace(self._plan(window_id), document)

    def forget_plan(self, window_id: str) -> None:
        self._plan(window_id).unlink(missing_ok=True)

    def planned(self) -> list[str]:
        """Return ids of windows with a stored plan: planned and not yet published."""
        return sorted(path.stem for path in (self._root / "win").glob("*.json"))

    def load_task_plan(self) -> Document | None:
        return read_document(self._task_plan())

    def store_task_plan(self, document: Document) -> None:
        _replace(self._task_plan(), document)

    def newest_position(self) -> Document | None:
        for number in sorted(self._event_numbers(), reverse=True):
            event = read_document(self._event(number))
            if event is not None and event.get("position"):
                return event
        return None

    def recent_events(self) -> Iterable[Document]:
        """Return some of the newest commit events, newest first."""
        newest = sorted(self._event_numbers(), reverse=True)[:_RECENT]
        return [event for event in map(read_document, map(self._event, newest)) if event]

    def emit(self, document: Document) -> None:
        canonical_json(document)
        number = max(self._event_numbers(), default=0)
        for candidate in range(number + 1, number + _ATTEMPTS):
            if create_document(self._event(candidate), document):
                return
        raise OSError(f"no free event number after {number} in {self._root}")

    def _plan(self, window_id: str) -> Path:
        return self._root / "win" / f"{window_id}.json"

    def _task_plan(self) -> Path:
        return self._root / "tasks" / f"{quote(self._task, safe='')}.json"

    def _event(self, number: int) -> Path:
        return self._root / "events" / f"{number:0{_EVENT_DIGITS}d}.json"

    def _event_numbers(self) -> list[int]:
        directory = self._root / "events"
        if not directory.is_dir():
            return []
        return [int(path.stem) for path in directory.glob("[0-9]*.json")]


def _replace(path: Path, document: Document) -> None:
    canonical_json(document)  # raises for values that other stores would refuse or alter
    replace_document(path, document)
